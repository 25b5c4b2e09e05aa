//! What every engine has to pass: it computes what the reference evaluator computes, fails where that fails, gives the same
//! bits on any number of threads and whether or not it may overwrite an argument, and takes the memory that it promised.
//!
//! An engine is added to [`engines`]; nothing else here names one.

mod arrays;
mod closeness;
mod conform;
mod derived;
mod errors;
mod large;
mod memory;
mod programs;
mod samples;

use std::sync::{Arc, LazyLock};

use remat::ir::{Device, Reference};
use remat_alloc::Recording;
use remat_cpu::Cpu;

#[global_allocator]
static ALLOCATOR: Recording = Recording;

/// An engine under test, on several numbers of threads: the first runs on the calling thread alone.
struct Engine {
    devices: Vec<Arc<dyn Device>>,
    /// Whether it tells before a run what memory the run takes, to the byte.
    is_exact: bool,
}

/// All engines. The reference evaluator is one too, so that the tests themselves are tested.
fn engines() -> &'static [Engine] {
    static ENGINES: LazyLock<Vec<Engine>> = LazyLock::new(|| {
        let cpu = |threads| Arc::new(Cpu::with_threads(threads).expect("threads start")) as Arc<dyn Device>;
        vec![
            Engine { devices: vec![Arc::new(Reference)], is_exact: false },
            Engine { devices: (1..=3).map(cpu).collect(), is_exact: true },
        ]
    });
    &ENGINES
}
