//! The PJRT C API, version 0.81: a plugin, its client, executables and buffers.
//!
//! All of the crate's `unsafe` is here. A function of the API takes one struct that begins with its own size, and gives an error or
//! null. Each struct of `sys` is bound to the index of its function in the table of functions, so that a function cannot be called with
//! another's arguments. When a plugin is opened its table is looked at, and in a call it looks at the sizes of structs: each
//! side may be newer than the other. A plugin is never unloaded: its threads outlive its clients.
//!
//! What ends a process in known plugins is not to be reached through here: options of a client have the types that it wants, options
//! of a compilation have at least one replica and partition, and arguments of a run are those that the executable takes.
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
pub(crate) use topology::Topology;
