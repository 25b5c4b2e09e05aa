//! Attention and its derivatives, tile by tile: the matrix of scores is never stored.
//!
//! The scores of a block of queries and a block of keys are computed, used and dropped. The forward kernel keeps the results and one number
//! per query, the logarithm of its sum of exponentials. The backward kernel computes the scores again from that. Tiles that the causal mask
//! hides are skipped. Source: Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022; Dao,
//! "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023.
//!
//! Operands may have any strides. f16 and bf16 are widened when a tile is loaded, and everything is computed in f32, or in f64 for f64.
//! Where the CPU has a unit for bf16, products of bf16 are computed there ([`products`]). The tangent has no kernel: it is computed by its
//! definition.
//!
//! [`algorithms`] lists what computes which problems, in the order in which it is tried. Up to 8 queries of a key head read keys and values once, block by block, without such a unit ([`few`]). All threads share a long cache in
//! parts ([`parts`]), also for more queries if there are fewer than 8 tasks.

mod algorithms;
mod backward;
mod bias;
mod few;
mod forward;
mod parts;
mod problem;
mod products;
mod score_cotangents;
#[cfg(test)]
mod tests;
mod thresholds;
mod tile;

use remat_ir::{DType, Prim};

pub(crate) use algorithms::Attentions;
use algorithms::{Attention, AttentionOp};

use super::choice;
use crate::base::narrow::{Kind, Unit};
use crate::interface::{Kernel, Layout};

/// The kernel of an attention, or of its cotangents, on operands of these dtypes and layouts; `None` for other operations.
pub(crate) fn kernel(op: &Prim, ins: &[(DType, &Layout)]) -> Option<Box<dyn Kernel>> {
    let unit = ins.first().filter(|(dtype, _)| *dtype == DType::Bf16).and_then(|_| Unit::best(Kind::Bf16));
    kernel_on(unit, op, ins)
}

/// As [`kernel`], with this unit for bf16.
fn kernel_on(unit: Option<Unit>, op: &Prim, ins: &[(DType, &Layout)]) -> Option<Box<dyn Kernel>> {
    let &(dtype, _) = ins.first()?;
    let layouts: Vec<Layout> = ins.iter().map(|(_, layout)| (*layout).clone()).collect();
    let op = match op {
        Prim::DotProductAttention(op) => AttentionOp::Forward(op),
        Prim::DotProductAttentionCotangent(op) => AttentionOp::Backward(op),
        _ => return None,
    };
    Some(choice::kernel::<Attentions>(&Attention { op, dtype, layouts: &layouts, unit }))
}
