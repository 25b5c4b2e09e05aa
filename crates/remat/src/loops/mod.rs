//! Loops that keep a bounded number of states for reverse mode, and compute the others again.
//!
//! One file per scheme: `levels` nests loops, `binomial` follows the optimal `schedule` for a known length, of which `cursor` finds the
//! next action, and `online` handles a loop of unknown length. Each works on the traced body. Its captured tensors are operands, so they
//! get gradients.

mod binomial;
mod cursor;
mod levels;
mod online;
mod schedule;
mod slots;

use remat_ir::{Error, ErrorKind, Result};

use crate::api::ScanOptions;
use crate::api::control::{checked, trace_scan, trace_while};
use crate::trace::{Output, Tensor, Tree, current_loc, pinned, rebuild};
pub(crate) use levels::equal_blocks;
pub use schedule::binomial_steps;

/// The operation in errors and in programs.
const SCAN: &str = "scan_checkpointed";

/// A scheme that decides which states a checkpointed scan keeps for reverse mode.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LoopScheme {
    /// This number of nested loops, each of about the same length: `n` levels keep about `n` times the `n`-th root of the length as states,
    /// and compute every iteration up to `n - 1` times again. With 1 it is a plain scan; 2 levels keep about twice the square root.
    ///
    /// Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
    Levels(usize),
    /// As `Levels`, with the number of iterations in a block of each level, the longest first. `Blocks([100, 10])` cuts the loop into
    /// blocks of 100 iterations, and each of these into blocks of 10; what remains at a level is a shorter block.
    Blocks(Vec<usize>),
    /// This number of states, placed so that the fewest iterations are computed again; see [`binomial_steps`]. The initial state is one of
    /// them; the current state of the loop is kept in addition. The program does not grow with the number of iterations.
    ///
    /// Source: Griewank and Walther, "Algorithm 799: revolve", ACM Transactions on Mathematical Software 26, 2000.
    Binomial {
        /// The number of states, at least 1.
        states: usize,
    },
}

/// As [`scan`](crate::scan), keeping only the states that the scheme selects for reverse mode. The values are the same, and so are the
/// gradients, up to the order in which the levels sum those of captured tensors.
///
/// Between two states the backward pass runs the loop again. With levels, a block of the innermost loop keeps what plain differentiation
/// keeps; use [`checkpoint`](crate::checkpoint) in the body if that is too much. The binomial scheme differentiates a single iteration at a
/// time. It has no forward mode, and its second derivatives in reverse mode keep all states of its backward pass.
///
/// ```
/// use remat::{LoopScheme, Tensor, grad, scan_checkpointed, vjp};
/// let xs = Tensor::linspace(0.1, 1.0, 100, remat::DType::F64);
/// let run = |scheme: LoopScheme| {
///     let xs = &xs;
///     move |h: &Tensor| Ok(scan_checkpointed(scheme.clone(), |h: &Tensor, x: &Tensor| ((h * x).sin(), ()), h, xs)?.0)
/// };
/// let h = Tensor::from(0.5f64);
/// let plain = grad(run(LoopScheme::Levels(1)))(&h)?;
/// let few = LoopScheme::Binomial { states: 5 };
/// assert_eq!(grad(run(few.clone()))(&h)?.item::<f64>()?, plain.item::<f64>()?);
///
/// let kept = |scheme| -> remat::Result<usize> {
///     let (_, pullback) = vjp(run(scheme), &h)?;
///     let floats = pullback.residuals().iter().filter(|t| t.dtype().is_ok_and(|d| d.is_float()));
///     floats.map(Tensor::size).sum()
/// };
/// assert_eq!(kept(few)?, 100 + 5 + 1); // the inputs, the states, the state that the loop works on
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`scan`](crate::scan); if the scheme has no level, a block of 0 iterations, or no state; if the binomial scheme has more than
/// `i32::MAX` iterations, or its number of steps overflows.
#[track_caller]
pub fn scan_checkpointed<C: Tree, X: Tree, Y: Tree, R: Output<Tree = (C, Y)>>(
    scheme: LoopScheme,
    f: impl Fn(&C, &X) -> R,
    init: &C,
    xs: &X,
) -> Result<(C, Y)> {
    scan_checkpointed_with(&ScanOptions::default(), scheme, f, init, xs)
}

/// As [`scan_checkpointed`] with options.
///
/// ```
/// use remat::{LoopScheme, ScanOptions, Tensor, grad, scan_checkpointed_with};
/// // Eight iterations without a stacked input, in blocks of three.
/// let options = ScanOptions { length: Some(8), ..ScanOptions::default() };
/// let f = |x: &Tensor| {
///     let scheme = LoopScheme::Blocks(vec![3]);
///     Ok(scan_checkpointed_with(&options, scheme, |x: &Tensor, _: &()| (x * x, ()), x, &())?.0)
/// };
/// assert_eq!(grad(f)(&Tensor::from(1.0f32))?.item::<f32>()?, 256.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`scan_checkpointed`].
#[track_caller]
pub fn scan_checkpointed_with<C: Tree, X: Tree, Y: Tree, R: Output<Tree = (C, Y)>>(
    options: &ScanOptions,
    scheme: LoopScheme,
    f: impl Fn(&C, &X) -> R,
    init: &C,
    xs: &X,
) -> Result<(C, Y)> {
    let loc = current_loc();
    let traced = trace_scan(SCAN, options, f, init, xs, loc)?;
    let body = Body {
        program: traced.program,
        carry: traced.carry,
        xs: traced.xs,
        length: traced.length,
        options: ScanOptions { length: None, ..options.clone() },
        loc,
    };
    let error = |message: &str| Err(Error::new(ErrorKind::Argument, SCAN, message).at(loc));
    let (carry, ys) = match scheme {
        LoopScheme::Levels(0) => return error("there must be at least one level"),
        LoopScheme::Levels(levels) => pinned(|| levels::run(&body, &levels::equal_blocks(body.length, levels))),
        LoopScheme::Blocks(blocks) if blocks.contains(&0) => return error("a block must have at least one iteration"),
        LoopScheme::Blocks(blocks) => pinned(|| levels::run(&body, &blocks)),
        LoopScheme::Binomial { states: 0 } => {
            return error("the number of states must be at least 1: the initial state is kept");
        }
        LoopScheme::Binomial { states } => pinned(|| binomial::run(&body, states)),
    }?;
    Ok((rebuild(init, checked(carry, loc)?)?, rebuild(&traced.ys_like, checked(ys, loc)?)?))
}

/// As [`while_loop`](crate::while_loop), with reverse mode: at most `states` states are kept while the loop runs, although the number of
/// iterations is unknown. They become sparser as the loop goes on. The backward pass computes the other states again, and reuses the memory
/// of those that it no longer needs.
///
/// The initial state is one of them; the current state of the loop is kept in addition. The condition has no gradient. There is no forward
/// mode, and no second derivative in reverse mode: the backward pass is itself a `while`.
///
/// Source: Wang, Moin and Iaccarino, "Minimal repetition dynamic checkpointing algorithm for unsteady adjoint calculation",
/// SIAM Journal on Scientific Computing 31, 2009; Stumm and Walther, "New algorithms for optimal online checkpointing",
/// SIAM Journal on Scientific Computing 32, 2010.
///
/// ```
/// use remat::{Tensor, grad, while_loop_checkpointed};
/// // 1 to 128 takes 7 doublings.
/// let f = |x: &Tensor| while_loop_checkpointed(3, |x: &Tensor| x.lt(100.0), |x: &Tensor| x * 2.0, x);
/// assert_eq!(grad(f)(&Tensor::from(1.0f32))?.item::<f32>()?, 128.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`while_loop`](crate::while_loop); if `states` is 0.
#[track_caller]
pub fn while_loop_checkpointed<C: Tree, P: Output<Tree = Tensor>, R: Output<Tree = C>>(
    states: usize,
    condition: impl Fn(&C) -> P,
    body: impl Fn(&C) -> R,
    init: &C,
) -> Result<C> {
    let loc = current_loc();
    if states == 0 {
        let message = "the number of states must be at least 1: the initial state is kept";
        return Err(Error::new(ErrorKind::Argument, online::NAME, message).at(loc));
    }
    let (carry, condition, body) = trace_while(online::NAME, condition, body, init, loc)?;
    let outs = pinned(|| online::run(&condition, &body, carry, states, loc))?;
    rebuild(init, checked(outs, loc)?)
}

/// A traced scan.
#[derive(Clone)]
struct Body {
    program: crate::trace::Program,
    carry: Vec<Tensor>,
    xs: Vec<Tensor>,
    length: usize,
    options: ScanOptions,
    loc: remat_ir::Loc,
}

impl Body {
    /// The same without effects.
    fn silent(&self) -> Body {
        let mut body = self.clone();
        body.program.jaxpr = std::sync::Arc::new(body.program.jaxpr.without_effects());
        body
    }

    /// The last carry and the stacked outputs of a plain scan over these operands.
    fn scan(
        &self,
        consts: &[Tensor],
        carry: &[Tensor],
        xs: &[Tensor],
        length: usize,
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let options = ScanOptions { length: Some(length), ..self.options.clone() };
        let step = |carry: &Vec<Tensor>, x: &Vec<Tensor>| self.step(consts, carry, x);
        crate::api::scan_with(&options, step, &carry.to_vec(), &xs.to_vec())
    }

    /// The next carry and the slices of the outputs of one iteration.
    fn step(&self, consts: &[Tensor], carry: &[Tensor], x: &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let mut outs = crate::trace::run(SCAN, &self.program.jaxpr, &[consts, carry, x].concat(), self.loc)?;
        let ys = outs.split_off(carry.len());
        Ok((outs, ys))
    }
}
