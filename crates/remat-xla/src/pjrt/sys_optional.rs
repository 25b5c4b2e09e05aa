//! Structs of functions that some plugins lack: serialized executables, the memory of a run and of a device, topologies, and compiling for them.

use std::ffi::{c_char, c_void};

use super::sys::{Arguments, Handle, NamedValue, Program, arguments};

arguments! {
    PluginAttributes PJRT_Plugin_Attributes 4 { attributes: *const NamedValue, num_attributes: usize, }
    DeviceDescriptionAttributes PJRT_DeviceDescription_Attributes 25 {
        device_description: Handle,
        num_attributes: usize,
        attributes: *const NamedValue,
    }
    DeviceDescriptionKind PJRT_DeviceDescription_Kind 26 {
        device_description: Handle,
        device_kind: *const c_char,
        device_kind_size: usize,
    }
    DeviceMemoryStats PJRT_Device_MemoryStats 34 {
        device: Handle,
        bytes_in_use: i64,
        peak_bytes_in_use: i64,
        peak_bytes_in_use_is_set: u8,
        num_allocs: i64,
        num_allocs_is_set: u8,
        largest_alloc_size: i64,
        largest_alloc_size_is_set: u8,
        bytes_limit: i64,
        bytes_limit_is_set: u8,
        bytes_reserved: i64,
        bytes_reserved_is_set: u8,
        peak_bytes_reserved: i64,
        peak_bytes_reserved_is_set: u8,
        bytes_reservable_limit: i64,
        bytes_reservable_limit_is_set: u8,
        largest_free_block_bytes: i64,
        largest_free_block_bytes_is_set: u8,
        pool_bytes: i64,
        pool_bytes_is_set: u8,
        peak_pool_bytes: i64,
        peak_pool_bytes_is_set: u8,
        peak_allocated_bytes: i64,
        peak_allocated_bytes_is_set: u8,
    }
    ExecutableSerialize PJRT_Executable_Serialize 49 {
        executable: Handle,
        serialized_bytes: *const u8,
        serialized_bytes_size: usize,
        serialized_executable: Handle,
        serialized_executable_deleter: Option<unsafe extern "C" fn(Handle)>,
    }
    ExecutableDeserializeAndLoad PJRT_Executable_DeserializeAndLoad 56 {
        client: Handle,
        serialized_executable: *const u8,
        serialized_executable_size: usize,
        loaded_executable: Handle,
        overridden_serialized_compile_options: *const u8,
        overridden_serialized_compile_options_size: usize,
    }
    TopologyDescriptionCreate PJRT_TopologyDescription_Create 82 {
        topology_name: *const c_char,
        topology_name_size: usize,
        create_options: *const NamedValue,
        num_options: usize,
        topology: Handle,
    }
    TopologyDescriptionDestroy PJRT_TopologyDescription_Destroy 83 { topology: Handle, }
    TopologyDescriptionPlatformVersion PJRT_TopologyDescription_PlatformVersion 85 {
        topology: Handle,
        platform_version: *const c_char,
        platform_version_size: usize,
    }
    TopologyDescriptionGetDeviceDescriptions PJRT_TopologyDescription_GetDeviceDescriptions 86 {
        topology: Handle,
        descriptions: *const Handle,
        num_descriptions: usize,
    }
    Compile PJRT_Compile 89 {
        topology: Handle,
        program: *const Program,
        compile_options: *const c_char,
        compile_options_size: usize,
        client: Handle,
        executable: Handle,
    }
    ExecutableGetCompiledMemoryStats PJRT_Executable_GetCompiledMemoryStats 96 {
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
        total_size_in_bytes: i64,
        total_allocation_bytes: i64,
        indefinite_allocations: i64,
        peak_unpadded_heap_bytes: i64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sys::tests::TABLE;
    use super::*;

    #[test]
    fn functions_are_at_the_indices_of_the_table() {
        let table: Vec<&str> = TABLE.split_whitespace().collect();
        for &(name, index) in FUNCTIONS {
            assert_eq!(name.strip_prefix("PJRT_"), table.get(index).copied());
        }
    }

    /// The sizes that a C compiler computes for the header; in 0.81 the last struct ends after the peak, four fields earlier,
    /// and that of a device's memory after the peak of the pool, two fields earlier.
    #[test]
    fn structs_have_the_sizes_of_the_header() {
        let sizes = [32, 40, 40, 208, 56, 64, 56, 24, 40, 40, 64, 144];
        assert_eq!(SIZES, sizes);
    }
}
