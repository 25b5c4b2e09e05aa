//! What runs when, where each value lies, and what is computed again.
//!
//! A compiled program is a [`Graph`]: steps, and the buffers that they read and write, with bytes, scratch memory, results in place and the
//! time of each step. A region of a program before it is compiled is a [`saved::Region`]: equations and their results, with bytes and time.
//! This crate knows nothing else of a program: it has no tensors, no kernels and no `unsafe`. Each module uses only modules before it and
//! beside it in this list, which a test checks:
//!
//! 1. `ids`, `align`, `random`: index types, alignment, random numbers that are the same everywhere
//! 2. `graph`: steps and buffers
//! 3. `liveness`, `outputs`, `donated`: live ranges of buffers in an order; which of them are outputs; the graph for callers who donate
//! 4. `schedule`: an order of the steps with a low peak
//! 5. `memory`: the offset of every value in one arena or in an output that is not yet written, and the checker of such plans
//! 6. `repeat`: schedules in which steps run again, and their judge
//! 7. `chain`: which blocks of a chain keep what their backward pass reads, and which run again
//! 8. `bound`, `search`: what to compute again within a limit, and how far from the best it can be
//! 9. `saved`: which values of a checkpointed region to keep within a budget
//! 10. `examples`: graphs of training steps and random graphs, for tests and benchmarks

mod align;
mod bound;
pub mod chain;
mod donated;
pub mod examples;
mod graph;
mod ids;
mod liveness;
mod memory;
mod outputs;
mod random;
mod repeat;
pub mod saved;
mod schedule;
mod search;

pub use align::{ALIGNMENT, aligned};
pub use bound::{bound, bound_within_outputs};
pub use graph::{BufferKind, BufferNode, Graph, StepNode};
pub use ids::{BufferId, EquationId, StepId, ValueId};
pub use liveness::InPlace;
pub use memory::{Live, Location, MemoryPlan, plan_memory};
pub use repeat::{Expanded, Judgement, Schedule};
pub use schedule::{peak, schedule};
pub use search::{
    Effort, Rematerialized, least_memory, pareto, pareto_front, rematerialize, rematerialize_from, replayed,
    side_by_side,
};
