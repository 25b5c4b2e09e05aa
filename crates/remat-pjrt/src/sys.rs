//! The structs and numbers of `pjrt_c_api.h` 0.81. Names are those of the header without `PJRT_` and `_Args`.
//!
//! A struct of arguments ends with the last field that is read or written here, so that it is no longer than that of any caller.

#![allow(unsafe_code, reason = "what the structs of C promise; each use says why it is sound")]

use std::ffi::{c_char, c_int, c_void};

use remat_ir::DType;

use crate::buffer::Buffer;
use crate::event::Event;
use crate::failure::Failure;
use crate::place::{Client, Device, Memory, Topology};
use crate::program::{Executable, Loaded};

/// The version of the API: JAX of 2025 and later knows it.
pub(crate) const VERSION: [c_int; 2] = [0, 81];

/// Any function of the table: it takes a struct of its own.
pub(crate) type Function = unsafe extern "C" fn(*mut c_void) -> *mut Failure;

/// `PJRT_Api`, whose table has `N` functions.
#[repr(C)]
pub(crate) struct Api<const N: usize> {
    pub(crate) struct_size: usize,
    pub(crate) extension_start: *mut c_void,
    pub(crate) version: ApiVersion,
    pub(crate) functions: [Function; N],
}

/// `PJRT_Api_Version`.
#[repr(C)]
pub(crate) struct ApiVersion {
    pub(crate) struct_size: usize,
    pub(crate) extension_start: *mut c_void,
    pub(crate) numbers: [c_int; 2],
}

/// A struct of arguments.
///
/// # Safety
/// The type begins with `struct_size` and the pointer to extensions, and is the beginning of the struct that the function takes.
pub(crate) unsafe trait Arguments {
    /// The size that the caller says.
    fn struct_size(&self) -> usize;
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        pub(crate) struct $name {
            pub(crate) struct_size: usize,
            extension_start: *mut c_void,
            $(pub(crate) $field: $type,)*
        }

        // SAFETY: the fields are those of the header, in its order, from the first on.
        unsafe impl Arguments for $name {
            fn struct_size(&self) -> usize {
                self.struct_size
            }
        }
    )* };
}

arguments! {
    ErrorDestroy { error: *mut Failure, }
    ErrorMessage { error: *const Failure, message: *const c_char, message_size: usize, }
    ErrorGetCode { error: *const Failure, code: c_int, }
    PluginInitialize { }
    PluginAttributes { attributes: *const NamedValue, num_attributes: usize, }
    OfEvent { event: *mut Event, }
    EventIsReady { event: *const Event, is_ready: bool, }
    EventOnReady { event: *const Event, callback: Option<unsafe extern "C" fn(*mut Failure, *mut c_void)>, user_arg: *mut c_void, }
    ClientCreate {
        create_options: *const NamedValue,
        num_options: usize,
        kv_get_callback: *const c_void,
        kv_get_user_arg: *mut c_void,
        kv_put_callback: *const c_void,
        kv_put_user_arg: *mut c_void,
        client: *const Client,
    }
    OfClient { client: *const Client, }
    /// A text of a client, a topology, a description, a memory or an executable.
    Text { of: *const c_void, text: *const c_char, size: usize, }
    /// A number of one of these.
    Number { of: *const c_void, number: c_int, }
    /// A size of one of these.
    Size { of: *const c_void, size: usize, }
    /// A large number of one of these.
    Long { of: *const c_void, number: i64, }
    /// A yes or no of one of these.
    Flag { of: *const c_void, flag: bool, }
    /// A list of pointers of one of these.
    List { of: *const c_void, list: *const *const c_void, count: usize, }
    /// Another object of one of these.
    Other { of: *const c_void, other: *const c_void, }
    /// Attributes whose number comes first.
    CountedAttributes { of: *const c_void, count: usize, attributes: *const NamedValue, }
    /// Attributes whose number comes last.
    Attributes { of: *const c_void, attributes: *const NamedValue, count: usize, }
    Lookup { client: *const Client, id: c_int, device: *const Device, }
    Compile { client: *const Client, program: *const Program, options: *const u8, options_size: usize, executable: *mut Loaded, }
    DefaultAssignment { client: *const Client, num_replicas: c_int, num_partitions: c_int, size: usize, assignment: *mut c_int, }
    BufferFromHost {
        client: *const Client,
        data: *const u8,
        kind: c_int,
        dims: *const i64,
        num_dims: usize,
        byte_strides: *const i64,
        num_byte_strides: usize,
        semantics: c_int,
        device: *const Device,
        memory: *const Memory,
        layout: *const Layout,
        done: *mut Event,
        buffer: *mut Buffer,
    }
    OfExecutable { executable: *mut Executable, }
    OfLoaded { loaded: *mut Loaded, }
    LoadedExecutable { loaded: *const Loaded, executable: *mut Executable, }
    DeviceAssignment {
        loaded: *const Loaded,
        bytes: *const u8,
        size: usize,
        owner: *mut c_void,
        deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    }
    Execute {
        loaded: *const Loaded,
        options: *const ExecuteOptions,
        arguments: *const *const *const Buffer,
        num_devices: usize,
        num_args: usize,
        outputs: *const *mut *mut Buffer,
        events: *mut *mut Event,
        device: *const Device,
    }
    CompiledMemory {
        executable: *const Executable,
        code: i64,
        arguments: i64,
        outputs: i64,
        aliases: i64,
        temporaries: i64,
        host: [i64; 5],
    }
    OutputTypes { executable: *const Executable, types: *const c_int, count: usize, }
    OutputDimensions { executable: *const Executable, count: usize, dims: *const i64, ranks: *const usize, }
    OutputMemories { executable: *const Executable, count: usize, kinds: *const *const c_char, sizes: *const usize, }
    OfBuffer { buffer: *mut Buffer, }
    BufferDimensions { buffer: *const Buffer, dims: *const i64, count: usize, }
    BufferLayout { buffer: *const Buffer, layout: Layout, }
    BufferCopy { buffer: *const Buffer, to: *const c_void, copy: *mut Buffer, }
    ToHost { buffer: *const Buffer, layout: *const Layout, data: *mut u8, size: usize, event: *mut Event, }
    CopyRaw { buffer: *const Buffer, data: *mut u8, offset: i64, size: i64, event: *mut Event, }
    BufferEvent { buffer: *const Buffer, event: *mut Event, }
    BufferPointer { buffer: *const Buffer, pointer: usize, }
    Context { context: *mut c_void, }
    TopologyCreate {
        name: *const c_char,
        name_size: usize,
        create_options: *const NamedValue,
        num_options: usize,
        topology: *const Topology,
    }
    OfTopology { topology: *const Topology, }
}

/// `PJRT_ExecuteOptions`, up to the last field that is read.
#[repr(C)]
pub(crate) struct ExecuteOptions {
    pub(crate) struct_size: usize,
    extension_start: *mut c_void,
    pub(crate) send_callbacks: *mut c_void,
    pub(crate) recv_callbacks: *mut c_void,
    pub(crate) num_send_ops: usize,
    pub(crate) num_recv_ops: usize,
    pub(crate) launch_id: c_int,
    pub(crate) kept: *const i64,
    pub(crate) num_kept: usize,
}

/// `PJRT_Program`.
#[repr(C)]
pub(crate) struct Program {
    pub(crate) struct_size: usize,
    extension_start: *mut c_void,
    pub(crate) code: *const u8,
    pub(crate) code_size: usize,
    pub(crate) format: *const u8,
    pub(crate) format_size: usize,
}

/// `PJRT_NamedValue`: a list of integers or one integer.
#[repr(C)]
pub(crate) struct NamedValue {
    struct_size: usize,
    extension_start: *mut c_void,
    name: *const c_char,
    name_size: usize,
    kind: c_int,
    value: NumberOrList,
    value_size: usize,
}

#[repr(C)]
union NumberOrList {
    number: i64,
    list: *const i64,
}

// SAFETY: it refers to texts and lists that live as long as the process and never change.
unsafe impl Sync for NamedValue {}

impl NamedValue {
    pub(crate) const fn number(name: &'static str, number: i64) -> NamedValue {
        NamedValue::new(name, 1, NumberOrList { number }, 1)
    }

    pub(crate) const fn list(name: &'static str, list: &'static [i64]) -> NamedValue {
        NamedValue::new(name, 2, NumberOrList { list: list.as_ptr() }, list.len())
    }

    const fn new(name: &'static str, kind: c_int, value: NumberOrList, value_size: usize) -> NamedValue {
        let (struct_size, extension_start) = (size_of::<NamedValue>(), std::ptr::null_mut());
        NamedValue {
            struct_size,
            extension_start,
            name: name.as_ptr().cast(),
            name_size: name.len(),
            kind,
            value,
            value_size,
        }
    }
}

/// `PJRT_Buffer_MemoryLayout`: the order of dimensions, or strides.
#[repr(C)]
pub(crate) struct Layout {
    pub(crate) struct_size: usize,
    extension_start: *mut c_void,
    pub(crate) order: Tiled,
    pub(crate) kind: c_int,
}

/// `PJRT_Buffer_MemoryLayout_Tiled`. `PJRT_Buffer_MemoryLayout_Strides` has the same first fields.
#[repr(C)]
pub(crate) struct Tiled {
    struct_size: usize,
    extension_start: *mut c_void,
    /// The dimensions from that of the nearest elements on; or the strides in bytes.
    pub(crate) numbers: *const i64,
    pub(crate) count: usize,
    tile_dims: *const i64,
    tile_dim_sizes: *const usize,
    pub(crate) num_tiles: usize,
}

impl Layout {
    /// `PJRT_Buffer_MemoryLayout_Type_Tiled`.
    pub(crate) const TILED: c_int = 0;

    /// Without tiles, with this order of dimensions, to which it refers.
    pub(crate) fn of(minor_to_major: &[i64]) -> Layout {
        let extension_start = std::ptr::null_mut();
        let order = Tiled {
            struct_size: size_of::<Tiled>(),
            extension_start,
            numbers: minor_to_major.as_ptr(),
            count: minor_to_major.len(),
            tile_dims: std::ptr::null(),
            tile_dim_sizes: std::ptr::null(),
            num_tiles: 0,
        };
        Layout { struct_size: size_of::<Layout>(), extension_start, order, kind: Layout::TILED }
    }
}

/// The dtypes by their numbers in `PJRT_Buffer_Type`.
const TYPES: [(c_int, DType); 13] = [
    (1, DType::Bool),
    (2, DType::I8),
    (3, DType::I16),
    (4, DType::I32),
    (5, DType::I64),
    (6, DType::U8),
    (7, DType::U16),
    (8, DType::U32),
    (9, DType::U64),
    (10, DType::F16),
    (11, DType::F32),
    (12, DType::F64),
    (13, DType::Bf16),
];

/// The number of a dtype.
pub(crate) fn number_of(dtype: DType) -> c_int {
    TYPES.iter().find(|row| row.1 == dtype).map_or(0, |row| row.0)
}

/// The dtype of a number, if it is one of an array here.
pub(crate) fn dtype_of(number: c_int) -> Option<DType> {
    TYPES.iter().find(|row| row.0 == number).map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that a C compiler computes for the header.
    #[test]
    fn structs_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<ApiVersion>(), 24);
        assert_eq!(size_of::<NamedValue>(), 56);
        assert_eq!(size_of::<Program>(), 48);
        assert_eq!(size_of::<Tiled>(), 56);
        assert_eq!((size_of::<Layout>(), std::mem::offset_of!(Layout, kind)), (80, 72));
        assert_eq!(size_of::<BufferFromHost>(), 120);
        assert_eq!(size_of::<Execute>(), 80);
        assert_eq!(size_of::<ToHost>(), 56);
        assert_eq!(size_of::<Compile>(), 56);
        assert_eq!(std::mem::offset_of!(ClientCreate, client), 64);
        assert_eq!(std::mem::offset_of!(ExecuteOptions, num_kept), 64);
        assert_eq!(size_of::<ErrorGetCode>(), 32);
    }

    #[test]
    fn every_dtype_has_a_number() {
        for dtype in DType::ALL {
            assert_eq!(dtype_of(number_of(dtype)), Some(dtype));
        }
        // 14 is complex64.
        assert_eq!(dtype_of(14), None);
    }
}
