//! Clients of plugins.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use remat_cluster::KeyValueStore;
use remat_ir::{Array, Aval, Error, ErrorKind, Result};

use super::buffer::Buffer;
use super::executable::Loaded;
use super::given::{dims, element_type, given, slice};
use super::key_value::Callbacks;
use super::library::{Library, text};
use super::memory::{Bytes, DeviceMemory};
use super::sys::{self, Arguments, Handle};
use super::sys_optional as optional;
use super::topology::description;

/// A client of a plugin: devices with memory. It is freed when it is dropped, like buffers and executables.
pub(crate) struct Client {
    pub(super) library: Library,
    handle: Handle,
    /// The devices of this process, in order, each with its id among those of all processes.
    devices: Vec<(Handle, u64)>,
    /// Locked while a program starts on several devices. If two start at the same time, each device must receive them in the same order,
    /// since the collectives of a program wait for all devices.
    pub(super) launches: Mutex<()>,
    /// Whether the devices are parts of one CPU and share its threads. A program on several of them then ends before the next starts:
    /// otherwise threads waiting in the collectives of two programs could take all threads, and neither would end.
    pub(super) shares_threads: bool,
    /// The number of buffers that are not freed.
    pub(super) buffers: AtomicUsize,
    /// The functions that the plugin calls, which live as long as the client.
    callbacks: Option<Callbacks>,
}

// SAFETY: functions of a plugin may be called from any thread (see `Library`), and the handle is freed once, when it is dropped.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

/// The last number of a launch on several devices, of all clients of this process.
static LAUNCHES: AtomicI32 = AtomicI32::new(0);

impl Client {
    /// The option with the number of virtual devices of a CPU.
    pub(crate) const CPU_DEVICES: &str = "cpu_device_count";

    /// A client with these integer options. Plugins end the process if an option has the wrong type.
    pub(crate) fn new(library: Library, options: &[(&str, i64)]) -> Result<Client> {
        let values: Vec<sys::NamedValue> =
            options.iter().map(|&(name, value)| sys::NamedValue::integer(name, value)).collect();
        let mut client = Client::create(library, &values, None)?;
        client.shares_threads = options.iter().any(|&(name, _)| name == Client::CPU_DEVICES);
        Ok(client)
    }

    /// The option of GPUs with the share of their memory that their allocator may take.
    const MEMORY_FRACTION: &str = "memory_fraction";

    /// The client of GPUs, whose allocator takes this share of their memory.
    pub(crate) fn of_gpus(library: Library, memory_fraction: f32) -> Result<Client> {
        Client::create(library, &[sys::NamedValue::float(Client::MEMORY_FRACTION, memory_fraction)], None)
    }

    /// The client of a node of a cluster of GPUs, whose devices work with those of the other nodes, and whose allocator takes this share of their
    /// memory. It waits until all nodes create theirs.
    pub(crate) fn of_node(library: Library, store: Arc<KeyValueStore>, memory_fraction: f32) -> Result<Client> {
        let options = [
            sys::NamedValue::integer("node_id", store.rank() as i64),
            sys::NamedValue::integer("num_nodes", store.nodes() as i64),
            sys::NamedValue::float(Client::MEMORY_FRACTION, memory_fraction),
        ];
        Client::create(library, &options, Some(Callbacks::new(store)))
    }

    /// A client with these boolean options.
    pub(crate) fn with_flags(library: Library, flags: &[(&str, bool)]) -> Result<Client> {
        let options: Vec<sys::NamedValue> =
            flags.iter().map(|&(name, value)| sys::NamedValue::boolean(name, value)).collect();
        Client::create(library, &options, None)
    }

    fn create(library: Library, options: &[sys::NamedValue], callbacks: Option<Callbacks>) -> Result<Client> {
        let mut args = sys::ClientCreate {
            create_options: options.as_ptr(),
            num_options: options.len(),
            ..sys::ClientCreate::new()
        };
        if let Some(callbacks) = &callbacks {
            callbacks.give(&mut args);
        }
        // SAFETY: the options live until the call returns, and callbacks with their data as long as the client; without callbacks these
        // pointers are null.
        unsafe { library.call_as(ErrorKind::Io, &mut args) }?;
        let handle = given("PJRT_Client_Create", args.client)?;
        let (devices, launches, buffers) = (Vec::new(), Mutex::new(()), AtomicUsize::new(0));
        let mut client = Client { library, handle, devices, launches, shares_threads: false, buffers, callbacks };
        let mut devices = sys::ClientAddressableDevices { client: handle, ..sys::ClientAddressableDevices::new() };
        // SAFETY: the client exists, and it has this many handles at this address until it is freed.
        let devices = unsafe {
            library.call(&mut devices)?;
            slice(devices.devices, devices.num_devices)
        };
        client.devices = devices.iter().map(|&device| Ok((device, client.id_of(device)?))).collect::<Result<_>>()?;
        Ok(client)
    }

    /// The number by which the plugin tells a launch on this many devices from all others. XLA for CPUs keeps the places where the devices of
    /// a launch meet by their ids and this number, for all clients of a process: with equal numbers, programs of two clients that run at the
    /// same time would read each other's shards. Zero leaves the number to the plugin: for one device, and for a node of a cluster, which
    /// would have to agree on it with the others.
    pub(super) fn launch_id(&self, devices: usize) -> i32 {
        let is_alone = devices < 2 || self.is_of_node();
        if is_alone { 0 } else { LAUNCHES.fetch_add(1, Ordering::Relaxed).wrapping_add(1) }
    }

    /// The version of the platform, according to the plugin: of a compiler, or of a driver.
    pub(crate) fn platform_version(&self) -> Result<String> {
        let mut args = sys::ClientPlatformVersion { client: self.handle, ..sys::ClientPlatformVersion::new() };
        // SAFETY: the client exists, and owns the text until it is freed.
        unsafe {
            self.library.call(&mut args)?;
            Ok(text(args.version, args.version_size))
        }
    }

    /// The plugin's names for the devices of this process: models of chips.
    pub(crate) fn device_kinds(&self) -> Result<Vec<String>> {
        let kind = |&(device, _): &(Handle, u64)| {
            let mut of_device = sys::DeviceGetDescription { device, ..sys::DeviceGetDescription::new() };
            // SAFETY: the device and its description are there until the client is freed.
            unsafe {
                self.library.call(&mut of_device)?;
                Ok(description(self.library, of_device.device_description)?.kind)
            }
        };
        self.devices.iter().map(kind).collect()
    }

    /// Whether the devices work with those of other processes.
    pub(crate) fn is_of_node(&self) -> bool {
        self.callbacks.is_some()
    }

    fn id_of(&self, device: Handle) -> Result<u64> {
        let mut of_device = sys::DeviceGetDescription { device, ..sys::DeviceGetDescription::new() };
        let mut args = sys::DeviceDescriptionId::new();
        // SAFETY: the device and its description are there until the client is freed.
        unsafe {
            self.library.call(&mut of_device)?;
            args.device_description = of_device.device_description;
            self.library.call(&mut args)?;
        }
        let negative = || Error::new(ErrorKind::Internal, "xla", format!("a device has the id {}", args.id));
        u64::try_from(args.id).map_err(|_| negative())
    }

    fn device(&self, ordinal: usize) -> Result<(Handle, u64)> {
        let missing = || Error::new(ErrorKind::Internal, "xla", format!("there is no device {ordinal}"));
        self.devices.get(ordinal).copied().ok_or_else(missing)
    }

    /// The id of a device of this process among those of all processes.
    pub(crate) fn device_id(&self, ordinal: usize) -> Result<u64> {
        Ok(self.device(ordinal)?.1)
    }

    /// The memory of a device of this process, if the plugin counts it.
    pub(crate) fn device_memory(&self, ordinal: usize) -> Result<Option<DeviceMemory>> {
        let (device, _) = self.device(ordinal)?;
        // SAFETY: the device is there until the client is freed.
        unsafe { DeviceMemory::of(self.library, device) }
    }

    /// The number of devices of this process.
    pub(crate) fn num_devices(&self) -> usize {
        self.devices.len()
    }

    /// The number of devices of all processes that work together.
    pub(crate) fn num_devices_of_all(&self) -> Result<usize> {
        let mut args = sys::ClientDevices { client: self.handle, ..sys::ClientDevices::new() };
        // SAFETY: the client is there; the list is not read.
        unsafe { self.library.call(&mut args) }?;
        Ok(args.num_devices)
    }

    /// The number of buffers that are not freed.
    pub(crate) fn num_buffers(&self) -> usize {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Compiles a module in MLIR's text format, whose function has arguments and results of these avals. The options are those of
    /// [`crate::compile_options`], encoded.
    pub(crate) fn compile(self: &Arc<Client>, module: &str, options: &[u8], avals: [Vec<Aval>; 2]) -> Result<Loaded> {
        let loaded = self.load(module, options, avals)?;
        loaded.expect_outputs()?;
        Ok(loaded)
    }

    fn load(self: &Arc<Client>, module: &str, options: &[u8], [ins, outs]: [Vec<Aval>; 2]) -> Result<Loaded> {
        let program = sys::Program::mlir(module);
        let mut args = sys::ClientCompile {
            client: self.handle,
            program: &program,
            compile_options: options.as_ptr(),
            compile_options_size: options.len(),
            ..sys::ClientCompile::new()
        };
        // SAFETY: the client is there, and the module and the options live until the call returns.
        unsafe { self.library.call(&mut args) }?;
        Ok(Loaded { client: self.clone(), handle: given("PJRT_Client_Compile", args.executable)?, ins, outs })
    }

    /// The memory of a module, compiled as in [`Client::compile`], with any arguments and results.
    pub(crate) fn memory_of(self, module: &str, options: &[u8]) -> Result<Bytes> {
        let client = Arc::new(self);
        let loaded = client.load(module, options, [Vec::new(), Vec::new()])?;
        loaded.bytes()?.ok_or_else(Bytes::untold)
    }

    /// The executable that [`Loaded::serialize`] wrote, if the plugin can read it. The bytes must be unchanged: a plugin may end the
    /// process otherwise.
    pub(crate) fn deserialize(
        self: &Arc<Client>,
        executable: &[u8],
        [ins, outs]: [Vec<Aval>; 2],
    ) -> Result<Option<Loaded>> {
        let mut args = optional::ExecutableDeserializeAndLoad {
            client: self.handle,
            serialized_executable: executable.as_ptr(),
            serialized_executable_size: executable.len(),
            ..optional::ExecutableDeserializeAndLoad::new()
        };
        // SAFETY: the client is there, and the bytes live until the call returns.
        if !unsafe { self.library.call_if_any(&mut args) }? {
            return Ok(None);
        }
        let handle = given("PJRT_Executable_DeserializeAndLoad", args.loaded_executable)?;
        let loaded = Loaded { client: self.clone(), handle, ins, outs };
        loaded.expect_outputs()?;
        Ok(Some(loaded))
    }

    /// Copies an array to a device.
    pub(crate) fn upload(self: &Arc<Client>, array: &Array, ordinal: usize) -> Result<Buffer> {
        let dims = dims(array.aval())?;
        let mut args = sys::ClientBufferFromHostBuffer {
            client: self.handle,
            data: remat_ir::with_dtype!(array.dtype(), T => array.as_slice::<T>().unwrap_or_default().as_ptr().cast()),
            element_type: element_type(array.dtype()),
            dims: dims.as_ptr(),
            num_dims: dims.len(),
            host_buffer_semantics: sys::ONLY_DURING_CALL,
            device: self.device(ordinal)?.0,
            ..sys::ClientBufferFromHostBuffer::new()
        };
        // SAFETY: the elements are in row-major order and their number matches the dimensions; they are read during the call.
        unsafe { self.library.call(&mut args) }?;
        let buffer = given("PJRT_Client_BufferFromHostBuffer", args.buffer);
        let buffer = buffer.map(|handle| Buffer::new(self.clone(), handle, array.aval().clone()));
        // SAFETY: the event is ours, and must be freed.
        unsafe { self.library.wait(args.done_with_host_buffer) }?;
        buffer
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: buffers and executables keep the client alive, so none is left.
        unsafe { self.library.free(sys::ClientDestroy { client: self.handle, ..sys::ClientDestroy::new() }) };
    }
}

#[cfg(test)]
mod tests;
