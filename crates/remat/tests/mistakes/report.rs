//! Comparing a rendered error, with its location relative to the test, so that edits above do not matter.

use remat::{Error, Tensor};

/// What a mistake gives: a failed tensor, several, or a `Result`.
pub(crate) trait Mistake {
    /// Its error.
    fn into_error(self) -> Option<Error>;
}

impl Mistake for Tensor {
    fn into_error(self) -> Option<Error> {
        self.error().cloned()
    }
}

impl Mistake for (Tensor, Tensor) {
    fn into_error(self) -> Option<Error> {
        self.0.into_error()
    }
}

impl Mistake for Vec<Tensor> {
    fn into_error(self) -> Option<Error> {
        self.into_iter().find_map(Mistake::into_error)
    }
}

impl<T> Mistake for Result<T, Error> {
    fn into_error(self) -> Option<Error> {
        self.err()
    }
}

/// `mistake!(expression, message, lines, column)`: the expression fails with this message, at the line that is `lines`
/// below that of the macro, and at this column. A scope may follow.
macro_rules! mistake {
    ($mistake:expr, $message:expr, $lines:expr, $column:expr $(,)?) => {
        mistake!($mistake, $message, $lines, $column, "")
    };
    ($mistake:expr, $message:expr, $lines:expr, $column:expr, $scope:expr $(,)?) => {
        $crate::report::check(
            $crate::report::Mistake::into_error($mistake),
            $message,
            (file!(), line!(), $lines, $column, $scope),
        )
    };
}

/// Compares the whole rendered error.
pub(crate) fn check(
    error: Option<Error>,
    message: &str,
    (file, line, lines, column, scope): (&str, u32, i64, u32, &str),
) {
    let error = error.expect("the mistake has to be an error");
    let scope = if scope.is_empty() { String::new() } else { format!(" ({scope})") };
    let expected = format!("{message}\n  at {file}:{}:{column}{scope}", i64::from(line) + lines);
    assert_eq!(error.to_string(), expected, "at {file}:{line}");
}
