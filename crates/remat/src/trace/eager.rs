//! Operations and programs outside of any trace, on the device of their operands.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use remat_ir::{Array, Aval, Builder, Error, Executable, Jaxpr, Op, Result, Value};
use remat_opt::lru::Lru;

use crate::checks::Checks;
use crate::transform::{needs_one_device, on_one_device};

use super::device::{Device, default_device, device_of};

/// Operations compiled for a device, by the name of the device. The native engine has its own cache.
type CompiledOps = Lru<(String, Op, Vec<Aval>), Arc<dyn Executable>>;

static COMPILED: LazyLock<Mutex<CompiledOps>> = LazyLock::new(Mutex::default);

/// Applies an operation, with the checks that the environment asks for.
pub(super) fn apply(op: &Op, operands: Vec<Value>) -> Result<Vec<Value>> {
    match Checks::of_environment()?.with(compute) {
        Some(checked) => checked.apply(op, operands),
        None => compute(op, operands),
    }
}

/// Applies an operation without checks.
pub(crate) fn compute(op: &Op, operands: Vec<Value>) -> Result<Vec<Value>> {
    let Some(device) = other_than_native(op.name(), &operands)? else {
        if !needs_one_device(op) {
            return Ok(values(remat_cpu::apply(op, hosts(operands)?)?));
        }
        let program = one_equation(op, operands.iter().map(|value| value.aval().clone()))?;
        return Ok(values(remat_cpu::run(op.name(), &*on_one_device(&program)?, hosts(operands)?)?));
    };
    let avals: Vec<Aval> = operands.iter().map(|value| value.aval().clone()).collect();
    let key = (device.name().to_string(), op.clone(), avals);
    let compiled = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = compiled().get(&key);
    let executable = match known {
        Some(executable) => executable,
        None => {
            let program = Arc::new(one_equation(op, key.2.iter().cloned())?);
            let executable = device.engine().compile(&device.placed(&program)?)?;
            compiled().insert(key, executable.clone());
            executable
        }
    };
    executable.execute(operands).map_err(|error| named(op.name(), error))
}

/// The program of one operation on operands of these avals.
fn one_equation(op: &Op, operands: impl Iterator<Item = Aval>) -> Result<Jaxpr> {
    let mut builder = Builder::new();
    let ins = builder.inputs(operands);
    let outs = builder.emit(op.clone(), &ins)?;
    Ok(builder.finish(outs.to_vec()))
}

/// Runs a program once. Its errors start with `operation`.
pub(super) fn run(operation: &'static str, jaxpr: &Jaxpr, args: Vec<Value>) -> Result<Vec<Value>> {
    if let Some(checked) = Checks::of_environment()?.with(compute) {
        return checked.run(operation, jaxpr, args, |number| format!("argument {number}"));
    }
    match other_than_native(operation, &args)? {
        None => Ok(values(remat_cpu::run(operation, &*on_one_device(jaxpr)?, hosts(args)?)?)),
        Some(device) => {
            let run = || device.engine().compile(&device.placed(&Arc::new(jaxpr.clone()))?)?.execute(args);
            run().map_err(|error| named(operation, error))
        }
    }
}

/// The device for these operands, if it is not the native one.
fn other_than_native(operation: &str, operands: &[Value]) -> Result<Option<Device>> {
    match device_of(operation, operands)? {
        Some(device) => Ok(Some(device)),
        None => Ok(Some(default_device()?).filter(|device| !device.is_native()).cloned()),
    }
}

fn named(operation: &str, error: Error) -> Error {
    Error::new(error.kind(), operation, error.message())
}

/// Both lists have the same size and share memory, since the memory of a run has room for one.
fn hosts(values: Vec<Value>) -> Result<Vec<Array>> {
    const { assert!(size_of::<Value>() == size_of::<Array>()) };
    values.into_iter().map(Value::into_host).collect()
}

fn values(arrays: Vec<Array>) -> Vec<Value> {
    arrays.into_iter().map(Value::Host).collect()
}
