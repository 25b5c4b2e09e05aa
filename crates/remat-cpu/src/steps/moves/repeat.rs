//! Steps that run again, as a plan says: each run writes variables of its own, and reads the newest copy of each operand.

use std::collections::HashSet;

use remat_ir::{Result, Var, VarMap};

use super::parts::Part;
use crate::steps::check::check;
use crate::steps::facts::outside;
use crate::steps::ir::{Step, Steps};

impl Steps {
    /// The program that runs these parts, some of them several times. Parts of one loop that follow each other are one loop.
    ///
    /// # Errors
    /// If the steps are wrong, which is a defect of the plan.
    pub(crate) fn repeated(&self, runs: &[Part]) -> Result<Steps> {
        let mut repetition = Repetition::new(self);
        let mut from = 0;
        while from < runs.len() {
            let until = from + together(&runs[from..]);
            repetition.run(self, &runs[from..until]);
            from = until;
        }
        check(&repetition.steps)?;
        Ok(repetition.steps)
    }
}

/// How many of these runs are different parts of one loop, the first included.
fn together(runs: &[Part]) -> usize {
    let is_other = |i: usize| {
        let part = &runs[i];
        part.step != runs[0].step || part.out.is_none() || runs[..i].contains(part)
    };
    (1..runs.len()).find(|&i| is_other(i)).unwrap_or(runs.len())
}

/// The runs so far.
struct Repetition {
    steps: Steps,
    /// The newest copy of each variable.
    newest: VarMap<Var>,
    is_written: VarMap<bool>,
    /// The variables that the program returns. Their first copy stays where the caller wants it.
    is_returned: VarMap<bool>,
}

impl Repetition {
    fn new(steps: &Steps) -> Repetition {
        let vars = steps.jaxpr.avals.len();
        let (mut newest, mut is_returned) = (VarMap::default(), VarMap::filled(vars, false));
        steps.jaxpr.avals.iter().for_each(|(var, _)| {
            newest.push(var);
        });
        steps.jaxpr.outs.iter().filter_map(|&out| steps.value(out).base()).for_each(|base| is_returned[base] = true);
        Repetition { steps: steps.with(Vec::new()), newest, is_written: VarMap::filled(vars, false), is_returned }
    }

    /// Runs a step, or these parts of it.
    fn run(&mut self, steps: &Steps, parts: &[Part]) {
        let mut step = steps.steps[parts[0].step].clone();
        if let Step::Loop(fused_loop) = &step {
            let outs: Vec<Var> = parts.iter().filter_map(|part| part.out).collect();
            if !outs.is_empty() && outs.len() < fused_loop.outs.len() {
                step = Step::Loop(fused_loop.part(&outs));
            }
        }
        // What a loop computes for itself has no copies outside of it.
        let own: HashSet<Var> = step.loop_results().collect();
        for var in outside(&step) {
            step.replace(var, self.newest[var]);
        }
        let mut written: Vec<Var> = step.loop_results().collect();
        written.extend(step.outs().filter(|out| !own.contains(out)));
        for var in written {
            if !std::mem::replace(&mut self.is_written[var], true) {
                continue;
            }
            let copy = self.copy(var);
            step.rename(var, copy);
            if !self.is_returned[var] {
                self.newest[var] = copy;
            }
        }
        self.steps.steps.push(step);
    }

    /// A further copy of a variable.
    fn copy(&mut self, original: Var) -> Var {
        let var = self.steps.var_like(original);
        self.newest.push(var);
        self.is_written.push(true);
        self.is_returned.push(false);
        var
    }
}
