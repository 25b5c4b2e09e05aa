//! Whether remat checks itself in this build.
//!
//! A crate that asks `cfg!(debug_assertions)` gets the answer of its own profile. With debug assertions the compiler also checks how a crate
//! uses the unsafe code of the standard library, which took a tenth of the time of remat's tests. So some crates are compiled without them in
//! the dev profile, and ask this crate, whose profile is never overridden.
//!
//! ```
//! if remat_debug::CHECKS {
//!     println!("programs are checked after each pass");
//! }
//! ```

/// Whether this is a debug build, in which programs are checked after each pass and each transformation.
pub const CHECKS: bool = cfg!(debug_assertions);
