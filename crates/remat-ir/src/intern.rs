//! Numbers for values of which there are few and to which much refers.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{PoisonError, RwLock};

/// Values, each with a number from 1. Equal values have one number; none is freed.
pub(crate) struct Interner<T>(RwLock<(Vec<T>, HashMap<T, u32>)>);

impl<T> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner(RwLock::default())
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// The value that is equal to `key`, and its number. `value` makes it if it is not there.
    pub(crate) fn intern<K: Eq + Hash + ?Sized>(&self, key: &K, value: impl FnOnce() -> T) -> (u32, T)
    where
        T: Borrow<K>,
    {
        let known =
            |(_, numbers): &(_, HashMap<T, u32>)| numbers.get_key_value(key).map(|(value, &n)| (n, value.clone()));
        if let Some(known) = known(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return known;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known(&all) {
            return known;
        }
        let value = value();
        all.0.push(value.clone());
        let number = all.0.len() as u32;
        all.1.insert(value.clone(), number);
        (number, value)
    }

    /// The value with this number, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<T> {
        let index = number.checked_sub(1)? as usize;
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.get(index).cloned()
    }
}
