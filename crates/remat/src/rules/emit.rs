//! Shortcuts with which rules write equations.

use remat_ir::{
    Atom, Aval, Binary, BroadcastInDim, Builder, Compare, ConvertElementType, DType, DevicePut, ExpandDims, IntegerPow,
    Literal, MemorySpace, Operation, Reduce, ReduceKind, Reshape, Result, SelectN, Transpose, Unary,
};

/// Shortcuts on [`Builder`], one per operation that rules use often.
pub(crate) trait Emit {
    /// One equation with one result.
    fn apply(&mut self, op: impl Operation, ins: &[Atom]) -> Result<Atom>;
    /// The aval of an atom.
    fn aval_of(&self, atom: Atom) -> Aval;

    /// A scalar constant of the dtype of `like`.
    fn literal(&self, like: Atom, value: f64) -> Atom {
        Literal::from_f64(self.aval_of(like).dtype, value).into()
    }

    /// A unary operation.
    fn unary(&mut self, op: Unary, x: Atom) -> Result<Atom> {
        self.apply(op, &[x])
    }

    /// A binary operation.
    fn binary(&mut self, op: Binary, x: Atom, y: Atom) -> Result<Atom> {
        self.apply(op, &[x, y])
    }

    /// `-x`
    fn neg(&mut self, x: Atom) -> Result<Atom> {
        self.unary(Unary::Neg, x)
    }

    /// `x + y`
    fn add(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        self.binary(Binary::Add, x, y)
    }

    /// `x - y`
    fn sub(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        self.binary(Binary::Sub, x, y)
    }

    /// `x * y`
    fn mul(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        self.binary(Binary::Mul, x, y)
    }

    /// `x / y`
    fn div(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        self.binary(Binary::Div, x, y)
    }

    /// The sum of two cotangents of one value; `None` is zero.
    fn add_any(&mut self, x: Option<Atom>, y: Option<Atom>) -> Result<Option<Atom>> {
        Ok(match (x, y) {
            (Some(x), Some(y)) => Some(self.binary(Binary::AddAny, x, y)?),
            (x, y) => x.or(y),
        })
    }

    /// `x * value`
    fn scale(&mut self, x: Atom, value: f64) -> Result<Atom> {
        let value = self.literal(x, value);
        self.mul(x, value)
    }

    /// `x^y` for a small integer.
    fn integer_pow(&mut self, x: Atom, y: i32) -> Result<Atom> {
        self.apply(IntegerPow { y }, &[x])
    }

    /// A comparison.
    fn compare(&mut self, op: Compare, x: Atom, y: Atom) -> Result<Atom> {
        self.apply(op, &[x, y])
    }

    /// `if_true` where `condition` holds, else `if_false`.
    fn select(&mut self, condition: Atom, if_true: Atom, if_false: Atom) -> Result<Atom> {
        self.apply(SelectN, &[condition, if_false, if_true])
    }

    /// `x` in another dtype; `x` itself where it has it.
    fn convert(&mut self, x: Atom, dtype: DType) -> Result<Atom> {
        if self.aval_of(x).dtype == dtype { Ok(x) } else { self.apply(ConvertElementType { dtype }, &[x]) }
    }

    /// Dimension `i` of `x` becomes dimension `dims[i]` of `shape`; `x` itself where nothing changes.
    fn broadcast(&mut self, x: Atom, shape: &[usize], dims: &[usize]) -> Result<Atom> {
        if self.aval_of(x).shape[..] == *shape && dims.iter().copied().eq(0..shape.len()) {
            return Ok(x);
        }
        self.apply(BroadcastInDim { shape: shape.into(), dims: dims.into() }, &[x])
    }

    /// A scalar repeated to a shape.
    fn fill(&mut self, scalar: Atom, shape: &[usize]) -> Result<Atom> {
        self.broadcast(scalar, shape, &[])
    }

    /// Zeros of this aval: a literal for a scalar.
    fn zeros(&mut self, aval: &Aval) -> Result<Atom> {
        self.full(aval, 0.0)
    }

    /// A constant of this aval: a literal for a scalar in device memory.
    fn full(&mut self, aval: &Aval, value: f64) -> Result<Atom> {
        let x = self.fill(Literal::from_f64(aval.dtype, value).into(), &aval.shape)?;
        match aval.memory {
            MemorySpace::Device => Ok(x),
            MemorySpace::Host => self.apply(DevicePut { memory: aval.memory }, &[x]),
        }
    }

    /// `x` itself, or zeros of this aval for `None`.
    fn instantiate(&mut self, x: Option<Atom>, aval: &Aval) -> Result<Atom> {
        match x {
            Some(x) => Ok(x),
            None => self.zeros(aval),
        }
    }

    /// The sum over some dimensions; `x` itself where there are none.
    fn reduce_sum(&mut self, x: Atom, axes: &[usize]) -> Result<Atom> {
        if axes.is_empty() { Ok(x) } else { self.apply(Reduce { kind: ReduceKind::Sum, axes: axes.into() }, &[x]) }
    }

    /// The same elements with another shape; `x` itself where it has it.
    fn reshape(&mut self, x: Atom, shape: &[usize]) -> Result<Atom> {
        if self.aval_of(x).shape[..] == *shape { Ok(x) } else { self.apply(Reshape { shape: shape.into() }, &[x]) }
    }

    /// Dimension `i` of the result is dimension `permutation[i]`; `x` itself for the identity.
    fn transpose(&mut self, x: Atom, permutation: &[usize]) -> Result<Atom> {
        if permutation.iter().copied().eq(0..permutation.len()) {
            return Ok(x);
        }
        self.apply(Transpose { permutation: permutation.into() }, &[x])
    }

    /// `x` with one dimension moved.
    fn move_axis(&mut self, x: Atom, from: usize, to: usize) -> Result<Atom> {
        let mut permutation: Vec<usize> = (0..self.aval_of(x).rank()).collect();
        let axis = permutation.remove(from);
        permutation.insert(to, axis);
        self.transpose(x, &permutation)
    }

    /// Dimensions of size 1 at these positions of the result.
    fn expand_dims(&mut self, x: Atom, axes: &[usize]) -> Result<Atom> {
        if axes.is_empty() { Ok(x) } else { self.apply(ExpandDims { axes: axes.into() }, &[x]) }
    }

    /// Sums `x` down to a scalar if `shape` is one and `x` is not: the transpose of a scalar operand standing for every
    /// element.
    fn unbroadcast_scalar(&mut self, x: Atom, shape: &[usize]) -> Result<Atom> {
        if !shape.is_empty() {
            return Ok(x);
        }
        let axes: Vec<usize> = (0..self.aval_of(x).rank()).collect();
        self.reduce_sum(x, &axes)
    }

    /// A scalar repeated to a shape; `x` itself where it has the shape. For the tangent of a scalar operand that stands
    /// for every element.
    fn spread_scalar(&mut self, x: Atom, shape: &[usize]) -> Result<Atom> {
        if self.aval_of(x).shape[..] == *shape { Ok(x) } else { self.fill(x, shape) }
    }

    /// Operands of an elementwise operation, brought to equal shapes with the batch dimension at the position that is
    /// returned. Scalars that all examples share stay scalars.
    fn align(&mut self, size: usize, ins: &[super::Batched]) -> Result<(Vec<Atom>, usize)> {
        let ranks: Vec<usize> =
            ins.iter().map(|x| self.aval_of(x.atom).rank() - usize::from(x.axis.is_some())).collect();
        let rank = ranks.iter().copied().max().unwrap_or(0);
        let axis = ins.iter().zip(&ranks).find_map(|(x, &r)| x.axis.filter(|_| r == rank)).unwrap_or(0);
        let mut shape = ins.iter().zip(&ranks).find(|&(_, &r)| r == rank).map_or_else(Default::default, |(x, _)| {
            let mut shape = self.aval_of(x.atom).shape;
            x.axis.map(|axis| shape.remove(axis));
            shape
        });
        shape.insert(axis, size);
        let mut aligned = Vec::with_capacity(ins.len());
        for (x, &r) in ins.iter().zip(&ranks) {
            aligned.push(match x.axis {
                None if r == 0 => x.atom,
                None => {
                    let dims: Vec<usize> = (0..=rank).filter(|&d| d != axis).collect();
                    self.broadcast(x.atom, &shape, &dims)?
                }
                Some(from) if r == rank => self.move_axis(x.atom, from, axis)?,
                Some(_) => self.broadcast(x.atom, &shape, &[axis])?,
            });
        }
        Ok((aligned, axis))
    }

    /// The value of a batched atom with its batch dimension in front, repeated where all examples share it.
    fn batch_front(&mut self, x: super::Batched, size: usize) -> Result<Atom> {
        self.batch_at(x, size, 0)
    }

    /// The value of a batched atom with its batch dimension at `axis`, repeated where all examples share it.
    fn batch_at(&mut self, x: super::Batched, size: usize, axis: usize) -> Result<Atom> {
        match x.axis {
            Some(from) => self.move_axis(x.atom, from, axis),
            None => {
                let mut shape = self.aval_of(x.atom).shape;
                shape.insert(axis, size);
                let dims: Vec<usize> = (0..shape.len()).filter(|&d| d != axis).collect();
                self.broadcast(x.atom, &shape, &dims)
            }
        }
    }
}

impl Emit for Builder {
    fn apply(&mut self, op: impl Operation, ins: &[Atom]) -> Result<Atom> {
        self.emit1(op.into(), ins)
    }

    fn aval_of(&self, atom: Atom) -> Aval {
        self.aval(atom)
    }
}
