//! Rules of random bits.

use remat_ir::{Result, Threefry2x32};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, align, not_linear};

impl Rules for Threefry2x32 {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![None, None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (aligned, axis) = align(size, ins)?;
        let outs = w.emit(*self, &aligned)?;
        Ok(outs.into_iter().map(|out| Batched::at(out, axis)).collect())
    }
}
