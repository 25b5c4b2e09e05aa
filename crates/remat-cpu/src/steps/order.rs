//! A topological order of units.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use oxc_index::{IndexVec, index_vec};
use remat_ir::{Error, ErrorKind, Result};

use super::fuse::UnitId;
use crate::ids::EqnId;

/// The units, each after the units that it reads (`reads`), and otherwise by position.
///
/// # Errors
/// If units depend on each other in a cycle, which is a defect of fusion.
pub(super) fn order(reads: &IndexVec<UnitId, Vec<UnitId>>, positions: &IndexVec<UnitId, EqnId>) -> Result<Vec<UnitId>> {
    let mut waits: IndexVec<UnitId, usize> = reads.iter().map(Vec::len).collect();
    let mut readers: IndexVec<UnitId, Vec<UnitId>> = index_vec![Vec::new(); reads.len()];
    for (i, reads) in reads.iter_enumerated() {
        for &read in reads {
            readers[read].push(i);
        }
    }
    let key = |i: UnitId| Reverse((positions[i], i));
    let mut ready: BinaryHeap<_> = waits.indices().filter(|&i| waits[i] == 0).map(key).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(Reverse((_, i))) = ready.pop() {
        order.push(i);
        for &reader in &readers[i] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push(key(reader));
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

    fn ordered(reads: &[&[usize]], positions: &[usize]) -> Result<Vec<usize>> {
        let reads = reads.iter().map(|reads| reads.iter().copied().map(UnitId::new).collect()).collect();
        let positions = positions.iter().copied().map(EqnId::new).collect();
        Ok(order(&reads, &positions)?.into_iter().map(UnitId::index).collect())
    }

    #[test]
    fn operands_come_first_and_then_the_position_decides() {
        assert_eq!(ordered(&[&[3], &[], &[0, 1], &[]], &[0, 9, 2, 5]).ok(), Some(vec![3, 0, 1, 2]));
        assert_eq!(ordered(&[], &[]).ok(), Some(vec![]));
    }

    #[test]
    fn a_circle_is_an_error() {
        let error = ordered(&[&[], &[2, 0], &[1]], &[0, 1, 2]).expect_err("two read each other");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert_eq!(error.message(), "fusion made loops that depend on each other");
    }
}
