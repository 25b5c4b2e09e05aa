//! Rules of markers.

use remat_ir::{Atom, Builder, DType, DevicePut, MemorySpace, Name, OptimizationBarrier, Result, StopGradient};

use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear, sample};

impl Rules for Name {
    /// Only the primal bears the name: a policy that saves it saves one value.
    fn jvp(&self, _b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        Ok(vec![tangents[0]])
    }

    fn transpose(&self, _b: &mut Builder, cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Ok(vec![cotangents[0]])
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        Ok(vec![Batched { atom: b.apply(self.clone(), &[ins[0].atom])?, axis: ins[0].axis }])
    }

    fn samples() -> Vec<Sample> {
        identity_samples(&Name { name: "attention".into() }, true)
    }
}

impl Rules for StopGradient {
    fn jvp(&self, _b: &mut Builder, _ins: &[Atom], _outs: &[Atom], _tangents: &[Option<Atom>]) -> Result<Linear> {
        Ok(vec![None])
    }

    fn transpose(&self, _b: &mut Builder, _cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        Err(not_linear(self))
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        Ok(vec![Batched { atom: b.apply(*self, &[ins[0].atom])?, axis: ins[0].axis }])
    }

    fn samples() -> Vec<Sample> {
        identity_samples(&StopGradient, false).into_iter().map(Sample::not_smooth).collect()
    }
}

impl Rules for OptimizationBarrier {
    /// The tangents have a barrier of their own, so that a linear program can be split from the primal one.
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        barrier(b, tangents)
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let wanted: Linear =
            cotangents.iter().zip(ins).map(|(&ct, operand)| ct.filter(|_| operand.is_linear())).collect();
        barrier(b, &wanted)
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let atoms: Vec<Atom> = ins.iter().map(|x| x.atom).collect();
        let outs = b.emit((*self).into(), &atoms)?;
        Ok(outs.into_iter().zip(ins).map(|(atom, x)| Batched { atom, axis: x.axis }).collect())
    }

    fn samples() -> Vec<Sample> {
        let mut samples = identity_samples(&OptimizationBarrier, true);
        let operands = vec![
            sample::any(DType::F64, &[2, 3]),
            sample::any(DType::F64, &[]),
            sample::any(DType::F64, &[0]),
            sample::any(DType::F64, &[4]),
        ];
        let several = Sample::new("several operands", OptimizationBarrier, operands);
        samples.push(several.linear_in(&[0, 1, 2, 3]));
        let mixed = vec![sample::any(DType::F32, &[2]), sample::any(DType::I32, &[2]), sample::any(DType::Bool, &[])];
        samples.push(Sample::new("several dtypes", OptimizationBarrier, mixed).not_smooth());
        samples
    }
}

impl Rules for DevicePut {
    fn jvp(&self, b: &mut Builder, _ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        Ok(vec![tangents[0].map(|t| b.apply(*self, &[t])).transpose()?])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        match (&ins[0], cotangents[0]) {
            (Operand::Linear(aval), Some(ct)) => Ok(vec![Some(b.apply(DevicePut { memory: aval.memory }, &[ct])?)]),
            _ => Ok(vec![None]),
        }
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        Ok(vec![Batched { atom: b.apply(*self, &[ins[0].atom])?, axis: ins[0].axis }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = identity_samples(&DevicePut { memory: MemorySpace::Host }, true);
        let mut back = identity_samples(&DevicePut { memory: MemorySpace::Device }, true);
        for sample in &mut back {
            sample.label += " from the host";
            sample.inputs = sample.inputs.iter().map(|x| x.in_memory(MemorySpace::Host)).collect();
        }
        samples.append(&mut back);
        samples
    }
}

/// A barrier of those that are not zero.
fn barrier(b: &mut Builder, atoms: &[Option<Atom>]) -> Result<Linear> {
    let some: Vec<Atom> = atoms.iter().flatten().copied().collect();
    if some.is_empty() {
        return Ok(vec![None; atoms.len()]);
    }
    let mut outs = b.emit(OptimizationBarrier.into(), &some)?.into_iter();
    Ok(atoms.iter().map(|atom| atom.and_then(|_| outs.next())).collect())
}

/// Samples of an identity of one operand.
fn identity_samples(op: &(impl Clone + Into<remat_ir::Op>), linear: bool) -> Vec<Sample> {
    let mut samples = Vec::new();
    for dtype in DType::ALL {
        let sample = Sample::new("dtypes", op.clone(), vec![sample::any(dtype, &[2, 3])]);
        samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
    }
    samples.push(Sample::new("scalar", op.clone(), vec![sample::any(DType::F64, &[])]));
    samples.push(Sample::new("empty", op.clone(), vec![sample::any(DType::F64, &[2, 0])]));
    if linear {
        let is_float = |sample: &Sample| sample.inputs[0].dtype().is_float();
        samples = samples.into_iter().map(|s| if is_float(&s) { s.linear_in(&[0]) } else { s }).collect();
    }
    samples
}
