//! JAX-style program transformation for Rust, built around rematerialization.

#[allow(dead_code)]
mod rules;

#[doc(hidden)]
pub mod testing {
    //! What the project's own generic tests run over; not a part of the API.
    pub use crate::rules::{Sample, all_samples};
}
