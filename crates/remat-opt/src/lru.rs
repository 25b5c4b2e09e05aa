//! An approximate LRU cache.

use std::collections::HashMap;
use std::hash::Hash;

/// The most entries of each of the two generations. A compiled operation takes a few KiB, so all of them take a few MiB.
pub const GENERATION: usize = 1024;

/// A cache in two generations, which approximates LRU. A hit in the old generation moves the entry to the young one. A full young
/// generation becomes the old one, and the old entries are dropped. So a hit in the young generation writes nothing.
///
/// ```
/// use remat_opt::lru::{GENERATION, Lru};
/// let mut cache = Lru::default();
/// for i in 0..3 * GENERATION {
///     cache.insert(i, -(i as i64));
/// }
/// assert_eq!((cache.get(&0), cache.get(&(3 * GENERATION - 1))), (None, Some(1 - 3 * GENERATION as i64)));
/// assert!(cache.len() <= 2 * GENERATION);
/// ```
#[derive(Debug)]
pub struct Lru<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Lru<K, V> {
    fn default() -> Lru<K, V> {
        Lru { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash, V: Clone> Lru<K, V> {
    /// The value of this key, if the cache has it.
    pub fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    /// Adds an entry, or replaces the one of this key.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let mut cache = Lru::default();
        for key in 0..5 * GENERATION {
            cache.insert(key, key);
            assert_eq!(cache.get(&0), Some(0), "it was used a moment ago");
            assert!(cache.len() <= 2 * GENERATION);
        }
        assert_eq!(cache.get(&GENERATION), None);
        assert_eq!(cache.get(&(5 * GENERATION - 2)), Some(5 * GENERATION - 2));
    }
}
