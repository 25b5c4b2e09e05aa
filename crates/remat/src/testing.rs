//! Helpers for the project's own generic tests; not part of the API.

use remat_ir::{Atom, Aval, Builder, Jaxpr, Op, Result};

use crate::Tensor;
use crate::rules::Batched;
use crate::transform::{Batch, vmap_equation};

/// Batches one operation over `size` examples, with the batch dimension of each batched operand at the position in `axes`. Also returns the
/// batch dimensions of the results. `transform::vmap` takes batch dimensions in front only; inside a program they can be anywhere.
///
/// # Errors
/// If the operation does not take such operands.
pub fn batch(op: &Op, avals: &[Aval], size: usize, axes: &[Option<usize>]) -> Result<(Jaxpr, Vec<Option<usize>>)> {
    let mut b = Builder::new();
    let mut ins = Vec::new();
    for (aval, &axis) in avals.iter().zip(axes) {
        let mut shape = aval.shape.clone();
        if let Some(axis) = axis {
            shape.insert(axis, size);
        }
        ins.push(Batched { atom: b.input(aval.with_shape(shape)), axis });
    }
    let outs = vmap_equation(&mut b, op, Batch { size, name: None }, &ins)?;
    let atoms: Vec<Atom> = outs.iter().map(|x| x.atom).collect();
    Ok((b.finish(atoms), outs.iter().map(|x| x.axis).collect()))
}

/// Applies a program to tensors: it is added to the open trace, or run.
///
/// # Errors
/// The error of a failed tensor; if the number of arguments or an aval does not match the program.
#[track_caller]
pub fn call(jaxpr: &Jaxpr, args: &[Tensor]) -> Result<Vec<Tensor>> {
    crate::trace::run("run", jaxpr, args, crate::trace::current_loc())
}
