//! An order of units that read each other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use remat_ir::{Error, ErrorKind, Result};

/// The units after all that they read, and else by position; `reads` are those that each one reads.
///
/// # Errors
/// If units read each other in a circle, which is a defect of whoever made them.
pub(super) fn order(reads: &[Vec<usize>], positions: &[usize]) -> Result<Vec<usize>> {
    let mut waits: Vec<usize> = reads.iter().map(Vec::len).collect();
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); reads.len()];
    for (i, reads) in reads.iter().enumerate() {
        for &read in reads {
            readers[read].push(i as u32);
        }
    }
    let key = |i: usize| Reverse((positions[i], i));
    let mut ready: BinaryHeap<_> = (0..waits.len()).filter(|&i| waits[i] == 0).map(key).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(Reverse((_, i))) = ready.pop() {
        order.push(i);
        for &reader in &readers[i] {
            waits[reader as usize] -= 1;
            if waits[reader as usize] == 0 {
                ready.push(key(reader as usize));
            }
        }
    }
    if order.len() < reads.len() {
        return Err(Error::new(ErrorKind::Internal, "compile", "fusion made loops that depend on each other"));
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_comes_first_and_then_the_position_decides() {
        let reads = [vec![3], vec![], vec![0, 1], vec![]];
        assert_eq!(order(&reads, &[0, 9, 2, 5]).ok(), Some(vec![3, 0, 1, 2]));
        assert_eq!(order(&[], &[]).ok(), Some(vec![]));
    }

    #[test]
    fn a_circle_is_an_error() {
        let error = order(&[vec![], vec![2, 0], vec![1]], &[0, 1, 2]).expect_err("two read each other");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert_eq!(error.message(), "fusion made loops that depend on each other");
    }
}
