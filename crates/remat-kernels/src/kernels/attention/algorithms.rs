//! The algorithms of attention and its derivatives, in the order in which they are tried.

use remat_ir::{DType, DotProductAttention, DotProductAttentionCotangent};

use super::backward::Backward;
use super::few;
use super::forward::Forward;
use super::problem::Problem;
use crate::base::narrow::Unit;
use crate::interface::{Kernel, Layout};
use crate::kernels::choice::{Algorithm, Family};

/// The family of attention and its derivatives.
pub(crate) struct Attentions;

/// An attention, or its cotangents, with the dtype and the layouts of the operands.
pub(crate) struct Attention<'a> {
    pub(super) op: AttentionOp<'a>,
    pub(super) dtype: DType,
    pub(super) layouts: &'a [Layout],
    /// The unit for bf16, if the operands are bf16 and the CPU has one.
    pub(super) unit: Option<Unit>,
}

/// The operations that have kernels.
#[derive(Clone, Copy)]
pub(super) enum AttentionOp<'a> {
    Forward(&'a DotProductAttention),
    Backward(&'a DotProductAttentionCotangent),
}

impl Family for Attentions {
    type Problem<'a> = Attention<'a>;

    const NAME: &'static str = "attention";

    const ALGORITHMS: &'static [Algorithm<Attentions>] = &[
        Algorithm {
            name: "few",
            why: "A tile has columns for sixteen queries or more, so fewer queries are attended to one by one.",
            applies: |x| matches!(x.op, AttentionOp::Forward(op) if few::applies(&Problem::new(op, x.layouts, None))),
            build: |x, _| match x.op {
                AttentionOp::Forward(op) => Some(Box::new(Forward::of_few(x.dtype, Problem::new(op, x.layouts, None)))),
                AttentionOp::Backward(_) => None,
            },
        },
        Algorithm {
            name: "tiles_unit",
            why: "A unit multiplies the tiles of bf16 several times as fast as vectors of f32 do.",
            applies: |x| x.unit.is_some(),
            build: |x, _| Some(x.tiles(x.unit)),
        },
        Algorithm {
            name: "tiles",
            why: "Tiles of scores are computed, used and dropped, so that the matrix of scores is never stored.",
            applies: |_| true,
            build: |x, _| Some(x.tiles(None)),
        },
    ];
}

impl Attention<'_> {
    /// The kernel that computes tiles of queries and keys.
    fn tiles(&self, unit: Option<Unit>) -> Box<dyn Kernel> {
        match self.op {
            AttentionOp::Forward(op) => Box::new(Forward::of_tiles(self.dtype, Problem::new(op, self.layouts, unit))),
            AttentionOp::Backward(op) => {
                let problem = Problem::new(&op.attention, self.layouts, unit);
                Box::new(Backward::new(op, self.dtype, self.layouts, problem))
            }
        }
    }
}
