//! Products of elements that are converted to the numbers that they are summed in.

use remat_ir::{Aval, DType};

use super::Multiplier;
use super::output::StridedOutput;
use super::phase::{Phase, Products};
use super::sizes::cut;
use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::interface::{Layout, Source};
use crate::kernels::matmul::{Cut, Reader, Writer};
use crate::simd::Level;
use crate::threads::Threads;

/// How operands become numbers, and sums what the output has.
pub(super) struct Numbers<A> {
    readers: [Reader<A>; 2],
    writer: Writer<A>,
}

impl<A: Accumulator> Numbers<A> {
    pub(super) fn new(ins: [(DType, &Layout); 2], out: &Aval) -> Numbers<A> {
        Numbers { readers: ins.map(|(dtype, _)| Reader::new(dtype)), writer: Writer::new(out.dtype) }
    }
}

impl<A: Accumulator> Multiplier for Numbers<A> {
    type Cut = Cut<A>;

    fn is_direct(&self) -> bool {
        self.writer.is_direct()
    }

    fn cut(&self, products: &Products) -> Cut<A> {
        let left = &self.readers[usize::from(!products.windows_first)];
        let in_place = products.in_place && left.dtype() == A::DTYPE;
        cut(A::micro_kernel(Level::best()), &Products { in_place, ..*products })
    }

    fn scratch(&self, cut: &Cut<A>, threads: usize) -> usize {
        cut.scratch(threads)
    }

    fn run<'a>(
        &self,
        phase: &Phase<Cut<A>>,
        ins: &[Source<'_>],
        part: impl Fn(usize) -> ([isize; 2], DisjointMut<'a, u8>) + Sync,
        scratch: &mut [u8],
        threads: &Threads,
    ) {
        let (windows, weights) = (self.readers[0].of(ins[0]), self.readers[1].of(ins[1]));
        let part = |i: usize| {
            let ([of_windows, of_weights], out) = part(i);
            (phase.windows.of(windows, of_windows), phase.weights.of(weights, of_weights), out)
        };
        let writer = &self.writer;
        if phase.windows_first {
            let (rows, columns) = (&phase.positions, &phase.features);
            phase.cut.run(scratch, threads, |i| {
                let (windows, weights, out) = part(i);
                (windows, weights, StridedOutput { out, writer, rows, columns })
            });
        } else {
            let (rows, columns) = (&phase.features, &phase.positions);
            phase.cut.run(scratch, threads, |i| {
                let (windows, weights, out) = part(i);
                (weights, windows, StridedOutput { out, writer, rows, columns })
            });
        }
    }
}
