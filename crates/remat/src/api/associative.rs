//! Prefix sums under any associative operation, in logarithmic depth.

use remat_ir::{Error, ErrorKind, Loc, Result};

use super::skeleton::mismatch;
use crate::tensor::{Index, axis, step};
use crate::trace::{Output, Tensor, Tree, current_loc, rebuild, structure};

/// The operation name in errors.
const NAME: &str = "associative_scan";

/// Options of [`associative_scan_with`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AssociativeScanOptions {
    /// The axis along which to combine. Negative ones count from the last.
    pub axis: i64,
    /// Whether to combine from the last slice to the first.
    pub reverse: bool,
}

/// All prefixes `x0, f(x0, x1), f(f(x0, x1), x2), ..` along the first axis of the leaves, for an associative `f`. The result has as many
/// slices as `elems`; the number of steps is logarithmic in the length.
///
/// Each call of `f` combines many pairs at once: it takes two trees like `elems` with fewer slices along the axis of the scan, and combines
/// slice with slice. Any length is allowed, including zero. Reverse mode keeps what `f` needs at each level, which is linear in the length.
///
/// Source: Blelloch, "Prefix sums and their applications", 1990, as the recursion on pairs of neighbours: the odd prefixes
/// are the prefixes of the combined pairs, the even ones need one more step.
///
/// ```
/// use remat::{Tensor, associative_scan};
/// // The linear recurrence h = a h + b, by composing affine maps.
/// let (a, b) = (Tensor::new([2.0f32, 3.0, 4.0]), Tensor::new([1.0f32, 1.0, 1.0]));
/// let (_, h) = associative_scan(
///     |(a1, b1): &(Tensor, Tensor), (a2, b2): &(Tensor, Tensor)| (a1 * a2, a2 * b1 + b2),
///     &(a, b),
/// )?;
/// assert_eq!(h.to_vec::<f32>()?, [1.0, 4.0, 17.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if a leaf has no such axis, the lengths differ, or the structure or avals of the result differ from
/// those of the arguments.
#[track_caller]
pub fn associative_scan<T: Tree, R: Output<Tree = T>>(f: impl Fn(&T, &T) -> R, elems: &T) -> Result<T> {
    associative_scan_with(&AssociativeScanOptions::default(), f, elems)
}

/// As [`associative_scan`] with options.
///
/// ```
/// use remat::{AssociativeScanOptions, Tensor, associative_scan_with};
/// let x = Tensor::new([1.0f32, 2.0, 3.0]);
/// let from_the_end = AssociativeScanOptions { reverse: true, ..AssociativeScanOptions::default() };
/// let sums = associative_scan_with(&from_the_end, |a: &Tensor, b: &Tensor| a + b, &x)?;
/// assert_eq!(sums.to_vec::<f32>()?, [6.0, 5.0, 3.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`associative_scan`].
#[track_caller]
pub fn associative_scan_with<T: Tree, R: Output<Tree = T>>(
    options: &AssociativeScanOptions,
    f: impl Fn(&T, &T) -> R,
    elems: &T,
) -> Result<T> {
    let loc = current_loc();
    let (leaves, expected) = structure(elems);
    let mut axes = Vec::with_capacity(leaves.len());
    let mut length = None;
    for leaf in &leaves {
        let aval = leaf.aval()?;
        let axis = axis(NAME, aval, options.axis).map_err(|error| error.at(loc))?;
        axes.push(axis);
        let n = aval.shape[axis];
        if *length.get_or_insert(n) != n {
            let message = format!("the lengths differ: {n} of {aval} and {} of the leaf before", length.unwrap_or(n));
            return Err(error(ErrorKind::Shape, message, loc));
        }
    }
    let combine = |a: &[Tensor], b: &[Tensor]| -> Result<Vec<Tensor>> {
        let out = f(&rebuild(elems, a.to_vec())?, &rebuild(elems, b.to_vec())?).into_result()?;
        let (outs, given) = structure(&out);
        if let Some(difference) = expected.difference(&given) {
            let message = format!("the function gives another structure than it takes: {difference}");
            return Err(error(ErrorKind::Structure, message, loc));
        }
        for (x, out) in a.iter().zip(&outs) {
            let (x, out) = (x.aval()?, out.aval()?);
            if x != out {
                let message = format!("the function takes {x} and gives {out}; they must be equal");
                return Err(error(mismatch(x, out), message, loc));
            }
        }
        Ok(outs)
    };
    let flip = |leaves: &[Tensor]| -> Vec<Tensor> { leaves.iter().zip(&axes).map(|(x, &axis)| x.flip(axis)).collect() };
    let elems_in = if options.reverse { flip(&leaves) } else { leaves };
    let mut outs = prefixes(&combine, &elems_in, &axes, length.unwrap_or(0))?;
    if options.reverse {
        outs = flip(&outs);
    }
    super::control::checked(outs, loc).and_then(|outs| rebuild(elems, outs))
}

fn prefixes(
    combine: &impl Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>>,
    elems: &[Tensor],
    axes: &[usize],
    length: usize,
) -> Result<Vec<Tensor>> {
    if length < 2 {
        return Ok(elems.to_vec());
    }
    let pick = |leaves: &[Tensor], start: usize, end: usize, by: i64| -> Vec<Tensor> {
        let range = step(start as i64..end as i64, by);
        leaves.iter().zip(axes).map(|(x, &axis)| along(x, axis, range.clone())).collect()
    };
    let num_pairs = length / 2;
    let pairs = combine(&pick(elems, 0, 2 * num_pairs, 2), &pick(elems, 1, 2 * num_pairs, 2))?;
    let odd = prefixes(combine, &pairs, axes, num_pairs)?;
    let first = pick(elems, 0, 1, 1);
    let num_even = length - num_pairs;
    if num_even == 1 {
        return Ok(join(&[&first, &odd], axes));
    }
    let even = combine(&pick(&odd, 0, num_even - 1, 1), &pick(elems, 2, length, 2))?;
    let even = join(&[&first, &even], axes);
    // Pairs of neighbours, then flattened into one dimension. With an odd length the last even prefix remains.
    let mut woven = Vec::with_capacity(odd.len());
    for ((e, o), &axis) in pick(&even, 0, num_pairs, 1).iter().zip(&odd).zip(axes) {
        let mut shape = e.shape()?.to_vec();
        shape[axis] *= 2;
        woven.push(Tensor::stack(&[e, o], axis + 1).reshape(shape));
    }
    if num_even == num_pairs {
        return Ok(woven);
    }
    Ok(join(&[&woven, &pick(&even, num_pairs, num_even, 1)], axes))
}

/// A range of indices along one axis.
fn along(x: &Tensor, axis: usize, range: Index) -> Tensor {
    let whole = step(.., 1);
    let entries: Vec<Index> = std::iter::repeat_n(whole, axis).chain([range]).collect();
    x.index(entries)
}

fn join(parts: &[&[Tensor]], axes: &[usize]) -> Vec<Tensor> {
    let leaf = |(i, &axis): (usize, &usize)| {
        Tensor::concatenate(&parts.iter().map(|leaves| &leaves[i]).collect::<Vec<_>>(), axis)
    };
    axes.iter().enumerate().map(leaf).collect()
}

fn error(kind: ErrorKind, message: String, loc: Loc) -> Error {
    Error::new(kind, NAME, message).at(loc)
}
