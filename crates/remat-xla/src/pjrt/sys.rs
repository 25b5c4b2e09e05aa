//! Structs and numbers of `pjrt_c_api.h` 0.81, as far as they are used. Names are those of the header without `PJRT_` and `_Args`.

use std::ffi::{c_char, c_int, c_void};

/// A pointer to something that the plugin owns.
pub(super) type Handle = *mut c_void;

/// The beginning of `PJRT_Api`, behind which the table of functions lies.
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

/// The arguments of a function.
///
/// # Safety
/// The type is the argument struct of the function at `INDEX` in the header's table, without padding at its beginning, and all its
/// fields may be zero.
pub(super) unsafe trait Arguments: Sized {
    /// The place of the function in the table.
    const INDEX: usize;
    /// The name of the function.
    const NAME: &'static str;

    /// Zeros, and the size.
    fn new() -> Self;
}

macro_rules! arguments {
    ($($name:ident $index:literal { $($field:ident: $type:ty,)* })*) => { $(
        #[repr(C)]
        pub(super) struct $name {
            pub(super) struct_size: usize,
            pub(super) extension_start: *mut c_void,
            $(pub(super) $field: $type,)*
        }

        // SAFETY: the fields are those of the header, in its order; they are integers and pointers, which may be zero. The test
        // below compares the sizes, and the one of indices the names in the table.
        unsafe impl Arguments for $name {
            const INDEX: usize = $index;
            const NAME: &'static str = stringify!($name);

            fn new() -> $name {
                // SAFETY: the fields are integers and pointers.
                let zeros: $name = unsafe { std::mem::zeroed() };
                $name { struct_size: size_of::<$name>(), ..zeros }
            }
        }
    )* };
}

arguments! {
    ErrorDestroy 0 { error: Handle, }
    ErrorMessage 1 { error: Handle, message: *const c_char, message_size: usize, }
    ErrorGetCode 2 { error: Handle, code: c_int, }
    PluginInitialize 3 { }
    EventDestroy 5 { event: Handle, }
    EventAwait 8 { event: Handle, }
    ClientCreate 10 {
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
    ClientDestroy 11 { client: Handle, }
    ClientPlatformVersion 14 { client: Handle, version: *const c_char, version_size: usize, }
    ClientAddressableDevices 16 { client: Handle, devices: *const Handle, num_devices: usize, }
    ClientCompile 20 {
        client: Handle,
        program: *const Program,
        compile_options: *const u8,
        compile_options_size: usize,
        executable: Handle,
    }
    ClientBufferFromHostBuffer 22 {
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
    ExecutableDestroy 40 { executable: Handle, }
    ExecutableNumOutputs 44 { executable: Handle, num_outputs: usize, }
    LoadedExecutableDestroy 50 { executable: Handle, }
    LoadedExecutableGetExecutable 51 { loaded_executable: Handle, executable: Handle, }
    LoadedExecutableExecute 55 {
        executable: Handle,
        options: *mut ExecuteOptions,
        argument_lists: *const *const Handle,
        num_devices: usize,
        num_args: usize,
        output_lists: *const *mut Handle,
        device_complete_events: *mut Handle,
        execute_device: Handle,
    }
    BufferDestroy 58 { buffer: Handle, }
    BufferToHostBuffer 70 {
        src: Handle,
        host_layout: *mut c_void,
        dst: *mut c_void,
        dst_size: usize,
        event: Handle,
    }
    ExecutableOutputElementTypes 90 { executable: Handle, output_types: *const c_int, num_output_types: usize, }
    ExecutableOutputDimensions 91 {
        executable: Handle,
        num_outputs: usize,
        dims: *const i64,
        dim_sizes: *const usize,
    }
    ExecutableGetCompiledMemoryStats 96 {
        executable: Handle,
        generated_code_size_in_bytes: i64,
        argument_size_in_bytes: i64,
        output_size_in_bytes: i64,
        alias_size_in_bytes: i64,
        temp_size_in_bytes: i64,
        host_generated_code_size_in_bytes: i64,
        host_argument_size_in_bytes: i64,
        host_output_size_in_bytes: i64,
        host_alias_size_in_bytes: i64,
        host_temp_size_in_bytes: i64,
        peak_memory_in_bytes: i64,
    }
}

/// An option of a client. All that is sent is `int64`.
#[repr(C)]
pub(super) struct NamedValue {
    pub(super) struct_size: usize,
    pub(super) extension_start: *mut c_void,
    pub(super) name: *const c_char,
    pub(super) name_size: usize,
    pub(super) kind: c_int,
    /// A union of which `int64_value` is the widest with a pointer.
    pub(super) int64_value: i64,
    pub(super) value_size: usize,
}

/// `PJRT_NamedValue_kInt64`.
pub(super) const INT64: c_int = 1;

#[repr(C)]
pub(super) struct Program {
    pub(super) struct_size: usize,
    pub(super) extension_start: *mut c_void,
    pub(super) code: *const c_char,
    pub(super) code_size: usize,
    pub(super) format: *const c_char,
    pub(super) format_size: usize,
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

/// `PJRT_HostBufferSemantics_kImmutableOnlyDuringCall`: the plugin reads the host's elements before the call returns.
pub(super) const ONLY_DURING_CALL: c_int = 0;

/// `PJRT_Error_Code_RESOURCE_EXHAUSTED`.
pub(super) const RESOURCE_EXHAUSTED: c_int = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_sizes_that_plugins_expect() {
        // What current plugins say when they are called with a struct of size 0.
        assert_eq!(size_of::<Api>(), 40);
        assert_eq!(size_of::<ErrorMessage>(), 40);
        assert_eq!(size_of::<ClientCreate>(), 88);
        assert_eq!(size_of::<ClientCompile>(), 56);
        assert_eq!(size_of::<ClientBufferFromHostBuffer>(), 120);
        assert_eq!(size_of::<LoadedExecutableExecute>(), 80);
        assert_eq!(size_of::<ExecuteOptions>(), 112);
        assert_eq!(size_of::<BufferToHostBuffer>(), 56);
        assert_eq!(size_of::<NamedValue>(), 56);
        assert_eq!(size_of::<Program>(), 48);
        assert_eq!(size_of::<ExecutableGetCompiledMemoryStats>(), 112);
    }
}
