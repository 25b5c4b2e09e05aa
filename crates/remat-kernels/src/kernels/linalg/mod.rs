//! Triangular systems and Cholesky factors.
//!
//! Each element of a result is an operand less products that are subtracted one by one, in the order of the definition. Blocks
//! choose which elements are computed side by side and never the order of a sum, so that results are the evaluator's bit for
//! bit, whatever the sizes, the layouts and the number of threads.

mod cholesky;
mod tile;
mod triangular;

pub(crate) use cholesky::kernel as cholesky;
pub(crate) use triangular::kernel as triangular_solve;
