//! The forward kernel of attention.
//!
//! A task has some blocks of queries and goes through the blocks of keys. For each query it keeps the maximum of the scores so far, the sum
//! of the exponentials, and the sum of the values, which are scaled down when a larger score comes. Source: Milakov and Gimelshein, "Online
//! normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022.

// Each task writes its own rows.
#![allow(unsafe_code)]

use remat_ir::DType;

use super::few;
use super::parts::{PartialSoftmax, Parts};
use super::problem::{Elements, Problem, Rows, take};
use super::products::Products;
use super::tile::{
    COLUMNS, KEYS, PerQuery, QUERIES, QueryBlock, QueryGroup, RUN, Tile, row_width, transposed, write_row,
};
use crate::base::disjoint::DisjointMut;
use crate::base::product::Float;
use crate::base::scratch;
use crate::interface::{Kernel, Source, Target};
use crate::number::{Number, Real, with_float};
use crate::simd::multiversion;
use crate::threads::Threads;

pub(super) struct Forward {
    dtype: DType,
    problem: Problem,
    /// Whether the queries are few enough for [`few`].
    has_few: bool,
    parts: Parts,
}

/// The outputs, and memory for the results of parts of the keys.
struct Outs<'a, D: Float> {
    out: DisjointMut<'a, D>,
    logsumexp: DisjointMut<'a, D::Wide>,
    partials: DisjointMut<'a, D::Wide>,
}

/// The workspace of a task.
struct Workspace<'a, T> {
    products: Products<'a>,
    /// For each block the queries, times their factor, as columns.
    query: &'a mut [T],
    /// For each block the sums of values, as columns.
    sums: &'a mut [T],
    rows: Rows<'a, T>,
    scores: &'a mut [T],
}

/// The softmax state of each query of a block so far.
#[derive(Clone, Copy)]
pub(super) struct State<T> {
    pub(super) maximum: PerQuery<T>,
    /// The sum of the exponentials of the scores less the maximum.
    pub(super) sum: PerQuery<T>,
    /// The factor for the sums before the last block.
    pub(super) factor: PerQuery<T>,
}

impl Kernel for Forward {
    fn scratch(&self, threads: usize) -> usize {
        (self.partials_len() + threads * self.workspace_len()) * self.dtype.wide().size()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        with_float!(self.dtype, D => self.run_as::<D>(ins, outs, scratch::of(scratch), threads));
    }
}

impl Forward {
    /// The kernel for few queries ([`few`]), of a problem without a unit.
    pub(super) fn of_few(dtype: DType, problem: Problem) -> Forward {
        let parts = Parts::new(problem.sizes.keys, usize::MAX, few::PART);
        Forward { dtype, problem, has_few: true, parts }
    }

    /// The kernel that computes tiles of queries and keys.
    pub(super) fn of_tiles(dtype: DType, problem: Problem) -> Forward {
        let tasks = problem.key_heads() * QueryGroup::of_key_head(&problem.sizes, 0, 0).runs();
        let parts = Parts::of_tasks(problem.sizes.keys, tasks);
        Forward { dtype, problem, has_few: false, parts }
    }

    /// The number of tasks that threads share.
    pub(super) fn tasks(&self) -> usize {
        self.problem.key_heads() * QueryGroup::of_key_head(&self.problem.sizes, 0, 0).runs() * self.parts.count
    }

    /// Numbers that are stored for a part and a number of queries.
    fn partial_len(&self, queries: usize) -> usize {
        PartialSoftmax::<f32>::len(queries, row_width(self.problem.sizes.value_features))
    }

    /// Numbers that are stored for all parts of the keys and a block of queries.
    fn block_len(&self) -> usize {
        let queries = self.problem.sizes.queries * self.problem.sizes.group();
        self.parts.count * self.partial_len(queries.min(QUERIES))
    }

    /// Numbers that are stored for all parts of the keys, if there are several: some cache lines.
    fn partials_len(&self) -> usize {
        if self.parts.count == 1 {
            return 0;
        }
        let blocks = QueryGroup::of_key_head(&self.problem.sizes, 0, 0).blocks();
        (self.problem.key_heads() * blocks * self.block_len()).next_multiple_of(COLUMNS)
    }

    fn workspace_len(&self) -> usize {
        if self.has_few {
            return few::workspace_lens(&self.problem).iter().sum();
        }
        (RUN + 1) * (self.problem.features_len() + self.problem.value_features_len())
            + KEYS * QUERIES
            + self.problem.products_len()
    }

    fn workspace<'a, T: Real>(&self, mut scratch: &'a mut [T]) -> Workspace<'a, T> {
        let (features, value_features) = (self.problem.features_len(), self.problem.value_features_len());
        Workspace {
            products: self.problem.products(&mut scratch),
            query: take(&mut scratch, RUN * features),
            sums: take(&mut scratch, RUN * value_features),
            rows: Rows { key: take(&mut scratch, features), value: take(&mut scratch, value_features) },
            scores: take(&mut scratch, KEYS * QUERIES),
        }
    }

    fn run_as<D: Float>(
        &self,
        ins: &[Source<'_>],
        outs: &mut [Target<'_>],
        scratch: &mut [D::Wide],
        threads: &Threads,
    ) {
        let from = self.problem.elements::<D>(ins);
        let [out, logsumexp] = outs else { return };
        let (partials, scratch) = scratch.split_at_mut(self.partials_len());
        let outs = Outs {
            out: DisjointMut::new(out.slice_mut()),
            logsumexp: DisjointMut::new(logsumexp.slice_mut()),
            partials: DisjointMut::new(partials),
        };
        let (heads, parts) = (self.problem.key_heads(), self.parts.count);
        let group = QueryGroup::of_key_head(&self.problem.sizes, 0, 0);
        let (runs, blocks) = (group.runs(), group.blocks());
        threads.for_each_with_scratch(self.tasks(), scratch, |task, scratch| {
            // The last queries attend to the most keys, and come first.
            let (run, task) = (runs - 1 - task / (heads * parts), task % (heads * parts));
            let (group, part) = (self.problem.group(task / parts), task % parts);
            if self.has_few {
                self.task_of_few(&group, part, &from, &outs, scratch);
            } else {
                self.task(&group, run, part, &from, &outs, self.workspace(scratch));
            }
        });
        if parts > 1 {
            threads
                .for_each(heads * blocks, |i| self.combine(&self.problem.group(i / blocks).block(i % blocks), &outs));
        }
    }

    /// Computes the results of a group of few queries and a part of the keys.
    fn task_of_few<D: Float>(
        &self,
        group: &QueryGroup,
        part: usize,
        from: &Elements<'_, D>,
        outs: &Outs<'_, D>,
        mut scratch: &mut [D::Wide],
    ) {
        let lens = few::workspace_lens(&self.problem);
        let [query, sums, key, value, scores] = lens.map(|len| take(&mut scratch, len));
        let mut space = few::Workspace { query, sums, rows: Rows { key, value }, scores };
        let block = group.block(0);
        let state = few::attend(&self.problem, group, block, self.parts.keys(part), from, &mut space);
        self.finish(&block, part, &state, space.sums, outs);
    }

    /// Computes the results of a run of blocks of queries and a part of the keys.
    fn task<D: Float>(
        &self,
        group: &QueryGroup,
        run: usize,
        part: usize,
        from: &Elements<'_, D>,
        outs: &Outs<'_, D>,
        mut space: Workspace<'_, D::Wide>,
    ) {
        let problem = &self.problem;
        let (features, value_features) = (problem.sizes.features, problem.sizes.value_features);
        let (len, value_len) = (problem.features_len(), problem.value_features_len());
        let factor = problem.query_factor();
        for (i, block) in group.run(run).enumerate() {
            // The memory of the keys is free until the first of them are loaded.
            let rows = &mut *space.rows.key;
            let starts = &block.rows(&problem.query)[..block.len];
            let (starts, columns) = ((starts, problem.query.stride(3)), &mut space.query[i * len..][..len]);
            space.products.load_columns(from.query, starts, features, factor, rows, columns);
        }
        let blocks = group.run(run).count();
        space.sums[..blocks * value_len].fill(D::Wide::ZERO);
        let mut states = [State::new(); RUN];
        problem.for_each_block_of_keys(group.run(run), self.parts.keys(part), |keys| {
            let tile = |block| Tile::new(block, keys.start, problem.sizes.keys, problem.causal);
            // A row of features is loaded once, when the first tile needs it.
            let mut is_loaded = false;
            for (i, block) in group.run(run).enumerate() {
                let tile = tile(block);
                for part in (i..RUN).step_by(blocks) {
                    problem.prefetch(group, keys.end, part, from);
                }
                if !problem.is_fully_masked(&tile, from) {
                    if !std::mem::replace(&mut is_loaded, true) {
                        problem.load_for_products(group, keys.clone(), from, &mut space.products, &mut space.rows);
                    }
                    let (query, sums) = (&space.query[i * len..], &mut space.sums[i * value_len..][..value_len]);
                    problem.scores(&tile, from, &mut space.products, space.rows.key, query, space.scores);
                    exponentials(&mut space.scores[..tile.keys * QUERIES], block.columns(), &mut states[i]);
                    scale_columns(&mut sums[..value_features * QUERIES], &states[i].factor);
                    space.products.add_to_queries(&tile, space.rows.value, value_features, space.scores, sums);
                }
            }
        });
        for ((i, block), state) in group.run(run).enumerate().zip(&states) {
            let sums = &space.sums[i * value_len..][..value_features * QUERIES];
            transposed(sums, QUERIES, block.len, space.rows.value, row_width(value_features));
            self.finish(&block, part, state, space.rows.value, outs);
        }
    }

    /// Writes the results of a block of queries, or stores those of one of several parts of the keys.
    fn finish<D: Float>(
        &self,
        block: &QueryBlock,
        part: usize,
        state: &State<D::Wide>,
        rows: &[D::Wide],
        outs: &Outs<'_, D>,
    ) {
        if self.parts.count == 1 {
            return self.write(block, state, rows, outs);
        }
        let len = self.partial_len(block.len);
        // SAFETY: each part of each block belongs to one task.
        let partial = unsafe { outs.partials.slice(self.partials_start(block) + part * len, len) };
        PartialSoftmax::new(partial, block.len).store(state, rows);
    }

    /// Writes the results of a block of queries, from those of the parts of the keys.
    fn combine<D: Float>(&self, block: &QueryBlock, outs: &Outs<'_, D>) {
        let len = self.parts.count * self.partial_len(block.len);
        // SAFETY: each block belongs to one task.
        let partials = unsafe { outs.partials.slice(self.partials_start(block), len) };
        let (state, sums) = PartialSoftmax::new(partials, block.len).combine(self.parts.count);
        self.write(block, &state, sums, outs);
    }

    /// Where the results of the parts of the keys are stored for a block of queries.
    fn partials_start(&self, block: &QueryBlock) -> usize {
        self.problem.block_number(block) * self.block_len()
    }

    /// Writes the results of a block of queries.
    fn write<D: Float>(&self, block: &QueryBlock, state: &State<D::Wide>, rows: &[D::Wide], outs: &Outs<'_, D>) {
        let sizes = &self.problem.sizes;
        let features = sizes.value_features;
        let width = row_width(features);
        let (mut factors, mut logarithms) = ([D::Wide::ZERO; QUERIES], [D::Wide::ZERO; QUERIES]);
        normalize(state, &mut factors, &mut logarithms);
        for i in 0..block.len {
            let (head, position) = block.query(i);
            let first = ((block.group.batch * sizes.queries + position) * sizes.heads + head) * features;
            // SAFETY: each query is in one block only, and has its own row.
            let row = unsafe { outs.out.slice(first, features) };
            write_row(&rows[i * width..], factors[i], row);
            let row = (block.group.batch * sizes.heads + head) * sizes.queries + position;
            // SAFETY: as above.
            unsafe { outs.logsumexp.slice(row, 1)[0] = logarithms[i] };
        }
    }
}

impl<T: Real> State<T> {
    pub(super) fn new() -> State<T> {
        State { maximum: [T::BOTTOM; QUERIES], sum: [T::ZERO; QUERIES], factor: [T::ONE; QUERIES] }
    }
}

/// The number that is subtracted from the scores: 0 where all scores are negative infinity.
#[inline(always)]
pub(super) fn shift<T: Real>(maximum: T) -> T {
    if maximum == T::BOTTOM { T::ZERO } else { maximum }
}

multiversion! {
    /// Replaces scores by the exponentials of their differences from the maximum, and updates the state.
    pub(super) fn exponentials<T: Real>(scores: &mut [T], columns: usize, state: &mut State<T>) {
        let rows = scores.as_chunks_mut::<QUERIES>().0;
        for first in (0..columns).step_by(COLUMNS) {
            let State { maximum, sum, factor } = &mut *state;
            let [maximum, sum, factor] = [maximum, sum, factor].map(|x| vector(x, first));
            let mut next = *maximum;
            for row in rows.iter_mut() {
                for (next, &score) in next.iter_mut().zip(vector(row, first).iter()) {
                    *next = if score > *next { score } else { *next };
                }
            }
            let shifts = next.map(shift);
            for ((factor, &before), &shift) in factor.iter_mut().zip(maximum.iter()).zip(&shifts) {
                *factor = (before - shift).exp_normal();
            }
            let mut sums = [T::ZERO; COLUMNS];
            for row in rows.iter_mut() {
                for ((score, sum), &shift) in vector(row, first).iter_mut().zip(&mut sums).zip(&shifts) {
                    *score = (*score - shift).exp_normal();
                    *sum = *sum + *score;
                }
            }
            for ((sum, &new), &factor) in sum.iter_mut().zip(&sums).zip(factor.iter()) {
                *sum = sum.fused(factor, new);
            }
            *maximum = next;
        }
    }
}

multiversion! {
    /// Computes the factor for the sums of values, and the logarithms of the sums of exponentials.
    fn normalize<T: Real>(state: &State<T>, factors: &mut PerQuery<T>, logarithms: &mut PerQuery<T>) {
        let State { maximum, sum, .. } = state;
        for (((&maximum, &sum), factor), logarithm) in maximum.iter().zip(sum).zip(factors).zip(logarithms) {
            // The sum is at least 1 where there is a key, and 0 where there is no key.
            *factor = T::ONE / if sum < T::ONE { T::ONE } else { sum };
            *logarithm = sum.ln() + shift(maximum);
        }
    }
}

/// The numbers of a vector of queries.
#[inline(always)]
fn vector<T>(row: &mut PerQuery<T>, first: usize) -> &mut [T; COLUMNS] {
    &mut row.as_chunks_mut().0[first / COLUMNS]
}

multiversion! {
    /// Multiplies each column by a factor.
    fn scale_columns<T: Real>(rows: &mut [T], factors: &PerQuery<T>) {
        if factors.iter().all(|&factor| factor == T::ONE) {
            return;
        }
        for row in rows.as_chunks_mut::<QUERIES>().0 {
            for (x, &factor) in row.iter_mut().zip(factors) {
                *x = *x * factor;
            }
        }
    }
}
