//! A plan is right if nothing that is still read is ever overwritten: random graphs are run in simulated memory.

use super::{Live, Place, Plan, plan};
use crate::schedule::models::Net;
use crate::schedule::random::Random;
use crate::schedule::{BufferKind, Graph, InPlace, aligned, schedule};

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
    /// The argument that each output lies in, if the caller gives it up.
    donor: Vec<Option<usize>>,
}

impl Memory<'_> {
    fn cells(&mut self, buffer: usize) -> &mut [Cell] {
        let len = self.graph.bytes(buffer) / 64;
        match self.plan.places[buffer] {
            Place::Arena(offset) => {
                assert_eq!(offset % 64, 0);
                &mut self.arena[offset / 64..][..len]
            }
            Place::Buffer(home) => &mut self.own[self.donor[home].unwrap_or(home)][..len],
        }
    }

    fn holds(&mut self, buffer: usize) -> bool {
        self.cells(buffer).iter().all(|&cell| cell == Cell::Buffer(buffer))
    }
}

/// Runs the steps and checks that each finds what it reads, and that nothing that it writes overlaps anything else.
fn check(graph: &Graph, order: &[usize], gives_up: bool) {
    let plan = plan(graph, order);
    assert!(plan.arena >= plan.peak);
    let listed: usize = plan.live.iter().map(|l| aligned(l.bytes())).sum();
    assert_eq!(listed, plan.peak);
    let own = (0..graph.buffers.len()).map(|b| vec![Cell::Empty; graph.bytes(b) / 64]).collect();
    let mut donor = vec![None; graph.buffers.len()];
    for donation in plan.donations.iter().filter(|_| gives_up) {
        let Place::Buffer(output) = plan.places[donation.output] else { panic!("a donation to the arena") };
        assert_eq!(graph.buffers[output].kind, BufferKind::Output);
        assert_eq!(donor[output].replace(donation.input), None);
    }
    let mut memory = Memory { graph, plan: &plan, arena: vec![Cell::Empty; plan.arena / 64], own, donor };
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
            let donations = plan.donations.iter().filter(|_| gives_up);
            let taken = plan.in_place.iter().chain(donations).find(|t| t.step == number && t.input == read);
            match taken {
                Some(taken) => assert_eq!(memory.cells(read).as_ptr(), memory.cells(taken.output).as_ptr()),
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
            for gives_up in [false, true] {
                check(&graph, &(0..steps).collect::<Vec<_>>(), gives_up);
                check(&graph, &schedule(&graph), gives_up);
            }
        }
    }
}

#[test]
fn arenas_are_as_large_as_what_is_live_at_the_peak_or_little_larger() {
    let mut random = Random(4);
    let (mut arenas, mut peaks) = (0, 0);
    for _ in 0..20 {
        let graph = random.graph(300);
        let plan = plan(&graph, &schedule(&graph));
        assert!(plan.arena <= plan.peak + plan.peak / 8, "{} for {}", plan.arena, plan.peak);
        arenas += plan.arena;
        peaks += plan.peak;
    }
    assert!(arenas <= peaks + peaks / 30, "{arenas} bytes for {peaks}");
}

#[test]
fn what_is_live_at_the_peak_is_listed_by_size() {
    let mut net = Net::default();
    let x = net.buffer(100, BufferKind::Argument);
    let a = net.product(&[x], 1000);
    let b = net.product(&[x], 2000);
    let c = net.product(&[a, b], 500);
    net.graph.steps[2].scratch = 700;
    net.step(&[c], 500, BufferKind::Output, false);
    let plan = plan(&net.graph, &[0, 1, 2, 3]);
    let expected = [
        Live::Buffer { buffer: b, bytes: 2000 },
        Live::Buffer { buffer: a, bytes: 1000 },
        Live::Scratch { step: 2, bytes: 700 },
        Live::Buffer { buffer: c, bytes: 500 },
    ];
    assert_eq!(plan.live, expected);
    assert_eq!((plan.peak, plan.arena), (1024 + 2048 + 704 + 512, 1024 + 2048 + 704 + 512));
}

#[test]
fn a_temporary_lies_in_the_output_that_it_becomes() {
    let mut net = Net::default();
    let x = net.buffer(256, BufferKind::Argument);
    let a = net.product(&[x], 256);
    let b = net.map(&[a]);
    let out = net.step(&[b], 256, BufferKind::Output, true);
    let plan = plan(&net.graph, &[0, 1, 2]);
    assert_eq!(plan.places, [Place::Buffer(x), Place::Buffer(out), Place::Buffer(out), Place::Buffer(out)]);
    assert_eq!((plan.arena, plan.in_place.len()), (0, 2));
}

#[test]
fn an_argument_that_is_read_last_may_be_given_up() {
    let mut net = Net::default();
    let [weight, other] = [0; 2].map(|_| net.buffer(256, BufferKind::Argument));
    let gradient = net.product(&[weight, other], 256);
    let out = net.step(&[weight, gradient], 256, BufferKind::Output, true);
    let first = plan(&net.graph, &[0, 1]);
    assert_eq!(first.donations, [InPlace { step: 1, input: weight, output: out }]);
    assert_eq!((first.arena, first.in_place.len()), (256, 0));
    // The other way round the temporary is preferred, and lies in the output's memory.
    net.graph.steps[1].in_place.reverse();
    let second = plan(&net.graph, &[0, 1]);
    assert_eq!((second.arena, second.donations.len()), (0, 0));
}

#[test]
fn sizes_that_no_machine_has_do_not_overflow() {
    let mut net = Net::default();
    let x = net.buffer(usize::MAX, BufferKind::Argument);
    let values: Vec<usize> = (0..100).map(|_| net.product(&[x], usize::MAX)).collect();
    net.step(&values, usize::MAX, BufferKind::Output, true);
    let plan = plan(&net.graph, &schedule(&net.graph));
    assert!(plan.arena >= 99 << 46);
}
