//! The products of tiles: in the type in which everything is computed, or in bf16 on the CPU's unit for it.
//!
//! For a unit, rows of features are packed when they are loaded, once for all tiles that they are in. They are packed for each product in
//! which they are operands, and packed operands take the memory of the rows. Queries, keys, values and cotangents of the results are bf16
//! already. The weights and the cotangents of the scores are rounded tile by tile, by half a unit in the last place. Sums stay f32; so do
//! the sums of the exponentials, which are those of the weights before rounding. All keys of a panel take part in a product, and keys that
//! no query attends to have weights of zero: if such a key is not finite, neither are the results, as in the definition. Panels to which no
//! query attends are left out.

// Whether a generic type is f32 is checked at run time.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::{DType, Element};

use super::problem::take;
use super::tile::{COLUMNS, KEYS, QUERIES, Tile, copy_rows, row_width, transposed};
use crate::base::narrow::{GROUP, PANEL, Part, Session, Side, Strided, Unit, pack};
use crate::base::product::{Accumulator, Float, Left, Out, Right, product};
use crate::number::rounding::round_to_bf16;
use crate::number::{Number, Real};
use crate::simd::multiversion;

/// Positions of queries or keys in packed operands. Tiles with fewer positions are padded with zeros.
const POSITIONS: usize = if QUERIES > KEYS { QUERIES } else { KEYS };

/// Both forms of rows of features fit in their memory if positions fill whole panels and whole groups.
const _: () = assert!(POSITIONS.is_multiple_of(PANEL) && u16::PER_GROUP == PANEL && KEYS == QUERIES);

/// How a task multiplies tiles.
pub(super) struct Products<'a> {
    narrow: Option<Narrow<'a>>,
}

/// The use of a unit, and memory for packed operands.
struct Narrow<'a> {
    session: Session,
    /// Rows rounded to bf16.
    rounded: &'a mut [u16],
    /// The weights of a tile, packed.
    weights: &'a mut [f32],
}

/// The numbers of tiles as f32, which is their type where there is a unit.
fn floats<T: Element>(numbers: &[T]) -> &[f32] {
    assert_eq!(T::DTYPE, DType::F32);
    // SAFETY: only f32 has this dtype (checked).
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

/// The bits of bf16 elements, which is their type where there is a unit.
fn elements<D: Element>(elements: &[D]) -> &[u16] {
    assert_eq!(D::DTYPE, DType::Bf16);
    // SAFETY: only bf16 has this dtype (checked), and its representation is its bits.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), elements.len()) }
}

/// As [`floats`].
fn floats_mut<T: Element>(numbers: &mut [T]) -> &mut [f32] {
    assert_eq!(T::DTYPE, DType::F32);
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
}

/// The number of groups of this many elements along the contracted axis.
fn groups(elements: usize) -> usize {
    elements.div_ceil(u16::PER_GROUP)
}

/// Numbers of scratch memory for a packed operand with this many features, whether positions or features are contracted.
fn packed_len(features: usize) -> usize {
    POSITIONS / PANEL * groups(features) * GROUP
}

/// Numbers of scratch memory for rounded rows of tiles with at most this many features, and for packed weights.
fn narrow_lens(features: usize) -> [usize; 2] {
    [POSITIONS * row_width(features).max(QUERIES) / 2, packed_len(POSITIONS)]
}

impl<'a> Products<'a> {
    /// Numbers of scratch memory for tiles with at most this many features.
    pub(super) fn len(unit: Option<Unit>, features: usize) -> usize {
        unit.map_or(0, |_| narrow_lens(features).iter().sum())
    }

    /// Starts multiplying, with memory from the beginning of scratch memory.
    pub(super) fn new<T: Element>(unit: Option<Unit>, features: usize, scratch: &mut &'a mut [T]) -> Products<'a> {
        let narrow = unit.map(|unit| {
            let [rounded, weights] = narrow_lens(features).map(|len| floats_mut(take(scratch, len)));
            // SAFETY: two elements have the size of one number, whose alignment is enough; any bits are a value of either.
            let rounded = unsafe { std::slice::from_raw_parts_mut(rounded.as_mut_ptr().cast(), 2 * rounded.len()) };
            Narrow { session: unit.session(), rounded, weights }
        });
        Products { narrow }
    }

    /// Loads rows of keys or values that begin at `starts`, in the form for [`dot_products`](Products::dot_products) and
    /// [`add_to_queries`](Products::add_to_queries).
    pub(super) fn load_rows<D: Float>(
        &mut self,
        from: &[D],
        (starts, stride): (&[isize], isize),
        features: usize,
        rows: &mut [D::Wide],
    ) {
        let Some(narrow) = &mut self.narrow else {
            return copy_rows(from, starts, stride, features, D::Wide::ONE, rows);
        };
        copy_elements(elements(from), (starts, stride), features, narrow.rounded);
        let (positions, columns) = floats_mut(rows).split_at_mut(packed_len(features));
        narrow.pack_rounded(features, Side::Left, positions, columns);
    }

    /// Loads rows of queries that begin at `starts`, times a factor, in the form for [`add_to_keys`](Products::add_to_keys) and
    /// [`dot_products`](Products::dot_products). On a unit the factor is 1.
    pub(super) fn load_columns<D: Float>(
        &mut self,
        from: &[D],
        (starts, stride): (&[isize], isize),
        features: usize,
        factor: D::Wide,
        rows: &mut [D::Wide],
        columns: &mut [D::Wide],
    ) {
        let Some(narrow) = &mut self.narrow else {
            copy_rows(from, starts, stride, features, factor, rows);
            return transposed(rows, row_width(features), features, columns, QUERIES);
        };
        copy_elements(elements(from), (starts, stride), features, narrow.rounded);
        narrow.pack_rounded(features, Side::Right, floats_mut(columns), floats_mut(rows));
    }

    /// Brings rows of queries, or of cotangents of their results, into the form for [`add_to_keys`](Products::add_to_keys), and `columns`
    /// into the form for [`dot_products`](Products::dot_products).
    pub(super) fn prepare_columns<T: Real>(&mut self, rows: &mut [T], features: usize, columns: &mut [T]) {
        match &mut self.narrow {
            Some(narrow) => {
                narrow.round(floats(rows), [POSITIONS, row_width(features)], row_width(features));
                narrow.pack_rounded(features, Side::Right, floats_mut(columns), floats_mut(rows));
            }
            None => transposed(rows, row_width(features), features, columns, QUERIES),
        }
    }

    /// The dot products of each key and each query of a tile, `K Q^T`; or of each value and each cotangent of a result, `V dO^T`.
    pub(super) fn dot_products<T: Accumulator>(
        &mut self,
        tile: &Tile,
        rows: &[T],
        features: usize,
        columns: &[T],
        out: &mut [T],
    ) {
        if let Some(narrow) = &mut self.narrow {
            let groups = groups(features);
            let part = |i: usize, j: usize| (tile.panels_of_keys(j) > i).then_some(0..groups);
            let size = [tile.keys, tile.queries.len, groups];
            return narrow.multiply(size, floats(rows), floats(columns), (floats_mut(out), QUERIES), false, part);
        }
        for strip in tile.strips() {
            product(
                [strip.keys, strip.columns, features],
                Left { elements: rows, row_stride: row_width(features), column_stride: 1 },
                Right { elements: columns.get(strip.column..).unwrap_or(&[]), row_stride: QUERIES },
                Out { elements: &mut out[strip.column..], row_stride: QUERIES, adds: false },
            );
        }
    }

    /// Adds to features of queries, as columns, the sums of rows of keys or values with the weights of a tile: `P V` to the results, `dS K`
    /// to `dQ`.
    pub(super) fn add_to_queries<T: Accumulator>(
        &mut self,
        tile: &Tile,
        rows: &[T],
        features: usize,
        weights: &[T],
        out: &mut [T],
    ) {
        if let Some(narrow) = &mut self.narrow {
            pack_columns(floats(weights), [tile.keys, tile.queries.len], words(narrow.weights));
            let rows = &floats(rows)[packed_len(features)..];
            let size = [features, tile.queries.len, groups(POSITIONS)];
            let part = |_: usize, j: usize| Some(0..tile.panels_of_keys(j));
            return narrow.multiply(size, rows, narrow.weights, (floats_mut(out), QUERIES), true, part);
        }
        for strip in tile.strips() {
            product(
                [features, strip.columns, strip.keys],
                Left { elements: rows, row_stride: 1, column_stride: row_width(features) },
                Right { elements: &weights[strip.column..], row_stride: QUERIES },
                Out { elements: out.get_mut(strip.column..).unwrap_or(&mut []), row_stride: QUERIES, adds: true },
            );
        }
    }

    /// Adds to features of keys, as rows, the sums of rows of queries with the weights of a tile: `dS^T Q` to `dK`, `P^T dO` to `dV`.
    pub(super) fn add_to_keys<T: Accumulator>(
        &mut self,
        tile: &Tile,
        weights: &[T],
        rows: &[T],
        features: usize,
        out: &mut [T],
    ) {
        let width = row_width(features);
        if let Some(narrow) = &mut self.narrow {
            pack_rows(floats(weights), [tile.keys, tile.queries.len], halves(words(narrow.weights)));
            let panels = tile.queries.len.div_ceil(PANEL);
            let part = |i: usize, _: usize| Some((0..panels).find(|&j| tile.panels_of_keys(j) > i)?..panels);
            let size = [tile.keys, features, groups(POSITIONS)];
            return narrow.multiply(size, narrow.weights, floats(rows), (floats_mut(out), width), true, part);
        }
        for strip in tile.strips() {
            let columns = strip.columns.min(tile.queries.len.saturating_sub(strip.column));
            product(
                [strip.keys, width, columns],
                Left { elements: &weights[strip.column..], row_stride: QUERIES, column_stride: 1 },
                Right { elements: &rows[strip.column * width..], row_stride: width },
                Out { elements: &mut *out, row_stride: width, adds: true },
            );
        }
    }
}

impl Narrow<'_> {
    /// Rounds the first rows and columns of a tile with whole rows of the given width, and pads it with zeros.
    fn round(&mut self, from: &[f32], size: [usize; 2], width: usize) {
        round(from, size, width, &mut self.rounded[..POSITIONS * width]);
    }

    /// Packs rows of rounded features, once for a contraction of features and once for a contraction of positions.
    fn pack_rounded(&mut self, features: usize, side: Side, by_feature: &mut [f32], by_position: &mut [f32]) {
        let width = row_width(features);
        let elements = &self.rounded[..POSITIONS * width];
        if elements.is_empty() {
            return;
        }
        let rows = Strided { elements, start: 0, free: width as isize, contracted: 1 };
        pack(rows, POSITIONS, width, side, words(by_feature), groups(features) * GROUP);
        let columns = Strided { elements, start: 0, free: 1, contracted: width as isize };
        pack(columns, width, POSITIONS, side, words(by_position), groups(POSITIONS) * GROUP);
    }

    /// Multiplies the panels of `m` rows with those of `n` columns, where `size` is `[m, n, groups]` of the operands, and writes the sums,
    /// or adds to them. `part` gives the groups to multiply for a panel of rows and one of columns; `None` leaves the sums unchanged. Whole
    /// panels are written, including their padding.
    fn multiply(
        &self,
        [m, n, groups]: [usize; 3],
        left: &[f32],
        right: &[f32],
        (out, stride): (&mut [f32], usize),
        adds: bool,
        part: impl Fn(usize, usize) -> Option<Range<usize>>,
    ) {
        let len = groups * GROUP;
        for i in 0..m.div_ceil(PANEL) {
            for j in 0..n.div_ceil(PANEL) {
                let Some(part) = part(i, j) else { continue };
                let part = part.start * GROUP..part.end * GROUP;
                let (left, right) = (&left[i * len..][part.clone()], &right[j * len..][part]);
                let out = &mut out[PANEL * (i * stride + j)..];
                self.session.multiply(bits(left), bits(right), (out, stride), adds, None);
            }
        }
    }
}

multiversion! {
    /// Copies rows of `features` elements that begin at `starts` to rows of whole panels, for all positions of a tile, padded with zeros.
    fn copy_elements(from: &[u16], rows: (&[isize], isize), features: usize, to: &mut [u16]) {
        let ((starts, stride), width) = (rows, row_width(features));
        if width == 0 {
            return;
        }
        let (rows, rest) = to[..POSITIONS * width].split_at_mut(starts.len() * width);
        rest.fill(0);
        for (row, &start) in rows.chunks_exact_mut(width).zip(starts) {
            let (row, rest) = row.split_at_mut(features);
            if stride == 1 {
                row.copy_from_slice(&from[start as usize..][..features]);
            } else {
                for (i, to) in row.iter_mut().enumerate() {
                    *to = from[(start + i as isize * stride) as usize];
                }
            }
            rest.fill(0);
        }
    }
}

multiversion! {
    /// Rounds the first rows and columns of a tile with rows of this width to bf16, and pads it with zeros.
    fn round(from: &[f32], size: [usize; 2], width: usize, to: &mut [u16]) {
        let [rows, columns] = size;
        for (i, to) in to.chunks_exact_mut(width.max(1)).enumerate() {
            let (to, rest) = to.split_at_mut(if i < rows { columns } else { 0 });
            rest.fill(0);
            for (to, &x) in to.iter_mut().zip(from.get(i * width..).unwrap_or(&[])) {
                *to = (round_to_bf16(x).to_bits() >> 16) as u16;
            }
        }
    }
}

/// The offset in words of a tile of 16 rows (of a right operand: columns) and a group in a packed tile of weights.
#[inline(always)]
fn packed_at(tile: usize, group: usize) -> usize {
    const TILES: usize = PANEL / COLUMNS;
    (tile / TILES * (POSITIONS / PANEL) + group) * GROUP + tile % TILES * (GROUP / TILES)
}

/// A vector of queries from a row of weights, with zeros from query `queries` on, as bf16 in the upper halves of words.
#[inline(always)]
fn rounded(row: &[f32; QUERIES], first: usize, queries: usize) -> [u32; COLUMNS] {
    let mut bits = row.as_chunks::<COLUMNS>().0[first / COLUMNS].map(|x| round_to_bf16(x).to_bits());
    if first + COLUMNS > queries {
        bits.iter_mut().skip(queries.saturating_sub(first)).for_each(|bits| *bits = 0);
    }
    bits
}

multiversion! {
    /// Rounds and packs the weights of a tile of `size` keys and queries as a right operand, whose columns are the queries. Does the same
    /// as [`pack`], in one pass.
    fn pack_columns(weights: &[f32], size: [usize; 2], to: &mut [u32]) {
        const PAIRS: usize = u16::PER_GROUP / 2;
        let [keys, queries] = size;
        for (pair, rows) in weights.as_chunks::<QUERIES>().0.as_chunks::<2>().0.iter().enumerate() {
            for first in (0..QUERIES).step_by(COLUMNS) {
                let low = if 2 * pair < keys { rounded(&rows[0], first, queries) } else { [0; COLUMNS] };
                let high = if 2 * pair + 1 < keys { rounded(&rows[1], first, queries) } else { [0; COLUMNS] };
                let to = &mut to[packed_at(first / COLUMNS, pair / PAIRS) + pair % PAIRS * COLUMNS..][..COLUMNS];
                for ((to, low), high) in to.iter_mut().zip(low).zip(high) {
                    *to = low >> 16 | high;
                }
            }
        }
    }
}

multiversion! {
    /// As [`pack_columns`], as a left operand, whose rows are the keys.
    fn pack_rows(weights: &[f32], size: [usize; 2], to: &mut [u16]) {
        let [keys, queries] = size;
        for (key, row) in weights.as_chunks::<QUERIES>().0.iter().enumerate() {
            for first in (0..QUERIES).step_by(COLUMNS) {
                let bits = if key < keys { rounded(row, first, queries) } else { [0; COLUMNS] };
                let (group, within) = (first / u16::PER_GROUP, first % u16::PER_GROUP);
                let at = 2 * packed_at(key / COLUMNS, group) + key % COLUMNS * u16::PER_GROUP + within;
                for (to, bits) in to[at..][..COLUMNS].iter_mut().zip(bits) {
                    *to = (bits >> 16) as u16;
                }
            }
        }
    }
}

/// Words as pairs of elements, the first one in the lower half.
fn halves(words: &mut [u32]) -> &mut [u16] {
    // SAFETY: two elements have the size of a word, whose alignment is enough; any bits are a value of either.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 2 * words.len()) }
}

/// Numbers as the words of packed operands.
fn bits(numbers: &[f32]) -> &[u32] {
    // SAFETY: both types have the same size and alignment, and any bits are a value of either.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

/// As [`bits`].
fn words(numbers: &mut [f32]) -> &mut [u32] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_packed_as_rounded_elements_are() {
        let weights: Vec<f32> = (0..KEYS * QUERIES).map(|i| (i as f32).sin() / 3.0).collect();
        for [keys, queries] in [[KEYS, QUERIES], [1, 1], [33, 17], [64, 31], [15, 64], [0, 0]] {
            let mut elements = vec![0; KEYS * QUERIES];
            round(&weights, [keys, queries], QUERIES, &mut elements);
            for side in [Side::Left, Side::Right] {
                let [mut expected, mut got] = [(); 2].map(|()| vec![7u32; packed_len(POSITIONS)]);
                let (free, contracted) = if side == Side::Left { (QUERIES as isize, 1) } else { (1, QUERIES as isize) };
                let from = Strided { elements: &elements[..], start: 0, free, contracted };
                pack(from, POSITIONS, POSITIONS, side, &mut expected, groups(POSITIONS) * GROUP);
                match side {
                    Side::Left => pack_rows(&weights, [keys, queries], halves(&mut got)),
                    Side::Right => pack_columns(&weights, [keys, queries], &mut got),
                }
                assert!(got == expected, "{keys} keys, {queries} queries, {side:?}");
            }
        }
    }
}
