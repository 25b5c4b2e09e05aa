//! Reductions and cumulative operations.

use super::kinds::kinds;
use super::op::op;
use super::rules::{check_axes, check_axis, elementwise};
use super::values::ParamValue;
use super::{Operation, Param, ParamMap, dtype_error, expect_operands, shape_error};
use crate::{Aval, DType, Result, Shape};

kinds! {
    /// The monoid of a reduction.
    ReduceKind {
        Sum "reduce_sum" Numeric;
        Prod "reduce_prod" Numeric;
        /// NaN wins.
        Max "reduce_max" Any;
        /// NaN wins.
        Min "reduce_min" Any;
        And "reduce_and" Bits;
        Or "reduce_or" Bits;
    }
}

/// Reduces over these axes, which are dropped from the result. Sums and products of f16 and bf16 accumulate in f32 and are rounded once.
/// The reduction of no elements is the identity of the monoid (for `Max` the smallest value of the dtype).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Shape,
}

kinds! {
    /// The maximum or the minimum.
    ArgKind {
        Max "argmax" Any;
        Min "argmin" Any;
    }
}

/// The index of the first maximum or minimum along an axis, which is dropped from the result. NaN counts as both. The dimension must not be
/// empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ArgReduce {
    pub kind: ArgKind,
    pub axis: usize,
    /// An integer dtype.
    pub index_dtype: DType,
}

kinds! {
    /// The operation of a cumulative reduction.
    CumulativeKind {
        Sum "cumsum" Numeric;
        Prod "cumprod" Numeric;
        Max "cummax" Numeric;
        Min "cummin" Numeric;
        LogSumExp "cumlogsumexp" Floats;
    }
}

/// Element `i` along the dimension is the reduction of elements `0..=i`, or of `i..` when reversed. Sums, products and logarithms of floats
/// are accumulated in f64, sums of f64 in two numbers, and each is rounded once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Cumulative {
    pub kind: CumulativeKind,
    pub axis: usize,
    pub reverse: bool,
}

impl Operation for Reduce {
    op! { kind ReduceKind class Reduction { axes } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        let x = &ins[0];
        self.kind.accepts().check(self.name(), x)?;
        check_axes(self.name(), x, &self.axes)?;
        Ok(vec![x.with_shape((0..x.rank()).filter(|d| !self.axes.contains(d)).map(|d| x.shape[d]))])
    }
}

impl Operation for ArgReduce {
    op! { kind ArgKind class Reduction { (axis,): axes, index_dtype } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        let x = &ins[0];
        self.kind.accepts().check(self.name(), x)?;
        check_axis(self.name(), x, self.axis)?;
        let index = self.index_dtype;
        if !index.is_integer() {
            return dtype_error(self.name(), format!("an index of {x} is an integer, not {index}"));
        }
        let bits = index.bits() as u32 - u32::from(index.is_signed());
        match x.shape[self.axis] {
            0 => return shape_error(self.name(), format!("dimension {} of {x} is empty", self.axis)),
            n if bits < usize::BITS && (n - 1) >> bits != 0 => {
                let message = format!("the indices of dimension {} of {x} do not fit {index}", self.axis);
                return dtype_error(self.name(), message);
            }
            _ => {}
        }
        Ok(vec![x.with_shape((0..x.rank()).filter(|&d| d != self.axis).map(|d| x.shape[d])).with_dtype(index)])
    }
}

impl Operation for Cumulative {
    op! { kind CumulativeKind class Reduction { axis, reverse } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let out = elementwise(self.name(), ins, 1, self.kind.accepts())?;
        check_axis(self.name(), &out, self.axis)?;
        Ok(vec![out])
    }
}

/// The axis of an operation that has one, where JAX prints all axes: `(0,)`.
impl ParamValue for (usize,) {
    fn to_param(&self) -> Option<Param> {
        Some(Param::ints([self.0]))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        match params.read::<Shape>(name)?[..] {
            [axis] => Ok((axis,)),
            _ => Err(params.error(name, "is not one axis")),
        }
    }
}
