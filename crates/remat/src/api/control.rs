//! Loops and branches.

use std::sync::Arc;

use remat_ir::{Atom, Aval, Builder, DType, Error, ErrorKind, Jaxpr, Loc, Result};

use super::skeleton::mismatch;
use crate::trace::{
    CaptureKey, InLoop, Output, Program, Structure, Tensor, Tree, avals, bind_at, bind1, current_loc, leaf_paths,
    rebuild, structure, trace, trace_tree,
};

/// Options of [`scan_with`].
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// The number of iterations; needed only if there is no stacked input.
    pub length: Option<usize>,
    /// Whether to run from the last slice to the first.
    pub reverse: bool,
    /// How many iterations in a row form one iteration of the compiled loop; 1 by default. The remainder follows the loop; with `unroll` of
    /// at least the length there is no loop. Results are bitwise the same; the outputs of iterations in a row are joined by a copy.
    pub unroll: usize,
}

impl Default for ScanOptions {
    fn default() -> ScanOptions {
        ScanOptions { length: None, reverse: false, unroll: 1 }
    }
}

/// A loop over the first axis of `xs`: `f` takes the carry and a slice of every leaf of `xs`, and returns the next carry and a slice of the
/// result. Returns the last carry and the stacked slices.
///
/// The function is traced once, whatever the length.
///
/// ```
/// use remat::{Tensor, scan};
/// let xs = Tensor::from(vec![1.0f32, 2.0, 3.0]);
/// let (sum, sums) = scan(
///     |sum: &Tensor, x: &Tensor| {
///         let sum = sum + x;
///         (sum.clone(), sum)
///     },
///     &Tensor::from(0.0f32),
///     &xs,
/// )?;
/// assert_eq!(sum.item::<f32>()?, 6.0);
/// assert_eq!(sums.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if the new carry differs from the old one in structure or avals; if the lengths differ.
#[track_caller]
pub fn scan<C: Tree, X: Tree, Y: Tree, R: Output<Tree = (C, Y)>>(
    f: impl Fn(&C, &X) -> R,
    init: &C,
    xs: &X,
) -> Result<(C, Y)> {
    scan_at(&ScanOptions::default(), f, init, xs, current_loc())
}

/// As [`scan`] with options.
///
/// ```
/// use remat::{ScanOptions, Tensor, scan_with};
/// let four_times = ScanOptions { length: Some(4), ..ScanOptions::default() };
/// let double = |x: &Tensor, (): &()| (x * 2, x.clone());
/// let (last, before) = scan_with(&four_times, double, &Tensor::from(1), &())?;
/// assert_eq!((last.item::<i32>()?, before.to_vec::<i32>()?), (16, vec![1, 2, 4, 8]));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`scan`]; if there is neither a stacked input nor a length, or `unroll` is 0.
#[track_caller]
pub fn scan_with<C: Tree, X: Tree, Y: Tree, R: Output<Tree = (C, Y)>>(
    options: &ScanOptions,
    f: impl Fn(&C, &X) -> R,
    init: &C,
    xs: &X,
) -> Result<(C, Y)> {
    scan_at(options, f, init, xs, current_loc())
}

fn scan_at<C: Tree, X: Tree, Y: Tree, R: Output<Tree = (C, Y)>>(
    options: &ScanOptions,
    f: impl Fn(&C, &X) -> R,
    init: &C,
    xs: &X,
    loc: Loc,
) -> Result<(C, Y)> {
    let traced = trace_scan("scan", options, f, init, xs, loc)?;
    let TracedScan { program, carry, xs: stacked, length, .. } = &traced;
    let op = remat_ir::Scan {
        jaxpr: program.jaxpr.clone(),
        length: *length,
        num_consts: program.captured.len(),
        num_carry: carry.len(),
        reverse: options.reverse,
        unroll: options.unroll,
    };
    let operands: Vec<&Tensor> = program.captured.iter().chain(carry).chain(stacked).collect();
    let mut outs = bind_at(op, &operands, loc)?;
    let ys = outs.split_off(carry.len());
    Ok((rebuild(init, outs)?, rebuild(&traced.ys_like, ys)?))
}

/// A traced scan body and its stacked outputs, the basis of every kind of scan.
pub(crate) struct TracedScan<Y> {
    /// Takes the captured tensors, the carry and a slice of each stacked input; returns the next carry and slices.
    pub(crate) program: Program,
    pub(crate) carry: Vec<Tensor>,
    pub(crate) xs: Vec<Tensor>,
    pub(crate) length: usize,
    /// The structure of the stacked outputs.
    pub(crate) ys_like: Y,
}

/// Traces the body of a scan and checks that it fits the operands.
pub(crate) fn trace_scan<C: Tree, X: Tree, Y: Tree, R: Output<Tree = (C, Y)>>(
    operation: &str,
    options: &ScanOptions,
    f: impl Fn(&C, &X) -> R,
    init: &C,
    xs: &X,
    loc: Loc,
) -> Result<TracedScan<Y>> {
    let (carry, carry_structure) = structure(init);
    let (stacked, _) = structure(xs);
    let carry_avals = avals(&carry)?;
    let mut length = options.length;
    let mut giver = "the options".to_string();
    let mut x_avals = Vec::with_capacity(stacked.len());
    for (x, path) in stacked.iter().zip(leaf_paths(xs)) {
        let aval = x.aval()?;
        let Some((&n, rest)) = aval.shape.split_first() else {
            let place = path.place();
            let message = format!(
                "the stacked input{place} is {aval}, which has no axis to loop over; capture what all iterations share"
            );
            return Err(Error::new(ErrorKind::Shape, operation, message).at(loc));
        };
        let own = format!("{aval}{}", path.place());
        match length {
            Some(length) if length != n => {
                let message = format!("the lengths of the stacked inputs differ: {length} of {giver} and {n} of {own}");
                return Err(Error::new(ErrorKind::Shape, operation, message).at(loc));
            }
            Some(_) => {}
            None => (length, giver) = (Some(n), own),
        }
        x_avals.push(aval.with_shape(rest.iter().copied()));
    }
    let Some(length) = length else {
        let message = format!(
            "there is no stacked input, so the length is not known; call `{operation}_with` with ScanOptions {{ length: Some(..), .. }}"
        );
        return Err(Error::new(ErrorKind::Argument, operation, message).at(loc));
    };
    let (program, (ys_like, out_structure)) = trace(carry_avals.iter().cloned().chain(x_avals), loc, |args| {
        let (c, x) = args.split_at(carry.len());
        let _in_loop = InLoop::enter();
        let (next, y) = f(&rebuild(init, c.to_vec())?, &rebuild(xs, x.to_vec())?).into_result()?;
        let (mut outs, out_structure) = structure(&next);
        outs.extend(structure(&y).0);
        Ok((outs, (y, out_structure)))
    })?;
    let next_avals = program.jaxpr.out_avals();
    expect_carry(operation, init, (&carry_structure, &out_structure), (&carry_avals, &next_avals), loc)?;
    Ok(TracedScan { program, carry, xs: stacked, length, ys_like })
}

/// Applies a function to every slice along the first axis, one after the other: [`scan`] without a carry.
///
/// ```
/// use remat::{Tensor, map};
/// let norms = map(|row: &Tensor| row.norm(..), &Tensor::new([[3.0f32, 4.0], [0.0, 2.0]]))?;
/// assert_eq!(norms.to_vec::<f32>()?, [5.0, 2.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`scan`].
#[track_caller]
pub fn map<X: Tree, R: Output>(f: impl Fn(&X) -> R, xs: &X) -> Result<R::Tree> {
    let body = |_: &(), x: &X| f(x).into_result().map(|y| ((), y));
    Ok(scan_at(&ScanOptions::default(), body, &(), xs, current_loc())?.1)
}

/// A loop over the integers `lower..upper`: `f` takes the index, an i32 scalar, and the carry, and returns the next carry. The bounds are
/// static, so the loop can be differentiated in reverse.
///
/// ```
/// use remat::{Tensor, fori_loop};
/// let doubled = fori_loop(0, 5, |_: &Tensor, x: &Tensor| x * 2.0, &Tensor::from(1.0f32))?;
/// assert_eq!(doubled.item::<f32>()?, 32.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`scan`]; if a bound does not fit an i32.
#[track_caller]
pub fn fori_loop<C: Tree, R: Output<Tree = C>>(
    lower: i64,
    upper: i64,
    f: impl Fn(&Tensor, &C) -> R,
    init: &C,
) -> Result<C> {
    let loc = current_loc();
    let length = usize::try_from(upper.saturating_sub(lower)).unwrap_or(0);
    let (Ok(lower), Ok(_)) = (i32::try_from(lower), i32::try_from(upper)) else {
        let message = format!("the bounds {lower} and {upper} do not fit the index, an i32");
        return Err(Error::new(ErrorKind::Argument, "fori_loop", message).at(loc));
    };
    let iota = remat_ir::Iota { dtype: DType::I32, shape: [length].into_iter().collect(), axis: 0 };
    let index = bind1(remat_ir::Binary::Add, &[&bind1(iota, &[]), &Tensor::from(lower)]);
    let body = |carry: &C, i: &Tensor| f(i, carry).into_result().map(|next| (next, ()));
    Ok(scan_at(&ScanOptions::default(), body, init, &index, loc)?.0)
}

/// A loop that runs while `condition` returns true, a bool scalar.
///
/// It can be differentiated in forward mode. Reverse mode needs the states of all iterations, whose number is unknown: use
/// [`while_loop_checkpointed`](crate::while_loop_checkpointed), or [`fori_loop`].
///
/// ```
/// use remat::{Tensor, while_loop};
/// let x = while_loop(|x: &Tensor| x.lt(&Tensor::from(100.0f32)), |x: &Tensor| x * 2.0, &Tensor::from(1.0f32))?;
/// assert_eq!(x.item::<f32>()?, 128.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the functions; if the condition is not a bool scalar; if the new carry differs from the old one in structure or
/// avals.
#[track_caller]
pub fn while_loop<C: Tree, P: Output<Tree = Tensor>, R: Output<Tree = C>>(
    condition: impl Fn(&C) -> P,
    body: impl Fn(&C) -> R,
    init: &C,
) -> Result<C> {
    let loc = current_loc();
    let (carry, cond, body) = trace_while("while_loop", condition, body, init, loc)?;
    let op = remat_ir::While {
        cond: cond.jaxpr.clone(),
        body: body.jaxpr.clone(),
        cond_consts: cond.captured.len(),
        body_consts: body.captured.len(),
    };
    let operands: Vec<&Tensor> = cond.captured.iter().chain(&body.captured).chain(&carry).collect();
    let outs = bind_at(op, &operands, loc)?;
    rebuild(init, outs)
}

/// The leaves of the carry, and the programs of condition and body, checked against them.
pub(crate) fn trace_while<C: Tree, P: Output<Tree = Tensor>, R: Output<Tree = C>>(
    operation: &str,
    condition: impl Fn(&C) -> P,
    body: impl Fn(&C) -> R,
    init: &C,
    loc: Loc,
) -> Result<(Vec<Tensor>, Program, Program)> {
    let (carry, carry_structure) = structure(init);
    let carry_avals = avals(&carry)?;
    let (cond, _) = trace_tree(init, loc, &condition)?;
    let verdict = cond.jaxpr.out_avals();
    if verdict[0] != Aval::scalar(DType::Bool) {
        let message = format!("the condition must give bool[] and gives {}; {}", verdict[0], to_bool(&verdict[0]));
        return Err(Error::new(ErrorKind::DType, operation, message).at(loc));
    }
    let in_loop = InLoop::enter();
    let (body, next) = trace_tree(init, loc, &body)?;
    drop(in_loop);
    let out_structure = structure(&next).1;
    let next_avals = body.jaxpr.out_avals();
    expect_carry(operation, init, (&carry_structure, &out_structure), (&carry_avals, &next_avals), loc)?;
    Ok((carry, cond, body))
}

/// Runs one of two functions on `operand`, chosen by a bool scalar. Both are traced.
///
/// ```
/// use remat::{Tensor, cond};
/// let x = Tensor::from(-2.0f32);
/// let y = cond(&x.gt(&Tensor::from(0.0f32)), |x: &Tensor| x.clone(), |x: &Tensor| -x, &x)?;
/// assert_eq!(y.item::<f32>()?, 2.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the functions; if the predicate is not a bool scalar; if the results differ in structure or avals.
#[track_caller]
pub fn cond<A: Tree, R: Output>(
    predicate: &Tensor,
    if_true: impl Fn(&A) -> R,
    if_false: impl Fn(&A) -> R,
    operand: &A,
) -> Result<R::Tree> {
    let loc = current_loc();
    let aval = predicate.aval()?;
    if *aval != Aval::scalar(DType::Bool) {
        let message = format!("the predicate must be bool[] and is {aval}; {}", to_bool(aval));
        return Err(Error::new(ErrorKind::DType, "cond", message).at(loc));
    }
    let index = bind1(remat_ir::ConvertElementType { dtype: DType::I32 }, &[predicate]);
    branch("cond", &index, &[&if_false, &if_true], operand, loc)
}

/// Runs one of several functions on `operand`, chosen by its number, an i32 scalar that counts from 0 and is clamped to the last. All are
/// traced.
///
/// ```
/// use remat::{Tensor, switch};
/// let branches: [&dyn Fn(&Tensor) -> Tensor; 3] = [&|x| x + 1, &|x| x * 10, &|x| -x];
/// assert_eq!(switch(&Tensor::from(1), &branches, &Tensor::from(5))?.item::<i32>()?, 50);
/// assert_eq!(switch(&Tensor::from(9), &branches, &Tensor::from(5))?.item::<i32>()?, -5);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`cond`]; if there is no branch, or the index is not an i32 scalar.
#[track_caller]
pub fn switch<A: Tree, R: Output>(index: &Tensor, branches: &[&dyn Fn(&A) -> R], operand: &A) -> Result<R::Tree> {
    let loc = current_loc();
    let aval = index.aval()?;
    if *aval != Aval::scalar(DType::I32) {
        let advice = match aval.dtype {
            DType::I32 => "take one element of it",
            _ => "convert it with .to_dtype(DType::I32)",
        };
        let message = format!("the index must be i32[] and is {aval}; {advice}");
        return Err(Error::new(ErrorKind::DType, "switch", message).at(loc));
    }
    branch("switch", index, branches, operand, loc)
}

fn branch<A: Tree, R: Output>(
    operation: &str,
    index: &Tensor,
    branches: &[&dyn Fn(&A) -> R],
    operand: &A,
    loc: Loc,
) -> Result<R::Tree> {
    let traced = branches.iter().map(|f| trace_tree(operand, loc, f)).collect::<Result<Vec<_>>>()?;
    let Some((first, like)) = traced.first() else {
        return Err(Error::new(ErrorKind::Argument, operation, "there must be at least one branch").at(loc));
    };
    let name = |i: usize| match (operation, i) {
        ("cond", 0) => "the false branch".to_string(),
        ("cond", _) => "the true branch".to_string(),
        (_, i) => format!("branch {i}"),
    };
    let expected = structure(like).1;
    for (i, (program, tree)) in traced.iter().enumerate().skip(1) {
        if let Some(difference) = expected.difference(&structure(tree).1) {
            let message = format!("the results of {} and of {} differ in structure: {difference}", name(0), name(i));
            return Err(Error::new(ErrorKind::Structure, operation, message).at(loc));
        }
        for (expected, given) in first.jaxpr.out_avals().iter().zip(program.jaxpr.out_avals()) {
            if *expected != given {
                let message = format!("{} returns {expected} where {} returns {given}", name(0), name(i));
                return Err(Error::new(mismatch(expected, &given), operation, message).at(loc));
            }
        }
    }
    let (captured, bodies) = share_captures(traced.iter().map(|(program, _)| program))?;
    let leaves = structure(operand).0;
    let operands: Vec<&Tensor> = std::iter::once(index).chain(&captured).chain(&leaves).collect();
    let outs = bind_at(remat_ir::Cond { branches: bodies }, &operands, loc)?;
    rebuild(like, outs)
}

/// Makes each program take the captured tensors of all of them, then its own arguments.
pub(super) fn share_captures<'p>(
    programs: impl Iterator<Item = &'p Program> + Clone,
) -> Result<(Vec<Tensor>, Vec<Arc<Jaxpr>>)> {
    let mut captured: Vec<Tensor> = Vec::new();
    let mut keys: Vec<CaptureKey> = Vec::new();
    for tensor in programs.clone().flat_map(|p| &p.captured) {
        if let Some(key) = CaptureKey::of(tensor)
            && !keys.contains(&key)
        {
            keys.push(key);
            captured.push(tensor.clone());
        }
    }
    let mut bodies = Vec::new();
    for program in programs {
        let mut b = Builder::new();
        let shared = b.inputs(avals(&captured)?);
        let own = b.inputs(program.jaxpr.in_avals().into_iter().skip(program.captured.len()));
        let mut args: Vec<Atom> = Vec::new();
        for tensor in &program.captured {
            let place = CaptureKey::of(tensor).and_then(|key| keys.iter().position(|k| *k == key));
            args.push(shared[place.ok_or_else(|| crate::transform::internal("a captured tensor is missing"))?]);
        }
        args.extend(own);
        let outs = b.inline(&program.jaxpr, &args)?;
        bodies.push(Arc::new(b.finish(outs)));
    }
    Ok((captured, bodies))
}

/// Fails unless the new carry fits the old one.
fn expect_carry<C: Tree>(
    operation: &str,
    init: &C,
    (old, new): (&Structure, &Structure),
    (old_avals, new_avals): (&[Aval], &[Aval]),
    loc: Loc,
) -> Result<()> {
    if let Some(difference) = new.difference(old) {
        let message = format!("the new carry has another structure than the old one: {difference}");
        return Err(Error::new(ErrorKind::Structure, operation, message).at(loc));
    }
    for ((old, new), path) in old_avals.iter().zip(new_avals).zip(leaf_paths(init)) {
        if old != new {
            let place = path.place();
            let message =
                format!("the carry{place} is {old} at first and {new} after an iteration; it must keep its type");
            return Err(Error::new(mismatch(old, new), operation, message).at(loc));
        }
    }
    Ok(())
}

/// Advice on how to turn this aval into a bool scalar.
fn to_bool(aval: &Aval) -> &'static str {
    match aval.dtype {
        DType::Bool => "reduce it with .all(..) or .any(..)",
        _ => "compare it, as in `x.gt(0)`",
    }
}

/// The tensors, or the error of a failed one.
pub(crate) fn checked(outs: Vec<Tensor>, loc: Loc) -> Result<Vec<Tensor>> {
    match outs.iter().find_map(Tensor::error) {
        Some(error) => Err(error.clone().at(loc)),
        None => Ok(outs),
    }
}
