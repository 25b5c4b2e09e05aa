//! Rules of markers.

use std::sync::Arc;

use remat_ir::{
    DebugPrint, DevicePut, Name, OptimizationBarrier, Result, Shape, Sharding, ShardingConstraint, StopGradient,
};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear};

impl Rules for Name {
    /// Only the primal has the name: a policy that saves it saves one value.
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0]])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![cotangents[0]])
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(self.clone()))])
    }
}

impl Rules for StopGradient {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(*self))])
    }
}

impl Rules for OptimizationBarrier {
    /// The tangents have a barrier of their own, so that a linear program can be split from the primal one.
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        barrier(tangents)
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let wanted = cotangents.iter().zip(ins).map(|(&ct, operand)| ct.filter(|_| operand.is_linear()));
        barrier(&wanted.collect::<Vec<_>>())
    }

    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let operands: Vec<_> = ins.iter().map(|x| x.atom).collect();
        let outs = w.emit(*self, &operands)?;
        Ok(outs.into_iter().zip(ins).map(|(atom, x)| Batched { atom, axis: x.axis }).collect())
    }
}

impl Rules for DevicePut {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(*self))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let memory = ins[0].linear(self)?.memory;
        Ok(vec![cotangents[0].map(|ct| ct.apply(DevicePut { memory }))])
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(*self))])
    }
}

impl Rules for DebugPrint {
    /// Only the primals are printed.
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(Vec::new())
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    /// One line for each example, those of the outer batch apart.
    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let mut op =
            DebugPrint { batch: [size].into_iter().chain(self.batch.iter().copied()).collect(), ..self.clone() };
        op.axes.resize(ins.len(), Shape::new());
        let mut operands = Vec::with_capacity(ins.len());
        for (x, axes) in ins.iter().zip(&mut op.axes) {
            let inner = axes.iter().map(|axis| axis + 1);
            *axes = x.axis.map(|_| 0).into_iter().chain(inner).collect();
            operands.push(x.axis.map_or(x.atom, |axis| x.atom.move_axis(axis, 0)));
        }
        w.emit(op, &operands).map(|_| Vec::new())
    }
}

impl Rules for ShardingConstraint {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(self.clone()))])
    }

    /// The cotangent is cut in the same way as the value.
    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        ins[0].linear(self)?;
        Ok(vec![cotangents[0].map(|ct| ct.apply(self.clone()))])
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Sharding { mesh, spec } = &*self.sharding;
        let spec = ins[0].axis.map_or_else(|| spec.clone(), |axis| spec.with_dim(axis));
        let op = ShardingConstraint { sharding: Arc::new(Sharding { mesh: mesh.clone(), spec }) };
        Ok(vec![ins[0].map(|x| x.apply(op))])
    }
}

/// A barrier of the values that are not zero.
fn barrier<'w>(values: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
    let some: Vec<_> = values.iter().flatten().copied().collect();
    let Some(first) = some.first() else { return Ok(vec![None; values.len()]) };
    let mut outs = first.writer().emit(OptimizationBarrier, &some)?.into_iter();
    Ok(values.iter().map(|value| value.and_then(|_| outs.next())).collect())
}
