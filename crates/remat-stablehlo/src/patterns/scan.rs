//! Loops with a known number of iterations, which slice arrays and fill others, as scans.
//!
//! A `while` of StableHLO is taken for a scan only if
//!
//! - its condition is `counter < n` and nothing else, for a counter that begins at a constant and grows by 1;
//! - a *stacked input* is a constant of the loop with `n` slices, of which slice `counter` is read, or slice `n - 1 - counter` in a loop that
//!   runs backwards;
//! - a *stacked output* is a carried array with `n` slices, whose slice of that number is written in each iteration, and which nothing else reads.
//!
//! All other carried values stay carries, and all other slices stay slices, so that a loop which nearly has this form is a scan with more
//! carries, or stays a `while`.

use remat_ir::{
    Atom, Aval, Binary, Builder, Call, Compare, DType, Eqn, Jaxpr, Literal, Op, Prim, Reshape, Result, Scan, SelectN,
    Shape, Var, VarMap,
};

use super::{Expr, Id, Table};
use crate::tidy::{drop_unread, prune, reads};

/// A loop: its condition and its body, each with its constants in front of the carries.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) cond: Jaxpr,
    pub(crate) cond_consts: Vec<Atom>,
    pub(crate) body: Jaxpr,
    pub(crate) body_consts: Vec<Atom>,
    pub(crate) inits: Vec<Atom>,
}

/// Where the last value of each carry is found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Outputs {
    /// A result of the scan.
    Result(usize),
    /// A constant.
    Literal(Literal),
}

/// The most equations of a function that only slices, or writes a slice.
const SMALL: usize = 8;

/// The direction of a loop over slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Forward,
    Backward,
}

/// The scan that computes the same as a loop, with its operands, and where each carry is found in it.
pub(crate) fn as_scan(looped: &Loop) -> Option<(Scan, Vec<Atom>, Vec<Outputs>)> {
    let (counters, length) = counters(looped)?;
    let body = with_slices(&looped.body).ok()?;
    let analysis = Analysis::of(&body, looped, &counters, length)?;
    analysis.build(looped, &counters, length).ok()
}

/// A carry that begins at a constant and grows by 1.
struct Counter {
    /// The number of its carry.
    carry: usize,
    dtype: DType,
    start: i128,
}

impl Counter {
    fn of(looped: &Loop, carry: usize) -> Option<Counter> {
        let start = looped.inits.get(carry)?.literal()?;
        let body = &looped.body;
        let input = *body.ins.get(looped.body_consts.len() + carry)?;
        let next = body.outs.get(carry)?.var()?;
        let step = body.eqns.iter().find(|eqn| eqn.outs[..] == [next])?;
        let is_one = |literal: Literal| literal.as_i128() == Some(1);
        let is_step = match (&step.op, &step.ins[..]) {
            (Op::Prim(Prim::Binary(Binary::Add)), &[Atom::Var(var), Atom::Lit(one)])
            | (Op::Prim(Prim::Binary(Binary::Add)), &[Atom::Lit(one), Atom::Var(var)]) => var == input && is_one(one),
            _ => false,
        };
        let dtype = start.dtype();
        (is_step && dtype.is_integer()).then_some(Counter { carry, dtype, start: start.as_i128()? })
    }

    /// The expressions of the number of the slice.
    fn indices(&self, table: &mut Table, input: Id, length: usize) -> Vec<(Id, Order)> {
        if self.start != 0 {
            return Vec::new();
        }
        let literal = |value: i128| Expr::Literal(Literal::from_i128(self.dtype, value));
        let n = length as i128;
        let [end, last, one, zero] = [n, n - 1, 1, 0].map(|value| table.id(literal(value)));
        let mut apply = |op: Op, ins: Vec<Id>| {
            let (op, ins) = super::normal(op, ins);
            table.id(Expr::Apply(op, ins, 0))
        };
        let rest = apply(Binary::Sub.into(), vec![end, input]);
        let back = [apply(Binary::Sub.into(), vec![rest, one]), apply(Binary::Sub.into(), vec![last, input])];
        let plain = [(input, Order::Forward), (back[0], Order::Backward), (back[1], Order::Backward)];
        // An index below zero counts from the end; none of these is.
        let wrapped = plain.map(|(index, order)| {
            let is_negative = apply(Compare::Lt.into(), vec![index, zero]);
            let from_end = apply(Binary::Add.into(), vec![index, end]);
            (apply(SelectN.into(), vec![is_negative, index, from_end]), order)
        });
        plain.into_iter().chain(wrapped).collect()
    }
}

/// The counters of a loop, and the number of its iterations, which the first of them counts.
fn counters(looped: &Loop) -> Option<(Vec<Counter>, usize)> {
    let cond = &looped.cond;
    let ([eqn], &[Atom::Var(holds)]) = (&cond.eqns[..], &cond.outs[..]) else { return None };
    let (var, end) = match (&eqn.op, &eqn.ins[..]) {
        (Op::Prim(Prim::Compare(Compare::Lt)), &[Atom::Var(var), Atom::Lit(end)]) => (var, end),
        (Op::Prim(Prim::Compare(Compare::Gt)), &[Atom::Lit(end), Atom::Var(var)]) => (var, end),
        _ => return None,
    };
    let carry = cond.ins.iter().position(|&input| input == var)?.checked_sub(looped.cond_consts.len())?;
    let counter = Counter::of(looped, carry)?;
    let length = usize::try_from(end.as_i128()? - counter.start).ok()?;
    if eqn.outs[..] != [holds] {
        return None;
    }
    let others = (0..looped.inits.len()).filter(|&other| other != carry).filter_map(|other| Counter::of(looped, other));
    // The condition says that the first counter reaches the end. Another one may be of a dtype that does not, and wrap.
    let others = others.filter(|other| {
        let end = other.start.checked_add(length as i128);
        end.is_some_and(|end| Literal::from_i128(other.dtype, end).as_i128() == Some(end))
    });
    Some(([counter].into_iter().chain(others).collect(), length))
}

/// The program with functions inlined that only slice an array or write a slice.
fn with_slices(body: &Jaxpr) -> Result<Jaxpr> {
    let is_small = |jaxpr: &Jaxpr| {
        let is_slice = |eqn: &Eqn| matches!(eqn.op, Op::Prim(Prim::DynamicSlice(_) | Prim::DynamicUpdateSlice(_)));
        jaxpr.eqns.len() <= SMALL && jaxpr.eqns.iter().any(is_slice)
    };
    copy(body, |b, eqn, ins| match &eqn.op {
        Op::Call(Call::Jit(call)) if is_small(&call.jaxpr) => b.inline(&call.jaxpr, ins).map(Some),
        _ => Ok(None),
    })
}

/// A copy of a program in which some equations are replaced by what `replace` writes.
fn copy(
    body: &Jaxpr,
    mut replace: impl FnMut(&mut Builder, &Eqn, &[Atom]) -> Result<Option<Vec<Atom>>>,
) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let mut env: VarMap<Option<Atom>> = body.var_map(None);
    for &var in &body.ins {
        env[var] = Some(b.input(body.aval(var).clone()));
    }
    for eqn in &body.eqns {
        let ins = read_all(&env, &eqn.ins);
        let outs = match replace(&mut b, eqn, &ins)? {
            Some(outs) => outs,
            None => push(&mut b, body, eqn, &ins),
        };
        for (&var, out) in eqn.outs.iter().zip(outs) {
            env[var] = Some(out);
        }
    }
    let outs = read_all(&env, &body.outs);
    Ok(b.finish(outs))
}

fn read(env: &VarMap<Option<Atom>>, atom: Atom) -> Atom {
    match atom {
        Atom::Var(var) => env[var].unwrap_or(atom),
        Atom::Lit(_) => atom,
    }
}

fn read_all(env: &VarMap<Option<Atom>>, atoms: &[Atom]) -> Vec<Atom> {
    atoms.iter().map(|&atom| read(env, atom)).collect()
}

fn push(b: &mut Builder, body: &Jaxpr, eqn: &Eqn, ins: &[Atom]) -> Vec<Atom> {
    let avals = eqn.outs.iter().map(|&var| body.aval(var).clone());
    b.push(eqn.op.clone(), ins, avals, eqn.loc).into_iter().map(Atom::Var).collect()
}

/// Which equations of a body read and write slices.
struct Analysis<'b> {
    body: &'b Jaxpr,
    order: Order,
    /// The number of the constant that each equation slices.
    sliced: Vec<Option<usize>>,
    /// The number of the carry whose slice each equation writes.
    written: Vec<Option<usize>>,
}

impl<'b> Analysis<'b> {
    fn of(body: &'b Jaxpr, looped: &Loop, counters: &[Counter], length: usize) -> Option<Analysis<'b>> {
        let consts = looped.body_consts.len();
        let mut table = Table::default();
        let inputs = table.inputs(body.ins.len());
        let env = table.environment(body, &inputs)?;
        let mut indices = Vec::new();
        for counter in counters {
            indices.extend(counter.indices(&mut table, inputs[consts + counter.carry], length));
        }
        let order_of = |table: &mut Table, atom: Atom| {
            let id = table.atom(&env, atom)?;
            indices.iter().find(|&&(index, _)| index == id).map(|&(_, order)| order)
        };
        let place = |atom: Atom| body.ins.iter().position(|&input| Atom::Var(input) == atom);
        let is_one_of = |whole: &Aval, slice: &[usize]| {
            whole.shape.first() == Some(&length) && slice.first() == Some(&1) && whole.shape[1..] == slice[1..]
        };
        let (mut sliced, mut written) = (Vec::new(), Vec::new());
        for eqn in &body.eqns {
            let (mut slice, mut write) = (None, None);
            match (&eqn.op, &eqn.ins[..]) {
                (Op::Prim(Prim::DynamicSlice(op)), &[x, start, ..]) => {
                    let number = place(x).filter(|&number| number < consts);
                    let fits = is_one_of(&body.atom_aval(x), &op.sizes);
                    slice = number.filter(|_| fits).zip(order_of(&mut table, start));
                }
                (Op::Prim(Prim::DynamicUpdateSlice(_)), &[x, update, start, ..]) => {
                    let number = place(x).and_then(|number| number.checked_sub(consts));
                    let fits = is_one_of(&body.atom_aval(x), &body.atom_aval(update).shape);
                    let is_only = |&number: &usize| is_only_written(body, looped, number, eqn);
                    write = number.filter(|_| fits).filter(is_only).zip(order_of(&mut table, start));
                }
                _ => {}
            }
            sliced.push(slice);
            written.push(write);
        }
        let mut orders = sliced.iter().chain(&written).flatten().map(|&(_, order)| order);
        let order = if orders.clone().any(|order| order == Order::Forward) {
            Order::Forward
        } else {
            orders.next().unwrap_or(Order::Forward)
        };
        let of_order = |found: Vec<Option<(usize, Order)>>| {
            found.into_iter().map(|found| found.filter(|&(_, o)| o == order).map(|(number, _)| number)).collect()
        };
        Some(Analysis { body, order, sliced: of_order(sliced), written: of_order(written) })
    }

    fn build(&self, looped: &Loop, counters: &[Counter], length: usize) -> Result<(Scan, Vec<Atom>, Vec<Outputs>)> {
        let (body, consts, carries) = (self.body, looped.body_consts.len(), looped.inits.len());
        let is_stacked = |carry: usize| self.written.contains(&Some(carry));
        let mut b = Builder::new();
        let mut env: VarMap<Option<Atom>> = body.var_map(None);
        for (i, &var) in body.ins.iter().enumerate() {
            if i < consts || !is_stacked(i - consts) {
                env[var] = Some(b.input(body.aval(var).clone()));
            }
        }
        let mut stacked: Vec<usize> = self.sliced.iter().flatten().copied().collect();
        stacked.sort();
        stacked.dedup();
        let element = |shape: &[usize]| shape.iter().skip(1).copied().collect::<Shape>();
        let slices: Vec<Atom> = stacked
            .iter()
            .map(|&number| {
                let whole = body.aval(body.ins[number]);
                b.input(whole.with_shape(element(&whole.shape)))
            })
            .collect();
        // The slice without its first dimension, for each variable that has it.
        let mut inner: VarMap<Option<Atom>> = body.var_map(None);
        let mut ys: Vec<Option<Atom>> = vec![None; carries];
        for (i, eqn) in body.eqns.iter().enumerate() {
            b.loc = eqn.loc;
            if let Some(number) = self.sliced[i] {
                let at = stacked.binary_search(&number).map_err(|_| internal())?;
                inner[eqn.outs[0]] = Some(slices[at]);
                let shape = body.aval(eqn.outs[0]).shape.clone();
                env[eqn.outs[0]] = Some(b.emit1(Reshape { shape }.into(), &[slices[at]])?);
            } else if let Some(carry) = self.written[i] {
                let update = eqn.ins[1];
                let shape = element(&body.atom_aval(update).shape);
                let y = match self.without_first(update, &shape) {
                    Some(atom) => read(&env, atom),
                    None => b.emit1(Reshape { shape }.into(), &[read(&env, update)])?,
                };
                ys[carry] = Some(y);
            } else if let (Op::Prim(Prim::Reshape(_)), Some(slice)) =
                (&eqn.op, eqn.ins.first().and_then(|atom| inner[atom.var()?]))
                && b.shape(slice) == body.aval(eqn.outs[0]).shape
            {
                env[eqn.outs[0]] = Some(slice);
            } else {
                let ins = read_all(&env, &eqn.ins);
                for (&var, out) in eqn.outs.iter().zip(push(&mut b, body, eqn, &ins)) {
                    env[var] = Some(out);
                }
            }
        }
        let mut kept: Vec<usize> = (0..carries).filter(|&carry| !is_stacked(carry)).collect();
        let filled: Vec<usize> = (0..carries).filter(|&carry| is_stacked(carry)).collect();
        let outs = kept.iter().map(|&carry| read(&env, body.outs[carry]));
        let outs: Vec<Atom> = outs.chain(filled.iter().filter_map(|&carry| ys[carry])).collect();
        let mut jaxpr = b.finish(outs);
        let mut outputs = vec![Outputs::Result(0); carries];
        // A counter that nothing but its own step reads is no carry.
        for counter in counters {
            let place = kept.iter().position(|&carry| carry == counter.carry).ok_or_else(internal)?;
            let mut without = jaxpr.clone();
            without.outs.remove(place);
            prune(&mut without);
            if !reads(&without, without.ins[consts + place]) {
                without.ins.remove(consts + place);
                kept.remove(place);
                jaxpr = without;
                let end = counter.start + length as i128;
                outputs[counter.carry] = Outputs::Literal(Literal::from_i128(counter.dtype, end));
            }
        }
        prune(&mut jaxpr);
        let inits: Vec<Atom> = kept.iter().map(|&carry| looped.inits[carry]).collect();
        for (result, &carry) in kept.iter().chain(&filled).enumerate() {
            outputs[carry] = Outputs::Result(result);
        }
        let mut xs: Vec<Atom> = stacked.iter().map(|&number| looped.body_consts[number]).collect();
        drop_unread(&mut jaxpr, consts + inits.len(), &mut xs);
        let mut operands = looped.body_consts.clone();
        drop_unread(&mut jaxpr, 0, &mut operands);
        let (num_consts, num_carry) = (operands.len(), inits.len());
        operands.extend(inits.into_iter().chain(xs));
        let reverse = self.order == Order::Backward;
        let scan = Scan { jaxpr: jaxpr.into(), length, num_consts, num_carry, reverse, unroll: 1 };
        Ok((scan, operands, outputs))
    }

    /// What an update is without its first dimension, if an equation only adds that dimension.
    fn without_first(&self, update: Atom, shape: &Shape) -> Option<Atom> {
        let eqn = self.body.eqns.iter().find(|eqn| eqn.outs.first().copied().map(Atom::Var) == Some(update))?;
        let is_all = |dims: &Shape| dims.iter().copied().eq(1..=shape.len());
        let adds = match &eqn.op {
            Op::Prim(Prim::Reshape(_)) => true,
            Op::Prim(Prim::BroadcastInDim(op)) => is_all(&op.dims),
            _ => false,
        };
        let &[inner] = &eqn.ins[..] else { return None };
        (adds && self.body.atom_aval(inner).shape == *shape).then_some(inner)
    }
}

fn internal() -> remat_ir::Error {
    remat_ir::Error::new(remat_ir::ErrorKind::Internal, "while", "a loop was analysed wrong")
}

/// Whether nothing reads a carry but the equation that writes a slice of it, and nothing reads that but the next iteration.
fn is_only_written(body: &Jaxpr, looped: &Loop, carry: usize, writer: &Eqn) -> bool {
    let input: Var = body.ins[looped.body_consts.len() + carry];
    let Some(&written) = writer.outs.first() else { return false };
    let uses = |var: Var| {
        let in_eqns = body.eqns.iter().flat_map(|eqn| &eqn.ins).filter(|&&atom| atom == Atom::Var(var)).count();
        in_eqns + body.outs.iter().filter(|&&atom| atom == Atom::Var(var)).count()
    };
    let in_condition = looped.cond.ins.get(looped.cond_consts.len() + carry).copied();
    body.outs.get(carry) == Some(&Atom::Var(written))
        && uses(input) == 1
        && uses(written) == 1
        && in_condition.is_some_and(|var| !reads(&looped.cond, var))
}
