//! Passes from program to program that several engines share, the pipeline of each engine, and the cost of operations.
//!
//! Start with [`pipeline`]: it lists the passes of each engine in order, with a reason for each. Every pass is one file whose documentation
//! begins with its type. In debug builds the result of every pass is checked, and tests compare it with text files.
//!
//! Layers, each using only those above it in this list (a test checks this):
//!
//! 1. [`lru`]: a cache, which engines share
//! 2. `memo`, `checked`, `env`, `cost`, `rewrite`, `uses`: shared by the passes
//! 3. `dce`, `cse`, `fold`, `one_memory`, `unroll`, `inline`, `rotate`, `algebra`, `stacks`, `slice_pushdown`, `dot_transpose`, `negated_sums`, `outer_products`, `extrema`, `padded_sums`, `scan_residuals`, `sink`, `attention`:
//!    the passes
//! 4. `pipeline`: their order
//!
//! Not here: derivatives and batching (crate `remat`); fusion, layouts and memory (the engines).

mod algebra;
mod attention;
mod checked;
pub mod cost;
mod cse;
mod dce;
mod dot_transpose;
mod env;
mod extrema;
mod fold;
mod inline;
pub mod lru;
pub mod memo;
mod negated_sums;
mod one_memory;
mod outer_products;
mod padded_sums;
pub mod pipeline;
mod rewrite;
mod rotate;
mod scan_residuals;
mod sink;
mod slice_pushdown;
mod stacks;
mod unroll;
mod uses;

pub use checked::checked;
pub use cse::cse;
pub use dce::{Dce, dce};
pub use extrema::finds_extremum;
pub use fold::fold_literals;
pub use pipeline::{Stage, Stages};
pub use unroll::unrolled;
