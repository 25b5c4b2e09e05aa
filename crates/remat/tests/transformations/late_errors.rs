//! Errors of runs that have begun: they come with the read, and name the line of the call.

use std::sync::Arc;

use remat::{Device, JitOptions, Tensor, jit_with};
use remat_ir::{
    Array, Aval, DeviceBuffer, Error, ErrorKind, Executable, Jaxpr, MemoryReport, MemoryStats, Result, Value,
};

/// A device on which every run begins and then fails.
#[derive(Clone)]
struct Failing;

/// What a run was to compute.
struct Pending(Aval);

struct Program(Arc<Jaxpr>);

fn failure() -> Error {
    Error::new(ErrorKind::Internal, "xla", "PJRT_Event_Await: the device fell off the bus")
}

impl DeviceBuffer for Pending {
    fn aval(&self) -> &Aval {
        &self.0
    }

    fn device_name(&self) -> &str {
        "failing:0"
    }

    fn device(&self) -> Arc<dyn remat_ir::Device> {
        Arc::new(Failing)
    }

    fn wait(&self) -> Result<()> {
        Err(failure())
    }

    fn to_host(&self) -> Result<Array> {
        Err(failure())
    }
}

impl remat_ir::Device for Failing {
    fn name(&self) -> &str {
        "failing:0"
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Program(jaxpr.clone())))
    }
}

impl Executable for Program {
    fn run(&self, _: Vec<Array>) -> Result<Vec<Array>> {
        Err(failure())
    }

    fn execute(&self, _: Vec<Value>) -> Result<Vec<Value>> {
        Ok(self.0.out_avals().into_iter().map(|aval| Value::on_device(Pending(aval))).collect())
    }

    fn memory(&self) -> MemoryStats {
        MemoryStats::default()
    }

    fn memory_report(&self) -> MemoryReport {
        MemoryReport::new(self.memory(), Vec::new())
    }
}

fn line(error: &Error) -> Option<u32> {
    error.loc().and_then(|loc| loc.site).map(|site| site.line())
}

#[test]
fn an_error_comes_with_the_read_and_names_the_call() {
    let options = JitOptions { device: Some(Device::new(Failing)), ..JitOptions::default() };
    let f = jit_with(&options, |x: &Tensor| x * 2.0);
    let called = line!() + 1;
    let first = f.call(Tensor::new([1.0f32, 2.0])).unwrap();
    let passed = line!() + 1;
    let second = f.call(first.clone()).unwrap();
    let eager = line!() + 1;
    let third = &second + &second;
    let kept = first.clone();
    for (result, expected) in [(first, called), (second, passed), (third, eager), (kept, called)] {
        for error in
            [result.wait().unwrap_err(), result.to_vec::<f32>().unwrap_err(), result.to_vec::<f32>().unwrap_err()]
        {
            assert_eq!((line(&error), error.message()), (Some(expected), failure().message()));
            assert_eq!(error.kind(), ErrorKind::Internal);
        }
    }
}
