//! The cotangents of the scores of a tile, `dS` in the papers. All other cotangents are products with them.

use super::forward::shift;
use super::problem::{Elements, Problem, Rows, take};
use super::products::Products;
use super::tile::{COLUMNS, KEYS, Offsets, PerQuery, QUERIES, QueryBlock, Tile, copy_rows, row_width};
use crate::base::product::Float;
use crate::interface::{Layout, Source};
use crate::number::{Number, Real};
use crate::simd::multiversion;

/// The operands of the cotangents of an attention.
pub(super) struct CotangentOperands {
    pub(super) problem: Problem,
    /// The index of the first operand that is not the attention's.
    rest: usize,
    out: Offsets,
    logsumexp: Offsets,
    out_cotangent: Offsets,
    logsumexp_cotangent: Option<Offsets>,
}

/// The elements of these operands.
#[derive(Clone, Copy)]
pub(super) struct AllElements<'a, D: Float> {
    pub(super) own: Elements<'a, D>,
    out: &'a [D],
    logsumexp: &'a [D::Wide],
    out_cotangent: &'a [D],
    logsumexp_cotangent: &'a [D::Wide],
}

/// The scratch memory of a task.
pub(super) struct Workspace<'a, T> {
    pub(super) products: Products<'a>,
    pub(super) rows: Rows<'a, T>,
    pub(super) weights: &'a mut [T],
    /// The cotangents of the weights, later those of the scores.
    pub(super) d_scores: &'a mut [T],
}

/// The operands and the sums of a block of queries.
pub(super) struct Queries<'a, T> {
    /// Queries, times their factor, and cotangents of the results, as columns.
    query: &'a mut [T],
    cotangent: &'a mut [T],
    /// The same as rows.
    pub(super) query_rows: &'a mut [T],
    pub(super) cotangent_rows: &'a mut [T],
    /// The sums over the keys, as columns.
    pub(super) sums: &'a mut [T],
    /// The number that is subtracted from the scores of each query.
    shift: PerQuery<T>,
    /// The number that is subtracted from the cotangents of each query's weights: their mean by the weights, `D` in the papers.
    mean: PerQuery<T>,
}

impl CotangentOperands {
    /// Operands with these layouts, the first of which are the attention's.
    pub(super) fn new(problem: Problem, layouts: &[Layout], rest: usize, has_logsumexp: bool) -> CotangentOperands {
        let offsets = |i: usize| Offsets::new(&layouts[rest + i]);
        CotangentOperands {
            problem,
            rest,
            out: offsets(0),
            logsumexp: offsets(1),
            out_cotangent: offsets(2),
            logsumexp_cotangent: has_logsumexp.then(|| offsets(3)),
        }
    }

    pub(super) fn elements<'a, D: Float>(&self, ins: &[Source<'a>]) -> AllElements<'a, D> {
        AllElements {
            own: self.problem.elements(ins),
            out: ins[self.rest].slice(),
            logsumexp: ins[self.rest + 1].slice(),
            out_cotangent: ins[self.rest + 2].slice(),
            logsumexp_cotangent: self.logsumexp_cotangent.as_ref().map_or(&[], |_| ins[self.rest + 3].slice()),
        }
    }

    /// Elements of a [`Workspace`].
    pub(super) fn workspace_len(&self) -> usize {
        self.problem.features_len()
            + self.problem.value_features_len()
            + 2 * KEYS * QUERIES
            + self.problem.products_len()
    }

    /// Takes a workspace from the beginning of scratch memory.
    pub(super) fn workspace<'a, T: Real>(&self, scratch: &mut &'a mut [T]) -> Workspace<'a, T> {
        let (features, value_features) = (self.problem.features_len(), self.problem.value_features_len());
        Workspace {
            products: self.problem.products(scratch),
            rows: Rows { key: take(scratch, features), value: take(scratch, value_features) },
            weights: take(scratch, KEYS * QUERIES),
            d_scores: take(scratch, KEYS * QUERIES),
        }
    }

    /// Elements of [`Queries`].
    pub(super) fn queries_len(&self) -> usize {
        3 * self.problem.features_len() + 2 * self.problem.value_features_len()
    }

    /// Loads a block of queries to the beginning of scratch memory.
    pub(super) fn queries<'a, D: Float>(
        &self,
        block: QueryBlock,
        from: &AllElements<'_, D>,
        space: &mut Workspace<'_, D::Wide>,
        scratch: &mut &'a mut [D::Wide],
    ) -> Queries<'a, D::Wide> {
        let (len, value_len) = (self.problem.features_len(), self.problem.value_features_len());
        let mut queries = Queries {
            query: take(scratch, len),
            cotangent: take(scratch, value_len),
            query_rows: take(scratch, len),
            cotangent_rows: take(scratch, value_len),
            sums: take(scratch, len),
            shift: [D::Wide::ZERO; QUERIES],
            mean: [D::Wide::ZERO; QUERIES],
        };
        queries.sums.fill(D::Wide::ZERO);

        let sizes = &self.problem.sizes;
        let one = D::Wide::ONE;

        let features = sizes.value_features;
        let copy = |from: &[D], offsets: &Offsets, to: &mut [D::Wide]| {
            copy_rows(from, &block.rows(offsets)[..block.len], offsets.stride(3), features, one, to);
        };
        copy(from.out_cotangent, &self.out_cotangent, queries.cotangent_rows);
        // The memory of the values is free until the first of them are loaded.
        copy(from.out, &self.out, space.rows.value);
        add_products(features, space.rows.value, queries.cotangent_rows, &mut queries.mean);
        space.products.prepare_columns(queries.cotangent_rows, features, queries.cotangent);

        let (features, stride) = (sizes.features, self.problem.query.stride(3));
        let factor = self.problem.query_factor();
        let starts = &block.rows(&self.problem.query)[..block.len];
        let (rows, columns) = (&mut *queries.query_rows, &mut *queries.query);
        space.products.load_columns(from.own.query, (starts, stride), features, factor, rows, columns);

        for (to, &offset) in queries.shift.iter_mut().zip(&block.scores(&self.logsumexp)[..block.len]) {
            *to = shift(from.logsumexp[offset as usize]);
        }
        if let Some(offsets) = &self.logsumexp_cotangent {
            for (to, &offset) in queries.mean.iter_mut().zip(&block.scores(offsets)[..block.len]) {
                *to = *to - from.logsumexp_cotangent[offset as usize];
            }
        }
        queries
    }

    /// Computes the weights of a tile, whose keys and values are loaded, and the cotangents of its scores.
    pub(super) fn compute<D: Float>(
        &self,
        tile: &Tile,
        from: &AllElements<'_, D>,
        queries: &Queries<'_, D::Wide>,
        space: &mut Workspace<'_, D::Wide>,
    ) {
        let problem = &self.problem;
        problem.scores(tile, &from.own, &mut space.products, space.rows.key, queries.query, space.weights);
        let features = problem.sizes.value_features;
        space.products.dot_products(tile, space.rows.value, features, queries.cotangent, space.d_scores);
        let len = tile.keys * QUERIES;
        weights_and_cotangents(tile.queries.columns(), &mut space.weights[..len], &mut space.d_scores[..len], queries);
    }
}

multiversion! {
    /// Adds to each sum the products of the elements of a row.
    fn add_products<T: Real>(features: usize, x: &[T], y: &[T], sums: &mut PerQuery<T>) {
        let width = row_width(features);
        if width == 0 {
            return;
        }
        for ((x, y), sum) in x.chunks_exact(width).zip(y.chunks_exact(width)).zip(sums) {
            let mut lanes = [T::ZERO; COLUMNS];
            for (x, y) in x.as_chunks::<COLUMNS>().0.iter().zip(y.as_chunks::<COLUMNS>().0) {
                for ((lane, &x), &y) in lanes.iter_mut().zip(x).zip(y) {
                    *lane = x.fused(y, *lane);
                }
            }
            *sum = lanes.iter().fold(*sum, |sum, &lane| sum + lane);
        }
    }
}

multiversion! {
    /// Replaces scores by weights, and cotangents of weights (`dP`) by those of scores: `dS = P * (dP - D)`, where `D` is the mean of `dP`
    /// by the weights. Where the weight is zero, so is `dS`, even if `dP` is NaN.
    fn weights_and_cotangents<T: Real>(columns: usize, scores: &mut [T], d_scores: &mut [T], queries: &Queries<'_, T>) {
        let rows = scores.as_chunks_mut::<QUERIES>().0.iter_mut().zip(d_scores.as_chunks_mut::<QUERIES>().0);
        for (scores, d_scores) in rows {
            let columns = scores[..columns].iter_mut().zip(&mut d_scores[..columns]);
            for ((score, d_score), (&less, &mean)) in columns.zip(queries.shift.iter().zip(&queries.mean)) {
                let weight = (*score - less).exp_normal();
                let product = weight * (*d_score - mean);
                *score = weight;
                *d_score = if weight == T::ZERO { T::ZERO } else { product };
            }
        }
    }
}
