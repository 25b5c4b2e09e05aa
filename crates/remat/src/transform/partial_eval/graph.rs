//! The graph of what a region computes again, from the staged part of its split under `Nothing`.
//!
//! Bodies are walked as if they were inlined. In a loop, an equation costs as much as all its iterations, and a value takes the bytes of its
//! stack, or those of one iteration if it is the same in each, since it is then computed before the loop. A known carry is what the loop
//! starts with or the result of the iteration before, which the staged loop computes again. The result of a branch needs the results of all
//! branches and the index.

use std::sync::Arc;

use remat_ir::{Atom, Aval, Call, Candidate, Cond, Decision, Eqn, Jaxpr, Name, Op, Policy, Prim, Scan, VarMap};
use remat_opt::cost::{Machine, cost_again};
use remat_plan::saved::Region;
use remat_plan::{EquationId, ValueId};

use super::budget::Chosen;
use super::log::Reason;
use super::reach::{unknown_of_branches, unknown_of_scan};
use super::{decide, labels};

/// A region as a graph.
pub(super) struct Graph {
    region: Region,
    /// For each equation of the graph that of the program.
    equations: Vec<Equation>,
}

/// An equation of the program.
struct Equation {
    /// 0 if there is none: its results are not kept.
    number: u32,
    num_results: usize,
    /// The number of the first `name` of a result in the same body. A kept value is kept under its name.
    name: Option<u32>,
    /// The body that it is in, by number.
    body: usize,
    /// Whether it is for the budget to decide about.
    is_open: bool,
}

/// The values that may be kept.
struct Filter<'a> {
    /// What this decides stays so.
    must: &'a Policy,
    /// Only what this saves, if it is there.
    only: Option<&'a Policy>,
}

impl Filter<'_> {
    /// Whether the budget decides about the results of an operation that later get these names, and whether they may be kept now.
    fn of(&self, op: &Op, ins: &[Aval], outs: &[Aval], labels: &[Arc<str>]) -> (bool, bool) {
        let named = |policy: &Policy, label: &Arc<str>| {
            let op = Name::new(label.clone()).into();
            policy.decide(&Candidate { op: &op, ins: outs, outs, label: None })
        };
        let is_open = matches!(decide(self.must, op, ins, outs, labels.iter()).1, Reason::Undecided)
            && labels.iter().all(|label| named(self.must, label).is_none());
        let is_wanted = self.only.is_none_or(|policy| {
            decide(policy, op, ins, outs, labels.iter()).0 == Decision::Save
                || labels.iter().any(|label| named(policy, label) == Some(Decision::Save))
        });
        (is_open, is_open && is_wanted)
    }
}

impl Graph {
    /// The graph of a staged part that computes again whatever is not kept yet. Its first inputs are residuals, the others are unknown. What
    /// `must` decides cannot be kept, nor, if `only` is there, what it does not save.
    pub(super) fn new(staged: &Jaxpr, num_residuals: usize, must: &Policy, only: Option<&Policy>) -> Graph {
        let graph = Graph { region: Region::default(), equations: Vec::new() };
        let mut walk = Walk { graph, num_bodies: 0, filter: Filter { must, only } };
        let inputs = (0..staged.ins.len()).map(|i| if i < num_residuals { Source::free() } else { Source::Unknown });
        let outs = walk.program(staged, &inputs.collect::<Vec<_>>(), &Repeats::default());
        outs.iter().for_each(|&out| walk.need(out));
        walk.graph
    }

    /// Adds the values to keep within a budget to a choice, with reasons.
    pub(super) fn choose(&self, budget: usize, chosen: &mut Chosen) {
        let saved = self.region.save(budget as u64);
        let is_open = |equation: &Equation| equation.number != 0 && equation.is_open;
        for (index, equation) in self.equations.iter().enumerate().filter(|(_, equation)| is_open(equation)) {
            let id = EquationId::from(index);
            let (picoseconds, bytes) = (saved.gain[id], saved.bytes_of[id]);
            let (decision, reason) = match (saved.kept[id], saved.repeated[id]) {
                (true, _) => (Decision::Save, Reason::Saves { picoseconds, bytes }),
                (false, true) if picoseconds == 0 => (Decision::Recompute, Reason::Free),
                (false, true) => {
                    let left = budget as u64 - saved.bytes;
                    (Decision::Recompute, Reason::NoRoom { picoseconds, bytes, left })
                }
                (false, false) => continue,
            };
            match equation.name {
                None => chosen.decide(equation.number, decision, reason),
                Some(name) if decision == Decision::Save => {
                    if equation.num_results > 1 {
                        chosen.decide(equation.number, decision, reason.clone());
                    }
                    chosen.decide(name, decision, reason);
                }
                Some(name) => {
                    chosen.decide(equation.number, decision, reason);
                    chosen.decide(name, decision, Reason::Free);
                }
            }
        }
    }
}

/// Where a value of the staged part comes from, and the loops around it, as bits, in which it differs between iterations.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// It depends on an unknown input.
    Unknown,
    /// An input of the region, or a part of one.
    Free { varies: u64 },
    /// A value that is computed again.
    Computed { value: ValueId, varies: u64 },
}

impl Source {
    fn free() -> Source {
        Source::Free { varies: 0 }
    }

    fn is_unknown(&self) -> bool {
        matches!(self, Source::Unknown)
    }

    fn value(&self) -> Option<ValueId> {
        match self {
            Source::Computed { value, .. } => Some(*value),
            Source::Unknown | Source::Free { .. } => None,
        }
    }

    fn varies(&self) -> u64 {
        match *self {
            Source::Unknown => 0,
            Source::Free { varies } | Source::Computed { varies, .. } => varies,
        }
    }

    fn with_varies(self, varies: u64) -> Source {
        match self {
            Source::Unknown => Source::Unknown,
            Source::Free { .. } => Source::Free { varies },
            Source::Computed { value, .. } => Source::Computed { value, varies },
        }
    }
}

/// How often a body runs.
#[derive(Clone, Default)]
struct Repeats {
    /// The lengths of the loops around it.
    lengths: Vec<u64>,
    /// The devices of the meshes around it, as a product.
    devices: Option<u64>,
}

impl Repeats {
    /// The bit of a loop. Loops that are nested deeper than there are bits share the last one.
    fn bit(depth: usize) -> u64 {
        1 << depth.min(63)
    }

    fn runs(&self) -> u64 {
        self.lengths.iter().fold(self.devices.unwrap_or(1), |product, &n| product.saturating_mul(n))
    }

    /// How many of a value there are at the end of all loops.
    fn copies(&self, varies: u64) -> u64 {
        let lengths = self.lengths.iter().enumerate().filter(|&(depth, _)| varies & Repeats::bit(depth) != 0);
        lengths.fold(self.devices.unwrap_or(1), |product, (_, &n)| product.saturating_mul(n))
    }

    fn in_loop(&self, length: usize) -> Repeats {
        let mut inside = self.clone();
        inside.lengths.push(length as u64);
        inside
    }

    fn on_devices(&self, devices: usize) -> Repeats {
        Repeats { devices: Some(self.devices.unwrap_or(1).saturating_mul(devices as u64)), ..self.clone() }
    }
}

struct Walk<'a> {
    graph: Graph,
    filter: Filter<'a>,
    /// The number of bodies so far.
    num_bodies: usize,
}

impl Walk<'_> {
    fn need(&mut self, source: Source) {
        if let Some(value) = source.value() {
            self.graph.region.need(value);
        }
    }

    /// Adds the equations of a program. Returns the sources of its outputs.
    fn program(&mut self, jaxpr: &Jaxpr, ins: &[Source], repeats: &Repeats) -> Vec<Source> {
        let body = self.num_bodies;
        self.num_bodies += 1;
        let mut env = jaxpr.var_map(Source::free());
        let labels = labels(jaxpr);
        for (&var, &source) in jaxpr.ins.iter().zip(ins) {
            env[var] = source;
        }
        for eqn in &jaxpr.eqns {
            let ins: Vec<Source> = eqn.ins.iter().map(|&atom| source(&env, atom)).collect();
            let outs = match &eqn.op {
                Op::Call(Call::Jit(op)) => self.program(&op.jaxpr, &ins, repeats),
                Op::Call(Call::Checkpoint(op)) => self.program(&op.jaxpr, &ins, repeats),
                Op::Call(Call::ShardMap(op)) => {
                    let devices = op.mesh.axes().iter().map(|&(_, size)| size).product();
                    self.program(&op.jaxpr, &ins, &repeats.on_devices(devices))
                }
                Op::Call(Call::Scan(op)) => self.scan(op, &ins, repeats),
                Op::Call(Call::Cond(op)) if !ins[0].is_unknown() => self.cond(op, &ins, repeats),
                Op::Call(
                    Call::Cond(_) | Call::While(_) | Call::CustomJvp(_) | Call::CustomVjp(_) | Call::CustomLin(_),
                )
                | Op::Prim(_) => self.equation(jaxpr, (body, &labels), eqn, &ins, repeats),
            };
            for (&var, source) in eqn.outs.iter().zip(outs) {
                env[var] = source;
            }
        }
        jaxpr.outs.iter().map(|&atom| source(&env, atom)).collect()
    }

    /// An equation that is one operation. If it is linear, it needs its known operands.
    fn equation(
        &mut self,
        jaxpr: &Jaxpr,
        (body, labels): (usize, &VarMap<Vec<Arc<str>>>),
        eqn: &Eqn,
        ins: &[Source],
        repeats: &Repeats,
    ) -> Vec<Source> {
        if ins.iter().any(Source::is_unknown) {
            ins.iter().for_each(|&source| self.need(source));
            return vec![Source::Unknown; eqn.outs.len()];
        }
        let number = eqn.loc.discriminator;
        if let Op::Prim(Prim::Name(_)) = eqn.op {
            // The same value.
            if let Some(value) = ins[0].value() {
                let equation = &mut self.graph.equations[self.graph.region.equation_of(value).index()];
                if equation.body == body {
                    equation.name = equation.name.or(Some(number));
                }
            }
            return vec![ins[0]];
        }
        let avals = |atoms: &[Atom]| -> Vec<Aval> { atoms.iter().map(|&atom| jaxpr.atom_aval(atom)).collect() };
        let out_avals: Vec<Aval> = eqn.outs.iter().map(|&v| jaxpr.avals[v].clone()).collect();
        let in_avals = avals(&eqn.ins);
        let once = Machine::CORE.picoseconds(&cost_again(&eqn.op, &in_avals, &out_avals));
        let labels: Vec<Arc<str>> = eqn.outs.iter().flat_map(|&v| &labels[v]).cloned().collect();
        let (is_open, may_be_kept) = self.filter.of(&eqn.op, &in_avals, &out_avals, &labels);
        let varies = ins.iter().fold(0, |bits, source| bits | source.varies());
        let cost = once.saturating_mul(repeats.runs());
        let equation = Equation { number, num_results: eqn.outs.len(), name: None, body, is_open };
        let equation = self.add(cost, ins.iter().filter_map(Source::value), equation);
        let copies = repeats.copies(varies);
        let bytes = |aval: &Aval| (number != 0 && may_be_kept).then(|| (aval.bytes() as u64).saturating_mul(copies));
        let result = |aval| Source::Computed { value: self.graph.region.value(equation, bytes(aval)), varies };
        out_avals.iter().map(result).collect()
    }

    fn add(&mut self, cost: u64, operands: impl IntoIterator<Item = ValueId>, equation: Equation) -> EquationId {
        self.graph.equations.push(equation);
        self.graph.region.equation(cost, operands)
    }

    /// A value that is chosen among others, and costs nothing itself.
    fn chosen_among(&mut self, sources: impl IntoIterator<Item = Source>, varies: u64) -> (EquationId, Source) {
        let operands: Vec<ValueId> = sources.into_iter().filter_map(|s| s.value()).collect();
        let equation =
            self.add(0, operands, Equation { number: 0, num_results: 1, name: None, body: usize::MAX, is_open: false });
        let value = self.graph.region.value(equation, None);
        (equation, Source::Computed { value, varies })
    }

    fn scan(&mut self, op: &Scan, ins: &[Source], repeats: &Repeats) -> Vec<Source> {
        let mut unknown: Vec<bool> = ins.iter().map(Source::is_unknown).collect();
        unknown_of_scan(op, &mut unknown);
        let bit = Repeats::bit(repeats.lengths.len());
        let carries = op.num_consts..op.num_consts + op.num_carry;
        let mut inside = ins.to_vec();
        let mut of_carries: Vec<Option<EquationId>> = vec![None; op.num_carry];
        for i in op.num_consts..ins.len() {
            if unknown[i] {
                self.need(ins[i]);
                inside[i] = Source::Unknown;
            } else if carries.contains(&i) {
                let (equation, source) = self.chosen_among([ins[i]], ins[i].varies() | bit);
                of_carries[i - op.num_consts] = Some(equation);
                inside[i] = source;
            } else {
                inside[i] = ins[i].with_varies(ins[i].varies() | bit);
            }
        }
        let mut outs = self.program(&op.jaxpr, &inside, &repeats.in_loop(op.length));
        for (equation, out) in of_carries.into_iter().zip(&outs) {
            match (equation, out.value()) {
                (Some(equation), Some(value)) => self.graph.region.operand(equation, value),
                // The next iteration of an unknown carry reads what this one returns.
                (None, Some(value)) => self.graph.region.need(value),
                (_, None) => {}
            }
        }
        for (i, out) in outs.iter_mut().enumerate() {
            let is_unknown = i < op.num_carry && unknown[op.num_consts + i];
            *out = if is_unknown { Source::Unknown } else { out.with_varies(out.varies() & !bit) };
        }
        outs
    }

    fn cond(&mut self, op: &Cond, ins: &[Source], repeats: &Repeats) -> Vec<Source> {
        let unknown: Vec<bool> = ins[1..].iter().map(Source::is_unknown).collect();
        let unknown_outs = unknown_of_branches(&op.branches, &unknown);
        let branches: Vec<Vec<Source>> =
            op.branches.iter().map(|branch: &Arc<Jaxpr>| self.program(branch, &ins[1..], repeats)).collect();
        if unknown_outs.contains(&true) {
            self.need(ins[0]);
        }
        let mut outs = Vec::with_capacity(unknown_outs.len());
        for (i, is_unknown) in unknown_outs.into_iter().enumerate() {
            let results: Vec<Source> = branches.iter().map(|outs| outs[i]).collect();
            if is_unknown {
                results.into_iter().for_each(|result| self.need(result));
                outs.push(Source::Unknown);
            } else {
                let varies = results.iter().fold(ins[0].varies(), |bits, result| bits | result.varies());
                outs.push(self.chosen_among(results.into_iter().chain([ins[0]]), varies).1);
            }
        }
        outs
    }
}

fn source(env: &VarMap<Source>, atom: Atom) -> Source {
    match atom {
        Atom::Var(var) => env[var],
        Atom::Lit(_) => Source::free(),
    }
}
