//! From which sizes on an algorithm of a convolution pays, or is allowed its memory.
//!
//! A bound that says "row" was measured in that row of docs/EXPERIMENTS.md, "Convolutions". Where it says "tried", it was set by trying
//! sizes around it when the algorithm was written, and no figures were kept. Sizes of steps, bands and parts, which decide how an algorithm
//! computes and not whether, are beside their algorithms.

/// Fewest channels of depthwise convolutions, which fill a part of a panel, and fewest multiplications. Tried.
pub(super) const DEPTHWISE_CHANNELS: usize = 8;
pub(super) const DEPTHWISE_WORK: usize = 1 << 14;

/// Fewest input and output features of minimal filtering: with fewer, the transformations take longer than the multiplications that they
/// save. Row "Minimal filtering": 16 to 16 features 207 → 160 GFLOP/s, 32 to 32 231 → 268, 64 to 64 239 → 334.
pub(super) const WINOGRAD_FEATURES: usize = 32;

/// Fewest tiles of 2x2 results of minimal filtering: windows are transformed for all of them. Row "Minimal filtering".
pub(super) const WINOGRAD_TILES: usize = 64;

/// Most transformed elements of windows, which are scratch memory, and are read again for each block of tiles. Row "Minimal filtering":
/// images of 8x8 of 256 to 256 features, which are at the bound, 217 → 372 GFLOP/s; of 7x7 of 256 to 512, beyond it, 207 → 235, and of 512
/// to 512 212 → 153.
pub(super) const WINOGRAD_WINDOWS: usize = 1 << 20;

/// Fewest pairs of a gradient of weights by minimal filtering: with few, the transformation of the sums takes longer than it saves. Row
/// "Minimal filtering": 512 to 512 with 128 pairs takes 9.2 ms instead of 8.2.
pub(super) const GRADIENT_PAIRS: usize = 256;

/// Most features of the result of products that are added to results: a gathered element is multiplied once for each of them. Row "the
/// rule": 8 to 64 features 147 → 155 GFLOP/s (NHWC 59 → 124), 32 to 128 equal, beyond gathering wins by up to 8 times.
pub(super) const COL2IM_FEATURES: usize = 16;

/// Fewest input features for each output feature: to add a product takes the time of some multiplications. Row "Few channels: products
/// first, then sums", as the next one.
pub(super) const COL2IM_DEPTH: usize = 2;

/// The same where windows can be read in place ([`direct`](super::direct)), which is faster with fewer.
pub(super) const COL2IM_DEPTH_BESIDE_DIRECT: usize = 8;

/// Fewest features that are summed for each product, which is added once, of numbers; a unit for bf16 has a group of them. Tried.
pub(super) const COL2IM_SUMMED: usize = 16;

/// Fewest multiplications for which packing weights pays, and fewest elements of an image. Tried.
pub(super) const COL2IM_WORK: usize = 1 << 20;
pub(super) const COL2IM_ELEMENTS: usize = 48;

/// Most elements of scratch memory: the packed weights with their padding, and the sums of the rows of results that a step reaches. Tried.
pub(super) const COL2IM_SCRATCH: usize = 1 << 20;

/// Fewest tasks: one row of one image would be computed by one thread.
pub(super) const COL2IM_TASKS: usize = 2;

/// Fewest multiplications of windows of bf16 that are read word by word, for which copying bands pays. Tried; so are the next two. For the
/// whole algorithm, row "Windows of bf16 that are read word by word".
pub(super) const PAIRS_WORK: usize = 1 << 20;

/// Fewest rows of a tile, each of which multiplies the panel that it reads.
pub(super) const PAIRS_ROWS: usize = 6;

/// Fewest output features, which fill the lanes of vectors.
pub(super) const PAIRS_FEATURES: usize = 24;

/// How often elements of the image are read at least, if features are neighbours in the output: windows that overlap less are packed as
/// quickly as bands are copied. Row "bands for bf16 NHWC windows that overlap little": 3x3 by 2 4.8 ms instead of 4.3.
pub(super) const PAIRS_REUSE: usize = 4;

/// Most words of the smallest possible band of a task, so that it stays in the second-level cache. Tried.
pub(super) const PAIRS_BAND: usize = 1 << 17;

/// Most sums that are kept from step to step, which are scratch memory. Tried.
pub(super) const PAIRS_KEPT: usize = 1 << 19;

/// Fewest positions of all images, and fewest features of each group, of products on a unit: with fewer, most of a panel would be zeros.
/// Yet a matrix unit multiplies panels of a group's few features in less time than it takes to widen their windows (row "bf16 with few
/// channels on the matrix unit": 121 → 52 ms for the image of 3 to 64 features). Tried on others.
pub(super) const UNIT_POSITIONS: usize = 8;

/// Fewest elements of a window, of all features: with fewer, most of a group would be zeros. Tried.
pub(super) const UNIT_DEPTH: usize = 16;

/// Fewest multiplications for which packing panels pays. Tried.
pub(super) const UNIT_WORK: usize = 1 << 15;

/// Most elements of the packed weights of windows that are read in place: more would come from the last-level cache, again for each band.
/// Row "Windows that are read in place": 128 to 128 features 118 → 137 GFLOP/s, 256 to 256 126 → 113.
pub(super) const DIRECT_WEIGHTS: usize = 1 << 18;

/// Most features of windows with a stride: their columns are copied one by one. Row "Windows that are read in place": 128 features by 2
/// 114 → 111 GFLOP/s.
pub(super) const DIRECT_STRIDED: usize = 16;

/// Fewest lanes of vectors that the positions of a row fill, in tenths: the rest is multiplied in vain. Tried.
pub(super) const DIRECT_LANES: usize = 8;

/// Fewest multiplications for which copying bands pays, and most elements of the smallest possible band, which stays in the second-level
/// cache. Tried.
pub(super) const DIRECT_WORK: usize = 1 << 20;
pub(super) const DIRECT_BAND: usize = 256 << 10;

/// Most positions of long windows: with more, bands are hardly smaller than gathered windows are for each. Tried; for the algorithm, row
/// "Gradients of weights in segments".
pub(super) const LONG_POSITIONS: usize = 64;

/// Fewest elements of a long window in the image, and fewest multiplications, for which transposing weights pays. Tried.
pub(super) const LONG_WINDOW: usize = 32;
pub(super) const LONG_WORK: usize = 1 << 20;

/// Fewest images for the rows of a tile to be images, and otherwise fewest neighbouring positions, which are the rows then. Row "gradients of
/// weights with few channels": 3 to 64 features 7x7 8.4 → 6.0 ms.
pub(super) const LONG_IMAGES: usize = 8;
pub(super) const LONG_NEIGHBOURS: usize = 3;

/// Fewest lanes of vectors that output features fill, in tenths: the rest is multiplied in vain. Tried.
pub(super) const LONG_LANES: usize = 7;

/// Most sums that are kept from step to step, which are scratch memory. Tried.
pub(super) const LONG_KEPT: usize = 1 << 20;
