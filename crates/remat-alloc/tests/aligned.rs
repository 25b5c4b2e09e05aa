//! [`Aligned`] as the allocator of a process.

// An allocator is called.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, handle_alloc_error};

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
#[cfg(unix)]
fn large_blocks_start_at_a_cache_line() {
    let mut kept = Vec::new();
    for bytes in [16 << 10, (16 << 10) + 1, 100_003, 4_000_000, (32 << 20) + 5] {
        // Small blocks between them move where the next one would start.
        kept.push(vec![1u8; 24]);
        assert_eq!(offset(vec![1; bytes]), 0, "{bytes} bytes");
    }
}

#[test]
fn zeros_are_zeros_and_growing_keeps_what_is_there() {
    for bytes in [0, 1, 100, 16 << 10, 5_000_000] {
        assert!(vec![0u8; bytes].iter().all(|&byte| byte == 0), "{bytes} bytes");
        let mut elements = vec![7u8; bytes];
        elements.resize(3 * bytes + 1, 9);
        elements.shrink_to_fit();
        assert!(
            elements[..bytes].iter().all(|&byte| byte == 7) && elements[bytes..].iter().all(|&byte| byte == 9),
            "{bytes} bytes"
        );
        elements.truncate(bytes / 2);
        elements.shrink_to_fit();
        assert!(elements.iter().all(|&byte| byte == 7), "{bytes} bytes");
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
                if block.is_null() {
                    handle_alloc_error(layout);
                }
                assert_eq!(
                    (block.addr() % alignment, *block, *block.add(bytes - 1)),
                    (0, 0, 0),
                    "{bytes} bytes, {alignment}"
                );
                block.write_bytes(5, bytes);
                let grown = ALLOCATOR.realloc(block, layout, 2 * bytes);
                if grown.is_null() {
                    handle_alloc_error(layout);
                }
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

/// A size that no system has is refused, not a panic.
#[test]
fn what_cannot_be_had_is_null() {
    let layout = Layout::from_size_align(isize::MAX as usize - 63, 64).unwrap();
    // SAFETY: the size is not zero.
    assert!(unsafe { ALLOCATOR.alloc(layout) }.is_null());
    let layout = Layout::from_size_align(isize::MAX as usize - 63, 1).unwrap();
    // SAFETY: the size is not zero.
    assert!(unsafe { ALLOCATOR.alloc_zeroed(layout) }.is_null());
}
