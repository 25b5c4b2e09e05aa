//! Fused loops: chains of elementwise operations, and reductions, computed tile by tile.
//!
//! A loop is given as a [`LoopSpec`] and becomes a small program whose instructions each compute a whole tile, so that
//! what lies between two operations never leaves the first-level cache (as in MonetDB/X100's vectorised execution, Boncz
//! et al. 2005). There is no code generation: to compile a loop takes microseconds.

mod dims;
mod map;
mod program;
mod reduction;
#[cfg(test)]
mod tests;

use remat_ir::{DType, Literal, Op, Shape};

use super::{Kernel, Layout};

/// How many elements of a value there are in a loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Extent {
    /// One at each place.
    Full,
    /// One per row.
    Row,
}

/// What a loop computes.
#[derive(Debug)]
pub(crate) struct LoopSpec {
    /// What it reads from memory, and the numbers that it knows.
    pub(crate) operands: Vec<LoopOperand>,
    /// In an order in which they can run.
    pub(crate) equations: Vec<LoopEquation>,
    /// The equations whose results are stored, in the order of the outputs.
    pub(crate) outs: Vec<usize>,
    /// Rows; all places where there are no columns.
    pub(crate) rows: usize,
    /// Elements per row, where there are row values.
    pub(crate) columns: Option<usize>,
    /// The shape and the axes of the reductions, where the outputs are the results of reductions over any axes.
    pub(crate) reduction: Option<(Shape, Shape)>,
}

/// An operand of a loop.
#[derive(Debug)]
pub(crate) struct LoopOperand {
    pub(crate) dtype: DType,
    pub(crate) extent: Extent,
    pub(crate) source: LoopSource,
}

/// Where an operand comes from.
#[derive(Debug)]
pub(crate) enum LoopSource {
    /// The elements of an input of the kernel.
    Input { input: usize, layout: Layout },
    /// One number, repeated.
    Literal(Literal),
}

/// An operation of a loop: elementwise, or a reduction of rows.
#[derive(Debug)]
pub(crate) struct LoopEquation {
    pub(crate) op: Op,
    pub(crate) ins: Vec<LoopInput>,
    /// The dtype of the result.
    pub(crate) dtype: DType,
    pub(crate) extent: Extent,
}

/// What an operation of a loop reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoopInput {
    Operand(usize),
    Equation(usize),
}

impl LoopSpec {
    /// The kernel; `None` if there is no tile function for one of the operations, which is a defect.
    pub(crate) fn kernel(&self) -> Option<Box<dyn Kernel>> {
        match &self.reduction {
            None => Some(Box::new(map::Map::new(self)?)),
            Some((shape, axes)) => Some(Box::new(reduction::Reduction::new(self, shape, axes)?)),
        }
    }

    /// The dtype of what an operation reads.
    fn dtype(&self, input: LoopInput) -> DType {
        match input {
            LoopInput::Operand(i) => self.operands[i].dtype,
            LoopInput::Equation(i) => self.equations[i].dtype,
        }
    }
}
