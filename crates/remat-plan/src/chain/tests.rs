//! Plans are optimal, keep their budgets, and cost what they say.

use remat_ir::ErrorKind;

use super::program::Program;
use super::{Block, Chain, Cost, Operation, Pass, Table, Tape};
use crate::examples::Random;

/// All schedules that the table chooses from, for the blocks from `first` to `last`: the definition, without memory.
fn schedules(chain: &Chain, first: usize, last: usize) -> Vec<Vec<Operation>> {
    let mut all = Vec::new();
    let inner = if first < last { schedules(chain, first + 1, last) } else { vec![Vec::new()] };
    for option in 0..chain.blocks[first].options.len() {
        let keep = Operation::Keep { block: first, option };
        let around = |inner: &Vec<_>| [&[keep], &inner[..], &[Operation::Backward { block: first }]].concat();
        all.extend(inner.iter().map(around));
    }
    for at in first + 1..=last {
        let mut sweep = vec![Operation::Checkpoint { block: first }];
        sweep.extend((first + 1..at).map(|block| Operation::Forward { block }));
        let again = schedules(chain, first, at - 1);
        for second in schedules(chain, at, last) {
            all.extend(again.iter().map(|again| [&sweep[..], &second, again].concat()));
        }
    }
    all
}

/// The costs that no other schedule beats, the lowest peak first.
fn frontier(mut costs: Vec<Cost>) -> Vec<Cost> {
    costs.sort_by_key(|c| (c.peak, c.time));
    let mut best: Vec<Cost> = Vec::new();
    for cost in costs {
        if best.last().is_none_or(|b| cost.time < b.time) {
            best.push(cost);
        }
    }
    best
}

/// A chain of small numbers of every kind. Of some, blocks are often equal.
fn random_chain(random: &mut Random, blocks: usize, options: usize) -> Chain {
    let mut number = |end: usize| random.below(end) as u64;
    let pass = |number: &mut dyn FnMut(usize) -> u64| Pass { time: number(9), transient: number(4) };
    let kinds = 1 + number(blocks);
    let gradients = number(3) as usize;
    let mut kind = || {
        let mut tape = || Tape { kept: number(8), forward: pass(&mut number), backward: pass(&mut number) };
        let options = (0..options).map(|_| tape()).collect();
        let (input, cotangent) = (number(5), number(4));
        Block { input, cotangent, gradients: number(1 + gradients), forward: pass(&mut number), options }
    };
    let kinds: Vec<Block> = (0..kinds).map(|_| kind()).collect();
    let mut kind = 0;
    let mut next = || {
        if random.once_in(2) {
            kind = random.below(kinds.len());
        }
        kinds[kind].clone()
    };
    let blocks = (0..blocks).map(|_| next()).collect();
    Chain::new(blocks, random.below(4) as u64, random.below(4) as u64).unwrap()
}

/// Equal blocks whose forward passes take 1 unit of time.
fn equal(blocks: usize, input: u64, kept: u64) -> Chain {
    let pass = Pass { time: 1, transient: 0 };
    let options = vec![Tape { kept, forward: pass, backward: pass }];
    let block = Block { input, forward: pass, options, ..Block::default() };
    Chain::new(vec![block; blocks], input, 0).unwrap()
}

/// Enough slots for one byte each.
const EXACT: usize = 1000;

#[test]
fn curves_are_those_of_all_schedules() {
    let mut random = Random(1);
    // The most blocks for each number of options, and how many chains of each length.
    for (options, most, chains) in [(1, 7, 300), (2, 5, 100), (3, 4, 100)] {
        for case in 0..chains * most {
            let chain = random_chain(&mut random, 1 + case % most, options);
            let costs = schedules(&chain, 0, chain.blocks.len() - 1);
            let expected = frontier(costs.iter().map(|s| chain.cost(s).unwrap()).collect());
            let table = Table::new(&chain, EXACT).unwrap();
            assert_eq!(table.pareto().collect::<Vec<_>>(), expected, "{chain:?}");
            assert_eq!(table.minimum(), expected[0].peak);
        }
    }
}

#[test]
fn long_chains_with_many_options_have_the_curves_of_all_schedules() {
    let mut random = Random(2);
    for (blocks, options) in [(6, 2), (7, 2), (5, 3)] {
        let chain = random_chain(&mut random, blocks, options);
        let costs = schedules(&chain, 0, blocks - 1);
        let expected = frontier(costs.iter().map(|s| chain.cost(s).unwrap()).collect());
        assert_eq!(Table::new(&chain, EXACT).unwrap().pareto().collect::<Vec<_>>(), expected, "{chain:?}");
    }
}

#[test]
fn the_program_finds_the_time_of_the_judge_with_every_number_of_slots() {
    let mut random = Random(3);
    for case in 0..300 {
        let chain = random_chain(&mut random, 1 + case % 7, 1 + case % 3);
        for unit in [1, 3] {
            let program = Program::new(&chain, unit, 60);
            for slots in 0..=60 {
                let operations = program.operations(&chain, slots);
                let Some(time) = program.time(&chain, slots) else {
                    assert!(operations.is_empty());
                    continue;
                };
                let cost = chain.cost(&operations).unwrap();
                assert_eq!(cost.time, time, "{chain:?} {slots}");
                assert!(cost.peak <= slots as u64 * unit, "{chain:?} {slots}");
            }
        }
    }
}

#[test]
fn plans_keep_any_budget_and_are_never_slower_with_more() {
    let mut random = Random(4);
    for case in 0..200 {
        let chain = random_chain(&mut random, 1 + case % 20, 1 + case % 3);
        let table = Table::new(&chain, 1 + random.below(80)).unwrap();
        let curve: Vec<_> = table.pareto().collect();
        let mut time = u64::MAX;
        for bytes in 0..curve[curve.len() - 1].peak + 3 {
            let Some(plan) = table.plan(bytes) else {
                assert!(bytes < table.minimum() && time == u64::MAX);
                continue;
            };
            assert!(bytes >= table.minimum() && plan.cost.peak <= bytes && plan.cost.time <= time);
            assert_eq!(chain.cost(&plan.operations).unwrap(), plan.cost);
            time = plan.cost.time;
        }
        let fastest = chain.blocks.iter().map(|b| b.options.iter().map(Tape::time).min().unwrap()).sum();
        assert_eq!(time, fastest);
    }
}

#[test]
fn equal_blocks_have_the_table_of_unequal_ones() {
    let mut random = Random(5);
    for case in 0..200 {
        let chain = random_chain(&mut random, 1 + case % 16, 1 + case % 2);
        let mut apart = chain.clone();
        apart.starts = (0..chain.blocks.len()).collect();
        let [of_runs, of_all] = [&chain, &apart].map(|c| Table::new(c, 1 + 7 * case).unwrap());
        assert!(of_runs.pareto().eq(of_all.pareto()), "{chain:?}");
        let half = of_all.minimum() + of_all.pareto().last().unwrap().peak;
        assert_eq!(of_runs.plan(half / 2), of_all.plan(half / 2));
    }
}

/// The least number of forward steps besides those that keep a tape, for a loop of this length with this number of states, the first one
/// included: Griewank and Walther, "Algorithm 799: revolve" (2000).
fn binomial(length: u64, states: u64) -> u64 {
    let choose = |n: u64, k: u64| (1..=k).fold(1, |product, i| product * (n - k + i) / i);
    let r = (0..).find(|r| choose(states + r, states) >= length).unwrap();
    r * length - if r == 0 { 0 } else { choose(states + r, states + 1) }
}

#[test]
fn equal_blocks_with_one_tape_are_a_binomial_schedule() {
    for length in 1..30 {
        // A tape is so large that there is one at a time.
        let kept = 100;
        let table = Table::new(&equal(length, 1, kept), 150 * length).unwrap();
        for states in 1..=length {
            // The states, the input of the block that keeps its tape, the tape, and the output.
            let bytes = states as u64 + 1 + kept + 1;
            let time = table.plan(bytes).unwrap().cost.time;
            assert_eq!(time - 2 * length as u64, binomial(length as u64, states as u64), "{length} {states}");
        }
    }
}

#[test]
fn malformed_chains_are_errors() {
    let block = equal(1, 1, 1).blocks[0].clone();
    let message = |blocks, output| Chain::new(blocks, output, 0).unwrap_err();
    assert_eq!(message(vec![], 0).to_string(), "chain: a chain has at least one block");
    let bare = Block { options: vec![], ..block.clone() };
    assert_eq!(message(vec![block.clone(), bare], 0).to_string(), "chain: block 1 has no option");
    assert!(message(vec![block.clone()], u64::MAX).message().contains("too large"));
    let slow = Block { forward: Pass { time: 1 << 62, transient: 0 }, ..block.clone() };
    assert!(message(vec![slow; 2], 0).message().contains("too large"));
    for slots in [0, usize::MAX] {
        let error = Table::new(&equal(2, 1, 1), slots).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.message().starts_with("memory is divided into 1 to 1048576 slots, not "));
    }
}

#[test]
fn schedules_that_cannot_run_are_errors() {
    let chain = equal(2, 1, 1);
    let keep = |block| Operation::Keep { block, option: 0 };
    let backward = |block| Operation::Backward { block };
    let good = [keep(0), keep(1), backward(1), backward(0)];
    assert_eq!(chain.cost(&good).unwrap(), Cost { time: 4, peak: 5 });
    for end in 0..4 {
        assert!(chain.cost(&good[..end]).unwrap_err().message().contains("does not run backward"));
    }
    let second = Operation::Keep { block: 0, option: 1 };
    let forward = Operation::Forward { block: 0 };
    let checkpoint = Operation::Checkpoint { block: 0 };
    for bad in [keep(1), keep(2), second, backward(0), backward(1), backward(2), Operation::Forward { block: 2 }] {
        assert!(chain.cost(&[bad]).unwrap_err().message().starts_with("operation 0, "), "{bad:?}");
    }
    for bad in [[forward, keep(0)], [checkpoint, keep(0)], [keep(0), backward(0)], [keep(0), forward]] {
        assert!(chain.cost(&bad).unwrap_err().message().starts_with("operation 1, "), "{bad:?}");
    }
}
