//! Reductions and cumulative operations.

use super::rules::{Accepts, check_axes, check_axis, elementwise};
use super::{Operation, Param, ParamMap, Params, dtype_error, expect_operands, shape_error};
use crate::{Aval, DType, Result, Shape};

/// The monoid of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "variants are what their names say")]
pub enum ReduceKind {
    Sum,
    Prod,
    /// NaN wins.
    Max,
    /// NaN wins.
    Min,
    And,
    Or,
}

/// Reduces over these dimensions, which the result lacks. f16 and bf16 sums and products accumulate in f32 and round
/// once. Of nothing: the identity of the monoid (for `Max` the smallest value of the dtype).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Shape,
}

/// Which extremum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "variants are what their names say")]
pub enum ArgKind {
    Max,
    Min,
}

/// The index of the first extremum along a dimension, which the result lacks; a NaN is extreme. The dimension is not empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ArgReduce {
    pub kind: ArgKind,
    pub axis: usize,
    /// An integer dtype.
    pub index_dtype: DType,
}

/// The operation of a cumulative reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "variants are what their names say")]
pub enum CumulativeKind {
    Sum,
    Prod,
    Max,
    Min,
    LogSumExp,
}

/// Element `i` along the dimension is the reduction of elements `0..=i`, or of `i..` when reversed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Cumulative {
    pub kind: CumulativeKind,
    pub axis: usize,
    pub reverse: bool,
}

impl Operation for Reduce {
    fn name(&self) -> &'static str {
        match self.kind {
            ReduceKind::Sum => "reduce_sum",
            ReduceKind::Prod => "reduce_prod",
            ReduceKind::Max => "reduce_max",
            ReduceKind::Min => "reduce_min",
            ReduceKind::And => "reduce_and",
            ReduceKind::Or => "reduce_or",
        }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        let x = &ins[0];
        let accepts = match self.kind {
            ReduceKind::Sum | ReduceKind::Prod => Accepts::Numeric,
            ReduceKind::Max | ReduceKind::Min => Accepts::Any,
            ReduceKind::And | ReduceKind::Or => Accepts::Bits,
        };
        accepts.check(self.name(), x)?;
        check_axes(self.name(), x, &self.axes)?;
        Ok(vec![x.with_shape((0..x.rank()).filter(|d| !self.axes.contains(d)).map(|d| x.shape[d]))])
    }

    fn params(&self) -> Params {
        vec![("axes", Param::ints(self.axes.iter().copied()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        let kinds =
            [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min, ReduceKind::And, ReduceKind::Or];
        let op = kinds.into_iter().map(|kind| Reduce { kind, axes: Shape::new() }).find(|op| op.name() == name)?;
        Some(params.sizes("axes").map(|axes| Reduce { axes, ..op }))
    }
}

impl Operation for ArgReduce {
    fn name(&self) -> &'static str {
        match self.kind {
            ArgKind::Max => "argmax",
            ArgKind::Min => "argmin",
        }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        let x = &ins[0];
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

    fn params(&self) -> Params {
        vec![("axes", Param::ints([self.axis])), ("index_dtype", Param::DType(self.index_dtype))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        let kind = match name {
            "argmax" => ArgKind::Max,
            "argmin" => ArgKind::Min,
            _ => return None,
        };
        let read = || {
            let &[axis] = params.sizes("axes")?.as_slice() else { return Err(params.error("axes", "is not one axis")) };
            Ok(ArgReduce { kind, axis, index_dtype: params.dtype("index_dtype")? })
        };
        Some(read())
    }
}

impl Operation for Cumulative {
    fn name(&self) -> &'static str {
        match self.kind {
            CumulativeKind::Sum => "cumsum",
            CumulativeKind::Prod => "cumprod",
            CumulativeKind::Max => "cummax",
            CumulativeKind::Min => "cummin",
            CumulativeKind::LogSumExp => "cumlogsumexp",
        }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let accepts = match self.kind {
            CumulativeKind::Sum | CumulativeKind::Prod | CumulativeKind::Max | CumulativeKind::Min => Accepts::Numeric,
            CumulativeKind::LogSumExp => Accepts::Floats,
        };
        let out = elementwise(self.name(), ins, 1, accepts)?;
        check_axis(self.name(), &out, self.axis)?;
        Ok(vec![out])
    }

    fn params(&self) -> Params {
        vec![("axis", Param::Int(self.axis as i64)), ("reverse", Param::Bool(self.reverse))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        let kinds = [
            CumulativeKind::Sum,
            CumulativeKind::Prod,
            CumulativeKind::Max,
            CumulativeKind::Min,
            CumulativeKind::LogSumExp,
        ];
        let op =
            kinds.into_iter().map(|kind| Cumulative { kind, axis: 0, reverse: false }).find(|o| o.name() == name)?;
        let read = || Ok(Cumulative { axis: params.size("axis")?, reverse: params.bool("reverse")?, ..op });
        Some(read())
    }
}
