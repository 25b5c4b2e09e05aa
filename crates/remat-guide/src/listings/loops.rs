//! Long loops.

use remat::report::saved_residuals;
use remat::{
    DType, LoopScheme, Policy, Result, Tensor, binomial_steps, checkpoint, grad, scan, scan_checkpointed,
    while_loop_checkpointed,
};

pub(crate) fn main() -> Result<()> {
    println!("== scan");
    // ANCHOR: scan
    // 1,000 positions of a recurrent network: [features] of state, [1000, features] of inputs.
    let weights = Tensor::eye(16, DType::F32) * 0.9;
    let inputs = Tensor::linspace(-1.0, 1.0, 1000, DType::F32).expand_dims(1) * Tensor::ones([16], DType::F32);
    let next = |h: &Tensor, x: &Tensor| (h.matmul(&weights).sin() + x).tanh();
    let begin = Tensor::zeros([16], DType::F32);

    let plain = |h: &Tensor| Ok(scan(|h: &Tensor, x: &Tensor| (next(h, x), ()), h, &inputs)?.0.sum(..));
    println!("{:<32} {:>7} bytes", "scan", saved_residuals(plain, &begin)?.intermediate_bytes());
    for scheme in
        [LoopScheme::Levels(2), LoopScheme::Levels(3), LoopScheme::Blocks(vec![50]), LoopScheme::Binomial { states: 8 }]
    {
        let f = |h: &Tensor| {
            let body = |h: &Tensor, x: &Tensor| (next(h, x), ());
            Ok(scan_checkpointed(scheme.clone(), body, h, &inputs)?.0.sum(..))
        };
        println!("{:<32} {:>7} bytes", format!("{scheme:?}"), saved_residuals(f, &begin)?.intermediate_bytes());
        assert!(grad(f)(&begin)?.allclose(&grad(plain)(&begin)?, 1e-5, 1e-7)?);
    }
    // ANCHOR_END: scan

    println!("== body");
    // ANCHOR: body
    // A checkpoint in the body: each iteration keeps its state, and nothing that it computes.
    let body = checkpoint(Policy::Nothing, |(h, x): &(Tensor, Tensor)| next(h, x));
    let f = |h: &Tensor| Ok(scan(|h: &Tensor, x: &Tensor| (body(&(h.clone(), x.clone())), ()), h, &inputs)?.0.sum(..));
    println!("scan of a checkpoint: {} bytes", saved_residuals(f, &begin)?.intermediate_bytes());
    // ANCHOR_END: body

    println!("== binomial");
    // ANCHOR: binomial
    for states in [4, 8, 16, 32] {
        let again = binomial_steps(1000, states).unwrap_or_default();
        println!("{states:>2} states: {again} iterations to go back over 1,000");
    }
    // ANCHOR_END: binomial

    println!("== while");
    // ANCHOR: while
    // Newton's method for the cube root: it runs until it is exact enough. Eight states are kept, however long it takes.
    let cube_root = |a: &Tensor| {
        let newton = |(a, x): &(Tensor, Tensor)| (a.clone(), (x * 2.0 + a / x.square()) / 3.0);
        let goes_on = |(a, x): &(Tensor, Tensor)| (x.powi(3) - a).abs().gt(1e-9);
        Ok(while_loop_checkpointed(8, goes_on, newton, &(a.clone(), a.clone()))?.1)
    };
    let a = Tensor::from(27.0f64);
    println!("{:.6}, and its derivative {:.6}", cube_root(&a)?.item::<f64>()?, grad(cube_root)(&a)?.item::<f64>()?);
    // ANCHOR_END: while
    Ok(())
}
