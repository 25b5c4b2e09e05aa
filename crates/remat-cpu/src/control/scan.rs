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
        self.second + self.body.addresses() + self.body.arena()
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
        let first = if self.reverse { self.length.saturating_sub(1) } else { 0 };
        let step = |bytes: usize| if self.reverse { bytes.wrapping_neg() } else { bytes };
        let argument = |i: usize| match i.checked_sub(self.consts).map(|c| (c, self.carries.get(c))) {
            None => ins[i].as_ptr(),
            Some((_, Some(Carry { kind: CarryKind::Alternating(_), .. }))) => ins[i].as_ptr(),
            Some((c, Some(_))) => outs[c].as_ptr().cast_const(),
            Some((c, None)) => ins[i].as_ptr().wrapping_add(first * self.xs[c - self.carries.len()]),
        };
        let output = |o: usize| match self.computed.get(o).map(|&c| (c, self.carries[c].kind)) {
            // The last iteration writes the output, the one before it the second buffer, and so on.
            Some((_, CarryKind::Alternating(offset))) if self.length.is_multiple_of(2) => scratch.wrapping_add(offset),
            Some((c, _)) => outs[c].as_ptr(),
            None => {
                let y = o - self.computed.len();
                outs[self.carries.len() + y].as_ptr().wrapping_add(first * self.ys[y])
            }
        };
        let addresses = scratch.wrapping_add(self.second);
        let arena = addresses.wrapping_add(self.body.addresses());
        // SAFETY: the scratch memory has room for the addresses after the second buffers.
        let mut frame = unsafe { self.body.frame(addresses, argument, output) };
        for _ in 0..self.length {
            // SAFETY: an iteration reads the buffers that the one before wrote, and writes its own slices and the other buffer
            // of each carry, or the same where the body allows it.
            unsafe { frame.run(arena, threads) }
            for (carry, out) in self.carries.iter().zip(outs) {
                carry.hand_over(&mut frame, out.as_ptr(), scratch);
            }
            for (i, &bytes) in (self.consts + self.carries.len()..).zip(&self.xs) {
                frame.set_argument(i, frame.argument(i).wrapping_add(step(bytes)));
            }
            for (o, &bytes) in (self.computed.len()..).zip(&self.ys) {
                frame.set_out(o, frame.out(o).wrapping_add(step(bytes)));
            }
        }
    }
}
