//! Measures how long the tables of chains take. Run with `cargo bench -p remat-plan --bench chain`.

use std::time::Instant;

use remat_plan::chain::{Block, Chain, Pass, Table, Tape};
use remat_plan::examples::Random;

fn main() {
    println!("{:44} {:>9} {:>9} {:>7} {:>9} {:>9}", "", "table", "plan", "points", "x0.5", "minimum");
    measure("100 random blocks, 500 slots", &random(100, 1), 500);
    measure("100 random blocks with 4 options, 500 slots", &random(100, 4), 500);
    measure("200 random blocks, 500 slots", &random(200, 1), 500);
    measure("100 random blocks, 2,000 slots", &random(100, 1), 2000);
    for slots in [100, 500, 2000] {
        measure(&format!("1,000 equal layers, {slots} slots"), &layers(1000, 0), slots);
    }
    measure("24 layers between others, 2,000 slots", &layers(24, 1), 2000);
    measure("1,000 layers between others, 500 slots", &layers(1000, 1), 500);
}

/// Prints the least time of three tables and that of a plan, the number of points of the curve, the time of the plan with half of the most
/// memory as a ratio to the least, and the least memory as a ratio to the most.
fn measure(name: &str, chain: &Chain, slots: usize) {
    let build = || Table::new(chain, slots).unwrap_or_else(|e| panic!("{e}"));
    let table = build();
    let time = (0..3).map(|_| elapsed(build)).fold(f64::INFINITY, f64::min);
    let curve: Vec<_> = table.pareto().collect();
    let fastest = curve[curve.len() - 1];
    let half = table.plan(fastest.peak / 2);
    let plan = (0..3).map(|_| elapsed(|| table.plan(fastest.peak / 2))).fold(f64::INFINITY, f64::min);
    println!(
        "{name:44} {:>6.1} ms {:>6.2} ms {:>7} {:>9.4} {:>9.4}",
        time * 1e3,
        plan * 1e3,
        curve.len(),
        half.map_or(f64::NAN, |p| p.cost.time as f64 / fastest.time as f64),
        table.minimum() as f64 / fastest.peak as f64,
    );
}

fn elapsed<T>(f: impl Fn() -> T) -> f64 {
    let start = Instant::now();
    std::hint::black_box(f());
    start.elapsed().as_secs_f64()
}

/// Blocks of different sizes and times, with inputs of a tenth of what is kept.
fn random(blocks: usize, options: usize) -> Chain {
    let mut random = Random(1);
    let mut number = |least: usize, most: usize| (least + random.below(most - least)) as u64;
    let mut block = || {
        let (input, kept, time) =
            (number(2 << 20, 8 << 20), number(20 << 20, 100 << 20), number(500_000_000, 2_000_000_000));
        // Each further option keeps less and takes longer.
        let option = |n: u64| Tape {
            kept: kept / (n + 1),
            forward: Pass { time, transient: input },
            backward: Pass { time: 2 * time + n * time / 8, transient: 2 * input },
        };
        let options = (0..options as u64).map(option).collect();
        Block { input, cotangent: input, gradients: 0, forward: Pass { time, transient: input }, options }
    };
    let blocks = (0..blocks).map(|_| block()).collect();
    Chain::new(blocks, 4, 4).unwrap_or_else(|e| panic!("{e}"))
}

/// Equal layers of a transformer, with this number of other blocks before and after them.
fn layers(layers: usize, others: usize) -> Chain {
    let block = |input: u64, kept: u64, time: u64| {
        let forward = Pass { time, transient: kept / 4 };
        let backward = Pass { time: 2 * time, transient: kept / 4 };
        Block { input, cotangent: input, gradients: 0, forward, options: vec![Tape { kept, forward, backward }] }
    };
    let mut blocks = vec![block(1 << 12, 1 << 22, 100_000_000); others];
    blocks.extend(vec![block(4 << 20, 40 << 20, 1_000_000_000); layers]);
    blocks.extend(vec![block(4 << 20, 64 << 20, 2_000_000_000); others]);
    Chain::new(blocks, 4 << 20, 4 << 20).unwrap_or_else(|e| panic!("{e}"))
}
