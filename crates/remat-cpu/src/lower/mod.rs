//! Lowering: from a program to a list of equations without calls.
//!
//! [`flat`] inlines calls, [`algebra`] drops equations that change nothing, [`parts`] and [`turned`] rewrite products of slices
//! and transposed ones, [`stacks`] what loops stack.

mod algebra;
mod flat;
mod parts;
mod stacks;
#[cfg(test)]
mod tests;
mod turned;

pub(crate) use flat::Flat;
