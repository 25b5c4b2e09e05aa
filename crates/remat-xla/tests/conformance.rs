//! XLA conforms, but for what is listed here with its reason: on the CPU, or on the device in the environment variable `REMAT_TEST_DEVICE`.
//! Each test prints what it leaves out.

mod support;

use remat_conformance::Engine;
use remat_ir::Device;
use remat_xla::{Platform, Xla};

/// Programs that are compiled as one, since compiling takes most of the time.
const TOGETHER: usize = 64;

/// Of the cases of a property one of every few runs, for the same reason; `REMAT_CONFORMANCE_EVERY` is another number. It shares no
/// factor with the number of dtypes, so that all come up. Every sample runs once in `values`.
const EVERY: usize = 31;

fn engine(xla: Xla, property: &str) -> Engine {
    let every = std::env::var("REMAT_CONFORMANCE_EVERY").ok().and_then(|n| n.parse().ok()).unwrap_or(EVERY);
    // These are few cases, each run in some of the ways: all of them, unless many of the others are left out.
    let is_of_regions =
        ["operands_of_regions_are_read_again", "random_programs_with_regions_agree"].contains(&property);
    let every = if is_of_regions { every / 100 } else { every };
    let special = "samples_of_special_numbers_agree_in_every_dtype";
    let platform = Platform::of_device(xla.name());
    let engine = Engine::new(xla).together(TOGETHER).every(every);
    let engine = if platform == Some(Platform::Cpu) { on_cpus(engine) } else { on_chips(engine) };
    engine
        // Solved and factorised by blocks.
        .within("triangular_solve", 16)
        .within("cholesky", 16)
        // Series with other terms.
        .within("digamma", 32)
        .within("lgamma", 32)
        // The root of a f64 is a power.
        .within("cbrt", 64)
        .leaving_out(
            special,
            "triangular_solve *",
            "a block is inverted, so that a zero, an infinity or a NaN in it reaches more results",
        )
        .leaving_out(special, "cholesky *", "as of triangular systems")
        .leaving_out(
            special,
            "conv_general_dilated *",
            "zeros of a padding are not multiplied, so that they make no NaN of an infinity",
        )
        .leaving_out(
            "random_programs_of_exact_operations_agree_in_every_bit",
            "random programs",
            "a product and a sum become one instruction on chips that have it, which rounds once",
        )
}

/// What holds of XLA on CPUs alone.
fn on_cpus(engine: Engine) -> Engine {
    let of_some_axes = ["sum of images", "sum of channels", "mean of rows and columns", "mean of a window"];
    let engine = of_some_axes.into_iter().fold(engine, |engine, name| {
        let reason = "over several axes XLA's CPU adds one number after the other";
        engine.leaving_out("sums_of_equal_numbers_are_accurate", format!("{name} *"), reason)
    });
    engine.flushing_subnormals()
}

/// What holds of XLA on chips with memory of their own.
fn on_chips(engine: Engine) -> Engine {
    let of_samples = [
        "samples_agree_in_every_dtype",
        "samples_of_special_numbers_agree_in_every_dtype",
        "derivatives_agree",
        "transposed_derivatives_agree",
        "batches_agree",
        "batches_of_batches_agree",
    ];
    let reason = "arguments and results in host memory are refused, which a test of its own shows";
    let engine =
        of_samples.into_iter().fold(engine, |engine, property| engine.leaving_out(property, "device_put *", reason));
    let reason = "over a window GPUs add one number after the other";
    engine
        .leaving_out("sums_of_equal_numbers_are_accurate", "mean of a window *", reason)
        // CUDA's division of f32 is within 2 roundings.
        .within("div", 2)
}

macro_rules! properties {
    ($($property:ident)*) => {
        $(
            #[test]
            fn $property() {
                let Some(xla) = support::xla() else { return };
                let engine = engine(xla, stringify!($property));
                for (cases, reason) in engine.exclusions(stringify!($property)) {
                    println!("left out: {cases}: {reason}");
                }
                match remat_conformance::$property(&engine) {
                    Ok(cases) => println!("{cases} cases"),
                    Err(failures) => panic!("{failures}"),
                }
            }
        )*
    };
}

properties! {
    samples_agree_in_every_dtype
    samples_of_special_numbers_agree_in_every_dtype
    derivatives_agree
    transposed_derivatives_agree
    batches_agree
    batches_of_batches_agree
    errors_agree
    large_arrays_agree
    gradients_of_large_arrays_agree
    sums_of_equal_numbers_are_accurate
    many_random_numbers_agree
    programs_agree
    gradients_agree_under_policies
    batches_of_gradients_agree
    second_derivatives_agree
    random_programs_agree
    random_programs_of_exact_operations_agree_in_every_bit
    operands_of_regions_are_read_again
    random_programs_with_regions_agree
}
