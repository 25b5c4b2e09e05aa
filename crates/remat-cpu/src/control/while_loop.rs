//! The kernel of a while loop.

// Iterations run on addresses.
#![allow(unsafe_code)]

use remat_ir::{Atom, LiveValue, Result, While};
use remat_kernels::{Kernel, Source, Target, Threads};
use remat_plan::aligned;

use super::body::Body;
use super::carry::{Carry, CarryKind, carries, pairs, without_constants};
use crate::compile::Caller;

pub(super) struct WhileKernel {
    condition: Condition,
    body: Body,
    cond_consts: usize,
    body_consts: usize,
    carries: Vec<Carry>,
    computed: Vec<usize>,
    /// Bytes of the second buffers.
    second: usize,
    in_place: Vec<(usize, usize)>,
    live: Vec<LiveValue>,
}

/// Whether there is another iteration.
enum Condition {
    /// This carry, which the body computes.
    Carry(usize),
    Computed(Body),
}

impl Condition {
    fn new(op: &While, threads: &Threads) -> Result<Condition> {
        let carries = &op.cond.ins[op.cond_consts..];
        Ok(match carries.iter().position(|&carry| op.cond.outs[0] == Atom::Var(carry)) {
            Some(carry) => Condition::Carry(carry),
            None => Condition::Computed(Body::new(&op.cond, Caller::WITHOUT_CARRIES, threads)?),
        })
    }

    fn body(&self) -> Option<&Body> {
        match self {
            Condition::Carry(_) => None,
            Condition::Computed(body) => Some(body),
        }
    }
}

impl WhileKernel {
    pub(super) fn new(op: &While, threads: &Threads) -> Result<WhileKernel> {
        let count = op.body.outs.len();
        let (jaxpr, is_constant) = without_constants(&op.body, op.body_consts, count);
        let body = Body::new(&jaxpr, Caller::with_carries(op.body_consts, count), threads)?;
        let first = op.cond_consts + op.body_consts;
        let (carries, second) = carries(&jaxpr, &body, first, op.body_consts, count, &is_constant);
        let condition = Condition::new(op, threads)?;
        // Both have the same scratch memory, one after the other.
        let larger = condition.body().filter(|condition| condition.scratch() > body.scratch()).unwrap_or(&body);
        Ok(WhileKernel {
            in_place: pairs(&carries),
            live: larger.live().collect(),
            condition,
            body,
            cond_consts: op.cond_consts,
            body_consts: op.body_consts,
            computed: (0..count).filter(|&c| !is_constant[c]).collect(),
            carries,
            second,
        })
    }

    /// The offsets in the scratch memory of the condition's result and of the bodies' memory.
    fn offsets(&self) -> (usize, usize) {
        (self.second, self.second + aligned(1))
    }
}

impl Kernel for WhileKernel {
    fn scratch(&self, _: usize) -> usize {
        let of_condition = self.condition.body().map_or(0, Body::scratch);
        self.offsets().1 + of_condition.max(self.body.scratch())
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }

    fn live(&self) -> &[LiveValue] {
        &self.live
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let outs = &*outs;
        let scratch = scratch.as_mut_ptr();
        let (holds, memory) = (scratch.wrapping_add(self.offsets().0), scratch.wrapping_add(self.offsets().1));
        for (carry, out) in self.carries.iter().zip(outs) {
            if !matches!(carry.kind, CarryKind::Alternating(_)) {
                // SAFETY: operand and output of this carry.
                unsafe { carry.begin(&ins[carry.operand], out.as_ptr()) }
            }
        }
        // The first iteration writes the outputs, the next the second buffers, and so on.
        let written = |c: usize, iteration: usize| match self.carries[c].kind {
            CarryKind::Alternating(offset) if iteration % 2 == 1 => scratch.wrapping_add(offset),
            _ => outs[c].as_ptr(),
        };
        let mut iteration = 0;
        loop {
            let read = |c: usize| match self.carries[c].kind {
                CarryKind::Alternating(_) if iteration == 0 => ins[self.carries[c].operand].as_ptr(),
                _ => written(c, iteration.max(1) - 1).cast_const(),
            };
            let is_true = match &self.condition {
                // SAFETY: the carry is a bool.
                Condition::Carry(carry) => unsafe { read(*carry).read() != 0 },
                Condition::Computed(condition) => {
                    let consts = self.cond_consts;
                    let argument = |i: usize| if i < consts { ins[i].as_ptr() } else { read(i - consts) };
                    // SAFETY: the condition reads constants and carries, and writes one bool.
                    unsafe {
                        condition.run(memory, threads, argument, |_| holds);
                        holds.read() != 0
                    }
                }
            };
            if !is_true {
                for (c, carry) in
                    self.carries.iter().enumerate().filter(|(_, c)| matches!(c.kind, CarryKind::Alternating(_)))
                {
                    let (from, to) = (read(c), outs[c].as_ptr());
                    if from != to.cast_const() {
                        // SAFETY: both have the bytes of the carry and are different buffers.
                        unsafe { std::ptr::copy_nonoverlapping(from, to, carry.bytes) }
                    }
                }
                return;
            }
            let consts = self.body_consts;
            let argument = |i: usize| if i < consts { ins[self.cond_consts + i].as_ptr() } else { read(i - consts) };
            // SAFETY: an iteration reads the buffers that the one before wrote, and writes the other buffer of each carry, or
            // the same where the body allows it.
            unsafe { self.body.run(memory, threads, argument, |o| written(self.computed[o], iteration)) }
            iteration += 1;
        }
    }
}
