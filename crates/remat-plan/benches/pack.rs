//! Measures how near arenas come to the live bytes at the peak in graphs whose values are dropped and computed again, and how long memory
//! plans take. Run with `cargo bench -p remat-plan --bench pack`.

use std::time::{Duration, Instant};

use remat_plan::examples::{Conv, Gpt, Keep, Random, Shape, evict};
use remat_plan::{Graph, StepId, peak, plan_memory, schedule};

/// The budgets in percent of the peak of the graph in which everything is kept.
const BUDGETS: [usize; 7] = [100, 80, 60, 45, 30, 20, 10];

fn main() {
    println!(
        "{:10} {:>6} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}",
        "", "plans", "max", "mean", "> 1.01", "= 1", "ms, mean", "ms, max"
    );
    for shape in [Shape::Residual, Shape::Skips] {
        measure(&format!("{shape:?}"), &convs(shape));
    }
    let gpts = [2, 6, 12].map(|layers| [false, true].map(|update| Gpt { layers, keep: Keep::All, update }.graph()));
    measure("GPT", gpts.as_flattened());
    let mut random = Random(5);
    let graphs: Vec<Graph> = [100, 300, 1000].into_iter().flat_map(|s| [s; 4]).map(|s| random.graph(s)).collect();
    measure("random", &graphs);
}

fn convs(shape: Shape) -> Vec<Graph> {
    let mut graphs = Vec::new();
    for (stages, blocks) in [(3, 2), (4, 1), (4, 3), (5, 2)] {
        for (batch, side, channels) in [(8, 56, 64), (2, 100, 24), (1, 572, 16)] {
            for update in [false, true] {
                graphs.push(Conv { shape, stages, blocks, batch, side, channels, update }.graph());
            }
        }
    }
    graphs
}

/// Plans each graph within each budget, in the program's order and in that of the schedule.
fn measure(name: &str, graphs: &[Graph]) {
    let mut ratios = Vec::new();
    let mut times = Vec::new();
    for graph in graphs {
        let kept = peak(graph, &program_order(graph));
        for percent in BUDGETS {
            let tight = evict(graph, kept / 100 * percent, 4 * graph.steps.len(), &mut Random(percent as u64));
            for order in [program_order(&tight), schedule(&tight)] {
                let (time, ratio) = plan(&tight, &order);
                ratios.push(ratio);
                times.push(time.as_secs_f64() * 1e3);
            }
        }
    }
    let count = ratios.len() as f64;
    let share = |is: fn(f64) -> bool| ratios.iter().filter(|&&ratio| is(ratio)).count() as f64 / count;
    println!(
        "{name:10} {:>6} {:>8.4} {:>8.5} {:>8.4} {:>8.4} {:>9.3} {:>9.2}",
        ratios.len(),
        ratios.iter().copied().fold(0.0, f64::max),
        ratios.iter().sum::<f64>() / count,
        share(|ratio| ratio > 1.01),
        share(|ratio| ratio == 1.0),
        times.iter().sum::<f64>() / count,
        times.iter().copied().fold(0.0, f64::max),
    );
}

fn program_order(graph: &Graph) -> Vec<StepId> {
    graph.steps.indices().collect()
}

/// The least time of three plans, and the ratio of the arena to the peak.
fn plan(graph: &Graph, order: &[StepId]) -> (Duration, f64) {
    let run = || {
        let start = Instant::now();
        let plan = plan_memory(graph, order).unwrap_or_else(|e| panic!("{e}"));
        (start.elapsed(), plan.arena as f64 / plan.peak as f64)
    };
    [run(), run(), run()].into_iter().min_by_key(|(time, _)| *time).unwrap_or_default()
}
