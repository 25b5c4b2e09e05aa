//! [`Aligned`] as the allocator of a process.

// An allocator is called.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};

use remat_alloc::Aligned;

#[global_allocator]
static ALLOCATOR: Aligned = Aligned;

/// The offset of a block in its cache line, all of whose bytes are written and read.
fn offset(mut elements: Vec<u8>) -> usize {
    for (i, element) in elements.iter_mut().enumerate() {
        *element = (i % 251) as u8;
    }
    assert!(elements.iter().enumerate().all(|(i, &element)| usize::from(element) == i % 251));
    elements.as_ptr().addr() % 64
}

#[test]
fn large_blocks_start_at_a_cache_line() {
    let mut kept = Vec::new();
    for bytes in [16 << 10, (16 << 10) + 1, 100_003, 4_000_000, (32 << 20) + 5] {
        // Small blocks between them move where the next one would start.
        kept.push(vec![1u8; 24]);
        assert_eq!(offset(vec![1; bytes]), 0, "{bytes} bytes");
        assert_eq!(offset(vec![0; bytes]), 0, "{bytes} bytes of zeros");
    }
}

#[test]
fn zeros_are_zeros_and_growing_keeps_what_is_there() {
    for bytes in [0, 1, 100, 6_000, 16 << 10, 100_000, 5_000_000] {
        assert!(vec![0u8; bytes].iter().all(|&byte| byte == 0), "{bytes} bytes");
        let mut elements = vec![7u8; bytes];
        elements.resize(3 * bytes + 1, 9);
        elements.shrink_to_fit();
        assert!(
            elements[..bytes].iter().all(|&byte| byte == 7) && elements[bytes..].iter().all(|&byte| byte == 9),
            "{bytes} bytes"
        );
        for _ in 0..3 {
            elements.truncate(elements.len() / 2);
            elements.shrink_to_fit();
            assert!(elements.iter().take(bytes).all(|&byte| byte == 7), "{} of {bytes} bytes", elements.len());
            assert!(elements.len() < 16 << 10 || elements.as_ptr().addr() % 64 == 0);
        }
    }
}

/// Alignments above and below that of a large block, for blocks smaller and larger than they are.
#[test]
fn every_alignment_is_kept() {
    for alignment in [1, 8, 16, 32, 64, 128, 4096] {
        for bytes in [1, 15, 64, 20_000] {
            let layout = Layout::from_size_align(bytes, alignment).unwrap();
            // SAFETY: the sizes are not zero, and each block is given back with the layout that it has.
            unsafe {
                let block = ALLOCATOR.alloc_zeroed(layout);
                assert!(!block.is_null(), "{bytes} bytes, {alignment}");
                assert_eq!(
                    (block.addr() % alignment, *block, *block.add(bytes - 1)),
                    (0, 0, 0),
                    "{bytes} bytes, {alignment}"
                );
                block.write_bytes(5, bytes);
                let grown = ALLOCATOR.realloc(block, layout, 2 * bytes);
                assert!(!grown.is_null(), "{bytes} bytes, {alignment}");
                assert_eq!(
                    (grown.addr() % alignment, *grown, *grown.add(bytes - 1)),
                    (0, 5, 5),
                    "{bytes} bytes, {alignment}"
                );
                ALLOCATOR.dealloc(grown, Layout::from_size_align(2 * bytes, alignment).unwrap());
            }
        }
    }
}

/// Blocks grow in small steps and shrink, with others between them, so that the system moves them and their distances from a line differ.
#[test]
fn elements_move_with_their_blocks() {
    let mut all: Vec<Vec<u64>> = (0..40).map(|i| vec![i; 2_100]).collect();
    let mut between: Vec<Vec<u8>> = Vec::new();
    for round in 0..60 {
        for (i, elements) in all.iter_mut().enumerate() {
            let is_growing = (round / 20 + i) % 2 == 0;
            let len =
                if is_growing { elements.len() + 37 * (i + 1) } else { (elements.len() - elements.len() / 9).max(7) };
            elements.resize(len, i as u64);
            elements.shrink_to_fit();
            between.push(vec![round as u8; 24 + 8 * i]);
            assert!(elements.iter().all(|&element| element == i as u64), "{len} elements");
        }
        between.retain(|block| block.len() % 3 != round % 3);
    }
}

/// A size that no system has is refused, not a panic.
#[test]
#[cfg(target_pointer_width = "64")]
fn what_cannot_be_had_is_null() {
    for (bytes, alignment) in
        [(isize::MAX as usize - 63, 64), (isize::MAX as usize - 63, 1), (isize::MAX as usize - 200, 4)]
    {
        let layout = Layout::from_size_align(bytes, alignment).unwrap();
        // SAFETY: the size is not zero.
        assert!(unsafe { ALLOCATOR.alloc(layout) }.is_null() && unsafe { ALLOCATOR.alloc_zeroed(layout) }.is_null());
    }
}
