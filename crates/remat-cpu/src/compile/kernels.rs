//! The kernels of the steps, and the buffers that they read and write.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use oxc_index::IndexVec;
use remat_ir::{Aval, Call, DType, Error, ErrorKind, Op, Operation, Prim, Result};
use remat_kernels::{Kernel, Layout, Source, Target, Threads};
use remat_plan::{BufferId, Graph, StepId, StepNode};

use super::buffers::{Buffers, Owner};
use super::candidate::Subject;
use crate::control;
use crate::ids::{ArgId, EqnId};
use crate::steps::{Step, Steps, Value};

/// The kernels of a program and their buffers; the buffers have no locations yet.
pub(super) struct Kernels<'a> {
    pub(super) steps: Rc<Steps>,
    pub(super) buffers: Buffers,
    /// The steps so far, as nodes of the graph.
    nodes: IndexVec<StepId, StepNode>,
    pub(super) calls: IndexVec<StepId, KernelCall>,
    pub(super) subject: Subject<'a>,
}

/// The kernels of loops and branches by their equations, shared by all plans of a program. If each plan compiled the bodies again, the time
/// would multiply with each level of nesting.
pub(super) type Controls = RefCell<HashMap<EqnId, Arc<dyn Kernel>>>;

/// A kernel and its operands.
pub(super) struct KernelCall {
    pub(super) kernel: Arc<dyn Kernel>,
    pub(super) ins: Vec<BufferSlice>,
    pub(super) outs: Vec<BufferId>,
    /// Bytes of its scratch memory.
    pub(super) scratch: usize,
    /// The equation that it computes; of several, the last.
    pub(super) eqn: Option<EqnId>,
}

/// The bytes of a buffer that a kernel receives.
#[derive(Clone, Copy)]
pub(super) struct BufferSlice {
    pub(super) buffer: BufferId,
    pub(super) dtype: DType,
    /// In bytes.
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl<'a> Kernels<'a> {
    /// The kernels of all steps.
    ///
    /// # Errors
    /// If there is no kernel for one of them.
    pub(super) fn new(steps: Rc<Steps>, subject: Subject<'a>) -> Result<Kernels<'a>> {
        let (nodes, calls) = (IndexVec::new(), IndexVec::new());
        let buffers = Buffers::new(&steps);
        let mut kernels = Kernels { steps: steps.clone(), buffers, nodes, calls, subject };
        for step in &steps.steps {
            kernels.step(step)?;
        }
        Ok(kernels)
    }

    /// The graph that is scheduled and planned.
    pub(super) fn graph(&self) -> Graph {
        Graph { steps: self.nodes.clone(), buffers: self.buffers.nodes() }
    }

    /// Whether the memory of an output may hold another buffer. It is aligned for the elements of the output, and any byte is an element of
    /// every dtype but bool.
    pub(super) fn may_hold(&self, output: BufferId, buffer: BufferId) -> bool {
        let [output, buffer] = [output, buffer].map(|buffer| self.buffers.aval(buffer).dtype);
        buffer.size() <= output.size() && (buffer == DType::Bool || output != DType::Bool)
    }

    /// The time of a step, in picoseconds by the cost model.
    pub(super) fn time(&self, step: StepId) -> u64 {
        self.nodes[step].cost
    }

    /// Adds a step. It reads the tokens of the barriers that it waits for, and a barrier reads its operands. This orders the steps; kernels
    /// do not receive these buffers.
    fn step(&mut self, step: &Step) -> Result<()> {
        self.call(step)?;
        if let Some(node) = self.nodes.last_mut() {
            (node.cost, node.runs_once) = (self.steps.time(step), self.steps.runs_once(step));
        }
        let operands = if let Step::Barrier { operands, .. } = step { &operands[..] } else { &[] };
        for var in operands.iter().filter_map(Value::base).chain(step.tokens(&self.steps.tokens)) {
            let buffer = self.buffers.own(var);
            if let Some(node) = self.nodes.last_mut()
                && !node.reads.contains(&buffer)
            {
                node.reads.push(buffer);
            }
        }
        Ok(())
    }

    /// Adds the kernel of a step and its operands.
    fn call(&mut self, step: &Step) -> Result<()> {
        let steps = self.steps.clone();
        match step {
            Step::Equation { eqn: number, operands, outs } => {
                let eqn = steps.eqn(*number);
                let operands = operands.iter().map(|x| self.operand(x)).collect::<Vec<_>>();
                let out_avals: Vec<Aval> = outs.iter().map(|&v| steps.jaxpr.avals[v].clone()).collect();
                let ins: Vec<(DType, &Layout)> = operands.iter().map(|(slice, layout)| (slice.dtype, layout)).collect();
                let kernel = match &eqn.op {
                    Op::Prim(op) => prim(op, &ins, &out_avals),
                    Op::Call(op) => self.control(*number, op),
                };
                let kernel = kernel.map_err(|e| e.at(eqn.loc))?;
                let outs = outs.iter().map(|&v| self.buffers.own(v)).collect();
                let ins = operands.into_iter().map(|(slice, _)| slice).collect();
                self.push(Some(*number), kernel, ins, outs)
            }
            Step::Copy { eqn, operand, out } => {
                let to = self.buffers.own(*out);
                self.copy(Some(*eqn), operand, to)
            }
            Step::Iota { eqn, out, iota } => {
                let to = self.buffers.own(*out);
                let kernel = prim(&Prim::from(iota.clone()), &[], &[steps.jaxpr.avals[*out].clone()])?;
                self.push(Some(*eqn), kernel, Vec::new(), vec![to])
            }
            Step::Barrier { eqn, token, .. } => {
                let token = self.buffers.own(*token);
                self.push(Some(*eqn), Arc::new(NoKernel), Vec::new(), vec![token])
            }
            Step::Loop(fused_loop) => self.fused_loop(fused_loop),
            Step::Blocks(blocks) => self.blocks(blocks),
        }
    }

    /// The kernel of a loop or a branch.
    fn control(&self, number: EqnId, op: &Call) -> Result<Arc<dyn Kernel>> {
        let compiled = self.subject.controls.borrow().get(&number).cloned();
        if let Some(kernel) = compiled {
            return Ok(kernel);
        }
        let kernel: Arc<dyn Kernel> = control::kernel(op, self.subject.threads)?.into();
        self.subject.controls.borrow_mut().insert(number, kernel.clone());
        Ok(kernel)
    }

    /// Adds the step that copies a value into a buffer, row-major.
    pub(super) fn copy(&mut self, eqn: Option<EqnId>, value: &Value, to: BufferId) -> Result<()> {
        let (slice, layout) = self.operand(value);
        let kernel = remat_kernels::copy(slice.dtype, &layout);
        self.push(eqn, kernel.into(), vec![slice], vec![to])
    }

    /// The bytes that a kernel receives for a value, and the layout within them. A row-major slice of a buffer is passed as if it were a
    /// whole buffer.
    fn operand(&mut self, value: &Value) -> (BufferSlice, Layout) {
        let (buffer, mut layout) = self.buffers.operand(value);
        let aval = self.buffers.aval(buffer);
        let dtype = aval.dtype;
        if layout.is_contiguous() {
            let (offset, bytes) = (layout.offset * dtype.size(), layout.size() * dtype.size());
            layout.offset = 0;
            return (BufferSlice { buffer, dtype, offset, bytes }, layout);
        }
        (BufferSlice { buffer, dtype, offset: 0, bytes: aval.bytes() }, layout)
    }

    /// The argument that a buffer is.
    fn argument(&self, buffer: BufferId) -> Option<ArgId> {
        match self.buffers.owner(buffer) {
            Owner::Argument(argument) => Some(argument),
            _ => None,
        }
    }

    /// Adds a step to the graph.
    ///
    /// # Errors
    /// If the kernel lists a pair of operand and result to compute in place that it does not have, which is a defect of the kernel.
    pub(super) fn push(
        &mut self,
        eqn: Option<EqnId>,
        kernel: Arc<dyn Kernel>,
        ins: Vec<BufferSlice>,
        outs: Vec<BufferId>,
    ) -> Result<()> {
        let scratch = kernel.scratch(self.subject.threads.count());
        let mut node = StepNode { scratch, ..StepNode::default() };
        for slice in &ins {
            if !node.reads.contains(&slice.buffer) {
                node.reads.push(slice.buffer);
            }
        }
        node.writes = outs.iter().copied().collect();
        for &(i, k) in kernel.in_place() {
            let (Some(slice), Some(&to)) = (ins.get(i), outs.get(k)) else {
                let message = format!("a kernel has no operand {i} or no result {k} to compute in place");
                return Err(Error::new(ErrorKind::Internal, "compile", message));
            };
            // Any byte is an element of every other dtype, but not a bool.
            if (slice.dtype == DType::Bool) != (self.buffers.aval(to).dtype == DType::Bool) {
                let message =
                    format!("a kernel computes the result {k} in place of the operand {i}, and one of them is bool");
                return Err(Error::new(ErrorKind::Internal, "compile", message));
            }
            let from = slice.buffer;
            let is_read_once = ins.iter().filter(|slice| slice.buffer == from).count() == 1;
            let [of_operand, of_result] = [from, to].map(|buffer| self.buffers.aval(buffer).bytes());
            let is_whole = slice.bytes == of_operand && slice.bytes == of_result;
            let may_take = self.argument(from).is_none_or(|argument| self.subject.may_take(argument));
            if is_read_once && is_whole && may_take && !node.in_place.contains(&(from, to)) {
                node.in_place.push((from, to));
            }
        }
        // A result takes the first that it can.
        let takes_last = |from| self.argument(from).is_some_and(|argument| self.subject.takes_last(argument));
        node.in_place.sort_by_key(|&(from, _)| takes_last(from));
        self.nodes.push(node);
        self.calls.push(KernelCall { kernel, ins, outs, scratch, eqn });
        Ok(())
    }
}

/// The kernel of a barrier, which computes nothing.
struct NoKernel;

impl Kernel for NoKernel {
    fn run(&self, _: &[Source<'_>], _: &mut [Target<'_>], _: &mut [u8], _: &Threads) {}
}

fn prim(op: &Prim, ins: &[(DType, &Layout)], outs: &[Aval]) -> Result<Arc<dyn Kernel>> {
    remat_kernels::kernel(op, ins, outs).map(Arc::from).ok_or_else(|| no_kernel(op, ins))
}

fn no_kernel(op: &Prim, ins: &[(DType, &Layout)]) -> Error {
    let ins: Vec<String> = ins.iter().map(|(dtype, layout)| format!("{dtype}{:?}", layout.shape)).collect();
    Error::new(ErrorKind::Internal, op.name(), format!("there is no kernel for {}", ins.join(" ")))
}
