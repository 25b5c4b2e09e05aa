//! The rules of the first-order operations: derivative (jvp), transpose and batching.
//!
//! [`Rules`] requires every rule as a method and is implemented once per operation struct, one file per family. A missing rule is a compile
//! error, since [`rules_of`] is generated from the list of operations. Rules are written as expressions ([`Expr`]): `Unary::Sin => t *
//! x.cos()`. Their equations have the location of the original equation.
//!
//! Operations with jaxprs in their parameters are not here: their rules need the transformations themselves and are in
//! `transform::control`. The samples for tests are in the crate `remat-testkit`.

mod attention;
mod batch;
mod collective;
mod conv;
mod convert;
mod cumulative;
mod dot;
mod elementwise;
pub(crate) mod emit;
mod expr;
mod gather;
mod linalg;
mod loss;
mod marker;
mod random;
mod reduce;
mod shape;
mod slice;
mod sort;
mod unary;
mod window;

use batch::{align, shifted, unbatched};
pub(crate) use collective::bind as bind_collective;
pub(crate) use emit::Emit;
use expr::{Expr, Writer, difference_of, sum_of, write};
use remat_ir::{Atom, Aval, Builder, Error, ErrorKind, Jaxpr, Operation, Prim, Result, VarMap};

/// One optional value per operand or result: `None` is a tangent or cotangent that is zero.
pub(crate) type Linear<V = Atom> = Vec<Option<V>>;

/// An operand of a linear equation that is transposed.
#[derive(Clone, Debug)]
pub(crate) enum Operand<V = Atom> {
    /// A value that is known in the backward pass.
    Known(V),
    /// An operand in which the equation is linear; only its aval is known.
    Linear(Aval),
}

impl<V: Copy> Operand<V> {
    /// The known value, or an error that `op` is not linear in this operand.
    pub(crate) fn known(&self, op: &impl Operation) -> Result<V> {
        match self {
            Operand::Known(value) => Ok(*value),
            Operand::Linear(_) => Err(not_linear(op)),
        }
    }

    /// Whether a cotangent for it is needed.
    pub(crate) fn is_linear(&self) -> bool {
        matches!(self, Operand::Linear(_))
    }
}

impl<'w> Operand<Expr<'w>> {
    /// The aval of an operand that needs a cotangent, or an error that `op` is not linear in the others.
    fn linear(&self, op: &impl Operation) -> Result<&Aval> {
        match self {
            Operand::Linear(aval) => Ok(aval),
            Operand::Known(_) => Err(not_linear(op)),
        }
    }

    /// The aval.
    fn aval(&self) -> Result<Aval> {
        match self {
            Operand::Known(x) => x.aval(),
            Operand::Linear(aval) => Ok(aval.clone()),
        }
    }
}

/// A value with its batch dimension, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batched<V = Atom> {
    /// The value; its aval includes the batch dimension.
    pub(crate) atom: V,
    /// The position of the batch dimension; `None` if all examples share the value.
    pub(crate) axis: Option<usize>,
}

impl<V> Batched<V> {
    /// A value that all examples share.
    pub(crate) fn shared(atom: V) -> Batched<V> {
        Batched { atom, axis: None }
    }

    /// A value with the batch dimension in front.
    pub(crate) fn front(atom: V) -> Batched<V> {
        Batched::at(atom, 0)
    }

    /// A value with the batch dimension at `axis`.
    fn at(atom: V, axis: usize) -> Batched<V> {
        Batched { atom, axis: Some(axis) }
    }
}

/// The rules of a first-order operation.
pub(crate) trait Rules {
    /// The tangents of `outs`, given the tangents of `ins`. `outs` are the results already computed from `ins`. Tangents have the aval of
    /// their primal. At least one tangent is not zero; operands and results that are not floats have none.
    ///
    /// Equations that use a tangent must be linear in it. The values that they multiply it with should be few and small, since the backward
    /// pass keeps them.
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>>;

    /// The cotangents of the linear operands, given those of the results; `None` for the known operands. At least one
    /// cotangent is not zero.
    ///
    /// # Errors
    /// If the operation is not linear in the linear operands; see [`not_linear`].
    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>>;

    /// The results for a batch of `size` examples; at least one operand is batched.
    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>>;
}

impl dyn Rules + '_ {
    /// Writes the tangents of an equation to `b`; see [`Rules::jvp`].
    pub(crate) fn write_jvp(
        &self,
        b: &mut Builder,
        ins: &[Atom],
        outs: &[Atom],
        tangents: &[Option<Atom>],
    ) -> Result<Linear> {
        write(b, |w| {
            let exprs = |atoms: &[Atom]| atoms.iter().map(|&a| w.expr(a)).collect::<Vec<_>>();
            let out = self.jvp(&exprs(ins), &exprs(outs), &optional(w, tangents))?;
            Ok(out.into_iter().map(|t| t.map(Expr::atom)).collect())
        })
    }

    /// Writes the cotangents of the operands of an equation to `b`; see [`Rules::transpose`].
    pub(crate) fn write_transpose(
        &self,
        b: &mut Builder,
        cotangents: &[Option<Atom>],
        ins: &[Operand],
    ) -> Result<Linear> {
        write(b, |w| {
            let operand = |operand: &Operand| match operand {
                Operand::Known(atom) => Operand::Known(w.expr(*atom)),
                Operand::Linear(aval) => Operand::Linear(aval.clone()),
            };
            let out = self.transpose(&optional(w, cotangents), &ins.iter().map(operand).collect::<Vec<_>>())?;
            Ok(out.into_iter().map(|ct| ct.map(Expr::atom)).collect())
        })
    }

    /// Writes a batch of an equation to `b`; see [`Rules::vmap`].
    pub(crate) fn write_vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        write(b, |w| {
            let ins: Vec<_> = ins.iter().map(|x| Batched { atom: w.expr(x.atom), axis: x.axis }).collect();
            let out = self.vmap(w, size, &ins)?;
            Ok(out.into_iter().map(|x| Batched { atom: x.atom.atom(), axis: x.axis }).collect())
        })
    }
}

fn optional<'w>(w: Writer<'w>, atoms: &[Option<Atom>]) -> Linear<Expr<'w>> {
    atoms.iter().map(|atom| atom.map(|atom| w.expr(atom))).collect()
}

/// Tells users where they may have written the transposed function.
pub(crate) const NOT_LINEAR: &str = "is not linear in the operands that are to be transposed; the function of `linear_transpose`, and \
                                     the rule of a `custom_jvp` in its tangent, must be linear";

/// The error of transposing an operation that is not linear in the operands asked for.
pub(crate) fn not_linear(op: &impl Operation) -> Error {
    Error::new(ErrorKind::Differentiation, op.name(), NOT_LINEAR)
}

macro_rules! rules_of {
    ($($variant:ident $(as $shared:ty)?,)*) => {
        /// The rules of a first-order operation.
        pub(crate) fn rules_of(op: &Prim) -> &dyn Rules {
            match op {
                $(Prim::$variant(op) => {
                    let op: &remat_ir::$variant = op;
                    op
                })*
            }
        }
    };
}

remat_ir::with_prims!(rules_of);

/// The tangents of the results of a first-order program, for an operation whose derivative is that of its definition. At least one tangent
/// is not zero.
fn differentiate<'w>(
    w: Writer<'w>,
    definition: &Jaxpr,
    ins: &[Expr<'w>],
    tangents: &[Option<Expr<'w>>],
) -> Result<Linear<Expr<'w>>> {
    let mut primals: VarMap<Option<Expr<'w>>> = definition.var_map(None);
    let mut changes: VarMap<Option<Expr<'w>>> = definition.var_map(None);
    for ((&var, &value), &tangent) in definition.ins.iter().zip(ins).zip(tangents) {
        (primals[var], changes[var]) = (Some(value), tangent);
    }
    for eqn in &definition.eqns {
        let primal = |&atom: &Atom| match atom {
            Atom::Lit(literal) => Ok(w.literal(literal)),
            Atom::Var(var) => primals[var].ok_or_else(|| undefined(&eqn.op)),
        };
        let ins = eqn.ins.iter().map(primal).collect::<Result<Vec<_>>>()?;
        let tangents: Linear<Expr<'w>> = eqn.ins.iter().map(|a| a.var().and_then(|v| changes[v])).collect();
        let outs = w.emit(eqn.op.clone(), &ins)?;
        let rules = eqn.op.prim().map(rules_of).filter(|_| tangents.iter().any(Option::is_some));
        let out_tangents = match rules {
            Some(rules) => rules.jvp(&ins, &outs, &tangents)?,
            None => vec![None; outs.len()],
        };
        for ((&var, &out), tangent) in eqn.outs.iter().zip(&outs).zip(out_tangents) {
            (primals[var], changes[var]) = (Some(out), tangent);
        }
    }
    Ok(definition.outs.iter().map(|a| a.var().and_then(|v| changes[v])).collect())
}

fn undefined(op: &remat_ir::Op) -> Error {
    Error::new(ErrorKind::Internal, op.name(), "a variable is used before it is defined")
}
