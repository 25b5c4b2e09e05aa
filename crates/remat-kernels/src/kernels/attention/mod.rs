//! Attention and its derivatives, tile by tile: the matrix of scores is never held.
//!
//! The scores of a block of queries and a block of keys are computed, used and forgotten. The forward kernel keeps the results
//! and one number per query, the logarithm of its sum of exponentials; the backward kernel computes the scores again from
//! that. Tiles that the causal mask forbids are skipped. Source: Dao et al., "FlashAttention: fast and memory-efficient exact
//! attention with IO-awareness", 2022; Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning",
//! 2023.
//!
//! Operands may have any strides; f16 and bf16 are widened when a tile is loaded, and everything is computed in f32, or f64 for
//! f64. The tangent has no kernel: it is computed by its definition.

mod backward;
mod bias;
mod forward;
mod problem;
mod score_gradients;
#[cfg(test)]
mod tests;
mod tile;

use remat_ir::{DType, Prim};

use crate::interface::{Kernel, Layout};

/// The kernel of an attention, or of its cotangents, on operands of these dtypes and layouts; `None` for other operations.
pub(crate) fn kernel(op: &Prim, ins: &[(DType, &Layout)]) -> Option<Box<dyn Kernel>> {
    let &(dtype, _) = ins.first()?;
    let layouts: Vec<Layout> = ins.iter().map(|(_, layout)| (*layout).clone()).collect();
    match op {
        Prim::DotProductAttention(op) => Some(forward::kernel(op, dtype, &layouts)),
        Prim::DotProductAttentionCotangent(op) => Some(backward::kernel(op, dtype, &layouts)),
        _ => None,
    }
}
