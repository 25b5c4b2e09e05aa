//! NaN and infinite values.

use remat_ir::{Array, Data, Op, Prim, ReduceKind, WindowKind};

use super::{Found, index_of};

/// What the elements of a float array are. Other arrays have no elements of this kind.
#[derive(Clone, Copy, Default)]
struct Summary {
    nans: usize,
    infinities: usize,
    /// The first NaN, and the first infinite element.
    first_nan: usize,
    first_infinity: usize,
    /// The finite elements lie between these.
    range: Option<(f64, f64)>,
}

impl Summary {
    fn of(array: &Array) -> Summary {
        match array.data() {
            Data::F16(v) => Summary::of_elements(v.iter().map(|x| x.to_f64())),
            Data::Bf16(v) => Summary::of_elements(v.iter().map(|x| x.to_f64())),
            Data::F32(v) => Summary::of_elements(v.iter().map(|&x| f64::from(x))),
            Data::F64(v) => Summary::of_elements(v.iter().copied()),
            _ => Summary::default(),
        }
    }

    fn of_elements(elements: impl Iterator<Item = f64>) -> Summary {
        let mut summary = Summary::default();
        for (i, x) in elements.enumerate() {
            if x.is_finite() {
                summary.range = Some(summary.range.map_or((x, x), |(low, high)| (low.min(x), high.max(x))));
            } else if x.is_nan() {
                if summary.nans == 0 {
                    summary.first_nan = i;
                }
                summary.nans += 1;
            } else {
                if summary.infinities == 0 {
                    summary.first_infinity = i;
                }
                summary.infinities += 1;
            }
        }
        summary
    }
}

/// The first element of an array that is NaN.
pub(super) fn first_nan(array: &Array) -> Option<usize> {
    let Summary { nans, first_nan, .. } = Summary::of(array);
    (nans > 0).then_some(first_nan)
}

/// Whether an operation gives the largest or the smallest of some elements, which is infinite where there are none: in a window of padding.
fn is_extremum(op: &Op) -> bool {
    match op {
        Op::Prim(Prim::Reduce(op)) => matches!(op.kind, ReduceKind::Max | ReduceKind::Min),
        Op::Prim(Prim::ReduceWindow(op)) => matches!(op.kind, WindowKind::Max | WindowKind::Min),
        _ => false,
    }
}

/// What is wrong with the results of an operation: NaN where no operand has one, or infinite elements where all operands are finite.
pub(super) fn made(op: &Op, operands: &[Array], results: &[Array]) -> Found {
    let results: Vec<(&Array, Summary)> = results.iter().map(|array| (array, Summary::of(array))).collect();
    if results.iter().all(|(_, summary)| summary.nans == 0 && summary.infinities == 0) {
        return None;
    }
    let given: Vec<Summary> = operands.iter().map(Summary::of).collect();
    let had_nan = given.iter().any(|summary| summary.nans > 0);
    let had_infinity = given.iter().any(|summary| summary.infinities > 0);
    let wrong = results.iter().find_map(|(array, summary)| match summary {
        Summary { nans: 1.., .. } if !had_nan => Some((array, summary.nans, "NaN", summary.first_nan)),
        Summary { nans: 0, infinities: 1.., .. } if !had_nan && !had_infinity && !is_extremum(op) => {
            Some((array, summary.infinities, "infinite", summary.first_infinity))
        }
        _ => None,
    });
    let (array, count, what, first) = wrong?;
    let operands: Vec<String> = operands.iter().zip(given).map(|(array, summary)| range(array, summary)).collect();
    let of = if operands.is_empty() { "no operands".to_string() } else { operands.join(" and ") };
    let (aval, all, at) = (array.aval(), array.data().len(), index_of(array, first));
    Some(format!("{count} of {all} elements of the result {aval} are {what}, the first at {at}, of {of}"))
}

/// `f32[4] from -1 to 2`, with NaN and infinite elements if there are any.
fn range(array: &Array, summary: Summary) -> String {
    let mut text = array.aval().to_string();
    let Summary { nans, infinities, range, .. } = summary;
    match range {
        Some((low, high)) if low == high => text += &format!(" of {low}"),
        Some((low, high)) => text += &format!(" from {low} to {high}"),
        None => {}
    }
    if infinities > 0 {
        text += &format!(" with {infinities} infinite");
    }
    if nans > 0 {
        text += &format!(" with {nans} NaN");
    }
    text
}
