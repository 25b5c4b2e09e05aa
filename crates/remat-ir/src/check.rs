//! The checker: the rules for every program and all of its bodies.
//!
//! 1. A variable is an index into the program's avals.
//! 2. It is an input or an output of one equation, once, and is used only after that.
//! 3. An equation's operation takes operands of these avals, and its outputs have the avals that the shape rule gives.
//!
//! All faults are collected. There are no rules about style, such as equations that nothing uses.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::text::{Notes, print_with_notes};
use crate::{Atom, Aval, Eqn, Error, ErrorKind, Jaxpr, Part, Var, VarMap, counted};

/// Reports all faults of a program.
///
/// ```
/// use remat_ir::{Jaxpr, check};
/// let jaxpr = Jaxpr::parse_unchecked("{ lambda ; a:f32[3]. let b:f32[4] = sin a in (b,) }")?;
/// assert_eq!(check(&jaxpr).unwrap_err().to_string(), "\
/// { lambda ; a:f32[3]. let
///     b:f32[4] = sin a
///     ## ^ `b` is f32[4] and sin gives f32[3]
///   in (b,) }
/// 1 fault");
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If there is a fault.
pub fn check(jaxpr: &Jaxpr) -> Result<(), Faults> {
    // A shared body is checked where it is met first.
    let mut met: HashSet<*const Jaxpr> = HashSet::new();
    check_bodies(jaxpr, |body| met.insert(Arc::as_ptr(body)))
}

/// As [`check`], but of the program and only those of its bodies for which `is_new` returns true. The caller knows that the other bodies
/// keep the rules. `is_new` is called for each body of the program and of its new bodies.
///
/// ```
/// use remat_ir::{Jaxpr, check, check_bodies};
/// let body = "{ lambda ; b:f32[]. let c:i32[] = sin b; d:f32[] = cos b in (d,) }";
/// let faulty = Jaxpr::parse_unchecked(&format!("{{ lambda ; a:f32[]. let b:f32[] = jit[name=f jaxpr={body}] a in (b,) }}"))?;
/// assert!(check(&faulty).is_err());
/// assert!(check_bodies(&faulty, |_| false).is_ok());
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If there is a fault.
pub fn check_bodies(jaxpr: &Jaxpr, mut is_new: impl FnMut(&Arc<Jaxpr>) -> bool) -> Result<(), Faults> {
    let mut faults = Vec::new();
    let mut todo = vec![(Vec::new(), jaxpr)];
    while let Some((path, body)) = todo.pop() {
        check_one(body, &path, &mut faults);
        let first = todo.len();
        for (i, eqn) in body.eqns.iter().enumerate() {
            for (j, inner) in eqn.op.bodies().into_iter().enumerate() {
                if is_new(inner) {
                    let path = path.iter().copied().chain([(i, j)]).collect();
                    todo.push((path, &**inner));
                }
            }
        }
        todo[first..].reverse();
    }
    if faults.is_empty() { Ok(()) } else { Err(Faults { program: Arc::new(jaxpr.clone()), faults }) }
}

/// How a program breaks a rule.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// A variable is not an index into the avals of the program.
    OutOfRange(Var),
    /// A variable is used but never defined, or used before it is defined.
    Undefined(Var),
    /// A variable is defined a second time.
    DefinedTwice(Var),
    /// The operation does not take its operands.
    Operation(Error),
    /// The operation gives another number of results than the equation has outputs.
    Count {
        /// The number of results that the shape rule gives.
        results: usize,
        /// The number of outputs of the equation.
        outputs: usize,
    },
    /// An output has another aval than the shape rule gives.
    Aval {
        /// The output.
        var: Var,
        /// The aval that the shape rule gives.
        inferred: Aval,
    },
}

/// One fault, and the part of the program that has it.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The path from the program to the faulty body: for each level the index of an equation and of one of its bodies, in the order of
    /// [`Op::bodies`](crate::Op::bodies).
    pub path: Vec<(usize, usize)>,
    /// The part of that body that has the fault.
    pub part: Part,
    /// The rule that is broken.
    pub kind: FaultKind,
}

/// The faults of a program: at least one. `Display` prints the program with each fault below its line.
#[derive(Clone)]
pub struct Faults {
    program: Arc<Jaxpr>,
    faults: Vec<Fault>,
}

impl Faults {
    /// The faults: those of a program before those of its bodies, and those of each program in order.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn body(&self, path: &[(usize, usize)]) -> &Jaxpr {
        path.iter().fold(&*self.program, |body, &(eqn, inner)| body.eqns[eqn].op.bodies()[inner])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut remarks = Remarks(HashMap::new());
        for fault in &self.faults {
            let body = self.body(&fault.path);
            remarks.0.entry((body as *const Jaxpr, fault.part)).or_default().push((fault, body));
        }
        let faults = if self.faults.len() == 1 { "fault" } else { "faults" };
        write!(f, "{}\n{} {faults}", print_with_notes(&self.program, &remarks), self.faults.len())
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Faults {}

impl From<Faults> for Error {
    fn from(faults: Faults) -> Error {
        Error::new(ErrorKind::Check, "check", format!("the program breaks a rule\n{faults}"))
    }
}

/// The faults by part of the program, with the bodies that have them.
struct Remarks<'a>(HashMap<(*const Jaxpr, Part), Vec<(&'a Fault, &'a Jaxpr)>>);

impl Notes for Remarks<'_> {
    fn notes(&self, body: *const Jaxpr, part: Part, name: &mut dyn FnMut(Var) -> String) -> Vec<String> {
        let faults = self.0.get(&(body, part)).map_or(&[][..], |f| f);
        faults.iter().map(|(fault, body)| message(fault, body, name)).collect()
    }
}

fn message(fault: &Fault, body: &Jaxpr, name: &mut dyn FnMut(Var) -> String) -> String {
    let operation = match fault.part {
        Part::Equation(i) => body.eqns[i].op.name(),
        Part::Inputs | Part::Outputs => "",
    };
    match &fault.kind {
        FaultKind::OutOfRange(var) => {
            format!("`{}` is out of range: there are {} variables", name(*var), body.avals.len())
        }
        FaultKind::Undefined(var) => format!("`{}` is used before it is defined", name(*var)),
        FaultKind::DefinedTwice(var) => format!("`{}` is defined twice", name(*var)),
        FaultKind::Operation(error) => format!("{}: {}", error.operation(), error.message()),
        FaultKind::Count { results, outputs } => {
            let outputs = counted(*outputs, "output");
            format!("{operation} gives {} and the equation has {outputs}", counted(*results, "result"))
        }
        FaultKind::Aval { var, inferred } => {
            format!("`{}` is {} and {operation} gives {inferred}", name(*var), body.avals[*var])
        }
    }
}

/// Checks one program without its bodies.
fn check_one(jaxpr: &Jaxpr, path: &[(usize, usize)], faults: &mut Vec<Fault>) {
    let mut defined = jaxpr.var_map(false);
    let mut report = |part, kind| faults.push(Fault { path: path.to_vec(), part, kind });
    for &var in &jaxpr.ins {
        define(&mut defined, var, &mut |kind| report(Part::Inputs, kind));
    }
    for (i, eqn) in jaxpr.eqns.iter().enumerate() {
        check_eqn(jaxpr, eqn, &mut defined, &mut |kind| report(Part::Equation(i), kind));
    }
    for &atom in &jaxpr.outs {
        use_atom(&defined, atom, &mut |kind| report(Part::Outputs, kind));
    }
}

fn check_eqn(jaxpr: &Jaxpr, eqn: &Eqn, defined: &mut VarMap<bool>, report: &mut dyn FnMut(FaultKind)) {
    for &atom in &eqn.ins {
        use_atom(defined, atom, report);
    }
    let in_range = |atom: &Atom| atom.var().is_none_or(|v| jaxpr.avals.get(v).is_some());
    // Without avals there is nothing to infer from; the fault itself is reported elsewhere.
    if eqn.ins.iter().all(in_range) && eqn.op.bodies().into_iter().all(|body| has_interface(body)) {
        let ins: Vec<Aval> = eqn.ins.iter().map(|&a| jaxpr.atom_aval(a)).collect();
        match eqn.op.infer(&ins) {
            Err(error) => report(FaultKind::Operation(error)),
            Ok(outs) if outs.len() != eqn.outs.len() => {
                report(FaultKind::Count { results: outs.len(), outputs: eqn.outs.len() });
            }
            Ok(outs) => {
                for (&var, inferred) in eqn.outs.iter().zip(outs) {
                    if jaxpr.avals.get(var).is_some_and(|aval| *aval != inferred) {
                        report(FaultKind::Aval { var, inferred });
                    }
                }
            }
        }
    }
    for &var in &eqn.outs {
        define(defined, var, report);
    }
}

/// Whether the inputs and outputs have avals.
fn has_interface(jaxpr: &Jaxpr) -> bool {
    jaxpr.ins.iter().copied().chain(jaxpr.outs.iter().filter_map(|a| a.var())).all(|v| jaxpr.avals.get(v).is_some())
}

fn define(defined: &mut VarMap<bool>, var: Var, report: &mut dyn FnMut(FaultKind)) {
    match defined.get(var) {
        None => report(FaultKind::OutOfRange(var)),
        Some(true) => report(FaultKind::DefinedTwice(var)),
        Some(false) => defined[var] = true,
    }
}

fn use_atom(defined: &VarMap<bool>, atom: Atom, report: &mut dyn FnMut(FaultKind)) {
    let Some(var) = atom.var() else { return };
    match defined.get(var) {
        None => report(FaultKind::OutOfRange(var)),
        Some(false) => report(FaultKind::Undefined(var)),
        Some(true) => {}
    }
}
