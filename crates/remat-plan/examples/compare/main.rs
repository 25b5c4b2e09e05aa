//! Plans beside two other ways to choose what is computed again, written here in a simple form: dynamic tensor rematerialization ([`dtr`])
//! and saved sets by a knapsack ([`knapsack`]). Each of them is run for many budgets. Of the points that it reaches, a plan gets the true peak
//! as its limit, and the overheads are compared.
//!
//! ```sh
//! cargo run --release -p remat-plan --example compare                # graphs of our own
//! cargo run --release -p remat-plan --example compare -- folder      # graphs of nodes in files, as `remat plan` reads them
//! ```
//!
//! The knapsack needs to know which node is the loss: a file says that with `loss_index`, or with `backward`, a flag for each node.

mod dtr;
mod graphs;
mod knapsack;

use remat_plan::{Effort, Expanded, Graph, Judgement, Schedule, StepId, pareto_front, peak, rematerialize};

use graphs::Case;

/// The budgets of the others, evenly from none to all of the memory.
const BUDGETS: usize = 64;

/// The most points of each graph that are compared, from those with overheads of at least a thousandth.
const POINTS: usize = 6;
const LEAST_OVERHEAD: f64 = 1e-3;

fn main() {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    let cases = if folders.is_empty() { graphs::own() } else { graphs::read(&folders) };
    println!("{:28} {:>6} {:>9} {:>8} {:>9} {:>9}", "graph", "steps", "other", "peak", "overhead", "a plan's");
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for case in &cases {
        let of_dtr = |budget| dtr::schedule(&case.graph, &case.order, budget);
        ratios[0].extend(compare(case, "dtr", of_dtr));
        if let Some(loss) = case.loss {
            let of_knapsack = |budget| knapsack::schedule(&case.graph, &case.order, loss, budget);
            ratios[1].extend(compare(case, "knapsack", of_knapsack));
        }
    }
    for (name, ratios) in ["dtr", "knapsack"].iter().zip(ratios).filter(|(_, ratios)| !ratios.is_empty()) {
        let count = ratios.len();
        println!("{count} graphs: a plan has {:.2} of the overhead of {name}, the geometric mean", mean(&ratios));
    }
}

/// The ratio of the overhead of a plan to that of another schedule of the same peak, as the geometric mean of all points that are compared.
/// `None` if there is none. `other` gives a schedule for a budget in bytes of all temporaries.
fn compare(case: &Case, name: &str, other: impl Fn(usize) -> Option<Schedule>) -> Option<f64> {
    let Case { graph, order, .. } = case;
    let once = judged(graph, &Schedule { runs: order.clone() });
    let highest = peak(graph, order);
    let schedules = (0..BUDGETS).filter_map(|i| other(highest / BUDGETS * i));
    let front = pareto_front(schedules.map(|s| judged(graph, &s)).collect(), |judged| (judged.peak, judged.time));
    let overhead = |time: u64| time as f64 / once.time as f64 - 1.0;
    let front: Vec<_> =
        front.into_iter().filter(|j| j.peak < once.peak && overhead(j.time) >= LEAST_OVERHEAD).collect();
    let mut ratios = Vec::new();
    for i in 0..POINTS.min(front.len()) {
        let point = front[i * front.len() / POINTS.min(front.len())];
        let (share, theirs) = (point.peak as f64 / once.peak as f64, 100.0 * overhead(point.time));
        print!("{:28} {:>6} {name:>9} {:>6.1} % {theirs:>7.2} %", case.name, order.len(), 100.0 * share);
        match rematerialize(graph, order, point.peak, Effort::GOOD) {
            Ok(plan) => {
                println!(" {:>7.2} %", 100.0 * plan.overhead());
                // No overhead at all would make the mean nothing.
                ratios.push(overhead(plan.judged.time).max(LEAST_OVERHEAD / 10.0) / overhead(point.time));
            }
            Err(error) => println!(" {}", error.message()),
        }
    }
    (!ratios.is_empty()).then(|| mean(&ratios))
}

/// The time and the true peak of a schedule.
fn judged(graph: &Graph, schedule: &Schedule) -> Judgement {
    Expanded::new(graph, schedule).unwrap_or_else(|e| panic!("{e}")).judge()
}

fn mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

/// The place of each step in an order.
fn places(graph: &Graph, order: &[StepId]) -> Vec<usize> {
    let mut places = vec![0; graph.steps.len()];
    order.iter().enumerate().for_each(|(place, &step)| places[step.index()] = place);
    places
}
