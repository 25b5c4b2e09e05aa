//! Rules of reductions and cumulative operations.

use remat_ir::{ArgReduce, Atom, Builder, Cumulative, Reduce, Result};

use super::{Batched, Linear, Operand, Rules, Sample};

impl Rules for Reduce {
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

impl Rules for ArgReduce {
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

impl Rules for Cumulative {
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
