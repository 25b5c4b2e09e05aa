//! Gather and scatter, with XLA's dimension numbers.
//!
//! The last dimension of `indices` is always the index vector. `gather x indices` takes, for each index vector, a slice
//! of `slice_sizes` of `x` whose start is the vector, component `k` along dimension `start_index_map[k]`. Dimensions
//! `collapsed_slice_dims` (of size 1 in the slice) are dropped; the others become `offset_dims` of the result.
//! `operand_batching_dims[k]` of `x` runs with `start_indices_batching_dims[k]` of `indices`, with slice size 1, dropped.
//! Source: XLA's operation semantics, "Gather" and "Scatter".

use super::{Operation, ParamMap, Params};
use crate::{Aval, Literal, Result, Shape};

/// What happens to an index vector whose slice does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndexMode {
    /// The start is clamped so that the slice fits.
    Clip,
    /// A gather gives the fill value; a scatter leaves the update out.
    FillOrDrop,
}

/// `gather x indices`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Gather {
    pub offset_dims: Shape,
    pub collapsed_slice_dims: Shape,
    pub start_index_map: Shape,
    pub operand_batching_dims: Shape,
    pub start_indices_batching_dims: Shape,
    pub slice_sizes: Shape,
    pub mode: IndexMode,
    /// The value of what is out of range in mode [`IndexMode::FillOrDrop`]; of the dtype of `x`.
    pub fill_value: Literal,
}

/// How a scatter combines an update with what is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum ScatterKind {
    /// The last update in row-major order of the indices wins.
    Set,
    Add,
    Mul,
    Min,
    Max,
}

/// `scatter x indices updates`: the mirror image of gather. `update_window_dims` are the dimensions of `updates` that are
/// slices, `inserted_window_dims` those of `x` that slices lack, `scatter_dims_to_operand_dims` the index map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Scatter {
    pub kind: ScatterKind,
    pub update_window_dims: Shape,
    pub inserted_window_dims: Shape,
    pub scatter_dims_to_operand_dims: Shape,
    pub operand_batching_dims: Shape,
    pub scatter_indices_batching_dims: Shape,
    pub mode: IndexMode,
    /// A promise that no two updates meet; differentiation of `Mul` needs it.
    pub unique_indices: bool,
}

impl Operation for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}

impl Operation for Scatter {
    fn name(&self) -> &'static str {
        match self.kind {
            ScatterKind::Set => "scatter",
            ScatterKind::Add => "scatter_add",
            ScatterKind::Mul => "scatter_mul",
            ScatterKind::Min => "scatter_min",
            ScatterKind::Max => "scatter_max",
        }
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}
