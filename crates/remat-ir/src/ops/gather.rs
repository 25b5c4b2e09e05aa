//! Gather and scatter, with XLA's dimension numbers.
//!
//! The last dimension of `indices` is always the index vector. `gather x indices` takes, for each index vector, a slice of `slice_sizes` of
//! `x`. The slice starts at the vector, whose component `k` is the start along dimension `start_index_map[k]`. Dimensions
//! `collapsed_slice_dims` (of size 1 in the slice) are dropped; the others become `offset_dims` of the result. Batching dimension
//! `operand_batching_dims[k]` of `x` corresponds to `start_indices_batching_dims[k]` of `indices`; it has slice size 1 and is dropped.
//! Dimension numbers are increasing, except `start_index_map`, its counterpart of scatter, and `start_indices_batching_dims`, which are
//! distinct. The array and the indices may be in different memories. Source: XLA's operation semantics, "Gather" and "Scatter".

use super::geometry::{alike, distinct_axes, increasing_axes, one_per_dimension, operands, sized, without_axes};
use super::kinds::kinds;
use super::op::op;
use super::values::ParamValue;
use super::{Operation, Param, ParamMap, dtype_error, shape_error};
use crate::{Aval, DType, Error, ErrorKind, Literal, Result, Shape};

/// What happens to an index vector whose slice does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndexMode {
    /// The start is clamped so that the slice fits.
    Clip,
    /// A gather gives the fill value; a scatter drops the update.
    FillOrDrop,
}

impl IndexMode {
    /// The word that programs print.
    pub const fn name(self) -> &'static str {
        match self {
            IndexMode::Clip => "clip",
            IndexMode::FillOrDrop => "fill_or_drop",
        }
    }

    /// What methods of arrays give for an index out of range, as JAX does: NaN, the smallest value of signed integers, the largest of unsigned
    /// ones, and `true`.
    pub fn fill_value(dtype: DType) -> Literal {
        match dtype {
            DType::Bool => Literal::from_bool(true),
            d if d.is_float() => Literal::from_f64(d, f64::NAN),
            d if d.is_signed() => Literal::from_i128(d, -(1i128 << (d.bits() - 1))),
            d => Literal::from_i128(d, -1),
        }
    }
}

impl ParamValue for IndexMode {
    fn to_param(&self) -> Option<Param> {
        Some(Param::word(self.name()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let named = |word: &str| [IndexMode::Clip, IndexMode::FillOrDrop].into_iter().find(|mode| mode.name() == word);
        params.choice(name, "is neither clip nor fill_or_drop", named)
    }
}

/// `gather x indices`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Gather {
    pub offset_dims: Shape,
    pub collapsed_slice_dims: Shape,
    pub start_index_map: Shape,
    pub operand_batching_dims: Shape,
    pub start_indices_batching_dims: Shape,
    pub slice_sizes: Shape,
    pub mode: IndexMode,
    /// The value of elements out of range in mode [`IndexMode::FillOrDrop`]; of the dtype of `x`.
    pub fill_value: Literal,
}

kinds! {
    /// How a scatter combines an update with the element.
    ScatterKind {
        /// The last update in row-major order of the indices wins.
        Set "scatter" Any;
        Add "scatter_add" Numeric;
        Mul "scatter_mul" Numeric;
        Min "scatter_min" Any;
        Max "scatter_max" Any;
    }
}

/// `scatter x indices updates`: the reverse of gather. `update_window_dims` are the slice dimensions of `updates`, `inserted_window_dims`
/// those of `x` that slices lack, and `scatter_dims_to_operand_dims` is the index map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Scatter {
    pub kind: ScatterKind,
    pub update_window_dims: Shape,
    pub inserted_window_dims: Shape,
    pub scatter_dims_to_operand_dims: Shape,
    pub operand_batching_dims: Shape,
    pub scatter_indices_batching_dims: Shape,
    pub mode: IndexMode,
    /// A promise that no two updates have the same destination; differentiation of `Mul` needs it.
    pub unique_indices: bool,
}

impl Operation for Gather {
    op! {
        "gather" class Movement {
            collapsed_slice_dims,
            fill_value,
            mode,
            offset_dims,
            operand_batching_dims,
            slice_sizes,
            start_index_map,
            start_indices_batching_dims,
        }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x, indices] = operands(name, ins)?;
        if self.fill_value.dtype() != x.dtype {
            return dtype_error(name, format!("fill_value {} is not of the dtype of {x}", self.fill_value));
        }
        let numbers = IndexDims {
            dropped: ("collapsed_slice_dims", &self.collapsed_slice_dims),
            map: ("start_index_map", &self.start_index_map),
            operand_batching: &self.operand_batching_dims,
            index_batching: ("start_indices_batching_dims", &self.start_indices_batching_dims),
        };
        numbers.check(name, x, indices)?;
        one_per_dimension(name, "slice_sizes", self.slice_sizes.len(), x)?;
        if let Some(d) = (0..x.rank()).find(|&d| self.slice_sizes[d] > x.shape[d]) {
            return shape_error(name, format!("slice size {} is more than dimension {d} of {x}", self.slice_sizes[d]));
        }
        let dropped = numbers.all_dropped();
        if let Some(&d) = dropped.iter().find(|&&d| self.slice_sizes[d] > 1) {
            let message = format!("dimension {d} of {x} has slice size {} and cannot be dropped", self.slice_sizes[d]);
            return shape_error(name, message);
        }
        let window = without_axes(&self.slice_sizes, &dropped);
        let shape = merge_dims(name, "offset_dims", &self.offset_dims, &window, &indices.shape[..indices.rank() - 1])?;
        let out = sized(name, x.with_shape(shape))?;
        // A dropped slice dimension of size 0 would leave elements of the result without a source.
        if out.size() > 0 && dropped.iter().any(|&d| self.slice_sizes[d] == 0) {
            return shape_error(name, format!("elements of the result {out} have no source in {x}"));
        }
        Ok(vec![out])
    }
}

impl Operation for Scatter {
    op! {
        kind ScatterKind class Movement {
            inserted_window_dims,
            mode,
            operand_batching_dims,
            scatter_dims_to_operand_dims,
            scatter_indices_batching_dims,
            unique_indices,
            update_window_dims,
        }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x, indices, updates] = operands(name, ins)?;
        alike(name, x, updates)?;
        self.kind.accepts().check(name, x)?;
        let numbers = IndexDims {
            dropped: ("inserted_window_dims", &self.inserted_window_dims),
            map: ("scatter_dims_to_operand_dims", &self.scatter_dims_to_operand_dims),
            operand_batching: &self.operand_batching_dims,
            index_batching: ("scatter_indices_batching_dims", &self.scatter_indices_batching_dims),
        };
        numbers.check(name, x, indices)?;
        increasing_axes(name, "update_window_dims", &self.update_window_dims, updates.rank())?;
        let window: Shape = self.update_window_dims.iter().map(|&d| updates.shape[d]).collect();
        let bounds = without_axes(&x.shape, &numbers.all_dropped());
        if window.len() != bounds.len() {
            let message =
                format!("update_window_dims has {} entries and a slice of {x} has {}", window.len(), bounds.len());
            return shape_error(name, message);
        }
        if let Some(i) = (0..window.len()).find(|&i| window[i] > bounds[i]) {
            return shape_error(
                name,
                format!("slices of {updates} have size {} where {x} has {}", window[i], bounds[i]),
            );
        }
        let scattered = without_axes(&updates.shape, &self.update_window_dims);
        if scattered[..] != indices.shape[..indices.rank() - 1] {
            let message = format!("the updates {updates} have {scattered:?} slices, which are not those of {indices}");
            return shape_error(name, message);
        }
        Ok(vec![x.clone()])
    }
}

/// The dimension numbers that gather and scatter share, with the names that each gives them.
struct IndexDims<'a> {
    /// Dimensions of the operand that slices lack, besides batching ones.
    dropped: (&'static str, &'a Shape),
    /// The dimension of the operand for each component of an index vector.
    map: (&'static str, &'a Shape),
    operand_batching: &'a Shape,
    /// The dimension of the indices for each batching dimension of the operand.
    index_batching: (&'static str, &'a Shape),
}

impl IndexDims<'_> {
    fn all_dropped(&self) -> Shape {
        self.dropped.1.iter().chain(self.operand_batching).copied().collect()
    }

    fn check(&self, name: &str, x: &Aval, indices: &Aval) -> Result<()> {
        if !indices.dtype.is_integer() {
            return dtype_error(name, format!("indices are integers, not {indices}"));
        }
        let Some((&components, batch)) = indices.shape.split_last() else {
            return shape_error(name, format!("indices {indices} have no dimension of index vectors"));
        };
        if components != self.map.1.len() {
            let (what, map) = self.map;
            let message = format!("{what} has {} entries and index vectors of {indices} have {components}", map.len());
            return shape_error(name, message);
        }
        increasing_axes(name, self.dropped.0, self.dropped.1, x.rank())?;
        increasing_axes(name, "operand_batching_dims", self.operand_batching, x.rank())?;
        distinct_axes(name, self.map.0, self.map.1, x.rank())?;
        distinct_axes(name, self.index_batching.0, self.index_batching.1, batch.len())?;
        for (what, dims) in [self.dropped, self.map] {
            if let Some(d) = self.operand_batching.iter().find(|d| dims.contains(d)) {
                let message = format!("dimension {d} of {x} is in operand_batching_dims and in {what}");
                return Err(Error::new(ErrorKind::Axis, name, message));
            }
        }
        if self.operand_batching.len() != self.index_batching.1.len() {
            let (what, dims) = self.index_batching;
            let message =
                format!("operand_batching_dims has {} entries and {what} {}", self.operand_batching.len(), dims.len());
            return shape_error(name, message);
        }
        for (&d, &i) in self.operand_batching.iter().zip(self.index_batching.1) {
            if x.shape[d] != batch[i] {
                let (m, n) = (x.shape[d], batch[i]);
                return shape_error(name, format!("batching dimensions differ: {m} of {x} and {n} of {indices}"));
            }
        }
        Ok(())
    }
}

/// The shape that has `window` at `dims` and `batch` in the other dimensions.
fn merge_dims(name: &str, what: &str, dims: &[usize], window: &[usize], batch: &[usize]) -> Result<Shape> {
    if dims.len() != window.len() {
        let message = format!("{what} has {} entries and a slice has {} dimensions", dims.len(), window.len());
        return shape_error(name, message);
    }
    let rank = window.len() + batch.len();
    increasing_axes(name, what, dims, rank)?;
    let (mut window, mut batch) = (window.iter(), batch.iter());
    Ok((0..rank).filter_map(|d| if dims.contains(&d) { window.next() } else { batch.next() }).copied().collect())
}
