//! The kernel of a scan.

// Iterations run on addresses of slices.
#![allow(unsafe_code)]

use remat_ir::{LiveValue, Result, Scan};
use remat_kernels::{Kernel, Source, Target, Threads};

use super::body::Body;
use super::carry::{Carry, CarryKind, carries, pairs, without_constants};
use crate::compile::Caller;

pub(super) struct ScanKernel {
    body: Body,
    length: usize,
    reverse: bool,
    consts: usize,
    carries: Vec<Carry>,
    /// The carries that the body computes.
    computed: Vec<usize>,
    /// Bytes of one slice of each stacked argument, and of each stacked result.
    xs: Vec<usize>,
    ys: Vec<usize>,
    /// Bytes of the second buffers.
    second: usize,
    in_place: Vec<(usize, usize)>,
    live: Vec<LiveValue>,
}

impl ScanKernel {
    pub(super) fn new(op: &Scan, threads: &Threads) -> Result<ScanKernel> {
        let (jaxpr, is_constant) = without_constants(&op.jaxpr, op.num_consts, op.num_carry);
        let body = Body::new(&jaxpr, Caller::with_carries(op.num_consts, op.num_carry), threads)?;
        let (carries, second) = carries(&jaxpr, &body, op.num_consts, op.num_consts, op.num_carry, &is_constant);
        let computed: Vec<usize> = (0..op.num_carry).filter(|&c| !is_constant[c]).collect();
        let bytes = |avals: Vec<remat_ir::Aval>| avals.iter().map(remat_ir::Aval::bytes).collect::<Vec<usize>>();
        Ok(ScanKernel {
            in_place: pairs(&carries),
            live: body.live().collect(),
            xs: bytes(op.jaxpr.in_avals().split_off(op.num_consts + op.num_carry)),
            ys: bytes(op.jaxpr.out_avals().split_off(op.num_carry)),
            body,
            length: op.length,
            reverse: op.reverse,
            consts: op.num_consts,
            carries,
            computed,
            second,
        })
    }
}

impl Kernel for ScanKernel {
    fn scratch(&self, _: usize) -> usize {
        self.second + self.body.scratch()
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
        for (carry, out) in self.carries.iter().zip(outs) {
            if self.length == 0 || !matches!(carry.kind, CarryKind::Alternating(_)) {
                // SAFETY: operand and output of this carry.
                unsafe { carry.begin(&ins[carry.operand], out.as_ptr()) }
            }
        }
        for iteration in 0..self.length {
            let slice = if self.reverse { self.length - 1 - iteration } else { iteration };
            // The last iteration writes the output, the one before it the second buffer, and so on.
            let written = |c: usize, iteration: usize| match self.carries[c].kind {
                CarryKind::Alternating(offset) if (self.length - 1 - iteration) % 2 == 1 => {
                    scratch.wrapping_add(offset)
                }
                _ => outs[c].as_ptr(),
            };
            let argument = |i: usize| {
                if i < self.consts {
                    return ins[i].as_ptr();
                }
                let c = i - self.consts;
                match self.carries.get(c) {
                    Some(carry) if iteration == 0 && matches!(carry.kind, CarryKind::Alternating(_)) => ins[i].as_ptr(),
                    Some(carry) if carry.kind == CarryKind::Constant => outs[c].as_ptr().cast_const(),
                    Some(_) => written(c, iteration.saturating_sub(1)).cast_const(),
                    None => ins[i].as_ptr().wrapping_add(slice * self.xs[c - self.carries.len()]),
                }
            };
            let output = |o: usize| match self.computed.get(o) {
                Some(&c) => written(c, iteration),
                None => {
                    let y = o - self.computed.len();
                    outs[self.carries.len() + y].as_ptr().wrapping_add(slice * self.ys[y])
                }
            };
            // SAFETY: an iteration reads the buffers that the one before wrote, and writes its own slices and the other buffer
            // of each carry, or the same where the body allows it.
            unsafe { self.body.run(scratch.wrapping_add(self.second), threads, argument, output) }
        }
    }
}
