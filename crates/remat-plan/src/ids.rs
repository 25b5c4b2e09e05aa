//! The index types of a graph: one type per kind of index, so that they cannot be confused.

use oxc_index::define_index_type;

define_index_type! {
    /// A step: one kernel and its operands. Steps are numbered in the order of the program, not in that of the schedule.
    pub struct StepId = u32;
    DISPLAY_FORMAT = "step{}";
}

define_index_type! {
    /// A buffer: an argument, an output, a constant or a temporary.
    pub struct BufferId = u32;
    DISPLAY_FORMAT = "b{}";
}

define_index_type! {
    /// An equation of a region's forward pass.
    pub struct EquationId = u32;
    DISPLAY_FORMAT = "eqn{}";
}

define_index_type! {
    /// A result of an equation of a region's forward pass.
    pub struct ValueId = u32;
    DISPLAY_FORMAT = "v{}";
}
