//! A permutation of the numbers below `n` whose elements are computed one by one, without memory. It shuffles windows and images.

/// The permutation of the numbers below `len` for a seed and an epoch.
///
/// It is the swap-or-not shuffle: each round pairs every number with another by a reflection, and swaps the pair or not, by a bit that
/// depends on the pair. `6 log2(len)` rounds make it close to uniform for every `len`. For small `len` a Feistel network would be far from
/// uniform, and would have to try again for numbers out of range.
///
/// Source: Hoang, Morris, Rogaway, "An enciphering scheme based on a card shuffle", CRYPTO 2012.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    len: u64,
    rounds: u32,
    key: u64,
}

impl Shuffle {
    pub(crate) fn new(seed: u64, epoch: u64, len: u64) -> Shuffle {
        let bits = u64::BITS - len.leading_zeros();
        Shuffle { len, rounds: 6 * bits, key: mixed(mixed(seed) ^ epoch) }
    }

    /// The image of `i`, which is below its length.
    pub(crate) fn at(&self, i: u64) -> u64 {
        let mut x = i;
        for round in 0..self.rounds {
            let key = mixed(self.key ^ u64::from(round).wrapping_mul(GOLDEN));
            let pivot = key % self.len;
            let partner = if pivot >= x { pivot - x } else { pivot + (self.len - x) };
            // Both numbers of a pair use the same bit.
            if mixed(key ^ x.max(partner)) & 1 == 1 {
                x = partner;
            }
        }
        x
    }
}

/// 2^64 over the golden ratio: the increment of splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number whose bits all depend on all bits of `x`. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014 (splitmix64).
pub(crate) fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(GOLDEN);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_once() {
        for len in [1, 2, 3, 7, 64, 1000, 1025] {
            let shuffle = Shuffle::new(3, 1, len);
            let mut all: Vec<u64> = (0..len).map(|i| shuffle.at(i)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn orders_of_few_numbers_are_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for epoch in 0..6000 {
            let shuffle = Shuffle::new(0, epoch, 3);
            *counts.entry([shuffle.at(0), shuffle.at(1), shuffle.at(2)]).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // Six standard deviations.
        assert!(counts.values().all(|count| (825..1175).contains(count)), "{counts:?}");
    }

    #[test]
    fn numbers_of_the_whole_range() {
        let shuffle = Shuffle::new(u64::MAX, u64::MAX, u64::MAX);
        assert!(shuffle.at(u64::MAX - 1) < u64::MAX);
        assert_ne!(shuffle.at(0), Shuffle::new(u64::MAX, 0, u64::MAX).at(0));
    }
}
