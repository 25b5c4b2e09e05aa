//! Compiled programs.

use std::sync::{Arc, OnceLock};

use remat_ir::{
    Array, Aval, DType, Device, DeviceArray, Error, ErrorKind, Executable, Jaxpr, LiveKind, LiveValue, Loc,
    MemoryReport, MemoryStats, Result, Value, expect_arguments,
};

use super::{OnDevice, Xla};
use crate::pjrt::{Buffer, Loaded};
use crate::{compile_options, stablehlo};

/// A compiled program.
///
/// XLA decides when it compiles which results lie in the memory of arguments, and copies an argument that is to be one and is kept.
/// So there are two executables: one for runs whose arguments are all kept, and one for runs to which some are given up. The second is
/// compiled when it is first needed, as the first is if the caller said that arguments will be given up.
pub(super) struct Compiled {
    device: Xla,
    jaxpr: Arc<Jaxpr>,
    ins: Vec<Aval>,
    outs: Vec<Aval>,
    keeping: OnceLock<Result<Loaded>>,
    donating: OnceLock<Result<Loaded>>,
    memory: MemoryStats,
    /// Whose figures those are.
    source: &'static str,
}

/// An argument of a run.
enum Argument {
    /// No one else has it.
    Given(Buffer),
    Kept(Arc<DeviceArray>),
}

impl Compiled {
    pub(super) fn new(device: Xla, jaxpr: Arc<Jaxpr>, donates: bool) -> Result<Compiled> {
        let (ins, outs) = (jaxpr.in_avals(), jaxpr.out_avals());
        let (keeping, donating) = (OnceLock::new(), OnceLock::new());
        let (memory, source) = (MemoryStats::default(), "arguments, outputs and temporaries are XLA's own figures");
        let mut compiled = Compiled { device, jaxpr, ins, outs, keeping, donating, memory, source };
        match compiled.loaded(donates)?.memory()? {
            Some(memory) => compiled.memory = memory,
            None => {
                compiled.memory = compiled.known_memory();
                compiled.source = "arguments and outputs alone: the plugin does not tell the temporaries";
            }
        }
        Ok(compiled)
    }

    /// What is known without the plugin.
    fn known_memory(&self) -> MemoryStats {
        let bytes = |avals: &[Aval]| avals.iter().map(Aval::bytes).sum();
        let (arguments, outputs): (usize, usize) = (bytes(&self.ins), bytes(&self.outs));
        MemoryStats {
            arguments,
            outputs,
            temporaries: 0,
            overhead: 0,
            peak: arguments + outputs,
            donated_peak: arguments + outputs,
        }
    }

    /// The executable for runs to which arguments are given up, or for others.
    fn loaded(&self, donates: bool) -> Result<&Loaded> {
        let loaded = if donates { &self.donating } else { &self.keeping };
        loaded.get_or_init(|| self.load(donates)).as_ref().map_err(Clone::clone)
    }

    fn load(&self, donates: bool) -> Result<Loaded> {
        let super::Inner { compiler, platform, ordinal, .. } = &*self.device.0;
        let module = stablehlo(&self.jaxpr, &self.device.options(donates))?;
        let options = compile_options::encoded(*platform, &module, compiler.client.device_id(*ordinal)?);
        compiler.compile(&module, &options, [self.ins.clone(), self.outs.clone()])
    }

    fn argument(&self, value: Value) -> Result<Argument> {
        let Value::Device(array) = value else {
            let super::Inner { compiler, ordinal, .. } = &*self.device.0;
            return Ok(Argument::Given(compiler.client.upload(value.host()?, *ordinal)?));
        };
        if !array.buffer().is_some_and(|array: &OnDevice| array.device.is(&self.device)) {
            let message =
                format!("the program is on {} and an argument on {}", self.device.name(), array.device_name());
            return Err(Error::new(ErrorKind::Argument, "xla", message));
        }
        match Arc::try_unwrap(array) {
            Err(array) => Ok(Argument::Kept(array)),
            Ok(array) => match array.into_buffer::<OnDevice>() {
                Some(array) => Ok(Argument::Given(array.buffer)),
                None => Err(lost()),
            },
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "xla", "an argument is another engine's")
}

impl Executable for Compiled {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        let results = self.execute(args.into_iter().map(Value::Host).collect())?;
        results.into_iter().map(Value::into_host).collect()
    }

    fn execute(&self, args: Vec<Value>) -> Result<Vec<Value>> {
        expect_arguments("xla", self.ins.iter(), args.iter().map(Value::aval))?;
        let donates = args.iter().any(Value::is_given_up);
        let loaded = self.loaded(donates)?;
        let args = args.into_iter().map(|value| self.argument(value)).collect::<Result<Vec<Argument>>>()?;
        let buffers = args.iter().map(|arg| match arg {
            Argument::Given(buffer) => Ok((buffer, donates)),
            Argument::Kept(array) => match array.buffer::<OnDevice>() {
                Some(array) => Ok((&array.buffer, false)),
                None => Err(lost()),
            },
        });
        let results = loaded.run(&buffers.collect::<Result<Vec<_>>>()?)?;
        let value = |buffer| Value::on_device(OnDevice { buffer, device: self.device.clone() });
        Ok(results.into_iter().map(value).collect())
    }

    fn memory(&self) -> MemoryStats {
        self.memory
    }

    /// Plugins do not tell which temporaries are live at the peak: they are one value. Bytes that arguments and outputs share are not
    /// in the peak.
    fn memory_report(&self) -> MemoryReport {
        let value = |aval: &Aval, kind| LiveValue {
            bytes: aval.bytes(),
            aval: aval.clone(),
            kind,
            name: None,
            operation: None,
            loc: Loc::UNKNOWN,
        };
        let arguments = self.ins.iter().enumerate().map(|(i, aval)| value(aval, LiveKind::Argument(i)));
        let outputs = self.outs.iter().map(|aval| value(aval, LiveKind::Output));
        let temporaries = Aval::new(DType::U8, [self.memory.temporaries]);
        let temporaries = (self.memory.temporaries > 0).then(|| value(&temporaries, LiveKind::Temporary));
        MemoryReport::new(self.memory, arguments.chain(outputs).chain(temporaries).collect()).told_by(self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(value: &Value) -> usize {
        let Value::Device(array) = value else { panic!("it is on the host") };
        array.buffer::<OnDevice>().unwrap().buffer.address()
    }

    /// By the addresses of buffers: arguments that are given up are where results are afterwards, and those that are kept are not.
    #[test]
    fn results_lie_in_the_memory_of_arguments_that_are_given_up() {
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
        // None is given up.
        let given = args();
        let before: Vec<usize> = given.iter().map(address).collect();
        let results = compiled.execute(given.clone()).unwrap();
        assert!(results.iter().map(address).all(|address| !before.contains(&address)));
    }
}
