//! Products of a matrix of narrow elements and up to 16 rows, where the matrix has its rows in the order that a unit reads. Each element is
//! multiplied once, so that packing would take longer than multiplying. The matrix is read at the speed of memory. The sums have the same
//! bits as those of packed operands.

// The output is written by several threads, in blocks that interleave.
#![allow(unsafe_code)]

use remat_ir::DType;

use super::blocking::Operand;
use super::{Matrix, write_sums};
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::{GROUP, Kind, PANEL, Part, Session, Side, Strided, Sums, Unit, pack};
use crate::base::pieces::pieces;
use crate::base::scratch;
use crate::interface::{Kernel, Source, Target};
use crate::kernels::matmul::thresholds::{SKINNY_UNIT_PACKED, SKINNY_UNIT_ROWS};
use crate::kernels::matmul::{Dot, Operands};
use crate::threads::Threads;

/// Groups of a skinny operand that a task packs.
const GROUPS: usize = 16;

/// Fewest elements of the matrix for a task.
const TASK: usize = 1 << 17;

/// The kernel of such products. Columns here are those of the result: the rows of the matrix.
pub(in crate::kernels::matmul) struct SkinnyKernel {
    kind: Kind,
    unit: Unit,
    operands: Operands<f32>,
    out: DType,
}

/// Words of a packed skinny operand.
fn panel(kind: Kind, depth: usize) -> usize {
    let [_, per_group] = kind.per_word_and_group();
    depth.div_ceil(per_group) * GROUP
}

impl SkinnyKernel {
    /// Whether this kernel is for such a product.
    pub(in crate::kernels::matmul) fn is_for(kind: Kind, unit: Unit, dot: &Dot<f32>) -> bool {
        let [rows, columns] = [dot.rows.min(dot.columns), dot.rows.max(dot.columns)];
        let matrix = if dot.rows < dot.columns { &dot.right } else { &dot.left };
        let is_uniform = matrix.free.outer.len() == 1 && matrix.contracted.outer.len() == 1;
        let is_read = is_uniform && matrix.contracted.stride[0] == 1 && matrix.free.stride[0] >= 0;
        let is_skinny =
            (1..=SKINNY_UNIT_ROWS).contains(&rows) && columns >= PANEL && dot.depth >= kind.per_word_and_group()[1];
        is_read && is_skinny && panel(kind, dot.depth) <= SKINNY_UNIT_PACKED && unit.reads_in_place()
    }

    /// The kernel of such a product.
    pub(in crate::kernels::matmul) fn new(kind: Kind, unit: Unit, dot: Dot<f32>) -> SkinnyKernel {
        let out = dot.out;
        SkinnyKernel { kind, unit, operands: dot.operands(), out }
    }

    fn panel(&self) -> usize {
        panel(self.kind, self.operands.depth)
    }

    /// Products whose skinny operands are packed at a time.
    fn together(&self) -> usize {
        (SKINNY_UNIT_PACKED / self.panel()).clamp(1, self.operands.batch.len().max(1))
    }

    fn run_as<N: Part>(&self, ins: [&[N]; 2], out: &mut Target<'_>, scratch: &mut [u32], threads: &Threads) {
        let Operands { rows, columns, depth, ref batch, .. } = self.operands;
        let (panel, out) = (self.panel(), DisjointMut::bytes(out));
        let (tasks, blocks) = (panel.div_ceil(GROUPS * GROUP), columns.div_ceil(PANEL));
        let together = (TASK / (PANEL * depth)).max(1);
        for products in pieces(0..batch.len(), self.together()) {
            let packed = &mut scratch[..products.len() * panel];
            let to = DisjointMut::new(packed);
            threads.for_each(products.len() * tasks, |task| {
                let (i, first) = (task / tasks, task % tasks * GROUPS);
                let groups = first..(panel / GROUP).min(first + GROUPS);
                let part = groups.start * N::PER_GROUP..depth.min(groups.end * N::PER_GROUP);
                // SAFETY: each task packs groups of its own.
                let to = unsafe { to.slice(i * panel + groups.start * GROUP, groups.len() * GROUP) };
                self.skinny(ins, products.start + i).pack(0..rows, part, Side::Right, to, &mut []);
            });
            let (packed, all) = (&*packed, products.len() * blocks);
            threads.for_each(all.div_ceil(together), |task| {
                let session = self.unit.session();
                let mut sums = [0; PANEL * PANEL];
                for block in task * together..all.min((task + 1) * together) {
                    let (i, index) = (block / blocks, products.start + block / blocks);
                    // The last block begins with columns of the block before, which are not written again.
                    let first = block % blocks * PANEL;
                    let begin = first.min(columns - PANEL);
                    self.block(&session, self.rows(ins, index, begin), &packed[i * panel..][..panel], &mut sums);
                    let skipped = first - begin;
                    let (row, strides) = match self.operands.skinny_first {
                        true => (1, [1, columns as isize]),
                        false => (rows, [rows as isize, 1]),
                    };
                    let to = out.at((index * rows * columns + first * row) * self.out.size());
                    let (sums, size) = (&sums[skipped * PANEL..], [PANEL - skipped, rows]);
                    // SAFETY: these are elements of a result, which one task writes.
                    unsafe { write_sums(self.out, sums, size, to, strides) };
                }
            });
        }
    }

    /// The skinny operand of a product.
    fn skinny<'a, N>(&'a self, ins: [&'a [N]; 2], index: usize) -> Matrix<'a, N> {
        let Operands { batch, skinny, skinny_first, .. } = &self.operands;
        let side = usize::from(!skinny_first);
        let start = skinny.start + batch.offsets(index)[side];
        Matrix { elements: ins[side], free: &skinny.free, contracted: &skinny.contracted, start }
    }

    /// The elements of the matrix of a product from one of its rows on.
    fn rows<'a, N>(&self, ins: [&'a [N]; 2], index: usize, row: usize) -> &'a [N] {
        let Operands { batch, matrix, skinny_first, .. } = &self.operands;
        let side = usize::from(*skinny_first);
        let start = matrix.start + batch.offsets(index)[side] + row as isize * matrix.free.stride[0];
        &ins[side][start as usize..]
    }

    /// Computes the sums of the rows of the matrix that begin here.
    fn block<N: Part>(&self, session: &Session, rows: &[N], packed: &[u32], sums: &mut Sums) {
        let (depth, stride) = (self.operands.depth, self.operands.matrix.free.stride[0]);
        let (whole, rest) = packed.split_at(depth / N::PER_GROUP * GROUP);
        session.multiply_in_place((rows, stride as usize), whole, sums, false);
        if !rest.is_empty() {
            // A group that is not full is followed by zeros, not by elements of other rows.
            let start = depth / N::PER_GROUP * N::PER_GROUP;
            let mut last = [0; GROUP];
            let from = Strided { elements: rows, start: start as isize, free: stride, contracted: 1 };
            pack(from, PANEL, depth - start, Side::Left, &mut last, GROUP);
            session.multiply(&last, rest, (&mut sums[..], PANEL), true, None);
        }
    }
}

impl Kernel for SkinnyKernel {
    fn scratch(&self, _: usize) -> usize {
        self.together() * self.panel() * size_of::<u32>()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (out, scratch) = (&mut outs[0], scratch::of(scratch));
        match self.kind {
            Kind::Bf16 | Kind::F16 => self.run_as::<u16>([0, 1].map(|i| ins[i].words()), out, scratch, threads),
            _ => self.run_as::<u8>([0, 1].map(|i| ins[i].words()), out, scratch, threads),
        }
    }
}
