//! Rules of sorting.

use remat_ir::{DType, Gather, IndexMode, Iota, Literal, Result, Shape, Sort, TopK};

use super::batch::past;
use super::reduce::kept;
use super::{Batched, Expr, Linear, Operand, Rules, Writer, align, not_linear};

impl Rules for Sort {
    /// Positions are sorted along with the operands, and the tangents are gathered at these positions.
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        if tangents.iter().all(Option::is_none) {
            return Ok(vec![None; tangents.len()]);
        }
        let w = outs[0].writer();
        let iota = w.apply(Iota { dtype: DType::I32, shape: ins[0].shape()?, axis: self.axis }, &[]);
        let sorted = w.emit(*self, &[ins, &[iota]].concat())?;
        let positions = index_vectors(sorted[ins.len()])?;
        tangents.iter().map(|t| t.map(|t| take_along(t, positions, self.axis)).transpose()).collect()
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (aligned, batch) = align(size, ins)?;
        let outs = w.emit(Sort { axis: past(batch, self.axis), ..*self }, &aligned)?;
        Ok(outs.into_iter().map(|out| Batched::at(out, batch)).collect())
    }
}

impl Rules for TopK {
    fn jvp<'w>(&self, _: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(t) = tangents[0] else { return Ok(vec![None, None]) };
        let last = t.shape()?.len().saturating_sub(1);
        Ok(vec![Some(take_along(t, index_vectors(outs[1])?, last)?), None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    /// The last dimension stays the last.
    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let outs = w.emit(*self, &[ins[0].to_front(size)])?;
        Ok(outs.into_iter().map(Batched::front).collect())
    }
}

/// Positions along an axis as [`take_along`] expects them: vectors of one element.
pub(super) fn index_vectors(positions: Expr<'_>) -> Result<Expr<'_>> {
    Ok(positions.expand_dims(&[positions.shape()?.len()]))
}

/// The elements of `x` at these positions along an axis. The positions have the shape of `x`, except along that axis, and one additional
/// last dimension.
pub(super) fn take_along<'w>(x: Expr<'w>, positions: Expr<'w>, axis: usize) -> Result<Expr<'w>> {
    let aval = x.aval()?;
    let vectors = positions.shape()?;
    let result = aval.with_shape(vectors[..aval.rank()].iter().copied());
    if result.size() == 0 {
        // A slice of one element does not fit in an empty array.
        return Ok(x.writer().zeros(&result));
    }
    let others: Shape = kept(&aval, &[axis]).into();
    let gather = Gather {
        offset_dims: Shape::new(),
        collapsed_slice_dims: [axis].into_iter().collect(),
        start_index_map: [axis].into_iter().collect(),
        operand_batching_dims: others.clone(),
        start_indices_batching_dims: others,
        slice_sizes: aval.shape.iter().map(|_| 1).collect(),
        mode: IndexMode::Clip,
        fill_value: Literal::from_f64(aval.dtype, 0.0),
    };
    Ok(x.writer().apply(gather, &[x, positions]))
}
