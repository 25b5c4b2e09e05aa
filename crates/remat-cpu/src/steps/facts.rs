//! What a program does with its values: the facts from which moves are proposed.

use remat_ir::{Var, VarMap};

use super::ir::{Step, Steps, Value};

/// Which steps compute and read each variable.
pub(super) struct Facts {
    /// The steps that read its buffer without computing it, in order.
    pub(super) readers: VarMap<Vec<usize>>,
    /// The step with the loop that computes it, if a loop does.
    pub(super) computed: VarMap<Option<usize>>,
    /// Whether the program returns it.
    pub(super) is_returned: VarMap<bool>,
    /// Whether it is an argument or a result, which are in memory throughout.
    pub(super) stays: VarMap<bool>,
}

impl Facts {
    pub(super) fn of(steps: &Steps) -> Facts {
        let vars = steps.jaxpr.avals.len();
        let (mut readers, mut computed) = (VarMap::filled(vars, Vec::new()), VarMap::filled(vars, None));
        for (at, step) in steps.steps.iter().enumerate() {
            step.loop_results().for_each(|var| computed[var] = Some(at));
            for base in step.operands().filter_map(Value::base).filter(|&base| computed[base] != Some(at)) {
                let readers: &mut Vec<usize> = &mut readers[base];
                if readers.last() != Some(&at) {
                    readers.push(at);
                }
            }
        }
        let mut is_returned = VarMap::filled(vars, false);
        steps.jaxpr.outs.iter().filter_map(|&out| steps.value(out).base()).for_each(|base| is_returned[base] = true);
        let mut stays = is_returned.clone();
        steps.jaxpr.ins.iter().for_each(|&var| stays[var] = true);
        Facts { readers, computed, is_returned, stays }
    }

    /// The facts of a new variable, which nothing reads yet.
    pub(super) fn push(&mut self) {
        self.readers.push(Vec::new());
        self.computed.push(None);
        self.is_returned.push(false);
        self.stays.push(false);
    }

    /// Adds a reader of a variable.
    pub(super) fn read(&mut self, var: Var, reader: usize) {
        let readers = &mut self.readers[var];
        if let Err(place) = readers.binary_search(&reader) {
            readers.insert(place, reader);
        }
    }
}

/// The variables whose buffers a step reads and does not compute, in order, each once.
pub(super) fn outside(step: &Step) -> Vec<Var> {
    let own: Vec<Var> = step.loop_results().collect();
    let mut reads: Vec<Var> = step.operands().filter_map(Value::base).filter(|var| !own.contains(var)).collect();
    reads.sort_unstable();
    reads.dedup();
    reads
}
