//! Functions that call themselves forever: the error that takes the place of an overflow of the stack.
//!
//! Tracing is as deep as the traced functions call one another. Before one more is traced, what is left of the thread's stack is
//! asked for. The error travels as an `Err` where there is a `Result`. A `checkpoint` or custom rule around a function that returns
//! a plain tree has no tree to put the error into, so there the stack is unwound up to the trace around, which fails
//! with it.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

use remat_ir::{Error, ErrorKind, Loc, Result};

use super::{Output, Tracer};

/// The stack that has to be left for tracing one more function, in bytes.
const MIN_STACK: usize = 128 << 10;

/// Fails where the stack of the thread is nearly used up: what overflows it aborts the program without a line.
pub(super) fn check_stack() -> Result<()> {
    if stacker::remaining_stack().is_none_or(|bytes| bytes >= MIN_STACK) {
        return Ok(());
    }
    let message = format!(
        "{} functions are being traced inside one another, and the stack of the thread is used up; does a function \
         call itself forever? Functions nested this deeply need a thread with a larger stack",
        Tracer::depth()
    );
    Err(Error::new(ErrorKind::Argument, "trace", message))
}

/// What a function gives for an argument that failed and cannot be traced: it fails as well, in its own way.
pub(crate) fn untraced<A, R: Output>(f: &impl Fn(&A) -> R, x: &A, loc: Loc) -> R {
    match check_stack() {
        Ok(()) => f(x),
        Err(error) => failed(error.at(loc)),
    }
}

/// What a function gives that could not be traced to its end.
///
/// # Panics
/// If it returns a plain tree, and no trace is open that could fail in its place.
pub(crate) fn failed<R: Output>(error: Error) -> R {
    R::from_error(error.clone()).unwrap_or_else(|| leave(error))
}

/// An error on its way to the innermost open trace.
struct Leaving(Error);

/// Leaves the traced function, whose trace fails with this error.
fn leave(error: Error) -> ! {
    if Tracer::depth() > 0 && cfg!(panic = "unwind") {
        resume_unwind(Box::new(Leaving(error)))
    }
    panic_any(error.to_string())
}

/// The result of a traced function, or the error with which it was left. Other panics go on.
pub(super) fn traced<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // The function is not called again, and its trace fails: what it left half done is not seen.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| match panic.downcast::<Leaving>() {
        Ok(leaving) => Err(leaving.0),
        Err(panic) => resume_unwind(panic),
    })
}
