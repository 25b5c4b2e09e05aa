//! Measures how long a plan takes in large graphs, and how good it is. Run with `cargo bench -p remat-plan --bench search`, which takes some
//! minutes, or with the names of some rows: `cargo bench -p remat-plan --bench search -- "2,500"`.

use std::time::Instant;

use remat_plan::examples::{Conv, Gpt, Keep, Random, Shape, chain, priced};
use remat_plan::{Effort, Graph, peak, rematerialize, schedule};

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!(
        "{:28} {:>9} {:>8} {:>6} {:>10} {:>9} {:>9}",
        "", "steps", "schedule", "budget", "plan", "overhead", "at least"
    );
    let measure = |name: &str, percent: &[usize], effort: Effort, graph: &dyn Fn() -> Graph| {
        if only.is_empty() || only.iter().any(|part| name.contains(part.as_str())) {
            measure(name, percent, effort, &priced(graph()));
        }
    };
    let gpt = |layers| Gpt { layers, keep: Keep::All, update: false }.graph();
    let residual = |blocks| {
        let (shape, batch, side, channels) = (Shape::Residual, 8, 56, 64);
        Conv { shape, stages: 4, blocks, batch, side, channels, update: false }.graph()
    };
    measure("GPT, 2,500 steps", &[70, 50, 30], Effort::GOOD, &|| gpt(45));
    measure("GPT, 20,000 steps", &[70, 50, 30], Effort::GOOD, &|| gpt(363));
    measure("ResNet, 2,500 steps", &[70, 50, 30], Effort::GOOD, &|| residual(22));
    measure("ResNet, 20,000 steps", &[70, 50, 30], Effort::GOOD, &|| residual(180));
    measure("random, 2,500 steps", &[90, 70], Effort::GOOD, &|| Random(7).graph(2_500));
    measure("random, 20,000 steps", &[90, 70], Effort::GOOD, &|| Random(7).graph(20_000));
    // First plans: a move takes milliseconds.
    measure("chain, 1,000,000 steps", &[50], Effort::of(1000), &|| chain(499_999, None, 4096));
}

/// Prints the time of the order, and for each budget in percent of the peak the time of the plan, its overhead and the lower bound of that.
fn measure(name: &str, percent: &[usize], effort: Effort, graph: &Graph) {
    let (seconds, order) = timed(|| schedule(graph));
    let peak = peak(graph, &order);
    for percent in percent {
        let (planning, plan) = timed(|| rematerialize(graph, &order, peak / 100 * percent, effort));
        let found = match plan {
            Ok(plan) => {
                let bound = plan.bound as f64 / plan.once as f64 - 1.0;
                format!("{:>7.2} % {:>7.2} %", 100.0 * plan.overhead(), 100.0 * bound)
            }
            Err(error) => error.message().to_string(),
        };
        println!("{name:28} {:>9} {seconds:>6.2} s {percent:>4} % {planning:>8.2} s {found}", graph.steps.len());
    }
}

fn timed<T>(f: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = f();
    (start.elapsed().as_secs_f64(), result)
}
