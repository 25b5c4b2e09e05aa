//! Reductions, products and functions of elements, against NumPy.

mod activations;
#[path = "../numpy/mod.rs"]
mod numpy;
mod products;
mod reductions;

use numpy::{close, equal};
