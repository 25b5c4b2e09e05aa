//! The tests that every engine must pass: it computes the same as the reference evaluator, fails where the evaluator fails, gives the same
//! bits on any number of threads and whether or not it may overwrite an argument, and takes the memory that it promised.
//!
//! A crate with an engine has this crate in its dev-dependencies, and a file `tests/conformance.rs`, which makes a test of each property:
//!
//! ```
//! use remat_conformance::{Engine, Recording};
//! # use remat_ir::Reference as MyDevice;
//!
//! // For engines that are `exact`.
//! #[global_allocator]
//! static ALLOCATOR: Recording = Recording;
//!
//! fn engine() -> Engine {
//!     Engine::new(MyDevice).variant("2 threads", MyDevice).excluding(
//!         "samples_agree_in_every_dtype",
//!         "sort *",
//!         "there is no kernel that sorts yet",
//!     )
//! }
//!
//! remat_conformance::tests!(engine);
//! ```
//!
//! [`Engine`] describes the engine under test. A property is a function that returns the number of its cases, or the [`Failures`].
//! [`PROPERTIES`] lists all of them, and [`conformance`] runs all. Samples of every operation come from `remat-testkit`, so an operation is
//! tested as soon as it has samples. [`closed`] and [`random_programs`] are whole programs, which other tests use as well. The command of this
//! crate ([`search`]) runs random programs for as long as it may. Speed is not
//! tested here, nor is the evaluator, which `remat`'s tests of derivatives and of operations check.
//!
//! Layers, each of which uses only those above it in this list (a test checks this):
//!
//! 1. [`closed`], [`random_programs`], [`rereads`]: whole programs
//! 2. `arrays`: values for programs
//! 3. `closeness`, `memory`: how close results must be, and which blocks a run allocates
//! 4. `half`: what roundings to half precision add
//! 5. `difference`: differences between results that are not close
//! 6. `engine`: an engine under test
//! 7. `conform`: programs on an engine
//! 8. `cases`: the cases of a property
//! 9. `samples`: the samples of every operation
//! 10. `derived`, `errors`, `large`, `programs`, `sums`: the other properties
//! 11. `trial`, [`search`], `regions`: programs that read operands of regions again, and the search for wrong ones

mod arrays;
mod cases;
pub mod closed;
mod closeness;
mod conform;
mod derived;
mod difference;
mod engine;
mod errors;
mod half;
mod large;
mod memory;
mod programs;
pub mod random_programs;
mod regions;
pub mod rereads;
mod samples;
pub mod search;
mod sums;
mod trial;

pub use cases::{Failure, Failures};
pub use engine::Engine;
pub use remat_alloc::Recording;

use cases::Cases;

/// Makes a `#[test]` of each property, for the engine that a function at this path makes: `fn engine() -> Engine`. For two engines in one
/// file, put each in its own module.
#[macro_export]
macro_rules! tests {
    // The list of properties, which is only here.
    (@properties $to:ident $($engine:path)?) => {
        $crate::tests! { @$to $($engine)?;
            /// The samples of every operation, in every dtype that the operation takes.
            samples::samples_agree_in_every_dtype,
            /// The same with infinities, NaN, zeros of both signs, subnormal and huge numbers, and the ends of integers.
            samples::samples_of_special_numbers_agree_in_every_dtype,
            /// The derivative of every sample, in every float dtype.
            derived::derivatives_agree,
            /// The transposed derivative of every sample, in every float dtype.
            derived::transposed_derivatives_agree,
            /// Batches of every sample, of three examples and of none, in each operand alone and in all.
            derived::batches_agree,
            /// Every sample with six additional axes.
            derived::batches_of_batches_agree,
            /// Invalid arguments, and results that do not fit any memory, fail with the evaluator's message.
            errors::errors_agree,
            /// Arrays that are cut into several tasks and tiles.
            large::large_arrays_agree,
            /// Gradients of functions of such arrays.
            large::gradients_of_large_arrays_agree,
            /// Sums of equal numbers, whose errors do not cancel, along each axis, of prefixes and of windows.
            sums::sums_of_equal_numbers_are_accurate,
            /// Random bits, enough for several threads.
            large::many_random_numbers_agree,
            /// Values and tangents of the closed set, in every float dtype.
            programs::programs_agree,
            /// Gradients of the closed set, without regions and in a region of each of three policies.
            programs::gradients_agree_under_policies,
            /// Batches of the closed set, of its gradients, and gradients of its batches.
            programs::batches_of_gradients_agree,
            /// Second derivatives of the closed set.
            programs::second_derivatives_agree,
            /// Values, gradients and batches of random programs, as many as [`random_programs::config`] says.
            programs::random_programs_agree,
            /// Random programs of operations that are rounded once, compared bit for bit, so that no rounding between two operations of a
            /// loop is missing or added.
            programs::random_programs_of_exact_operations_agree_in_every_bit,
            /// Operands of regions that are read again, in each order, inside and after the region, in loops, under each of several policies,
            /// with kept and with donated arguments.
            regions::operands_of_regions_are_read_again,
            /// Random programs of this kind.
            regions::random_programs_with_regions_agree,
        }
    };
    (@tests $engine:path; $($(#[$doc:meta])* $module:ident::$property:ident,)*) => {
        fn engine_under_test() -> &'static $crate::Engine {
            static ENGINE: ::std::sync::LazyLock<$crate::Engine> = ::std::sync::LazyLock::new($engine);
            &ENGINE
        }
        $(
            #[test]
            fn $property() {
                match $crate::$property(engine_under_test()) {
                    Ok(cases) => println!("{cases} cases"),
                    Err(failures) => panic!("{failures}"),
                }
            }
        )*
    };
    (@functions; $($(#[$doc:meta])* $module:ident::$property:ident,)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// The cases that fail, and the exclusions that do not hold.
            pub fn $property(engine: &Engine) -> Result<usize, Failures> {
                let is_property = |name: &str| PROPERTIES.iter().any(|(property, _)| *property == name);
                Cases::run(engine, stringify!($property), $module::$property, is_property)
            }
        )*

        /// All properties with their names.
        pub const PROPERTIES: &[(&str, Property)] = &[$((stringify!($property), $property)),*];
    };
    ($engine:path) => {
        $crate::tests! { @properties tests $engine }
    };
}

/// A property of engines: returns the number of its cases, or the failures.
pub type Property = fn(&Engine) -> Result<usize, Failures>;

crate::tests! { @properties functions }

/// Runs all properties. Returns the number of their cases.
///
/// # Errors
/// The failures of each property that has any.
pub fn conformance(engine: &Engine) -> Result<usize, Vec<Failures>> {
    let mut cases = 0;
    let mut failures = Vec::new();
    for (_, property) in PROPERTIES {
        match property(engine) {
            Ok(count) => cases += count,
            Err(failed) => failures.push(failed),
        }
    }
    if failures.is_empty() { Ok(cases) } else { Err(failures) }
}
