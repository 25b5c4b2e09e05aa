//! A plugin for JAX: `JAX_PLATFORMS=remat` runs a program of JAX on the native engine, unchanged.
//!
//! The library has the PJRT C API, version 0.81: one device, in whose memory arrays of the host lie. JAX opens it by the package in `python/`. A
//! program arrives as StableHLO, which [`remat_stablehlo`] reads, and is compiled by [`remat_cpu`]. Functions that this plugin lacks answer
//! `UNIMPLEMENTED`; a panic is an error, too, and never crosses the border.
//!
//! Layers, each of which uses only those above it in this list:
//!
//! 1. `failure`, `sys`: errors; the structs and numbers of the header
//! 2. `event`, `layout`: events, which are always ready; elements in any order of dimensions
//! 3. `place`: the client, its device, its memory, the topology, all of which are one of a kind
//! 4. `buffer`: arrays
//! 5. `program`: compiled programs
//! 6. `table`: the functions, by their places in the table

mod buffer;
mod event;
mod failure;
mod layout;
mod place;
mod program;
mod sys;
mod table;

pub use table::GetPjrtApi;
