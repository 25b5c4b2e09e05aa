//! Nested loops whose inner loops are checkpointed regions.

use remat_ir::{Policy, Result};

use super::Body;
use crate::api::{ScanOptions, checkpoint, scan_with};
use crate::trace::Tensor;

type Outs = (Vec<Tensor>, Vec<Tensor>);

/// The block sizes for loops of about the same length, one fewer than levels.
pub(crate) fn equal_blocks(length: usize, levels: usize) -> Vec<usize> {
    let mut blocks: Vec<usize> = Vec::new();
    // More levels than iterations are of no use.
    let levels = levels.min(length.max(1));
    for inner in (1..levels).rev() {
        let block = (length as f64).powf(inner as f64 / levels as f64).round() as usize;
        // After rounding, blocks may be equal.
        if block > 1 && blocks.last().is_none_or(|&last| block < last) {
            blocks.push(block);
        }
    }
    blocks
}

pub(super) fn run(body: &Body, blocks: &[usize]) -> Result<Outs> {
    nested(body, blocks, &body.carry, &body.xs, body.length)
}

/// A loop over blocks; an inner level is a loop over smaller blocks. The remainder runs last.
fn nested(body: &Body, blocks: &[usize], carry: &[Tensor], xs: &[Tensor], length: usize) -> Result<Outs> {
    let Some((&block, inner)) = blocks.split_first() else {
        return body.scan(&body.program.captured, carry, xs, length);
    };
    if length <= block {
        return nested(body, inner, carry, xs, length);
    }
    let (count, rest) = (length / block, length % block);
    let reverse = body.options.reverse;
    let (whole, left) = if reverse { (rest..length, 0..rest) } else { (0..length - rest, length - rest..length) };

    let mut blocked = Vec::with_capacity(xs.len());
    for x in xs {
        let mut shape = x.shape()?.to_vec();
        shape.splice(..1, [count, block]);
        blocked.push(x.index(whole.clone()).reshape(shape));
    }
    let region =
        |length: usize| checkpoint(Policy::Nothing, move |(carry, xs): &Outs| nested(body, inner, carry, xs, length));
    let of_block = region(block);
    let options = ScanOptions { length: Some(count), reverse, unroll: 1 };
    let step = |carry: &Vec<Tensor>, xs: &Vec<Tensor>| of_block(&(carry.clone(), xs.clone()));
    let (carry, stacked) = scan_with(&options, step, &carry.to_vec(), &blocked)?;
    let mut ys = Vec::with_capacity(stacked.len());
    for y in stacked {
        let mut shape = y.shape()?.to_vec();
        shape.splice(..2, [count * block]);
        ys.push(y.reshape(shape));
    }
    if rest == 0 {
        return Ok((carry, ys));
    }

    let left: Vec<Tensor> = xs.iter().map(|x| x.index(left.clone())).collect();
    let (carry, rest_ys) = region(rest)(&(carry, left))?;
    let join = |(whole, rest): (&Tensor, &Tensor)| {
        if reverse { Tensor::concatenate(&[rest, whole], 0) } else { Tensor::concatenate(&[whole, rest], 0) }
    };
    Ok((carry, ys.iter().zip(&rest_ys).map(join).collect()))
}
