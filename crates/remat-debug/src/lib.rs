//! Whether remat checks itself in this build.
//!
//! A crate that asks `cfg!(debug_assertions)` gets its own profile's answer. With debug assertions the compiler also checks the unsafe code of
//! the standard library wherever a crate uses it, which took a tenth of the time of remat's tests; so the crates without unsafe code are
//! compiled without them in the dev profile, and ask this crate, whose profile is never overridden.
//!
//! ```
//! assert_eq!(remat_debug::CHECKS, cfg!(debug_assertions));
//! ```

/// Whether this is a debug build, in which programs are checked after each pass and each transformation.
pub const CHECKS: bool = cfg!(debug_assertions);
