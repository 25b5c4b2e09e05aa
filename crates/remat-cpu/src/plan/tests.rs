//! A plan is right if nothing that is still read is ever overwritten: random graphs are run in simulated memory.

use super::{Place, Plan, plan};
use crate::schedule::random::Random;
use crate::schedule::{BufferKind, Graph, aligned, schedule};

/// What a cell of 64 bytes holds.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Cell {
    Empty,
    Buffer(usize),
    Scratch,
}

/// The arena, and the memory of each buffer that has its own.
struct Memory<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    arena: Vec<Cell>,
    own: Vec<Vec<Cell>>,
}

impl Memory<'_> {
    fn cells(&mut self, buffer: usize) -> &mut [Cell] {
        let len = self.graph.bytes(buffer) / 64;
        match self.plan.places[buffer] {
            Place::Arena(offset) => {
                assert_eq!(offset % 64, 0);
                &mut self.arena[offset / 64..][..len]
            }
            Place::Buffer(home) => &mut self.own[home][..len],
        }
    }

    fn holds(&mut self, buffer: usize) -> bool {
        self.cells(buffer).iter().all(|&cell| cell == Cell::Buffer(buffer))
    }
}

/// Runs the steps and checks that each finds what it reads, and that nothing that it writes overlaps anything else.
fn check(graph: &Graph, order: &[usize]) {
    let plan = plan(graph, order);
    assert!(plan.arena >= plan.peak);
    let listed: usize = plan.live.iter().map(|l| aligned(l.bytes())).sum();
    assert_eq!(listed, plan.peak);
    let own = (0..graph.buffers.len()).map(|b| vec![Cell::Empty; graph.bytes(b) / 64]).collect();
    let mut memory = Memory { graph, plan: &plan, arena: vec![Cell::Empty; plan.arena / 64], own };
    for (number, buffer) in graph.buffers.iter().enumerate() {
        if matches!(buffer.kind, BufferKind::Argument | BufferKind::Constant) {
            memory.cells(number).fill(Cell::Buffer(number));
        }
    }
    for &number in order {
        let step = &graph.steps[number];
        assert!(step.reads.iter().all(|&b| memory.holds(b)), "step {number} reads what was overwritten");
        let scratch = plan.scratch[number] / 64..(plan.scratch[number] + aligned(step.scratch)) / 64;
        memory.arena[scratch.clone()].fill(Cell::Scratch);
        step.writes.iter().for_each(|&b| memory.cells(b).fill(Cell::Buffer(b)));
        assert!(memory.arena[scratch].iter().all(|&cell| cell == Cell::Scratch));
        assert!(step.writes.iter().all(|&b| memory.holds(b)));
        for &read in &step.reads {
            let taken = plan.in_place.iter().find(|t| t.step == number && t.input == read);
            match taken {
                Some(taken) => assert_eq!(plan.places[read], plan.places[taken.output]),
                None => assert!(memory.holds(read), "step {number} overwrites what it reads"),
            }
        }
    }
    for (number, buffer) in graph.buffers.iter().enumerate() {
        if buffer.kind == BufferKind::Output {
            assert!(memory.holds(number), "an output was overwritten");
        }
    }
}

#[test]
fn nothing_that_is_read_is_overwritten() {
    let mut random = Random(1);
    for steps in 0..40 {
        for _ in 0..20 {
            let graph = random.graph(steps);
            check(&graph, &(0..steps).collect::<Vec<_>>());
            check(&graph, &schedule(&graph));
        }
    }
}
