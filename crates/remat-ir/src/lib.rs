//! The programs of `remat`.
//!
//! Layers, each of which uses only those above it in this list (a test checks this):
//!
//! 1. `intern`, [`dtype`](DType), [`aval`](Aval), [`occurrence`](Occurrence), [`loc`](Loc), [`error`](Error), [`literal`](Literal), [`array`](Array), `memory`, `moves`, `plan`, `display`, `print`, `profile`, `ranges`, [`mesh`](Mesh), [`special`]: values
//! 2. [`policy`](Policy), [`ops`](Op), [`jaxpr`](Jaxpr): programs; the three refer to each other
//! 3. `text`, `check`, `eval`, [`pass`](Pass), [`device`](Device), [`value`](Value), [`strength`](Budgeted): the uses of any program
//!
//! Not here: tracing, derivatives and all other transformations (crate `remat`), and anything fast.

mod array;
mod aval;
mod check;
mod device;
mod display;
mod dtype;
mod error;
mod eval;
mod intern;
mod jaxpr;
mod literal;
mod loc;
mod memory;
mod mesh;
mod moves;
mod occurrence;
mod ops;
mod pass;
mod plan;
mod policy;
mod print;
mod profile;
mod ranges;
pub mod special;
mod strength;
mod text;
mod value;

pub use array::{Array, Data, Element};
pub use aval::{Aval, MemorySpace, Shape};
pub use check::{Fault, FaultKind, Faults, check, check_bodies};
pub use device::{CompileOptions, Device, Executable, expect_arguments};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result, counted, did_you_mean};
pub use eval::{Reference, cut_shard, eval, eval_op, join_shards, threefry_block};
pub use half::{bf16, f16};
pub use jaxpr::{Atom, Atoms, Builder, ClosedJaxpr, Eqn, Jaxpr, Var, VarMap, Vars};
pub use literal::Literal;
pub use loc::{ImportedSite, Loc, Role, Scope, Site};
pub use memory::{LiveKind, LiveValue, MemoryReport, MemoryStats, PeakOperation, parse_bytes, readable_bytes};
pub use mesh::{Cut, Mesh, PartitionSpec, Sharding, unknown_axis};
pub use moves::{Move, Moves};
pub use occurrence::Occurrence;
pub use ops::*;
pub use pass::Pass;
pub use plan::{RecomputedValue, Rematerialization, StepSchedule};
pub use policy::{Candidate, CustomPolicy, Decision, Policy};
pub use print::captured;
pub use profile::{Profile, ProfiledGroup, ProfiledStep};
pub use ranges::{LiveRange, LiveRanges, Place, RangeStep};
pub use strength::Budgeted;
pub use text::{Part, PrintOptions};
pub use value::{DeviceArray, DeviceBuffer, Value};
