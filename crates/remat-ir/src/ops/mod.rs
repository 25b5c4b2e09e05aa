//! The closed set of operations.
//!
//! [`Op`] is the whole list on one page. Each variant is a small struct of parameters in the file of its family, with its
//! name, its shape rule ([`Operation::infer`]) and its text form ([`Operation::params`]). The calculus of each (jvp,
//! transpose, vmap) is in the crate `remat`; how each runs is in the engines.

mod attention;
mod control;
mod conv;
mod convert;
mod dot;
mod elementwise;
mod gather;
mod geometry;
mod loss;
mod marker;
mod params;
mod random;
mod reduce;
mod rules;
mod shape;
mod slice;
mod sort;
mod window;

pub use attention::{
    AttentionOperands, AttentionSizes, DotProductAttention, DotProductAttentionCotangent, DotProductAttentionTangent,
};
pub use control::{Checkpoint, Cond, CustomJvp, CustomLin, CustomVjp, Jit, Scan, While};
pub use conv::{Conv, ConvDims};
pub use convert::{BitcastConvertType, ConvertElementType, ReducePrecision};
pub use dot::DotGeneral;
pub use elementwise::{Binary, Clamp, Compare, IntegerPow, SelectN, Unary};
pub use gather::{Gather, IndexMode, Scatter, ScatterKind};
pub use loss::CrossEntropyTangent;
pub use marker::{DevicePut, Name, OptimizationBarrier, StopGradient};
pub use params::{Param, ParamMap, Params};
pub(crate) use params::{Quoted, is_plain_word};
pub use random::Threefry2x32;
pub use reduce::{ArgKind, ArgReduce, Cumulative, CumulativeKind, Reduce, ReduceKind};
pub use shape::{BroadcastInDim, Concatenate, ExpandDims, Iota, Pad, Reshape, Rev, Squeeze, Transpose};
pub use slice::{DynamicSlice, DynamicUpdateSlice, Slice};
pub use sort::{Sort, TopK};
pub use window::{ArgReduceWindow, ReduceWindow, Window, WindowKind};

use crate::{Aval, Error, ErrorKind, Jaxpr, Result};
use std::sync::Arc;

/// What every operation can say of itself.
pub trait Operation: Clone + Into<Op> {
    /// The name that programs print.
    fn name(&self) -> &'static str;

    /// The avals of the outputs for operands of these avals.
    ///
    /// # Errors
    /// If the operation does not take them; the message names the avals.
    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>>;

    /// The parameters, in the order in which programs print them.
    fn params(&self) -> Params;

    /// The operation that programs print with this name and these parameters, or `None` if the name is another family's.
    ///
    /// # Errors
    /// If the name is this family's and a parameter is missing, unknown or malformed.
    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>>;
}

macro_rules! operations {
    ($($variant:ident $(as $shared:ty)?,)*) => {
        /// Every operation of the language. Those with many parameters are shared, since programs are copied a lot: an
        /// equation stays small, and a copy of it allocates nothing.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "variants are what their names say")]
        pub enum Op {
            $($variant(operations!(@type $variant $($shared)?)),)*
        }

        $(impl From<$variant> for Op {
            fn from(op: $variant) -> Op {
                #[allow(clippy::useless_conversion)]
                Op::$variant(op.into())
            }
        })*

        impl Op {
            /// The name that programs print: `dot_general`, `sin`, `scan`.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$variant(op) => op.name(),)* }
            }

            /// The avals of the outputs for operands of these avals.
            ///
            /// # Errors
            /// If the operation does not take them.
            pub fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
                match self { $(Op::$variant(op) => op.infer(ins),)* }
            }

            /// The parameters, in the order in which programs print them.
            pub fn params(&self) -> Params {
                match self { $(Op::$variant(op) => op.params(),)* }
            }

            /// The operation that programs print with this name and these parameters.
            ///
            /// # Errors
            /// If there is no operation of this name, or a parameter is missing, unknown or malformed.
            pub fn parse(name: &str, params: &ParamMap<'_>) -> Result<Op> {
                $(if let Some(op) = <$variant as Operation>::parse(name, params) {
                    let op = op?;
                    params.finish()?;
                    return Ok(op.into());
                })*
                Err(Error::new(ErrorKind::Parse, name, "there is no operation of this name"))
            }
        }
    };
    (@type $variant:ident) => { $variant };
    (@type $variant:ident $shared:ty) => { $shared };
}

operations! {
    Unary, IntegerPow, Binary, Compare, SelectN, Clamp,
    ConvertElementType, BitcastConvertType, ReducePrecision,
    BroadcastInDim, Reshape, Transpose, Squeeze, ExpandDims, Rev, Concatenate, Pad, Iota,
    Slice as Arc<Slice>, DynamicSlice, DynamicUpdateSlice, Gather as Arc<Gather>, Scatter as Arc<Scatter>,
    Reduce, ArgReduce, Cumulative, Sort, TopK,
    DotGeneral as Arc<DotGeneral>, Conv as Arc<Conv>, ReduceWindow as Arc<ReduceWindow>, ArgReduceWindow as Arc<ArgReduceWindow>,
    DotProductAttention, DotProductAttentionTangent, DotProductAttentionCotangent, CrossEntropyTangent,
    Threefry2x32,
    Name, StopGradient, OptimizationBarrier, DevicePut,
    Jit, Checkpoint, Scan, While, Cond, CustomJvp, CustomVjp, CustomLin,
}

impl Op {
    /// The jaxprs in the parameters, in the order in which they print.
    pub fn bodies(&self) -> Vec<&Arc<Jaxpr>> {
        match self {
            Op::Jit(op) => vec![&op.jaxpr],
            Op::Checkpoint(op) => vec![&op.jaxpr],
            Op::Scan(op) => vec![&op.jaxpr],
            Op::While(op) => vec![&op.cond, &op.body],
            Op::Cond(op) => op.branches.iter().collect(),
            Op::CustomJvp(op) => vec![&op.call, &op.jvp],
            Op::CustomVjp(op) => vec![&op.call, &op.fwd, &op.bwd],
            Op::CustomLin(op) => vec![&op.bwd],
            Op::Unary(_) | Op::IntegerPow(_) | Op::Binary(_) | Op::Compare(_) | Op::SelectN(_) | Op::Clamp(_) => vec![],
            Op::ConvertElementType(_) | Op::BitcastConvertType(_) | Op::ReducePrecision(_) => vec![],
            Op::BroadcastInDim(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Squeeze(_) | Op::ExpandDims(_) => vec![],
            Op::Rev(_) | Op::Concatenate(_) | Op::Pad(_) | Op::Iota(_) => vec![],
            Op::Slice(_) | Op::DynamicSlice(_) | Op::DynamicUpdateSlice(_) | Op::Gather(_) | Op::Scatter(_) => vec![],
            Op::Reduce(_) | Op::ArgReduce(_) | Op::Cumulative(_) | Op::Sort(_) | Op::TopK(_) => vec![],
            Op::DotGeneral(_) | Op::Conv(_) | Op::ReduceWindow(_) | Op::ArgReduceWindow(_) => vec![],
            Op::DotProductAttention(_) | Op::DotProductAttentionTangent(_) | Op::DotProductAttentionCotangent(_) => {
                vec![]
            }
            Op::CrossEntropyTangent(_) | Op::Threefry2x32(_) => vec![],
            Op::Name(_) | Op::StopGradient(_) | Op::OptimizationBarrier(_) | Op::DevicePut(_) => vec![],
        }
    }

    /// As [`Op::bodies`], for writing.
    pub fn bodies_mut(&mut self) -> Vec<&mut Arc<Jaxpr>> {
        match self {
            Op::Jit(op) => vec![&mut op.jaxpr],
            Op::Checkpoint(op) => vec![&mut op.jaxpr],
            Op::Scan(op) => vec![&mut op.jaxpr],
            Op::While(op) => vec![&mut op.cond, &mut op.body],
            Op::Cond(op) => op.branches.iter_mut().collect(),
            Op::CustomJvp(op) => vec![&mut op.call, &mut op.jvp],
            Op::CustomVjp(op) => vec![&mut op.call, &mut op.fwd, &mut op.bwd],
            Op::CustomLin(op) => vec![&mut op.bwd],
            Op::Unary(_) | Op::IntegerPow(_) | Op::Binary(_) | Op::Compare(_) | Op::SelectN(_) | Op::Clamp(_) => vec![],
            Op::ConvertElementType(_) | Op::BitcastConvertType(_) | Op::ReducePrecision(_) => vec![],
            Op::BroadcastInDim(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Squeeze(_) | Op::ExpandDims(_) => vec![],
            Op::Rev(_) | Op::Concatenate(_) | Op::Pad(_) | Op::Iota(_) => vec![],
            Op::Slice(_) | Op::DynamicSlice(_) | Op::DynamicUpdateSlice(_) | Op::Gather(_) | Op::Scatter(_) => vec![],
            Op::Reduce(_) | Op::ArgReduce(_) | Op::Cumulative(_) | Op::Sort(_) | Op::TopK(_) => vec![],
            Op::DotGeneral(_) | Op::Conv(_) | Op::ReduceWindow(_) | Op::ArgReduceWindow(_) => vec![],
            Op::DotProductAttention(_) | Op::DotProductAttentionTangent(_) | Op::DotProductAttentionCotangent(_) => {
                vec![]
            }
            Op::CrossEntropyTangent(_) | Op::Threefry2x32(_) => vec![],
            Op::Name(_) | Op::StopGradient(_) | Op::OptimizationBarrier(_) | Op::DevicePut(_) => vec![],
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
