//! Operations that move elements, products and windows: shape rules, text forms and values.
//!
//! Values are worked out by hand, or by loops over all indices that follow the definition of the operation and share
//! nothing with the evaluator. Their data are small integers, so that every order of summation gives the same bits.

mod conv;
mod dot;
mod gather;
mod shape;
mod slice;
mod support;
mod window;
