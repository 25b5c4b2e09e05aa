//! Collectives: operations between the shards along a named axis. A `shard_map`, or a `vmap` with a name, binds the axis. Outside of both a
//! collective has no meaning, and no engine runs it.

use std::sync::Arc;

use super::kinds::kinds;
use super::op::op;
use super::rules::check_axis;
use super::{Operation, ReduceKind, expect_operands, shape_error};
use crate::{Aval, DType, Error, ErrorKind, Result, unknown_axis};

kinds! {
    /// The reduction of an [`AllReduce`].
    AllReduceKind {
        Sum "psum" Numeric;
        /// NaN wins.
        Max "pmax" Any;
        /// NaN wins.
        Min "pmin" Any;
    }
}

impl AllReduceKind {
    /// The corresponding reduction of stacked shards.
    pub const fn reduce(self) -> ReduceKind {
        match self {
            AllReduceKind::Sum => ReduceKind::Sum,
            AllReduceKind::Max => ReduceKind::Max,
            AllReduceKind::Min => ReduceKind::Min,
        }
    }
}

/// Every shard gets the reduction of the operands of all shards along these axes. f16 and bf16 are added in f32 and rounded once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct AllReduce {
    pub kind: AllReduceKind,
    /// At least one axis, each once.
    pub axes: Arc<[Arc<str>]>,
}

/// Every shard gets the operands of all shards, joined along a dimension in the order of the axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct AllGather {
    pub axis_name: Arc<str>,
    pub axis_size: usize,
    pub dimension: usize,
}

/// Each shard gets its part of the sum of the operands of all shards: the sum is cut along a dimension in the order of the axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ReduceScatter {
    pub axis_name: Arc<str>,
    pub axis_size: usize,
    pub dimension: usize,
}

/// Each shard cuts its operand along `split` and sends part `i` to shard `i`, which joins what it gets along `concat` in the order
/// of the axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct AllToAll {
    pub axis_name: Arc<str>,
    pub axis_size: usize,
    pub split: usize,
    pub concat: usize,
}

/// Shard `to` gets the operand of shard `from` for each pair `(from, to)`, and zeros where there is no pair.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Ppermute {
    pub axis_name: Arc<str>,
    pub axis_size: usize,
    /// Each shard is the source of at most one pair, and the destination of at most one.
    pub pairs: Arc<[(usize, usize)]>,
}

/// The position of the shard along the axis, an i32.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct AxisIndex {
    pub axis_name: Arc<str>,
    pub axis_size: usize,
}

/// The names of the axes along which an operation communicates, with their sizes if the operation has them.
///
/// ```
/// use remat_ir::{AxisIndex, Prim, axes_of};
/// let op: Prim = AxisIndex { axis_name: "data".into(), axis_size: 4 }.into();
/// assert_eq!(axes_of(&op), [("data".into(), Some(4))]);
/// ```
pub fn axes_of(op: &super::Prim) -> Vec<(Arc<str>, Option<usize>)> {
    use super::Prim;
    let one = |name: &Arc<str>, size: usize| vec![(name.clone(), Some(size))];
    match op {
        Prim::AllReduce(op) => op.axes.iter().map(|name| (name.clone(), None)).collect(),
        Prim::AllGather(op) => one(&op.axis_name, op.axis_size),
        Prim::ReduceScatter(op) => one(&op.axis_name, op.axis_size),
        Prim::AllToAll(op) => one(&op.axis_name, op.axis_size),
        Prim::Ppermute(op) => one(&op.axis_name, op.axis_size),
        Prim::AxisIndex(op) => one(&op.axis_name, op.axis_size),
        _ => Vec::new(),
    }
}

/// Whether an operation communicates along this axis, itself or in one of its jaxprs. An inner `shard_map` rebinds the names of its mesh.
pub fn uses_axis(op: &super::Op, name: &str) -> bool {
    use super::{Call, Op};
    match op {
        Op::Prim(op) => axes_of(op).iter().any(|(axis, _)| **axis == *name),
        Op::Call(Call::ShardMap(op)) if op.mesh.size(name).is_some() => false,
        Op::Call(op) => op.bodies().iter().any(|body| body.eqns.iter().any(|eqn| uses_axis(&eqn.op, name))),
    }
}

/// The error of a collective whose axis is not bound.
pub fn unbound_axis(op: &super::Prim) -> Error {
    let name = axes_of(op).into_iter().next().map_or_else(|| "".into(), |(name, _)| name);
    unknown_axis(op.name(), &name, std::iter::empty())
}

impl Operation for AllReduce {
    op! { kind AllReduceKind class Collective { axes } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        self.kind.accepts().check(self.name(), &ins[0])?;
        let wrong = |message: String| Err(Error::new(ErrorKind::Axis, self.name(), message));
        if self.axes.is_empty() {
            return wrong("there is no axis".to_string());
        }
        if let Some(i) = (0..self.axes.len()).find(|&i| self.axes[..i].contains(&self.axes[i])) {
            return wrong(format!("the axis `{}` is given twice", self.axes[i]));
        }
        Ok(ins.to_vec())
    }
}

impl Operation for AllGather {
    op! { "all_gather" class Collective { axis_name, axis_size, dimension } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        expect_size(self.name(), &self.axis_name, self.axis_size)?;
        check_axis(self.name(), &ins[0], self.dimension)?;
        joined(self.name(), &ins[0], self.dimension, self.axis_size).map(|out| vec![out])
    }
}

impl Operation for ReduceScatter {
    op! { "reduce_scatter" class Collective { axis_name, axis_size, dimension } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        expect_size(self.name(), &self.axis_name, self.axis_size)?;
        AllReduceKind::Sum.accepts().check(self.name(), &ins[0])?;
        check_axis(self.name(), &ins[0], self.dimension)?;
        parted(self.name(), &ins[0], self.dimension, &self.axis_name, self.axis_size).map(|out| vec![out])
    }
}

impl Operation for AllToAll {
    op! { "all_to_all" class Collective { axis_name, axis_size, split, concat } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        expect_size(self.name(), &self.axis_name, self.axis_size)?;
        check_axis(self.name(), &ins[0], self.split)?;
        check_axis(self.name(), &ins[0], self.concat)?;
        let part = parted(self.name(), &ins[0], self.split, &self.axis_name, self.axis_size)?;
        joined(self.name(), &part, self.concat, self.axis_size).map(|out| vec![out])
    }
}

impl Operation for Ppermute {
    op! { "ppermute" class Collective { axis_name, axis_size, pairs: perm } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        expect_size(self.name(), &self.axis_name, self.axis_size)?;
        let wrong = |message: String| Err(Error::new(ErrorKind::Axis, self.name(), message));
        for (i, &(from, to)) in self.pairs.iter().enumerate() {
            if from >= self.axis_size || to >= self.axis_size {
                let (name, size) = (&self.axis_name, self.axis_size);
                return wrong(format!("the pair ({from}, {to}) is out of range: the axis `{name}` has size {size}"));
            }
            if self.pairs[..i].iter().any(|pair| pair.0 == from) {
                return wrong(format!("shard {from} is sent twice"));
            }
            if self.pairs[..i].iter().any(|pair| pair.1 == to) {
                return wrong(format!("shard {to} gets two operands"));
            }
        }
        Ok(ins.to_vec())
    }
}

impl Operation for AxisIndex {
    op! { "axis_index" class View { axis_name, axis_size } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 0)?;
        expect_size(self.name(), &self.axis_name, self.axis_size)?;
        Ok(vec![Aval::scalar(DType::I32)])
    }
}

fn expect_size(operation: &str, name: &str, size: usize) -> Result<()> {
    match size {
        0 => Err(Error::new(ErrorKind::Axis, operation, format!("the axis `{name}` has size 0"))),
        _ => Ok(()),
    }
}

/// The aval of `shards` of these joined along a dimension.
fn joined(operation: &str, x: &Aval, dimension: usize, shards: usize) -> Result<Aval> {
    let mut shape = x.shape.clone();
    let Some(size) = shape[dimension].checked_mul(shards) else {
        return shape_error(operation, format!("{shards} of {x} have more elements than can be counted"));
    };
    shape[dimension] = size;
    Ok(x.with_shape(shape))
}

/// The aval of one of `shards` equal parts along a dimension.
fn parted(operation: &str, x: &Aval, dimension: usize, name: &str, shards: usize) -> Result<Aval> {
    let mut shape = x.shape.clone();
    if !shape[dimension].is_multiple_of(shards) {
        let message = format!(
            "dimension {dimension} of {x} cannot be cut into {shards} parts, one for each shard along `{name}`"
        );
        return shape_error(operation, message);
    }
    shape[dimension] /= shards;
    Ok(x.with_shape(shape))
}
