//! Programs of JAX as programs of `remat`.
//!
//! JAX exports a program as StableHLO, versioned as VHLO, in MLIR bytecode. [`Module::read`] reads such a file, and [`import`] makes a
//! [`Jaxpr`](remat_ir::Jaxpr) of it, with the user's lines as locations.
//!
//! Layers, each of which uses only those above it in this list:
//!
//! 1. `bytecode`: files as operations with attributes
//! 2. `order`, `tidy`: programs that order floats; programs without what nothing reads
//! 3. `patterns`: bodies and loops that stand for operations of the language
//! 4. `import`: operations of the file as those of the language
//!
//! Not here: the dialect without versions, text of MLIR, programs for several devices.

mod bytecode;
mod import;
mod order;
mod patterns;
mod tidy;

pub use bytecode::{Attr, AttrId, Block, Enumeration, MAGIC, Module, NameId, Operation, Region, Type, TypeId, ValueId};
pub use import::{Donation, ImportOptions, Imported, import};
