//! The stack of open traces of a thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use remat_ir::{Atom, Aval, Builder, Error, ErrorKind, Jaxpr, Loc, Result, Value, Var};

use super::regions::{Region, group};
use super::scope::counting;
use super::tensor::{Repr, Variable};
use super::{Order, Output, Tensor, Tree, avals, endless, rebuild, structure};

/// A traced function: its program takes the captured tensors, then the arguments.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) jaxpr: Arc<Jaxpr>,
    /// The outer tensors that the function used.
    pub(crate) captured: Vec<Tensor>,
}

/// One open trace.
pub(crate) struct Tracer {
    id: TraceId,
    pub(crate) builder: Builder,
    /// The most derivatives that will be taken of the program.
    pub(super) order: Order,
    /// The inputs that represent captured tensors, and these tensors.
    captured: Vec<Tensor>,
    captured_vars: Vec<Var>,
    index: HashMap<CaptureKey, Atom>,
    /// The first error of any operation in this trace, whether its result is used or not.
    error: Option<Error>,
    /// The equations that become regions, inner ones before outer ones.
    pub(super) regions: Vec<Region>,
}

/// The identity of a captured tensor.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum CaptureKey {
    /// The address of the elements, which the captured tensor keeps alive, and the aval, since reshaped arrays share their elements.
    Concrete(usize, Aval),
    Traced(TraceId, Var),
}

impl CaptureKey {
    /// The key of a concrete or traced tensor.
    pub(crate) fn of(tensor: &Tensor) -> Option<CaptureKey> {
        match &tensor.0 {
            Repr::Concrete(value) => Some(CaptureKey::Concrete(value.id(), value.aval().clone())),
            Repr::Abstract(aval) => Some(CaptureKey::Concrete(Arc::as_ptr(aval) as usize, (**aval).clone())),
            Repr::Traced(traced) => Some(CaptureKey::Traced(traced.trace, traced.var)),
            Repr::Failed(_) => None,
        }
    }
}

/// The identity of a trace, and its thread, since tracing is per thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TraceId {
    number: u64,
    thread: ThreadId,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STACK: RefCell<Vec<Tracer>> = const { RefCell::new(Vec::new()) };
}

impl Tracer {
    /// Runs `f` on the innermost open trace of this thread, if there is one.
    pub(crate) fn with_innermost<R>(f: impl FnOnce(&mut Tracer, &Parents<'_>) -> R) -> Option<R> {
        STACK.with_borrow_mut(|stack| {
            let (top, below) = stack.split_last_mut()?;
            Some(f(top, &Parents(below)))
        })
    }

    /// The number of open traces of this thread.
    pub(super) fn depth() -> usize {
        STACK.with_borrow(Vec::len)
    }

    /// Whether a trace is open on this thread.
    pub(crate) fn is_open() -> bool {
        STACK.with_borrow(|stack| !stack.is_empty())
    }

    /// The identity of this trace.
    pub(super) fn id(&self) -> TraceId {
        self.id
    }

    /// Remembers the first error.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.error.get_or_insert_with(|| error.clone());
    }

    /// The atom of a tensor in this trace, as an operand of this operation. Scalars become literals, and other outer tensors inputs.
    pub(crate) fn lift(&mut self, operation: &str, tensor: &Tensor, parents: &Parents<'_>) -> Result<Atom> {
        let key = match &tensor.0 {
            Repr::Failed(error) => return Err(error.clone()),
            Repr::Traced(traced) if traced.trace == self.id => return Ok(Atom::Var(traced.var)),
            Repr::Traced(traced) if parents.contains(traced.trace) => CaptureKey::Traced(traced.trace, traced.var),
            Repr::Traced(traced) => return Err(escaped(operation, traced)),
            // A scalar on a device is not read, which would wait for it.
            Repr::Concrete(Value::Host(array)) => match array.to_literal() {
                Some(literal) if array.aval() == &literal.aval() => return Ok(Atom::Lit(literal)),
                _ => CaptureKey::Concrete(array.data_id(), array.aval().clone()),
            },
            Repr::Concrete(Value::Device(_)) | Repr::Abstract(_) => CaptureKey::of(tensor)
                .ok_or_else(|| Error::new(ErrorKind::Internal, operation, "a tensor has no key"))?,
        };
        if let Some(&atom) = self.index.get(&key) {
            return Ok(atom);
        }
        let atom = self.builder.input(tensor.aval()?.clone());
        self.index.insert(key, atom);
        self.captured.push(tensor.clone());
        self.captured_vars.extend(atom.var());
        Ok(atom)
    }

    /// The tensor of an atom of this trace.
    pub(crate) fn tensor(&self, atom: Atom, loc: Loc) -> Tensor {
        match atom {
            Atom::Var(var) => {
                Tensor(Repr::Traced(Arc::new(Variable { trace: self.id, var, aval: self.builder.aval(atom), loc })))
            }
            Atom::Lit(literal) => Tensor::literal(literal),
        }
    }
}

/// The enclosing traces of the innermost one.
pub(crate) struct Parents<'a>(&'a [Tracer]);

impl Parents<'_> {
    fn contains(&self, id: TraceId) -> bool {
        self.0.iter().any(|t| t.id == id)
    }
}

/// Whether this trace is open on this thread.
pub(crate) fn is_open(id: TraceId) -> bool {
    STACK.with_borrow(|stack| stack.iter().any(|tracer| tracer.id == id))
}

/// The error of using a tensor whose trace has ended or is on another thread.
pub(crate) fn escaped(operation: &str, traced: &Variable) -> Error {
    let (where_used, advice) = if traced.trace.thread == thread::current().id() {
        ("after the function in which it was traced has ended", "Return it from the function instead of storing it")
    } else {
        ("on another thread than the one that traces it", "Return it from the function, and use what that gives")
    };
    let message = format!("a tensor ({}) is used {where_used}; it was made at {}. {advice}", traced.aval, traced.loc);
    Error::new(ErrorKind::Escaped, operation, message)
}

/// Traces `f` on arguments of these avals, for the same number of derivatives as the enclosing trace.
///
/// # Errors
/// As [`trace_at`].
pub(crate) fn trace<R>(
    avals: impl IntoIterator<Item = Aval>,
    loc: Loc,
    f: impl FnOnce(&[Tensor]) -> Result<(Vec<Tensor>, R)>,
) -> Result<(Program, R)> {
    trace_at(Order::current(), avals, loc, f)
}

/// Traces `f` on arguments of these avals, for this number of derivatives.
///
/// # Errors
/// The error returned by `f`, or else the first error of any operation inside; if the stack of the thread does not suffice for another
/// nested trace.
pub(crate) fn trace_at<R>(
    order: Order,
    avals: impl IntoIterator<Item = Aval>,
    loc: Loc,
    f: impl FnOnce(&[Tensor]) -> Result<(Vec<Tensor>, R)>,
) -> Result<(Program, R)> {
    let (mut f, mut extra) = (Some(f), None);
    let program = traced(order, avals.into_iter().collect(), loc, &mut |arguments| {
        let Some(f) = f.take() else { return Err(not_once()) };
        let (outs, more) = f(arguments)?;
        extra = Some(more);
        Ok(outs)
    })?;
    match extra {
        Some(extra) => Ok((program, extra)),
        None => Err(not_once()),
    }
}

fn not_once() -> Error {
    Error::new(ErrorKind::Internal, "trace", "the traced function was not called once")
}

/// As [`trace_at`]. It is compiled once, and not with each function that a program traces, of which there are hundreds.
fn traced(
    order: Order,
    avals: Vec<Aval>,
    loc: Loc,
    f: &mut dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Program> {
    endless::check_stack().map_err(|error| error.at(loc))?;
    let id = TraceId { number: NEXT_ID.fetch_add(1, Ordering::Relaxed), thread: thread::current().id() };
    let mut builder = Builder::new();
    builder.loc = loc;
    let arguments = builder.inputs(avals);
    let tracer = Tracer {
        id,
        builder,
        order,
        captured: Vec::new(),
        captured_vars: Vec::new(),
        index: HashMap::new(),
        error: None,
        regions: Vec::new(),
    };
    let arguments: Vec<Tensor> = arguments.into_iter().map(|a| tracer.tensor(a, loc)).collect();
    let is_outermost = !Tracer::is_open();
    STACK.with_borrow_mut(|stack| stack.push(tracer));
    let guard = PopOnUnwind;
    let mut traced = || endless::traced(|| f(&arguments));
    let result = if is_outermost { counting(traced) } else { traced() };
    let result = result.and_then(|outs| {
        let atoms = Tracer::with_innermost(|tracer, parents| {
            outs.iter().map(|t| tracer.lift("return", t, parents)).collect::<Result<Vec<Atom>>>()
        });
        atoms.unwrap_or_else(|| Ok(Vec::new()))
    });
    std::mem::forget(guard);
    let tracer = STACK.with_borrow_mut(|stack| stack.pop());
    let Some(tracer) = tracer else {
        return Err(Error::new(ErrorKind::Internal, "trace", "the stack of traces is empty"));
    };
    // The first error inside explains most: an error that the function returned is usually a consequence of it.
    if let Some(error) = tracer.error {
        return Err(error);
    }
    let mut jaxpr = tracer.builder.finish(result.map_err(|e| e.at(loc))?);
    if !tracer.regions.is_empty() {
        jaxpr = group(jaxpr, &tracer.regions);
    }
    let mut ins = tracer.captured_vars;
    ins.extend(jaxpr.ins.iter().copied().take(arguments.len()));
    jaxpr.ins = ins;
    Ok(Program { jaxpr: Arc::new(jaxpr), captured: tracer.captured })
}

/// Traces a function of a tree. Returns the program and the function's result, whose leaves belong to the ended trace and serve only as
/// structure. The number of derivatives is that of the enclosing trace.
pub(crate) fn trace_tree<A: Tree, R: Output>(
    args: &A,
    loc: Loc,
    f: impl FnOnce(&A) -> R,
) -> Result<(Program, R::Tree)> {
    trace_tree_at(Order::current(), args, loc, f)
}

/// As [`trace_tree`], for this number of derivatives.
pub(crate) fn trace_tree_at<A: Tree, R: Output>(
    order: Order,
    args: &A,
    loc: Loc,
    f: impl FnOnce(&A) -> R,
) -> Result<(Program, R::Tree)> {
    let (leaves, _) = structure(args);
    trace_at(order, avals(&leaves)?, loc, |arguments| {
        let args = rebuild(args, arguments.to_vec())?;
        let out = f(&args).into_result()?;
        Ok((structure(&out).0, out))
    })
}

/// Removes the innermost trace from the stack if the traced function panics.
struct PopOnUnwind;

impl Drop for PopOnUnwind {
    fn drop(&mut self) {
        STACK.with_borrow_mut(|stack| drop(stack.pop()));
    }
}
