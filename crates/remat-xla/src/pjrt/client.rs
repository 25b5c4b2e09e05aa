//! Clients, executables and buffers. Each is freed when it is dropped.

use std::ffi::c_int;
use std::sync::Arc;

use remat_ir::{Array, Aval, DType, Data, Element, Error, ErrorKind, MemoryStats, Result, bf16, f16};

use super::library::{Library, text};
use super::sys::{self, Arguments, Handle};

/// A client of a plugin: devices with memory.
pub(crate) struct Client {
    library: Library,
    handle: Handle,
}

// SAFETY: the header says that functions of the API may be called from any thread, and the handle is freed once, when it is dropped.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// A client with these options, all of which are integers: plugins end the process for an option of another type than they want.
    pub(crate) fn new(library: Library, options: &[(&str, i64)]) -> Result<Client> {
        let options: Vec<sys::NamedValue> = options
            .iter()
            .map(|&(name, value)| sys::NamedValue {
                struct_size: size_of::<sys::NamedValue>(),
                extension_start: std::ptr::null_mut(),
                name: name.as_ptr().cast(),
                name_size: name.len(),
                kind: sys::INT64,
                int64_value: value,
                value_size: 1,
            })
            .collect();
        let mut args = sys::ClientCreate {
            create_options: options.as_ptr(),
            num_options: options.len(),
            ..sys::ClientCreate::new()
        };
        library.call(&mut args)?;
        Ok(Client { library, handle: args.client })
    }

    /// The version of the platform, as the plugin has it: of a compiler, or of a driver.
    pub(crate) fn platform_version(&self) -> Result<String> {
        let mut args = sys::ClientPlatformVersion { client: self.handle, ..sys::ClientPlatformVersion::new() };
        self.library.call(&mut args)?;
        Ok(text(args.version, args.version_size))
    }

    /// The devices of this process.
    fn devices(&self) -> Result<&[Handle]> {
        let mut args = sys::ClientAddressableDevices { client: self.handle, ..sys::ClientAddressableDevices::new() };
        self.library.call(&mut args)?;
        // SAFETY: the client has as many handles at this address until it is freed.
        Ok(unsafe { slice(args.devices, args.num_devices) })
    }

    fn device(&self, ordinal: usize) -> Result<Handle> {
        let devices = self.devices()?;
        let missing = || format!("there is no device {ordinal}, only {}", remat_ir::counted(devices.len(), "device"));
        devices.get(ordinal).copied().ok_or_else(|| Error::new(ErrorKind::Argument, "xla", missing()))
    }

    /// The number of devices of this process.
    pub(crate) fn num_devices(&self) -> Result<usize> {
        Ok(self.devices()?.len())
    }

    /// Compiles a module in MLIR's text. The options are those of [`crate::compile_options`], encoded.
    pub(crate) fn compile(self: &Arc<Client>, module: &str, options: &[u8]) -> Result<Loaded> {
        let format = "mlir";
        let program = sys::Program {
            struct_size: size_of::<sys::Program>(),
            extension_start: std::ptr::null_mut(),
            code: module.as_ptr().cast(),
            code_size: module.len(),
            format: format.as_ptr().cast(),
            format_size: format.len(),
        };
        let mut args = sys::ClientCompile {
            client: self.handle,
            program: &program,
            compile_options: options.as_ptr(),
            compile_options_size: options.len(),
            ..sys::ClientCompile::new()
        };
        self.library.call(&mut args)?;
        Ok(Loaded { client: self.clone(), handle: args.executable })
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
            device: self.device(ordinal)?,
            ..sys::ClientBufferFromHostBuffer::new()
        };
        self.library.call(&mut args)?;
        let buffer = Buffer { client: self.clone(), handle: args.buffer };
        // The elements were read during the call; the event is there to be freed.
        self.library.wait(args.done_with_host_buffer)?;
        Ok(buffer)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.library.free(sys::ClientDestroy { client: self.handle, ..sys::ClientDestroy::new() });
    }
}

/// An array on a device.
pub(crate) struct Buffer {
    client: Arc<Client>,
    handle: Handle,
}

// SAFETY: as for `Client`.
unsafe impl Send for Buffer {}
// SAFETY: as for `Client`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Copies the elements to the host. The aval has to be that of the buffer.
    pub(crate) fn download(&self, aval: &Aval) -> Result<Array> {
        let data = match aval.dtype {
            // A bool that is neither 0 nor 1 would be undefined behaviour, so it is read as what it is: a byte.
            DType::Bool => Data::Bool(self.elements::<u8>(aval)?.into_iter().map(|byte| byte != 0).collect()),
            DType::I8 => Data::I8(self.elements(aval)?),
            DType::I16 => Data::I16(self.elements(aval)?),
            DType::I32 => Data::I32(self.elements(aval)?),
            DType::I64 => Data::I64(self.elements(aval)?),
            DType::U8 => Data::U8(self.elements(aval)?),
            DType::U16 => Data::U16(self.elements(aval)?),
            DType::U32 => Data::U32(self.elements(aval)?),
            DType::U64 => Data::U64(self.elements(aval)?),
            DType::F16 => Data::F16(self.elements(aval)?),
            DType::Bf16 => Data::Bf16(self.elements(aval)?),
            DType::F32 => Data::F32(self.elements(aval)?),
            DType::F64 => Data::F64(self.elements(aval)?),
        };
        Array::new(aval.clone(), data)
    }

    fn elements<T: Plain>(&self, aval: &Aval) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); aval.size()];
        let library = self.client.library;
        let mut size = sys::BufferToHostBuffer { src: self.handle, ..sys::BufferToHostBuffer::new() };
        library.call(&mut size)?;
        if size.dst_size != std::mem::size_of_val(&elements[..]) {
            let message = format!("a result has {} bytes and is to be {aval}", size.dst_size);
            return Err(Error::new(ErrorKind::Internal, "xla", message));
        }
        if !elements.is_empty() {
            let mut args = sys::BufferToHostBuffer {
                src: self.handle,
                dst: elements.as_mut_ptr().cast(),
                dst_size: size.dst_size,
                ..sys::BufferToHostBuffer::new()
            };
            library.call(&mut args)?;
            // The elements are written until the event is there, whatever it says.
            library.wait(args.event)?;
        }
        Ok(elements)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.client.library.free(sys::BufferDestroy { buffer: self.handle, ..sys::BufferDestroy::new() });
    }
}

/// Types of which any bits are a value.
trait Plain: Element {}

impl Plain for i8 {}
impl Plain for i16 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for f16 {}
impl Plain for bf16 {}
impl Plain for f32 {}
impl Plain for f64 {}

/// An executable that is loaded on one device.
pub(crate) struct Loaded {
    client: Arc<Client>,
    handle: Handle,
}

// SAFETY: as for `Client`.
unsafe impl Send for Loaded {}
// SAFETY: as for `Client`.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Runs it on the device that it was compiled for, and waits until it is done. The buffers have to be what it takes: plugins
    /// check the number of bytes at most. `num_outputs` is the number of its outputs.
    pub(crate) fn run(&self, args: &[Buffer], num_outputs: usize) -> Result<Vec<Buffer>> {
        let library = self.client.library;
        let handles: Vec<Handle> = args.iter().map(|buffer| buffer.handle).collect();
        let argument_lists = [handles.as_ptr()];
        let mut outputs: Vec<Handle> = vec![std::ptr::null_mut(); num_outputs];
        let output_lists = [outputs.as_mut_ptr()];
        let mut events: [Handle; 1] = [std::ptr::null_mut()];
        // SAFETY: integers and pointers, which may be zero.
        let options: sys::ExecuteOptions = unsafe { std::mem::zeroed() };
        let mut options = sys::ExecuteOptions { struct_size: size_of::<sys::ExecuteOptions>(), ..options };
        let mut call = sys::LoadedExecutableExecute {
            executable: self.handle,
            options: &mut options,
            argument_lists: argument_lists.as_ptr(),
            num_devices: 1,
            num_args: handles.len(),
            output_lists: output_lists.as_ptr(),
            device_complete_events: events.as_mut_ptr(),
            ..sys::LoadedExecutableExecute::new()
        };
        library.call(&mut call)?;
        let outputs = outputs.into_iter().map(|handle| Buffer { client: self.client.clone(), handle }).collect();
        library.wait(events[0])?;
        Ok(outputs)
    }

    /// Fails unless the outputs are these.
    pub(crate) fn expect_outputs(&self, avals: &[Aval]) -> Result<()> {
        self.with_executable(|library, executable| {
            let mut number = sys::ExecutableNumOutputs { executable, ..sys::ExecutableNumOutputs::new() };
            library.call(&mut number)?;
            let mut types =
                sys::ExecutableOutputElementTypes { executable, ..sys::ExecutableOutputElementTypes::new() };
            library.call(&mut types)?;
            let mut shapes = sys::ExecutableOutputDimensions { executable, ..sys::ExecutableOutputDimensions::new() };
            library.call(&mut shapes)?;
            // SAFETY: the executable, which is freed after this, has as many numbers at these addresses.
            let (types, ranks) = unsafe {
                (slice(types.output_types, types.num_output_types), slice(shapes.dim_sizes, shapes.num_outputs))
            };
            // SAFETY: as above; the dimensions of all outputs lie in a row.
            let mut sizes = unsafe { slice(shapes.dims, ranks.iter().sum()) };
            let mut are_equal =
                number.num_outputs == avals.len() && types.len() == avals.len() && ranks.len() == avals.len();
            for ((aval, &kind), &rank) in avals.iter().zip(types).zip(ranks) {
                let (shape, rest) = sizes.split_at(rank);
                are_equal &= kind == element_type(aval.dtype) && shape == dims(aval)?;
                sizes = rest;
            }
            let message = || "the compiled program has other results than the program".to_string();
            if are_equal { Ok(()) } else { Err(Error::new(ErrorKind::Internal, "xla", message())) }
        })
    }

    /// The bytes of a run. Of the figures that plugins give, arguments, outputs and temporaries are exact; the peak that they give
    /// counts no temporaries on CPUs, and so it is added up here.
    pub(crate) fn memory(&self) -> Result<MemoryStats> {
        self.with_executable(|library, executable| {
            let mut stats =
                sys::ExecutableGetCompiledMemoryStats { executable, ..sys::ExecutableGetCompiledMemoryStats::new() };
            library.call(&mut stats)?;
            let [arguments, outputs, temporaries, aliased] = [
                stats.argument_size_in_bytes,
                stats.output_size_in_bytes,
                stats.temp_size_in_bytes,
                stats.alias_size_in_bytes,
            ]
            .map(|bytes| usize::try_from(bytes).unwrap_or(0));
            let peak = (arguments + outputs + temporaries).saturating_sub(aliased);
            Ok(MemoryStats { arguments, outputs, temporaries, overhead: 0, peak })
        })
    }

    /// Calls a function with the executable, which is freed after it.
    fn with_executable<T>(&self, f: impl FnOnce(Library, Handle) -> Result<T>) -> Result<T> {
        let library = self.client.library;
        let mut args = sys::LoadedExecutableGetExecutable {
            loaded_executable: self.handle,
            ..sys::LoadedExecutableGetExecutable::new()
        };
        library.call(&mut args)?;
        let given = f(library, args.executable);
        library.free(sys::ExecutableDestroy { executable: args.executable, ..sys::ExecutableDestroy::new() });
        given
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let library = self.client.library;
        library.free(sys::LoadedExecutableDestroy { executable: self.handle, ..sys::LoadedExecutableDestroy::new() });
    }
}

/// As many elements at this address; none where there is no address.
///
/// # Safety
/// The elements are there for as long as the slice is used.
unsafe fn slice<'a, T>(start: *const T, len: usize) -> &'a [T] {
    // SAFETY: by the contract of this function.
    if start.is_null() || len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, len) } }
}

fn dims(aval: &Aval) -> Result<Vec<i64>> {
    let too_large =
        |_| Error::new(ErrorKind::Shape, "xla", format!("{aval} has a dimension of more than 2^63 elements"));
    aval.shape.iter().map(|&size| i64::try_from(size).map_err(too_large)).collect()
}

/// `PJRT_Buffer_Type`.
fn element_type(dtype: DType) -> c_int {
    match dtype {
        DType::Bool => 1,
        DType::I8 => 2,
        DType::I16 => 3,
        DType::I32 => 4,
        DType::I64 => 5,
        DType::U8 => 6,
        DType::U16 => 7,
        DType::U32 => 8,
        DType::U64 => 9,
        DType::F16 => 10,
        DType::F32 => 11,
        DType::F64 => 12,
        DType::Bf16 => 13,
    }
}
