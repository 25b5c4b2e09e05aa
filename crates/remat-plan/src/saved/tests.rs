use super::{Region, Saved};
use crate::ids::ValueId;
use crate::random::SplitMix;

/// A region of equations with one result each: cost, bytes, operands by number.
fn region(equations: &[(u64, u64, &[usize])], needed: &[usize]) -> Region {
    let mut region = Region::default();
    for &(cost, bytes, operands) in equations {
        let equation = region.equation(cost, operands.iter().map(|&i| ValueId::from(i)));
        region.value(equation, Some(bytes));
    }
    needed.iter().for_each(|&i| region.need(ValueId::from(i)));
    region
}

fn kept(saved: &Saved) -> Vec<usize> {
    saved.kept.iter_enumerated().filter(|(_, kept)| **kept).map(|(e, _)| e.index()).collect()
}

/// A random region, with several results of some equations, results without bytes, and loops.
fn random(seed: u64, num_equations: usize) -> Region {
    let mut random = SplitMix(seed);
    let mut region = Region::default();
    let (most_cost, most_bytes) = ([2, 10, 1000][random.below(3)], [2, 10, 1000][random.below(3)]);
    let mut equations = Vec::new();
    for _ in 0..num_equations {
        let operands: Vec<ValueId> = match region.values.len() {
            0 => Vec::new(),
            n => (0..random.below(4)).map(|_| ValueId::from(n - 1 - random.below(n.min(6)))).collect(),
        };
        let equation = region.equation(random.below(most_cost) as u64, operands);
        equations.push(equation);
        let num_results = if random.below(5) == 0 { 2 } else { 1 };
        let cannot_be_kept = random.below(12) == 0;
        for _ in 0..num_results {
            region.value(equation, (!cannot_be_kept).then(|| random.below(most_bytes) as u64));
        }
    }
    if random.below(4) == 0 {
        let last = ValueId::from(region.values.len() - 1);
        region.operand(equations[random.below(num_equations)], last);
    }
    for i in 0..region.values.len() {
        if random.below(3) == 0 || i + 1 == region.values.len() {
            region.need(ValueId::from(i));
        }
    }
    region
}

/// The least cost within a budget, of all choices.
fn least_cost(region: &Region, budget: u64) -> u64 {
    let can_be_kept: Vec<bool> = region.equations.indices().map(|e| region.can_be_kept(e)).collect();
    let choices = 0..1usize << region.equations.len();
    let costs = choices.filter_map(|choice| {
        let kept = can_be_kept.iter().enumerate().map(|(i, &can)| can && choice >> i & 1 == 1);
        let state = region.state(kept.collect());
        (state.bytes <= budget).then_some(state.cost)
    });
    costs.min().expect("nothing fits any budget")
}

/// The bytes of all that the backward pass needs directly.
fn bytes_of_all(region: &Region) -> u64 {
    region.state(region.equations.indices().map(|e| region.can_be_kept(e)).collect()).bytes
}

#[test]
fn the_choice_is_near_the_best_of_all() {
    let (mut cases, mut best_of_all, mut paid, mut least) = (0, 0, 0, 0);
    for seed in 0..400 {
        let region = random(seed, 4 + seed as usize % 8);
        let all = bytes_of_all(&region);
        for budget in [1, 3, 5, 7, 9].map(|tenths| (all * tenths / 10).max(1)) {
            let saved = region.save(budget);
            assert!(saved.bytes <= budget, "seed {seed}: {} of {budget} bytes", saved.bytes);
            let best = least_cost(&region, budget);
            assert!(saved.cost >= best, "seed {seed}");
            cases += 1;
            best_of_all += usize::from(saved.cost == best);
            paid += saved.cost;
            least += best;
        }
    }
    println!("{best_of_all} of {cases} are the best, {paid} ps for {least} ps in all");
    assert!(best_of_all * 100 >= cases * 97, "{best_of_all} of {cases}");
    assert!(paid * 1000 <= least * 1005, "{paid} ps for {least} ps");
}

#[test]
fn what_is_said_of_a_choice_is_true() {
    for seed in 0..200 {
        let region = random(seed, 12);
        let budget = bytes_of_all(&region) / 2;
        let saved = region.save(budget);
        let state = region.state(saved.kept.clone());
        assert_eq!((state.bytes, state.cost), (saved.bytes, saved.cost));
        for equation in region.equations.indices() {
            let mut other = saved.kept.clone();
            other[equation] = !other[equation];
            if saved.kept[equation] {
                assert_eq!(region.state(other).cost - saved.cost, saved.gain[equation], "seed {seed}, {equation:?}");
                assert!(
                    saved.gain[equation] > 0
                        || saved.bytes_of[equation] == 0
                        || region.equations[equation].results.len() > 1
                );
            } else if saved.repeated[equation] {
                assert_eq!(saved.cost - region.state(other).cost, saved.gain[equation], "seed {seed}, {equation:?}");
            }
        }
    }
}

#[test]
fn a_budget_of_nothing_keeps_nothing() {
    let chain = region(&[(5, 4, &[]), (5, 0, &[0]), (5, 4, &[1])], &[1, 2]);
    let saved = chain.save(0);
    assert_eq!((kept(&saved), saved.bytes, saved.cost), (Vec::new(), 0, 15));
}

#[test]
fn a_large_budget_keeps_what_is_needed_and_no_more() {
    let chain = region(&[(5, 4, &[]), (5, 4, &[0]), (5, 4, &[1])], &[2]);
    let saved = chain.save(u64::MAX);
    assert_eq!((kept(&saved), saved.bytes, saved.cost), (vec![2], 4, 0));
}

#[test]
fn values_without_bytes_and_equations_without_cost() {
    // The first takes no bytes, and the second is a view of it.
    let chain = region(&[(5, 0, &[]), (0, 8, &[0]), (3, 8, &[1])], &[1, 2]);
    assert_eq!(kept(&chain.save(1)), [0]);
    assert_eq!(kept(&chain.save(8)), [0, 2]);
    assert_eq!(kept(&chain.save(100)), [0, 2]);
}

#[test]
fn a_value_that_is_needed_and_an_operand_too() {
    // Of two values of one size, the first is an operand of the second.
    let both = region(&[(10, 8, &[]), (1, 8, &[0])], &[0, 1]);
    assert_eq!(kept(&both.save(8)), [0]);
    let second = region(&[(10, 8, &[]), (1, 8, &[0])], &[1]);
    assert_eq!(second.save(8).cost, 0);
}

#[test]
fn results_of_one_equation_are_kept_together() {
    let mut region = Region::default();
    let pair = region.equation(10, []);
    let (a, b) = (region.value(pair, Some(8)), region.value(pair, Some(8)));
    region.need(a);
    region.need(b);
    assert_eq!((region.save(8).cost, region.save(15).cost, region.save(16).cost), (10, 10, 0));
    let mut one = region.clone();
    one.needed.pop();
    assert_eq!((one.save(8).cost, one.save(8).bytes), (0, 8));
}

#[test]
fn a_carry_needs_the_iteration_before() {
    // carry = the first value or the last one; body = f(carry), needed.
    let mut region = Region::default();
    let carry = region.equation(0, []);
    let start = region.value(carry, None);
    let body = region.equation(10, [start]);
    let end = region.value(body, Some(80));
    region.operand(carry, end);
    region.need(start);
    let saved = region.save(80);
    assert_eq!((kept(&saved), saved.cost), (vec![1], 0));
    assert_eq!(region.save(79).cost, 10);
}

#[test]
fn numbers_that_no_sum_holds() {
    let most = u64::MAX;
    let huge = region(&[(most, most, &[]), (most, most, &[0]), (1, 1, &[1])], &[0, 1, 2]);
    assert_eq!(kept(&huge.save(1)), [2]);
    let saved = huge.save(most - 1);
    assert!(saved.bytes < most && saved.cost == most, "{saved:?}");
}

#[test]
fn long_regions_stay_within_their_budgets() {
    let layers = |needed_every: usize| {
        let mut region = Region::default();
        let mut last: Option<ValueId> = None;
        for i in 0..5000usize {
            let equation = region.equation([10_000, 200, 50, 0][i % 4] + (i * 7919 % 97) as u64, last);
            let value = region.value(equation, Some([4096, 1024, 1024, 4096][i % 4] + (i * 31 % 53) as u64));
            if i % needed_every == needed_every - 1 {
                region.need(value);
            }
            last = Some(value);
        }
        region
    };
    for needed_every in [1, 3, 50, 5000] {
        let region = layers(needed_every);
        let all = bytes_of_all(&region);
        for tenths in [1, 5, 9] {
            let saved = region.save(all * tenths / 10);
            assert!(saved.bytes <= all * tenths / 10, "needed every {needed_every}, {tenths} tenths");
        }
    }
}
