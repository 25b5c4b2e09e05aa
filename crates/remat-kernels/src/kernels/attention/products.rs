//! The products of tiles: in the type that everything is computed in, or of bf16 on the unit that the CPU has for them.
//!
//! For a unit the tiles are rounded to bf16 when they are packed. Queries, keys, values and cotangents of the results are bf16 as
//! they are; the weights and the cotangents of the scores are rounded, by half a unit in their last place. Sums stay f32, the sums of
//! the exponentials too, which are those of the weights before they are rounded.

// A type that is f32 is known to be one when the program runs.
#![allow(unsafe_code)]

use remat_ir::{DType, Element};

use super::problem::take;
use super::tile::{KEYS, QUERIES, Tile, row_width};
use crate::base::narrow::{GROUP, PANEL, Part, Session, Side, Strided, Unit, pack};
use crate::base::product::{Accumulator, Left, Out, Right, product};

/// How a task multiplies tiles.
pub(super) struct Products<'a> {
    narrow: Option<Narrow<'a>>,
}

/// The use of a unit, and memory for packed operands.
struct Narrow<'a> {
    session: Session,
    left: &'a mut [f32],
    right: &'a mut [f32],
}

/// The numbers of tiles as f32, which they are where there is a unit.
fn floats<T: Element>(numbers: &[T]) -> &[f32] {
    assert_eq!(T::DTYPE, DType::F32);
    // SAFETY: only f32 has this dtype (checked).
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

/// As [`floats`].
fn floats_mut<T: Element>(numbers: &mut [T]) -> &mut [f32] {
    assert_eq!(T::DTYPE, DType::F32);
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
}

/// Numbers of scratch memory of one packed operand, of tiles with this many features.
fn packed_len(features: usize) -> usize {
    let panels = |n: usize| n.div_ceil(PANEL);
    let groups = |n: usize| n.div_ceil(f32::PER_GROUP);
    let positions = QUERIES.max(KEYS);
    (panels(positions) * groups(features).max(groups(positions))).max(panels(features) * groups(positions)) * GROUP
}

impl<'a> Products<'a> {
    /// Numbers of scratch memory for tiles with this many features at most.
    pub(super) fn len(unit: Option<Unit>, features: usize) -> usize {
        unit.map_or(0, |_| 2 * packed_len(features))
    }

    /// Begins to multiply, with the beginning of scratch memory.
    pub(super) fn new<T: Element>(unit: Option<Unit>, features: usize, scratch: &mut &'a mut [T]) -> Products<'a> {
        let narrow = unit.map(|unit| {
            let [left, right] = [(); 2].map(|()| floats_mut(take(scratch, packed_len(features))));
            Narrow { session: unit.session(), left, right }
        });
        Products { narrow }
    }

    /// Products of rows of keys (or values) and columns of queries: a tile of them.
    pub(super) fn times<T: Accumulator>(
        &mut self,
        tile: &Tile,
        rows: &[T],
        features: usize,
        columns: &[T],
        out: &mut [T],
    ) {
        if let Some(narrow) = &mut self.narrow {
            let left = Strided { elements: floats(rows), start: 0, free: row_width(features) as isize, contracted: 1 };
            let right = Strided { elements: floats(columns), start: 0, free: 1, contracted: QUERIES as isize };
            let size = [tile.keys, tile.queries.len, features];
            return narrow.multiply(size, left, right, floats_mut(out), QUERIES, false);
        }
        for strip in tile.strips() {
            product(
                [strip.keys, strip.columns, features],
                Left { elements: rows, row: row_width(features), column: 1 },
                Right { elements: columns.get(strip.column..).unwrap_or(&[]), row: QUERIES },
                Out { elements: &mut out[strip.column..], row: QUERIES, adds: false },
            );
        }
    }

    /// Adds to features of queries, as columns, the sums of rows of keys (or values) with the weights of a tile.
    pub(super) fn gather<T: Accumulator>(
        &mut self,
        tile: &Tile,
        rows: &[T],
        features: usize,
        weights: &[T],
        out: &mut [T],
    ) {
        if let Some(narrow) = &mut self.narrow {
            let left = Strided { elements: floats(rows), start: 0, free: 1, contracted: row_width(features) as isize };
            let right = Strided { elements: floats(weights), start: 0, free: 1, contracted: QUERIES as isize };
            let size = [features, tile.queries.len, tile.keys];
            return narrow.multiply(size, left, right, floats_mut(out), QUERIES, true);
        }
        for strip in tile.strips() {
            product(
                [features, strip.columns, strip.keys],
                Left { elements: rows, row: 1, column: row_width(features) },
                Right { elements: &weights[strip.column..], row: QUERIES },
                Out { elements: out.get_mut(strip.column..).unwrap_or(&mut []), row: QUERIES, adds: true },
            );
        }
    }

    /// Adds to features of keys, as rows, the sums of rows of queries with the weights of a tile.
    pub(super) fn scatter<T: Accumulator>(
        &mut self,
        tile: &Tile,
        weights: &[T],
        rows: &[T],
        features: usize,
        out: &mut [T],
    ) {
        let width = row_width(features);
        if let Some(narrow) = &mut self.narrow {
            let left = Strided { elements: floats(weights), start: 0, free: QUERIES as isize, contracted: 1 };
            let right = Strided { elements: floats(rows), start: 0, free: 1, contracted: width as isize };
            let size = [tile.keys, features, tile.queries.len];
            return narrow.multiply(size, left, right, floats_mut(out), width, true);
        }
        for strip in tile.strips() {
            let columns = strip.columns.min(tile.queries.len.saturating_sub(strip.column));
            product(
                [strip.keys, width, columns],
                Left { elements: &weights[strip.column..], row: QUERIES, column: 1 },
                Right { elements: &rows[strip.column * width..], row: width },
                Out { elements: &mut *out, row: width, adds: true },
            );
        }
    }
}

impl Narrow<'_> {
    /// Multiplies `m` by `k` and `k` by `n` numbers that are rounded to bf16, where `size` is `[m, n, k]`, and writes the sums, or adds to
    /// them. Whole panels are written, those that zeros fill too.
    fn multiply(
        &mut self,
        [m, n, k]: [usize; 3],
        left: Strided<'_, f32>,
        right: Strided<'_, f32>,
        out: &mut [f32],
        stride: usize,
        adds: bool,
    ) {
        let len = k.div_ceil(f32::PER_GROUP) * GROUP;
        pack(left, m, k, Side::Left, words(self.left), len);
        pack(right, n, k, Side::Right, words(self.right), len);
        for i in 0..m.div_ceil(PANEL) {
            for j in 0..n.div_ceil(PANEL) {
                let (left, right) = (&mut self.left[i * len..][..len], &mut self.right[j * len..][..len]);
                let out = &mut out[PANEL * (i * stride + j)..];
                self.session.multiply(words(left), words(right), out, stride, adds);
            }
        }
    }
}

/// Scratch memory as words.
fn words(numbers: &mut [f32]) -> &mut [u32] {
    // SAFETY: both types have the same size and alignment, and any bits are a value of either.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
}
