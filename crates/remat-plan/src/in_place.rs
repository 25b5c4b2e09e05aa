//! Which results of a step take the memory of which operands.
//!
//! A loop that updates a parameter and its moments can write each of the three over any array that it has read by then. Where the first one takes
//! the array that only the last one could have taken, the last one needs memory of its own. Pairs are therefore a matching of the largest size in the
//! graph of operands and results (augmenting paths: Berge, "Two theorems in graph theory", 1957).

use smallvec::SmallVec;

/// An operand, and a result that may take its memory.
pub(crate) type Pair<T> = (T, T);

/// The pairs of one step.
pub(crate) type Pairs<T> = SmallVec<[Pair<T>; 4]>;

/// Adds each of these pairs whose operand and whose result are free, in their order.
pub(crate) fn pair_in_order<T: Copy + Eq>(possible: &[Pair<T>], pairs: &mut Pairs<T>) {
    for &(input, output) in possible {
        if pairs.iter().all(|pair| pair.0 != input && pair.1 != output) {
            pairs.push((input, output));
        }
    }
}

/// Pairs as many operands as possible, an earlier one rather than a later one: an operand whose results are taken gets one of them if the operand
/// that has it can move to another result, and so on. What is paired stays paired, and operands that are not among the possible pairs keep their
/// results.
pub(crate) fn pair_most<T: Copy + Eq>(possible: &[Pair<T>], pairs: &mut Pairs<T>) {
    for (at, &(input, _)) in possible.iter().enumerate() {
        let is_first = possible[..at].iter().all(|pair| pair.0 != input);
        if is_first && pairs.iter().all(|pair| pair.0 != input) {
            augment(possible, pairs, input);
        }
    }
}

/// Pairs this operand, if a path of alternating pairs leads from it to a free result. Takes a shortest one.
fn augment<T: Copy + Eq>(possible: &[Pair<T>], pairs: &mut Pairs<T>, input: T) {
    // Results, each with the operand from which it is reached, and the operands that are reached, the nearest first.
    let mut reached: Pairs<T> = SmallVec::new();
    let mut inputs: SmallVec<[T; 4]> = SmallVec::from_elem(input, 1);
    let mut at = 0;
    while let Some(&input) = inputs.get(at) {
        at += 1;
        for &(_, output) in possible.iter().filter(|pair| pair.0 == input) {
            if reached.iter().any(|pair| pair.1 == output) {
                continue;
            }
            reached.push((input, output));
            match pairs.iter().find(|pair| pair.1 == output) {
                Some(&(holder, _)) => inputs.push(holder),
                None => return follow(&reached, pairs, (input, output)),
            }
        }
    }
}

/// Gives the operands of a path their new results, from its end at a free result to its start.
fn follow<T: Copy + Eq>(reached: &[Pair<T>], pairs: &mut Pairs<T>, end: Pair<T>) {
    let mut new = Some(end);
    while let Some((input, output)) = new {
        let Some(pair) = pairs.iter_mut().find(|pair| pair.0 == input) else { return pairs.push((input, output)) };
        let given_up = std::mem::replace(&mut pair.1, output);
        new = reached.iter().copied().find(|pair| pair.1 == given_up);
    }
}

#[cfg(test)]
mod tests {
    use crate::random::SplitMix;

    use super::*;

    fn most(possible: &[Pair<u32>]) -> Pairs<u32> {
        let mut pairs = Pairs::new();
        pair_most(possible, &mut pairs);
        pairs
    }

    #[test]
    fn an_operand_takes_its_first_free_result() {
        assert_eq!(most(&[(1, 10), (1, 11), (2, 10), (2, 11)])[..], [(1, 10), (2, 11)]);
        assert_eq!(most(&[(1, 10), (1, 11)])[..], [(1, 10)]);
        assert_eq!(most(&[(1, 10), (2, 10)])[..], [(1, 10)]);
        assert!(most(&[]).is_empty());
    }

    /// AdamW: the moments are written before the parameter is read, so only the new parameter can lie in the old one. The gradient, which the
    /// caller keeps and is therefore last, could take the second moment's place.
    #[test]
    fn a_result_moves_to_an_operand_for_one_with_less_choice() {
        let [parameter, first, second, gradient] = [1, 2, 3, 4];
        let [new, new_first, new_second] = [10, 11, 12];
        let mut possible =
            vec![(second, new), (second, new_second), (first, new), (first, new_first), (first, new_second)];
        possible.extend([(parameter, new), (gradient, new), (gradient, new_second)]);
        let mut pairs = most(&possible).to_vec();
        pairs.sort_unstable();
        assert_eq!(pairs, [(parameter, new), (first, new_first), (second, new_second)]);
    }

    #[test]
    fn what_is_paired_stays_paired() {
        let mut pairs = Pairs::from_elem((9, 10), 1);
        pair_most(&[(1, 10), (1, 11)], &mut pairs);
        assert_eq!(pairs[..], [(9, 10), (1, 11)]);
        pair_most(&[(2, 10), (2, 11)], &mut pairs);
        assert_eq!(pairs[..], [(9, 10), (1, 11)]);
        pair_in_order(&[(2, 11), (1, 12), (2, 12), (3, 12)], &mut pairs);
        assert_eq!(pairs[..], [(9, 10), (1, 11), (2, 12)]);
    }

    /// The most pairs, by trying all.
    fn most_by_trying(possible: &[Pair<u32>]) -> usize {
        let Some((&(input, output), rest)) = possible.split_first() else { return 0 };
        let without: Vec<_> = rest.iter().copied().filter(|pair| pair.0 != input && pair.1 != output).collect();
        most_by_trying(rest).max(1 + most_by_trying(&without))
    }

    #[test]
    fn as_many_as_possible_are_paired() {
        let mut random = SplitMix(1);
        for _ in 0..2000 {
            let mut possible: Vec<Pair<u32>> = Vec::new();
            for _ in 0..random.below(12) {
                let pair = (random.below(5) as u32, 10 + random.below(5) as u32);
                if !possible.contains(&pair) {
                    possible.push(pair);
                }
            }
            let pairs = most(&possible);
            assert_eq!(pairs.len(), most_by_trying(&possible), "{possible:?} {pairs:?}");
            for (i, pair) in pairs.iter().enumerate() {
                assert!(possible.contains(pair));
                assert!(
                    pairs[..i].iter().all(|other| other.0 != pair.0 && other.1 != pair.1),
                    "{possible:?} {pairs:?}"
                );
            }
        }
    }
}
