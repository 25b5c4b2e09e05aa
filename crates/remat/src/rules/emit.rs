//! Shortcuts for writing equations.

use remat_ir::{
    Atom, Aval, Binary, BroadcastInDim, Builder, ConvertElementType, DType, DevicePut, Literal, MemorySpace, Operation,
    Reduce, ReduceKind, Reshape, Result, Transpose,
};

use super::Batched;

/// Shortcuts on [`Builder`], shared by transformations and the expressions of rules.
pub(crate) trait Emit {
    /// One equation with one result.
    fn apply(&mut self, op: impl Operation, ins: &[Atom]) -> Result<Atom>;

    /// The sum of two cotangents of one value; `None` is zero.
    fn add_any(&mut self, x: Option<Atom>, y: Option<Atom>) -> Result<Option<Atom>>;

    /// Dimension `i` of `x` becomes dimension `dims[i]` of `shape`; returns `x` itself if nothing changes.
    fn broadcast(&mut self, x: Atom, shape: &[usize], dims: &[usize]) -> Result<Atom>;

    /// Zeros of this aval: a literal for a scalar in device memory.
    fn zeros(&mut self, aval: &Aval) -> Result<Atom>;

    /// `x` itself, or zeros of this aval for `None`.
    fn instantiate(&mut self, x: Option<Atom>, aval: &Aval) -> Result<Atom>;

    /// `x` in another dtype, or `x` itself if it has that dtype.
    fn convert(&mut self, x: Atom, dtype: DType) -> Result<Atom>;

    /// The sum over some axes, or `x` itself if there are none.
    fn reduce_sum(&mut self, x: Atom, axes: &[usize]) -> Result<Atom>;

    /// The same elements with another shape, or `x` itself if it has that shape.
    fn reshape(&mut self, x: Atom, shape: &[usize]) -> Result<Atom>;

    /// Dimension `i` of the result is dimension `permutation[i]`; returns `x` itself for the identity.
    fn transpose(&mut self, x: Atom, permutation: &[usize]) -> Result<Atom>;

    /// `x` with one dimension moved.
    fn move_axis(&mut self, x: Atom, from: usize, to: usize) -> Result<Atom>;

    /// The value of a batched atom with its batch dimension in front, repeated if all examples share it.
    fn batch_front(&mut self, x: Batched, size: usize) -> Result<Atom>;

    /// The value of a batched atom with its batch dimension at `axis`, repeated if all examples share it.
    fn batch_at(&mut self, x: Batched, size: usize, axis: usize) -> Result<Atom>;
}

impl Emit for Builder {
    fn apply(&mut self, op: impl Operation, ins: &[Atom]) -> Result<Atom> {
        self.emit1(op.into(), ins)
    }

    fn add_any(&mut self, x: Option<Atom>, y: Option<Atom>) -> Result<Option<Atom>> {
        Ok(match (x, y) {
            (Some(x), Some(y)) => Some(self.apply(Binary::AddAny, &[x, y])?),
            (x, y) => x.or(y),
        })
    }

    fn broadcast(&mut self, x: Atom, shape: &[usize], dims: &[usize]) -> Result<Atom> {
        if self.shape(x)[..] == *shape && dims.iter().copied().eq(0..shape.len()) {
            return Ok(x);
        }
        self.apply(BroadcastInDim { shape: shape.into(), dims: dims.into() }, &[x])
    }

    fn zeros(&mut self, aval: &Aval) -> Result<Atom> {
        let x = self.broadcast(Literal::from_f64(aval.dtype, 0.0).into(), &aval.shape, &[])?;
        match aval.memory {
            MemorySpace::Device => Ok(x),
            MemorySpace::Host => self.apply(DevicePut { memory: aval.memory }, &[x]),
        }
    }

    fn instantiate(&mut self, x: Option<Atom>, aval: &Aval) -> Result<Atom> {
        match x {
            Some(x) => Ok(x),
            None => self.zeros(aval),
        }
    }

    fn convert(&mut self, x: Atom, dtype: DType) -> Result<Atom> {
        if self.dtype(x) == dtype { Ok(x) } else { self.apply(ConvertElementType { dtype }, &[x]) }
    }

    fn reduce_sum(&mut self, x: Atom, axes: &[usize]) -> Result<Atom> {
        if axes.is_empty() { Ok(x) } else { self.apply(Reduce { kind: ReduceKind::Sum, axes: axes.into() }, &[x]) }
    }

    fn reshape(&mut self, x: Atom, shape: &[usize]) -> Result<Atom> {
        if self.shape(x)[..] == *shape { Ok(x) } else { self.apply(Reshape { shape: shape.into() }, &[x]) }
    }

    fn transpose(&mut self, x: Atom, permutation: &[usize]) -> Result<Atom> {
        if permutation.iter().copied().eq(0..permutation.len()) {
            return Ok(x);
        }
        self.apply(Transpose { permutation: permutation.into() }, &[x])
    }

    fn move_axis(&mut self, x: Atom, from: usize, to: usize) -> Result<Atom> {
        let mut permutation: Vec<usize> = (0..self.shape(x).len()).collect();
        let axis = permutation.remove(from);
        permutation.insert(to, axis);
        self.transpose(x, &permutation)
    }

    fn batch_front(&mut self, x: Batched, size: usize) -> Result<Atom> {
        self.batch_at(x, size, 0)
    }

    fn batch_at(&mut self, x: Batched, size: usize, axis: usize) -> Result<Atom> {
        match x.axis {
            Some(from) => self.move_axis(x.atom, from, axis),
            None => {
                let mut shape = self.shape(x.atom);
                shape.insert(axis, size);
                let dims: Vec<usize> = (0..shape.len()).filter(|&d| d != axis).collect();
                self.broadcast(x.atom, &shape, &dims)
            }
        }
    }
}
