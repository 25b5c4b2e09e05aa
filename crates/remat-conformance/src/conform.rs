//! Running one program on an engine.

use std::sync::Arc;

use remat::Tensor;
use remat_alloc::{Event, Recording};
use remat_ir::{Array, ClosedJaxpr, Device, Error, Executable, Jaxpr, Reference};

use crate::arrays::array;
use crate::closeness::{Closeness, Scale, difference, is_identical};
use crate::engine::Engine;
use crate::memory::account;

/// Compares a device with the evaluator: results that are close, or the same error. Gives the results, if there are any.
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

/// Runs a program on an engine and on the evaluator, and compares all that the engine promises. That the evaluator fails is a
/// failure too: it would compare nothing.
pub(crate) fn conform(engine: &Engine, jaxpr: &Jaxpr, args: &[Array], closeness: Closeness) -> Result<(), String> {
    let jaxpr = Arc::new(jaxpr.clone());
    let expected = evaluate(&jaxpr, args);
    if let Err(error) = &expected {
        return Err(format!("the evaluator fails: {error}\n{jaxpr}"));
    }
    compare(engine, &jaxpr, args, &expected, closeness)
}

/// As [`conform`]; where the evaluator fails, the engine has to fail with the same error.
pub(crate) fn conform_or_fail(
    engine: &Engine,
    jaxpr: &Jaxpr,
    args: &[Array],
    closeness: Closeness,
) -> Result<(), String> {
    let jaxpr = Arc::new(jaxpr.clone());
    compare(engine, &jaxpr, args, &evaluate(&jaxpr, args), closeness)
}

/// As [`conform`], on the tensors that a program captured and on these.
pub(crate) fn conform_traced(
    engine: &Engine,
    program: Result<ClosedJaxpr, Error>,
    args: &[Tensor],
    closeness: Closeness,
) -> Result<(), String> {
    let ClosedJaxpr { jaxpr, consts } = program.map_err(|e| e.to_string())?;
    let args: Vec<Array> = consts.into_iter().chain(args.iter().map(array)).collect();
    conform(engine, &jaxpr, &args, closeness)
}

fn evaluate(jaxpr: &Arc<Jaxpr>, args: &[Array]) -> Result<Vec<Array>, Error> {
    Reference.compile(jaxpr)?.run(args.to_vec())
}

fn compare(
    engine: &Engine,
    jaxpr: &Arc<Jaxpr>,
    args: &[Array],
    expected: &Result<Vec<Array>, Error>,
    closeness: Closeness,
) -> Result<(), String> {
    check(engine, jaxpr, args, expected, closeness).map_err(|e| format!("{}: {e}\n{jaxpr}", engine.device.name()))
}

fn check(
    engine: &Engine,
    jaxpr: &Arc<Jaxpr>,
    args: &[Array],
    expected: &Result<Vec<Array>, Error>,
    closeness: Closeness,
) -> Result<(), String> {
    let is_exact = engine.is_exact;
    let executable = match engine.device.compile(jaxpr) {
        Ok(executable) => executable,
        Err(error) => return agree(expected, Err(error), closeness, Scale::of(jaxpr, args)).map(|_| ()),
    };
    let before: Vec<Array> = args.iter().map(copy).collect();
    let (got, events) = run(&*executable, args.to_vec(), is_exact);
    if !is_identical(args, &before) {
        return Err("an argument that has another reference was overwritten".to_string());
    }
    let Some(got) = agree(expected, got, closeness, Scale::of(jaxpr, args))? else { return Ok(()) };
    if is_exact {
        let kept = account(&events, executable.memory(), args, &got, None)?;
        let (again, events) = run(&*executable, args.to_vec(), true);
        let again = again.map_err(|e| e.to_string())?;
        account(&events, executable.memory(), args, &again, Some(kept))?;
    }
    // The copies have no other reference, and may be overwritten.
    let given_up = run(&*executable, before, false).0.map_err(|e| e.to_string())?;
    if !is_identical(&given_up, &got) {
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
    Ok(())
}

/// Runs a program; `is_recorded` says whether the blocks that it asks for are wanted.
fn run(executable: &dyn Executable, args: Vec<Array>, is_recorded: bool) -> (Result<Vec<Array>, Error>, Vec<Event>) {
    if is_recorded { Recording::record(|| executable.run(args)) } else { (executable.run(args), Vec::new()) }
}

/// An array that shares nothing.
fn copy(x: &Array) -> Array {
    Array::new(x.aval().clone(), x.data().clone()).expect("the elements are those of an array")
}
