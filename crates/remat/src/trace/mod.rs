//! Tracing: tensors, the stack of open traces, trees.
//!
//! While a trace is open on a thread, every operation on that thread is staged into the innermost trace, including operations on concrete
//! tensors: everything that a closure computes belongs to its program. An outer tensor that a closure uses becomes an input of its program
//! (closure conversion).
//!
//! So a mask that is computed in a checkpointed block is recomputed and not saved. A scalar from outside becomes a literal.

mod ambient;
mod avals;
mod axes;
mod bind;
mod device;
mod eager;
mod endless;
mod fields;
mod names;
mod nodes;
mod order;
mod output;
pub(crate) mod pattern;
mod regions;
mod scope;
mod structure;
mod summary;
mod tensor;
mod tracer;
mod tree;

pub(crate) use ambient::{InRegion, region_policy};
pub(crate) use avals::{avals, expect_avals, zeros};
pub(crate) use axes::{Binding, bindings, bound_size, free_axes, with_axes};
pub use bind::{apply, deferred};
pub(crate) use bind::{
    bind, bind_at, bind1, composed, concrete, deferred_all, deferred_array, fail, into_values, operands, run, tensors,
};
pub use device::Device;
pub(crate) use device::{default_device, two_devices};
pub(crate) use eager::compute;
pub(crate) use endless::{failed, untraced};
pub(crate) use fields::setters;
pub(crate) use names::Names;
pub use nodes::map_nodes;
pub(crate) use order::Order;
pub use output::{Output, ScalarOutput};
pub(crate) use regions::{InLoop, Seen, Selection, is_selecting, with_selection};
pub use scope::{current_loc, named_scope, pinned};
pub(crate) use scope::{pinned_at, short_type_name};
pub use structure::Structure;
pub use summary::{Summary, parameters, summary};
pub(crate) use tensor::Repr;
pub use tensor::Tensor;
pub(crate) use tracer::{CaptureKey, Program, Tracer, trace, trace_at, trace_tree, trace_tree_at};
pub use tree::{Path, Segment, Tree, Walk, leaves, map, map_with_path, map2};
pub(crate) use tree::{cloned, for_tuples, leaf_paths, leaves_like, rebuild, structure};
