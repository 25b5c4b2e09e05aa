//! Indices out of range, and integers divided by zero.

use remat_ir::{Array, Binary, IndexMode, Prim, Scatter};

use super::{Found, index_of};

/// Whether operands of an operation can be wrong.
pub(super) fn has_indices(op: &Prim) -> bool {
    matches!(op, Prim::Binary(Binary::Div | Binary::Rem) | Prim::Gather(_) | Prim::Scatter(_))
}

/// What is wrong with the operands of an operation.
pub(super) fn wrong(op: &Prim, operands: &[Array], is_derivative: bool) -> Found {
    match (op, operands) {
        (Prim::Binary(Binary::Div | Binary::Rem), [_, divisor]) if divisor.dtype().is_integer() => {
            let zero = integers(divisor).position(|x| x == 0)?;
            Some(format!("the divisor {} is 0 at {}", divisor.aval(), index_of(divisor, zero)))
        }
        // Where nothing but zeros or the like lies outside, an index out of range is meant.
        (Prim::Gather(op), [x, indices])
            if op.mode == IndexMode::FillOrDrop && op.fill_value == IndexMode::fill_value(x.dtype()) =>
        {
            out_of_range(x, indices, &op.start_index_map, |axis| op.slice_sizes[axis])
        }
        // The indices of a derivative are those of the forward pass.
        (Prim::Scatter(op), [x, indices, updates]) if op.mode == IndexMode::FillOrDrop && !is_derivative => {
            of_scatter(op, x, indices, updates)
        }
        _ => None,
    }
}

fn of_scatter(op: &Scatter, x: &Array, indices: &Array, updates: &Array) -> Found {
    // The window dimensions of the updates are those of the array that are neither inserted nor batched, in order.
    let is_window = |axis: &usize| !op.inserted_window_dims.contains(axis) && !op.operand_batching_dims.contains(axis);
    let windows: Vec<usize> = (0..x.shape().len()).filter(is_window).collect();
    out_of_range(x, indices, &op.scatter_dims_to_operand_dims, |axis| {
        let window = windows.iter().position(|&window| window == axis);
        window.map_or(1, |window| updates.shape()[op.update_window_dims[window]])
    })
}

/// The first index whose slice does not fit; component `k` of an index is the start along dimension `axes[k]`.
fn out_of_range(x: &Array, indices: &Array, axes: &[usize], slice: impl Fn(usize) -> usize) -> Found {
    let most: Vec<i128> = axes.iter().map(|&axis| x.shape()[axis] as i128 - slice(axis) as i128).collect();
    let is_wrong = |(element, start): (usize, i128)| {
        let component = element % axes.len().max(1);
        (start < 0 || start > most[component]).then_some((element, component, start))
    };
    let (element, component, start) = integers(indices).enumerate().find_map(is_wrong)?;
    let (axis, size) = (axes[component], x.shape()[axes[component]]);
    // Negative indices have been made to count from the end.
    let given =
        if start < 0 { format!("{} (from the end {})", start, start - size as i128) } else { start.to_string() };
    let (of, at) = (x.aval(), index_of(indices, element));
    Some(format!("index {given} is out of range of axis {axis} of {of}, at {at} of the indices {}", indices.aval()))
}

/// The elements of an array of integers.
fn integers(array: &Array) -> impl Iterator<Item = i128> + '_ {
    (0..array.data().len()).filter_map(|i| array.data().get(i)?.as_i128())
}
