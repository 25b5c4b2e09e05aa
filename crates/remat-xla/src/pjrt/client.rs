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

// SAFETY: functions of a plugin are called from any thread (see `Library`), and the handle is freed once, when it is dropped.
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
        // SAFETY: the options live until the call returns; without callbacks the others are null.
        unsafe { library.call_as(ErrorKind::Io, &mut args) }?;
        Ok(Client { library, handle: given("PJRT_Client_Create", args.client)? })
    }

    /// The version of the platform, as the plugin has it: of a compiler, or of a driver.
    pub(crate) fn platform_version(&self) -> Result<String> {
        let mut args = sys::ClientPlatformVersion { client: self.handle, ..sys::ClientPlatformVersion::new() };
        // SAFETY: the client is there, and it has the text until it is freed.
        unsafe {
            self.library.call(&mut args)?;
            Ok(text(args.version, args.version_size))
        }
    }

    /// The devices of this process.
    fn devices(&self) -> Result<&[Handle]> {
        let mut args = sys::ClientAddressableDevices { client: self.handle, ..sys::ClientAddressableDevices::new() };
        // SAFETY: the client is there, and it has as many handles at this address until it is freed.
        unsafe {
            self.library.call(&mut args)?;
            Ok(slice(args.devices, args.num_devices))
        }
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

    /// Compiles a module in MLIR's text, whose function takes and gives arrays of these avals. The options are those of
    /// [`crate::compile_options`], encoded.
    pub(crate) fn compile(
        self: &Arc<Client>,
        module: &str,
        options: &[u8],
        [ins, outs]: [Vec<Aval>; 2],
    ) -> Result<Loaded> {
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
        // SAFETY: the client is there, and the module and the options live until the call returns.
        unsafe { self.library.call(&mut args) }?;
        let loaded = Loaded { client: self.clone(), handle: given("PJRT_Client_Compile", args.executable)?, ins, outs };
        loaded.expect_outputs()?;
        Ok(loaded)
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
        // SAFETY: the elements are in row-major order and as many as the dimensions say; they are read during the call.
        unsafe { self.library.call(&mut args) }?;
        let buffer = given("PJRT_Client_BufferFromHostBuffer", args.buffer);
        let buffer = buffer.map(|handle| Buffer { client: self.clone(), handle, aval: array.aval().clone() });
        // SAFETY: the event is ours; it is there to be freed.
        unsafe { self.library.wait(args.done_with_host_buffer) }?;
        buffer
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: buffers and executables hold the client, so that none is left.
        unsafe { self.library.free(sys::ClientDestroy { client: self.handle, ..sys::ClientDestroy::new() }) };
    }
}

/// An array on a device.
pub(crate) struct Buffer {
    client: Arc<Client>,
    handle: Handle,
    aval: Aval,
}

// SAFETY: as for `Client`.
unsafe impl Send for Buffer {}
// SAFETY: as for `Client`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Copies the elements to the host.
    pub(crate) fn download(&self) -> Result<Array> {
        let data = match self.aval.dtype {
            // A bool that is neither 0 nor 1 would be undefined behaviour, so it is read as what it is: a byte.
            DType::Bool => Data::Bool(self.elements::<u8>()?.into_iter().map(|byte| byte != 0).collect()),
            DType::I8 => Data::I8(self.elements()?),
            DType::I16 => Data::I16(self.elements()?),
            DType::I32 => Data::I32(self.elements()?),
            DType::I64 => Data::I64(self.elements()?),
            DType::U8 => Data::U8(self.elements()?),
            DType::U16 => Data::U16(self.elements()?),
            DType::U32 => Data::U32(self.elements()?),
            DType::U64 => Data::U64(self.elements()?),
            DType::F16 => Data::F16(self.elements()?),
            DType::Bf16 => Data::Bf16(self.elements()?),
            DType::F32 => Data::F32(self.elements()?),
            DType::F64 => Data::F64(self.elements()?),
        };
        Array::new(self.aval.clone(), data)
    }

    fn elements<T: Plain>(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); self.aval.size()];
        let library = self.client.library;
        // Without a layout the elements come in the order that the device has them in, which need not be row-major on GPUs and TPUs.
        // The plugin for CPUs copies them as they are whatever it is asked; they are row-major there, since no module says otherwise.
        let minor_to_major: Vec<i64> = (0..self.aval.rank() as i64).rev().collect();
        let layout = sys::MemoryLayout::untiled(&minor_to_major);
        let query =
            || sys::BufferToHostBuffer { src: self.handle, host_layout: &layout, ..sys::BufferToHostBuffer::new() };
        let mut size = query();
        // SAFETY: the buffer is there, the layout and its list live until this function returns, and without a destination the call
        // gives the size. It should give no event then; if it does, the event is ours.
        unsafe {
            library.call(&mut size)?;
            library.wait(size.event)?;
        }
        if size.dst_size != std::mem::size_of_val(&elements[..]) {
            let message = format!("a result has {} bytes and is to be {}", size.dst_size, self.aval);
            return Err(Error::new(ErrorKind::Internal, "xla", message));
        }
        if !elements.is_empty() {
            let dst = elements.as_mut_ptr().cast();
            let mut args = sys::BufferToHostBuffer { dst, dst_size: size.dst_size, ..query() };
            // SAFETY: as above; the destination has as many bytes, of a type of which any bits are a value. It is written until the
            // event is there, whatever the event says, and lives until then.
            unsafe {
                library.call(&mut args)?;
                library.wait(args.event)?;
            }
        }
        Ok(elements)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the handle is this buffer's alone.
        unsafe { self.client.library.free(sys::BufferDestroy { buffer: self.handle, ..sys::BufferDestroy::new() }) };
    }
}

/// Types of which any bits are a value.
///
/// # Safety
/// Any bits are a value of the type.
unsafe trait Plain: Element {}

macro_rules! plain {
    ($($type:ty)*) => { $(
        // SAFETY: an integer, or a float, which is the bits of one.
        unsafe impl Plain for $type {}
    )* };
}

plain!(i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64);

/// An executable that is loaded on one device.
pub(crate) struct Loaded {
    client: Arc<Client>,
    handle: Handle,
    ins: Vec<Aval>,
    outs: Vec<Aval>,
}

// SAFETY: as for `Client`.
unsafe impl Send for Loaded {}
// SAFETY: as for `Client`.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Runs it on the device that it was compiled for, and waits until it is done. The buffers have to be arrays of the avals that
    /// it takes; that is looked at here, since plugins check the number of bytes at most.
    pub(crate) fn run(&self, args: &[Buffer]) -> Result<Vec<Buffer>> {
        if !args.iter().map(|buffer| &buffer.aval).eq(&self.ins) {
            return Err(Error::new(ErrorKind::Internal, "xla", "the arguments are not those of the program"));
        }
        let library = self.client.library;
        let handles: Vec<Handle> = args.iter().map(|buffer| buffer.handle).collect();
        let argument_lists = [handles.as_ptr()];
        let mut outputs: Vec<Handle> = vec![std::ptr::null_mut(); self.outs.len()];
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
        // SAFETY: lists live until the call returns, and have as many handles as the executable has arguments and outputs.
        unsafe { library.call(&mut call) }?;
        // Those that are there are freed also where one is missing.
        let outputs = outputs.into_iter().zip(&self.outs).map(|(handle, aval)| {
            let handle = given("PJRT_LoadedExecutable_Execute", handle)?;
            Ok(Buffer { client: self.client.clone(), handle, aval: aval.clone() })
        });
        let outputs: Vec<Result<Buffer>> = outputs.collect();
        // SAFETY: the event is ours.
        unsafe { library.wait(events[0]) }?;
        outputs.into_iter().collect()
    }

    /// Fails unless the outputs are those that the module gives.
    fn expect_outputs(&self) -> Result<()> {
        let avals = &self.outs;
        self.with_executable(|library, executable| {
            let mut number = sys::ExecutableNumOutputs { executable, ..sys::ExecutableNumOutputs::new() };
            let mut types =
                sys::ExecutableOutputElementTypes { executable, ..sys::ExecutableOutputElementTypes::new() };
            let mut shapes = sys::ExecutableOutputDimensions { executable, ..sys::ExecutableOutputDimensions::new() };
            // SAFETY: the executable is freed after this, and has as many numbers at these addresses until then; the dimensions of
            // all outputs lie in a row.
            let (types, ranks, mut sizes) = unsafe {
                library.call(&mut number)?;
                library.call(&mut types)?;
                library.call(&mut shapes)?;
                let ranks = slice(shapes.dim_sizes, shapes.num_outputs);
                (slice(types.output_types, types.num_output_types), ranks, slice(shapes.dims, ranks.iter().sum()))
            };
            let mut are_equal =
                number.num_outputs == avals.len() && types.len() == avals.len() && ranks.len() == avals.len();
            for ((aval, &kind), &rank) in avals.iter().zip(types).zip(ranks) {
                // Without an address there are no dimensions, whatever the ranks.
                let (shape, rest) = sizes.split_at_checked(rank).unwrap_or_default();
                are_equal &= kind == element_type(aval.dtype) && shape == dims(aval)?;
                sizes = rest;
            }
            let message = || "the compiled program has other results than the program".to_string();
            if are_equal { Ok(()) } else { Err(Error::new(ErrorKind::Internal, "xla", message())) }
        })
    }

    /// The bytes of a run, if the plugin gives them. Of its figures, arguments, outputs and temporaries are exact; its peak counts
    /// no temporaries on CPUs, and so it is added up here.
    pub(crate) fn memory(&self) -> Result<Option<MemoryStats>> {
        self.with_executable(|library, executable| {
            let mut stats =
                sys::ExecutableGetCompiledMemoryStats { executable, ..sys::ExecutableGetCompiledMemoryStats::new() };
            // SAFETY: the executable is freed after this.
            if !unsafe { library.call_if_any(&mut stats) }? {
                return Ok(None);
            }
            let [arguments, outputs, temporaries, aliased] = [
                stats.argument_size_in_bytes,
                stats.output_size_in_bytes,
                stats.temp_size_in_bytes,
                stats.alias_size_in_bytes,
            ]
            .map(|bytes| usize::try_from(bytes).unwrap_or(0));
            let peak = (arguments + outputs + temporaries).saturating_sub(aliased);
            Ok(Some(MemoryStats { arguments, outputs, temporaries, overhead: 0, peak }))
        })
    }

    /// Calls a function with the executable, which is freed after it.
    fn with_executable<T>(&self, f: impl FnOnce(Library, Handle) -> Result<T>) -> Result<T> {
        let library = self.client.library;
        let mut args = sys::LoadedExecutableGetExecutable {
            loaded_executable: self.handle,
            ..sys::LoadedExecutableGetExecutable::new()
        };
        // SAFETY: the loaded executable is there.
        unsafe { library.call(&mut args) }?;
        let executable = given("PJRT_LoadedExecutable_GetExecutable", args.executable)?;
        let result = f(library, executable);
        // SAFETY: the handle is ours, and the function above, which has returned, keeps nothing of it.
        unsafe { library.free(sys::ExecutableDestroy { executable, ..sys::ExecutableDestroy::new() }) };
        result
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let library = self.client.library;
        // SAFETY: the handle is this executable's alone.
        unsafe {
            let executable = self.handle;
            library.free(sys::LoadedExecutableDestroy { executable, ..sys::LoadedExecutableDestroy::new() });
        }
    }
}

/// A handle that a function gave; plugins give one unless they give an error.
fn given(function: &str, handle: Handle) -> Result<Handle> {
    let missing = || Error::new(ErrorKind::Internal, "xla", format!("{function}: the plugin gave nothing"));
    if handle.is_null() { Err(missing()) } else { Ok(handle) }
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
