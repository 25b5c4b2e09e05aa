//! Jacobians and Hessians.

use std::collections::BTreeMap;

use remat_ir::{Aval, Builder, Iota, Loc, Result};

use super::linearization::Linearization;
use crate::rules::Emit;
use crate::trace::{
    Order, Output, Program, ScalarOutput, Tensor, Tree, avals, current_loc, rebuild, run, structure, trace_tree_at,
};
use crate::transform;

/// The type of the Jacobian of a result: the result's structure with a value of the argument's type at every leaf.
///
/// The block for leaf `o` of the result and leaf `i` of the argument is a tensor with the dimensions of `o`, then those of `i`.
pub trait JacobianOf<A>: Tree {
    /// A tree of `A`s.
    type Jacobian;

    /// Assembles the Jacobian from one `A` per leaf of the result, in order.
    fn assemble(&self, rows: &mut dyn FnMut() -> Result<A>) -> Result<Self::Jacobian>;
}

impl<A> JacobianOf<A> for Tensor {
    type Jacobian = A;

    fn assemble(&self, rows: &mut dyn FnMut() -> Result<A>) -> Result<A> {
        rows()
    }
}

impl<A, T: JacobianOf<A>> JacobianOf<A> for Vec<T> {
    type Jacobian = Vec<T::Jacobian>;

    fn assemble(&self, rows: &mut dyn FnMut() -> Result<A>) -> Result<Self::Jacobian> {
        self.iter().map(|child| child.assemble(rows)).collect()
    }
}

impl<A, T: JacobianOf<A>> JacobianOf<A> for Option<T> {
    type Jacobian = Option<T::Jacobian>;

    fn assemble(&self, rows: &mut dyn FnMut() -> Result<A>) -> Result<Self::Jacobian> {
        self.as_ref().map(|child| child.assemble(rows)).transpose()
    }
}

impl<A, K: Clone + Ord + std::fmt::Display + 'static, T: JacobianOf<A>> JacobianOf<A> for BTreeMap<K, T> {
    type Jacobian = BTreeMap<K, T::Jacobian>;

    fn assemble(&self, rows: &mut dyn FnMut() -> Result<A>) -> Result<Self::Jacobian> {
        self.iter().map(|(key, child)| Ok((key.clone(), child.assemble(rows)?))).collect()
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<Arg, $($name: JacobianOf<Arg>),*> JacobianOf<Arg> for ($($name,)*) {
            type Jacobian = ($($name::Jacobian,)*);

            fn assemble(&self, rows: &mut dyn FnMut() -> Result<Arg>) -> Result<Self::Jacobian> {
                Ok(($(self.$index.assemble(rows)?,)*))
            }
        }
    };
}

crate::trace::for_tuples!(tuples);

/// The Jacobian by reverse mode: one pullback per element of the result, batched. Use it for functions whose result has fewer elements than
/// the argument.
///
/// ```
/// use remat::{Tensor, jacrev};
/// let x = Tensor::from(vec![1.0f32, 2.0]);
/// let jacobian = jacrev(|x: &Tensor| x * x)(&x)?;
/// assert_eq!(jacobian.shape()?, [2, 2]);
/// assert_eq!(jacobian.to_vec::<f32>()?, [2.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`crate::vjp`]; if an argument or a result is not a float.
#[track_caller]
pub fn jacrev<A: Tree, R: Output>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<<R::Tree as JacobianOf<A>>::Jacobian>
where
    R::Tree: JacobianOf<A>,
{
    let loc = current_loc();
    move |x| jacobian("jacrev", &f, x, reverse_rows, loc)
}

/// The Jacobian by forward mode: one tangent per element of the argument, batched. Use it for functions whose result has more elements than
/// the argument.
///
/// ```
/// use remat::{Tensor, jacfwd};
/// let x = (Tensor::from(2.0f32), Tensor::from(3.0f32));
/// let (da, db) = jacfwd(|(a, b): &(Tensor, Tensor)| a * b)(&x)?;
/// assert_eq!((da.item::<f32>()?, db.item::<f32>()?), (3.0, 2.0));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`crate::jvp`]; if an argument or a result is not a float.
#[track_caller]
pub fn jacfwd<A: Tree, R: Output>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<<R::Tree as JacobianOf<A>>::Jacobian>
where
    R::Tree: JacobianOf<A>,
{
    let loc = current_loc();
    move |x| jacobian("jacfwd", &f, x, forward_rows, loc)
}

/// The matrix of second derivatives of a scalar function, by forward mode over reverse mode. For a tensor `[n, m]` it is `[n, m, n, m]`;
/// for a tree, each leaf becomes a tree.
///
/// ```
/// use remat::{Tensor, hessian};
/// let x = Tensor::from(vec![1.0f64, 2.0]);
/// let h = hessian(|x: &Tensor| (x * x * x).sum(..))(&x)?;
/// assert_eq!(h.to_vec::<f64>()?, [6.0, 0.0, 0.0, 12.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`crate::grad`].
#[track_caller]
pub fn hessian<A: Tree + JacobianOf<A>, R: ScalarOutput>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> Result<<A as JacobianOf<A>>::Jacobian> {
    let (gradient, loc) = (super::grad(f), current_loc());
    move |x| jacobian("hessian", |x: &A| gradient(x), x, forward_rows, loc)
}

/// Traces a function and builds its Jacobian, with the structure of the result, from one row of tensors per result.
fn jacobian<A: Tree, R: Output>(
    operation: &'static str,
    f: impl Fn(&A) -> R,
    x: &A,
    rows: impl FnOnce(&'static str, Program, &A, Loc) -> Result<Vec<Vec<Tensor>>>,
    loc: Loc,
) -> Result<<R::Tree as JacobianOf<A>>::Jacobian>
where
    R::Tree: JacobianOf<A>,
{
    let (program, like) = trace_tree_at(Order::current().plus(1), x, loc, f)?;
    let mut rows = rows(operation, program, x, loc)?.into_iter();
    like.assemble(&mut || rebuild(x, rows.next().unwrap_or_default()))
}

fn expect_floats(operation: &'static str, avals: &[Aval], what: &str, loc: Loc) -> Result<()> {
    match avals.iter().find(|a| !a.dtype.is_float()) {
        Some(aval) => {
            let message = format!("a leaf of the {what} is {aval}, and only floats can be differentiated");
            Err(remat_ir::Error::new(remat_ir::ErrorKind::Differentiation, operation, message).at(loc))
        }
        None => Ok(()),
    }
}

/// The cotangents of all arguments for each result, batched over the elements of the result in front.
fn reverse_rows<A: Tree>(operation: &'static str, program: Program, x: &A, loc: Loc) -> Result<Vec<Vec<Tensor>>> {
    let args = structure(x).0;
    let in_avals = avals(&args)?;
    expect_floats(operation, &in_avals, "argument", loc)?;
    let out_avals = program.jaxpr.out_avals();
    expect_floats(operation, &out_avals, "result", loc)?;
    let linearization = Linearization::new(program, out_avals.len()).map_err(|e| e.at(loc))?;
    let backward = linearization.backward()?;
    let num_residuals = linearization.split.residuals.len();
    let mut b = Builder::new();
    b.loc = loc;
    let ins = b.inputs(linearization.program.jaxpr.in_avals());
    let known = b.inline(&linearization.split.known, &ins)?;
    let residuals = linearization.split.residual_atoms(&ins, &known);
    let mut outs = Vec::new();
    for (i, out) in out_avals.iter().enumerate() {
        let batched: Vec<bool> = (0..backward.ins.len()).map(|k| k == num_residuals + i).collect();
        let rows = transform::vmap(&backward, out.size(), &batched, &vec![true; in_avals.len()])?.jaxpr;
        let mut operands = residuals.clone();
        for (k, aval) in out_avals.iter().enumerate() {
            operands.push(if k == i { basis(&mut b, aval)? } else { b.zeros(aval)? });
        }
        for (row, aval) in b.inline(&rows, &operands)?.into_iter().zip(&in_avals) {
            let shape: Vec<usize> = out.shape.iter().chain(&aval.shape).copied().collect();
            outs.push(b.reshape(row, &shape)?);
        }
    }
    run_rows(operation, b, outs, linearization.program.captured, args, in_avals.len(), loc)
}

/// The tangents of each result for all arguments, whose elements come last.
fn forward_rows<A: Tree>(operation: &'static str, program: Program, x: &A, loc: Loc) -> Result<Vec<Vec<Tensor>>> {
    let args = structure(x).0;
    let in_avals = avals(&args)?;
    expect_floats(operation, &in_avals, "argument", loc)?;
    let out_avals = program.jaxpr.out_avals();
    expect_floats(operation, &out_avals, "result", loc)?;
    let linearization = Linearization::new(program, out_avals.len()).map_err(|e| e.at(loc))?;
    let linear = &linearization.split.staged;
    let num_residuals = linearization.split.residuals.len();
    let mut b = Builder::new();
    b.loc = loc;
    let ins = b.inputs(linearization.program.jaxpr.in_avals());
    let known = b.inline(&linearization.split.known, &ins)?;
    let residuals = linearization.split.residual_atoms(&ins, &known);
    let mut columns = Vec::new();
    for (i, aval) in in_avals.iter().enumerate() {
        let batched: Vec<bool> = (0..linear.ins.len()).map(|k| k == num_residuals + i).collect();
        let column = transform::vmap(linear, aval.size(), &batched, &vec![true; out_avals.len()])?.jaxpr;
        let mut operands = residuals.clone();
        for (k, other) in in_avals.iter().enumerate() {
            operands.push(if k == i { basis(&mut b, other)? } else { b.zeros(other)? });
        }
        columns.push(b.inline(&column, &operands)?);
    }
    let mut outs = Vec::new();
    for (o, out) in out_avals.iter().enumerate() {
        for (column, aval) in columns.iter().zip(&in_avals) {
            let last = b.move_axis(column[o], 0, out.rank())?;
            let shape: Vec<usize> = out.shape.iter().chain(&aval.shape).copied().collect();
            outs.push(b.reshape(last, &shape)?);
        }
    }
    run_rows(operation, b, outs, linearization.program.captured, args, in_avals.len(), loc)
}

fn run_rows(
    operation: &'static str,
    b: Builder,
    outs: Vec<remat_ir::Atom>,
    captured: Vec<Tensor>,
    args: Vec<Tensor>,
    num_ins: usize,
    loc: Loc,
) -> Result<Vec<Vec<Tensor>>> {
    let rows = run(operation, &b.finish(outs), &[captured, args].concat(), loc)?;
    // chunks(0) would panic. Without arguments every row is empty, and `assemble` builds it so.
    Ok(rows.chunks(num_ins.max(1)).map(<[Tensor]>::to_vec).collect())
}

/// The unit vectors of the space of an aval, stacked in front.
fn basis(b: &mut Builder, aval: &Aval) -> Result<remat_ir::Atom> {
    let n = aval.size();
    let square = |axis| Iota { dtype: remat_ir::DType::I64, shape: [n, n].into_iter().collect(), axis };
    let (row, column) = (b.apply(square(0), &[])?, b.apply(square(1), &[])?);
    let eye = b.apply(remat_ir::Compare::Eq, &[row, column])?;
    let eye = b.convert(eye, aval.dtype)?;
    let shape: Vec<usize> = std::iter::once(n).chain(aval.shape.iter().copied()).collect();
    b.reshape(eye, &shape)
}
