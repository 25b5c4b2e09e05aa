//! Random bits as integer operations, which are the same on every engine.

use remat_ir::{DType, Literal, Result, Threefry2x32};

use super::operands;
use crate::value::Value;
use crate::writer::Writer;

/// Distances of rotation, for rounds of even and of odd groups of four.
const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
/// The constant that the key schedule adds as a third word of the key.
const PARITY: u32 = 0x1BD1_1BDA;

/// Twenty rounds, with a part of the key added before the first and after every four. Source: Salmon et al., "Parallel random
/// numbers: as easy as 1, 2, 3", SC 2011.
pub(super) fn threefry2x32(w: &mut Writer, op: &Threefry2x32, ins: &[Value]) -> Result<Vec<Value>> {
    let [k0, k1, x0, x1] = operands(op, ins)?;
    let parity = word(w, x0, PARITY);
    let k2 = w.binary("xor", k0, k1);
    let k2 = w.binary("xor", &k2, &parity);
    let schedule = [k0, k1, &k2];
    let mut x = [w.binary("add", x0, k0), w.binary("add", x1, k1)];
    for group in 0..5 {
        for distance in ROTATIONS[group % 2] {
            x[0] = w.binary("add", &x[0], &x[1]);
            let rotated = rotate_left(w, &x[1], distance);
            x[1] = w.binary("xor", &rotated, &x[0]);
        }
        x[0] = w.binary("add", &x[0], schedule[(group + 1) % 3]);
        x[1] = w.binary("add", &x[1], schedule[(group + 2) % 3]);
        let count = word(w, x0, group as u32 + 1);
        x[1] = w.binary("add", &x[1], &count);
    }
    Ok(x.to_vec())
}

fn rotate_left(w: &mut Writer, x: &Value, distance: u32) -> Value {
    let (left, right) = (word(w, x, distance), word(w, x, 32 - distance));
    let (high, low) = (w.binary("shift_left", x, &left), w.binary("shift_right_logical", x, &right));
    w.binary("or", &high, &low)
}

fn word(w: &mut Writer, like: &Value, value: u32) -> Value {
    w.constant(Literal::from_i128(DType::U32, value.into()), like.shape())
}
