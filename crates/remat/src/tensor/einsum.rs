//! Einstein summation.

use remat_ir::{Aval, Error, ErrorKind, Result, Shape};

use super::elementwise::same_dtype;
use super::linalg::contract;
use super::shape::permute;
use crate::Tensor;
use crate::trace::deferred;

/// Einstein summation in NumPy's full notation. Every operand has a letter for each dimension. Letters that are not in the result are
/// summed over, a letter that occurs twice in one operand selects its diagonal, and `...` covers the dimensions without letters, which
/// broadcast. Without `->` the result has those dimensions, then the letters that occur once, in alphabetical order. Spaces are ignored.
/// More than two operands are contracted pair by pair, beginning with the pair whose product leaves the fewest elements.
///
/// # Errors
/// If the notation is malformed or does not fit the operands (the message says where), or if dtypes differ.
///
/// ```
/// use remat::{Tensor, einsum};
/// let x = Tensor::new([[1, 2], [3, 4]]);
/// assert_eq!(einsum("ij,jk->ik", &[&x, &x]).to_vec::<i32>()?, [7, 10, 15, 22]);
/// assert_eq!(einsum("ii", &[&x]).item::<i32>()?, 5);
/// assert_eq!(einsum("...j->...", &[&x]).to_vec::<i32>()?, [3, 7]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn einsum(notation: &str, operands: &[&Tensor]) -> Tensor {
    deferred(|| {
        let avals = operands.iter().map(|t| t.aval()).collect::<Result<Vec<_>>>()?;
        let plan = parse(notation, &avals)?;
        for pair in avals.windows(2) {
            same_dtype("einsum", pair[0], pair[1])?;
        }
        run(plan, operands)
    })
}

/// The name of a dimension: a letter, or the position of a dimension of the ellipsis, counted from its last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

struct Plan {
    inputs: Vec<Vec<Label>>,
    output: Vec<Label>,
}

/// An operand with its labels, all different.
struct Term {
    tensor: Tensor,
    labels: Vec<Label>,
}

fn malformed<T>(notation: &str, message: impl std::fmt::Display) -> Result<T> {
    Err(Error::new(ErrorKind::Argument, "einsum", format!("{message}, in \"{notation}\"")))
}

fn parse(notation: &str, avals: &[&Aval]) -> Result<Plan> {
    let compact: String = notation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match compact.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (&compact[..], None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != avals.len() {
        return malformed(
            notation,
            format!("takes {} and got {}", remat_ir::counted(terms.len(), "operand"), avals.len()),
        );
    }
    let inputs =
        terms.iter().zip(avals).map(|(term, aval)| labels(notation, term, Some(aval))).collect::<Result<Vec<_>>>()?;
    check_sizes(notation, &inputs, avals)?;
    let widest = inputs.iter().map(|labels| ellipsis_len(labels)).max().unwrap_or(0);
    let output = match output {
        Some(output) => explicit_output(notation, output, &inputs, widest)?,
        None => implicit_output(&inputs, widest),
    };
    Ok(Plan { inputs, output })
}

/// The labels of one term; `aval` is the operand's, or `None` for the output, whose ellipsis is a marker only.
fn labels(notation: &str, term: &str, aval: Option<&Aval>) -> Result<Vec<Label>> {
    let (before, after) = match term.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (term, None),
    };
    for c in before.chars().chain(after.unwrap_or("").chars()) {
        if !c.is_ascii_alphabetic() {
            return malformed(notation, format!("'{c}' is not a letter"));
        }
    }
    let letters = before.len() + after.map_or(0, str::len);
    let hidden = match (aval, after) {
        (None, _) => 0,
        (Some(aval), None) if aval.rank() == letters => 0,
        (Some(aval), Some(_)) if aval.rank() >= letters => aval.rank() - letters,
        (Some(aval), _) => {
            let message = format!("\"{term}\" has {letters} letters and its operand is {aval}");
            return malformed(notation, message);
        }
    };
    let hidden = (0..hidden).rev().map(Label::Ellipsis);
    Ok(before.chars().map(Label::Letter).chain(hidden).chain(after.unwrap_or("").chars().map(Label::Letter)).collect())
}

fn ellipsis_len(labels: &[Label]) -> usize {
    labels.iter().filter(|l| matches!(l, Label::Ellipsis(_))).count()
}

fn explicit_output(notation: &str, output: &str, inputs: &[Vec<Label>], widest: usize) -> Result<Vec<Label>> {
    let mut out = labels(notation, output, None)?;
    for (i, label) in out.iter().enumerate() {
        let Label::Letter(letter) = label else { continue };
        if out[..i].contains(label) {
            return malformed(notation, format!("'{letter}' occurs twice in the result"));
        }
        if !inputs.iter().any(|labels| labels.contains(label)) {
            return malformed(notation, format!("'{letter}' of the result is in no operand"));
        }
    }
    match output.find("...") {
        Some(at) => drop(out.splice(at..at, (0..widest).rev().map(Label::Ellipsis))),
        None if widest > 0 => return malformed(notation, "the result lacks the \"...\" of the operands"),
        None => {}
    }
    Ok(out)
}

fn implicit_output(inputs: &[Vec<Label>], widest: usize) -> Vec<Label> {
    let all: Vec<Label> = inputs.iter().flatten().copied().collect();
    let once = |l: &Label| matches!(l, Label::Letter(_)) && all.iter().filter(|other| *other == l).count() == 1;
    let mut letters: Vec<Label> = all.iter().copied().filter(once).collect();
    letters.sort_unstable();
    (0..widest).rev().map(Label::Ellipsis).chain(letters).collect()
}

/// Fails unless every label has a single size, apart from 1.
fn check_sizes(notation: &str, inputs: &[Vec<Label>], avals: &[&Aval]) -> Result<()> {
    let mut seen: Vec<(Label, usize, &Aval)> = Vec::new();
    for (labels, aval) in inputs.iter().zip(avals) {
        for (&label, &size) in labels.iter().zip(&aval.shape) {
            match seen.iter_mut().find(|(other, ..)| *other == label) {
                Some((_, first, _)) if *first == size || size == 1 => {}
                Some(entry) if entry.1 == 1 => (entry.1, entry.2) = (size, aval),
                Some((_, first, giver)) => {
                    let what = match label {
                        Label::Letter(letter) => format!("'{letter}'"),
                        Label::Ellipsis(_) => "a dimension of \"...\"".to_string(),
                    };
                    let message = format!("{what} has size {first} in {giver} and {size} in {aval}, in \"{notation}\"");
                    return Err(Error::new(ErrorKind::Shape, "einsum", message));
                }
                None => seen.push((label, size, aval)),
            }
        }
    }
    Ok(())
}

fn run(plan: Plan, operands: &[&Tensor]) -> Result<Tensor> {
    let mut terms = Vec::new();
    for (tensor, labels) in operands.iter().zip(plan.inputs) {
        terms.push(diagonals((*tensor).clone(), labels)?);
    }
    drop_ones(&mut terms)?;
    while terms.len() > 1 {
        let (i, j) = best_pair(&terms, &plan.output)?;
        let rhs = terms.remove(j);
        let lhs = terms.remove(i);
        let rest: Vec<Label> = terms.iter().flat_map(|t| t.labels.iter().copied()).collect();
        let wanted = if terms.is_empty() { Some(&plan.output[..]) } else { None };
        let kept = |l: &Label| plan.output.contains(l) || rest.contains(l);
        terms.insert(i, product(lhs, rhs, kept, wanted)?);
    }
    let Some(last) = terms.pop() else {
        return Err(Error::new(ErrorKind::Argument, "einsum", "takes at least one operand"));
    };
    let last = sum_out(last, |l| plan.output.contains(l))?;
    let order = plan.output.iter().filter_map(|l| last.labels.iter().position(|own| own == l)).collect();
    Ok(permute(&last.tensor, order))
}

/// Replaces a letter that occurs twice in a term by the diagonal.
fn diagonals(mut tensor: Tensor, mut labels: Vec<Label>) -> Result<Term> {
    while let Some((i, j)) = repeated(&labels) {
        // A dimension of size 1 broadcasts against the other, even within one operand.
        let (m, n) = (tensor.dim(i)?, tensor.dim(j)?);
        let label = labels[j];
        if m == n {
            tensor = tensor.diagonal(0, i, j);
            labels.remove(j);
            labels.remove(i);
            labels.push(label);
        } else {
            let one = if m == 1 { i } else { j };
            tensor = tensor.squeeze(one);
            labels.remove(one);
        }
    }
    Ok(Term { tensor, labels })
}

fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|i| (i + 1..labels.len()).find(|&j| labels[i] == labels[j]).map(|j| (i, j)))
}

/// Drops dimensions of size 1 whose label has another size elsewhere: they broadcast.
fn drop_ones(terms: &mut [Term]) -> Result<()> {
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for term in terms.iter() {
        sizes.extend(term.labels.iter().copied().zip(term.tensor.shape()?.iter().copied()));
    }
    for term in terms {
        let dims = term.tensor.shape()?;
        let superfluous = |d: usize| dims[d] == 1 && sizes.iter().any(|(l, n)| *l == term.labels[d] && *n != 1);
        let drop: Vec<usize> = (0..dims.len()).filter(|&d| superfluous(d)).collect();
        term.tensor = term.tensor.squeeze(&drop);
        let mut d = 0;
        term.labels.retain(|_| {
            d += 1;
            !drop.contains(&(d - 1))
        });
    }
    Ok(())
}

/// Sums over the labels that are not kept.
fn sum_out(term: Term, kept: impl Fn(&Label) -> bool) -> Result<Term> {
    let axes: Vec<usize> = (0..term.labels.len()).filter(|&d| !kept(&term.labels[d])).collect();
    if axes.is_empty() {
        return Ok(term);
    }
    let labels = term.labels.iter().copied().filter(|l| kept(l)).collect();
    Ok(Term { tensor: term.tensor.sum(&axes), labels })
}

/// The pair whose product is smallest relative to its operands; the first of equals.
fn best_pair(terms: &[Term], output: &[Label]) -> Result<(usize, usize)> {
    let mut best: Option<(f64, usize, usize)> = None;
    for i in 0..terms.len() {
        for j in i + 1..terms.len() {
            let used = |l: &Label| {
                output.contains(l) || terms.iter().enumerate().any(|(k, t)| k != i && k != j && t.labels.contains(l))
            };
            let mut size = 1.0;
            for (term, other) in [(&terms[i], None), (&terms[j], Some(&terms[i]))] {
                for (label, n) in term.labels.iter().zip(term.tensor.shape()?.iter().copied()) {
                    let counted = other.is_some_and(|t: &Term| t.labels.contains(label));
                    if used(label) && !counted {
                        size *= n as f64;
                    }
                }
            }
            let cost = size - terms[i].tensor.size()? as f64 - terms[j].tensor.size()? as f64;
            if best.is_none_or(|(least, ..)| cost < least) {
                best = Some((cost, i, j));
            }
        }
    }
    let (_, i, j) = best.ok_or_else(|| Error::new(ErrorKind::Internal, "einsum", "there is no pair"))?;
    Ok((i, j))
}

/// The product of two terms, summed over the labels that are not kept, as one `dot_general`. If `wanted` gives the order of the result, the
/// operands are exchanged if that saves a transposition.
fn product(lhs: Term, rhs: Term, kept: impl Fn(&Label) -> bool, wanted: Option<&[Label]>) -> Result<Term> {
    let (left, right) = (lhs.labels.clone(), rhs.labels.clone());
    let lhs = sum_out(lhs, |l| kept(l) || right.contains(l))?;
    let rhs = sum_out(rhs, |l| kept(l) || left.contains(l))?;
    let shared: Vec<Label> = lhs.labels.iter().copied().filter(|l| rhs.labels.contains(l)).collect();
    let mut batch: Vec<Label> = shared.iter().copied().filter(|l| kept(l)).collect();
    if let Some(wanted) = wanted {
        batch.sort_by_key(|l| wanted.iter().position(|w| w == l));
    }
    let contracting: Vec<Label> = shared.iter().copied().filter(|l| !kept(l)).collect();
    let result = |a: &Term, b: &Term| -> Vec<Label> {
        let free = |t: &Term| t.labels.iter().copied().filter(|l| !shared.contains(l)).collect::<Vec<_>>();
        [batch.clone(), free(a), free(b)].concat()
    };
    let in_order = result(&lhs, &rhs);
    let exchanged = result(&rhs, &lhs);
    let (lhs, rhs, labels) = match wanted {
        Some(wanted) if in_order != wanted && exchanged == wanted => (rhs, lhs, exchanged),
        _ => (lhs, rhs, in_order),
    };
    let axes = |labels: &[Label], term: &Term| -> Shape {
        labels.iter().filter_map(|l| term.labels.iter().position(|own| own == l)).collect()
    };
    let (lc, rc) = (axes(&contracting, &lhs), axes(&contracting, &rhs));
    let (lb, rb) = (axes(&batch, &lhs), axes(&batch, &rhs));
    let dtype = lhs.tensor.dtype()?;
    Ok(Term { tensor: contract(&lhs.tensor, &rhs.tensor, &lc, &rc, &lb, &rb, dtype), labels })
}
