//! The programs of the forward and the backward pass, side by side.

use std::fmt;
use std::io::Write;

use remat_ir::{Error, ErrorKind, Jaxpr, Loc, PrintOptions, Result};

use super::highlight::highlight;
use crate::api::linearization::Linearization;
use crate::trace::{Order, Output, Tensor, Tree, current_loc, expect_avals, run, trace_tree_at};
use crate::transform::dce;

/// The width if the terminal does not report one, as in JAX.
const DEFAULT_WIDTH: usize = 80;
/// The smallest width of a column; in a narrower one, programs would have one word per line.
const MIN_COLUMN: usize = 48;
/// The separator between the columns.
const GAP: &str = " │ ";
const FORWARD: &str = "--- forward computation:";
const BACKWARD: &str = "--- backward computation:";

/// The programs of both passes of a function.
#[derive(Clone, Debug)]
pub struct FwdBwd {
    /// Maps captured constants and arguments to the results, then the residuals.
    pub forward: Jaxpr,
    /// Maps residuals and cotangents of the results to cotangents of the arguments.
    pub backward: Jaxpr,
    /// The captured constants, the first inputs of the forward program.
    pub consts: Vec<Tensor>,
    /// The number of residuals: the last results of the forward program, the first inputs of the backward program.
    pub num_residuals: usize,
}

impl FwdBwd {
    /// Runs the forward program on the leaves of an argument. Returns the leaves of the result, and the residuals.
    ///
    /// # Errors
    /// If the number of leaves or an aval does not match the program; the error of a failed tensor, or of the run.
    #[track_caller]
    pub fn run_forward(&self, leaves: &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let groups = [("constant", &self.consts[..]), ("leaf", leaves)];
        let mut outs = run_on(&self.forward, self.consts.len(), groups, current_loc())?;
        let residuals = outs.split_off(outs.len() - self.num_residuals);
        Ok((outs, residuals))
    }

    /// Runs the backward program on residuals and on cotangents of the float leaves of the result. Returns the cotangents of the float
    /// leaves of the argument.
    ///
    /// ```
    /// use remat::report::fwd_bwd;
    /// use remat::Tensor;
    /// let x = Tensor::from(0.5f64);
    /// let programs = fwd_bwd(|x: &Tensor| x.sin(), &x)?;
    /// let (outs, residuals) = programs.run_forward(&[x])?;
    /// let gradients = programs.run_backward(&residuals, &[Tensor::from(2.0f64)])?;
    /// assert_eq!((outs[0].item::<f64>()?, gradients[0].item::<f64>()?), (0.5f64.sin(), 2.0 * 0.5f64.cos()));
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`FwdBwd::run_forward`].
    #[track_caller]
    pub fn run_backward(&self, residuals: &[Tensor], cotangents: &[Tensor]) -> Result<Vec<Tensor>> {
        run_on(&self.backward, self.num_residuals, [("residual", residuals), ("cotangent", cotangents)], current_loc())
    }

    /// Both programs for a terminal of this width: side by side if it has room for two columns, otherwise one above the other.
    pub fn side_by_side(&self, width: usize) -> String {
        self.laid_out(width, |line| line.to_string())
    }

    /// As [`FwdBwd::side_by_side`], with escape sequences for colours.
    pub fn styled(&self, width: usize) -> String {
        self.laid_out(width, highlight)
    }

    fn laid_out(&self, width: usize, style: impl Fn(&str) -> String) -> String {
        let column = width.saturating_sub(GAP.chars().count()) / 2;
        let mut text = String::new();
        if column >= MIN_COLUMN {
            let left = wrapped(self.lines(FORWARD, &self.forward, self.consts.len(), column), column);
            let right = wrapped(self.lines(BACKWARD, &self.backward, 0, column), column);
            for i in 0..left.len().max(right.len()) {
                let (l, r) = (left.get(i).map_or("", |s| s), right.get(i).map_or("", |s| s));
                let padding = " ".repeat(column.saturating_sub(l.chars().count()));
                let line = format!("{}{padding}{GAP}{}", style(l), style(r));
                text.push_str(line.trim_end());
                text.push('\n');
            }
            return text;
        }
        let width = if width == 0 { DEFAULT_WIDTH } else { width };
        let forward = self.lines(FORWARD, &self.forward, self.consts.len(), width);
        for line in forward.iter().chain(&self.lines(BACKWARD, &self.backward, 0, width)) {
            text.push_str(&style(line));
            text.push('\n');
        }
        text
    }

    fn lines(&self, title: &str, jaxpr: &Jaxpr, num_consts: usize, width: usize) -> Vec<String> {
        let program = jaxpr.display(PrintOptions { width, num_consts, ..PrintOptions::default() }).to_string();
        std::iter::once(title).chain(program.lines()).map(str::to_string).collect()
    }
}

/// One above the other, as JAX's tutorial prints them.
impl fmt::Display for FwdBwd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = PrintOptions { num_consts: self.consts.len(), ..PrintOptions::default() };
        write!(f, "{FORWARD}\n{}\n{BACKWARD}\n{}", self.forward.display(options), self.backward)
    }
}

/// The forward and the backward program of a function, for an argument of these avals, whose values are not read.
///
/// ```
/// use remat::report::fwd_bwd;
/// use remat::{Policy, Tensor, checkpoint};
/// let f = checkpoint(Policy::Nothing, |x: &Tensor| x.sin().sin());
/// let programs = fwd_bwd(|x: &Tensor| f(x), &Tensor::from(1.0f32))?;
/// assert_eq!(programs.forward.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = sin b in (c, a) }");
/// assert_eq!(programs.num_residuals, 1);
/// println!("{programs}");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`vjp`](crate::vjp).
#[track_caller]
pub fn fwd_bwd<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<FwdBwd> {
    let (program, _) = trace_tree_at(Order::current().plus(1), x, current_loc(), &f)?;
    let num_outs = program.jaxpr.outs.len();
    let linearization = Linearization::new(program, num_outs)?;
    let split = &linearization.split;
    let ins: Vec<_> = split.known.ins.iter().map(|&v| v.into()).collect();
    let residuals = split.residual_atoms(&ins, &split.known.outs);
    let mut forward = split.known.clone();
    forward.outs.truncate(split.num_known_outs());
    forward.outs.extend(&residuals);
    Ok(FwdBwd {
        forward: live(&forward)?,
        backward: live(&linearization.backward()?)?,
        num_residuals: residuals.len(),
        consts: linearization.program.captured,
    })
}

/// Prints [`fwd_bwd`] to standard output: side by side if the terminal is wide enough, in colour if it supports colours and `NO_COLOR` is
/// not set.
///
/// ```
/// use remat::report::print_fwd_bwd;
/// use remat::Tensor;
/// print_fwd_bwd(|x: &Tensor| x.sin(), &Tensor::from(1.0f32))?;
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`vjp`](crate::vjp); of kind `Io` if writing to standard output fails.
#[track_caller]
pub fn print_fwd_bwd<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<()> {
    let programs = fwd_bwd(f, x)?;
    let width = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0));
    // The stream removes the styles if there is no colour.
    print("print_fwd_bwd", &programs.styled(width))
}

/// Writes text to standard output; `print!` would panic if that fails.
pub(super) fn print(operation: &str, text: &str) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
    let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|e| Error::new(ErrorKind::Io, operation, format!("cannot write to the standard output: {e}")))
}

/// Breaks lines longer than a column between words, and longer words within.
fn wrapped(lines: Vec<String>, column: usize) -> Vec<String> {
    let mut all = Vec::with_capacity(lines.len());
    for line in lines {
        let indent = " ".repeat(line.chars().take_while(|c| *c == ' ').count().min(column / 2) + 2);
        let mut rest = line;
        while rest.chars().count() > column {
            let end = rest.char_indices().nth(column).map_or(rest.len(), |(i, _)| i);
            let start = rest.len() - rest.trim_start().len();
            let at = rest[..end].rfind(' ').filter(|&at| at > start).unwrap_or(end);
            let tail = format!("{indent}{}", rest[at..].trim_start());
            rest.truncate(at);
            all.push(std::mem::replace(&mut rest, tail));
        }
        all.push(rest);
    }
    all
}

/// Runs a program on two groups of tensors, the first of which has `num_first`. The strings name the groups in errors.
fn run_on(jaxpr: &Jaxpr, num_first: usize, groups: [(&str, &[Tensor]); 2], loc: Loc) -> Result<Vec<Tensor>> {
    let (first, second) = jaxpr.ins.split_at(num_first);
    for (vars, (what, tensors)) in [first, second].into_iter().zip(groups) {
        let expected = vars.iter().map(|&v| &jaxpr.avals[v]);
        expect_avals("fwd_bwd", what, tensors, expected).map_err(|error| error.at(loc))?;
    }
    run("fwd_bwd", jaxpr, &groups.map(|(_, tensors)| tensors).concat(), loc)
}

/// The program without dead equations; all inputs stay.
fn live(jaxpr: &Jaxpr) -> Result<Jaxpr> {
    Ok(dce(jaxpr, &vec![true; jaxpr.outs.len()], &vec![true; jaxpr.ins.len()])?.jaxpr)
}
