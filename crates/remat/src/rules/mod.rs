//! The calculus of the first-order operations: how each one is differentiated, transposed and batched.
//!
//! [`Rules`] has every rule as a required method and is implemented once per operation struct, one file per family. A
//! missing rule is a compile error: [`first_order`] matches every operation. Rules write equations with the [`Emit`] shortcuts;
//! the builder gives them the location of the equation that they come from.
//!
//! Deliberately absent: operations with programs in them, whose rules need the transformations themselves. They are in
//! `transform::control`.

mod attention;
mod conv;
mod convert;
mod cumulative;
mod dot;
mod elementwise;
pub(crate) mod emit;
mod gather;
mod loss;
mod marker;
mod random;
mod reduce;
mod sample;
mod shape;
mod slice;
mod sort;
mod unary;
mod window;

pub(crate) use emit::Emit;
use remat_ir::{Atom, Aval, Builder, Error, ErrorKind, Jaxpr, Op, Operation, Result, VarMap};
pub use sample::Sample;

/// One optional atom per operand or result: `None` is a tangent or cotangent that is zero.
pub(crate) type Linear = Vec<Option<Atom>>;

/// An operand of a linear equation that is transposed.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// A value that is known in the backward pass.
    Known(Atom),
    /// An operand in which the equation is linear; only its aval is known.
    Linear(Aval),
}

impl Operand {
    /// The known value, or an error that `op` is not linear in this operand.
    pub(crate) fn known(&self, op: &impl Operation) -> Result<Atom> {
        match self {
            Operand::Known(atom) => Ok(*atom),
            Operand::Linear(_) => Err(not_linear(op)),
        }
    }

    /// Whether a cotangent for it is wanted.
    pub(crate) fn is_linear(&self) -> bool {
        matches!(self, Operand::Linear(_))
    }
}

/// An atom with its batch dimension, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batched {
    /// The atom; its aval includes the batch dimension.
    pub(crate) atom: Atom,
    /// Where the batch dimension is; `None` if all examples share the value.
    pub(crate) axis: Option<usize>,
}

impl Batched {
    /// A value that all examples share.
    pub(crate) fn shared(atom: Atom) -> Batched {
        Batched { atom, axis: None }
    }

    /// A value with the batch dimension in front.
    pub(crate) fn front(atom: Atom) -> Batched {
        Batched { atom, axis: Some(0) }
    }
}

/// The rules of a first-order operation.
pub(crate) trait Rules {
    /// The tangents of `outs`, given the tangents of `ins`. `outs` are the results that were already computed from `ins`.
    /// Tangents have the aval of their primal. At least one tangent is not zero; operands and results that are no floats
    /// have none.
    ///
    /// The equations that use a tangent must be linear in it, and what they multiply it with should be computed from as
    /// few and as small values as possible: those are what the backward pass keeps.
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear>;

    /// The cotangents of the linear operands, given those of the results; `None` for the known operands. At least one
    /// cotangent is not zero.
    ///
    /// # Errors
    /// If the operation is not linear in the linear operands; see [`not_linear`].
    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear>;

    /// The results for a batch of `size` examples; at least one operand is batched.
    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>>;

    /// Applications of this operation, of every kind and dtype and edge, that the generic test puts through every
    /// transformation and every engine.
    fn samples() -> Vec<Sample>
    where
        Self: Sized;
}

/// Says where a user can have written what is transposed.
pub(crate) const NOT_LINEAR: &str = "is not linear in the operands that are to be transposed; the function of `linear_transpose`, and \
                                     the rule of a `custom_jvp` in its tangent, must be linear";

/// The error of transposing an operation that is not linear in the operands asked for.
pub(crate) fn not_linear(op: &impl Operation) -> Error {
    Error::new(ErrorKind::Differentiation, op.name(), NOT_LINEAR)
}

macro_rules! first_order {
    ($($variant:ident)*; higher $($higher:ident)*) => {
        /// The rules of a first-order operation; `None` for one with programs in it.
        pub(crate) fn first_order(op: &Op) -> Option<&dyn Rules> {
            match op {
                $(Op::$variant(op) => {
                    let op: &remat_ir::$variant = op;
                    Some(op)
                })*
                $(Op::$higher(_))|* => None,
            }
        }

        /// The samples of all first-order operations.
        pub fn all_samples() -> Vec<Sample> {
            let mut samples = Vec::new();
            $(samples.extend(<remat_ir::$variant as Rules>::samples());)*
            samples
        }
    };
}

first_order! {
    Unary IntegerPow Binary Compare SelectN Clamp
    ConvertElementType BitcastConvertType ReducePrecision
    BroadcastInDim Reshape Transpose Squeeze ExpandDims Rev Concatenate Pad Iota
    Slice DynamicSlice DynamicUpdateSlice Gather Scatter
    Reduce ArgReduce Cumulative Sort TopK
    DotGeneral Conv ReduceWindow ArgReduceWindow
    DotProductAttention DotProductAttentionTangent DotProductAttentionCotangent CrossEntropyTangent
    Threefry2x32
    Name StopGradient OptimizationBarrier DevicePut;
    higher Jit Checkpoint Scan While Cond CustomJvp CustomVjp CustomLin
}

/// The tangents of the results of a program, all of whose equations are first-order: for an operation whose derivative is
/// that of its definition.
fn differentiate(b: &mut Builder, definition: &Jaxpr, ins: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
    let mut primals: VarMap<Option<Atom>> = definition.var_map(None);
    let mut changes: VarMap<Option<Atom>> = definition.var_map(None);
    for ((&var, &atom), &tangent) in definition.ins.iter().zip(ins).zip(tangents) {
        (primals[var], changes[var]) = (Some(atom), tangent);
    }
    for eqn in &definition.eqns {
        // A variable is defined before it is used.
        let ins: Vec<Atom> = eqn.ins.iter().filter_map(|&a| a.var().map_or(Some(a), |v| primals[v])).collect();
        let tangents: Linear = eqn.ins.iter().map(|a| a.var().and_then(|v| changes[v])).collect();
        let outs = b.emit(eqn.op.clone(), &ins)?;
        let rules = first_order(&eqn.op).filter(|_| tangents.iter().any(Option::is_some));
        let out_tangents = match rules {
            Some(rules) => rules.jvp(b, &ins, &outs, &tangents)?,
            None => vec![None; outs.len()],
        };
        for ((&var, &out), tangent) in eqn.outs.iter().zip(&outs).zip(out_tangents) {
            (primals[var], changes[var]) = (Some(out), tangent);
        }
    }
    Ok(definition.outs.iter().map(|a| a.var().and_then(|v| changes[v])).collect())
}
