//! Triangular systems and Cholesky factors.
//!
//! Each element of a result is an operand minus products that are subtracted one by one, in the order of the definition. Blocks choose
//! which elements are computed side by side, never the order of a sum. So results are bitwise those of the evaluator for all sizes, layouts
//! and numbers of threads.

mod cholesky;
mod tile;
mod triangular;

pub(crate) use cholesky::kernel as cholesky;
pub(crate) use triangular::kernel as triangular_solve;
