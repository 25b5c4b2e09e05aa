//! The engine: programs compiled by a plugin, on arrays of the host.

mod executable;

use std::sync::Arc;

use remat_ir::{Aval, Device, Error, ErrorKind, Executable, Jaxpr, MemorySpace, MemoryStats, Result};

use self::executable::Compiled;
use crate::pjrt::Client;
use crate::{Options, Platform, Plugin, compile_options, stablehlo};

/// XLA, as an engine.
///
/// Arguments are copied to the device and results from it, in every run. On GPUs and TPUs a program whose arguments or results are in
/// host memory is refused; values in between may be there. Where a plugin does not tell the memory of a run, arguments and results
/// alone are counted.
///
/// An executable may run on several threads at a time.
///
/// Flags of XLA in the environment (`XLA_FLAGS`) hold but for those that results depend on: `xla_allow_excess_precision`, and on
/// CPUs `xla_cpu_enable_fast_min_max` and, for programs with barriers, the list `xla_disable_hlo_passes`.
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

    /// Fails if an argument or result is in the host's memory, where that is another than the device's.
    fn expect_device_memory(&self, jaxpr: &Jaxpr) -> Result<()> {
        if !self.platform.has_host_memory() {
            return Ok(());
        }
        let all = [("argument", jaxpr.in_avals()), ("result", jaxpr.out_avals())];
        let all = all.iter().flat_map(|(kind, avals)| avals.iter().enumerate().map(move |(i, aval)| (kind, i, aval)));
        match all.into_iter().find(|(.., aval)| aval.memory != MemorySpace::Device) {
            None => Ok(()),
            Some((kind, i, aval)) => {
                let message = format!(
                    "{kind} {i} is {aval}; arguments and results in host memory are not supported on {}",
                    self.name
                );
                Err(Error::new(ErrorKind::Argument, "xla", message))
            }
        }
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
        self.expect_device_memory(jaxpr)?;
        let module = stablehlo(jaxpr, &self.options())?;
        let (ins, outs) = (jaxpr.in_avals(), jaxpr.out_avals());
        let options = compile_options::encoded(self.platform, &module);
        let loaded = self.client.compile(&module, &options, [ins.clone(), outs.clone()])?;
        let memory = match loaded.memory()? {
            Some(memory) => memory,
            None => {
                let bytes = |avals: &[Aval]| avals.iter().map(Aval::bytes).sum();
                let (arguments, outputs): (usize, usize) = (bytes(&ins), bytes(&outs));
                MemoryStats { arguments, outputs, temporaries: 0, overhead: 0, peak: arguments + outputs }
            }
        };
        Ok(Arc::new(Compiled { client: self.client.clone(), loaded, ins, outs, memory }))
    }

    fn steps(&self, jaxpr: &Arc<Jaxpr>) -> Result<String> {
        stablehlo(jaxpr, &self.options())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_ir::{Array, DType};

    /// The client of the plugin for CPUs, where it is installed.
    fn client() -> Option<Arc<Client>> {
        crate::support::xla().map(|xla| xla.client)
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
        let options = compile_options::encoded(Platform::Cpu, &module);
        let [given, other] = [[2], [3]].map(|shape| Aval::new(DType::F32, shape));
        for outs in [vec![other.clone()], vec![given.with_dtype(DType::I32)], vec![], vec![given.clone(); 2]] {
            let error = client.compile(&module, &options, [vec![given.clone()], outs]).map(drop).unwrap_err();
            assert_eq!(error.to_string(), "xla: the compiled program has other results than the program");
        }
        let outs = vec![given.clone()];
        let loaded = client.compile(&module, &options, [vec![given], outs]).unwrap();
        let error = loaded.run(&[]).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "xla: the arguments are not those of the program");
    }
}
