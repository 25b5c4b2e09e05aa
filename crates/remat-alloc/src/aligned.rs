//! An allocator whose large blocks start at a cache line.

use std::alloc::{GlobalAlloc, Layout, System};

/// The bytes of a cache line, and of the longest vector register of the processors that we know.
const CACHE_LINE: usize = 64;

/// The fewest bytes of a large block. An array of fewer lies in the fastest cache.
const LEAST: usize = 16 << 10;

/// The allocator of the system, except that blocks of at least 16 KiB start at a cache line; each takes 64 bytes more for that.
///
/// The elements of an array are a vector, which `malloc` aligns to 16 bytes. In three of four arrays every load of a 64-byte vector register then
/// touches two cache lines. Loops that wait for memory feel it: an update by AdamW of ten million parameters takes 14 to 15 ms where it took 21 to 24.
/// A program that trains on the native engine takes it as its allocator, as the `remat` command and the plugin for JAX do.
///
/// The system is asked for a block that is larger, not for one that is aligned: `posix_memalign` of glibc leaves gaps that no later block of the same
/// size fits in, and the memory of a process grows to several times what is live.
///
/// ```
/// use remat_alloc::Aligned;
///
/// #[global_allocator]
/// static ALLOCATOR: Aligned = Aligned;
///
/// let parameters = vec![1.0f32; 10_000];
/// assert_eq!(parameters.as_ptr().addr() % 64, 0);
/// ```
pub struct Aligned;

/// What the system is asked for in place of a large block: it starts at least this far before the bytes that are given out, and at most a cache
/// line. In between lies the distance.
const HEADER: usize = 2 * size_of::<usize>();

/// The layout of the system's block for a large block with this layout; `None` for a block that the system gives as it is.
fn around(layout: Layout) -> Option<Layout> {
    let is_large = layout.size() >= LEAST && layout.align() <= CACHE_LINE;
    // A size that has no room for a line is refused by the system.
    is_large.then(|| Layout::from_size_align(layout.size() + CACHE_LINE, HEADER).ok()).flatten()
}

/// How far behind the start of a block of the system its large block lies: from [`HEADER`], of which the block is a multiple, to a line.
fn to_line(block: *mut u8) -> usize {
    CACHE_LINE - block.addr() % CACHE_LINE
}

/// The large block in a block of the system, which may be null.
///
/// # Safety
/// The block has the layout that [`around`] gives.
unsafe fn inside(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        return block;
    }
    let distance = to_line(block);
    // SAFETY: the block has a line more than the large one.
    let large = unsafe { block.add(distance) };
    // SAFETY: the bytes before the large block are of the system's block, and as aligned as a number.
    unsafe { large.cast::<usize>().sub(1).write(distance) };
    large
}

/// How far behind the start of its block of the system a large block lies.
///
/// # Safety
/// It came from [`inside`].
unsafe fn distance(large: *mut u8) -> usize {
    // SAFETY: `inside` has written it there.
    unsafe { large.cast::<usize>().sub(1).read() }
}

// SAFETY: a block is one of the system with the layout that is asked for, or the part of a larger one behind its header, with the size that is asked
// for and at least that alignment. Which of both it is follows from its layout. No method panics.
unsafe impl GlobalAlloc for Aligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match around(layout) {
            // SAFETY: the size is not zero, and the block has this layout.
            Some(around) => unsafe { inside(System.alloc(around)) },
            // SAFETY: the caller's contract is that of `System`.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match around(layout) {
            // SAFETY: the size is not zero, and the block has this layout. The header lies before the large block, whose bytes stay zero.
            Some(around) => unsafe { inside(System.alloc_zeroed(around)) },
            // SAFETY: the caller's contract is that of `System`.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match around(layout) {
            // SAFETY: a block of this layout came from `inside`.
            Some(around) => unsafe { System.dealloc(block.sub(distance(block)), around) },
            // SAFETY: the caller's contract is that of `System`, which allocated the block.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size, rounded up to the alignment, is no more than `isize::MAX`.
        let after = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let kept = layout.size().min(size);
        match (around(layout), around(after)) {
            // SAFETY: the caller's contract is that of `System`, which allocated the block.
            (None, None) => unsafe { System.realloc(block, layout, size) },
            (Some(old), Some(new)) => {
                // SAFETY: the block came from `inside`, and the system's block around it has the old layout.
                let (before, moved) = unsafe {
                    let before = distance(block);
                    (before, System.realloc(block.sub(before), old, new.size()))
                };
                if moved.is_null() {
                    return moved;
                }
                // Before the header is written, which may lie where the elements were.
                // SAFETY: both ranges lie in the system's block.
                unsafe { moved.add(before).copy_to(moved.add(to_line(moved)), kept) };
                // SAFETY: the block has the new layout.
                unsafe { inside(moved) }
            }
            _ => {
                // SAFETY: the size is not zero, as the caller promises.
                let moved = unsafe { self.alloc(after) };
                if !moved.is_null() {
                    // SAFETY: both blocks have so many bytes, and they are two. The caller gives the first up.
                    unsafe {
                        moved.copy_from_nonoverlapping(block, kept);
                        self.dealloc(block, layout);
                    }
                }
                moved
            }
        }
    }
}
