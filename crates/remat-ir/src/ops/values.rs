//! The types of parameters: how a value prints, and how it is read back.

use std::sync::Arc;

use super::{Param, ParamMap, Params};
use crate::{DType, Jaxpr, Literal, MemorySpace, Policy, Result, Shape};

/// A type of fields that programs print as one parameter.
pub(crate) trait ParamValue: Sized {
    /// The parameter, or `None` for a value that programs do not print.
    fn to_param(&self) -> Option<Param>;

    /// Takes the parameter of this name.
    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self>;
}

/// A type of fields that programs print as several parameters, each with its name.
pub(crate) trait ParamGroup: Sized {
    /// The parameters, in the order in which programs print them.
    fn to_params(&self) -> Params;

    /// Takes these parameters.
    fn take(params: &ParamMap<'_>) -> Result<Self>;
}

/// The parameter of this name, unless programs do not print the value.
pub(super) fn named<T: ParamValue>(name: &'static str, value: &T) -> impl Iterator<Item = (&'static str, Param)> {
    value.to_param().map(|param| (name, param)).into_iter()
}

/// Types of which each is a variant of [`Param`], with what the error says of another variant.
macro_rules! variants {
    ($($type:ty, $variant:ident, $fault:literal;)*) => {
        $(
            impl ParamValue for $type {
                fn to_param(&self) -> Option<Param> {
                    Some(Param::$variant(Clone::clone(self)))
                }

                fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
                    match params.take(name)? {
                        Param::$variant(value) => Ok(value),
                        _ => Err(params.error(name, $fault)),
                    }
                }
            }
        )*
    };
}

variants! {
    bool, Bool, "is neither True nor False";
    i64, Int, "is not an integer";
    Arc<str>, Word, "is not a word";
    DType, DType, "is not a dtype";
    Literal, Literal, "is not a literal";
    Arc<Jaxpr>, Jaxpr, "is not a jaxpr";
    Arc<Policy>, Policy, "is not a policy";
}

/// Types of integers, with what the error says of an integer that does not fit.
macro_rules! integers {
    ($($type:ty, $fault:literal;)*) => {
        $(
            impl ParamValue for $type {
                fn to_param(&self) -> Option<Param> {
                    Some(Param::Int(*self as i64))
                }

                fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
                    params.read::<i64>(name)?.try_into().map_err(|_| params.error(name, $fault))
                }
            }
        )*
    };
}

integers! {
    usize, "is negative";
    i32, "does not fit 32 bits";
    u32, "is not a number of bits";
}

impl ParamValue for Shape {
    fn to_param(&self) -> Option<Param> {
        Some(Param::ints(self.iter().copied()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        params.take(name)?.as_sizes().ok_or_else(|| params.error(name, "is not a tuple of sizes"))
    }
}

impl ParamValue for MemorySpace {
    fn to_param(&self) -> Option<Param> {
        Some(Param::word(self.name()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        params.choice(name, "is not a memory space", MemorySpace::from_name)
    }
}

/// It prints only if there is one.
impl ParamValue for Option<Arc<str>> {
    fn to_param(&self) -> Option<Param> {
        self.clone().map(Param::Word)
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        params.has(name).then(|| params.read(name)).transpose()
    }
}

impl ParamValue for Option<Arc<Jaxpr>> {
    fn to_param(&self) -> Option<Param> {
        Some(self.clone().map_or(Param::None, Param::Jaxpr))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        match params.take(name)? {
            Param::Jaxpr(jaxpr) => Ok(Some(jaxpr)),
            Param::None => Ok(None),
            _ => Err(params.error(name, "is neither a jaxpr nor None")),
        }
    }
}

impl ParamValue for Vec<Arc<Jaxpr>> {
    fn to_param(&self) -> Option<Param> {
        Some(Param::Tuple(self.iter().cloned().map(Param::Jaxpr).collect()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let jaxpr = |item| if let Param::Jaxpr(jaxpr) = item { Some(jaxpr) } else { None };
        params.tuple(name, "is not a tuple of jaxprs", jaxpr)
    }
}

/// `(data, model)`
impl ParamValue for Arc<[Arc<str>]> {
    fn to_param(&self) -> Option<Param> {
        Some(Param::Tuple(self.iter().cloned().map(Param::Word).collect()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let word = |item| if let Param::Word(word) = item { Some(word) } else { None };
        params.tuple(name, "is not a tuple of names", word)
    }
}

/// `((0, 1), (1, 0))`
impl ParamValue for Arc<[(usize, usize)]> {
    fn to_param(&self) -> Option<Param> {
        Some(Param::Tuple(self.iter().map(|&(first, second)| Param::ints([first, second])).collect()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let pair = |item: Param| match item.as_sizes()?[..] {
            [first, second] => Some((first, second)),
            _ => None,
        };
        params.tuple(name, "is not a tuple of pairs", pair)
    }
}

/// Low and high padding of each dimension: `((0, 1), (-1, 0))`.
impl ParamValue for Vec<(i64, i64)> {
    fn to_param(&self) -> Option<Param> {
        Some(Param::Tuple(self.iter().map(|&(low, high)| Param::signed([low, high])).collect()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let pair = |row: Vec<i64>| if let [low, high] = row[..] { Some((low, high)) } else { None };
        let pairs = rows(params, name)?.into_iter().map(pair).collect::<Option<_>>();
        pairs.ok_or_else(|| params.error(name, "is not a tuple of pairs of integers"))
    }
}

/// Low, high and interior padding of each dimension: `((0, 1, 0), (-1, 0, 2))`.
impl ParamValue for Vec<(i64, i64, usize)> {
    fn to_param(&self) -> Option<Param> {
        let rows = self.iter().map(|&(low, high, interior)| Param::signed([low, high, interior as i64]));
        Some(Param::Tuple(rows.collect()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let triple = |row: Vec<i64>| match row[..] {
            [low, high, interior] => Some((low, high, usize::try_from(interior).ok()?)),
            _ => None,
        };
        let triples = rows(params, name)?.into_iter().map(triple).collect::<Option<_>>();
        triples.ok_or_else(|| params.error(name, "is not a tuple of (low, high, interior)"))
    }
}

/// Takes a tuple of tuples of integers.
fn rows(params: &ParamMap<'_>, name: &str) -> Result<Vec<Vec<i64>>> {
    let integer = |item: &Param| if let Param::Int(value) = item { Some(*value) } else { None };
    let row = |item| match item {
        Param::Tuple(row) | Param::List(row) => row.iter().map(integer).collect(),
        _ => None,
    };
    params.tuple(name, "is not a tuple of tuples of integers", row)
}
