//! The origin of a value: the first-order equation that computes it, behind loops, branches, calls and transfers.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use remat_ir::{Atom, Call, Eqn, Jaxpr, Op, Prim, VarMap};

/// An equation with a body that a value passes through between its origin and the place where it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Through {
    /// A jitted function of this name.
    Jit(Arc<str>),
    /// A checkpointed region inside another one.
    Checkpoint,
    /// A loop over a first dimension.
    Scan {
        /// The number of iterations.
        length: usize,
        /// Whether the values of all iterations are kept, stacked, or only the last one.
        stacked: bool,
        /// Whether it is the carry at the start of an iteration: the result of the previous iteration, or the initial value.
        carry: bool,
    },
    /// A loop while a condition holds.
    While,
    /// A branch, by its number.
    Cond(usize),
    /// A function with a custom derivative, which is not differentiated here.
    Custom(Arc<str>),
    /// A program on every device of a mesh.
    ShardMap,
}

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Through::Jit(name) => write!(f, "jit {name}"),
            Through::Checkpoint => f.write_str("checkpoint"),
            Through::Scan { length, stacked, carry } => {
                let kept = if *stacked { "stacked" } else { "last" };
                let what = if *carry { " carry" } else { "" };
                write!(f, "scan of {length} ({kept}{what})")
            }
            Through::While => f.write_str("while"),
            Through::Cond(branch) => write!(f, "branch {branch} of cond"),
            Through::Custom(name) => write!(f, "custom {name}"),
            Through::ShardMap => f.write_str("shard_map"),
        }
    }
}

/// The origin of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'j> {
    /// This input of the program.
    Input(usize),
    /// A scalar constant of the program.
    Literal,
    /// This equation.
    Equation(&'j Eqn),
}

/// Finds origins in one program and its bodies. It remembers where each variable is defined, so that many lookups in a long program take
/// linear time.
#[derive(Default)]
pub(crate) struct Origins {
    definitions: HashMap<*const Jaxpr, VarMap<Definition>>,
}

#[derive(Clone, Copy)]
enum Definition {
    Missing,
    Input(usize),
    /// An equation, and the index of one of its results.
    Result(usize, usize),
}

impl Origins {
    /// The origin of an atom.
    pub(crate) fn find<'j>(&mut self, jaxpr: &'j Jaxpr, atom: Atom) -> Found<'j> {
        let Atom::Var(var) = atom else { return Found::new(Origin::Literal) };
        let definitions = self.definitions.entry(jaxpr).or_insert_with(|| define(jaxpr));
        let (index, out) = match definitions[var] {
            // A well-formed program defines its variables.
            Definition::Missing => return Found::new(Origin::Literal),
            Definition::Input(i) => return Found::new(Origin::Input(i)),
            Definition::Result(eqn, out) => (eqn, out),
        };
        let eqn = &jaxpr.eqns[index];
        let number = eqn.loc.discriminator;
        // For a transfer by a policy, the transferred value is the origin. A transfer of an input is the user's own.
        if let Op::Prim(Prim::DevicePut(_)) = eqn.op
            && let transferred @ Found { origin: Origin::Equation(..), .. } = self.find(jaxpr, eqn.ins[0])
        {
            return transferred;
        }
        // A mark is none either, but has a number of its own.
        if let Op::Prim(Prim::Name(op)) = &eqn.op
            && op.label().is_none()
            && let mut marked @ Found { origin: Origin::Equation(..), .. } = self.find(jaxpr, eqn.ins[0])
        {
            marked.numbers.extend((number != 0).then_some(number));
            return marked;
        }
        let mut found = match &eqn.op {
            Op::Call(Call::Jit(op)) => self.in_body(&op.jaxpr, out, Through::Jit(op.name.clone())),
            Op::Call(Call::Checkpoint(op)) => self.in_body(&op.jaxpr, out, Through::Checkpoint),
            Op::Call(Call::CustomJvp(op)) => self.in_body(&op.call, out, Through::Custom(op.name.clone())),
            Op::Call(Call::CustomVjp(op)) => self.in_body(&op.call, out, Through::Custom(op.name.clone())),
            Op::Call(Call::Scan(op)) => {
                let through = |carry| Through::Scan { length: op.length, stacked: out >= op.num_carry, carry };
                let range = op.num_consts..op.num_consts + op.num_carry;
                self.in_loop(&op.jaxpr, out, range, through)
            }
            Op::Call(Call::While(op)) => {
                let range = op.body_consts..op.body_consts + op.body.outs.len();
                self.in_loop(&op.body, out, range, |_| Through::While).shifted(op.cond_consts)
            }
            Op::Call(Call::Cond(op)) => self.in_branches(&op.branches, out).shifted(1),
            Op::Call(Call::ShardMap(op)) => self.in_shards(&op.jaxpr, out),
            Op::Call(Call::CustomLin(_)) | Op::Prim(_) => Found::new(Origin::Equation(eqn)),
        };
        match found.origin {
            // Passed on: the operand is the same value.
            Origin::Input(i) => self.find(jaxpr, eqn.ins[i]),
            Origin::Literal | Origin::Equation(_) => {
                if found.numbers.is_empty() && number != 0 {
                    found.numbers.push(number);
                }
                found
            }
        }
    }

    fn in_body<'j>(&mut self, body: &'j Jaxpr, out: usize, enclosing: Through) -> Found<'j> {
        let mut found = self.find(body, body.outs[out]);
        found.through.insert(0, enclosing);
        found
    }

    /// The origin of a result of a `shard_map`. A residual of its body has a dimension in front, for the devices.
    fn in_shards<'j>(&mut self, body: &'j Jaxpr, out: usize) -> Found<'j> {
        let mut found = self.in_body(body, out, Through::ShardMap);
        if let Origin::Equation(eqn) = found.origin
            && let (Op::Prim(Prim::ExpandDims(_)), [Through::ShardMap]) = (&eqn.op, &found.through[..])
        {
            let numbers = std::mem::take(&mut found.numbers);
            found = self.find(body, eqn.ins[0]);
            found.through.insert(0, Through::ShardMap);
            found.numbers.extend(numbers);
        }
        found
    }

    /// The origin of a result of a loop body. A carry at the start of an iteration comes from the previous iteration; one that no iteration
    /// changes is its initial value.
    fn in_loop<'j>(
        &mut self,
        body: &'j Jaxpr,
        mut out: usize,
        carries: std::ops::Range<usize>,
        through: impl Fn(bool) -> Through,
    ) -> Found<'j> {
        let mut seen = vec![false; carries.len()];
        let mut is_carry = false;
        loop {
            let mut found = self.find(body, body.outs[out]);
            match found.origin {
                Origin::Input(i) if carries.contains(&i) && !seen[i - carries.start] => {
                    out = i - carries.start;
                    seen[out] = true;
                    is_carry = true;
                }
                _ => {
                    found.through.insert(0, through(is_carry));
                    return found;
                }
            }
        }
    }

    /// The origin in the first branch that computes the value. Another branch may fill the slot with zeros, or with a value of its own,
    /// whose number is listed too.
    fn in_branches<'j>(&mut self, branches: &'j [Arc<Jaxpr>], out: usize) -> Found<'j> {
        let mut filling = None;
        let mut computed: Option<Found<'j>> = None;
        for (i, branch) in branches.iter().enumerate() {
            let found = self.in_body(branch, out, Through::Cond(i));
            let is_filling = match found.origin {
                Origin::Literal => true,
                Origin::Equation(eqn) => {
                    matches!(eqn.op, Op::Prim(Prim::BroadcastInDim(_))) && matches!(eqn.ins[..], [Atom::Lit(_)])
                }
                Origin::Input(_) => false,
            };
            match (&mut computed, is_filling) {
                (Some(first), false) => first.numbers.extend(found.numbers),
                (None, false) => computed = Some(found),
                (_, true) => filling = filling.or(Some(found)),
            }
        }
        computed.or(filling).unwrap_or_else(|| Found::new(Origin::Literal))
    }
}

/// The result of a search for an origin.
pub(crate) struct Found<'j> {
    pub(crate) origin: Origin<'j>,
    /// The equations in between, outermost first.
    pub(crate) through: Vec<Through>,
    /// The numbers of the equations that compute it, if equations are numbered. There are several if branches share a slot.
    pub(crate) numbers: Vec<u32>,
}

impl<'j> Found<'j> {
    fn new(origin: Origin<'j>) -> Found<'j> {
        Found { origin, through: Vec::new(), numbers: Vec::new() }
    }

    /// Corrects the origin for `by` operands that come before the inputs of the body.
    fn shifted(mut self, by: usize) -> Found<'j> {
        if let Origin::Input(i) = &mut self.origin {
            *i += by;
        }
        self
    }
}

fn define(jaxpr: &Jaxpr) -> VarMap<Definition> {
    let mut definitions = jaxpr.var_map(Definition::Missing);
    for (i, &var) in jaxpr.ins.iter().enumerate() {
        definitions[var] = Definition::Input(i);
    }
    for (i, eqn) in jaxpr.eqns.iter().enumerate() {
        for (k, &var) in eqn.outs.iter().enumerate() {
            definitions[var] = Definition::Result(i, k);
        }
    }
    definitions
}
