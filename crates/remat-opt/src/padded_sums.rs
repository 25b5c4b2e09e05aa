//! Padded sums: terms that are zero but for one part are added only to that part.
//!
//! ```text
//! padded_sums : a + pad t 0.0            → dynamic_update_slice a (slice a + t)
//!               a + scatter_add 0.0 i t  → scatter_add a i t
//! ```
//!
//! The cotangent of an array of which T parts are read (the weights of T layers, T time steps, T columns) is a sum of T arrays of its size,
//! each zero but for one part. Here the sum begins with zeros, and each part is added in place, so that time and memory do not grow with T
//! times the whole array.
//!
//! Bits stay the same. The only number that adding zero changes is -0.0, which becomes 0.0. So the sum begins with 0.0 (or with an operand
//! to which 0.0 is added) where some term is padding, and with -0.0, which changes nothing, in the block that all terms cover. Scatters are
//! the exception: updates of one element are added to the sum one by one, and not to each other first, which rounds differently.

use std::borrow::Cow;
use std::collections::HashMap;

use remat_ir::{
    Atom, Aval, Binary, BroadcastInDim, DType, Eqn, Jaxpr, Literal, Op, Pad, Prim, Result, Scatter, ScatterKind, Shape,
    Slice, Var, VarMap,
};

use crate::dce::drop_unused;
use crate::rewrite::{push, push_update};
use crate::uses::{OUTPUT, readers};

/// Adds to parts of sums in place.
pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let sums = Sums::of(&jaxpr);
    if sums.additions.is_empty() {
        return Ok(jaxpr);
    }
    let mut jaxpr = jaxpr.into_owned();
    for (at, eqn) in std::mem::take(&mut jaxpr.eqns).into_iter().enumerate() {
        match sums.additions.get(&at) {
            Some(addition) => add(&mut jaxpr, &eqn, addition, &sums.common[addition.sum]),
            None => jaxpr.eqns.push(eqn),
        }
    }
    // The padded terms, which nothing reads any more.
    drop_unused(Cow::Owned(jaxpr))
}

/// The positions `start..end` along each dimension.
#[derive(Clone, PartialEq, Debug)]
struct Block {
    start: Shape,
    end: Shape,
}

impl Block {
    fn whole(shape: &Shape) -> Block {
        Block { start: Shape::from_elem(0, shape.len()), end: shape.clone() }
    }

    /// Whether there are positions of both.
    fn meets(&self, other: &Block) -> bool {
        let along = |d: usize| self.start[d].max(other.start[d]) < self.end[d].min(other.end[d]);
        (0..self.start.len()).all(along)
    }

    /// The positions of both, if there are any.
    fn common(&self, other: &Block) -> Option<Block> {
        let start = self.start.iter().zip(&other.start).map(|(a, b)| *a.max(b)).collect();
        let end = self.end.iter().zip(&other.end).map(|(a, b)| *a.min(b)).collect();
        self.meets(other).then_some(Block { start, end })
    }

    fn shape(&self) -> Shape {
        self.start.iter().zip(&self.end).map(|(start, end)| end - start).collect()
    }
}

/// A term that is zero but for a part of it.
#[derive(Clone)]
enum Term {
    /// Elements at a block.
    Padded(Block, Atom),
    /// Updates at indices.
    Scattered(Scatter, [Atom; 2]),
}

/// Terms that one equation adds to a sum.
struct Addition {
    sum: usize,
    /// What they are added to, if there is something yet.
    to: Option<Atom>,
    /// Whether this begins the sum.
    is_first: bool,
    /// Each with whether no term before it reaches its positions in a sum that begins with zeros.
    terms: Vec<(Term, bool)>,
}

/// The sums of a program. Each grows from equation to equation, and nothing else reads it on the way.
struct Sums {
    /// The equations that add terms to a sum.
    additions: HashMap<usize, Addition>,
    /// The positions that all terms of each sum cover, if there are any.
    common: Vec<Option<Block>>,
}

/// How sums are found, in program order.
struct Finder<'a> {
    jaxpr: &'a Jaxpr,
    readers: VarMap<Vec<usize>>,
    /// The terms of which a value consists that only a sum reads.
    terms: VarMap<Vec<Term>>,
    /// The sum that a value is, as far as it has grown.
    sum: VarMap<Option<usize>>,
    sums: Sums,
    growing: Vec<Growing>,
}

/// What is known of a sum while it grows.
struct Growing {
    terms: usize,
    /// The blocks outside of which it is still zero, if it began with zeros.
    filled: Option<Vec<Block>>,
}

impl Sums {
    fn of(jaxpr: &Jaxpr) -> Sums {
        let sums = Sums { additions: HashMap::new(), common: Vec::new() };
        let is_term = |eqn: &Eqn| matches!(eqn.op, Op::Prim(Prim::Pad(_) | Prim::Scatter(_)));
        if !jaxpr.eqns.iter().any(is_term) {
            return sums;
        }
        let (readers, terms, sum) = (readers(jaxpr), jaxpr.var_map(Vec::new()), jaxpr.var_map(None));
        let mut finder = Finder { jaxpr, readers, terms, sum, sums, growing: Vec::new() };
        let mut is_zero = jaxpr.var_map(false);
        for (at, eqn) in jaxpr.eqns.iter().enumerate() {
            match &eqn.op {
                Op::Prim(Prim::BroadcastInDim(_)) => is_zero[eqn.outs[0]] = is_zero_literal(eqn.ins[0]),
                Op::Prim(Prim::Pad(op)) => finder.padded(eqn, op),
                Op::Prim(Prim::Scatter(op)) if eqn.ins[0].var().is_some_and(|var| is_zero[var]) => {
                    finder.scattered(eqn, op);
                }
                Op::Prim(Prim::Binary(Binary::Add | Binary::AddAny)) => finder.addition(at, eqn),
                _ => {}
            }
        }
        finder.finish()
    }
}

impl Finder<'_> {
    /// The only reader of a variable, if that is a sum of two arrays of its shape, and the side of the sum that it is.
    fn reading_sum(&self, var: Var) -> Option<usize> {
        let &[reader] = &self.readers[var][..] else { return None };
        let eqn = self.jaxpr.eqns.get(reader).filter(|_| reader != OUTPUT)?;
        let is_sum = matches!(eqn.op, Op::Prim(Prim::Binary(Binary::Add | Binary::AddAny)));
        let is_plain = eqn.ins.iter().all(|a| a.var().is_some_and(|v| self.jaxpr.avals[v] == self.jaxpr.avals[var]));
        (is_sum && is_plain).then(|| usize::from(eqn.ins[1] == var.into()))
    }

    fn padded(&mut self, eqn: &Eqn, op: &Pad) {
        let (inner, out) = (eqn.ins[0], eqn.outs[0]);
        let (part, whole) = (&self.jaxpr.atom_aval(inner).shape, &self.jaxpr.avals[out].shape);
        let is_plain = op
            .config
            .iter()
            .zip(part)
            .all(|(&(low, high, interior), &n)| low >= 0 && high >= 0 && (interior == 0 || n < 2));
        if is_plain && part != whole && is_zero_literal(eqn.ins[1]) && self.reading_sum(out).is_some() {
            let start: Shape = op.config.iter().map(|&(low, ..)| low as usize).collect();
            let end = start.iter().zip(part).map(|(start, n)| start + n).collect();
            self.terms[out].push(Term::Padded(Block { start, end }, inner));
        }
    }

    fn scattered(&mut self, eqn: &Eqn, op: &Scatter) {
        if op.kind == ScatterKind::Add && self.reading_sum(eqn.outs[0]).is_some() {
            self.terms[eqn.outs[0]].push(Term::Scattered(op.clone(), [eqn.ins[1], eqn.ins[2]]));
        }
    }

    /// Visits a sum of two values, of which terms, other values, or both are added.
    fn addition(&mut self, at: usize, eqn: &Eqn) {
        let (&[Atom::Var(x), Atom::Var(y)], out) = (&eqn.ins[..], eqn.outs[0]) else { return };
        let [of_x, of_y] = [x, y].map(|var| std::mem::take(&mut self.terms[var]));
        let to = match (of_x.is_empty(), of_y.is_empty()) {
            (true, true) => {
                self.sum[out] = [x, y].into_iter().find_map(|var| self.grown(var));
                if let Some(sum) = self.sum[out] {
                    self.growing[sum].filled = None;
                }
                return;
            }
            (true, false) => Some(x),
            (false, true) => Some(y),
            (false, false) => None,
        };
        let terms = [of_x, of_y].concat();
        // The order in which terms without common elements are added to the rest of the sum does not matter.
        if to.is_none() && self.reading_sum(out) == Some(1) && are_disjoint(&terms) {
            self.terms[out] = terms;
            return;
        }
        let grown = to.and_then(|to| self.grown(to));
        let sum = grown.unwrap_or_else(|| {
            self.growing.push(Growing { terms: 0, filled: to.is_none().then(Vec::new) });
            self.sums.common.push(Some(Block::whole(&self.jaxpr.avals[out].shape)));
            self.growing.len() - 1
        });
        self.sum[out] = Some(sum);
        let terms = terms.into_iter().map(|term| {
            let is_zero = self.note(sum, &term);
            (term, is_zero)
        });
        let addition = Addition { sum, to: to.map(Atom::Var), is_first: grown.is_none(), terms: terms.collect() };
        self.sums.additions.insert(at, addition);
    }

    /// The sum that a variable is, if only the equation that is visited reads it.
    fn grown(&self, var: Var) -> Option<usize> {
        self.sum[var].filter(|_| self.readers[var].len() == 1)
    }

    /// Notes a term of a sum. Returns whether the sum is zero where it is added.
    fn note(&mut self, sum: usize, term: &Term) -> bool {
        let (common, Growing { terms, filled }) = (&mut self.sums.common[sum], &mut self.growing[sum]);
        *terms += 1;
        let Term::Padded(block, _) = term else {
            // It may reach any element, and adds 0.0 to the others.
            (*common, *filled) = (None, None);
            return false;
        };
        *common = common.as_ref().and_then(|common| common.common(block));
        let Some(filled) = filled else { return false };
        let is_zero = !filled.iter().any(|other| other.meets(block));
        filled.push(block.clone());
        is_zero
    }

    /// Sums of one padded term and other values stay as they are: adding it in place would take a copy of the part that it does not cover.
    fn finish(self) -> Sums {
        let Finder { mut sums, growing, .. } = self;
        let stays = |sum: usize| growing[sum].terms == 1 && sums.common[sum].is_some();
        sums.additions.retain(|_, addition| !stays(addition.sum));
        sums
    }
}

/// Whether these terms have no elements in common.
fn are_disjoint(terms: &[Term]) -> bool {
    let disjoint = |a: &Term, b: &Term| match (a, b) {
        (Term::Padded(a, _), Term::Padded(b, _)) => !a.meets(b),
        _ => false,
    };
    terms.iter().enumerate().all(|(i, a)| terms[..i].iter().all(|b| disjoint(a, b)))
}

/// Adds the equations that add terms to a sum, in place of one equation. `common` are the positions that all terms of the sum cover.
fn add(jaxpr: &mut Jaxpr, eqn: &Eqn, addition: &Addition, common: &Option<Block>) {
    let out = eqn.outs[0];
    let aval = jaxpr.avals[out].clone();
    let mut sum = match (addition.to, addition.is_first) {
        (Some(to), false) => to,
        (Some(to), true) if aval.dtype.is_float() => {
            let zeros = match common {
                None => zero(aval.dtype, false),
                Some(_) => beginning(jaxpr, eqn, &aval, common),
            };
            push(jaxpr, eqn, eqn.op.clone(), &[to, zeros], &aval)
        }
        (Some(to), true) => to,
        (None, _) => beginning(jaxpr, eqn, &aval, common),
    };
    for (term, is_zero) in &addition.terms {
        sum = match term {
            Term::Padded(block, part) => {
                let to = if *is_zero && common.is_none() {
                    zero(aval.dtype, false)
                } else {
                    slice(jaxpr, eqn, block, sum, &aval)
                };
                let part_aval = aval.with_shape(block.shape());
                let part = push(jaxpr, eqn, eqn.op.clone(), &[to, *part], &part_aval);
                push_update(jaxpr, eqn, sum, part, &block.start)
            }
            Term::Scattered(op, [indices, updates]) => {
                push(jaxpr, eqn, op.clone().into(), &[sum, *indices, *updates], &aval)
            }
        };
    }
    if let Some(last) = jaxpr.eqns.last_mut() {
        last.outs = eqn.outs.clone();
    }
}

/// The numbers with which a sum begins: 0.0, and -0.0 at the positions that all terms cover.
fn beginning(jaxpr: &mut Jaxpr, eqn: &Eqn, aval: &Aval, common: &Option<Block>) -> Atom {
    let mut full = |value: Atom, aval: &Aval| {
        push(jaxpr, eqn, BroadcastInDim { shape: aval.shape.clone(), dims: Shape::new() }.into(), &[value], aval)
    };
    let Some(common) = common else { return full(zero(aval.dtype, false), aval) };
    let part = full(zero(aval.dtype, true), &aval.with_shape(common.shape()));
    let behind = common.end.iter().zip(&aval.shape).map(|(end, n)| (n - end) as i64);
    let config = common.start.iter().zip(behind).map(|(&start, behind)| (start as i64, behind, 0)).collect();
    push(jaxpr, eqn, Pad { config }.into(), &[part, zero(aval.dtype, false)], aval)
}

fn slice(jaxpr: &mut Jaxpr, eqn: &Eqn, block: &Block, operand: Atom, aval: &Aval) -> Atom {
    let strides = Shape::from_elem(1, block.start.len());
    let op = Slice { start: block.start.clone(), limit: block.end.clone(), strides };
    push(jaxpr, eqn, op.into(), &[operand], &aval.with_shape(block.shape()))
}

fn zero(dtype: DType, is_negative: bool) -> Atom {
    Literal::from_f64(dtype, if is_negative { -0.0 } else { 0.0 }).into()
}

/// Whether this is a literal that is 0.0 or the zero of another dtype.
fn is_zero_literal(atom: Atom) -> bool {
    atom.literal().is_some_and(|literal| literal.bits() == 0)
}
