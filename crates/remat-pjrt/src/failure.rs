//! Errors, as the caller of a function gets them.

use std::fmt::Display;

use remat_ir::{Error, ErrorKind};

/// The codes of the header, which are those of Abseil.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Code {
    InvalidArgument = 3,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
}

/// An error: `PJRT_Error`.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidArgument, message)
    }
}

/// Whether a struct of the caller, which has so many bytes, has all fields of ours: one of an older header may end before the last of them.
/// Each function of the API asks this, so that `what` becomes text only in an error.
pub(crate) fn whole<S>(what: impl Display, size: usize) -> Result {
    // The size of a C struct may lack the space at its end.
    if size.saturating_add(7) >= size_of::<S>() {
        return Ok(());
    }
    Err(Failure::argument(format!("{what} have {size} bytes and {} are read", size_of::<S>())))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match error.kind() {
            ErrorKind::Unsupported => Code::Unimplemented,
            ErrorKind::Memory => Code::ResourceExhausted,
            ErrorKind::Internal => Code::Internal,
            _ => Code::InvalidArgument,
        };
        Failure::new(code, error.to_string())
    }
}

/// What a function gives its caller: null, or an error that the caller frees. A panic is an error.
pub(crate) fn guarded(name: &str, call: impl FnOnce() -> Result) -> *mut Failure {
    let failure = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Failure::new(Code::Internal, format!("{name}: a defect of remat: {text}"))
        }
    };
    Box::into_raw(Box::new(failure))
}
