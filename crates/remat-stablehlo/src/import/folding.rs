//! Reductions by any function: a loop that applies the function to whole arrays.
//!
//! StableHLO leaves the order of a reduction to the implementation; here it is that of the elements.

use remat_ir::{
    Atom, Aval, BroadcastInDim, Builder, Call, Jaxpr, Literal, Op, Pad, Prim, Reshape, Result, Scan, SelectN, Shape,
    Slice, Transpose, VarMap,
};

use super::Importer;
use super::properties::Node;

/// The most operations of a function, with those of the functions that it calls.
const STEPS: usize = 1000;

/// The most elements of a window, each of which is an equation for each operation of the function.
const ELEMENTS: usize = 256;

impl<'a, 'm> Importer<'a, 'm> {
    /// Reduces arrays of one shape together, by a scan over what is reduced.
    pub(super) fn reduce_by_function(
        &mut self,
        node: Node<'a, 'm>,
        arrays: &[Atom],
        inits: &[Atom],
        axes: &Shape,
        body: &Jaxpr,
    ) -> Result<Vec<Atom>> {
        let whole = self.aval(arrays[0]).shape;
        if arrays.iter().any(|&x| self.aval(x).shape != whole)
            || axes.iter().enumerate().any(|(i, &axis)| axis >= whole.len() || axes[..i].contains(&axis))
        {
            return Err(node.malformed("the arrays are of different shapes, or lack a dimension that is reduced"));
        }
        let kept: Shape = (0..whole.len()).filter(|d| !axes.contains(d)).collect();
        let rest: Shape = kept.iter().map(|&d| whole[d]).collect();
        let length: usize = axes.iter().map(|&d| whole[d]).product();
        let mut carries = Vec::new();
        for &init in inits {
            carries.push(self.filled(init, &rest)?);
        }
        let mut stacked = Vec::new();
        for &x in arrays {
            let permutation = axes.iter().chain(&kept).copied().collect();
            let first = self.emit(Transpose { permutation }, &[x])?;
            stacked.push(self.reshape(first, [length].into_iter().chain(rest.iter().copied()).collect())?);
        }
        let mut b = Builder::new();
        b.loc = self.frames.top().builder.loc;
        let avals = carries.iter().chain(arrays).map(|&atom| self.aval(atom).with_shape(rest.iter().copied()));
        let avals: Vec<Aval> = avals.collect();
        let ins = b.inputs(avals);
        let outs = self.apply(node, &mut b, body, &ins, &rest)?;
        let num_carry = carries.len();
        let scan = Scan { jaxpr: b.finish(outs).into(), length, num_consts: 0, num_carry, reverse: false, unroll: 1 };
        carries.extend(stacked);
        self.emit_all(scan, &carries)
    }

    /// Reduces windows of arrays together: the function is applied once for each element of a window, to all windows at once.
    pub(super) fn windows_by_function(
        &mut self,
        node: Node<'a, 'm>,
        arrays: &[Atom],
        inits: &[Atom],
        window: &remat_ir::Window,
        body: &Jaxpr,
    ) -> Result<Vec<Atom>> {
        let avals = node.result_avals()?;
        let rank = window.dimensions.len();
        let lists = [&window.strides, &window.base_dilation, &window.window_dilation];
        let first = self.aval(arrays[0]).shape;
        if avals.len() != arrays.len()
            || avals.iter().any(|aval| aval.shape != avals[0].shape)
            || arrays.iter().any(|&x| self.aval(x).shape != first)
            || lists.iter().any(|list| list.len() != rank || list.contains(&0))
            || [window.padding.len(), first.len(), avals[0].rank()] != [rank; 3]
        {
            return Err(node.malformed("the windows do not fit the arrays"));
        }
        let out = avals[0].shape.clone();
        let elements = window.dimensions.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        let Some(elements) = elements.filter(|&elements| elements <= ELEMENTS) else {
            let message = format!("windows of more than {ELEMENTS} elements by another function than add, max or min");
            return Err(node.unsupported(message));
        };
        let config = (0..rank).map(|d| (window.padding[d].0, window.padding[d].1, window.base_dilation[d] - 1));
        let config: Vec<_> = config.collect();
        // Padding and the space between dilated elements count as nothing, as in XLA, and not as the initial value.
        let has_space = config.iter().any(|&(low, high, interior)| low > 0 || high > 0 || interior > 0);
        let is_there = match has_space {
            true => {
                let all = self.filled(Literal::from_bool(true).into(), &first)?;
                Some(self.emit(Pad { config: config.clone() }, &[all, Literal::from_bool(false).into()])?)
            }
            false => None,
        };
        let (mut padded, mut accumulated) = (Vec::new(), Vec::new());
        for (&x, &init) in arrays.iter().zip(inits) {
            padded.push(self.emit(Pad { config: config.clone() }, &[x, init])?);
            accumulated.push(self.filled(init, &out)?);
        }
        for element in 0..elements {
            let mut rest = element;
            let mut start = Shape::from_elem(0, rank);
            for d in (0..rank).rev() {
                start[d] = (rest % window.dimensions[d]).saturating_mul(window.window_dilation[d]);
                rest /= window.dimensions[d];
            }
            // What is out of range is an error of the slice.
            let last = |d: usize| (out[d].max(1) - 1).saturating_mul(window.strides[d]);
            let limit = (0..rank).map(|d| start[d].saturating_add(last(d)).saturating_add(usize::from(out[d] > 0)));
            let op = Slice { limit: limit.collect(), start, strides: window.strides.clone() };
            let mut ins = accumulated.clone();
            for &x in &padded {
                ins.push(self.emit(op.clone(), &[x])?);
            }
            let mut b = std::mem::take(&mut self.frames.top().builder);
            let outs = self.apply(node, &mut b, body, &ins, &out);
            self.frames.top().builder = b;
            let is_there = is_there.map(|whole| self.emit(op, &[whole])).transpose()?;
            for (before, after) in accumulated.iter_mut().zip(outs?) {
                *before = match is_there {
                    Some(is_there) => self.emit(SelectN, &[is_there, *before, after])?,
                    None => after,
                };
            }
        }
        Ok(accumulated)
    }

    /// An array of this shape, each of whose elements is a scalar.
    fn filled(&mut self, scalar: Atom, shape: &Shape) -> Result<Atom> {
        if shape.is_empty() {
            return Ok(scalar);
        }
        self.emit(BroadcastInDim { shape: shape.clone(), dims: Shape::new() }, &[scalar])
    }

    /// Applies a function of scalars to each element of arrays of one shape.
    pub(super) fn apply(
        &self,
        node: Node<'a, 'm>,
        b: &mut Builder,
        body: &Jaxpr,
        ins: &[Atom],
        shape: &Shape,
    ) -> Result<Vec<Atom>> {
        let mut steps = 0;
        let outs = elementwise(b, body, ins, &mut steps)?;
        let outs = outs.ok_or_else(|| node.unsupported("a function that is not made of elementwise operations"))?;
        outs.into_iter()
            .map(|out| {
                if b.shape(out) == *shape {
                    return Ok(out);
                }
                b.emit1(BroadcastInDim { shape: shape.clone(), dims: Shape::new() }.into(), &[out])
            })
            .collect()
    }
}

/// The outputs of a function of scalars for arrays, or `None` if an operation is not elementwise.
fn elementwise(b: &mut Builder, body: &Jaxpr, ins: &[Atom], steps: &mut usize) -> Result<Option<Vec<Atom>>> {
    if body.ins.len() != ins.len() {
        return Ok(None);
    }
    let mut env: VarMap<Option<Atom>> = body.var_map(None);
    for (&var, &atom) in body.ins.iter().zip(ins) {
        env[var] = Some(atom);
    }
    let read = |env: &VarMap<Option<Atom>>, atom: &Atom| match *atom {
        Atom::Var(var) => env[var],
        Atom::Lit(_) => Some(*atom),
    };
    for eqn in &body.eqns {
        *steps += 1;
        let ins = eqn.ins.iter().map(|atom| read(&env, atom)).collect::<Option<Vec<Atom>>>();
        let Some(ins) = ins.filter(|_| *steps <= STEPS) else { return Ok(None) };
        let outs = match &eqn.op {
            Op::Call(Call::Jit(call)) => match elementwise(b, &call.jaxpr, &ins, steps)? {
                Some(outs) => outs,
                None => return Ok(None),
            },
            // An identity of scalars.
            Op::Prim(Prim::Reshape(Reshape { shape })) if shape.is_empty() => ins,
            op if is_elementwise(op) => vec![b.emit1(op.clone(), &ins)?],
            _ => return Ok(None),
        };
        for (&var, out) in eqn.outs.iter().zip(outs) {
            env[var] = Some(out);
        }
    }
    Ok(body.outs.iter().map(|atom| read(&env, atom)).collect())
}

fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Prim(
            Prim::Unary(_)
                | Prim::IntegerPow(_)
                | Prim::Binary(_)
                | Prim::Compare(_)
                | Prim::SelectN(_)
                | Prim::Clamp(_)
                | Prim::ConvertElementType(_)
                | Prim::ReducePrecision(_)
        )
    )
}
