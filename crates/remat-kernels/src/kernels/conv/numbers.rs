//! Products of elements that are converted to the type in which they are summed.

use remat_ir::{Aval, DType};

use super::Multiplier;
use super::output::StridedOutput;
use super::phase::{Phase, Products};
use super::sizes::blocking;
use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::base::scratch;
use crate::interface::{Layout, Source};
use crate::kernels::matmul::{Blocking, Reader, SHARED, Writer};
use crate::simd::Level;
use crate::threads::Threads;

/// How operands are converted to numbers, and sums to the output's dtype.
pub(super) struct Numbers<A> {
    readers: [Reader<A>; 2],
    writer: Writer<A>,
}

/// How products are cut, and what is packed before them.
pub(super) struct NumbersBlocking<A: Accumulator> {
    blocking: Blocking<A>,
    /// The groups whose weights are the left operand and are packed once, before all products; 0 where blocks pack them.
    packed_groups: usize,
}

impl<A: Accumulator> NumbersBlocking<A> {
    /// Elements of the weights that are packed once.
    fn packed(&self) -> usize {
        self.packed_groups * self.blocking.packed_left()
    }

    /// The same for this many threads.
    fn for_threads(&self, threads: usize) -> NumbersBlocking<A> {
        NumbersBlocking { blocking: self.blocking.for_threads(threads), ..*self }
    }
}

/// Most elements of weights that are packed once, so that they fit the second-level cache, or a part of the last-level cache.
const MOST_PACKED: usize = 1 << 20;

/// Fewest columns, of all images, for weights that are packed once.
const MIN_COLUMNS: usize = 1024;

impl<A: Accumulator> Numbers<A> {
    pub(super) fn new(ins: [(DType, &Layout); 2], out: &Aval) -> Numbers<A> {
        Numbers { readers: ins.map(|(dtype, _)| Reader::new(dtype)), writer: Writer::new(out.dtype) }
    }
}

impl<A: Accumulator> Multiplier for Numbers<A> {
    type Blocking = NumbersBlocking<A>;

    fn is_direct(&self) -> bool {
        self.writer.is_direct()
    }

    fn blocking(&self, products: &Products) -> NumbersBlocking<A> {
        let [rows, columns, depth] = products.shape;
        let kernel = A::micro_kernel(Level::best());
        let left = rows.saturating_mul(depth);
        let packed = rows.next_multiple_of(kernel.rows).saturating_mul(depth);
        let packs = !products.windows_first
            && !products.is_task
            && packed.saturating_mul(products.groups) <= MOST_PACKED
            && columns.saturating_mul(products.batch / products.groups) >= MIN_COLUMNS
            && left.saturating_mul(columns).saturating_mul(products.batch) >= SHARED;
        let left = &self.readers[usize::from(!products.windows_first)];
        // Packed weights are as good as weights read in place: no block copies them again.
        let in_place = packs || (products.in_place && left.dtype() == A::DTYPE);
        let blocking = blocking(kernel, &Products { in_place, ..*products });
        NumbersBlocking { blocking, packed_groups: if packs { products.groups } else { 0 } }
    }

    fn scratch(&self, blocking: &NumbersBlocking<A>, threads: usize) -> usize {
        let blocking = blocking.for_threads(threads);
        scratch::bytes::<A>(blocking.packed()) + blocking.blocking.scratch(threads)
    }

    fn run<'a>(
        &self,
        phase: &Phase<NumbersBlocking<A>>,
        ins: &[Source<'_>],
        part: impl Fn(usize) -> ([isize; 2], DisjointMut<'a, u8>) + Sync,
        scratch: &mut [u8],
        threads: &Threads,
    ) {
        let all = phase.blocking.for_threads(threads.count());
        let NumbersBlocking { blocking, packed_groups } = &all;
        let (windows, weights) = (self.readers[0].of(ins[0]), self.readers[1].of(ins[1]));
        let part = |i: usize| {
            let ([of_windows, of_weights], out) = part(i);
            (phase.windows.of(windows, of_windows), phase.weights.of(weights, of_weights), out)
        };
        let (writer, [rows, columns]) = (&self.writer, phase.rows_and_columns());
        if phase.windows_first {
            return blocking.run(scratch, threads, |i| {
                let (windows, weights, out) = part(i);
                (windows, weights, StridedOutput { out, writer, rows, columns })
            });
        }
        if *packed_groups == 0 {
            return blocking.run(scratch, threads, |i| {
                let (windows, weights, out) = part(i);
                (weights, windows, StridedOutput { out, writer, rows, columns })
            });
        }
        let (packed, scratch) = scratch::take::<A>(scratch, all.packed());
        for (group, to) in packed.chunks_exact_mut(blocking.packed_left()).enumerate() {
            let weights = part(group * phase.images).1;
            blocking.pack_left(to, threads, |rows, depth, width, to| weights.pack_panel(rows, depth, width, to));
        }
        let packed = &*packed;
        blocking.run(scratch, threads, |i| {
            let (windows, _, out) = part(i);
            let weights = blocking.packed(&packed[i / phase.images * blocking.packed_left()..]);
            (weights, windows, StridedOutput { out, writer, rows, columns })
        });
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Conv, Operation};

    use super::super::ConvKernel;
    use super::super::tests::of_rank;
    use super::*;
    use crate::test_support::{assert_same, plain, run, threads};

    /// Blocks that pack their weights, and weights that are packed once, whose order in memory follows the blocks.
    #[test]
    fn blocks_for_many_threads_have_the_bits_of_those_for_one() {
        for (padding, weights, packs) in [(0, [1100, 40, 1, 1], true), (1, [500, 300, 3, 3], false)] {
            let op = Conv { padding: vec![(padding, padding); 2], ..of_rank(2, DType::F64) };
            let positions = if packs { [40, 30] } else { [9, 8] };
            let shapes = [[1, weights[1], positions[0], positions[1]], weights];
            let arrays = [0, 1].map(|i| plain(DType::F64, &shapes[i], 1 + i as u64));
            let out = op.infer(&arrays.each_ref().map(|x| x.aval().clone())).expect("they fit").remove(0);
            let layouts = arrays.each_ref().map(|x| Layout::from(x.aval()));
            let ins = [(DType::F64, &layouts[0]), (DType::F64, &layouts[1])];
            let kernel = ConvKernel::new(Numbers::<f64>::new(ins, &out), &op, ins, &out);
            let NumbersBlocking { blocking, packed_groups } = &kernel.phases[0].blocking;
            assert_eq!(*packed_groups > 0, packs);
            let cut = blocking.for_threads(13);
            assert!(cut.blocks() > blocking.blocks() && cut.packed_left() != blocking.packed_left(), "{weights:?}");
            let of = |count| run(&kernel, &arrays, std::slice::from_ref(&out), None, &threads(count)).remove(0);
            let one = of(1);
            for count in [5, 13] {
                assert_same(&of(count), &one, &format!("{count} threads, {weights:?}"));
            }
        }
    }
}
