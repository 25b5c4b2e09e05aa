//! Runs programs on an engine, one or several at a time.

use std::sync::Arc;

use remat::Tensor;
use remat::transform::on_one_device;
use remat_alloc::{Event, Recording};
use remat_ir::{Array, Builder, ClosedJaxpr, Device, Error, Executable, Jaxpr, Reference};

use crate::arrays::array;
use crate::closeness::Closeness;
use crate::difference::{Scale, difference, is_identical};
use crate::engine::Engine;
use crate::memory::account;

/// Compares a device with the evaluator: results must be close, or the errors equal. Returns the results, if any.
fn agree(
    expected: &Result<Vec<Array>, Error>,
    got: Result<Vec<Array>, Error>,
    closeness: Closeness,
    scale: Scale,
) -> Result<Option<Vec<Array>>, String> {
    let (got, expected) = match (got, expected) {
        (Ok(got), Ok(expected)) => (got, expected),
        (Err(got), Err(expected)) if got.kind() == expected.kind() && got.message() == expected.message() => {
            return Ok(None);
        }
        (Err(got), Err(expected)) => return Err(format!("the error is\n{got}\nand not\n{expected}")),
        (Err(got), Ok(_)) => return Err(format!("it fails: {got}")),
        (Ok(_), Err(expected)) => return Err(format!("it does not fail: {expected}")),
    };
    if got.len() != expected.len() {
        return Err(format!("{} results and not {}", got.len(), expected.len()));
    }
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        if let Some(difference) = difference(got, expected, closeness, scale) {
            return Err(format!("result {i}: {difference}"));
        }
    }
    Ok(Some(got))
}

/// A program with its arguments, and how close its results must be to the evaluator's.
pub(crate) struct Check {
    jaxpr: Arc<Jaxpr>,
    args: Vec<Array>,
    closeness: Closeness,
}

impl Check {
    pub(crate) fn new(jaxpr: Jaxpr, args: Vec<Array>, closeness: Closeness) -> Check {
        Check { jaxpr: Arc::new(jaxpr), args, closeness }
    }

    /// A traced program, with the tensors that it captured and these arguments.
    pub(crate) fn traced(
        program: Result<ClosedJaxpr, Error>,
        args: &[Tensor],
        closeness: Closeness,
    ) -> Result<Check, String> {
        let ClosedJaxpr { jaxpr, consts } = program.map_err(|e| e.to_string())?;
        let args = consts.into_iter().chain(args.iter().map(array)).collect();
        Ok(Check { jaxpr, args, closeness })
    }

    /// Runs the program on an engine and on the evaluator, and checks everything that the engine promises. A failure of the evaluator is a
    /// failure too, since nothing would be compared.
    pub(crate) fn conform(&self, engine: &Engine) -> Result<(), String> {
        let expected = self.evaluate().map_err(|e| self.evaluator_fails(&e))?;
        self.compare(engine, &Ok(expected))
    }

    /// As [`Check::conform`], but if the evaluator fails, the engine must fail with the same error.
    pub(crate) fn conform_or_fail(&self, engine: &Engine) -> Result<(), String> {
        self.compare(engine, &self.evaluate())
    }

    fn evaluate(&self) -> Result<Vec<Array>, Error> {
        Reference.compile(&self.jaxpr)?.run(self.args.clone())
    }

    fn evaluator_fails(&self, error: &Error) -> String {
        format!("the evaluator fails: {error}\n{}", self.jaxpr)
    }

    fn compare(&self, engine: &Engine, expected: &Result<Vec<Array>, Error>) -> Result<(), String> {
        keep_promises(engine, &self.jaxpr, &self.args, |got| self.agree(engine, got, expected))
            .map(|_| ())
            .map_err(|e| format!("{}: {e}\n{}", engine.device.name(), self.jaxpr))
    }

    fn agree(
        &self,
        engine: &Engine,
        got: Result<Vec<Array>, Error>,
        expected: &Result<Vec<Array>, Error>,
    ) -> Result<Option<Vec<Array>>, String> {
        let scale = Scale::of(&self.jaxpr, &self.args, self.closeness).flushing(engine.flushes_subnormals);
        agree(expected, got, self.closeness, scale)
    }
}

/// Runs the programs of several cases as one, with the results of all, and returns for each case whether it conforms. A case that does not
/// is run again alone, and so are all if the joint program fails; the result of the run alone counts.
pub(crate) fn conform_together(engine: &Engine, cases: &[Vec<Check>]) -> Vec<Result<(), String>> {
    let alone = |case: &[Check]| case.iter().try_for_each(|check| check.conform(engine));
    let checks: Vec<&Check> = cases.iter().flatten().collect();
    let together = if checks.len() > 1 { run_together(engine, &checks) } else { None };
    let Some(mut results) = together.map(Vec::into_iter) else { return cases.iter().map(|case| alone(case)).collect() };
    let outcome = |case: &Vec<Check>| {
        let agrees = |check: &Check| {
            let got: Vec<Array> = results.by_ref().take(check.jaxpr.outs.len()).collect();
            check.evaluate().is_ok_and(|expected| check.agree(engine, Ok(got), &Ok(expected)).is_ok())
        };
        // Every check takes its results, whether or not one before it agrees.
        let agreeing = case.iter().map(agrees).filter(|&agrees| agrees).count();
        if agreeing == case.len() { Ok(()) } else { alone(case) }
    };
    cases.iter().map(outcome).collect()
}

/// The results of all programs, if they run as one and the engine keeps its promises.
fn run_together(engine: &Engine, checks: &[&Check]) -> Option<Vec<Array>> {
    let mut b = Builder::new();
    let ins: Vec<_> = checks.iter().map(|check| b.inputs(check.jaxpr.in_avals())).collect();
    let outs = checks.iter().zip(&ins).map(|(check, ins)| b.inline(&check.jaxpr, ins)).collect::<Result<Vec<_>, _>>();
    let jaxpr = Arc::new(b.finish(outs.ok()?.into_iter().flatten().collect()));
    let args: Vec<Array> = checks.iter().flat_map(|check| check.args.iter().cloned()).collect();
    keep_promises(engine, &jaxpr, &args, |got| got.map(Some).map_err(|e| e.to_string())).ok().flatten()
}

/// The program as `jit` passes it to the device.
fn placed(device: &dyn Device, jaxpr: &Arc<Jaxpr>) -> Result<Arc<Jaxpr>, Error> {
    if device.devices() > 1 { Ok(jaxpr.clone()) } else { Ok(Arc::new(on_one_device(jaxpr)?.into_owned())) }
}

/// Runs a program on an engine, and checks its promises other than results. `agree` compares the results, and returns them, if any; they
/// are returned here too.
pub(crate) fn keep_promises(
    engine: &Engine,
    jaxpr: &Arc<Jaxpr>,
    args: &[Array],
    agree: impl FnOnce(Result<Vec<Array>, Error>) -> Result<Option<Vec<Array>>, String>,
) -> Result<Option<Vec<Array>>, String> {
    let is_exact = engine.is_exact;
    let jaxpr = &placed(&*engine.device, jaxpr).map_err(|e| e.to_string())?;
    let executable = match engine.device.compile(jaxpr) {
        Ok(executable) => executable,
        Err(error) => return agree(Err(error)),
    };
    let before: Vec<Array> = args.iter().map(copy).collect();
    let (got, events) = run(&*executable, args.to_vec(), is_exact);
    if !is_identical(args, &before) {
        return Err("an argument that has another reference was overwritten".to_string());
    }
    let Some(got) = agree(got)? else { return Ok(None) };
    if is_exact {
        let kept = account(&events, executable.memory(), args, &got, None)?;
        let (again, events) = run(&*executable, args.to_vec(), true);
        let again = again.map_err(|e| e.to_string())?;
        account(&events, executable.memory(), args, &again, Some(kept))?;
    }
    // The copies have no other references, and may be overwritten.
    let donated = run(&*executable, before, false).0.map_err(|e| e.to_string())?;
    if !is_identical(&donated, &got) {
        return Err("the results have other bits where arguments may be overwritten".to_string());
    }
    for (label, device) in &engine.variants {
        let executable = device.compile(jaxpr).map_err(|e| e.to_string())?;
        let (other, events) = run(&*executable, args.to_vec(), is_exact);
        let other = other.map_err(|e| e.to_string())?;
        if is_exact {
            account(&events, executable.memory(), args, &other, None)?;
        }
        if !is_identical(&other, &got) {
            return Err(format!("the results have other bits with {label}"));
        }
    }
    Ok(Some(got))
}

/// Runs a program; `is_recorded` says whether allocated blocks are recorded.
fn run(executable: &dyn Executable, args: Vec<Array>, is_recorded: bool) -> (Result<Vec<Array>, Error>, Vec<Event>) {
    if is_recorded { Recording::record(|| executable.run(args)) } else { (executable.run(args), Vec::new()) }
}

/// A copy that shares nothing.
fn copy(x: &Array) -> Array {
    Array::new(x.aval().clone(), x.data().clone()).expect("the elements are those of an array")
}
