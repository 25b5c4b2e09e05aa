//! Allocators that count: [`Counting`] counts live bytes and their peak, [`Recording`] records each block of a thread.
//!
//! What an operating system reports as resident is rounded to pages and keeps memory that was given back; this count is
//! exact. Tests hold planned peaks against it. Deliberately absent: anything that an operating system
//! or a profiler tells better, such as where memory was asked for.
//!
//! ```
//! use remat_alloc::Counting;
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting::new();
//!
//! let before = ALLOCATOR.live();
//! ALLOCATOR.reset_peak();
//! drop(vec![0u8; 1000]);
//! assert_eq!(ALLOCATOR.peak() - before, 1000);
//! assert_eq!(ALLOCATOR.live(), before);
//! ```

#![allow(unsafe_code)]

mod recording;
mod system;

pub use recording::{Block, Event, Recording};
pub use system::give_back_free;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The allocator of the system, and three counters. The counts are those of all threads; a block counts with the size that
/// was asked for.
///
/// Each counter is one atomic number and exact. While other threads allocate, a peak may miss their newest blocks.
pub struct Counting {
    /// Blocks of fewer bytes do not count.
    least: usize,
    live: AtomicUsize,
    peak: AtomicUsize,
    allocations: AtomicUsize,
}

impl Counting {
    /// Counts every block.
    pub const fn new() -> Counting {
        Counting::of_at_least(0)
    }

    /// Counts only blocks of at least this many bytes: the arrays of a program without its bookkeeping.
    pub const fn of_at_least(bytes: usize) -> Counting {
        Counting {
            least: bytes,
            live: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            allocations: AtomicUsize::new(0),
        }
    }

    /// The bytes that are live now.
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// The most bytes that were live at one time since the start or since [`Counting::reset_peak`].
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// Makes the bytes that are live now the peak.
    pub fn reset_peak(&self) {
        self.peak.store(self.live(), Relaxed);
    }

    /// How many blocks were asked for so far; one that grows or shrinks counts again.
    pub fn allocations(&self) -> usize {
        self.allocations.load(Relaxed)
    }

    fn add(&self, bytes: usize) {
        if bytes >= self.least {
            self.allocations.fetch_add(1, Relaxed);
            let live = self.live.fetch_add(bytes, Relaxed) + bytes;
            self.peak.fetch_max(live, Relaxed);
        }
    }

    fn remove(&self, bytes: usize) {
        if bytes >= self.least {
            self.live.fetch_sub(bytes, Relaxed);
        }
    }
}

impl Default for Counting {
    fn default() -> Counting {
        Counting::new()
    }
}

// SAFETY: every method hands its arguments to the method of `System` of the same name, whose contract the caller keeps, and
// gives what that gives. The counters neither allocate nor panic: the addition in `add` cannot overflow, since no more than
// `isize::MAX` bytes are live at one time.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is that of `System`.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            self.add(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is that of `System`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            self.add(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is that of `System`, which allocated every block.
        unsafe { System.dealloc(block, layout) };
        self.remove(layout.size());
    }

    /// A block that grows or shrinks is one block throughout, as it is where the system moves its pages.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract is that of `System`, which allocated every block.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            self.remove(layout.size());
            self.add(size);
        }
        moved
    }
}
