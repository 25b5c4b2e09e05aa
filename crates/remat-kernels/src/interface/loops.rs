//! The description of a fused loop: elementwise operations and reductions that are computed together, tile by tile.

use remat_ir::{DType, Literal, Prim, Shape};

use super::Layout;

/// The number of elements of a value in a loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extent {
    /// One per element of the loop.
    Full,
    /// One per row; in a loop that ends in reductions over arbitrary axes, one per result.
    Row,
}

/// The specification of a fused loop.
///
/// # Examples
///
/// `x * x + 2` of three bytes:
///
/// ```
/// use remat_ir::{Binary, DType, Literal, Prim};
/// use remat_kernels::{
///     Extent, Kernel, Layout, LoopEquation, LoopInput, LoopOperand, LoopSource, LoopSpec, Source, Target, Threads,
/// };
///
/// let (dtype, extent) = (DType::U8, Extent::Full);
/// let x = LoopSource::Input { input: 0, layout: Layout::contiguous(&[3]) };
/// let two = LoopSource::Literal(Literal::from_i128(dtype, 2));
/// let square = (Prim::from(Binary::Mul), vec![LoopInput::Operand(0), LoopInput::Operand(0)]);
/// let sum = (Prim::from(Binary::Add), vec![LoopInput::Equation(0), LoopInput::Operand(1)]);
/// let spec = LoopSpec {
///     operands: [x, two].map(|source| LoopOperand { dtype, extent, source }).into(),
///     equations: [square, sum].map(|(op, ins)| LoopEquation { op, ins, dtype, extent }).into(),
///     outs: vec![1],
///     rows: 3,
///     columns: None,
///     reduction: None,
/// };
/// let kernel = spec.kernel().expect("both operations have tile functions");
///
/// let (from, mut to) = ([1u8, 2, 3], [0u8; 3]);
/// let mut scratch = vec![0; kernel.scratch(1)];
/// // SAFETY: all bytes are elements of the dtype.
/// let (source, target) = unsafe { (Source::new(dtype, &from), Target::new(dtype, &mut to)) };
/// kernel.run(&[source], &mut [target], &mut scratch, &Threads::SERIAL);
/// assert_eq!(to, [3, 6, 11]);
/// ```
#[derive(Clone, Debug)]
pub struct LoopSpec {
    /// The arrays that the loop reads from memory, and its literals.
    pub operands: Vec<LoopOperand>,
    /// The equations, in an order in which they can run.
    pub equations: Vec<LoopEquation>,
    /// The equations whose results are stored, in the order of the outputs.
    pub outs: Vec<usize>,
    /// The number of rows, or of all elements if there are no columns.
    pub rows: usize,
    /// Elements per row, if there are row values.
    pub columns: Option<usize>,
    /// The shape and the axes of the reductions, if the outputs are reductions over arbitrary axes.
    pub reduction: Option<(Shape, Shape)>,
}

/// An operand of a loop.
#[derive(Clone, Debug)]
pub struct LoopOperand {
    /// The dtype of its elements.
    pub dtype: DType,
    /// The number of its elements.
    pub extent: Extent,
    /// The source of its elements.
    pub source: LoopSource,
}

/// The source of an operand's elements.
#[derive(Clone, Debug)]
pub enum LoopSource {
    /// An input of the kernel.
    Input {
        /// Its number among the inputs.
        input: usize,
        /// The operand's layout in the buffer of the input.
        layout: Layout,
    },
    /// One number, repeated.
    Literal(Literal),
}

/// An operation of a loop: elementwise, or a reduction of rows or over the axes of [`LoopSpec::reduction`].
#[derive(Clone, Debug)]
pub struct LoopEquation {
    /// The operation.
    pub op: Prim,
    /// Its operands.
    pub ins: Vec<LoopInput>,
    /// The dtype of the result.
    pub dtype: DType,
    /// The number of elements of the result.
    pub extent: Extent,
}

/// An operand of an operation of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopInput {
    /// An operand of the loop, by its number.
    Operand(usize),
    /// The result of an earlier equation, by its number.
    Equation(usize),
}

/// One of several loops that are computed together, block by block.
#[derive(Debug)]
pub struct LoopPhase {
    /// The loop. Its values have one element per position of the space, or one per position of the kept dimension.
    pub spec: LoopSpec,
    /// The memory of its inputs. Results of earlier phases are read only at the positions that this phase computes.
    pub ins: Vec<PhaseMemory>,
    /// The memory of its outputs.
    pub outs: Vec<PhaseMemory>,
}

/// The memory of an input or an output of a phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PhaseMemory {
    /// An input of the kernel.
    Input(usize),
    /// An output of the kernel.
    Output(usize),
    /// Memory of a block, with one element per position of the block along the dimension. These values are numbered from zero.
    Inside(usize),
    /// Memory of a block, with one element per position of the space that is in the block. These values are numbered from zero; one that
    /// no later phase reads gives its number to the next. Phases read them whole, in order.
    Block(usize),
}

/// Loops over one space, computed in blocks of positions along one dimension: all loops compute their part of a block while it is in the
/// cache of a core.
#[derive(Debug)]
pub struct BlockedLoops {
    /// The loops, in the order in which they run for each block.
    pub phases: Vec<LoopPhase>,
    /// The numbers of positions before, along and after the dimension.
    pub space: [usize; 3],
}

impl LoopSpec {
    /// The dtype of an operand of an operation.
    pub(crate) fn dtype(&self, input: LoopInput) -> DType {
        match input {
            LoopInput::Operand(i) => self.operands[i].dtype,
            LoopInput::Equation(i) => self.equations[i].dtype,
        }
    }
}
