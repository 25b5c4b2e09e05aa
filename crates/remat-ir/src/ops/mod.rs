//! The closed set of operations.
//!
//! The whole list is on this page: an [`Op`] is a first-order operation ([`Prim`]) or one with jaxprs in its parameters ([`Call`]). Each
//! variant is a small struct of parameters in the file of its family, with one row for its name, its class and its text form (`op!`), and
//! its shape rule ([`Operation::infer`]). The derivative rules of each (jvp, transpose) and its `vmap` rule are in the crate `remat`; its
//! implementations are in the engines.

mod attention;
mod class;
mod collective;
mod control;
mod conv;
mod convert;
mod dot;
mod effect;
mod elementwise;
mod gather;
mod geometry;
mod kinds;
mod linalg;
mod loss;
mod marker;
mod op;
mod params;
mod random;
mod reduce;
mod rules;
mod shape;
mod shard;
mod slice;
mod sort;
mod values;
mod window;

pub use attention::{
    AttentionOperands, AttentionSizes, DotProductAttention, DotProductAttentionCotangent, DotProductAttentionTangent,
};
pub use class::Class;
pub use collective::{
    AllGather, AllReduce, AllReduceKind, AllToAll, AxisIndex, Ppermute, ReduceScatter, axes_of, unbound_axis, uses_axis,
};
pub use control::{Checkpoint, Cond, CustomJvp, CustomLin, CustomVjp, Jit, Scan, VjpRule, While};
pub use conv::{Conv, ConvDims};
pub use convert::{BitcastConvertType, ConvertElementType, ReducePrecision};
pub use dot::DotGeneral;
pub use effect::DebugPrint;
pub use elementwise::{Binary, Clamp, Compare, IntegerPow, SelectN, Unary};
pub use gather::{Gather, IndexMode, Scatter, ScatterKind};
pub use linalg::{Cholesky, TriangularSolve};
pub use loss::CrossEntropyTangent;
pub use marker::{DevicePut, Keep, Name, OptimizationBarrier, StopGradient};
pub use params::{Param, ParamMap, Params};
pub(crate) use params::{Quoted, is_plain_word};
pub use random::Threefry2x32;
pub use reduce::{ArgKind, ArgReduce, Cumulative, CumulativeKind, Reduce, ReduceKind};
pub use shape::{BroadcastInDim, Concatenate, ExpandDims, Iota, Pad, Reshape, Rev, Squeeze, Transpose};
pub use shard::{ShardMap, ShardingConstraint};
pub use slice::{DynamicSlice, DynamicUpdateSlice, Slice};
pub use sort::{Sort, TopK};
pub use window::{ArgReduceWindow, ReduceWindow, Window, WindowKind};

use crate::{Aval, Error, ErrorKind, Jaxpr, Result};
use std::sync::Arc;

/// The properties of every operation.
pub trait Operation: Clone + Into<Op> {
    /// The name that programs print.
    fn name(&self) -> &'static str;

    /// What kind of work the operation is.
    fn class(&self) -> Class;

    /// The avals of the outputs for operands of these avals.
    ///
    /// # Errors
    /// If the operation does not take them; the message names the avals.
    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>>;

    /// The parameters, in the order in which programs print them.
    fn params(&self) -> Params;

    /// The definition of the operation for operands of these avals: a program of other operations that computes the same, if there is one.
    /// The evaluator runs it, and an engine without a kernel can inline it.
    fn definition(&self, _ins: &[Aval]) -> Option<Result<Jaxpr>> {
        None
    }

    /// The operation that programs print with this name and these parameters, or `None` if the name belongs to another family.
    ///
    /// # Errors
    /// If the name is this family's and a parameter is missing, unknown or malformed.
    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>>;
}

/// Passes the list of first-order operations to a macro: `Unary, .., Slice as Arc<Slice>, ..`. It is the only such list: everything that
/// every operation must have, such as its rules, is generated from it.
#[doc(hidden)]
#[macro_export]
macro_rules! with_prims {
    ($callback:ident) => {
        $callback! {
            Unary, IntegerPow, Binary, Compare, SelectN, Clamp,
            ConvertElementType, BitcastConvertType, ReducePrecision,
            BroadcastInDim, Reshape, Transpose, Squeeze, ExpandDims, Rev, Concatenate, Pad, Iota,
            Slice as Arc<Slice>, DynamicSlice, DynamicUpdateSlice, Gather as Arc<Gather>, Scatter as Arc<Scatter>,
            Reduce, ArgReduce, Cumulative, Sort, TopK,
            DotGeneral as Arc<DotGeneral>, Conv as Arc<Conv>, ReduceWindow as Arc<ReduceWindow>,
            ArgReduceWindow as Arc<ArgReduceWindow>,
            TriangularSolve, Cholesky,
            DotProductAttention, DotProductAttentionTangent, DotProductAttentionCotangent, CrossEntropyTangent,
            Threefry2x32,
            Name, StopGradient, OptimizationBarrier, DevicePut, ShardingConstraint, DebugPrint as Arc<DebugPrint>,
            AllReduce, AllGather, ReduceScatter, AllToAll, Ppermute, AxisIndex,
        }
    };
}

/// Defines the enum of a group of operations and the methods that it delegates to them.
macro_rules! operations {
    ($(#[$doc:meta])* $group:ident { $($variant:ident $(as $shared:ty)?,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "variants are what their names say")]
        pub enum $group {
            $($variant(operations!(@type $variant $($shared)?)),)*
        }

        $(
            impl From<$variant> for $group {
                fn from(op: $variant) -> $group {
                    #[allow(clippy::useless_conversion)]
                    $group::$variant(op.into())
                }
            }

            impl From<$variant> for Op {
                fn from(op: $variant) -> Op {
                    Op::$group(op.into())
                }
            }
        )*

        impl From<$group> for Op {
            fn from(op: $group) -> Op {
                Op::$group(op)
            }
        }

        impl Operation for $group {
            fn name(&self) -> &'static str {
                match self { $($group::$variant(op) => op.name(),)* }
            }

            fn class(&self) -> Class {
                match self { $($group::$variant(op) => op.class(),)* }
            }

            fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
                match self { $($group::$variant(op) => op.infer(ins),)* }
            }

            fn params(&self) -> Params {
                match self { $($group::$variant(op) => op.params(),)* }
            }

            fn definition(&self, ins: &[Aval]) -> Option<Result<Jaxpr>> {
                match self { $($group::$variant(op) => <$variant as Operation>::definition(op, ins),)* }
            }

            fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<$group>> {
                $(if let Some(op) = <$variant as Operation>::parse(name, params) {
                    return Some(op.map($group::from));
                })*
                None
            }
        }
    };
    (@type $variant:ident) => { $variant };
    (@type $variant:ident $shared:ty) => { $shared };
}

macro_rules! prims {
    ($($list:tt)*) => {
        operations! {
            /// The first-order operations, or primitives: those without jaxprs in their parameters. Those with many parameters are shared,
            /// since programs are copied a lot: an equation stays small, and copying it allocates nothing.
            ///
            /// ```
            /// use remat_ir::{Op, Operation, Prim, Unary};
            /// let op: Op = Unary::Sin.into();
            /// assert_eq!(op, Op::Prim(Prim::Unary(Unary::Sin)));
            /// assert_eq!(op.prim().map(|prim| prim.name()), Some("sin"));
            /// ```
            Prim { $($list)* }
        }
    };
}

with_prims!(prims);

operations! {
    /// The operations with jaxprs in their parameters: calls, regions, loops, branches, and functions with their own rules. Transformations
    /// apply to these jaxprs.
    ///
    /// ```
    /// use remat_ir::{Call, Jaxpr, Jit, Op};
    /// let jaxpr: Jaxpr = "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }".parse()?;
    /// let op: Op = Jit { name: "f".into(), jaxpr: jaxpr.into() }.into();
    /// assert_eq!(op.call().map(|call| call.bodies().len()), Some(1));
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    Call { Jit, Checkpoint, Scan, While, Cond, CustomJvp, CustomVjp, CustomLin, ShardMap, }
}

/// Every operation of the language.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A first-order operation.
    Prim(Prim),
    /// An operation with jaxprs in its parameters.
    Call(Call),
}

impl Op {
    /// The name that programs print: `dot_general`, `sin`, `scan`.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Prim(op) => op.name(),
            Op::Call(op) => op.name(),
        }
    }

    /// What kind of work the operation is.
    ///
    /// ```
    /// use remat_ir::{Class, Op, Unary};
    /// assert_eq!(Op::from(Unary::Neg).class(), Class::Elementwise);
    /// assert_eq!(Op::from(Unary::Tanh).class(), Class::Transcendental);
    /// ```
    pub fn class(&self) -> Class {
        match self {
            Op::Prim(op) => op.class(),
            Op::Call(op) => op.class(),
        }
    }

    /// The avals of the outputs for operands of these avals.
    ///
    /// # Errors
    /// If the operation does not take them.
    pub fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        match self {
            Op::Prim(op) => op.infer(ins),
            Op::Call(op) => op.infer(ins),
        }
    }

    /// The parameters, in the order in which programs print them.
    pub fn params(&self) -> Params {
        match self {
            Op::Prim(op) => op.params(),
            Op::Call(op) => op.params(),
        }
    }

    /// The definition of the operation for operands of these avals: a program of other operations that computes the same, if there is one.
    ///
    /// ```
    /// use remat_ir::{Aval, CrossEntropyTangent, DType, Op, Unary};
    /// let (logits, labels) = (Aval::new(DType::F32, [4, 10]), Aval::new(DType::I32, [4]));
    /// let of_row = Aval::new(DType::F32, [4]);
    /// let avals = [logits.clone(), labels, of_row.clone(), of_row, logits];
    /// assert!(Op::from(CrossEntropyTangent).definition(&avals).is_some());
    /// assert!(Op::from(Unary::Sin).definition(&avals[..1]).is_none());
    /// ```
    pub fn definition(&self, ins: &[Aval]) -> Option<Result<Jaxpr>> {
        match self {
            Op::Prim(op) => op.definition(ins),
            Op::Call(op) => op.definition(ins),
        }
    }

    /// The operation that programs print with this name and these parameters.
    ///
    /// # Errors
    /// If there is no operation of this name, or a parameter is missing, unknown or malformed.
    pub fn parse(name: &str, params: &ParamMap<'_>) -> Result<Op> {
        let prim = || Some(Prim::parse(name, params)?.map(Op::Prim));
        let call = || Some(Call::parse(name, params)?.map(Op::Call));
        let unknown = || Err(Error::new(ErrorKind::Parse, name, "there is no operation of this name"));
        let op = prim().or_else(call).unwrap_or_else(unknown)?;
        params.finish()?;
        Ok(op)
    }

    /// The first-order operation, if this is one.
    pub fn prim(&self) -> Option<&Prim> {
        match self {
            Op::Prim(op) => Some(op),
            Op::Call(_) => None,
        }
    }

    /// The operation with jaxprs in its parameters, if this is one.
    pub fn call(&self) -> Option<&Call> {
        match self {
            Op::Prim(_) => None,
            Op::Call(op) => Some(op),
        }
    }

    /// The jaxprs in the parameters, in the order in which they print; none for a first-order operation.
    pub fn bodies(&self) -> Vec<&Arc<Jaxpr>> {
        self.call().map_or_else(Vec::new, Call::bodies)
    }

    /// As [`Op::bodies`], for writing.
    pub fn bodies_mut(&mut self) -> Vec<&mut Arc<Jaxpr>> {
        match self {
            Op::Prim(_) => Vec::new(),
            Op::Call(op) => op.bodies_mut(),
        }
    }
}

impl Call {
    /// The jaxprs in the parameters, in the order in which they print.
    pub fn bodies(&self) -> Vec<&Arc<Jaxpr>> {
        match self {
            Call::Jit(op) => vec![&op.jaxpr],
            Call::Checkpoint(op) => vec![&op.jaxpr],
            Call::Scan(op) => vec![&op.jaxpr],
            Call::While(op) => vec![&op.cond, &op.body],
            Call::Cond(op) => op.branches.iter().collect(),
            Call::CustomJvp(op) => [&op.call].into_iter().chain(&op.jvp).collect(),
            Call::CustomVjp(op) => {
                let rule = op.rule.iter().flat_map(|rule| [&rule.fwd, &rule.bwd]);
                [&op.call].into_iter().chain(rule).collect()
            }
            Call::CustomLin(op) => vec![&op.bwd],
            Call::ShardMap(op) => vec![&op.jaxpr],
        }
    }

    /// As [`Call::bodies`], for writing.
    pub fn bodies_mut(&mut self) -> Vec<&mut Arc<Jaxpr>> {
        match self {
            Call::Jit(op) => vec![&mut op.jaxpr],
            Call::Checkpoint(op) => vec![&mut op.jaxpr],
            Call::Scan(op) => vec![&mut op.jaxpr],
            Call::While(op) => vec![&mut op.cond, &mut op.body],
            Call::Cond(op) => op.branches.iter_mut().collect(),
            Call::CustomJvp(op) => [&mut op.call].into_iter().chain(&mut op.jvp).collect(),
            Call::CustomVjp(op) => {
                let rule = op.rule.iter_mut().flat_map(|rule| [&mut rule.fwd, &mut rule.bwd]);
                [&mut op.call].into_iter().chain(rule).collect()
            }
            Call::CustomLin(op) => vec![&mut op.bwd],
            Call::ShardMap(op) => vec![&mut op.jaxpr],
        }
    }
}

/// Fails unless the number of operands is `n`.
pub(crate) fn expect_operands(name: &str, ins: &[Aval], n: usize) -> Result<()> {
    if ins.len() == n {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Argument, name, format!("takes {n} operands and got {}", ins.len())))
}

/// An error of kind [`ErrorKind::Shape`].
pub(crate) fn shape_error<T>(name: &str, message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Shape, name, message))
}

/// An error of kind [`ErrorKind::DType`].
pub(crate) fn dtype_error<T>(name: &str, message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::DType, name, message))
}
