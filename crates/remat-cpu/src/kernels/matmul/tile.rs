//! The innermost loop: a small tile of a product, whose sums stay in registers.
//!
//! The operands come as *panels*, copied so that the loop reads them from beginning to end: of the right operand as many
//! columns as a tile has, row by row; of the left one as many rows, in either [`Order`]. The method and the names are those of
//! Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM Transactions on Mathematical Software,
//! 2008, and of Van Zee and van de Geijn, "BLIS: a framework for rapidly instantiating BLAS functionality", 2015, with the
//! operands exchanged since our matrices are row-major.

use super::vector::{Number, Plain, Vector};
use crate::simd::{Instructions, Level};

/// A type that products are summed in: f32, f64 or i64.
pub(in super::super) trait Accumulator: Number + remat_ir::Element {
    /// The steps of the contracted dimension that one panel of the left operand has at most. With these, panel and tile stay
    /// in the first level of the cache.
    const DEPTH: usize;

    /// The tiles for a level.
    fn tiles(level: Level) -> &'static Tiles<Self>;
}

/// How a panel of the left operand lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Order {
    /// Row after row, [`row_step`] apart: copied from rows.
    Rows,
    /// Column after column, each with the rows of a whole tile: copied from columns.
    Columns,
}

/// The distance between the rows of a panel in [`Order::Rows`]. It is no multiple of a large power of two, so that the rows
/// do not meet in one set of the cache.
pub(super) const fn row_step<A: Accumulator>() -> usize {
    A::DEPTH + 16
}

/// The numbers in a panel of the left operand.
pub(super) const fn panel_len<A: Accumulator>(tiles: &Tiles<A>) -> usize {
    tiles.rows * row_step::<A>()
}

/// Computes a tile: the products of the first `rows` rows of a panel of the left operand and the first `columns` columns of
/// one of the right operand, summed over `depth`, are written to `out`, whose rows are `stride` apart, or are added to it.
///
/// # Safety
/// The CPU has the instructions of the level that this is for. `lhs` and `rhs` are panels of this depth, for a tile of this
/// size; `out` is valid for reading and writing the rows and columns.
pub(super) type TileFn<A> = unsafe fn(
    depth: usize,
    lhs: *const A,
    rhs: *const A,
    out: *mut A,
    stride: usize,
    rows: usize,
    columns: usize,
    add: bool,
);

/// The tiles for a level.
pub(in super::super) struct Tiles<A: 'static> {
    /// Rows of a whole tile.
    pub(super) rows: usize,
    /// Columns of a whole tile.
    pub(super) columns: usize,
    /// Tiles of a third, two thirds and all of the rows: for each order of the left panel, for half and all of the columns.
    versions: [[[TileFn<A>; 2]; 2]; 3],
}

impl<A> Tiles<A> {
    /// The least tile that has so many rows and columns, of which there is at least one.
    #[inline]
    pub(super) fn version(&self, order: Order, rows: usize, columns: usize) -> TileFn<A> {
        let thirds = (rows * 3).div_ceil(self.rows);
        self.versions[thirds - 1][order as usize][usize::from(columns * 2 > self.columns)]
    }
}

/// A tile of `R` rows and `C` vectors of columns, of panels for whole tiles of `ROWS` rows and two vectors of columns.
///
/// # Safety
/// That of [`TileFn`].
#[inline(always)]
unsafe fn tile<
    V: Vector<Number: Accumulator>,
    const ROWS: usize,
    const R: usize,
    const C: usize,
    const COLUMNS: bool,
>(
    depth: usize,
    lhs: *const V::Number,
    rhs: *const V::Number,
    out: *mut V::Number,
    stride: usize,
    rows: usize,
    columns: usize,
    add: bool,
) {
    let (row_step, depth_step) = if COLUMNS { (1, ROWS) } else { (row_step::<V::Number>(), 1) };
    // SAFETY: the caller promises panels of this depth and a place for the tile.
    unsafe {
        for i in 0..rows {
            V::prefetch(out.wrapping_add(i * stride));
            V::prefetch(out.wrapping_add(i * stride + columns - 1));
        }
        let mut sums = [[V::zero(); C]; R];
        let (mut lhs, mut rhs) = (lhs, rhs);
        for _ in 0..depth {
            let mut b = [V::zero(); C];
            for (c, b) in b.iter_mut().enumerate() {
                *b = V::load(rhs.add(c * V::LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = V::splat(lhs.add(r * row_step));
                for (sum, &b) in sums.iter_mut().zip(&b) {
                    *sum = sum.multiply_add(a, b);
                }
            }
            lhs = lhs.add(depth_step);
            rhs = rhs.add(2 * V::LANES);
        }
        if columns == C * V::LANES {
            for (r, sums) in sums.iter().enumerate() {
                if r < rows {
                    for (c, &sum) in sums.iter().enumerate() {
                        let to = out.add(r * stride + c * V::LANES);
                        (if add { V::load(to).plus(sum) } else { sum }).store(to);
                    }
                }
            }
        } else {
            let mut whole = [[[V::Number::default(); 16]; C]; R];
            for (sums, whole) in sums.iter().zip(&mut whole) {
                for (sum, whole) in sums.iter().zip(whole) {
                    sum.store(whole.as_mut_ptr());
                }
            }
            store_part::<V, R, C>(&whole, out, stride, rows, columns, add);
        }
    }
}

/// Writes the first rows and columns of a tile, or adds them.
///
/// # Safety
/// `out` is valid for reading and writing these rows and columns.
#[inline(never)]
unsafe fn store_part<V: Vector, const R: usize, const C: usize>(
    whole: &[[[V::Number; 16]; C]; R],
    out: *mut V::Number,
    stride: usize,
    rows: usize,
    columns: usize,
    add: bool,
) {
    for (r, whole) in whole.iter().enumerate().take(rows) {
        for c in 0..columns {
            let sum = whole[c / V::LANES][c % V::LANES];
            // SAFETY: the element is one of those that the caller promises.
            unsafe {
                let to = out.add(r * stride + c);
                to.write(if add { to.read().plus(sum) } else { sum });
            }
        }
    }
}

/// Compiles `tile` for the instructions of a level.
macro_rules! compiled {
    ($($(#[$meta:meta])* $name:ident;)*) => { $(
        $(#[$meta])*
        unsafe fn $name<V: Vector<Number: Accumulator>, const ROWS: usize, const R: usize, const C: usize, const COLUMNS: bool>(
            depth: usize,
            lhs: *const V::Number,
            rhs: *const V::Number,
            out: *mut V::Number,
            stride: usize,
            rows: usize,
            columns: usize,
            add: bool,
        ) {
            // SAFETY: what the caller promises is passed on.
            unsafe { tile::<V, ROWS, R, C, COLUMNS>(depth, lhs, rhs, out, stride, rows, columns, add) }
        }
    )* };
}

compiled! {
    plain;
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    avx2;
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
    avx512;
}

/// The tiles of a level with this many rows, and a third and two thirds of them.
macro_rules! tiles {
    ($level:ident, $vector:ty, $third:literal, $most:literal, $rows:literal) => {
        &Tiles {
            rows: $rows,
            columns: 2 * <$vector as Vector>::LANES,
            versions: [
                tiles!(@orders $level, $vector, $third, $rows),
                tiles!(@orders $level, $vector, $most, $rows),
                tiles!(@orders $level, $vector, $rows, $rows),
            ],
        }
    };
    (@orders $level:ident, $vector:ty, $r:literal, $rows:literal) => {
        [
            [$level::<$vector, $rows, $r, 1, false>, $level::<$vector, $rows, $r, 2, false>],
            [$level::<$vector, $rows, $r, 1, true>, $level::<$vector, $rows, $r, 2, true>],
        ]
    };
}

// A CPU has 16 registers for the sums, a vector of the left operand and two of the right one, and 32 with AVX-512 and NEON.
macro_rules! accumulator {
    ($($type:ident: $depth:literal, $plain:expr, $avx2:expr, $avx512:expr;)*) => { $(
        impl Accumulator for $type {
            const DEPTH: usize = $depth;

            fn tiles(level: Level) -> &'static Tiles<$type> {
                match level.instructions() {
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx512 => $avx512,
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx2 => $avx2,
                    Instructions::Plain => $plain,
                }
            }
        }
    )* };
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

accumulator! {
    f32: 384, tiles!(plain, Plain<f32, 4>, 2, 4, 6), tiles!(avx2, __m256, 2, 4, 6), tiles!(avx512, __m512, 4, 8, 12);
    f64: 256, tiles!(plain, Plain<f64, 2>, 2, 4, 6), tiles!(avx2, __m256d, 2, 4, 6), tiles!(avx512, __m512d, 4, 8, 12);
    i64: 256, tiles!(plain, Plain<i64, 2>, 1, 2, 3), tiles!(avx2, Plain<i64, 4>, 1, 2, 3), tiles!(avx512, Plain<i64, 8>, 1, 2, 3);
}
