//! The counts of blocks of at least 64 KiB: what the harness of the tests allocates beside is smaller.

use std::thread;

use remat_alloc::Counting;

const KIB: usize = 1 << 10;
const LARGE: usize = 64 * KIB;

#[global_allocator]
static ALLOCATOR: Counting = Counting::of_at_least(LARGE);

/// One test, since the counters are those of all threads.
#[test]
fn bytes_are_counted_exactly() {
    let before = ALLOCATOR.live();
    let allocations = ALLOCATOR.allocations();

    ALLOCATOR.reset_peak();
    let kept = vec![1u8; LARGE];
    drop(vec![0u8; 3 * LARGE + 5]);
    drop(vec![1u8; LARGE - 1]);
    assert_eq!(ALLOCATOR.live() - before, LARGE);
    assert_eq!(ALLOCATOR.peak() - before, 4 * LARGE + 5);
    assert_eq!(ALLOCATOR.allocations() - allocations, 2);

    ALLOCATOR.reset_peak();
    assert_eq!(ALLOCATOR.peak() - before, LARGE);
    drop(kept);
    assert_eq!((ALLOCATOR.live(), ALLOCATOR.peak() - before), (before, LARGE));

    // Growing past the least size and back, a block counts as it is.
    ALLOCATOR.reset_peak();
    let mut grown: Vec<u8> = Vec::with_capacity(KIB);
    grown.reserve_exact(2 * LARGE);
    assert_eq!(ALLOCATOR.live() - before, 2 * LARGE);
    grown.reserve_exact(3 * LARGE);
    assert_eq!((ALLOCATOR.live() - before, ALLOCATOR.peak() - before), (3 * LARGE, 3 * LARGE));
    grown.shrink_to(KIB);
    assert_eq!(ALLOCATOR.live(), before);

    ALLOCATOR.reset_peak();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|i| drop(vec![0u8; LARGE + i])));
        }
    });
    assert_eq!(ALLOCATOR.live(), before);
    let most = ALLOCATOR.peak() - before;
    assert!((LARGE + 99..=4 * (LARGE + 99)).contains(&most), "{most}");
}
