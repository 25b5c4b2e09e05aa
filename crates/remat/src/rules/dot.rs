//! Rules of the general matrix product.

use remat_ir::{Atom, Builder, DotGeneral, Result};

use super::{Batched, Linear, Operand, Rules, Sample};

impl Rules for DotGeneral {
    fn jvp(&self, _b: &mut Builder, _ins: &[Atom], _outs: &[Atom], _tangents: &[Option<Atom>]) -> Result<Linear> {
        todo!()
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        todo!()
    }

    fn vmap(&self, _b: &mut Builder, _size: usize, _ins: &[Batched]) -> Result<Vec<Batched>> {
        todo!()
    }

    fn samples() -> Vec<Sample> {
        todo!()
    }
}
