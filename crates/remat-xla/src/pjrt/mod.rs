//! The PJRT C API, version 0.81: a plugin, its client, executables and buffers.
//!
//! All of the crate's `unsafe` is here. A function of the API takes one struct that begins with its own size, and returns an error or null.
//! Each struct of `sys` is bound to the index of its function in the table of functions, so that a function cannot be called with another's
//! arguments. The table is checked when a plugin is opened, and the plugin checks the sizes of structs in each call: either side may be
//! newer than the other. A plugin is never unloaded, since its threads outlive its clients.
//!
//! Calls that end the process in known plugins cannot be made through this module: options of a client have the right types, options of a
//! compilation have at least one replica and partition, and arguments of a run match the executable.
#![allow(unsafe_code, reason = "a C interface; each use says why it is sound")]

mod buffer;
mod client;
mod executable;
mod given;
mod key_value;
mod library;
mod memory;
mod sys;
mod sys_optional;
mod topology;

pub(crate) use buffer::Buffer;
pub(crate) use client::Client;
pub(crate) use executable::Loaded;
pub(crate) use library::Library;
pub(crate) use memory::Bytes;
pub use memory::DeviceMemory;
pub(crate) use topology::Topology;
