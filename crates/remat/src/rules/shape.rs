//! Rules of operations that move elements.

use remat_ir::{
    Atom, BroadcastInDim, Builder, Concatenate, ExpandDims, Iota, Pad, Reshape, Result, Rev, Squeeze, Transpose,
};

use super::{Batched, Linear, Operand, Rules, Sample};

impl Rules for BroadcastInDim {
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

impl Rules for Reshape {
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

impl Rules for Transpose {
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

impl Rules for Squeeze {
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

impl Rules for ExpandDims {
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

impl Rules for Rev {
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

impl Rules for Concatenate {
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

impl Rules for Pad {
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

impl Rules for Iota {
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
