//! The accumulators of reductions.
//!
//! A sum of numbers one after the other has an error that grows with their number, in proportion if their roundings have one sign, as those
//! of equal numbers have. So accumulators have levels: each block of numbers is added to the accumulator of the next level, a block of
//! these to that of the level after it, and so on, and a sum has no more roundings in a row than a block for each level. The order depends
//! on the number of terms alone.

#![allow(unsafe_code)]

use remat_ir::{DType, ReduceKind};

use crate::tile::{self, BLOCK, LANES, LanesFn, PART, RUN, ReduceFn, StridedFn, TileFn};

/// The levels for this many additions to each accumulator.
pub(super) fn levels(additions: usize) -> usize {
    let (mut levels, mut most) = (1, BLOCK);
    while most < additions {
        (levels, most) = (levels + 1, most.saturating_mul(BLOCK));
    }
    levels
}

/// One reduction.
pub(super) struct Reducer {
    /// The slot of its operand.
    pub(super) value: usize,
    pub(super) accumulate: TileFn,
    /// Accumulates in lanes.
    lanes: LanesFn,
    /// Reduces lanes, without rounding.
    fold: ReduceFn,
    /// The identity, which begins with an element of the accumulator's dtype.
    identity: u64,
    /// Fills accumulators.
    fill: StridedFn,
    /// The dtype of an accumulator.
    pub(super) register: DType,
    pub(super) dtype: DType,
}

impl Reducer {
    pub(super) fn new(kind: ReduceKind, dtype: DType, value: usize) -> Option<Reducer> {
        let register = tile::register_type(dtype);
        Some(Reducer {
            value,
            accumulate: tile::accumulate(kind, dtype)?,
            lanes: tile::accumulate_lanes(kind, dtype)?,
            fold: tile::reduce_rows(kind, register)?,
            identity: u64::from_ne_bytes(tile::identity(kind, dtype)?),
            fill: tile::strided(register.size()),
            register,
            dtype,
        })
    }

    /// Sets `n` accumulators to the identity.
    ///
    /// # Safety
    /// `to` has room for `n` elements of the register type.
    pub(super) unsafe fn clear(&self, n: usize, to: *mut u8) {
        // SAFETY: promised by the caller.
        unsafe { (self.fill)(n, to, (&raw const self.identity).cast(), 0) }
    }

    /// Combines rows of `inner` accumulators into the first one: the second half into the first, until one is left.
    ///
    /// # Safety
    /// `accumulators` has `rows * inner` elements of the register type.
    pub(super) unsafe fn halve(&self, accumulators: *mut u8, mut rows: usize, inner: usize) -> *const u8 {
        while rows > 1 {
            let half = rows.div_ceil(2);
            // SAFETY: promised by the caller; the halves do not overlap.
            unsafe {
                let second = accumulators.add(half * inner * self.register.size());
                (self.accumulate)(
                    (rows - half) * inner,
                    accumulators,
                    &[accumulators.cast_const(), second.cast_const()],
                );
            }
            rows = half;
        }
        accumulators
    }

    /// Rounds `n` accumulators and stores them.
    ///
    /// # Safety
    /// `from` has `n` elements of the register type, `to` has room for `n` of the dtype.
    pub(super) unsafe fn store(&self, n: usize, from: *mut u8, to: *mut u8) {
        // SAFETY: promised by the caller.
        unsafe {
            match (tile::finish(self.dtype), tile::store(self.dtype)) {
                (Some(finish), Some(store)) => {
                    finish(n, from, &[from.cast_const()]);
                    store(n, to, &[from.cast_const()]);
                }
                _ => std::ptr::copy_nonoverlapping(from, to, n * self.register.size()),
            }
        }
    }
}

/// The accumulators of one reduction. All functions are unsafe, since each level must have `width` elements of the register type.
pub(super) struct Accumulators<'a> {
    pub(super) reducer: &'a Reducer,
    /// Those of the first level.
    pub(super) first: *mut u8,
    /// The bytes from one level to the next.
    pub(super) stride: usize,
    /// The accumulators of each level.
    pub(super) width: usize,
    pub(super) levels: usize,
}

impl Accumulators<'_> {
    /// Sets all to the identity.
    ///
    /// # Safety
    /// As for the type.
    pub(super) unsafe fn clear(&self) {
        for level in 0..self.levels {
            // SAFETY: promised by the caller.
            unsafe { self.reducer.clear(self.width, self.first.add(level * self.stride)) }
        }
    }

    /// Adds a row of elements, one to each accumulator, after this many others.
    ///
    /// # Safety
    /// As for the type; `from` has `width` elements of the register type.
    pub(super) unsafe fn add_row(&self, row: usize, from: *const u8) {
        // SAFETY: promised by the caller.
        unsafe {
            (self.reducer.accumulate)(self.width, self.first, &[self.first.cast_const(), from]);
            self.carry(row + 1);
        }
    }

    /// Adds elements that come after `before` others to the first level, cyclically.
    ///
    /// # Safety
    /// As for the type; `from` has `n` elements of the register type.
    pub(super) unsafe fn add(&self, before: usize, n: usize, from: *const u8) {
        let size = self.reducer.register.size();
        let (mut rounds, mut at, mut done) = (before / self.width, before % self.width, 0);
        while done < n {
            let len = (self.width - at).min(n - done);
            // SAFETY: promised by the caller.
            unsafe {
                let to = self.first.add(at * size);
                (self.reducer.accumulate)(len, to, &[to.cast_const(), from.add(done * size)]);
                (at, done) = (at + len, done + len);
                if at == self.width {
                    (rounds, at) = (rounds + 1, 0);
                    self.carry(rounds);
                }
            }
        }
    }

    /// Adds elements that come after `before` others in lanes, which are added to those of the run after each part of it. These are reduced to
    /// one number after the run, and added.
    ///
    /// # Safety
    /// As for the type; there is one accumulator, `lanes` has the lanes of a part, those of a run and one more element of the register type,
    /// `from` has `n`.
    pub(super) unsafe fn add_in_lanes(&self, lanes: *mut u8, before: usize, n: usize, from: *const u8) {
        let size = self.reducer.register.size();
        let (mut runs, mut at, mut done) = (before / RUN, before % RUN, 0);
        while done < n {
            let len = (PART - at % PART).min(n - done);
            // SAFETY: promised by the caller.
            unsafe {
                (self.reducer.lanes)(len, at, lanes, from.add(done * size));
                (at, done) = (at + len, done + len);
                if at == RUN {
                    self.add_run(lanes, true);
                    self.reducer.clear(2 * LANES, lanes);
                    (runs, at) = (runs + 1, 0);
                    self.carry(runs);
                } else if at % PART == 0 {
                    self.add_part(lanes);
                    self.reducer.clear(LANES, lanes);
                }
            }
        }
    }

    /// Adds the lanes of a part to those of its run.
    ///
    /// # Safety
    /// As for [`Accumulators::add_in_lanes`].
    unsafe fn add_part(&self, lanes: *mut u8) {
        // SAFETY: promised by the caller.
        unsafe {
            let of_run = lanes.add(LANES * self.reducer.register.size());
            (self.reducer.accumulate)(LANES, of_run, &[of_run.cast_const(), lanes.cast_const()]);
        }
    }

    /// Reduces the lanes of a run to one number and adds it, after those of its last part are added to them. A run of less than a part (not
    /// `has_parts`) has no lanes of its own.
    ///
    /// # Safety
    /// As for [`Accumulators::add_in_lanes`].
    pub(super) unsafe fn add_run(&self, lanes: *mut u8, has_parts: bool) {
        // SAFETY: promised by the caller.
        unsafe {
            let size = self.reducer.register.size();
            let (of_run, run) = (lanes.add(LANES * size), lanes.add(2 * LANES * size));
            if has_parts {
                self.add_part(lanes);
            }
            (self.reducer.fold)(1, LANES, run, if has_parts { of_run } else { lanes });
            (self.reducer.accumulate)(1, self.first, &[self.first.cast_const(), run.cast_const()]);
        }
    }

    /// Adds full blocks to the next level, after this many additions to each accumulator of the first.
    ///
    /// # Safety
    /// As for the type.
    unsafe fn carry(&self, additions: usize) {
        let full = (additions.trailing_zeros() / BLOCK.trailing_zeros()) as usize;
        for level in 1..self.levels.min(full + 1) {
            // SAFETY: promised by the caller.
            unsafe {
                self.pass(level);
                self.reducer.clear(self.width, self.first.add((level - 1) * self.stride));
            }
        }
    }

    /// Adds all levels to the last one, which it returns.
    ///
    /// # Safety
    /// As for the type.
    pub(super) unsafe fn total(&self) -> *mut u8 {
        // SAFETY: promised by the caller.
        unsafe {
            for level in 1..self.levels {
                self.pass(level);
            }
            self.first.add((self.levels - 1) * self.stride)
        }
    }

    /// Adds the level before this one to it.
    ///
    /// # Safety
    /// As for the type.
    unsafe fn pass(&self, level: usize) {
        // SAFETY: promised by the caller; levels do not overlap.
        unsafe {
            let to = self.first.add(level * self.stride);
            let from = to.sub(self.stride).cast_const();
            (self.reducer.accumulate)(self.width, to, &[to.cast_const(), from]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums `rows` rows of three equal numbers, in pieces of `len` elements, or row by row.
    fn sum(rows: usize, len: Option<usize>) -> [f32; 3] {
        let reducer = Reducer::new(ReduceKind::Sum, DType::F32, 0).expect("floats have sums");
        let levels = levels(rows);
        let mut memory = vec![f32::NAN; 3 * levels];
        let first = memory.as_mut_ptr().cast();
        let sums = Accumulators { reducer: &reducer, first, stride: 12, width: 3, levels };
        let numbers = [0.1f32; 3].repeat(rows);
        let len = len.unwrap_or(3);
        // SAFETY: each level has three numbers, and so has each row.
        unsafe {
            sums.clear();
            for (i, piece) in numbers.chunks(len).enumerate() {
                match len {
                    3 => sums.add_row(i, piece.as_ptr().cast()),
                    _ => sums.add(i * len, piece.len(), piece.as_ptr().cast()),
                }
            }
            sums.total().cast::<[f32; 3]>().read_unaligned()
        }
    }

    #[test]
    fn there_is_a_level_for_each_power_of_a_block() {
        let expected = [(0, 1), (1, 1), (8, 1), (9, 2), (64, 2), (65, 3), (512, 3), (513, 4)];
        for (additions, count) in expected {
            assert_eq!(levels(additions), count, "{additions}");
        }
        assert_eq!(levels(usize::MAX), 22);
    }

    #[test]
    fn the_error_of_a_sum_grows_with_the_number_of_levels() {
        for rows in [1, 7, 8, 9, 63, 64, 65, 1000, 4096, 5000, 32_768, 40_000] {
            let expected = sum(rows, None);
            let exact = f64::from(0.1f32) * rows as f64;
            let error = (f64::from(expected[0]) / exact - 1.0).abs();
            assert!(error <= 9e-8 * levels(rows) as f64, "{rows} rows: {error:e}");
            // The pieces do not change the order.
            for len in [1, 2, 7, 96, 100] {
                assert_eq!(sum(rows, Some(len)), expected, "{rows} rows in pieces of {len}");
            }
        }
    }
}
