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
    Computed(Box<Body>),
}

impl Condition {
    fn new(op: &While, threads: &Threads) -> Result<Condition> {
        Ok(match predicate(op) {
            Some(carry) => Condition::Carry(carry),
            None => Condition::Computed(Box::new(Body::new(&op.cond, Caller::WITHOUT_CARRIES, threads)?)),
        })
    }

    fn body(&self) -> Option<&Body> {
        match self {
            Condition::Carry(_) => None,
            Condition::Computed(body) => Some(body),
        }
    }
}

/// The carry that is the condition of a rotated loop.
pub(super) fn predicate(op: &While) -> Option<usize> {
    op.cond.ins[op.cond_consts..].iter().position(|&carry| op.cond.outs[0] == Atom::Var(carry))
}

impl WhileKernel {
    pub(super) fn new(op: &While, threads: &Threads) -> Result<WhileKernel> {
        let count = op.body.outs.len();
        let (jaxpr, is_constant) = without_constants(&op.body, op.body_consts, count);
        let body = Body::new(&jaxpr, Caller::with_carries(op.body_consts, count), threads)?;
        let first = op.cond_consts + op.body_consts;
        let (carries, second) = carries(&jaxpr, &body, first, op.body_consts, count, &is_constant);
        let condition = Condition::new(op, threads)?;
        // Both have the same arena, one after the other.
        let larger = condition.body().filter(|condition| condition.arena() > body.arena()).unwrap_or(&body);
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

    /// The offsets in the scratch memory, after the second buffers: of the addresses of the body, those of the condition, the condition's
    /// result, and the arena of both.
    fn offsets(&self) -> [usize; 4] {
        let body = self.second;
        let condition = body + self.body.addresses();
        match self.condition.body() {
            None => [body, condition, condition, condition],
            Some(computed) => {
                let holds = condition + computed.addresses();
                [body, condition, holds, holds + aligned(1)]
            }
        }
    }
}

impl Kernel for WhileKernel {
    fn scratch(&self, _: usize) -> usize {
        let [.., arena] = self.offsets();
        arena + self.condition.body().map_or(0, Body::arena).max(self.body.arena())
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
        let [addresses, of_condition, holds, arena] = self.offsets().map(|offset| scratch.wrapping_add(offset));
        for (carry, out) in self.carries.iter().zip(outs) {
            if !matches!(carry.kind, CarryKind::Alternating(_)) {
                // SAFETY: operand and output of this carry.
                unsafe { carry.begin(&ins[carry.operand], out.as_ptr()) }
            }
        }
        // The first iteration writes the outputs, the next the second buffers, and so on.
        let argument = |i: usize| match i.checked_sub(self.body_consts).map(|c| (c, &self.carries[c])) {
            None => ins[self.cond_consts + i].as_ptr(),
            Some((_, Carry { kind: CarryKind::Alternating(_), operand, .. })) => ins[*operand].as_ptr(),
            Some((c, _)) => outs[c].as_ptr().cast_const(),
        };
        // SAFETY: the scratch memory has room for the addresses.
        let mut frame = unsafe { self.body.frame(addresses, argument, |o| outs[self.computed[o]].as_ptr()) };
        loop {
            let is_true = match &self.condition {
                // SAFETY: the carry is a bool.
                Condition::Carry(carry) => unsafe { frame.argument(self.body_consts + carry).read() != 0 },
                Condition::Computed(condition) => {
                    let argument = |i: usize| match i.checked_sub(self.cond_consts) {
                        None => ins[i].as_ptr(),
                        Some(c) => frame.argument(self.body_consts + c),
                    };
                    // SAFETY: the condition reads constants and carries, and writes one bool. Its arena is the body's, which does not run.
                    unsafe {
                        condition.frame(of_condition, argument, |_| holds).run(arena, threads);
                        holds.read() != 0
                    }
                }
            };
            if !is_true {
                break;
            }
            // SAFETY: an iteration reads the buffers that the one before wrote, and writes the other buffer of each carry, or
            // the same where the body allows it.
            unsafe { frame.run(arena, threads) }
            for (carry, out) in self.carries.iter().zip(outs) {
                carry.hand_over(&mut frame, out.as_ptr(), scratch);
            }
        }
        for (carry, out) in self.carries.iter().zip(outs) {
            let (from, to) = (frame.argument(carry.argument), out.as_ptr());
            if from != to.cast_const() {
                // SAFETY: both have the bytes of the carry and are different buffers: one that alternates is elsewhere before the first
                // iteration and after every second one.
                unsafe { std::ptr::copy_nonoverlapping(from, to, carry.bytes) }
            }
        }
    }
}
