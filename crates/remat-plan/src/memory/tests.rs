//! Plans of random graphs pass the checker, plans of small ones are as expected, and the checker finds each kind of fault.

use super::check::check;
use super::{Live, Location, MemoryPlan, plan_memory};
use crate::align::aligned;
use crate::examples::{Conv, Gpt, Keep, Net, Random, Shape, evict};
use crate::graph::{BufferKind, Graph};
use crate::ids::{BufferId, StepId};
use crate::liveness::InPlace;
use crate::schedule::{peak, schedule};

/// The plan, which the planner has checked. Its live values add up to the peak.
fn planned(graph: &Graph, order: &[StepId]) -> MemoryPlan {
    let plan = plan_memory(graph, order).unwrap_or_else(|e| panic!("{e}"));
    assert!(plan.arena >= plan.peak);
    let listed: usize = plan.live.iter().map(|l| aligned(l.bytes())).sum();
    assert_eq!(listed, plan.peak);
    plan
}

fn program_order(graph: &Graph) -> Vec<StepId> {
    graph.steps.indices().collect()
}

#[test]
fn plans_of_random_graphs_are_right() {
    let mut random = Random(1);
    for steps in 0..40 {
        for _ in 0..20 {
            let graph = random.graph(steps);
            planned(&graph, &program_order(&graph));
            planned(&graph, &schedule(&graph));
        }
    }
}

/// The arena of a plan in the order of the schedule, and its lower bound.
fn packed(graph: &Graph) -> (usize, usize) {
    let plan = planned(graph, &schedule(graph));
    (plan.arena, plan.peak)
}

#[test]
fn arenas_of_random_graphs_are_little_larger_than_what_is_live_at_the_peak() {
    let mut random = Random(4);
    let plans: Vec<(usize, usize)> = (0..20).map(|_| packed(&random.graph(300))).collect();
    for &(arena, peak) in &plans {
        assert!(arena <= peak + peak / 16, "{arena} for {peak}");
    }
    let (arenas, peaks) = plans.iter().fold((0, 0), |sums, plan| (sums.0 + plan.0, sums.1 + plan.1));
    assert!(arenas <= peaks + peaks / 100, "{arenas} bytes for {peaks}");
}

#[test]
fn arenas_of_training_steps_that_compute_again_are_as_large_as_what_is_live_at_the_peak() {
    let mut graphs = vec![Gpt { layers: 6, keep: Keep::All, update: false }.graph()];
    for shape in [Shape::Residual, Shape::Skips] {
        for (batch, side, channels) in [(2, 100, 24), (8, 56, 64)] {
            graphs.push(Conv { shape, stages: 4, blocks: 1, batch, side, channels, update: true }.graph());
        }
    }
    for graph in &graphs {
        let kept = peak(graph, &program_order(graph));
        for percent in [100, 80, 60, 45, 30, 20] {
            for seed in 0..2 {
                let graph = evict(graph, kept / 100 * percent, 4 * graph.steps.len(), &mut Random(seed));
                let (arena, peak) = packed(&graph);
                assert!(arena <= peak + peak / 100, "{arena} for {peak}, {percent} % of {kept}, {seed}");
            }
        }
    }
}

#[test]
fn what_is_live_at_the_peak_is_listed_by_size() {
    let mut net = Net::default();
    let x = net.buffer(100, BufferKind::Argument);
    let a = net.product(&[x], 1000);
    let b = net.product(&[x], 2000);
    let c = net.product(&[a, b], 500);
    net.graph.steps[StepId::new(2)].scratch = 700;
    net.step(&[c], 500, BufferKind::Output, false);
    let plan = planned(&net.graph, &program_order(&net.graph));
    let expected = [
        Live::Buffer { buffer: b, bytes: 2000 },
        Live::Buffer { buffer: a, bytes: 1000 },
        Live::Scratch { step: StepId::new(2), bytes: 700 },
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
    let plan = planned(&net.graph, &program_order(&net.graph));
    let locations = [x, out, out, out].map(Location::Buffer);
    assert_eq!((plan.locations.as_raw_slice(), plan.arena), (&locations[..], 0));
}

#[test]
fn an_argument_that_is_read_last_may_be_donated() {
    let mut net = Net::default();
    let [weight, other] = [0; 2].map(|_| net.buffer(256, BufferKind::Argument));
    let gradient = net.product(&[weight, other], 256);
    let out = net.step(&[weight, gradient], 256, BufferKind::Output, true);
    let first = planned(&net.graph, &program_order(&net.graph));
    assert_eq!(first.donations, [InPlace { step: StepId::new(1), input: weight, output: out }]);
    assert_eq!((first.arena, first.locations[gradient]), (256, Location::Arena(0)));
    // In the other order the temporary is preferred, and lies in the memory of the output.
    net.graph.steps[StepId::new(1)].in_place.reverse();
    let second = planned(&net.graph, &program_order(&net.graph));
    assert_eq!((second.arena, second.donations.len()), (0, 0));
}

#[test]
fn gradients_are_temporaries_where_parameters_are_donated() {
    let mut net = Net::default();
    let x = net.buffer(64, BufferKind::Argument);
    let weights = [0; 3].map(|_| net.buffer(256, BufferKind::Argument));
    let mut values = vec![x];
    for weight in weights {
        values.push(net.product(&[values[values.len() - 1], weight], 64));
    }
    // A weight is updated before the last step that reads it.
    let mut outputs = Vec::new();
    for i in (0..3).rev() {
        let gradient = net.product(&[values[i], values[3]], 256);
        outputs.push(net.step(&[gradient, weights[i]], 256, BufferKind::Output, true));
    }
    let late = net.product(&weights, 64);
    net.step(&[late], 64, BufferKind::Output, true);
    assert!(net.graph.for_donated_arguments().is_none(), "an argument that is read later cannot be taken");

    let (last, rest) = net
        .graph
        .steps
        .split_off(StepId::new(3))
        .into_iter()
        .partition::<Vec<_>, _>(|step| step.reads.contains(&late) || step.writes.contains(&late));
    net.graph.steps.extend(last.into_iter().chain(rest));
    let kept = planned(&net.graph, &schedule(&net.graph));
    assert_eq!((kept.donations.len(), kept.arena), (0, 3 * 64));
    let donated = net.graph.for_donated_arguments().expect("three pairs");
    let order = schedule(&donated);
    let plan = planned(&donated, &order);
    // One gradient at a time, in memory that another value has before and after it.
    assert_eq!((plan.donations.len(), plan.arena), (3, 256 + 3 * 64));
    assert_eq!(plan.locations[outputs[0]], Location::Buffer(outputs[0]));
}

#[test]
fn sizes_that_no_machine_has_do_not_overflow() {
    let mut net = Net::default();
    let x = net.buffer(usize::MAX, BufferKind::Argument);
    let values: Vec<BufferId> = (0..100).map(|_| net.product(&[x], usize::MAX)).collect();
    net.step(&values, usize::MAX, BufferKind::Output, true);
    let plan = planned(&net.graph, &schedule(&net.graph));
    assert!(plan.arena >= 99 << 46);
}

/// An argument `x`; temporaries `a` and `b` computed from it with scratch memory; `c` computed from both in place of `a`; and an output
/// computed from `c` and another argument `y`, whose memory it may take.
struct Small {
    net: Net,
    x: BufferId,
    y: BufferId,
    a: BufferId,
    b: BufferId,
    c: BufferId,
    out: BufferId,
}

fn small() -> Small {
    let mut net = Net::default();
    let x = net.buffer(128, BufferKind::Argument);
    let y = net.buffer(256, BufferKind::Argument);
    let a = net.product(&[x], 128);
    let b = net.product(&[x], 128);
    net.graph.steps[StepId::new(1)].scratch = 64;
    let c = net.map(&[a, b]);
    let out = net.step(&[y, c], 256, BufferKind::Output, true);
    Small { net, x, y, a, b, c, out }
}

/// The checker's message after `change` has altered a plan and its order.
fn fault(change: impl FnOnce(&Small, &mut MemoryPlan, &mut Vec<StepId>)) -> String {
    let small = small();
    let graph = &small.net.graph;
    let mut order = program_order(graph);
    let mut plan = planned(graph, &order);
    change(&small, &mut plan, &mut order);
    let error = check(graph, &order, &plan).expect_err("the plan is wrong");
    assert_eq!((error.kind(), error.operation()), (remat_ir::ErrorKind::Internal, "compile"));
    error.message().strip_prefix("the memory plan is wrong: ").unwrap_or(error.message()).to_string()
}

#[test]
fn the_small_plan_is_right() {
    let Small { net, y, a, b, c, out, .. } = small();
    let plan = planned(&net.graph, &program_order(&net.graph));
    assert_eq!(plan.locations[a], plan.locations[c]);
    assert_ne!(plan.locations[a], plan.locations[b]);
    assert_eq!(plan.donations, [InPlace { step: StepId::new(3), input: y, output: out }]);
}

#[test]
fn steps_that_do_not_run_once_are_found() {
    assert_eq!(fault(|_, _, order| order.truncate(3)), "step3 never runs");
    assert_eq!(fault(|_, _, order| order.push(StepId::new(1))), "step1 runs twice");
    assert_eq!(fault(|_, _, order| order[0] = StepId::new(9)), "there is no step9");
    let message = "step2 reads b3, which was not written or was overwritten";
    assert_eq!(fault(|_, _, order| order.swap(1, 2)), message);
}

#[test]
fn locations_outside_of_their_memory_are_found() {
    let message = "b2 of 128 bytes at 32 is outside of the arena";
    assert_eq!(fault(|s, plan, _| plan.locations[s.a] = Location::Arena(32)), message);
    let message = "b2 of 128 bytes at 320 is outside of the arena";
    assert_eq!(fault(|s, plan, _| plan.locations[s.a] = Location::Arena(320)), message);
    let message = "b2 of 128 bytes at 18446744073709551552 is outside of the arena";
    assert_eq!(fault(|s, plan, _| plan.locations[s.a] = Location::Arena(usize::MAX - 63)), message);
    let message = "the 64 bytes of scratch memory of step1 at 320 are outside of the arena";
    assert_eq!(fault(|_, plan, _| plan.scratch[StepId::new(1)] = 320), message);
    let message = "b0 is not a temporary and lies at 0 of the arena";
    assert_eq!(fault(|s, plan, _| plan.locations[s.x] = Location::Arena(0)), message);
    for (target, message) in [(0, "b2 cannot lie in the memory of b0"), (5, "b2 cannot lie in the memory of b5")] {
        assert_eq!(fault(|s, plan, _| plan.locations[s.a] = Location::Buffer(BufferId::new(target))), message);
    }
    let message = "b2 cannot lie in the memory of b70";
    assert_eq!(fault(|s, plan, _| plan.locations[s.a] = Location::Buffer(BufferId::new(70))), message);
    assert_eq!(fault(|_, plan, _| plan.scratch.truncate(1)), "buffers or steps are missing in it");
}

#[test]
fn memory_that_is_overwritten_is_found() {
    // Two blocks that are live at one time.
    let message = "step2 reads b2, which was not written or was overwritten";
    assert_eq!(fault(|s, plan, _| plan.locations[s.b] = plan.locations[s.a]), message);
    // Half of one.
    let half = |s: &Small, plan: &mut MemoryPlan, _: &mut Vec<StepId>| {
        plan.arena += 256;
        let Location::Arena(offset) = plan.locations[s.a] else { panic!("a temporary") };
        plan.locations[s.b] = Location::Arena(offset + 64);
    };
    assert_eq!(fault(half), message);
    let scratch_over = |of: fn(&Small) -> BufferId| {
        fault(|s, plan, _| {
            let Location::Arena(offset) = plan.locations[of(s)] else { panic!("a temporary") };
            plan.scratch[StepId::new(1)] = offset;
        })
    };
    assert_eq!(scratch_over(|s| s.a), message);
    assert_eq!(scratch_over(|s| s.b), "a result of step1 overlaps its scratch memory");
    // A result may take the memory of `a` or `b` here, but not half of it.
    let shifted = |s: &Small, plan: &mut MemoryPlan, _: &mut Vec<StepId>| {
        plan.arena += 256;
        let Location::Arena(offset) = plan.locations[s.a] else { panic!("a temporary") };
        plan.locations[s.c] = Location::Arena(offset + 64);
    };
    assert!(fault(shifted).starts_with("step2 overwrites its operand b"));
}

#[test]
fn donations_that_are_not_allowed_are_found() {
    let give = |input: fn(&Small) -> BufferId, output: fn(&Small) -> BufferId| {
        fault(|s, plan, _| {
            plan.donations.push(InPlace { step: StepId::new(3), input: input(s), output: output(s) });
        })
    };
    assert_eq!(give(|s| s.x, |s| s.c), "b0 is donated to the arena");
    assert_eq!(give(|s| s.x, |s| s.out), "b0 cannot be donated to b5");
    assert_eq!(give(|s| s.c, |s| s.out), "b4 cannot be donated to b5");
    assert_eq!(give(|s| s.y, |s| s.out), "b1 is donated to b5, and one of them twice");
    // An argument that its step cannot compute in place.
    let mut small = small();
    let order = program_order(&small.net.graph);
    let plan = planned(&small.net.graph, &order);
    small.net.graph.steps[StepId::new(3)].in_place.clear();
    let error = check(&small.net.graph, &order, &plan).expect_err("it is not in place");
    assert_eq!(error.message(), "the memory plan is wrong: step3 overwrites its operand b1");
}

#[test]
fn buffers_without_one_writer_are_found() {
    let broken = |change: fn(&mut Graph)| {
        let mut small = small();
        let order = program_order(&small.net.graph);
        let plan = planned(&small.net.graph, &order);
        change(&mut small.net.graph);
        let error = check(&small.net.graph, &order, &plan).expect_err("it is wrong");
        error.message().to_string()
    };
    let [first, second, last] = [0, 1, 3].map(StepId::new);
    assert_eq!(last, StepId::new(3));
    let twice = broken(|graph| graph.steps[StepId::new(1)].writes.push(BufferId::new(2)));
    assert_eq!(twice, format!("the memory plan is wrong: {second} writes b2, which is written already"));
    let argument = broken(|graph| graph.steps[StepId::new(0)].writes.push(BufferId::new(0)));
    assert_eq!(argument, format!("the memory plan is wrong: {first} writes b0, which is written already"));
    let output = broken(|graph| graph.steps[StepId::new(3)].writes.clear());
    assert_eq!(output, "the memory plan is wrong: the output b5 is not there in the end");
}
