//! Compiled programs.

use std::sync::Arc;

use remat_ir::{
    Array, Aval, Device, DeviceArray, Error, ErrorKind, Executable, Jaxpr, MemoryReport, MemoryStats, Result, Value,
    expect_arguments,
};

use super::program::{Placed, Program, donated, run_on_host};
use super::{OnDevice, Xla};
use crate::pjrt::Buffer;

/// A compiled program.
pub(super) struct Compiled {
    device: Xla,
    program: Program,
    ins: Vec<Aval>,
}

impl Compiled {
    pub(super) fn new(device: Xla, jaxpr: Arc<Jaxpr>, donated: &[bool]) -> Result<Compiled> {
        let super::Inner { compiler, platform, ordinal, .. } = &*device.0;
        let placed = Placed::On(compiler.client.device_id(*ordinal)?);
        let (ins, outs) = (jaxpr.in_avals(), jaxpr.out_avals());
        let program = Program::new((compiler.clone(), *platform), jaxpr, placed, [ins.clone(), outs], donated)?;
        Ok(Compiled { device, program, ins })
    }

    /// See [`Xla::plugin_seconds`].
    pub(super) fn plugin_seconds(&self, args: &[Array], calls: usize) -> Result<f64> {
        expect_arguments("xla", self.ins.iter(), args.iter().map(Array::aval))?;
        let super::Inner { compiler, ordinal, .. } = &*self.device.0;
        let upload = |array: &Array| compiler.client.upload(array, *ordinal);
        let buffers = args.iter().map(upload).collect::<Result<Vec<Buffer>>>()?;
        let (ready, buffers) = (self.program.ready(&[])?, buffers.iter().collect::<Vec<&Buffer>>());
        let mut seconds =
            (0..25).map(|_| ready.loaded.plugin_seconds(&buffers, calls)).collect::<Result<Vec<f64>>>()?;
        seconds.sort_by(f64::total_cmp);
        Ok(seconds[seconds.len() / 2])
    }

    /// The argument as an array of the device. If it has no other references, that stays so until the run has started.
    fn argument(&self, value: Value) -> Result<Arc<DeviceArray>> {
        let array = match value {
            Value::Device(array) => array,
            Value::Host(array) => {
                let super::Inner { compiler, ordinal, .. } = &*self.device.0;
                let buffer = compiler.client.upload(&array, *ordinal)?;
                return Ok(DeviceArray::new(OnDevice { buffer, device: self.device.clone() }));
            }
        };
        if array.buffer().is_some_and(|array: &OnDevice| array.device.is(&self.device)) {
            return Ok(array);
        }
        let message = format!("the program is on {} and an argument on {}", self.device.name(), array.device_name());
        Err(Error::new(ErrorKind::Argument, "xla", message))
    }
}

/// The buffer of an argument.
fn buffer(array: &DeviceArray) -> Result<&Buffer> {
    let lost = || Error::new(ErrorKind::Internal, "xla", "an argument is another engine's");
    array.buffer().map(|array: &OnDevice| &array.buffer).ok_or_else(lost)
}

impl Executable for Compiled {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        run_on_host(self, args)
    }

    fn execute(&self, args: Vec<Value>) -> Result<Vec<Value>> {
        expect_arguments("xla", self.ins.iter(), args.iter().map(Value::aval))?;
        let ready = self.program.ready(&donated(&args))?;
        let args = args.into_iter().map(|value| self.argument(value)).collect::<Result<Vec<_>>>()?;
        let mut buffers = Vec::with_capacity(args.len());
        for array in &args {
            buffers.push(buffer(array)?);
        }
        let value = |buffer| Value::on_device(OnDevice { buffer, device: self.device.clone() });
        ready.loaded.run(buffers.into_iter(), value)
    }

    fn place(&self, _: usize, value: Value) -> Result<Value> {
        self.argument(value).map(Value::Device)
    }

    fn memory(&self) -> MemoryStats {
        self.program.memory()
    }

    fn memory_report(&self) -> MemoryReport {
        self.program.memory_report()
    }

    fn peak_of(&self, args: &[Value]) -> usize {
        self.program.peak_of(args)
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::DType;

    use super::*;

    fn address(value: &Value) -> usize {
        let Value::Device(array) = value else { panic!("it is on the host") };
        array.buffer::<OnDevice>().unwrap().buffer.address()
    }

    /// Compares the addresses of buffers: results take the memory of donated arguments, but not of those that are kept.
    #[test]
    fn results_lie_in_the_memory_of_donated_arguments() {
        let Some(xla) = crate::support::xla() else { return };
        let program = "{ lambda ; a:f32[1000] b:f32[500,2] c:i32[1000] d:f32[1000]. let e:f32[500,2] = mul b 2.0:f32[]; \
                       f:f32[1000] = add a d; g:i32[1000] = neg c in (e, f, g) }";
        let compiled = xla.compile(&Arc::new(program.parse::<Jaxpr>().unwrap())).unwrap();
        let put = |shape: &[usize], dtype| {
            xla.put(&Array::full(remat_ir::Literal::from_f64(dtype, 1.5), shape.iter().copied())).unwrap()
        };
        let args = || {
            vec![
                put(&[1000], DType::F32),
                put(&[500, 2], DType::F32),
                put(&[1000], DType::I32),
                put(&[1000], DType::F32),
            ]
        };
        let given = args();
        let before: Vec<usize> = given.iter().map(address).collect();
        let results = compiled.execute(given).unwrap();
        assert_eq!(results.iter().map(address).collect::<Vec<_>>(), [before[1], before[0], before[2]]);
        // Each argument may be kept. Its result then has its own memory, or that of another argument of its aval; the others are donated as
        // before.
        for (kept, places) in [(0, [1, 3, 2]), (1, [9, 0, 2]), (2, [1, 0, 9]), (3, [1, 0, 2])] {
            let given = args();
            let before: Vec<usize> = given.iter().map(address).collect();
            let kept = given[kept].clone();
            let results = compiled.execute(given).unwrap();
            let place = |result: &Value| before.iter().position(|place| *place == address(result)).unwrap_or(9);
            assert_eq!([0, 1, 2].map(|k| place(&results[k])), places);
            let literal = |array: &Array| array.data().get(0).unwrap().as_f64();
            assert_eq!(literal(kept.host().unwrap()), if kept.aval().dtype == DType::I32 { 1.0 } else { 1.5 });
            assert_eq!([0, 1, 2].map(|k| literal(results[k].host().unwrap())), [3.0, 3.0, -1.0]);
        }
        // No argument is donated.
        let given = args();
        let before: Vec<usize> = given.iter().map(address).collect();
        let results = compiled.execute(given.clone()).unwrap();
        assert!(results.iter().map(address).all(|address| !before.contains(&address)));
    }
}
