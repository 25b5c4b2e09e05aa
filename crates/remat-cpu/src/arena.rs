//! Fallible allocation of a run's memory: the arena in one block, and the elements of results.

// This file allocates raw memory.
#![allow(unsafe_code)]

use std::alloc::{Layout, LayoutError, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use remat_ir::{Aval, DType, Data, Element, Error, ErrorKind, Result, with_dtype};
use remat_plan::ALIGNMENT;

/// The alignment of every block of the system's allocator. Larger alignments take a slower path in the allocator, which also clears pages
/// that the kernel has cleared already.
const NATURAL: usize = 16;

/// Bytes, aligned to a cache line.
pub(crate) struct Arena {
    block: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an arena owns its bytes, as a vector does.
unsafe impl Send for Arena {}

impl Arena {
    /// An arena of this many bytes, all zero.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn new(bytes: usize) -> Result<Arena> {
        let Some(layout) = Arena::layout(bytes) else {
            return Ok(Arena { block: NonNull::dangling(), bytes });
        };
        let layout = layout.map_err(|_| refused(bytes))?;
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| refused(bytes))?;
        advise_huge_pages(block, layout.size());
        Ok(Arena { block, bytes })
    }

    /// The bytes that an arena of `bytes` bytes allocates.
    pub(crate) fn allocated_bytes(bytes: usize) -> usize {
        if bytes == 0 { 0 } else { bytes.saturating_add(ALIGNMENT - NATURAL) }
    }

    /// That block, if there is one.
    fn layout(bytes: usize) -> Option<std::result::Result<Layout, LayoutError>> {
        (bytes > 0).then(|| Layout::from_size_align(Arena::allocated_bytes(bytes), NATURAL))
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Its first byte.
    pub(crate) fn start(&mut self) -> *mut u8 {
        let block = self.block.as_ptr();
        block.wrapping_add(block.align_offset(ALIGNMENT))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(Ok(layout)) = Arena::layout(self.bytes) {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.block.as_ptr(), layout) }
        }
    }
}

/// Allocates the elements of a result. Their values are unspecified, since clearing a result takes as long as writing it; bools are false.
///
/// # Errors
/// If there is no memory for them.
pub(crate) fn elements(aval: &Aval) -> Result<Data> {
    with_dtype!(aval.dtype, T => Ok(T::wrap(allocated::<T>(aval.size())?)))
}

fn allocated<T: Element>(len: usize) -> Result<Vec<T>> {
    let layout = Layout::array::<T>(len).map_err(|_| refused(len.saturating_mul(size_of::<T>())))?;
    if layout.size() == 0 {
        return Ok(Vec::new());
    }
    let is_cleared = T::DTYPE == DType::Bool || !CAN_BE_UNSPECIFIED;
    // SAFETY: the size is not zero.
    let start = unsafe { if is_cleared { alloc_zeroed(layout) } else { alloc(layout) } };
    let start = NonNull::new(start).ok_or_else(|| refused(layout.size()))?;
    advise_huge_pages(start, layout.size());
    if !is_cleared {
        initialise(start, layout.size());
    }
    // SAFETY: the elements are initialised. All-zero bytes are an element of every dtype, and any bytes are one of every dtype but bool.
    // The vector's capacity is that of the allocation.
    Ok(unsafe { Vec::from_raw_parts(start.as_ptr().cast(), len, len) })
}

/// Whether [`initialise`] is more than a fill with zeros.
const CAN_BE_UNSPECIFIED: bool = cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)));

/// Initialises memory of the allocator. In debug builds every byte becomes 0xff (NaN, -1, or the largest unsigned number), so that tests
/// see elements that no kernel has written. Otherwise the bytes stay as they are, unless an allocator gives untouched pages back to the
/// system (`MADV_FREE`).
fn initialise(start: NonNull<u8>, bytes: usize) {
    if cfg!(debug_assertions) {
        // SAFETY: these are the bytes of a block.
        unsafe { start.as_ptr().write_bytes(0xff, bytes) };
    }
    // For the compiler this writes all of the memory: from here on it is initialised, with unknown values that stay as they are.
    // SAFETY: it does nothing.
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) start.as_ptr(), options(nostack, preserves_flags));
    }
}

/// Bytes of a huge page on most systems.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_PAGE: usize = 2 << 20;

/// The least block that holds a whole huge page wherever it begins. glibc may take a block of less than 32 MiB from the heap
/// (`DEFAULT_MMAP_THRESHOLD_MAX`), where the advice outlives the block: if its memory was given back to the system, a small block there may
/// bring in 2 MiB. (Row "Results in huge pages" of docs/EXPERIMENTS.md.)
#[cfg(all(target_os = "linux", not(miri)))]
const LEAST_ADVISED: usize = 2 * HUGE_PAGE;

/// Asks the system to back a large block by huge pages. Page faults then bring 2 MiB instead of 4 KiB, and kernels that read columns
/// miss the TLB less often. Only huge pages that lie entirely in the block are advised, so that the block takes no more memory than its own.
fn advise_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let first = start.as_ptr().align_offset(HUGE_PAGE);
        let len = bytes.saturating_sub(first) / HUGE_PAGE * HUGE_PAGE;
        if bytes >= LEAST_ADVISED {
            // SAFETY: these pages are in a block that was allocated just now; the advice changes how they are backed, not what they hold. A
            // system that cannot follow it returns an error and changes nothing.
            unsafe { libc::madvise(start.as_ptr().add(first).cast(), len, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, bytes);
}

/// The address of the elements.
pub(crate) fn start(data: &Data) -> *const u8 {
    with_dtype!(data.dtype(), T => T::slice(data).map_or(std::ptr::null(), |s| s.as_ptr().cast()))
}

/// The address of the elements, for writing.
pub(crate) fn start_mut(data: &mut Data) -> *mut u8 {
    with_dtype!(data.dtype(), T => T::slice_mut(data).map_or(std::ptr::null_mut(), |s| s.as_mut_ptr().cast()))
}

fn refused(bytes: usize) -> Error {
    Error::new(ErrorKind::Memory, "run", format!("there is no memory for {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use remat_ir::DType;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where a system would refuse memory")]
    fn what_cannot_be_had_is_an_error() {
        for bytes in [1 << 60, usize::MAX] {
            let error = Arena::new(bytes).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Memory);
            assert_eq!(error.to_string(), format!("run: there is no memory for {bytes} bytes"));
        }
        assert!(elements(&Aval::new(DType::F64, [1 << 60])).is_err());
        assert!(Arena::new(0).is_ok());
    }

    #[test]
    fn bools_are_false_and_debug_builds_mark_other_elements() {
        // Memory that held other bytes before, if the allocator returns the same block.
        drop(vec![0xa5u8; 4096]);
        assert_eq!(
            elements(&Aval::new(DType::Bool, [4096])).ok().map(|data| bool::slice(&data) == Some(&[false; 4096])),
            Some(true)
        );
        let floats = elements(&Aval::new(DType::F32, [100])).unwrap();
        let floats = f32::slice(&floats).unwrap();
        assert_eq!(floats.len(), 100);
        let is_marked = cfg!(debug_assertions) && CAN_BE_UNSPECIFIED;
        assert!(!is_marked || floats.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn arenas_are_aligned_and_clear() {
        for bytes in [1, 64, 1000, 1 << 14] {
            let mut arena = Arena::new(bytes).unwrap();
            let start = arena.start();
            assert_eq!(start.addr() % ALIGNMENT, 0);
            let end = start.addr() + bytes;
            assert!(end <= arena.block.addr().get() + Arena::allocated_bytes(bytes));
            // SAFETY: the arena has this many bytes, which are all initialised.
            assert!((0..bytes).all(|i| unsafe { start.add(i).read() } == 0));
        }
    }
}
