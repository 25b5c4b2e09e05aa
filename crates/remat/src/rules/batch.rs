//! Positions of batch dimensions.

use remat_ir::{Operation, Result, Shape};

use super::{Batched, Expr, Writer};

/// Operands of an elementwise operation, reshaped to equal ranks, and the position of their batch dimension. Scalars that all examples
/// share stay scalars.
pub(super) fn align<'w>(size: usize, ins: &[Batched<Expr<'w>>]) -> Result<(Vec<Expr<'w>>, usize)> {
    let mut examples = Vec::with_capacity(ins.len());
    for x in ins {
        let mut shape = x.atom.shape()?;
        x.axis.map(|axis| shape.remove(axis));
        examples.push(shape);
    }
    let mut shape = examples.iter().find(|shape| !shape.is_empty()).cloned().unwrap_or_default();
    let rank = shape.len();
    let axis = ins.iter().zip(&examples).find_map(|(x, e)| x.axis.filter(|_| e.len() == rank)).unwrap_or(0);
    shape.insert(axis, size);
    let align = |(x, example): (&Batched<Expr<'w>>, &Shape)| match x.axis {
        None if example.is_empty() => x.atom,
        Some(_) if example.len() != rank => x.atom.broadcast(&shape, &[axis]),
        _ => x.to_axis(size, axis),
    };
    Ok((ins.iter().zip(&examples).map(align).collect(), axis))
}

/// Batches an elementwise operation.
pub(super) fn elementwise<'w>(
    w: Writer<'w>,
    op: &impl Operation,
    size: usize,
    ins: &[Batched<Expr<'w>>],
) -> Result<Vec<Batched<Expr<'w>>>> {
    let (aligned, axis) = align(size, ins)?;
    Ok(vec![Batched::at(w.apply(op.clone(), &aligned), axis)])
}

/// The operation itself, for operands that are not batched.
pub(super) fn unbatched<'w>(
    w: Writer<'w>,
    op: &impl Operation,
    ins: &[Batched<Expr<'w>>],
) -> Result<Vec<Batched<Expr<'w>>>> {
    let ins: Vec<_> = ins.iter().map(|x| x.atom).collect();
    Ok(vec![Batched::shared(w.apply(op.clone(), &ins))])
}

/// The only operand and the position of its batch dimension.
pub(super) fn in_place<'w>(size: usize, ins: &[Batched<Expr<'w>>]) -> (Expr<'w>, usize) {
    match ins[0].axis {
        Some(axis) => (ins[0].atom, axis),
        None => (ins[0].to_front(size), 0),
    }
}

/// The position of axis `axis` of an example when the batch dimension is at `batch`.
pub(super) fn past(batch: usize, axis: usize) -> usize {
    axis + usize::from(axis >= batch)
}

/// The positions of axes of an example when the batch dimension is at `batch`.
pub(super) fn shifted(axes: &[usize], batch: usize) -> Shape {
    axes.iter().map(|&axis| past(batch, axis)).collect()
}
