//! The engine: programs compiled by a plugin, on arrays that stay on its device.
//!
//! Arguments are checked before a run, since plugins check only the number of bytes. Results are requested in row-major order. The C header
//! does not specify threads; sharing handles relies on JAX doing so, and on a test.

mod array;
mod clients;
mod compiler;
mod executable;
mod program;
mod reshard;
mod several;

use std::sync::Arc;

use remat_cluster::KeyValueStore;
use remat_ir::{
    Array, CompileOptions, Device, Error, ErrorKind, Executable, Jaxpr, MemorySpace, Pass, Result, Value, counted,
};
use remat_opt::pipeline;

use self::array::OnDevice;
use self::compiler::Compiler;
use self::executable::Compiled;
pub use self::several::XlaDevices;
use crate::{Attention, DeviceMemory, Options, Platform, Plugin, stablehlo};

/// A device of XLA, and its engine.
///
/// Arguments from the host are copied to the device. Results stay there until they are read, and [`Executable::execute`] returns before
/// they are computed. An argument without other references gives its memory to a result with the same aval. On GPUs and TPUs, programs with
/// arguments or results in host memory are refused; intermediate values may be there. If a plugin does not report the memory of a run, only
/// arguments and results are counted.
///
/// An executable can run on several threads at the same time.
///
/// Flags of XLA in the environment (`XLA_FLAGS`) apply, except for those on which results depend: `xla_allow_excess_precision`, and on CPUs
/// `xla_cpu_enable_fast_min_max` and, for programs with barriers, the list `xla_disable_hlo_passes`.
///
/// ```
/// use remat_ir::{Array, Device, Jaxpr};
/// use remat_xla::Xla;
/// # fn main() -> remat_ir::Result<()> {
/// // Without the plugin there is an error that names the command that installs it.
/// let Ok(xla) = Xla::cpu() else { return Ok(()) };
/// let program: Jaxpr = "{ lambda ; a:f32[2]. let b:f32[2] = mul a 2.0:f32[] in (b,) }".parse()?;
/// let doubled = xla.compile(&program.into())?;
/// let x = xla.put(&Array::from_vec(vec![1.0f32, 2.5], [2])?)?;
/// let results = doubled.execute(vec![x])?;
/// assert_eq!(results[0].device_name(), Some("xla-cpu:0"));
/// assert_eq!(results[0].host()?.as_slice::<f32>(), Some(&[2.0, 5.0][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Xla(Arc<Inner>);

struct Inner {
    compiler: Arc<Compiler>,
    platform: Platform,
    ordinal: usize,
    name: String,
}

impl Xla {
    /// The first device of the CPU plugin that [`Plugin::find`] finds.
    ///
    /// # Errors
    /// As [`Xla::device`].
    pub fn cpu() -> Result<Xla> {
        Xla::device(Platform::Cpu, 0)
    }

    /// The device with this ordinal of the plugin that [`Plugin::find`] finds.
    ///
    /// # Errors
    /// As [`Plugin::find`] and [`Xla::of_plugin`].
    pub fn device(platform: Platform, ordinal: usize) -> Result<Xla> {
        Xla::of_plugin(&Plugin::find(platform)?, ordinal)
    }

    /// The device with this name, `cuda:1`, or `cuda` for the first; nothing if that is not the name of one device of XLA.
    ///
    /// ```
    /// assert!(remat_xla::Xla::named("cpu")?.is_none(), "that is the native engine");
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Xla::device`].
    pub fn named(name: &str) -> Result<Option<Xla>> {
        let ordinal = name.split_once(':').map_or(Some(0), |(_, ordinal)| ordinal.parse().ok());
        let place = Platform::of_device(name).zip(ordinal);
        place.map(|(platform, ordinal)| Xla::device(platform, ordinal)).transpose()
    }

    /// The first device of a plugin.
    ///
    /// # Errors
    /// As [`Xla::of_plugin`].
    pub fn new(plugin: &Plugin) -> Result<Xla> {
        Xla::of_plugin(plugin, 0)
    }

    /// The device with this ordinal of a plugin. All devices of a plugin share one client, which lasts as long as the process.
    ///
    /// # Errors
    /// If the plugin cannot create a client, because there is no such chip or its driver is missing; if it has fewer devices.
    pub fn of_plugin(plugin: &Plugin, ordinal: usize) -> Result<Xla> {
        let (platform, compiler) = (plugin.platform(), clients::of(plugin, 1)?);
        let client = &compiler.client;
        let name = format!("{}:{ordinal}", platform.device_name());
        if ordinal >= client.num_devices() {
            let message = format!("there is no device {name}, only {}", counted(client.num_devices(), "device"));
            return Err(Error::new(ErrorKind::Argument, "xla", message));
        }
        Ok(Xla(Arc::new(Inner { compiler, platform, ordinal, name })))
    }

    /// Makes the devices of this process work with those of the other nodes of a cluster. The plugin uses the cluster's key-value store to
    /// find them. Call it before anything else is done with the plugin; it waits until all nodes have joined. The hosts of a TPU find each
    /// other on their own, so for them it does nothing. It has not yet run on several hosts with GPUs: only a test double of a plugin has
    /// called the store.
    ///
    /// # Errors
    /// If the plugin is that for CPUs, which works in one process only; if a device was used before; if there is no such chip, or the
    /// cluster fails.
    pub fn join(plugin: &Plugin, store: &Arc<KeyValueStore>) -> Result<()> {
        clients::join(plugin, store)
    }

    /// The version of the platform, according to the plugin.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn platform_version(&self) -> Result<String> {
        self.0.compiler.client.platform_version()
    }

    /// The memory of the device, as its allocator counts it; `None` if the plugin does not count, as that for CPUs.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn device_memory(&self) -> Result<Option<DeviceMemory>> {
        self.0.compiler.client.device_memory(self.0.ordinal)
    }

    /// The plugin's name for the device: the model of its chip.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn kind(&self) -> Result<String> {
        Ok(self.0.compiler.client.device_kinds()?.swap_remove(self.0.ordinal))
    }

    /// The number of devices of this process.
    pub fn num_devices(&self) -> usize {
        self.0.compiler.client.num_devices()
    }

    /// The number of arrays on the devices of its client, in values and in runs that have not started.
    pub fn num_arrays(&self) -> usize {
        self.0.compiler.client.num_buffers()
    }

    /// The seconds that the plugin itself takes for one call of a program, a baseline for calls through an engine: the median over 25
    /// measurements of `calls` calls each. Arguments are moved to the device before and are not donated; results are not read.
    ///
    /// # Errors
    /// If the program cannot be compiled or run, or the arguments do not match it.
    pub fn plugin_seconds(&self, jaxpr: &Arc<Jaxpr>, args: &[Array], calls: usize) -> Result<f64> {
        Compiled::new(self.clone(), jaxpr.clone(), &[])?.plugin_seconds(args, calls)
    }

    /// Whether both are the same device.
    fn is(&self, other: &Xla) -> bool {
        Arc::ptr_eq(&self.0.compiler.client, &other.0.compiler.client) && self.0.ordinal == other.0.ordinal
    }

    /// Fails if an argument or result is in the host's memory and that is separate from the device's.
    fn expect_device_memory(&self, jaxpr: &Jaxpr) -> Result<()> {
        if !self.0.platform.has_host_memory() {
            return Ok(());
        }
        let all = [("argument", jaxpr.in_avals()), ("result", jaxpr.out_avals())];
        let all = all.iter().flat_map(|(kind, avals)| avals.iter().enumerate().map(move |(i, aval)| (kind, i, aval)));
        match all.into_iter().find(|(.., aval)| aval.memory != MemorySpace::Device) {
            None => Ok(()),
            Some((kind, i, aval)) => {
                let message = format!(
                    "{kind} {i} is {aval}; arguments and results in host memory are not supported on {}",
                    self.0.name
                );
                Err(Error::new(ErrorKind::Argument, "xla", message))
            }
        }
    }
}

impl Device for Xla {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn passes(&self) -> &'static [Pass] {
        pipeline::XLA
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        self.compile_with(jaxpr, &CompileOptions::default())
    }

    fn compile_with(&self, jaxpr: &Arc<Jaxpr>, options: &CompileOptions) -> Result<Arc<dyn Executable>> {
        self.expect_device_memory(jaxpr)?;
        Ok(Arc::new(Compiled::new(self.clone(), jaxpr.clone(), &options.donated)?))
    }

    fn put(&self, array: &Array) -> Result<Value> {
        let buffer = self.0.compiler.client.upload(array, self.0.ordinal)?;
        Ok(Value::on_device(OnDevice { buffer, device: self.clone() }))
    }

    fn steps(&self, jaxpr: &Arc<Jaxpr>) -> Result<String> {
        let attention = Attention::of_environment()?;
        stablehlo(jaxpr, &Options { platform: self.0.platform, attention, ..Options::default() })
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Aval, DType};

    use super::*;
    use crate::compile_options;
    use crate::pjrt::Client;

    /// The client of the plugin for CPUs, where it is installed.
    fn client() -> Option<Arc<Client>> {
        crate::support::xla().map(|xla| xla.0.compiler.client.clone())
    }

    /// The layout of a download has as many dimensions as the array.
    #[test]
    fn arrays_of_every_rank_come_back() {
        let Some(client) = client() else { return };
        for shape in [&[][..], &[0], &[5], &[2, 3], &[3, 0, 2], &[2, 1, 3, 4]] {
            let len = shape.iter().product();
            let x = Array::from_vec((0..len).map(|i: usize| i as f32).collect(), shape.iter().copied()).unwrap();
            let y = client.upload(&x, 0).unwrap().download().unwrap();
            assert_eq!((y.aval(), y.as_slice::<f32>()), (x.aval(), x.as_slice()));
        }
    }

    #[test]
    fn a_module_with_other_results_than_its_avals_is_refused() {
        let Some(client) = client() else { return };
        let program: Jaxpr = "{ lambda ; a:f32[2]. let b:f32[2] = sin a in (b,) }".parse().unwrap();
        let module = stablehlo(&program, &Options::default()).unwrap();
        let options = compile_options::encoded(Platform::Cpu, &module, 0);
        let [given, other] = [[2], [3]].map(|shape| Aval::new(DType::F32, shape));
        for outs in [vec![other.clone()], vec![given.with_dtype(DType::I32)], vec![], vec![given.clone(); 2]] {
            let error = client.compile(&module, &options, [vec![given.clone()], outs]).map(drop).unwrap_err();
            assert_eq!(error.to_string(), "xla: the compiled program has other results than the program");
        }
        let outs = vec![given.clone()];
        let loaded = client.compile(&module, &options, [vec![given], outs]).unwrap();
        let error = loaded.run(std::iter::empty(), drop).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "xla: the arguments are not those of the program");
    }
}
