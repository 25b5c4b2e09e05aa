//! Samples: applications of every first-order operation, of every kind and dtype and edge.
//!
//! Generic tests put each through every transformation and every engine, so that an operation brings its tests with its
//! samples. [`Samples`] is implemented once per operation, one file per family; [`all_samples`] is made from the list of
//! operations, so that one without samples does not compile.

mod attention;
mod collective;
mod conv;
mod convert;
mod cumulative;
mod dot;
mod elementwise;
mod gather;
mod linalg;
mod loss;
mod marker;
mod random;
mod reduce;
mod sample;
mod shape;
mod slice;
mod sort;
mod unary;
mod window;

pub use sample::Sample;

/// An operation with samples.
trait Samples {
    /// Applications of this operation, of every kind and dtype and edge.
    fn samples() -> Vec<Sample>;
}

macro_rules! all {
    ($($variant:ident $(as $shared:ty)?,)*) => {
        /// The samples of all first-order operations.
        pub fn all_samples() -> Vec<Sample> {
            [$(<remat_ir::$variant as Samples>::samples()),*].concat()
        }
    };
}

remat_ir::with_prims!(all);
