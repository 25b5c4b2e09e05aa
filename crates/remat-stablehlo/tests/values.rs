//! Programs that JAX wrote compute what JAX computes.
//!
//! `REMAT_JAX_PROGRAMS=FOLDER` takes programs from a folder that `tests/fixtures/write.py --large FOLDER` wrote.

mod support;

use std::sync::Arc;

use remat_cpu::Cpu;
use remat_ir::{Array, Device, check, eval};
use remat_stablehlo::{ImportOptions, Imported, Module, import};
use support::{argument, difference, fixtures, programs, results};

/// The most that a result may differ, by its largest element: some units in the last place of f32. XLA's functions are no nearer to the
/// true values than that.
const TOLERANCE: f64 = 64.0 / (1u64 << 24) as f64;

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
    let folder = std::env::var_os("REMAT_JAX_PROGRAMS").map_or_else(fixtures, Into::into);
    let mut faults = Vec::new();
    let mut worst: Vec<(f64, String)> = Vec::new();
    for (name, bytes) in programs(&folder) {
        if name.starts_with("refused") {
            continue;
        }
        let program = match imported(&bytes) {
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
        let arguments = arguments(&program);
        let reference = eval(&program.jaxpr, arguments.clone());
        let native = Cpu::default().compile(&Arc::new(program.jaxpr)).and_then(|executable| executable.run(arguments));
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
                let difference = difference(got, expected);
                let bits = match expected.dtype() {
                    remat_ir::DType::Bf16 => 1u64 << 16,
                    _ => 1,
                };
                worst.push((difference / bits as f64, format!("{name}, {engine}, result {i}")));
                if difference > TOLERANCE * bits as f64 {
                    faults.push(format!(
                        "{name}, {engine}: result {i} differs by {difference:.2e}: {got:?} is not {expected:?}"
                    ));
                }
            }
        }
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (difference, place) in worst.iter().take(8) {
        eprintln!("{difference:.1e} {place}");
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
