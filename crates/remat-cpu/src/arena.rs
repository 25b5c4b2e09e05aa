//! Memory that is asked for at once and may be refused.

// Raw memory is what this file is for.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use remat_ir::{Aval, Data, Element, Error, ErrorKind, Result, with_dtype};

use crate::schedule::ALIGNMENT;

/// Bytes, aligned to a cache line.
pub(crate) struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an arena owns its bytes, as a vector does.
unsafe impl Send for Arena {}

impl Arena {
    /// So many bytes, all zero.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn new(bytes: usize) -> Result<Arena> {
        if bytes == 0 {
            return Ok(Arena { start: NonNull::<[u64; 8]>::dangling().cast(), bytes });
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| refused(bytes))?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| refused(bytes))?;
        Ok(Arena { start, bytes })
    }

    /// Where it begins.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.bytes > 0
            && let Ok(layout) = Layout::from_size_align(self.bytes, ALIGNMENT)
        {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

/// The elements of an array that is to be computed: so many zeros.
///
/// # Errors
/// If there is no memory for them.
pub(crate) fn zeros(aval: &Aval) -> Result<Data> {
    with_dtype!(aval.dtype, T => Ok(T::wrap(zeroed::<T>(aval.size())?)))
}

fn zeroed<T: Element>(len: usize) -> Result<Vec<T>> {
    let layout = Layout::array::<T>(len).map_err(|_| refused(len.saturating_mul(size_of::<T>())))?;
    if layout.size() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the size is not zero. All-zero bytes are a valid element of every dtype, and the vector's capacity is what
    // was allocated.
    unsafe {
        let start = NonNull::new(alloc_zeroed(layout)).ok_or_else(|| refused(layout.size()))?;
        Ok(Vec::from_raw_parts(start.as_ptr().cast(), len, len))
    }
}

/// Where the elements are.
pub(crate) fn start(data: &Data) -> *const u8 {
    with_dtype!(data.dtype(), T => T::slice(data).map_or(std::ptr::null(), |s| s.as_ptr().cast()))
}

/// Where the elements are, for writing.
pub(crate) fn start_mut(data: &mut Data) -> *mut u8 {
    with_dtype!(data.dtype(), T => T::slice_mut(data).map_or(std::ptr::null_mut(), |s| s.as_mut_ptr().cast()))
}

fn refused(bytes: usize) -> Error {
    Error::new(ErrorKind::Shape, "run", format!("there is no memory for {bytes} bytes of temporaries"))
}

#[cfg(test)]
mod tests {
    use remat_ir::DType;

    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for bytes in [1 << 60, usize::MAX] {
            let error = Arena::new(bytes).map(|_| ()).unwrap_err();
            assert_eq!(error.to_string(), format!("run: there is no memory for {bytes} bytes of temporaries"));
        }
        assert!(zeros(&Aval::new(DType::F64, [1 << 60])).is_err());
        assert_eq!(zeros(&Aval::new(DType::Bool, [3])).ok().map(|d| d.len()), Some(3));
        assert!(Arena::new(0).is_ok());
    }
}
