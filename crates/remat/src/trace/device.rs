//! Devices: where tensors are stored and programs run.

use std::borrow::Cow;
use std::env;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use remat_cpu::Cpu;
use remat_ir::{Error, ErrorKind, Jaxpr, Result, Value, did_you_mean};
use remat_xla::{Platform, Xla, XlaDevices};

use crate::transform::on_one_device;

/// The environment variable with the name of the default device.
const VARIABLE: &str = "REMAT_DEVICE";

/// The names of the kinds of devices.
const KINDS: [&str; 4] = [Cpu::NAME, "xla-cpu", "cuda", "tpu"];

/// A device, on which tensors are stored and programs run. Clones share it.
///
/// The native engine computes in the host's memory. The devices of XLA have their own memory; tensors get there by
/// [`Tensor::to_device`](crate::Tensor::to_device) or as results. An operation runs where its operands are, and tensors in the host's
/// memory follow the others. If all operands are in the host's memory, operations and jitted functions run on the default device: the one
/// named by the environment variable `REMAT_DEVICE` (as in [`Device::named`]), or else the native engine.
///
/// ```
/// use remat::{Device, Tensor};
/// let x = Tensor::new([1.0f32, 2.0]);
/// assert_eq!((&x + &x).device()?.name(), "cpu");
/// // Without the plugin there is an error that names the command that installs it.
/// if let Ok(device) = Device::xla_cpu(0) {
///     let y = x.to_device(&device).sin();
///     assert_eq!(y.device()?.name(), "xla-cpu:0");
///     println!("{y}");
/// }
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    engine: Arc<dyn remat_ir::Device>,
    /// Whether operations outside of programs use the native engine's own function for them.
    is_native: bool,
}

impl Device {
    /// A device of this engine.
    ///
    /// ```
    /// use remat::{Cpu, Device, Tensor, jit};
    /// let double = jit(|x: &Tensor| x + x).on(Device::new(Cpu::with_threads(1)?));
    /// assert_eq!(double.call(Tensor::from(1.5f32))?.item::<f32>()?, 3.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn new(engine: impl remat_ir::Device + 'static) -> Device {
        Device { engine: Arc::new(engine), is_native: false }
    }

    /// The native engine, with the number of threads in the environment variable `REMAT_THREADS`, or one per core.
    ///
    /// ```
    /// use remat::{Device, Tensor};
    /// assert_eq!(Tensor::from(1.0f32).to_device(&Device::cpu()).device()?.name(), Device::cpu().name());
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn cpu() -> Device {
        static NATIVE: LazyLock<Device> =
            LazyLock::new(|| Device { engine: Arc::new(Cpu::default()), is_native: true });
        NATIVE.clone()
    }

    /// The XLA CPU device with this ordinal.
    ///
    /// # Errors
    /// If the plugin is not installed (the error has the command that installs it); if there is no such device.
    pub fn xla_cpu(ordinal: usize) -> Result<Device> {
        Ok(Device::new(Xla::device(Platform::Cpu, ordinal)?))
    }

    /// The NVIDIA GPU with this ordinal, through XLA.
    ///
    /// # Errors
    /// As [`Device::xla_cpu`].
    pub fn cuda(ordinal: usize) -> Result<Device> {
        Ok(Device::new(Xla::device(Platform::Gpu, ordinal)?))
    }

    /// The TPU with this ordinal, through XLA.
    ///
    /// # Errors
    /// As [`Device::xla_cpu`].
    pub fn tpu(ordinal: usize) -> Result<Device> {
        Ok(Device::new(Xla::device(Platform::Tpu, ordinal)?))
    }

    /// The first `count` XLA CPU devices, as one device for programs on meshes ([`shard_map`](crate::shard_map) and shardings). They are
    /// virtual: up to 1,024 of them share the cores, so that a program for many devices can be tried on one machine.
    ///
    /// # Errors
    /// If the plugin is not installed (the error has the command that installs it); if `count` is 0 or more than 1,024.
    pub fn xla_cpus(count: usize) -> Result<Device> {
        Ok(Device::new(XlaDevices::find(Platform::Cpu, count)?))
    }

    /// The first `count` NVIDIA GPUs, through XLA, as one device for programs on meshes.
    ///
    /// # Errors
    /// If the plugin is not installed (the error has the command that installs it); if `count` is 0, or there are fewer devices.
    pub fn cudas(count: usize) -> Result<Device> {
        Ok(Device::new(XlaDevices::find(Platform::Gpu, count)?))
    }

    /// The first `count` TPUs, through XLA, as one device for programs on meshes.
    ///
    /// # Errors
    /// As [`Device::cudas`].
    pub fn tpus(count: usize) -> Result<Device> {
        Ok(Device::new(XlaDevices::find(Platform::Tpu, count)?))
    }

    /// The device with this name: `cpu`, or `xla-cpu`, `cuda` or `tpu`, optionally followed by an ordinal: `cuda:1`.
    ///
    /// ```
    /// use remat::Device;
    /// assert_eq!(Device::named("cpu")?.name(), "cpu");
    /// let error = Device::named("gpu:0").map(drop).unwrap_err();
    /// assert_eq!(error.message(), "unknown device 'gpu:0'; did you mean `cuda`?");
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no device with this name; as [`Device::xla_cpu`].
    pub fn named(name: &str) -> Result<Device> {
        let unknown = || {
            let all = || format!("; it is one of {}, such as cuda:0", KINDS.join(", "));
            let hint = match name.split(':').next().unwrap_or(name) {
                kind if KINDS.contains(&kind) => all(),
                // The nearest name is `cpu`, which is not what was meant.
                "gpu" => "; did you mean `cuda`?".to_string(),
                kind => did_you_mean(kind, KINDS, all),
            };
            Error::new(ErrorKind::Argument, "device", format!("unknown device '{name}'{hint}"))
        };
        if name == Cpu::NAME {
            return Ok(Device::cpu());
        }
        Xla::named(name)?.map(Device::from).ok_or_else(unknown)
    }

    /// The default device of operations and jitted functions: the one named by the environment variable `REMAT_DEVICE` at the first call,
    /// or else the native engine.
    ///
    /// # Errors
    /// As [`Device::named`].
    pub fn default_device() -> Result<Device> {
        default_device().cloned()
    }

    /// The name with its ordinal: `cpu`, `xla-cpu:0`, `cuda:1`. Devices with the same name share one memory.
    pub fn name(&self) -> &str {
        self.engine.name()
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn remat_ir::Device> {
        &self.engine
    }

    /// The program in the form that the engine takes. A single device computes all shards of a `shard_map`, and has the whole of an array
    /// whatever its sharding.
    pub(crate) fn placed(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<Jaxpr>> {
        if self.engine.devices() > 1 {
            return Ok(jaxpr.clone());
        }
        Ok(match on_one_device(jaxpr)? {
            Cow::Borrowed(_) => jaxpr.clone(),
            Cow::Owned(placed) => Arc::new(placed),
        })
    }

    /// Whether it is [`Device::cpu`].
    pub(crate) fn is_native(&self) -> bool {
        self.is_native
    }
}

impl From<&Device> for Device {
    /// The same device.
    fn from(device: &Device) -> Device {
        device.clone()
    }
}

impl From<Cpu> for Device {
    fn from(engine: Cpu) -> Device {
        Device::new(engine)
    }
}

impl From<Xla> for Device {
    fn from(engine: Xla) -> Device {
        Device::new(engine)
    }
}

impl From<Arc<dyn remat_ir::Device>> for Device {
    fn from(engine: Arc<dyn remat_ir::Device>) -> Device {
        Device { engine, is_native: false }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// [`Device::default_device`], for every operation.
pub(crate) fn default_device() -> Result<&'static Device> {
    static DEFAULT: OnceLock<Result<Device>> = OnceLock::new();
    let named = || match env::var(VARIABLE) {
        Ok(name) if !name.is_empty() => Device::named(&name).map_err(|error| {
            Error::new(error.kind(), error.operation(), format!("{VARIABLE} is '{name}': {}", error.message()))
        }),
        _ => Ok(Device::cpu()),
    };
    DEFAULT.get_or_init(named).as_ref().map_err(Clone::clone)
}

/// The device that one of these values is bound to, if one is.
///
/// # Errors
/// If two are on different devices.
pub(crate) fn device_of<'a>(operation: &str, values: impl IntoIterator<Item = &'a Value>) -> Result<Option<Device>> {
    let mut bound = values.into_iter().filter_map(|value| match value {
        Value::Host(_) => None,
        Value::Device(array) => Some(array),
    });
    let Some(first) = bound.next() else { return Ok(None) };
    match bound.find(|array| array.device_name() != first.device_name()) {
        None => Ok(Some(first.device().into())),
        Some(other) => Err(two_devices(operation, first.device_name(), other.device_name())),
    }
}

pub(crate) fn two_devices(operation: &str, one: &str, other: &str) -> Error {
    let message = format!("operands are on {one} and on {other}; move one of them with `to_device`");
    Error::new(ErrorKind::Argument, operation, message)
}
