//! Tensors: making, moving, printing and computing them, trees of them, random ones, and what is said of mistakes.

mod attention;
mod conv;
mod display;
mod distributions;
mod elementwise;
mod errors;
mod grad;
mod index;
mod linalg;
#[cfg(feature = "ndarray")]
mod ndarray;
mod numpy;
mod prints;
mod random;
mod reduce;
mod shape;
mod tree;
