//! Lists on the host whose lengths are those that a user gives.

use remat_ir::{Error, ErrorKind, Result};

/// An empty list with memory for this many elements; `None` is a number that nobody can count. `what` names them in the error.
///
/// # Errors
/// If there is no memory for them: a failed allocation would end the process.
pub(super) fn reserved<T>(operation: &str, what: impl FnOnce() -> String, count: Option<usize>) -> Result<Vec<T>> {
    let mut list = Vec::new();
    if count.is_some_and(|count| list.try_reserve_exact(count).is_ok()) {
        return Ok(list);
    }
    Err(Error::new(ErrorKind::Shape, operation, format!("there is no memory for {}", what())))
}
