//! From which sizes on an algorithm of a matrix product pays.
//!
//! A bound that says "row" was measured in that row of docs/EXPERIMENTS.md, "Products by few rows, and small products". Where it says
//! "tried", it was set by trying sizes around it when the algorithm was written, and no figures were kept. Sizes of parts, blocks and tasks,
//! which decide how an algorithm computes and not whether, are beside their algorithms.

/// Fewest multiplications of bytes for which packing panels of 32 rows and columns pays. Tried.
pub(super) const UNIT_WORK: usize = 1 << 12;

/// The same for bf16 and f16, which would otherwise be widened and multiplied as small matrices ([`small`](super::small)). Row "Small
/// products": 1024 x [16,16] of bf16 649 → 188 us.
pub(super) const UNIT_WORK_WIDENED: usize = 1 << 15;

/// Fewest multiplications for which splitting f32 or f16 into bf16 pays. Tried.
pub(super) const UNIT_WORK_SPLIT: usize = 1 << 18;

/// Multiplications of whole panels of bytes for each one of a product, from which on bytes are rather widened and multiplied as small
/// matrices. Row "Small products of bytes": [40,40] 78 → 134 Gop/s widened, [64,64] 430 on the unit.
pub(super) const UNIT_PADDED: usize = 4;

/// The same for a unit whose instructions multiply fewer words than a vector of f32 has numbers, as with AVX2 alone. Tried.
pub(super) const UNIT_PADDED_OF_FEW_WORDS: usize = 2;

/// Most rows of a skinny operand that is multiplied by a matrix in place, on a unit: the columns of its tile. Row "Rows of bf16 and f16 in
/// place": 2 rows by [4096,4096] 4,073 → 1,948 us.
pub(super) const SKINNY_UNIT_ROWS: usize = 16;

/// Most words of one packed skinny operand on a unit: a longer one is packed part by part, with the matrix. Tried.
pub(super) const SKINNY_UNIT_PACKED: usize = 1 << 18;

/// Shortest vector of bytes for which packing it, or reading the matrix along its columns, pays. Tried for the first.
pub(super) const SKINNY_BYTES_DEPTH: usize = 256;

/// Fewest rows of the matrix, in tiles of rows that are read together, for which packing a vector of bytes pays. Tried. How many vectors are
/// multiplied one by one belongs to the instructions (`ByteDots::vectors`), row "Few rows of bytes".
#[cfg(target_arch = "x86_64")]
pub(super) const SKINNY_BYTES_TILES: usize = 2;

/// Most vectors of bytes that are multiplied as f32 by a matrix whose columns are read in place, where a unit with few words would pack the
/// matrix first. Row "Few vectors of bytes by a matrix that lies along its columns", measured with AVX2 alone.
pub(super) const SKINNY_BYTES_BY_COLUMNS: usize = 8;

/// Fewest columns of such a matrix: runs of fewer do not fill registers. Not tried.
pub(super) const SKINNY_BYTES_COLUMNS: usize = 64;

/// Most rows for which reading the matrix in place pays. Row "Batches of few rows": 512 products of [8,128] by a transposed matrix 4335 → 1480
/// us; where it ends was tried.
pub(super) const SKINNY_ROWS: usize = 16;

/// Positions of the contracted axis for each lane of a sum, from which on several rows are multiplied in place: along shorter axes,
/// clearing and adding the lanes takes as long as the products. Tried.
pub(super) const SKINNY_DEPTH_IN_LANES: usize = 4;

/// Most multiplications in the part of a skinny product that a task computes at a time for its sums to be computed one by one: of a tile of
/// sums most would be of no use, and few rows would be transposed for it. Row "parts of products of at most 128 multiplications sum by sum"
/// of "Small programs"; where it ends was not measured.
pub(super) const SKINNY_FEW: usize = 128;

/// Most elements of both operands and the result of a small product together: as f32 they take some 100 KiB of the second-level cache.
/// Row "Small products": 18 x [96,96] 111 → 152 GFLOP/s.
pub(super) const SMALL_ELEMENTS: usize = 3 * 96 * 96;
