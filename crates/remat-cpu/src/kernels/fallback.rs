//! Kernels that ask the evaluator, until every operation has its own.

use remat_ir::{Array, Aval, DType, Data, Element, Op, eval_op, with_dtype};

use super::{Kernel, Layout, Source, Target, attention, conv, library, matmul};
use crate::threads::Threads;

struct Fallback {
    op: Op,
    ins: Vec<(DType, Layout)>,
}

/// The operation's own kernel, or the evaluator as one.
pub(crate) fn kernel(op: &Op, ins: &[(DType, &Layout)], outs: &[Aval]) -> Option<Box<dyn Kernel>> {
    if let (Op::DotGeneral(op), &[lhs, rhs], [out]) = (op, ins, outs) {
        return Some(matmul::kernel(op, [lhs, rhs], out));
    }
    if let Some(kernel) = attention::kernel(op, ins) {
        return Some(kernel);
    }
    if let (Op::Conv(op), &[lhs, rhs], [out]) = (op, ins, outs) {
        return Some(conv::kernel(op, [lhs, rhs], out));
    }
    if ins.iter().all(|(_, layout)| layout.offset == 0 && layout.is_contiguous()) {
        let avals: Vec<Aval> = ins.iter().map(|(dtype, x)| Aval::new(*dtype, x.shape.iter().copied())).collect();
        if let Some(kernel) = library(op, &avals, outs) {
            return Some(kernel);
        }
    }
    Some(Box::new(Fallback { op: op.clone(), ins: ins.iter().map(|(d, l)| (*d, (*l).clone())).collect() }))
}

impl Kernel for Fallback {
    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], _: &Threads) {
        let arrays: Vec<Array> = ins
            .iter()
            .zip(&self.ins)
            .map(|(x, (dtype, layout))| {
                let data: Data = with_dtype!(*dtype, T => {
                    let all = x.slice::<T>();
                    let n = layout.size();
                    let v: Vec<T> = (0..n).map(|mut i| {
                        let mut p = layout.offset as isize;
                        for (&s, &st) in layout.shape.iter().zip(&layout.strides).rev() {
                            p += (i % s) as isize * st;
                            i /= s;
                        }
                        all[p as usize]
                    }).collect();
                    T::wrap(v)
                });
                Array::new(Aval::new(*dtype, layout.shape.iter().copied()), data).expect("size")
            })
            .collect();
        for (out, to) in eval_op(&self.op, &arrays).expect("evaluates").iter().zip(outs) {
            with_dtype!(out.dtype(), T => to.slice_mut::<T>().copy_from_slice(out.as_slice::<T>().expect("dtype")));
        }
    }
}
