//! The engines that come with `remat` conform: the native engine, and the reference evaluator, so that the tests themselves are
//! tested.

use remat::Cpu;
use remat_conformance::{Engine, Recording};
use remat_ir::Reference;
use remat_testkit::sized;

#[global_allocator]
static ALLOCATOR: Recording = Recording;

fn native_engine() -> Engine {
    let cpu = |threads| Cpu::with_threads(threads).unwrap_or_else(|e| panic!("{e}"));
    let engine = Engine::new(cpu(1)).variant("2 threads", cpu(2)).exact();
    if sized(false, true) { engine.variant("3 threads", cpu(3)) } else { engine }
}

fn reference() -> Engine {
    Engine::new(Reference)
}

mod native {
    remat_conformance::tests!(super::native_engine);
}

mod evaluator {
    remat_conformance::tests!(super::reference);
}
