//! Which results of a step take the memory of which operands.
//!
//! A loop that updates a parameter and its moments can write each of the three over any array that it has read by then. Where the first one takes
//! the array that only the last one could have taken, the last one needs memory of its own. Pairs are therefore a matching of the largest size in the
//! graph of operands and results (augmenting paths: Berge, Two theorems in graph theory, 1957), which keeps what is paired already where it can.

use smallvec::SmallVec;

/// An operand and the result that takes its memory.
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

/// Pairs as many results as possible: a result without an operand takes one of another result, which can take another one in turn. No operand and no
/// result that is paired becomes free, and pairs whose operand is not among the possible ones remain.
pub(crate) fn pair_most<T: Copy + Eq>(possible: &[Pair<T>], pairs: &mut Pairs<T>) {
    let is_free = |pairs: &Pairs<T>, input: T| pairs.iter().all(|pair| pair.0 != input);
    let mut tried: SmallVec<[T; 4]> = SmallVec::new();
    for &(_, output) in possible {
        if possible.iter().all(|&(input, _)| !is_free(pairs, input)) {
            return;
        }
        if !tried.contains(&output) && pairs.iter().all(|pair| pair.1 != output) {
            tried.push(output);
            augment(possible, pairs, output);
        }
    }
}

/// Pairs this result, if a path of alternating pairs leads from it to a free operand.
fn augment<T: Copy + Eq>(possible: &[Pair<T>], pairs: &mut Pairs<T>, output: T) {
    // Operands with the result from which each is reached, and the results that are reached, the nearest first.
    let mut reached: Pairs<T> = SmallVec::new();
    let mut results: SmallVec<[T; 4]> = SmallVec::from_elem(output, 1);
    let mut at = 0;
    while let Some(&result) = results.get(at) {
        at += 1;
        for &(input, _) in possible.iter().filter(|pair| pair.1 == result) {
            if reached.iter().any(|pair| pair.0 == input) {
                continue;
            }
            reached.push((input, result));
            match pairs.iter().find(|pair| pair.0 == input) {
                Some(&(_, holder)) => results.push(holder),
                None => return follow(&reached, pairs, (input, result)),
            }
        }
    }
}

/// Gives the results of a path their new operands, from its end with a free operand to its start.
fn follow<T: Copy + Eq>(reached: &[Pair<T>], pairs: &mut Pairs<T>, end: Pair<T>) {
    let mut new = Some(end);
    while let Some((input, result)) = new {
        let Some(pair) = pairs.iter_mut().find(|pair| pair.1 == result) else { return pairs.push((input, result)) };
        let given_up = std::mem::replace(&mut pair.0, input);
        new = reached.iter().copied().find(|pair| pair.0 == given_up);
    }
}

#[cfg(test)]
mod tests {
    use crate::random::SplitMix;

    use super::*;

    fn most(possible: &[Pair<u32>]) -> Pairs<u32> {
        let mut pairs = Pairs::new();
        pair_in_order(possible, &mut pairs);
        pair_most(possible, &mut pairs);
        pairs
    }

    #[test]
    fn the_first_pairs_are_kept_where_nothing_is_gained() {
        assert_eq!(most(&[(1, 10), (1, 11), (2, 10)])[..], [(2, 10), (1, 11)]);
        assert_eq!(most(&[(1, 10), (2, 10), (1, 11), (2, 11)])[..], [(1, 10), (2, 11)]);
        assert_eq!(most(&[(1, 10), (1, 11)])[..], [(1, 10)]);
        assert!(most(&[]).is_empty());
    }

    /// AdamW: the moments are written before the parameter is read, so only the new parameter can lie in the old one.
    #[test]
    fn a_result_moves_on_for_one_with_less_choice() {
        let [parameter, first, second] = [1, 2, 3];
        let [new, new_first, new_second] = [10, 11, 12];
        let possible = [
            (second, new),
            (second, new_second),
            (first, new_first),
            (first, new),
            (parameter, new),
            (first, new_second),
        ];
        let mut pairs = most(&possible).to_vec();
        pairs.sort_unstable();
        assert_eq!(pairs, [(parameter, new), (first, new_first), (second, new_second)]);
    }

    #[test]
    fn pairs_with_other_operands_remain() {
        let mut pairs = Pairs::from_elem((9, 10), 1);
        pair_most(&[(1, 10), (1, 11)], &mut pairs);
        assert_eq!(pairs[..], [(9, 10), (1, 11)]);
        pair_most(&[(2, 10), (1, 12)], &mut pairs);
        assert_eq!(pairs[..], [(9, 10), (1, 11)]);
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
