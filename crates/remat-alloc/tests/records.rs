//! The blocks of one thread, exactly.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remat_alloc::{Block, Event, Recording};

#[global_allocator]
static ALLOCATOR: Recording = Recording;

fn block(bytes: usize, align: usize) -> Block {
    Block { bytes, align }
}

#[test]
fn blocks_are_told_in_order() {
    let (kept, events) = Recording::record(|| {
        let mut grown: Vec<u64> = Vec::with_capacity(2);
        grown.reserve_exact(5);
        drop(vec![0u8; 3]);
        grown
    });
    let expected = [
        Event::Allocated(block(16, 8)),
        Event::Freed(block(16, 8)),
        Event::Allocated(block(40, 8)),
        Event::Allocated(block(3, 1)),
        Event::Freed(block(3, 1)),
    ];
    assert_eq!(events, expected);
    assert_eq!(Recording::record(|| drop(kept)).1, [Event::Freed(block(40, 8))]);
    assert_eq!(Recording::record(|| ()).1, []);
}

#[test]
fn other_threads_are_not_told() {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(vec![0u8; 1000]);
            }
        });
        let ((), events) = Recording::record(|| drop(vec![0u8; 10]));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(events, [Event::Allocated(block(10, 1)), Event::Freed(block(10, 1))]);
    });
}

#[test]
fn the_first_of_many_events_are_told() {
    let ((), events) = Recording::record(|| (1..=600).for_each(|bytes| drop(vec![0u8; bytes])));
    assert_eq!((events.len(), events.last()), (1024, Some(&Event::Freed(block(512, 1)))));
}
