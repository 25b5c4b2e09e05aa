//! Programs of JAX as programs of `remat`.
//!
//! JAX exports a program as StableHLO, versioned as VHLO, in MLIR bytecode. [`Module::read`] reads such a file.
//!
//! Layers, each of which uses only those above it in this list:
//!
//! 1. `bytecode`: files as operations with attributes

mod bytecode;

pub use bytecode::{Attr, AttrId, Block, Enumeration, MAGIC, Module, NameId, Operation, Region, Type, TypeId, ValueId};
