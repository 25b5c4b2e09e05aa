//! Gathers and scatters.

use remat_ir::{Aval, DType, Gather, IndexMode, Literal, Result, Scatter, ScatterKind, Shape, Transpose};

use super::elementwise::{max, min};
use super::{operands, shape, slice};
use crate::Platform;
use crate::value::{Value, comma_separated};
use crate::writer::{Region, Writer};

/// The starts of slices: how gather and scatter process index vectors before they are passed to XLA.
struct Starts<'a> {
    /// The shape of the array.
    shape: &'a [usize],
    /// The size of a slice along each axis of the array.
    sizes: &'a [usize],
    /// The dimension of the array for each component of an index vector.
    map: &'a [usize],
}

impl Starts<'_> {
    /// One number per component, repeated for every index vector.
    fn per_component(&self, w: &mut Writer, indices: &Value, value: impl Fn(usize) -> usize) -> Value {
        let numbers: Vec<usize> = self.map.iter().map(|&d| value(d)).collect();
        let aval = indices.aval.with_shape([numbers.len()]);
        let elements = comma_separated(&numbers);
        let text = format!("stablehlo.constant dense<[{elements}]> : {}", crate::value::Type(&aval));
        let numbers = w.define(text, aval);
        w.broadcast(&numbers, &[indices.rank() - 1], indices.shape())
    }

    /// The largest start of a slice that fits, for each component.
    fn bounds(&self, w: &mut Writer, indices: &Value) -> Value {
        self.per_component(w, indices, |d| self.shape[d] - self.sizes[d])
    }

    /// Index vectors whose slices fit.
    fn clamped(&self, w: &mut Writer, indices: &Value) -> Value {
        if self.map.is_empty() {
            return indices.clone();
        }
        let (zero, bounds) = (w.splat_integer(indices, 0), self.bounds(w, indices));
        let indices = w.binary("maximum", indices, &zero);
        w.binary("minimum", &indices, &bounds)
    }

    /// Whether the slice of each index vector fits.
    fn fit(&self, w: &mut Writer, indices: &Value) -> Option<Value> {
        if self.map.is_empty() {
            return None;
        }
        let (zero, bounds) = (w.splat_integer(indices, 0), self.bounds(w, indices));
        let (above, below) = (w.compare("GE", indices, &zero), w.compare("LE", indices, &bounds));
        let fits = w.binary("and", &above, &below);
        Some(w.reduce("and", &fits, Literal::from_bool(true), &[indices.rank() - 1]))
    }
}

pub(super) fn gather(w: &mut Writer, op: &Gather, [x, indices]: &[Value; 2], out: &Aval) -> Result<Value> {
    let indices = &slice::index(w, indices, x.shape());
    let numbers = dims(&[
        ("offset_dims", &op.offset_dims),
        ("collapsed_slice_dims", &op.collapsed_slice_dims),
        ("operand_batching_dims", &op.operand_batching_dims),
        ("start_indices_batching_dims", &op.start_indices_batching_dims),
        ("start_index_map", &op.start_index_map),
    ]);
    // XLA clamps starts, so slices that do not fit still have values, which are replaced.
    let properties = format!(
        "dimension_numbers = #stablehlo.gather<{numbers}index_vector_dim = {}>, indices_are_sorted = false, \
         slice_sizes = array<i64: {}>",
        indices.rank() - 1,
        comma_separated(&op.slice_sizes)
    );
    let properties = properties.replace("array<i64: >", "array<i64>");
    let ins = [x.clone(), indices.clone()];
    let gathered = single(w.generic("gather", &ins, &properties, vec![], std::slice::from_ref(out))?, op)?;
    let starts = Starts { shape: x.shape(), sizes: &op.slice_sizes, map: &op.start_index_map };
    let fits = if op.mode == IndexMode::FillOrDrop { starts.fit(w, indices) } else { None };
    let Some(fits) = fits else { return Ok(gathered) };
    let batch: Shape = (0..out.rank()).filter(|d| !op.offset_dims.contains(d)).collect();
    let fits = w.broadcast(&fits, &batch, &out.shape);
    let fill = w.constant(op.fill_value, &out.shape);
    Ok(w.select(&fits, &gathered, &fill))
}

pub(super) fn scatter(w: &mut Writer, op: &Scatter, ins: &[Value]) -> Result<Value> {
    let [x, indices, updates] = operands(op, ins)?;
    if updates.aval.size() == 0 {
        return Ok(x.clone());
    }
    let indices = &slice::index(w, indices, x.shape());
    let indices = &starts(w, op, x, indices, updates);
    // Each vector has an element of the batching dimensions for itself, if these are all dimensions of vectors. Otherwise clamping may make
    // different vectors equal.
    let are_apart = op.scatter_indices_batching_dims.len() == indices.rank() - 1;
    let are_unique = are_apart || op.unique_indices && op.mode != IndexMode::Clip;
    let vectors: usize = indices.shape()[..indices.rank() - 1].iter().product();
    if op.kind == ScatterKind::Set && !are_unique && vectors > 1 && w.options.platform != Platform::Cpu {
        return last_wins(w, op, [x, indices, updates]);
    }
    // Many updates may add to one element, which is rounded once, after the last.
    let is_sum = matches!(op.kind, ScatterKind::Add | ScatterKind::Mul);
    let (to, from) = if is_sum { (w.widen(x), w.widen(updates)) } else { (x.clone(), updates.clone()) };
    let result = scattered(w, op, op.kind, are_unique, [&to, indices, &from])?;
    Ok(w.convert(&result, x.dtype()))
}

/// A scatter that overwrites elements, of which the last update counts, on chips that apply updates in any order: the largest number of an
/// update to each element is found first, which no order changes.
fn last_wins(w: &mut Writer, op: &Scatter, [x, indices, updates]: [&Value; 3]) -> Result<Value> {
    let (op, updates) = &in_order(w, op, updates);
    let count = updates.aval.size();
    let dtype = if i32::try_from(count).is_ok() { DType::I32 } else { DType::I64 };
    let numbers = w.iota(dtype, 0, &[count]);
    let numbers = w.reshape(&numbers, updates.shape());
    let none = w.constant(Literal::from_i128(dtype, -1), x.shape());
    let last = scattered(w, op, ScatterKind::Max, false, [&none, indices, &numbers])?;
    let zero = w.splat_integer(&last, 0);
    let is_written = w.compare("GE", &last, &zero);
    let vectors: Shape = x.shape().iter().copied().chain([1]).collect();
    let at = w.binary("maximum", &last, &zero);
    let at = w.reshape(&at, &vectors);
    let updates = w.reshape(updates, &[count]);
    let properties = format!(
        "dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = {}>, \
         indices_are_sorted = false, slice_sizes = array<i64: 1>",
        x.rank()
    );
    let written = single(w.generic("gather", &[updates, at], &properties, vec![], std::slice::from_ref(&x.aval))?, op)?;
    Ok(w.select(&is_written, &written, x))
}

/// The same scatter with its updates in the order in which they are applied, vector by vector: the dimensions of slices are the last ones.
fn in_order(w: &mut Writer, op: &Scatter, updates: &Value) -> (Scatter, Value) {
    let vectors = (0..updates.rank()).filter(|d| !op.update_window_dims.contains(d));
    let permutation: Shape = vectors.chain(op.update_window_dims.iter().copied()).collect();
    if permutation.is_sorted() {
        return (op.clone(), updates.clone());
    }
    let out = updates.aval.with_shape(permutation.iter().map(|&d| updates.shape()[d]));
    let update_window_dims = (out.rank() - op.update_window_dims.len()..out.rank()).collect();
    let updates = shape::transpose(w, &Transpose { permutation }, updates, &out);
    (Scatter { update_window_dims, ..op.clone() }, updates)
}

/// A scatter that combines elements as this kind does, with the dimensions of the operation.
fn scattered(
    w: &mut Writer,
    op: &Scatter,
    kind: ScatterKind,
    are_unique: bool,
    [to, indices, from]: [&Value; 3],
) -> Result<Value> {
    let numbers = dims(&[
        ("update_window_dims", &op.update_window_dims),
        ("inserted_window_dims", &op.inserted_window_dims),
        ("input_batching_dims", &op.operand_batching_dims),
        ("scatter_indices_batching_dims", &op.scatter_indices_batching_dims),
        ("scatter_dims_to_operand_dims", &op.scatter_dims_to_operand_dims),
    ]);
    let properties = format!(
        "indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<{numbers}index_vector_dim = {}>, \
         unique_indices = {are_unique}",
        indices.rank() - 1
    );
    let scalar = to.aval.with_shape([]);
    let combine = Region::new([scalar.clone(), scalar], |w, args| {
        let [old, new] = operands(op, args)?;
        Ok(vec![match kind {
            ScatterKind::Set => new.clone(),
            ScatterKind::Add => w.binary("add", old, new),
            ScatterKind::Mul => w.binary("multiply", old, new),
            ScatterKind::Min => min(w, old, new),
            ScatterKind::Max => max(w, old, new),
        }])
    });
    let ins = [to, indices, from].map(Value::clone);
    single(w.generic("scatter", &ins, &properties, vec![combine], std::slice::from_ref(&to.aval))?, op)
}

/// Index vectors of a scatter. One whose slice does not fit is moved past the end, where XLA drops the whole update. For a slice that fits
/// partially, it must not matter whether XLA drops all of it or only a part.
fn starts(w: &mut Writer, op: &Scatter, x: &Value, indices: &Value, updates: &Value) -> Value {
    let kept = |d: &usize| !op.inserted_window_dims.contains(d) && !op.operand_batching_dims.contains(d);
    let mut sizes = Shape::from_elem(1, x.rank());
    for (d, &u) in (0..x.rank()).filter(kept).zip(&op.update_window_dims) {
        sizes[d] = updates.shape()[u];
    }
    let starts = Starts { shape: x.shape(), sizes: &sizes, map: &op.scatter_dims_to_operand_dims };
    match op.mode {
        IndexMode::Clip => starts.clamped(w, indices),
        IndexMode::FillOrDrop if starts.map.iter().all(|&d| sizes[d] == 1) => indices.clone(),
        IndexMode::FillOrDrop => match starts.fit(w, indices) {
            None => indices.clone(),
            Some(fits) => {
                let batch: Shape = (0..indices.rank() - 1).collect();
                let fits = w.broadcast(&fits, &batch, indices.shape());
                let past = starts.per_component(w, indices, |d| x.shape()[d]);
                w.select(&fits, indices, &past)
            }
        },
    }
}

/// Dimension numbers without empty ones, each followed by a comma.
fn dims(numbers: &[(&str, &Shape)]) -> String {
    let given = numbers.iter().filter(|(_, dims)| !dims.is_empty());
    given.map(|(name, dims)| format!("{name} = {dims:?}, ")).collect()
}

fn single(mut results: Vec<Value>, op: &impl remat_ir::Operation) -> Result<Value> {
    let missing = || remat_ir::Error::new(remat_ir::ErrorKind::Internal, op.name(), "has no result");
    results.pop().ok_or_else(missing)
}
