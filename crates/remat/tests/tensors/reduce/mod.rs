//! Reductions, products and functions of elements, against NumPy.

mod activations;
mod products;
mod reductions;
