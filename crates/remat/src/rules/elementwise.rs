//! Rules of elementwise operations.

use remat_ir::{Atom, Binary, Builder, Clamp, Compare, IntegerPow, Result, SelectN, Unary};

use super::{Batched, Linear, Operand, Rules, Sample};

impl Rules for Unary {
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

impl Rules for IntegerPow {
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

impl Rules for Binary {
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

impl Rules for Compare {
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

impl Rules for SelectN {
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

impl Rules for Clamp {
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
