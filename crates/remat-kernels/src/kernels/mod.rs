//! The kernels, one file or folder for each family of operations.

pub(crate) mod arg_reduce;
pub(crate) mod attention;
pub(crate) mod bitcast;
pub(crate) mod choice;
pub(crate) mod concatenate;
pub(crate) mod conv;
pub(crate) mod cumulative;
pub(crate) mod debug_print;
pub(crate) mod gather;
pub(crate) mod iota;
pub(crate) mod linalg;
mod loops;
pub(crate) mod matmul;
pub(crate) mod pad;
pub(crate) mod scatter;
pub(crate) mod slice;
pub(crate) mod sort;
pub(crate) mod threefry;
pub(crate) mod top_k;
pub(crate) mod window;
