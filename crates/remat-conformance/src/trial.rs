//! Runs a program in several ways: without regions and with regions of each policy, with kept and with donated arguments.

use std::sync::Arc;

use remat::transform::on_one_device;
use remat::{DType, Policy};
use remat_ir::{Array, CompileOptions, Device, Error, ErrorKind, Jaxpr, MemoryStats, Value, eval};

use crate::arrays::{array, literals};
use crate::rereads::Program;

/// A way to run a program.
pub(crate) struct Way {
    /// The policy of its regions; `None` if it has none.
    policy: Option<Policy>,
    /// Whether its arguments are donated.
    is_donated: bool,
    /// The part of its temporaries that it may have, in percent.
    percent: usize,
    pub(crate) name: String,
}

/// All ways.
pub(crate) fn ways() -> Vec<Way> {
    let policies = [
        ("no regions", None),
        ("nothing", Some(Policy::Nothing)),
        ("everything", Some(Policy::Everything)),
        ("dots", Some(Policy::Dots)),
        ("names(kept)", Some(Policy::names(["kept"]))),
        ("not names(kept)", Some(Policy::names(["kept"]).not())),
    ];
    let ways = policies.into_iter().flat_map(|policy| [(policy.clone(), false, 100), (policy, true, 100)]);
    let limited = [("no regions", None, 60), ("everything", Some(Policy::Everything), 30)];
    let limited = limited.into_iter().flat_map(|(name, policy, percent)| {
        [false, true].map(|is_donated| ((name, policy.clone()), is_donated, percent))
    });
    ways.chain(limited)
        .map(|((name, policy), is_donated, percent)| {
            let memory = if percent < 100 { format!(", {percent} % of the temporaries") } else { String::new() };
            let name = format!("{name}, {}{memory}", if is_donated { "donated" } else { "kept" });
            Way { policy, is_donated, percent, name }
        })
        .collect()
}

/// What one run gave.
pub(crate) struct Outcome {
    /// The index of the way.
    pub(crate) way: usize,
    /// The number of elements that were compared.
    pub(crate) comparisons: u64,
    /// Why they are wrong, if they are.
    pub(crate) wrong: Option<String>,
}

/// Runs the program in the ways that are chosen by their indices, and compares each result with the evaluator's for the program without
/// regions.
///
/// An error of a run is an outcome; it is an error here if the program cannot be traced, or the evaluator fails.
pub(crate) fn trial(
    device: &dyn Device,
    program: &Program,
    is_chosen: impl Fn(usize) -> bool,
) -> Result<Vec<Outcome>, String> {
    let text = |e: remat::Error| e.to_string();
    let args: Vec<Array> = program.arguments().iter().map(array).collect();
    let expected = eval(&*program.jaxpr(None).map_err(text)?, args.clone()).map_err(text)?;
    let outcome = |(number, way): (usize, Way)| {
        let jaxpr = program.jaxpr(way.policy.as_ref()).map_err(text)?;
        let (comparisons, wrong) = match run(device, &jaxpr, &args, &way) {
            Ok(got) => {
                (expected.iter().map(|x| x.aval().size() as u64).sum(), difference(&got, &expected, program.dtype))
            }
            Err(error) => (0, Some(error.to_string())),
        };
        Ok(Outcome { way: number, comparisons, wrong })
    };
    ways().into_iter().enumerate().filter(|(way, _)| is_chosen(*way)).map(outcome).collect()
}

fn run(device: &dyn Device, jaxpr: &Jaxpr, args: &[Array], way: &Way) -> remat::Result<Vec<Array>> {
    let jaxpr = Arc::new(on_one_device(jaxpr)?.into_owned());
    let mut executable = device.compile(&jaxpr)?;
    if way.percent < 100 {
        let donated = vec![way.is_donated; args.len()];
        let MemoryStats { peak: needed, temporaries, .. } = executable.memory_where_donated(&donated);
        let memory_limit = Some(needed - temporaries + temporaries * way.percent / 100);
        let options = CompileOptions { donated: donated.clone(), memory_limit, ..CompileOptions::default() };
        executable = device.compile_with(&jaxpr, &options)?;
        // Engines without plans of their own ignore the limit.
        let planned = executable.memory_where_donated(&donated).peak;
        if executable.rematerialization().is_some() && planned > needed {
            let message = format!("a limit makes the program need {planned} bytes and not {needed}");
            return Err(Error::new(ErrorKind::Internal, "compile", message));
        }
    }
    let values = args.iter().map(|x| device.put(x)).collect::<remat::Result<Vec<Value>>>()?;
    // Another reference keeps an argument.
    let _kept = (!way.is_donated).then(|| values.clone());
    executable.execute(values)?.into_iter().map(Value::into_host).collect()
}

/// Why the results are wrong. Programs are smooth but for extrema of distinct numbers, so that what differs by more than roundings is wrong.
fn difference(got: &[Array], expected: &[Array], dtype: DType) -> Option<String> {
    let bound = if dtype == DType::F64 { 1e-9 } else { 1e-3 };
    if got.len() != expected.len() {
        return Some(format!("{} results and not {}", got.len(), expected.len()));
    }
    got.iter().zip(expected).enumerate().find_map(|(i, (got, expected))| {
        if got.aval() != expected.aval() {
            return Some(format!("result {i} is {} and not {}", got.aval(), expected.aval()));
        }
        let numbers = |x: &Array| literals(x).iter().map(|x| x.as_f64()).collect::<Vec<f64>>();
        let (x, y) = (numbers(got), numbers(expected));
        let scale = y.iter().fold(1.0, |scale: f64, y| scale.max(y.abs()));
        // A NaN is wrong.
        let is_close = |i: &usize| (x[*i] - y[*i]).abs() <= bound * scale;
        let wrong: Vec<usize> = (0..y.len()).filter(|i| !is_close(i)).collect();
        let at = *wrong.first()?;
        let (wrong, all) = (wrong.len(), y.len());
        Some(format!("{wrong} of {all} elements of result {i} are wrong; {at} is {} and not {}", x[at], y[at]))
    })
}
