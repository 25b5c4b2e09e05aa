//! The same bits as another dtype.

use remat_ir::{Aval, BitcastConvertType, DType};

use crate::base::copy::copy;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

// A narrower dtype gets the low end first, as in the memory of little-endian CPUs, for which this engine is built.
const _: () = assert!(cfg!(target_endian = "little"));

/// The kernel of a bitcast of a row-major operand to a dtype of any width. In place nothing is copied.
pub(crate) fn kernel(_op: &BitcastConvertType, ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    Box::new(Bitcast { is_bool: ins[0].dtype == DType::Bool })
}

struct Bitcast {
    is_bool: bool,
}

impl Kernel for Bitcast {
    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
        if ins[0].is_in_place() {
            return;
        }
        if self.is_bool {
            copy(ins[0].words::<bool>(), outs[0].words_mut(), threads);
        } else {
            copy(ins[0].words::<u8>(), outs[0].words_mut(), threads);
        }
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::Op;

    use super::*;
    use crate::test_support::{check, wild};

    #[test]
    fn every_dtype_has_the_bits_of_every_other() {
        for from in DType::ALL {
            for to in DType::ALL.into_iter().filter(|&to| (from == DType::Bool) == (to == DType::Bool)) {
                let last = (to.size() > from.size()).then_some(to.size() / from.size());
                // Bytes are copied whatever they are, in many tasks where there are many.
                let large = if from == to { 70_003 } else { 703 };
                for shape in [&[][..], &[3, 5], &[0], &[2, 0, 3], &[large]] {
                    let shape: Vec<usize> = shape.iter().copied().chain(last).collect();
                    let op = BitcastConvertType { dtype: to };
                    check(&Op::from(op), |ins, outs| kernel(&op, ins, outs), &[wild(from, &shape, 7)]);
                }
            }
        }
    }
}
