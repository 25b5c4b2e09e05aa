//! Runs remat's programs on XLA.
//!
//! [`stablehlo`] writes a program as a module in [StableHLO](https://openxla.org/stablehlo), the language that XLA compiles for CPUs, GPUs
//! and TPUs, and that other compilers read too. The results of a program are those of the reference evaluator of `remat-ir`, even where
//! StableHLO leaves a case open; differences of XLA are listed below. [`Xla`] is an engine that compiles and runs modules with a
//! [`Plugin`], a library with the PJRT C API that is loaded at run time: building this crate needs neither XLA nor a C compiler.
//!
//! Results differ from those of the evaluator in these cases:
//!
//! - Sums, products of matrices and transcendental functions are rounded in another order, or by other approximations.
//! - Subnormal floats are zeros, as operands and as results, on CPUs and TPUs.
//! - A triangular matrix with a zero on its diagonal: XLA inverts blocks of the matrix, so that more of the solution is NaN than by
//!   substitution.
//!
//! Division of integers by zero is undefined in StableHLO, and no code is added around a division: XLA's own code returns what remat
//! defines, all ones, and the dividend as the remainder. Compilers other than XLA may differ.
//!
//! Layers, each using only those above it in this list (a test checks this):
//!
//! 1. [`options`](Options): what the text depends on
//! 2. `value`, `versions`, `sharding`, `writer`: values, their newest names, types, meshes and statements as text
//! 3. `products`, `ops`, `control`: products that loops wait for; operations; the last two refer to each other
//! 4. `module`: a whole program
//! 5. `pjrt`: the PJRT C API; all of the crate's `unsafe`
//! 6. `folder`, `tpu`: the folder of the user's cache; whether a TPU is in the machine
//! 7. [`plugin`](Plugin), `compile_options`: where plugins are, and what they are told
//! 8. [`chips`](Chip), [`target`](Target): chips that need not be in the machine
//! 9. [`ahead`](compile_ahead): programs compiled for them, in processes of their own
//! 10. [`cache`](ExecutableCache): executables on disk
//! 11. [`device`](Xla): the engine
//!
//! Not here: passes over programs (crate `remat-opt`), and everything that XLA does itself: fusion, layouts, schedules, memory.

mod ahead;
mod cache;
mod chips;
mod compile_options;
mod control;
mod device;
mod folder;
mod module;
mod ops;
mod options;
mod pjrt;
mod plugin;
mod products;
mod sharding;
mod target;
mod tpu;
mod value;
mod versions;
mod writer;

// Shared by the crate's unit tests and those in its folder of tests, which use its name.
#[cfg(test)]
extern crate self as remat_xla;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

pub use ahead::{
    AheadOptions, ChipMemory, Effort, PluginDescription, compile_ahead, compile_module_ahead, compile_module_here,
    describe_plugin, serve_ahead, stop_ahead,
};
pub use cache::{ExecutableCache, Usage};
pub use chips::Chip;
pub use device::{Xla, XlaDevices};
pub use module::stablehlo;
pub use options::{Attention, Options, Platform, Precision};
pub use pjrt::DeviceMemory;
pub use plugin::Plugin;
pub use target::Target;
