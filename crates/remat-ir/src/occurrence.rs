//! Which of several scopes of one path: the scopes `block` of the layers of a model have one path each, and are entered one after the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use crate::intern::Interner;

/// A named scope as it was entered: its name, how often one of this name was entered before inside the one around it, and the one around it.
/// Interned: it is a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Occurrence(u32);

/// An occurrence inside another one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Inner {
    around: Occurrence,
    name: Arc<str>,
    number: u32,
}

static OCCURRENCES: LazyLock<Interner<Inner>> = LazyLock::new(Interner::default);

impl Occurrence {
    /// Outside of all scopes.
    pub const NONE: Occurrence = Occurrence(0);

    /// The scope `name` inside this one, before which there were `number` others of this name.
    pub fn child(self, name: &str, number: u32) -> Occurrence {
        let inner = Inner { around: self, name: name.into(), number };
        Occurrence(OCCURRENCES.intern(&inner, || inner.clone()).0)
    }

    /// Itself and those around it, the outermost first.
    fn chain(self) -> Vec<(Occurrence, Inner)> {
        let (mut chain, mut at) = (Vec::new(), self);
        while let Some(inner) = OCCURRENCES.get(at.0) {
            let around = inner.around;
            chain.push((at, inner));
            at = around;
        }
        chain.reverse();
        chain
    }

    /// The paths of these occurrences, with a number after each name of which there are several: `gpt2/block[3]/attention`. Numbers count
    /// those that are here, from 0.
    ///
    /// ```
    /// use remat_ir::Occurrence;
    /// let model = Occurrence::NONE.child("gpt2", 0);
    /// let [first, second] = [0, 2].map(|number| model.child("block", number).child("attention", 0));
    /// let paths = Occurrence::paths([first, second]);
    /// assert_eq!((&*paths[&first], &*paths[&second]), ("gpt2/block[0]/attention", "gpt2/block[1]/attention"));
    /// assert_eq!(Occurrence::paths([second])[&second], "gpt2/block/attention");
    /// ```
    pub fn paths(occurrences: impl IntoIterator<Item = Occurrence>) -> HashMap<Occurrence, String> {
        let all: BTreeSet<Occurrence> = occurrences.into_iter().collect();
        let chains: Vec<(Occurrence, Vec<(Occurrence, Inner)>)> = all.into_iter().map(|of| (of, of.chain())).collect();
        let mut numbers: HashMap<(Occurrence, Arc<str>), BTreeSet<u32>> = HashMap::new();
        for (_, Inner { around, name, number }) in chains.iter().flat_map(|(_, chain)| chain) {
            numbers.entry((*around, name.clone())).or_default().insert(*number);
        }
        let name = |Inner { around, name, number }: &Inner| match numbers.get(&(*around, name.clone())) {
            Some(numbers) if numbers.len() > 1 => format!("{name}[{}]", numbers.range(..number).count()),
            _ => name.to_string(),
        };
        let path =
            |chain: &[(Occurrence, Inner)]| chain.iter().map(|(_, inner)| name(inner)).collect::<Vec<_>>().join("/");
        chains.iter().map(|(of, chain)| (*of, path(chain))).collect()
    }
}
