//! Schedules can run, are no worse than the program's order, and are near the best where that is known.

use super::{peak, schedule};
use crate::examples::{Gpt, Keep, Net, Random, chain};
use crate::graph::{BufferKind, Graph};
use crate::ids::{BufferId, StepId};
use crate::memory::plan_memory;
use oxc_index::{IndexVec, index_vec};

/// Whether each step comes once, and after those whose results it reads.
fn is_valid(graph: &Graph, order: &[StepId]) -> bool {
    let mut is_written: IndexVec<BufferId, bool> = index_vec![true; graph.buffers.len()];
    graph.steps.iter().flat_map(|s| &s.writes).for_each(|&b| is_written[b] = false);
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    sorted.iter().copied().eq(graph.steps.indices())
        && order.iter().all(|&step| {
            let reads = graph.steps[step].reads.iter().all(|&b| is_written[b]);
            graph.steps[step].writes.iter().for_each(|&b| is_written[b] = true);
            reads
        })
}

/// The lowest peak of all orders.
fn lowest(graph: &Graph, order: &mut Vec<StepId>) -> usize {
    if order.len() == graph.steps.len() {
        return peak(graph, order);
    }
    let mut best = usize::MAX;
    for step in graph.steps.indices() {
        let writer = |b| graph.steps.indices().find(|&s| graph.steps[s].writes.contains(&b));
        let is_ready = |&b: &BufferId| writer(b).is_none_or(|w| order.contains(&w));
        if !order.contains(&step) && graph.steps[step].reads.iter().all(is_ready) {
            order.push(step);
            best = best.min(lowest(graph, order));
            order.pop();
        }
    }
    best
}

#[test]
fn orders_are_valid_and_never_worse_than_the_programs() {
    let mut random = Random(2);
    for steps in 0..60 {
        for _ in 0..10 {
            let graph = random.graph(steps);
            let order = schedule(&graph);
            assert!(is_valid(&graph, &order));
            assert!(peak(&graph, &order) <= peak(&graph, &program_order(&graph)));
            assert_eq!(order, schedule(&graph));
        }
    }
}

#[test]
fn small_programs_get_nearly_the_best_order() {
    let mut random = Random(3);
    let (mut found, mut best, mut count) = (0, 0, 0);
    for i in 0..300 {
        let graph = random.graph(2 + i % 6);
        let lowest = lowest(&graph, &mut Vec::new());
        let peak = peak(&graph, &schedule(&graph));
        assert!(peak <= 2 * lowest);
        found += peak;
        best += lowest;
        count += usize::from(peak == lowest);
    }
    assert!(count >= 290, "the best order of {count} of 300 programs");
    assert!(found <= best + best / 100, "{found} bytes, and {best} at best");
}

/// The peak in the program's order, that of the schedule, and the arena, in units of `bytes`.
fn peaks(graph: &Graph, bytes: usize) -> [usize; 3] {
    let plan = plan_memory(graph, &schedule(graph)).unwrap_or_else(|e| panic!("{e}"));
    [peak(graph, &program_order(graph)), plan.peak, plan.arena].map(|peak| peak.div_ceil(bytes))
}

fn program_order(graph: &Graph) -> Vec<StepId> {
    graph.steps.indices().collect()
}

#[test]
fn a_chain_and_its_backward_pass_are_left_as_they_are() {
    // The cotangent lies in the memory of the output.
    let graph = chain(50, None, 1024);
    assert_eq!(peaks(&graph, 1024), [49, 49, 49]);
    assert_eq!(schedule(&graph), program_order(&graph));
}

#[test]
fn segments_are_computed_again_one_at_a_time() {
    // In the program's order all 99 values are live when the backward pass begins. Only the ends of 9 segments and the values of the
    // current segment are needed.
    assert_eq!(peaks(&chain(100, Some(10), 1024), 1024), [99, 18, 18]);
}

#[test]
fn gradients_of_weights_come_when_their_operands_die() {
    const LAYERS: usize = 20;
    let mut net = Net::default();
    let weights: Vec<BufferId> = (0..LAYERS).map(|_| net.buffer(1 << 10, BufferKind::Argument)).collect();
    let mut x = vec![net.buffer(1 << 10, BufferKind::Argument)];
    for (i, &w) in weights.iter().enumerate() {
        x.push(net.product(&[x[i], w], 1 << 10));
    }
    let mut dy = vec![net.product(&[x[LAYERS]], 1 << 10)];
    for (i, &w) in weights.iter().enumerate().skip(1).rev() {
        dy.insert(0, net.product(&[dy[0], w], 1 << 10));
        assert_eq!(dy.len(), LAYERS + 1 - i);
    }
    // All gradients at the end, so that all cotangents and all values are live at one time.
    for i in 0..LAYERS {
        net.step(&[x[i], dy[i]], 1 << 10, BufferKind::Output, false);
    }
    assert_eq!(peaks(&net.graph, 1 << 10), [2 * LAYERS - 1, LAYERS + 1, LAYERS + 1]);
}

#[test]
fn an_update_comes_when_its_gradient_is_there() {
    // The arguments may be donated, so that no gradient lies in the memory of an output.
    let graph = Gpt { layers: 4, keep: Keep::Layers, update: true }.graph();
    let without = Gpt { layers: 4, keep: Keep::Layers, update: false }.graph();
    let [given, found, arena] = peaks(&graph, 1 << 20);
    let [_, least, _] = peaks(&without, 1 << 20);
    // The gradient of the embedding, which is 16 MiB, has to wait for both its parts.
    assert!(found <= least + 16 && found < given, "{given} MiB, then {found}, without updates {least}");
    assert_eq!(arena, found);
}

#[test]
fn recomputation_of_a_whole_network_becomes_that_of_a_layer_at_a_time() {
    let peaks_of = |keep| peaks(&Gpt { layers: 24, keep, update: false }.graph(), 1 << 20);
    assert_eq!(peaks_of(Keep::All), [1802, 1798, 1798]);
    assert_eq!(peaks_of(Keep::Layers), [201, 185, 185]);
    assert_eq!(peaks_of(Keep::Products), [1766, 1030, 1030]);
}
