//! Repairs products of split f32 that are not finite.
//!
//! An infinity, a NaN, or a number larger than every bf16 has a part that is NaN, and so the sum is NaN. The sum of the largest parts may
//! also be infinite where the sum of the numbers is not. Such sums are computed again, by f32 products.

use std::ops::Range;

use super::Matrix;
use crate::base::narrow::{PANEL, SplitF32, Sums};
use crate::base::pieces::pieces;
use crate::base::product::{Left, Out, Right, product};
use crate::simd::multiversion;

/// Positions of the contracted axis that are gathered at a time.
const CHUNK: usize = 64;

/// Computes those sums of some rows and columns that are not finite again, each of `depth` products: part after part of the contracted
/// axis, position by position.
pub(super) fn compute_special(
    [left, right]: [Matrix<'_, SplitF32>; 2],
    depth: usize,
    [rows, columns]: [Range<usize>; 2],
    sums: &mut Sums,
) {
    if are_finite(sums) {
        return;
    }
    let [mut of_left, mut of_right] = [[0.0; PANEL * CHUNK]; 2];
    let mut plain = [0.0; PANEL * PANEL];
    for part in pieces(0..depth, CHUNK) {
        let mut to = of_left.chunks_exact_mut(CHUNK);
        left.each(rows.clone(), part.clone(), |row| {
            to.next().into_iter().flatten().zip(row).for_each(|(to, x)| *to = x.number());
        });
        let mut column = 0;
        right.each(columns.clone(), part.clone(), |row| {
            of_right.chunks_exact_mut(PANEL).zip(row).for_each(|(to, x)| to[column] = x.number());
            column += 1;
        });
        product(
            [rows.len(), columns.len(), part.len()],
            Left { elements: &of_left, row_stride: CHUNK, column_stride: 1 },
            Right { elements: &of_right, row_stride: PANEL },
            Out { elements: &mut plain, row_stride: PANEL, adds: part.start > 0 },
        );
    }
    for (sum, plain) in sums.iter_mut().zip(plain) {
        if !f32::from_bits(*sum).is_finite() {
            *sum = plain.to_bits();
        }
    }
}

multiversion! {
    /// Whether all sums are finite.
    fn are_finite(sums: &Sums) -> bool {
        // The greatest magnitude, as bits.
        sums.iter().fold(0, |most, &sum| most.max(sum & 0x7fff_ffff)) < f32::INFINITY.to_bits()
    }
}
