//! Events. All work is done when a function returns, so that every event is ready.

use crate::failure::{Failure, Result};

/// `PJRT_Event`: the error of the work, if it failed.
pub(crate) struct Event(pub(crate) Option<Failure>);

impl Event {
    /// An event that is owned by the caller.
    pub(crate) fn ready() -> *mut Event {
        Box::into_raw(Box::new(Event(None)))
    }

    pub(crate) fn error(&self) -> Result {
        self.0.clone().map_or(Ok(()), Err)
    }
}
