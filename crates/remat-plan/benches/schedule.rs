//! Measures how long the schedule and the memory plan take, and how low they come. Run with `cargo bench -p remat-plan --bench schedule`.

use std::time::{Duration, Instant};

use remat_plan::examples::{Gpt, Keep, Random, chain};
use remat_plan::{Graph, StepId, peak, plan_memory, schedule};

fn main() {
    println!(
        "{:40} {:>7} {:>10} {:>10} {:>10} {:>10} {:>7}",
        "", "steps", "schedule", "plan", "given", "peak", "arena"
    );
    for keep in [Keep::All, Keep::Layers, Keep::Products] {
        for update in [false, true] {
            let name = format!("GPT, 24 layers, {keep:?}{}", if update { ", update" } else { "" });
            measure(&name, &Gpt { layers: 24, keep, update }.graph());
        }
    }
    measure("GPT, 1000 layers, Products, update", &Gpt { layers: 1000, keep: Keep::Products, update: true }.graph());
    measure("chain of 50,000 and back", &chain(50_000, None, 4096));
    measure("chain of 50,000 and back, segments of 200", &chain(50_000, Some(200), 4096));
    for steps in [300, 3_000, 100_000] {
        measure("random", &Random(7).graph(steps));
    }
}

/// Prints the least time of several runs, the peak in the program's order and in that of the schedule in KiB, and the size
/// of the arena as a ratio to the latter.
fn measure(name: &str, graph: &Graph) {
    let given: Vec<StepId> = graph.steps.indices().collect();
    let (scheduling, order) = least(|| schedule(graph));
    let (planning, plan) = least(|| plan_memory(graph, &order).unwrap_or_else(|e| panic!("{e}")));
    println!(
        "{name:40} {:>7} {:>7.2} ms {:>7.2} ms {:>10} {:>10} {:>7.4}",
        graph.steps.len(),
        scheduling.as_secs_f64() * 1e3,
        planning.as_secs_f64() * 1e3,
        peak(graph, &given) / 1024,
        plan.peak / 1024,
        plan.arena as f64 / plan.peak as f64,
    );
}

fn least<T>(f: impl Fn() -> T) -> (Duration, T) {
    let run = || {
        let start = Instant::now();
        let result = f();
        (start.elapsed(), result)
    };
    (0..5).map(|_| run()).min_by_key(|(time, _)| *time).expect("five runs")
}
