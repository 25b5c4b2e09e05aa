//! The index types of the engine: one type per kind of index, so that they cannot be confused.

use oxc_index::define_index_type;

define_index_type! {
    /// An equation of the program that is compiled.
    pub(crate) struct EqnId = u32;
    DISPLAY_FORMAT = "eqn{}";
}

define_index_type! {
    /// An argument of the compiled program.
    pub(crate) struct ArgId = u32;
    DISPLAY_FORMAT = "arg{}";
}

define_index_type! {
    /// A buffer of the caller that the compiled program writes. Several results of the program may share one output.
    pub(crate) struct OutId = u32;
    DISPLAY_FORMAT = "out{}";
}

define_index_type! {
    /// A result of the program, numbered in the order of the results.
    pub(crate) struct ResultId = u32;
    DISPLAY_FORMAT = "result{}";
}

define_index_type! {
    /// A constant of the compiled program: eight bytes each.
    pub(crate) struct ConstId = u32;
    DISPLAY_FORMAT = "const{}";
}
