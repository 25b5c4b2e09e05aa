//! Expressions for values, so that rules read as in a textbook: `t * x.cos()`.
//!
//! An [`Expr`] is a value in the program of a [`Writer`]. An operator or a method adds an equation and returns its result; a number beside
//! an expression is a scalar literal of its dtype. Like a tensor, an expression defers its error: the first operation that fails stops the
//! writing, and [`write()`] returns the error, with the location of the equation whose rule is written. So only methods that return no
//! expression return a [`Result`]: shapes, dtypes and operations with several results.

use std::cell::RefCell;
use std::ops;

use remat_ir::{
    Atom, Aval, Binary, Builder, Compare, DType, Error, ExpandDims, IntegerPow, Literal, Op, Operation, Result,
    SelectN, Shape, Unary,
};

use super::{Batched, Emit};

/// The program to which rules write; copies write to the same one.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'w>(&'w RefCell<State<'w>>);

struct State<'w> {
    builder: &'w mut Builder,
    error: Option<Error>,
}

/// A value of the program that a rule writes.
#[derive(Clone, Copy)]
pub(crate) struct Expr<'w> {
    writer: Writer<'w>,
    atom: Atom,
}

/// Writes equations to `b`.
///
/// # Errors
/// The error of the first operation that failed, or else that of `rule`.
pub(crate) fn write<T>(b: &mut Builder, rule: impl FnOnce(Writer<'_>) -> Result<T>) -> Result<T> {
    let state = RefCell::new(State { builder: b, error: None });
    let result = rule(Writer(&state));
    match state.borrow_mut().error.take() {
        Some(error) => Err(error),
        None => result,
    }
}

impl<'w> Writer<'w> {
    /// An atom of the program as an expression.
    pub(crate) fn expr(self, atom: Atom) -> Expr<'w> {
        Expr { writer: self, atom }
    }

    /// A scalar constant.
    pub(crate) fn literal(self, literal: Literal) -> Expr<'w> {
        self.expr(literal.into())
    }

    /// Adds what `f` writes to the program, unless an operation failed before.
    pub(crate) fn add(self, f: impl FnOnce(&mut Builder) -> Result<Atom>) -> Expr<'w> {
        // Results after a failure are not used, so any atom will do.
        self.expr(self.read(f).unwrap_or(Literal::from_bool(false).into()))
    }

    /// An equation with one result.
    pub(crate) fn apply(self, op: impl Operation, ins: &[Expr<'w>]) -> Expr<'w> {
        self.add(|b| b.apply(op, &atoms(ins)))
    }

    /// An equation and its results.
    ///
    /// # Errors
    /// If the operation does not take the operands, or an operation failed before.
    pub(crate) fn emit(self, op: impl Into<Op>, ins: &[Expr<'w>]) -> Result<Vec<Expr<'w>>> {
        let outs = self.read(|b| b.emit(op.into(), &atoms(ins)))?;
        Ok(outs.into_iter().map(|atom| self.expr(atom)).collect())
    }

    /// Zeros of this aval: a literal for a scalar.
    pub(crate) fn zeros(self, aval: &Aval) -> Expr<'w> {
        self.add(|b| b.zeros(aval))
    }

    /// `x` itself, or zeros of this aval for `None`.
    pub(crate) fn instantiate(self, x: Option<Expr<'w>>, aval: &Aval) -> Expr<'w> {
        x.unwrap_or_else(|| self.zeros(aval))
    }

    /// The result of `f`, or the error of the first operation that failed.
    fn read<T>(self, f: impl FnOnce(&mut Builder) -> Result<T>) -> Result<T> {
        let State { builder, error } = &mut *self.0.borrow_mut();
        if let Some(error) = error {
            return Err(error.clone());
        }
        f(builder).inspect_err(|e| *error = Some(e.clone()))
    }
}

impl<'w> Expr<'w> {
    /// The program to which the value belongs.
    pub(crate) fn writer(self) -> Writer<'w> {
        self.writer
    }

    /// The atom of the value.
    pub(crate) fn atom(self) -> Atom {
        self.atom
    }

    /// The aval, or the error of an operation that failed before.
    pub(crate) fn aval(self) -> Result<Aval> {
        self.writer.read(|b| Ok(b.aval(self.atom)))
    }

    /// The shape, or the error of an operation that failed before.
    pub(crate) fn shape(self) -> Result<Shape> {
        self.writer.read(|b| Ok(b.shape(self.atom)))
    }

    /// The dtype, or the error of an operation that failed before.
    pub(crate) fn dtype(self) -> Result<DType> {
        self.writer.read(|b| Ok(b.dtype(self.atom)))
    }

    /// A scalar constant of the same dtype.
    pub(crate) fn literal(self, value: f64) -> Expr<'w> {
        self.writer.add(|b| Ok(Literal::from_f64(b.dtype(self.atom), value).into()))
    }

    /// An operation of one operand.
    pub(crate) fn apply(self, op: impl Operation) -> Expr<'w> {
        self.writer.apply(op, &[self])
    }

    /// `self^y` for a small integer.
    pub(crate) fn powi(self, y: i32) -> Expr<'w> {
        self.apply(IntegerPow { y })
    }

    /// `self * self`
    pub(crate) fn square(self) -> Expr<'w> {
        self * self
    }

    /// `self^y`
    pub(crate) fn pow(self, y: impl Term<'w>) -> Expr<'w> {
        self.binary(Binary::Pow, y)
    }

    /// The larger of the two.
    pub(crate) fn max(self, y: impl Term<'w>) -> Expr<'w> {
        self.binary(Binary::Max, y)
    }

    /// Whether both hold.
    pub(crate) fn and(self, y: Expr<'w>) -> Expr<'w> {
        self.binary(Binary::And, y)
    }

    /// Whether `self` equals `y`.
    pub(crate) fn eq(self, y: impl Term<'w>) -> Expr<'w> {
        self.compare(Compare::Eq, y)
    }

    /// Whether `self` is less than `y`.
    pub(crate) fn lt(self, y: impl Term<'w>) -> Expr<'w> {
        self.compare(Compare::Lt, y)
    }

    /// A comparison with `y`.
    pub(crate) fn compare(self, op: Compare, y: impl Term<'w>) -> Expr<'w> {
        self.writer.apply(op, &[self, y.beside(self)])
    }

    /// `if_true` where this mask holds, else `if_false`. One of the two is an expression.
    pub(crate) fn select(self, if_true: impl Term<'w>, if_false: impl Term<'w>) -> Expr<'w> {
        let like = if_true.expr().or(if_false.expr()).unwrap_or(self);
        self.writer.apply(SelectN, &[self, if_false.beside(like), if_true.beside(like)])
    }

    /// The value in another dtype, or itself if it has that dtype.
    pub(crate) fn convert(self, dtype: DType) -> Expr<'w> {
        self.writer.add(|b| b.convert(self.atom, dtype))
    }

    /// Dimension `i` becomes dimension `dims[i]` of `shape`; returns itself if nothing changes.
    pub(crate) fn broadcast(self, shape: &[usize], dims: &[usize]) -> Expr<'w> {
        self.writer.add(|b| b.broadcast(self.atom, shape, dims))
    }

    /// A scalar repeated to a shape, or itself if it has that shape. For the tangent of a scalar operand that is broadcast.
    pub(crate) fn spread(self, shape: &[usize]) -> Expr<'w> {
        self.writer
            .add(|b| if b.shape(self.atom)[..] == *shape { Ok(self.atom) } else { b.broadcast(self.atom, shape, &[]) })
    }

    /// The sum of all elements if `shape` is that of a scalar, which is the transpose of broadcasting a scalar operand. Itself for any
    /// other shape.
    pub(crate) fn sum_to(self, shape: &[usize]) -> Expr<'w> {
        if !shape.is_empty() {
            return self;
        }
        self.writer.add(|b| b.reduce_sum(self.atom, &(0..b.shape(self.atom).len()).collect::<Vec<_>>()))
    }

    /// The sum over some axes, or itself if there are none.
    pub(crate) fn sum(self, axes: &[usize]) -> Expr<'w> {
        self.writer.add(|b| b.reduce_sum(self.atom, axes))
    }

    /// The same elements with another shape, or itself if it has that shape.
    pub(crate) fn reshape(self, shape: &[usize]) -> Expr<'w> {
        self.writer.add(|b| b.reshape(self.atom, shape))
    }

    /// Dimension `i` of the result is dimension `permutation[i]`; itself for the identity.
    pub(crate) fn transpose(self, permutation: &[usize]) -> Expr<'w> {
        self.writer.add(|b| b.transpose(self.atom, permutation))
    }

    /// With one dimension moved.
    pub(crate) fn move_axis(self, from: usize, to: usize) -> Expr<'w> {
        self.writer.add(|b| b.move_axis(self.atom, from, to))
    }

    /// Dimensions of size 1 at these positions of the result.
    pub(crate) fn expand_dims(self, axes: &[usize]) -> Expr<'w> {
        if axes.is_empty() { self } else { self.apply(ExpandDims { axes: axes.into() }) }
    }

    fn binary(self, op: Binary, y: impl Term<'w>) -> Expr<'w> {
        self.writer.apply(op, &[self, y.beside(self)])
    }
}

macro_rules! functions {
    ($($name:ident $op:ident)*) => {
        impl<'w> Expr<'w> {
            $(
                #[doc = concat!("[`Unary::", stringify!($op), "`]")]
                pub(crate) fn $name(self) -> Expr<'w> {
                    self.apply(Unary::$op)
                }
            )*
        }
    };
}

functions! { exp Exp log Log rsqrt Rsqrt sin Sin cos Cos sinh Sinh cosh Cosh round Round digamma Digamma }

/// An operand beside an expression: another expression, or a number, which becomes a literal of the same dtype.
pub(crate) trait Term<'w>: Copy {
    /// The expression, if it is one.
    fn expr(self) -> Option<Expr<'w>>;
    /// The operand beside an expression.
    fn beside(self, other: Expr<'w>) -> Expr<'w>;
}

impl<'w> Term<'w> for Expr<'w> {
    fn expr(self) -> Option<Expr<'w>> {
        Some(self)
    }

    fn beside(self, _other: Expr<'w>) -> Expr<'w> {
        self
    }
}

impl<'w> Term<'w> for f64 {
    fn expr(self) -> Option<Expr<'w>> {
        None
    }

    fn beside(self, other: Expr<'w>) -> Expr<'w> {
        other.literal(self)
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident)*) => {$(
        impl<'w, T: Term<'w>> ops::$operator<T> for Expr<'w> {
            type Output = Expr<'w>;
            fn $method(self, other: T) -> Expr<'w> {
                self.binary(Binary::$operator, other)
            }
        }

        impl<'w> ops::$operator<Expr<'w>> for f64 {
            type Output = Expr<'w>;
            fn $method(self, other: Expr<'w>) -> Expr<'w> {
                other.literal(self).binary(Binary::$operator, other)
            }
        }
    )*};
}

operators! { Add add Sub sub Mul mul Div div }

impl<'w> ops::Neg for Expr<'w> {
    type Output = Expr<'w>;
    fn neg(self) -> Expr<'w> {
        self.apply(Unary::Neg)
    }
}

/// The sum of two terms of a tangent or cotangent; `None` is zero.
pub(crate) fn sum_of<'w>(x: Option<Expr<'w>>, y: Option<Expr<'w>>) -> Option<Expr<'w>> {
    match (x, y) {
        (Some(x), Some(y)) => Some(x.binary(Binary::AddAny, y)),
        (x, y) => x.or(y),
    }
}

/// The difference of two terms of a tangent; `None` is zero.
pub(crate) fn difference_of<'w>(x: Option<Expr<'w>>, y: Option<Expr<'w>>) -> Option<Expr<'w>> {
    match (x, y) {
        (Some(x), Some(y)) => Some(x - y),
        (None, Some(y)) => Some(-y),
        (x, None) => x,
    }
}

impl<'w> Batched<Expr<'w>> {
    /// A value computed from this one; its batch dimension stays in place.
    pub(crate) fn map(self, f: impl FnOnce(Expr<'w>) -> Expr<'w>) -> Batched<Expr<'w>> {
        Batched { atom: f(self.atom), axis: self.axis }
    }

    /// The value with its batch dimension in front, repeated if all examples share it.
    pub(crate) fn to_front(self, size: usize) -> Expr<'w> {
        self.to_axis(size, 0)
    }

    /// The value with its batch dimension at `axis`, repeated if all examples share it.
    pub(crate) fn to_axis(self, size: usize, axis: usize) -> Expr<'w> {
        self.atom.writer.add(|b| b.batch_at(Batched { atom: self.atom.atom, axis: self.axis }, size, axis))
    }
}

/// The atoms of expressions.
pub(crate) fn atoms(exprs: &[Expr<'_>]) -> Vec<Atom> {
    exprs.iter().map(|x| x.atom).collect()
}

#[cfg(test)]
mod tests {
    use remat_ir::Loc;

    use super::*;

    #[test]
    fn expressions_are_equations_in_the_order_of_evaluation() -> Result<()> {
        let mut b = Builder::new();
        let x = b.input(Aval::new(DType::F32, [3]));
        let y = write(&mut b, |w| Ok((1.0 - w.expr(x).sin().square()).atom()))?;
        let text = b.finish(vec![y]).to_string();
        assert!(text.contains("c:f32[3] = mul b b"), "{text}");
        assert!(text.contains("d:f32[3] = sub 1.0:f32[] c"), "{text}");
        Ok(())
    }

    #[test]
    fn the_first_failure_is_the_error_and_ends_the_writing() {
        let mut b = Builder::new();
        b.loc = Loc::caller();
        let (x, y) = (b.input(Aval::new(DType::F32, [3])), b.input(Aval::new(DType::F32, [2])));
        let result = write(&mut b, |w| {
            let (x, y) = (w.expr(x), w.expr(y));
            let wrong = x * y;
            let later = (wrong.reshape(&[7, 7]) + x.exp()).transpose(&[5]).atom();
            assert!(wrong.shape().is_err() && x.dtype().is_err() && w.emit(Unary::Exp, &[x]).is_err());
            Ok(later)
        });
        let error = result.map(|_| ()).map_err(|e| (e.operation().to_owned(), e.loc().is_some()));
        assert_eq!(error, Err(("mul".to_owned(), true)));
        assert!(b.is_empty(), "an equation was written");
    }
}
