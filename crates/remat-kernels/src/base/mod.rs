//! Building blocks that kernels of several families share.

pub(crate) mod cache;
pub(crate) mod copy;
pub(crate) mod disjoint;
pub(crate) mod index;
pub(crate) mod keys;
pub(crate) mod narrow;
pub(crate) mod pieces;
pub(crate) mod precision;
pub(crate) mod product;
pub(crate) mod rectangle;
pub(crate) mod scratch;
pub(crate) mod strided;
pub(crate) mod strided_store;
pub(crate) mod transpose;

pub use narrow::used_isa;
pub use product::{ceiling, read_rate};
