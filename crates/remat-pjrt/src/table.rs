//! The functions of the API, in the order of the header's table.

#![allow(unsafe_code, reason = "the C interface; each use says why it is sound")]

#[cfg(test)]
mod tests;

use std::ffi::c_void;

use crate::buffer::{self, Buffer};
use crate::event::Event;
use crate::failure::{Code, Failure, Result, guarded, whole};
use crate::place::{self, DEVICES, Device, MEMORIES, MEMORY, Memory, PLATFORM, PLATFORM_VERSION, Topology, give, say};
use crate::program::{self, Executable, Loaded};
use crate::sys::{
    Api, ApiVersion, Arguments, Attributes, BufferCopy, BufferDimensions, BufferEvent, BufferFromHost, BufferLayout,
    BufferPointer, ClientCreate, Compile, CompiledMemory, Context, CopyRaw, CountedAttributes, DefaultAssignment,
    DeviceAssignment, ErrorDestroy, ErrorGetCode, ErrorMessage, EventIsReady, EventOnReady, Execute, Flag, Function,
    List, LoadedExecutable, Long, Lookup, Number, OfBuffer, OfClient, OfEvent, OfExecutable, OfLoaded, OfTopology,
    Other, OutputDimensions, OutputMemories, OutputTypes, PluginAttributes, PluginInitialize, Size, Text, ToHost,
    TopologyCreate, VERSION, number_of,
};

/// The arguments of a function.
///
/// # Safety
/// The pointer is null, or to the struct of this function, as long as it says.
unsafe fn arguments<'a, A: Arguments>(name: &str, pointer: *mut c_void) -> Result<&'a mut A> {
    // SAFETY: the caller passes the struct of this function; its first field, the size, is in all of them.
    let args = unsafe { pointer.cast::<A>().as_mut() };
    let args = args.ok_or_else(|| Failure::argument(format!("{name}: there are no arguments")))?;
    whole::<A>(format_args!("{name}: the arguments"), args.struct_size())?;
    Ok(args)
}

/// An object of this plugin behind a pointer of the caller.
///
/// # Safety
/// The pointer is null, or to an object of this type that the caller has not destroyed.
unsafe fn object<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: the caller of this function says so.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument("an object is missing"))
}

/// Frees an object of the caller; null is nothing.
///
/// # Safety
/// The pointer is null, or to a box of this type that the caller owns and gives up.
unsafe fn destroy<T>(pointer: *mut T) -> Result {
    if !pointer.is_null() {
        // SAFETY: the caller of this function says so.
        drop(unsafe { Box::from_raw(pointer) });
    }
    Ok(())
}

macro_rules! slot {
    ($name:ident) => {{
        unsafe extern "C" fn absent(_: *mut c_void) -> *mut Failure {
            let name = stringify!($name);
            guarded(name, || Err(Failure::new(Code::Unimplemented, format!("PJRT_{name} is not implemented"))))
        }
        absent as Function
    }};
    ($name:ident $args:ty, $handler:expr) => {{
        unsafe extern "C" fn call(pointer: *mut c_void) -> *mut Failure {
            let handler: fn(&mut $args) -> Result = $handler;
            // SAFETY: callers pass the struct of the function that they call.
            guarded(stringify!($name), || handler(unsafe { arguments(stringify!($name), pointer) }?))
        }
        call as Function
    }};
}

macro_rules! table {
    ($($name:ident $(: $args:ty = $handler:expr)?;)*) => {
        /// The names of the functions, in order.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        static API: Api<{ NAMES.len() }> = Api {
            struct_size: size_of::<Api<{ NAMES.len() }>>(),
            extension_start: std::ptr::null_mut(),
            version: ApiVersion { struct_size: size_of::<ApiVersion>(), extension_start: std::ptr::null_mut(), numbers: VERSION },
            functions: [$(slot!($name $($args, $handler)?)),*],
        };
    };
}

// SAFETY: it never changes.
unsafe impl<const N: usize> Sync for Api<N> {}

// SAFETY of all handlers: pointers of the caller are null, or to what the header says that they are to.
table! {
    Error_Destroy: ErrorDestroy = |args| unsafe { destroy(args.error) };
    Error_Message: ErrorMessage = |args| {
        let message = &unsafe { object(args.error) }?.message;
        (args.message, args.message_size) = (message.as_ptr().cast(), message.len());
        Ok(())
    };
    Error_GetCode: ErrorGetCode = |args| {
        args.code = unsafe { object(args.error) }?.code as i32;
        Ok(())
    };
    Plugin_Initialize: PluginInitialize = |_| Ok(());
    Plugin_Attributes: PluginAttributes = place::attributes;
    Event_Destroy: OfEvent = |args| unsafe { destroy(args.event) };
    Event_IsReady: EventIsReady = |args| {
        args.is_ready = true;
        Ok(())
    };
    Event_Error: OfEvent = |args| unsafe { object(args.event) }?.error();
    Event_Await: OfEvent = |args| unsafe { object(args.event) }?.error();
    Event_OnReady: EventOnReady = |args| {
        let error = unsafe { object(args.event) }?.error().err();
        let error = error.map_or(std::ptr::null_mut(), |error| Box::into_raw(Box::new(error)));
        if let Some(callback) = args.callback {
            unsafe { callback(error, args.user_arg) };
        }
        Ok(())
    };
    Client_Create: ClientCreate = place::create;
    Client_Destroy: OfClient = |_| Ok(());
    Client_PlatformName: Text = |args| say(args, PLATFORM);
    Client_ProcessIndex: Number = zero;
    Client_PlatformVersion: Text = |args| say(args, PLATFORM_VERSION);
    Client_Devices: List = |args| give(args, &DEVICES);
    Client_AddressableDevices: List = |args| give(args, &DEVICES);
    Client_LookupDevice: Lookup = place::lookup;
    Client_LookupAddressableDevice: Lookup = place::lookup;
    Client_AddressableMemories: List = |args| give(args, &MEMORIES);
    Client_Compile: Compile = |args| unsafe { program::compile(args) };
    Client_DefaultDeviceAssignment: DefaultAssignment = place::default_assignment;
    Client_BufferFromHostBuffer: BufferFromHost = |args| unsafe { buffer::from_host(args) };
    DeviceDescription_Id: Number = zero;
    DeviceDescription_ProcessIndex: Number = zero;
    DeviceDescription_Attributes: CountedAttributes = |args| {
        (args.attributes, args.count) = (std::ptr::null(), 0);
        Ok(())
    };
    DeviceDescription_Kind: Text = |args| say(args, PLATFORM);
    DeviceDescription_DebugString: Text = |args| say(args, "the native engine of remat");
    DeviceDescription_ToString: Text = |args| say(args, "RematDevice(id=0)");
    Device_GetDescription: Other = |args| other(args, Device::get());
    Device_IsAddressable: Flag = |args| {
        args.flag = true;
        Ok(())
    };
    Device_LocalHardwareId: Number = zero;
    Device_AddressableMemories: List = |args| give(args, &MEMORIES);
    Device_DefaultMemory: Other = |args| other(args, Memory::get());
    Device_MemoryStats;
    Memory_Id: Number = zero;
    Memory_Kind: Text = |args| say(args, MEMORY);
    Memory_DebugString: Text = |args| say(args, "the memory of the host");
    Memory_ToString: Text = |args| say(args, "RematMemory(id=0)");
    Memory_AddressableByDevices: List = |args| give(args, &DEVICES);
    Executable_Destroy: OfExecutable = |args| unsafe { destroy(args.executable) };
    Executable_Name: Text = |args| say(args, "program");
    Executable_NumReplicas: Size = |args| size(args, 1);
    Executable_NumPartitions: Size = |args| size(args, 1);
    Executable_NumOutputs: Size = |args| {
        let count = unsafe { object(args.of.cast::<Executable>()) }?.0.outputs();
        size(args, count)
    };
    Executable_SizeOfGeneratedCodeInBytes: Long = |args| {
        args.number = 0;
        Ok(())
    };
    Executable_GetCostAnalysis: CountedAttributes = |args| {
        (args.attributes, args.count) = (std::ptr::null(), 0);
        Ok(())
    };
    Executable_OutputMemoryKinds: OutputMemories = |args| {
        unsafe { object(args.executable) }?.0.output_memories(args);
        Ok(())
    };
    Executable_OptimizedProgram;
    Executable_Serialize;
    LoadedExecutable_Destroy: OfLoaded = |args| unsafe { destroy(args.loaded) };
    LoadedExecutable_GetExecutable: LoadedExecutable = |args| {
        unsafe { object(args.loaded) }?.executable(args);
        Ok(())
    };
    LoadedExecutable_AddressableDevices: List = |args| give(args, &DEVICES);
    LoadedExecutable_Delete: OfLoaded = |args| {
        unsafe { object(args.loaded) }?.delete();
        Ok(())
    };
    LoadedExecutable_IsDeleted: Flag = |args| {
        args.flag = unsafe { object(args.of.cast::<Loaded>()) }?.is_deleted();
        Ok(())
    };
    LoadedExecutable_Execute: Execute = |args| unsafe { object(args.loaded)?.execute(args) };
    Executable_DeserializeAndLoad;
    LoadedExecutable_Fingerprint;
    Buffer_Destroy: OfBuffer = |args| unsafe { destroy(args.buffer) };
    Buffer_ElementType: Number = |args| {
        args.number = number_of(unsafe { object(args.of.cast::<Buffer>()) }?.aval.dtype);
        Ok(())
    };
    Buffer_Dimensions: BufferDimensions = |args| {
        unsafe { object(args.buffer) }?.dimensions(args);
        Ok(())
    };
    Buffer_UnpaddedDimensions: BufferDimensions = |args| {
        unsafe { object(args.buffer) }?.dimensions(args);
        Ok(())
    };
    Buffer_DynamicDimensionIndices: List = |args| {
        (args.list, args.count) = (std::ptr::null(), 0);
        Ok(())
    };
    Buffer_GetMemoryLayout: BufferLayout = |args| {
        unsafe { object(args.buffer) }?.layout(args);
        Ok(())
    };
    Buffer_OnDeviceSizeInBytes: Size = |args| {
        let bytes = unsafe { object(args.of.cast::<Buffer>()) }?.aval.bytes();
        size(args, bytes)
    };
    Buffer_Device: Other = |args| other(args, Device::get());
    Buffer_Memory: Other = |args| other(args, Memory::get());
    Buffer_Delete: OfBuffer = |args| {
        unsafe { object(args.buffer) }?.delete();
        Ok(())
    };
    Buffer_IsDeleted: Flag = |args| {
        args.flag = unsafe { object(args.of.cast::<Buffer>()) }?.is_deleted();
        Ok(())
    };
    Buffer_CopyToDevice: BufferCopy = |args| unsafe { object(args.buffer) }?.copy(args);
    Buffer_ToHostBuffer: ToHost = |args| unsafe { object(args.buffer) }?.to_host(args);
    Buffer_IsOnCpu: Flag = |args| {
        args.flag = true;
        Ok(())
    };
    Buffer_ReadyEvent: BufferEvent = |args| {
        args.event = Event::ready();
        Ok(())
    };
    Buffer_UnsafePointer: BufferPointer = |args| unsafe { object(args.buffer) }?.pointer(args);
    Buffer_IncreaseExternalReferenceCount: OfBuffer = |args| unsafe { object(args.buffer) }?.hold();
    Buffer_DecreaseExternalReferenceCount: OfBuffer = |args| unsafe { object(args.buffer) }?.release();
    Buffer_OpaqueDeviceMemoryDataPointer: BufferPointer = |args| unsafe { object(args.buffer) }?.pointer(args);
    CopyToDeviceStream_Destroy;
    CopyToDeviceStream_AddChunk;
    CopyToDeviceStream_TotalBytes;
    CopyToDeviceStream_GranuleSize;
    CopyToDeviceStream_CurrentBytes;
    TopologyDescription_Create: TopologyCreate = |args| {
        args.topology = Topology::get();
        Ok(())
    };
    TopologyDescription_Destroy: OfTopology = |_| Ok(());
    TopologyDescription_PlatformName: Text = |args| say(args, PLATFORM);
    TopologyDescription_PlatformVersion: Text = |args| say(args, PLATFORM_VERSION);
    TopologyDescription_GetDeviceDescriptions: List = |args| give(args, &DEVICES);
    TopologyDescription_Serialize;
    TopologyDescription_Attributes: Attributes = |args| {
        (args.attributes, args.count) = (std::ptr::null(), 0);
        Ok(())
    };
    Compile;
    Executable_OutputElementTypes: OutputTypes = |args| {
        unsafe { object(args.executable) }?.0.output_types(args);
        Ok(())
    };
    Executable_OutputDimensions: OutputDimensions = |args| {
        unsafe { object(args.executable) }?.0.output_dimensions(args);
        Ok(())
    };
    Buffer_CopyToMemory: BufferCopy = |args| unsafe { object(args.buffer) }?.copy(args);
    Client_CreateViewOfDeviceBuffer;
    Executable_Fingerprint: Text = |args| {
        let text = &unsafe { object(args.of.cast::<Executable>()) }?.0.fingerprint;
        (args.text, args.size) = (text.as_ptr().cast(), text.len());
        Ok(())
    };
    Client_TopologyDescription: Other = |args| other(args, Topology::get());
    Executable_GetCompiledMemoryStats: CompiledMemory = |args| {
        unsafe { object(args.executable) }?.0.memory(args);
        Ok(())
    };
    Memory_Kind_Id: Number = zero;
    ExecuteContext_Create: Context = |args| {
        args.context = std::ptr::null_mut();
        Ok(())
    };
    ExecuteContext_Destroy: Context = |_| Ok(());
    Buffer_CopyRawToHost: CopyRaw = |args| unsafe { object(args.buffer) }?.copy_raw(args);
    AsyncHostToDeviceTransferManager_Destroy;
    AsyncHostToDeviceTransferManager_TransferData;
    Client_CreateBuffersForAsyncHostToDevice;
    AsyncHostToDeviceTransferManager_RetrieveBuffer;
    AsyncHostToDeviceTransferManager_Device;
    AsyncHostToDeviceTransferManager_BufferCount;
    AsyncHostToDeviceTransferManager_BufferSize;
    AsyncHostToDeviceTransferManager_SetBufferError;
    AsyncHostToDeviceTransferManager_AddMetadata;
    Client_DmaMap;
    Client_DmaUnmap;
    Client_CreateUninitializedBuffer;
    Client_UpdateGlobalProcessInfo;
    TopologyDescription_Deserialize;
    Client_CreateAliasBuffer;
    Client_FulfillAliasBuffer;
    LoadedExecutable_GetDeviceAssignment: DeviceAssignment = |args| {
        Loaded::assignment(args);
        Ok(())
    };
}

fn zero(args: &mut Number) -> Result {
    args.number = 0;
    Ok(())
}

fn size(args: &mut Size, size: usize) -> Result {
    args.size = size;
    Ok(())
}

fn other<T>(args: &mut Other, object: *const T) -> Result {
    args.other = object.cast();
    Ok(())
}

/// The table of functions, which a program that opens this library asks for.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is that of the API")]
pub extern "C" fn GetPjrtApi() -> *const c_void {
    std::ptr::from_ref(&API).cast()
}
