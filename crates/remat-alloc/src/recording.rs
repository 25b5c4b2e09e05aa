//! An allocator that writes down every block that a thread asks for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What happened to a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// It was asked for; one that grows or shrinks is given back and asked for anew.
    Allocated(Block),
    /// It was given back.
    Freed(Block),
}

/// A block of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// Its bytes, as asked for.
    pub bytes: usize,
    /// What its address is a multiple of, as asked for.
    pub align: usize,
}

/// The allocator of the system, which writes down the blocks of the calling thread inside of [`Recording::record`]. Other
/// threads may do what they like meanwhile.
///
/// ```
/// use remat_alloc::{Block, Event, Recording};
///
/// #[global_allocator]
/// static ALLOCATOR: Recording = Recording;
///
/// let ((), events) = Recording::record(|| drop(vec![0u32; 10]));
/// let block = Block { bytes: 40, align: 4 };
/// assert_eq!(events, [Event::Allocated(block), Event::Freed(block)]);
/// ```
pub struct Recording;

/// How many events are written down.
const MOST: usize = 1024;

/// The content of entries behind the last event.
const NOTHING: Event = Event::Freed(Block { bytes: 0, align: 0 });

/// The events of a thread: of constant size, since writing them down must not allocate.
struct Log {
    is_on: Cell<bool>,
    count: Cell<usize>,
    events: [Cell<Event>; MOST],
}

thread_local! {
    // Constant and without a destructor, so that the first use allocates nothing either.
    static LOG: Log = const {
        Log { is_on: Cell::new(false), count: Cell::new(0), events: [const { Cell::new(NOTHING) }; MOST] }
    };
}

impl Recording {
    /// Calls `f` and tells, in order, what it did with memory on this thread: the first 1024 events.
    pub fn record<R>(f: impl FnOnce() -> R) -> (R, Vec<Event>) {
        LOG.with(|log| {
            log.count.set(0);
            log.is_on.set(true);
            let result = f();
            log.is_on.set(false);
            (result, log.events[..log.count.get()].iter().map(Cell::get).collect())
        })
    }

    fn note(event: Event) {
        LOG.with(|log| {
            if log.is_on.get()
                && let Some(entry) = log.events.get(log.count.get())
            {
                entry.set(event);
                log.count.update(|count| count + 1);
            }
        });
    }
}

impl From<Layout> for Block {
    fn from(layout: Layout) -> Block {
        Block { bytes: layout.size(), align: layout.align() }
    }
}

// SAFETY: every method hands its arguments to the method of `System` of the same name, whose contract the caller keeps, and
// gives what that gives. To write an event down neither allocates nor panics.
unsafe impl GlobalAlloc for Recording {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is that of `System`.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            Recording::note(Event::Allocated(layout.into()));
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is that of `System`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            Recording::note(Event::Allocated(layout.into()));
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is that of `System`, which allocated every block.
        unsafe { System.dealloc(block, layout) };
        Recording::note(Event::Freed(layout.into()));
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract is that of `System`, which allocated every block.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            Recording::note(Event::Freed(layout.into()));
            Recording::note(Event::Allocated(Block { bytes: size, align: layout.align() }));
        }
        moved
    }
}
