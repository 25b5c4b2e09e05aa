//! A plugin for JAX: `JAX_PLATFORMS=remat` runs a program of JAX on the native engine, unchanged.
//!
//! The library has the PJRT C API, version 0.81: one device, in whose memory arrays of the host lie. JAX opens it by the package in `python/`. A
//! program arrives as StableHLO, which [`remat_stablehlo`] reads, and is compiled by [`remat_cpu`]. Functions that this plugin lacks answer
//! `UNIMPLEMENTED`; a panic is an error, too, and never crosses the border.
//!
//! Layers, each of which uses only those above it in this list:
//!
//! 1. `failure`: errors
//! 2. `sys`, `event`, `layout`, `place`, `buffer`, `program`: the structs and numbers of the header, and what they point to: events, which are
//!    always ready; elements in any order of dimensions; the client, its device, its memory and the topology, of which there is one each;
//!    arrays; compiled programs. The structs and the objects refer to each other
//! 3. `table`, `versions`: the functions, by their places in the table; what this library is, for who opens it without JAX

mod buffer;
mod event;
mod failure;
mod layout;
mod place;
mod program;
mod sys;
mod table;
mod versions;

pub use table::GetPjrtApi;
pub use versions::remat_versions;
