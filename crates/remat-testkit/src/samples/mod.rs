//! Samples: applications of every first-order operation, of every kind and dtype and edge.
//!
//! Generic tests put each through every transformation and every engine, so that an operation brings its tests with its
//! samples. [`Samples`] is implemented once per operation, one file per family, and the list below matches every operation:
//! an operation without samples does not compile.

mod attention;
mod conv;
mod convert;
mod cumulative;
mod dot;
mod elementwise;
mod gather;
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

use remat_ir::Op;
pub use sample::Sample;

/// An operation with samples.
trait Samples {
    /// Applications of this operation, of every kind and dtype and edge.
    fn samples() -> Vec<Sample>;
}

macro_rules! all {
    ($($variant:ident)*; calls $($call:ident)*) => {
        /// The samples of all first-order operations.
        pub fn all_samples() -> Vec<Sample> {
            [$(<remat_ir::$variant as Samples>::samples()),*].concat()
        }

        /// Does not compile when the list lacks an operation.
        const _: fn(&Op) = |op| match op {
            $(Op::$variant(_) => {})*
            $(Op::$call(_) => {})*
        };
    };
}

all! {
    Unary IntegerPow Binary Compare SelectN Clamp
    ConvertElementType BitcastConvertType ReducePrecision
    BroadcastInDim Reshape Transpose Squeeze ExpandDims Rev Concatenate Pad Iota
    Slice DynamicSlice DynamicUpdateSlice Gather Scatter
    Reduce ArgReduce Cumulative Sort TopK
    DotGeneral Conv ReduceWindow ArgReduceWindow
    DotProductAttention DotProductAttentionTangent DotProductAttentionCotangent CrossEntropyTangent
    Threefry2x32
    Name StopGradient OptimizationBarrier DevicePut;
    calls Jit Checkpoint Scan While Cond CustomJvp CustomVjp CustomLin
}
