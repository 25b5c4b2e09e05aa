//! Programs that JAX wrote compute what JAX computes.
//!
//! `REMAT_JAX_PROGRAMS=FOLDER` takes programs from a folder that `tests/fixtures/write.py --large FOLDER` wrote.

mod arrays;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;

use arrays::{argument, difference, largest, results};
use remat_cpu::Cpu;
use remat_ir::{Array, DType, Device, check, eval};
use remat_opt::pipeline;
use remat_stablehlo::{ImportOptions, Imported, Module, import};
use support::{fixtures, programs};

/// The most that a result may differ, by its largest element, in units of the last place of f32: small programs, whose functions XLA computes no
/// better than that, and large ones, which amplify rounding.
const UNITS: [f64; 2] = [64.0, 4096.0];

/// Arrays below this part of the program's largest element are noise, and are held to [`OF_NOISE`] of that element.
const NOISE: f64 = 1e-5;
const OF_NOISE: f64 = 1e-6;

fn imported(bytes: &[u8]) -> remat_ir::Result<Imported> {
    import(&Module::read(bytes)?, ImportOptions::default())
}

fn arguments(program: &Imported) -> Vec<Array> {
    let avals = program.jaxpr.in_avals();
    let given = avals.iter().skip(program.constants.len()).enumerate().map(|(i, aval)| argument(i, aval));
    program.constants.iter().cloned().chain(given).collect()
}

#[test]
fn programs_compute_what_jax_computes() {
    let given = std::env::var_os("REMAT_JAX_PROGRAMS");
    let tolerance = UNITS[usize::from(given.is_some())] / (1u64 << 24) as f64;
    let folder = given.map_or_else(fixtures, Into::into);
    let mut faults = Vec::new();
    let mut worst: Vec<(f64, String)> = Vec::new();
    let mut programs = programs(&folder);
    programs.retain(|(name, _)| !name.starts_with("refused"));
    for (name, bytes) in &programs {
        let program = match imported(bytes) {
            Ok(program) => program,
            Err(error) => {
                faults.push(format!("{name}: {error}"));
                continue;
            }
        };
        if let Err(fault) = check(&program.jaxpr) {
            faults.push(format!("{name}: {fault}"));
            continue;
        }
        let expected = results(&std::fs::read_to_string(folder.join(format!("{name}.values"))).unwrap());
        let largest = expected.iter().map(largest).fold(0.0, f64::max);
        let arguments = arguments(&program);
        let reference = eval(&program.jaxpr, arguments.clone());
        // As the plugin does.
        let native = pipeline::run(pipeline::IMPORTED, &program.jaxpr)
            .and_then(|jaxpr| Cpu::default().compile(&Arc::new(jaxpr)))
            .and_then(|executable| executable.run(arguments));
        for (engine, got) in [("reference", reference), ("native", native)] {
            let got: Vec<Array> = match got {
                Ok(got) => got,
                Err(error) => {
                    faults.push(format!("{name}, {engine}: {error}"));
                    continue;
                }
            };
            assert_eq!(got.len(), expected.len(), "{name}");
            for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                let mut difference = difference(got, expected);
                if expected.dtype() == DType::Bf16 {
                    difference /= (1u64 << 16) as f64;
                }
                if expected.dtype().is_float() && arrays::largest(expected) < NOISE * largest {
                    difference *= arrays::largest(expected) / largest / OF_NOISE * tolerance;
                }
                worst.push((difference, format!("{name}, {engine}, result {i}")));
                if difference > tolerance {
                    faults.push(format!(
                        "{name}, {engine}: result {i} differs by {difference:.2e}: {got:?} is not {expected:?}"
                    ));
                }
            }
        }
    }
    eprintln!("{} results of {} programs", worst.len() / 2, programs.len());
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (difference, place) in worst.iter().take(8) {
        eprintln!("{difference:.1e} {place}");
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The attentions of a program as the engines run it.
fn attentions(name: &str) -> usize {
    let bytes = std::fs::read(fixtures().join(format!("{name}.mlirbc"))).unwrap();
    let program = pipeline::run(pipeline::IMPORTED, &imported(&bytes).unwrap().jaxpr).unwrap();
    program.eqns.iter().filter(|eqn| eqn.op.name() == "dot_product_attention").count()
}

#[test]
fn attention_is_recognised() {
    // Each of these programs has as many as it has results.
    assert_eq!(attentions("attention_forward"), 10);
    assert_eq!(attentions("attention_of_jax"), 7);
    // Its weights are kept for the derivative.
    assert_eq!(attentions("attention"), 0);
    assert_eq!(attentions("attention_nearly"), 0);
}
