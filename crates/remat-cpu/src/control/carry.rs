//! The memory of carries, which one iteration hands to the next.

// Initial values are copied to addresses.
#![allow(unsafe_code)]

use remat_ir::{Atom, Jaxpr};
use remat_kernels::Source;
use remat_plan::aligned;

use super::body::{Body, Frame};

/// A value that a loop hands from one iteration to the next.
pub(super) struct Carry {
    /// The operand with the initial value.
    pub(super) operand: usize,
    /// The argument of the body, and the body's result if it is not constant.
    pub(super) argument: usize,
    pub(super) result: usize,
    pub(super) bytes: usize,
    pub(super) kind: CarryKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CarryKind {
    /// The body returns its argument.
    Constant,
    /// The body computes it in place.
    InPlace,
    /// It alternates between the output and a second buffer, at this offset of the scratch memory.
    Alternating(usize),
}

impl Carry {
    /// Copies the initial value to the output, unless it is there.
    ///
    /// # Safety
    /// The operand is the one that the carry was made for, and `out` its output.
    pub(super) unsafe fn begin(&self, operand: &Source<'_>, out: *mut u8) {
        if !operand.is_in_place() {
            // SAFETY: both have the bytes of the carry; an operand that is not in place has other memory.
            unsafe { std::ptr::copy_nonoverlapping(operand.as_ptr(), out, self.bytes) }
        }
    }

    /// Hands the value that an iteration has written to the next one, which writes the other buffer if there are two.
    pub(super) fn hand_over(&self, frame: &mut Frame<'_>, out: *mut u8, scratch: *mut u8) {
        if let CarryKind::Alternating(offset) = self.kind {
            let written = frame.out(self.result);
            frame.set_argument(self.argument, written);
            frame.set_out(self.result, if written == out { scratch.wrapping_add(offset) } else { out });
        }
    }
}

/// The carries of a body, and the bytes of their second buffers.
///
/// `first` is the operand of the first carry, and `argument` the argument of the body that reads it.
pub(super) fn carries(
    jaxpr: &Jaxpr,
    body: &Body,
    first: usize,
    argument: usize,
    count: usize,
    is_constant: &[bool],
) -> (Vec<Carry>, usize) {
    let mut bytes_needed = 0;
    let mut computed = 0;
    let carries = (0..count).map(|c| {
        let bytes = jaxpr.aval(jaxpr.ins[argument + c]).bytes();
        let result = computed;
        let kind = if is_constant[c] {
            CarryKind::Constant
        } else {
            computed += 1;
            if body.is_donated(argument + c, result) {
                CarryKind::InPlace
            } else {
                bytes_needed += aligned(bytes);
                CarryKind::Alternating(bytes_needed - aligned(bytes))
            }
        };
        Carry { operand: first + c, argument: argument + c, result, bytes, kind }
    });
    (carries.collect(), bytes_needed)
}

/// A body without the carries that it returns unchanged, and a mask of those carries.
pub(super) fn without_constants(jaxpr: &Jaxpr, argument: usize, count: usize) -> (Jaxpr, Vec<bool>) {
    let is_constant: Vec<bool> = (0..count).map(|c| jaxpr.outs[c] == Atom::Var(jaxpr.ins[argument + c])).collect();
    let mut jaxpr = jaxpr.clone();
    let mut at = 0;
    jaxpr.outs.retain(|_| {
        at += 1;
        !is_constant.get(at - 1).copied().unwrap_or(false)
    });
    (jaxpr, is_constant)
}

/// The pairs of operands and outputs that may share memory.
pub(super) fn pairs(carries: &[Carry]) -> Vec<(usize, usize)> {
    let in_place = carries.iter().enumerate().filter(|(_, carry)| carry.kind == CarryKind::InPlace);
    in_place.map(|(c, carry)| (carry.operand, c)).collect()
}
