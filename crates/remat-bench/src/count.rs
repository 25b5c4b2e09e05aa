//! The operations of a program that count as useful: those of matrix products and convolutions.

use remat::{Call, Jaxpr, Op, Prim};

/// Additions and multiplications in the matrix products and convolutions of a program, the bodies of its loops counted as
/// often as they run; attention as one operation has none. Of branches all count, and the body of a `while`, whose number of
/// runs nobody knows, counts once.
pub(crate) fn products(jaxpr: &Jaxpr) -> f64 {
    let elements = |shape: &[usize]| shape.iter().map(|&n| n as f64).product::<f64>();
    let mut sum = 0.0;
    for eqn in &jaxpr.eqns {
        let shape = |i: usize| eqn.ins[i].var().map_or(&[][..], |var| &jaxpr.aval(var).shape[..]);
        let out = eqn.outs.first().map_or(0.0, |&var| elements(&jaxpr.aval(var).shape));
        sum += match &eqn.op {
            Op::Prim(Prim::DotGeneral(dot)) => {
                2.0 * out * dot.lhs_contract.iter().map(|&d| shape(0)[d] as f64).product::<f64>()
            }
            // A kernel has the features of one group already.
            Op::Prim(Prim::Conv(conv)) => {
                let kernel = shape(1);
                2.0 * out * elements(kernel) / (kernel[conv.rhs_dims.first] as f64).max(1.0)
            }
            Op::Call(Call::Scan(scan)) => scan.length as f64 * products(&scan.jaxpr),
            // The derivative of a function is no part of its value.
            Op::Call(Call::CustomJvp(op)) => products(&op.call),
            Op::Call(Call::CustomVjp(op)) => products(&op.call),
            op => op.bodies().into_iter().map(|body| products(body)).sum(),
        };
    }
    sum
}
