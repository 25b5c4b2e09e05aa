//! Reductions over sliding windows: pooling.

use super::geometry::{one_per_dimension, operands, padded_size, positive_steps, sized, to_size, window_count};
use super::kinds::kinds;
use super::op::op;
use super::values::ParamGroup;
use super::{ArgKind, Operation, Param, ParamMap, Params, dtype_error, shape_error};
use crate::{Aval, Class, DType, Result, Shape};

/// The geometry of sliding windows; every vector has one entry per dimension of the operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Window {
    pub dimensions: Shape,
    pub strides: Shape,
    pub padding: Vec<(i64, i64)>,
    pub base_dilation: Shape,
    pub window_dilation: Shape,
}

kinds! {
    /// The monoid of a window reduction.
    WindowKind {
        Sum "reduce_window_sum" Numeric;
        Max "reduce_window_max" Any;
        Min "reduce_window_min" Any;
    }
}

/// Reduces every window; padding holds the identity of the monoid. A NaN wins a `Max` or `Min`. Floats are summed in f64, and those of f64
/// in two numbers, and are rounded once; an engine may sum in f32 in another order whose error does not grow with the window.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ReduceWindow {
    pub kind: WindowKind,
    pub window: Window,
}

/// For every window, the row-major position in the whole operand of its first maximum or minimum, or -1 if the window holds only padding. A
/// NaN is a maximum and a minimum. The derivative of max pooling is a gather of these.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ArgReduceWindow {
    pub kind: ArgKind,
    pub window: Window,
    /// i32 or i64.
    pub index_dtype: DType,
}

impl Operation for ReduceWindow {
    op! { kind WindowKind class Reduction { ..window } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let [x] = operands(self.name(), ins)?;
        self.kind.accepts().check(self.name(), x)?;
        Ok(vec![self.window.infer(self.name(), x)?])
    }
}

// Not a row of `op!`: the name is not that of the kind, and a parameter prints between those of the window.
impl Operation for ArgReduceWindow {
    fn name(&self) -> &'static str {
        window_name(self.kind)
    }

    fn class(&self) -> Class {
        Class::Reduction
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        let most = match self.index_dtype {
            DType::I32 => i32::MAX as usize,
            DType::I64 => i64::MAX as usize,
            other => return dtype_error(name, format!("index_dtype is int32 or int64, not {}", other.long_name())),
        };
        if x.size() > most {
            return shape_error(name, format!("positions in {} do not fit in {}", x, self.index_dtype));
        }
        Ok(vec![sized(name, self.window.infer(name, x)?.with_dtype(self.index_dtype))?])
    }

    fn params(&self) -> Params {
        let mut params = self.window.to_params();
        params.insert(1, ("index_dtype", Param::DType(self.index_dtype)));
        params
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        let kind = ArgKind::ALL.into_iter().find(|&kind| window_name(kind) == name)?;
        let read = || Ok(Self { kind, index_dtype: params.read("index_dtype")?, window: ParamGroup::take(params)? });
        Some(read())
    }
}

impl Window {
    /// The array of windows: one element per window.
    fn infer(&self, name: &str, x: &Aval) -> Result<Aval> {
        one_per_dimension(name, "window_dimensions", self.dimensions.len(), x)?;
        one_per_dimension(name, "window_strides", self.strides.len(), x)?;
        one_per_dimension(name, "padding", self.padding.len(), x)?;
        one_per_dimension(name, "base_dilation", self.base_dilation.len(), x)?;
        one_per_dimension(name, "window_dilation", self.window_dilation.len(), x)?;
        positive_steps(name, "window_dimensions", &self.dimensions)?;
        positive_steps(name, "window_strides", &self.strides)?;
        positive_steps(name, "base_dilation", &self.base_dilation)?;
        positive_steps(name, "window_dilation", &self.window_dilation)?;
        let mut out = x.clone();
        for (d, &(low, high)) in self.padding.iter().enumerate() {
            let padded = padded_size(x.shape[d], low, high, self.base_dilation[d] - 1);
            let count = window_count(padded, self.dimensions[d], self.window_dilation[d], self.strides[d]);
            out.shape[d] = to_size(name, count)?;
        }
        sized(name, out)
    }
}

impl ParamGroup for Window {
    op! {
        group {
            base_dilation,
            padding,
            window_dilation,
            dimensions: window_dimensions,
            strides: window_strides,
        }
    }
}

/// The name that programs print for the index of the maximum or minimum of every window.
const fn window_name(kind: ArgKind) -> &'static str {
    match kind {
        ArgKind::Max => "argmax_window",
        ArgKind::Min => "argmin_window",
    }
}
