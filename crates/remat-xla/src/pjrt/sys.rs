//! The used structs and numbers of `pjrt_c_api.h` 0.81. Names are those of the header without `PJRT_` and `_Args`.

use std::ffi::{c_char, c_int, c_void};

/// A pointer to something that the plugin owns.
pub(super) type Handle = *mut c_void;

/// The beginning of `PJRT_Api`, which is followed by the table of functions.
#[repr(C)]
pub(super) struct Api {
    /// Bytes of the struct with the table.
    pub(super) struct_size: usize,
    extension_start: *mut c_void,
    version_size: usize,
    version_extension_start: *mut c_void,
    pub(super) major: c_int,
    pub(super) minor: c_int,
}

#[cfg(test)]
impl Api {
    /// The beginning of a table with this total size.
    pub(super) fn of_size(struct_size: usize) -> Api {
        let (extension_start, version_extension_start) = (std::ptr::null_mut(), std::ptr::null_mut());
        Api { struct_size, extension_start, version_size: 24, version_extension_start, major: 0, minor: 81 }
    }
}

/// The arguments of a function.
///
/// # Safety
/// The type is the argument struct of the function at `INDEX` in the header's table, without padding at its beginning, and all its
/// fields may be zero.
pub(super) unsafe trait Arguments: Sized {
    /// The index of the function in the table.
    const INDEX: usize;
    /// The name of the function in the header.
    const NAME: &'static str;

    /// All zeros, except for the size.
    fn new() -> Self;
}

/// Argument structs, each with the function that takes it; `FUNCTIONS` are their names and indices.
macro_rules! arguments {
    ($($name:ident $function:ident $index:literal { $($field:ident: $type:ty,)* })*) => { $(
        #[repr(C)]
        pub(super) struct $name {
            pub(super) struct_size: usize,
            pub(super) extension_start: *mut c_void,
            $(pub(super) $field: $type,)*
        }

        // SAFETY: the fields are those of the header, in its order; they are integers and pointers, which may be zero. Tests
        // below compare the sizes with those of C, and the indices with the names of the table in order.
        unsafe impl Arguments for $name {
            const INDEX: usize = $index;
            const NAME: &'static str = stringify!($function);

            fn new() -> $name {
                // SAFETY: the fields are integers and pointers.
                let zeros: $name = unsafe { std::mem::zeroed() };
                $name { struct_size: size_of::<$name>(), ..zeros }
            }
        }
    )*

        /// The called functions: their names and indices.
        pub(super) const FUNCTIONS: &[(&str, usize)] = &[$((stringify!($function), $index)),*];

        /// The sizes of their argument structs.
        #[cfg(test)]
        const SIZES: &[usize] = &[$(size_of::<$name>()),*];
    };
}

pub(super) use arguments;

arguments! {
    ErrorDestroy PJRT_Error_Destroy 0 { error: Handle, }
    ErrorMessage PJRT_Error_Message 1 { error: Handle, message: *const c_char, message_size: usize, }
    ErrorGetCode PJRT_Error_GetCode 2 { error: Handle, code: c_int, }
    PluginInitialize PJRT_Plugin_Initialize 3 { }
    EventDestroy PJRT_Event_Destroy 5 { event: Handle, }
    EventAwait PJRT_Event_Await 8 { event: Handle, }
    ClientCreate PJRT_Client_Create 10 {
        create_options: *const NamedValue,
        num_options: usize,
        kv_get_callback: *const c_void,
        kv_get_user_arg: *mut c_void,
        kv_put_callback: *const c_void,
        kv_put_user_arg: *mut c_void,
        client: Handle,
        kv_try_get_callback: *const c_void,
        kv_try_get_user_arg: *mut c_void,
    }
    ClientDestroy PJRT_Client_Destroy 11 { client: Handle, }
    ClientPlatformVersion PJRT_Client_PlatformVersion 14 { client: Handle, version: *const c_char, version_size: usize, }
    ClientDevices PJRT_Client_Devices 15 { client: Handle, devices: *const Handle, num_devices: usize, }
    ClientAddressableDevices PJRT_Client_AddressableDevices 16 { client: Handle, devices: *const Handle, num_devices: usize, }
    ClientCompile PJRT_Client_Compile 20 {
        client: Handle,
        program: *const Program,
        compile_options: *const u8,
        compile_options_size: usize,
        executable: Handle,
    }
    ClientBufferFromHostBuffer PJRT_Client_BufferFromHostBuffer 22 {
        client: Handle,
        data: *const c_void,
        element_type: c_int,
        dims: *const i64,
        num_dims: usize,
        byte_strides: *const i64,
        num_byte_strides: usize,
        host_buffer_semantics: c_int,
        device: Handle,
        memory: Handle,
        device_layout: *mut c_void,
        done_with_host_buffer: Handle,
        buffer: Handle,
    }
    DeviceDescriptionId PJRT_DeviceDescription_Id 23 { device_description: Handle, id: c_int, }
    DeviceGetDescription PJRT_Device_GetDescription 29 { device: Handle, device_description: Handle, }
    ExecutableDestroy PJRT_Executable_Destroy 40 { executable: Handle, }
    ExecutableNumOutputs PJRT_Executable_NumOutputs 44 { executable: Handle, num_outputs: usize, }
    LoadedExecutableDestroy PJRT_LoadedExecutable_Destroy 50 { executable: Handle, }
    LoadedExecutableGetExecutable PJRT_LoadedExecutable_GetExecutable 51 { loaded_executable: Handle, executable: Handle, }
    LoadedExecutableExecute PJRT_LoadedExecutable_Execute 55 {
        executable: Handle,
        options: *mut ExecuteOptions,
        argument_lists: *const *const Handle,
        num_devices: usize,
        num_args: usize,
        output_lists: *const *mut Handle,
        device_complete_events: *mut Handle,
        execute_device: Handle,
    }
    BufferDestroy PJRT_Buffer_Destroy 58 { buffer: Handle, }
    BufferToHostBuffer PJRT_Buffer_ToHostBuffer 70 {
        src: Handle,
        host_layout: *const MemoryLayout,
        dst: *mut c_void,
        dst_size: usize,
        event: Handle,
    }
    BufferReadyEvent PJRT_Buffer_ReadyEvent 72 { buffer: Handle, event: Handle, }
    ExecutableOutputElementTypes PJRT_Executable_OutputElementTypes 90 { executable: Handle, output_types: *const c_int, num_output_types: usize, }
    ExecutableOutputDimensions PJRT_Executable_OutputDimensions 91 {
        executable: Handle,
        num_outputs: usize,
        dims: *const i64,
        dim_sizes: *const usize,
    }
}

/// A named value: an option of a client or of a topology, or an attribute of a device.
#[repr(C)]
pub(super) struct NamedValue {
    struct_size: usize,
    extension_start: *mut c_void,
    pub(super) name: *const c_char,
    pub(super) name_size: usize,
    pub(super) kind: c_int,
    pub(super) value: Value,
    /// The number of elements of a string or a list; 1 for all others.
    pub(super) value_size: usize,
}

/// The value of a [`NamedValue`], by its kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Value {
    pub(super) int64: i64,
    pub(super) int64_list: *const i64,
    pub(super) string: *const c_char,
    pub(super) float: f32,
    boolean: bool,
}

impl NamedValue {
    /// An integer option. It refers to the name.
    pub(super) fn integer(name: &str, value: i64) -> NamedValue {
        NamedValue::new(name, INT64, Value { int64: value }, 1)
    }

    /// A boolean option. It refers to the name.
    pub(super) fn boolean(name: &str, boolean: bool) -> NamedValue {
        NamedValue::new(name, BOOL, Value { boolean }, 1)
    }

    /// A float option. It refers to the name.
    pub(super) fn float(name: &str, float: f32) -> NamedValue {
        NamedValue::new(name, FLOAT, Value { float }, 1)
    }

    /// A text option. It refers to both texts.
    pub(super) fn text(name: &str, value: &str) -> NamedValue {
        NamedValue::new(name, STRING, Value { string: value.as_ptr().cast() }, value.len())
    }

    fn new(name: &str, kind: c_int, value: Value, value_size: usize) -> NamedValue {
        let (struct_size, extension_start) = (size_of::<NamedValue>(), std::ptr::null_mut());
        let (name, name_size) = (name.as_ptr().cast(), name.len());
        NamedValue { struct_size, extension_start, name, name_size, kind, value, value_size }
    }
}

/// `PJRT_NamedValue_kString`.
pub(super) const STRING: c_int = 0;

/// `PJRT_NamedValue_kInt64`.
pub(super) const INT64: c_int = 1;

/// `PJRT_NamedValue_kInt64List`.
pub(super) const INT64_LIST: c_int = 2;

/// `PJRT_NamedValue_kFloat`.
const FLOAT: c_int = 3;

/// `PJRT_NamedValue_kBool`.
const BOOL: c_int = 4;

#[repr(C)]
pub(super) struct Program {
    pub(super) struct_size: usize,
    pub(super) extension_start: *mut c_void,
    pub(super) code: *const c_char,
    pub(super) code_size: usize,
    pub(super) format: *const c_char,
    pub(super) format_size: usize,
}

impl Program {
    /// A module in MLIR's text format, to which it refers.
    pub(super) fn mlir(module: &str) -> Program {
        let format = "mlir";
        Program {
            struct_size: size_of::<Program>(),
            extension_start: std::ptr::null_mut(),
            code: module.as_ptr().cast(),
            code_size: module.len(),
            format: format.as_ptr().cast(),
            format_size: format.len(),
        }
    }
}

#[repr(C)]
pub(super) struct ExecuteOptions {
    pub(super) struct_size: usize,
    pub(super) extension_start: *mut c_void,
    pub(super) send_callbacks: *mut c_void,
    pub(super) recv_callbacks: *mut c_void,
    pub(super) num_send_ops: usize,
    pub(super) num_recv_ops: usize,
    pub(super) launch_id: c_int,
    pub(super) non_donatable_input_indices: *const i64,
    pub(super) num_non_donatable_input_indices: usize,
    pub(super) context: Handle,
    pub(super) call_location: *const c_char,
    pub(super) num_tasks: usize,
    pub(super) task_ids: *mut c_int,
    pub(super) incarnation_ids: *mut i64,
}

/// The order of the elements of an array. Only the tiled variant of the union, the larger one, is sent.
#[repr(C)]
pub(super) struct MemoryLayout {
    struct_size: usize,
    extension_start: *mut c_void,
    tiled: Tiled,
    kind: c_int,
}

/// `PJRT_Buffer_MemoryLayout_Tiled`.
#[repr(C)]
struct Tiled {
    struct_size: usize,
    extension_start: *mut c_void,
    minor_to_major: *const i64,
    minor_to_major_size: usize,
    tile_dims: *const i64,
    tile_dim_sizes: *const usize,
    num_tiles: usize,
}

impl MemoryLayout {
    /// The layout without tiles with this order of dimensions, the one of stride 1 first. It refers to the list.
    pub(super) fn untiled(minor_to_major: &[i64]) -> MemoryLayout {
        let tiled = Tiled {
            struct_size: size_of::<Tiled>(),
            extension_start: std::ptr::null_mut(),
            minor_to_major: minor_to_major.as_ptr(),
            minor_to_major_size: minor_to_major.len(),
            tile_dims: std::ptr::null(),
            tile_dim_sizes: std::ptr::null(),
            num_tiles: 0,
        };
        let (struct_size, extension_start) = (size_of::<MemoryLayout>(), std::ptr::null_mut());
        MemoryLayout { struct_size, extension_start, tiled, kind: TILED }
    }
}

/// `PJRT_Buffer_MemoryLayout_Type_Tiled`.
const TILED: c_int = 0;

/// `PJRT_HostBufferSemantics_kImmutableOnlyDuringCall`: the plugin reads the host's elements before the call returns.
pub(super) const ONLY_DURING_CALL: c_int = 0;

/// `PJRT_Error_Code_RESOURCE_EXHAUSTED`.
pub(super) const RESOURCE_EXHAUSTED: c_int = 8;

/// `PJRT_Error_Code_UNIMPLEMENTED`.
pub(super) const UNIMPLEMENTED: c_int = 12;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The used part of the header's table of functions, in order.
    pub(in crate::pjrt) const TABLE: &str = "
        Error_Destroy Error_Message Error_GetCode Plugin_Initialize Plugin_Attributes Event_Destroy Event_IsReady
        Event_Error Event_Await Event_OnReady Client_Create Client_Destroy Client_PlatformName Client_ProcessIndex
        Client_PlatformVersion Client_Devices Client_AddressableDevices Client_LookupDevice Client_LookupAddressableDevice
        Client_AddressableMemories Client_Compile Client_DefaultDeviceAssignment Client_BufferFromHostBuffer
        DeviceDescription_Id DeviceDescription_ProcessIndex DeviceDescription_Attributes DeviceDescription_Kind
        DeviceDescription_DebugString DeviceDescription_ToString Device_GetDescription Device_IsAddressable
        Device_LocalHardwareId Device_AddressableMemories Device_DefaultMemory Device_MemoryStats Memory_Id Memory_Kind
        Memory_DebugString Memory_ToString Memory_AddressableByDevices Executable_Destroy Executable_Name
        Executable_NumReplicas Executable_NumPartitions Executable_NumOutputs Executable_SizeOfGeneratedCodeInBytes
        Executable_GetCostAnalysis Executable_OutputMemoryKinds Executable_OptimizedProgram Executable_Serialize
        LoadedExecutable_Destroy LoadedExecutable_GetExecutable LoadedExecutable_AddressableDevices LoadedExecutable_Delete
        LoadedExecutable_IsDeleted LoadedExecutable_Execute Executable_DeserializeAndLoad LoadedExecutable_Fingerprint
        Buffer_Destroy Buffer_ElementType Buffer_Dimensions Buffer_UnpaddedDimensions Buffer_DynamicDimensionIndices
        Buffer_GetMemoryLayout Buffer_OnDeviceSizeInBytes Buffer_Device Buffer_Memory Buffer_Delete Buffer_IsDeleted
        Buffer_CopyToDevice Buffer_ToHostBuffer Buffer_IsOnCpu Buffer_ReadyEvent Buffer_UnsafePointer
        Buffer_IncreaseExternalReferenceCount Buffer_DecreaseExternalReferenceCount Buffer_OpaqueDeviceMemoryDataPointer
        CopyToDeviceStream_Destroy CopyToDeviceStream_AddChunk CopyToDeviceStream_TotalBytes CopyToDeviceStream_GranuleSize
        CopyToDeviceStream_CurrentBytes TopologyDescription_Create TopologyDescription_Destroy
        TopologyDescription_PlatformName TopologyDescription_PlatformVersion TopologyDescription_GetDeviceDescriptions
        TopologyDescription_Serialize TopologyDescription_Attributes Compile Executable_OutputElementTypes
        Executable_OutputDimensions Buffer_CopyToMemory Client_CreateViewOfDeviceBuffer Executable_Fingerprint
        Client_TopologyDescription Executable_GetCompiledMemoryStats
    ";

    #[test]
    fn functions_are_at_the_indices_of_the_table() {
        let table: Vec<&str> = TABLE.split_whitespace().collect();
        for &(name, index) in FUNCTIONS {
            assert_eq!(name.strip_prefix("PJRT_"), table.get(index).copied());
        }
        assert_eq!(size_of::<Api>(), 40);
    }

    /// The sizes that a C compiler computes for the header.
    #[test]
    fn structs_have_the_sizes_of_the_header() {
        let sizes =
            [24, 40, 32, 16, 24, 24, 88, 24, 40, 40, 40, 56, 120, 32, 32, 24, 32, 24, 32, 80, 24, 56, 32, 40, 48];
        let names: Vec<&str> = FUNCTIONS.iter().map(|&(name, _)| name).collect();
        let [got, expected] = [SIZES, &sizes].map(|sizes| names.iter().zip(sizes).collect::<Vec<_>>());
        assert_eq!(got, expected);
        assert_eq!(size_of::<NamedValue>(), 56);
        assert_eq!(size_of::<Program>(), 48);
        assert_eq!(size_of::<ExecuteOptions>(), 112);
        assert_eq!(size_of::<Tiled>(), 56);
        assert_eq!(size_of::<MemoryLayout>(), 80);
        assert_eq!(std::mem::offset_of!(MemoryLayout, kind), 72);
    }
}
