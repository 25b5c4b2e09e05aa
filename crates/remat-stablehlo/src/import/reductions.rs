//! Reductions over whole dimensions.

use remat_ir::{ArgReduce, Atom, DType, Iota, Jaxpr, Op, Prim, Reduce, ReduceKind, Result, Shape, Var};

use super::Importer;
use super::properties::Node;
use crate::patterns::{self, Fold};

impl<'a, 'm> Importer<'a, 'm> {
    /// A sum, a product, an extremum or a fold of bits, of one array or of several at once; or the position of an extremum; or what any function
    /// gives.
    pub(super) fn reduce(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let operands = self.all_operands(node)?;
        if operands.is_empty() || !operands.len().is_multiple_of(2) {
            return Err(node.malformed("takes as many initial values as arrays"));
        }
        let (arrays, inits) = operands.split_at(operands.len() / 2);
        let (axes, body) = (node.sizes("dimensions")?, self.closed_body(node, 0)?);
        let dtypes: Vec<DType> = arrays.iter().map(|&x| self.aval(x).dtype).collect();
        if let Some(folds) = patterns::folds(&body, &dtypes) {
            let mut results = Vec::new();
            for ((&x, &init), fold) in arrays.iter().zip(inits).zip(folds) {
                results.push(self.fold(node, fold, x, init, &axes)?);
            }
            return self.define(node, &results);
        }
        if let Some(results) = self.arg_reduce(arrays, inits, &axes, &body)? {
            return self.define(node, &results);
        }
        let results = self.reduce_by_function(node, arrays, inits, &axes, &body)?;
        self.define(node, &results)
    }

    fn fold(&mut self, node: Node<'a, 'm>, fold: Fold, x: Atom, init: Atom, axes: &Shape) -> Result<Atom> {
        let kind = match fold {
            Fold::Sum => ReduceKind::Sum,
            Fold::Prod => ReduceKind::Prod,
            Fold::Max => ReduceKind::Max,
            Fold::Min => ReduceKind::Min,
            Fold::And => ReduceKind::And,
            Fold::Or => ReduceKind::Or,
        };
        if self.aval(init).rank() != 0 {
            return Err(node.malformed("an initial value is not a scalar"));
        }
        let result = self.emit(Reduce { kind, axes: axes.clone() }, &[x])?;
        match init {
            Atom::Lit(literal) if fold.is_identity(literal) => Ok(result),
            _ => self.emit(fold.binary(), &[result, init]),
        }
    }

    /// The extremum and its position, where the second array has positions along the dimension.
    fn arg_reduce(&mut self, arrays: &[Atom], inits: &[Atom], axes: &Shape, body: &Jaxpr) -> Result<Option<Vec<Atom>>> {
        let (&[x, positions], &[Atom::Lit(worst), Atom::Lit(first)], &[axis]) = (arrays, inits, &axes[..]) else {
            return Ok(None);
        };
        let (dtype, index_dtype) = (self.aval(x).dtype, self.aval(positions).dtype);
        let Some(kind) = patterns::arg_reduce(body, dtype, index_dtype) else { return Ok(None) };
        let (fold, reduce) = match kind {
            remat_ir::ArgKind::Max => (Fold::Max, ReduceKind::Max),
            remat_ir::ArgKind::Min => (Fold::Min, ReduceKind::Min),
        };
        let is_usual = fold.is_identity(worst)
            && first.bits() == 0
            && index_dtype.is_integer()
            && counts_along(self.frames.top().builder.peek(), positions, axis);
        if !is_usual || self.aval(x).shape.get(axis).is_none_or(|&size| size == 0) {
            return Ok(None);
        }
        let value = self.emit(Reduce { kind: reduce, axes: axes.clone() }, &[x])?;
        let position = self.emit(ArgReduce { kind, axis, index_dtype }, &[x])?;
        Ok(Some(vec![value, position]))
    }
}

/// Whether an array has at each place its index along this axis.
fn counts_along(jaxpr: &Jaxpr, atom: Atom, axis: usize) -> bool {
    let Some(mut var) = atom.var() else { return false };
    let mut axis = axis;
    let defining = |var: Var| jaxpr.eqns.iter().rfind(|eqn| eqn.outs.contains(&var));
    while let Some(eqn) = defining(var) {
        match &eqn.op {
            Op::Prim(Prim::Iota(Iota { axis: counted, .. })) => return *counted == axis,
            Op::Prim(Prim::BroadcastInDim(op)) => {
                let Some(from) = op.dims.iter().position(|&d| d == axis) else { return false };
                let Some(inner) = eqn.ins.first().and_then(|atom| atom.var()) else { return false };
                if jaxpr.aval(inner).shape[from] != op.shape[axis] {
                    return false;
                }
                (var, axis) = (inner, from);
            }
            _ => return false,
        }
    }
    false
}
