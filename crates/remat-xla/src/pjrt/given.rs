//! Conversions between plugins and Rust: handles, lists, sizes, dtypes.

use std::ffi::c_int;

use remat_ir::{Aval, DType, Error, ErrorKind, Result};

use super::sys::Handle;

/// A handle returned by a function; plugins return one unless they return an error.
pub(super) fn given(function: &str, handle: Handle) -> Result<Handle> {
    let missing = || Error::new(ErrorKind::Internal, "xla", format!("{function}: the plugin gave nothing"));
    if handle.is_null() { Err(missing()) } else { Ok(handle) }
}

/// The slice of `len` elements at this address; empty if the address is null.
///
/// # Safety
/// The elements exist as long as the slice is used.
pub(super) unsafe fn slice<'a, T>(start: *const T, len: usize) -> &'a [T] {
    // SAFETY: by the contract of this function.
    if start.is_null() || len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, len) } }
}

pub(super) fn dims(aval: &Aval) -> Result<Vec<i64>> {
    let too_large =
        |_| Error::new(ErrorKind::Shape, "xla", format!("{aval} has a dimension of more than 2^63 elements"));
    aval.shape.iter().map(|&size| i64::try_from(size).map_err(too_large)).collect()
}

/// `PJRT_Buffer_Type`.
pub(super) fn element_type(dtype: DType) -> c_int {
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
