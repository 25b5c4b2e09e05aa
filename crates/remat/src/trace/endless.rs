//! Functions that call themselves forever: an error instead of a stack overflow.
//!
//! Tracing nests as deeply as the traced functions call one another. Before each nested trace the remaining stack of the thread is checked.
//! The error is returned as an `Err` if there is a `Result`. A `checkpoint` or custom rule around a function that returns a plain tree has
//! no tree to put the error in, so there the stack is unwound to the enclosing trace, which fails with the error.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

use remat_ir::{Error, ErrorKind, Loc, Result};

use super::{Output, Tracer};

/// The stack that must remain to trace one more function, in bytes. A nested `jit` takes frames of 32 kB without optimisation, and what runs
/// inside a trace, such as the compiler of the engine, takes more than 128 KiB.
const MIN_STACK: usize = 512 << 10;

/// Fails if the stack of the thread is nearly used up. An overflow would abort the program without a message.
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

/// The result of a function for a failed argument, which cannot be traced: it fails too, in its own way.
pub(crate) fn untraced<A, R: Output>(f: &impl Fn(&A) -> R, x: &A, loc: Loc) -> R {
    match check_stack() {
        Ok(()) => f(x),
        Err(error) => failed(error.at(loc)),
    }
}

/// The result of a function that could not be traced to its end.
///
/// # Panics
/// If the function returns a plain tree and no open trace can fail in its place.
pub(crate) fn failed<R: Output>(error: Error) -> R {
    R::from_error(error.clone()).unwrap_or_else(|| leave(error))
}

/// An error on its way to the innermost open trace.
struct Leaving(Error);

/// Leaves the traced function. Its trace fails with this error.
fn leave(error: Error) -> ! {
    if Tracer::depth() > 0 && cfg!(panic = "unwind") {
        resume_unwind(Box::new(Leaving(error)))
    }
    panic_any(error.to_string())
}

/// The result of a traced function, or the error with which it was left. Other panics continue.
pub(super) fn traced<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // The function is not called again and its trace fails, so its unfinished state is not observed.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| match panic.downcast::<Leaving>() {
        Ok(leaving) => Err(leaving.0),
        Err(panic) => resume_unwind(panic),
    })
}
