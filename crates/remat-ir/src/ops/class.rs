//! Classes of operations, by which passes and engines decide before they look at details.

/// What kind of work an operation is.
///
/// ```
/// use remat_ir::{Class, Transpose, Operation};
/// assert_eq!(Transpose { permutation: [1, 0].into_iter().collect() }.class(), Class::View);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Class {
    /// No work: names, barriers, identities of derivatives.
    Marker,
    /// A change of layout, which engines can read through: reshapes, transposes, broadcasts, slices, reversals, counts.
    View,
    /// An elementwise operation of a few instructions: arithmetic, comparisons, selections, conversions.
    Elementwise,
    /// An elementwise operation of tens of instructions: exponentials, logarithms, roots, trigonometric and special functions.
    Transcendental,
    /// Moves elements: paddings, concatenations, gathers, scatters, slices whose start is computed, transfers.
    Movement,
    /// Combines elements along axes: reductions, cumulative operations, windows.
    Reduction,
    /// Sums of products: matrix products, convolutions, attention.
    Contraction,
    /// Sorting, and selecting the largest elements.
    Sort,
    /// Random bits.
    Random,
    /// Exchanges elements between the shards of a named axis.
    Collective,
    /// Acts outside of the program, and may have no results: prints. Such operations run once, in their order, although nothing reads
    /// their results.
    Effect,
    /// An operation with jaxprs in its parameters: its work is theirs.
    Call,
}
