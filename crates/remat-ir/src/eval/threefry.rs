//! The Threefry-2x32 block function.

use crate::{Array, Element, Error, ErrorKind, Result};

/// Distances of rotation, for rounds of even and of odd groups of four.
const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
/// The constant that the key schedule adds as a third word of the key.
const PARITY: u32 = 0x1BD1_1BDA;

/// Applies the block function to each pair of counters.
pub(super) fn threefry2x32(ins: &[Array]) -> Result<Vec<Array>> {
    let [k0, k1, x0, x1] = ins else {
        return Err(Error::new(ErrorKind::Internal, "threefry2x32", "takes 4 operands"));
    };
    let widest = [k0, k1, x0, x1].into_iter().max_by_key(|a| a.aval().rank()).unwrap_or(x0).aval().clone();
    let read = |a: &Array| a.as_slice::<u32>().map(<[u32]>::to_vec).unwrap_or_default();
    let words = [read(k0), read(k1), read(x0), read(x1)];
    // A scalar stands for every element, and so it is read with step 0.
    let steps = [k0, k1, x0, x1].map(|a| usize::from(a.aval().rank() != 0));
    let at = |operand: usize, i: usize| words[operand][i * steps[operand]];
    let (mut y0, mut y1) = (Vec::with_capacity(widest.size()), Vec::with_capacity(widest.size()));
    for i in 0..widest.size() {
        let [a, b] = threefry_block([at(0, i), at(1, i)], [at(2, i), at(3, i)]);
        y0.push(a);
        y1.push(b);
    }
    Ok(vec![Array::new(widest.clone(), u32::wrap(y0))?, Array::new(widest, u32::wrap(y1))?])
}

/// The block function of `threefry2x32` for one key and one pair of counters: twenty rounds, with a part of the key added
/// before the first and after every four. It is inlined, so that a caller's loop over many pairs is vectorised. Source: Salmon
/// et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
///
/// ```
/// // The first known answer of the paper's own tests.
/// assert_eq!(remat_ir::threefry_block([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
/// ```
#[inline(always)]
pub fn threefry_block(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let schedule = [key[0], key[1], PARITY ^ key[0] ^ key[1]];
    let mut x = [counter[0].wrapping_add(schedule[0]), counter[1].wrapping_add(schedule[1])];
    for group in 0..5 {
        for distance in ROTATIONS[group % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(distance) ^ x[0];
        }
        x[0] = x[0].wrapping_add(schedule[(group + 1) % 3]);
        x[1] = x[1].wrapping_add(schedule[(group + 2) % 3]).wrapping_add(group as u32 + 1);
    }
    x
}
