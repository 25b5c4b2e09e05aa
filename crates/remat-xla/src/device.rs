//! The engine: programs compiled by a plugin, on arrays of the host.

use std::sync::Arc;

use remat_ir::{
    Array, Aval, Device, Error, ErrorKind, Executable, Jaxpr, LiveKind, LiveValue, Loc, MemoryReport, MemoryStats,
    Result, counted,
};

use crate::pjrt::{Buffer, Client, Loaded};
use crate::{Options, Platform, Plugin, compile_options, stablehlo};

/// XLA, as an engine.
///
/// Arguments are copied to the device and results from it, in every run.
///
/// ```
/// use remat_ir::{Array, Device, Jaxpr};
/// use remat_xla::Xla;
/// # fn main() -> remat_ir::Result<()> {
/// // Without the plugin there is an error that names the command that installs it.
/// let Ok(xla) = Xla::cpu() else { return Ok(()) };
/// let program: Jaxpr = "{ lambda ; a:f32[2]. let b:f32[2] = mul a 2.0:f32[] in (b,) }".parse()?;
/// let results = xla.compile(&program.into())?.run(vec![Array::from_vec(vec![1.0f32, 2.5], [2])?])?;
/// assert_eq!(results[0].as_slice::<f32>(), Some(&[2.0, 5.0][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Xla {
    client: Arc<Client>,
    platform: Platform,
    name: String,
}

impl Xla {
    /// One device of the CPU plugin that [`Plugin::find`] finds.
    ///
    /// # Errors
    /// As [`Plugin::find`], and if the plugin gives no client.
    pub fn cpu() -> Result<Xla> {
        Xla::new(&Plugin::find(Platform::Cpu)?)
    }

    /// The first device of a plugin.
    ///
    /// # Errors
    /// If the plugin gives no client: there is no such chip, or its driver is missing.
    pub fn new(plugin: &Plugin) -> Result<Xla> {
        let (platform, name, options): (_, _, &[(&str, i64)]) = match plugin.platform() {
            Platform::Cpu => (Platform::Cpu, "xla-cpu", &[("cpu_device_count", 1)]),
            Platform::Gpu => (Platform::Gpu, "xla-cuda", &[]),
            Platform::Tpu => (Platform::Tpu, "xla-tpu", &[]),
        };
        let client = Arc::new(Client::new(plugin.library, options)?);
        Ok(Xla { client, platform, name: name.to_string() })
    }

    /// The version of the platform, as the plugin has it.
    ///
    /// # Errors
    /// If the plugin does not tell.
    pub fn platform_version(&self) -> Result<String> {
        self.client.platform_version()
    }

    /// The number of devices of this process.
    ///
    /// # Errors
    /// If the plugin does not tell.
    pub fn num_devices(&self) -> Result<usize> {
        self.client.num_devices()
    }

    fn options(&self) -> Options {
        Options { platform: self.platform, ..Options::default() }
    }
}

impl Device for Xla {
    fn name(&self) -> &str {
        &self.name
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        let module = stablehlo(jaxpr, &self.options())?;
        let loaded = self.client.compile(&module, &compile_options::encoded(self.platform, &module))?;
        let (ins, outs) = (jaxpr.in_avals(), jaxpr.out_avals());
        loaded.expect_outputs(&outs)?;
        let memory = loaded.memory()?;
        Ok(Arc::new(Compiled { client: self.client.clone(), loaded, ins, outs, memory }))
    }

    fn steps(&self, jaxpr: &Arc<Jaxpr>) -> Result<String> {
        stablehlo(jaxpr, &self.options())
    }
}

/// A compiled program.
struct Compiled {
    client: Arc<Client>,
    loaded: Loaded,
    ins: Vec<Aval>,
    outs: Vec<Aval>,
    memory: MemoryStats,
}

impl Executable for Compiled {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        let fails = |message| Err(Error::new(ErrorKind::Argument, "xla", message));
        if args.len() != self.ins.len() {
            let message = format!("the program takes {} and got {}", counted(self.ins.len(), "argument"), args.len());
            return fails(message);
        }
        for (i, (arg, aval)) in args.iter().zip(&self.ins).enumerate() {
            if arg.aval() != aval {
                return fails(format!("argument {i} is {aval} and got {}", arg.aval()));
            }
        }
        let args: Vec<Buffer> = args.iter().map(|arg| self.client.upload(arg, 0)).collect::<Result<_>>()?;
        let results = self.loaded.run(&args, self.outs.len())?;
        results.iter().zip(&self.outs).map(|(result, aval)| result.download(aval)).collect()
    }

    fn memory(&self) -> MemoryStats {
        self.memory
    }

    /// Plugins do not tell which temporaries are live at the peak: they are one value.
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
        let temporaries = Aval::new(remat_ir::DType::U8, [self.memory.temporaries]);
        let temporaries = (self.memory.temporaries > 0).then(|| value(&temporaries, LiveKind::Temporary));
        MemoryReport::new(self.memory, arguments.chain(outputs).chain(temporaries).collect())
    }
}
