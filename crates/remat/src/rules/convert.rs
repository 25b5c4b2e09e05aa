//! Rules of conversions.

use remat_ir::{BitcastConvertType, ConvertElementType, ReducePrecision, Result};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear};

impl Rules for ConvertElementType {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].filter(|_| self.dtype.is_float()).map(|t| t.convert(self.dtype))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        match &ins[0] {
            Operand::Linear(aval) if aval.dtype.is_float() && self.dtype.is_float() => {
                Ok(vec![cotangents[0].map(|ct| ct.convert(aval.dtype))])
            }
            _ => Err(not_linear(self)),
        }
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(*self))])
    }
}

impl Rules for BitcastConvertType {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    /// The last dimension may come or go, so the batch is in front.
    fn vmap<'w>(&self, _w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![Batched::front(ins[0].to_front(size).apply(*self))])
    }
}

impl Rules for ReducePrecision {
    /// The tangent is rounded as its primal is.
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![tangents[0].map(|t| t.apply(*self))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![cotangents[0].map(|ct| ct.apply(*self))])
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(*self))])
    }
}
