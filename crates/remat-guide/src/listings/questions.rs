//! Answers that are programs.

use remat::ir::Decision;
use remat::nn::{self, BatchNorm, RunningStatistics, dropout};
use remat::report::{policy_decisions, print_saved_residuals, saved_residuals};
use remat::{DType, Policy, Result, Tensor, checkpoint, grad, grad_aux, jit, random, scan, vmap};

pub(crate) fn main() -> Result<()> {
    let x = random::normal(random::key(0), [64, 32], DType::F32);

    println!("== cpu");
    // ANCHOR: cpu
    // Ten layers of two products.
    let [up, down] = random::key(1).split();
    let up = random::normal(up, [10, 64, 256], DType::F32) * 0.1;
    let down = random::normal(down, [10, 256, 64], DType::F32) * 0.1;
    let layer = |x: &Tensor, i: usize| x + x.matmul(&up.index(i)).gelu().matmul(&down.index(i));
    let plain = |x: &Tensor| (0..10).fold(x.clone(), |x, i| layer(&x, i)).square().sum(..);
    let each = |x: &Tensor| {
        let region = |x: Tensor, i| checkpoint(Policy::Nothing, |x: &Tensor| layer(x, i))(&x);
        (0..10).fold(x.clone(), region).square().sum(..)
    };
    let whole = checkpoint(Policy::Nothing, plain);

    let wide = Tensor::ones([512, 64], DType::F32);
    let temporaries = |f: &dyn Fn(&Tensor) -> Tensor| {
        Ok::<_, remat::Error>(jit(|x: &Tensor| grad(f)(x)).memory(&wide)?.temporaries as f64 / (1 << 20) as f64)
    };
    println!("no checkpoint:           {:>4.1} MiB of temporaries", temporaries(&plain)?);
    println!("around each layer:       {:>4.1} MiB", temporaries(&each)?);
    println!("around all ten together: {:>4.1} MiB", temporaries(&|x: &Tensor| whole(x))?);
    // ANCHOR_END: cpu
    assert!(
        temporaries(&each)? < 0.5 * temporaries(&plain)? && temporaries(&|x| whole(x))? > 0.9 * temporaries(&plain)?
    );

    println!("== dropout");
    // ANCHOR: dropout
    let noisy = |x: &Tensor| dropout(random::key(7), x, 0.5).square().sum(..);
    let plain = grad(noisy)(&x)?;
    let again = grad(checkpoint(Policy::Nothing, noisy))(&x)?;
    assert_eq!(plain.to_vec::<f32>()?, again.to_vec::<f32>()?);
    println!("the mask of the backward pass is that of the forward pass");
    // ANCHOR_END: dropout

    println!("== norm");
    // ANCHOR: norm
    let norm = BatchNorm::init(32, DType::F32);
    let before = RunningStatistics::init(32, DType::F32);
    let f = |x: &Tensor| -> Result<(Tensor, RunningStatistics)> {
        let (y, after) = norm.train(x, &before)?;
        Ok((y.tanh().sum(..), after))
    };
    let (_, once) = grad_aux(f)(&x)?;
    let (_, recomputed) = grad_aux(checkpoint(Policy::Nothing, f))(&x)?;
    assert_eq!(once.mean.to_vec::<f32>()?, recomputed.mean.to_vec::<f32>()?);
    println!("the statistics have met the batch once");
    // ANCHOR_END: norm

    println!("== noeffect");
    // ANCHOR: noeffect
    // The sum needs no value of `last`, so that saving it makes no difference.
    let f = |x: &Tensor| x.sin().named("first").sin().named("last").sum(..);
    let kept = checkpoint(Policy::names(["first", "last"]), f);
    for decision in policy_decisions(&kept, &x)?.without_effect().filter(|d| d.decision == Decision::Save) {
        println!("{decision}");
    }
    // ANCHOR_END: noeffect

    println!("== inside");
    // ANCHOR: inside
    // A policy reaches into loops and jitted functions, and the report says so.
    let w = Tensor::ones([32, 32], DType::F32) * 0.01;
    let f = |x: &Tensor| {
        let body = |x: &Tensor, _: &Tensor| (x.matmul(&w).named("product").tanh(), ());
        Ok(scan(body, x, &Tensor::arange(0..6))?.0.sum(..))
    };
    print_saved_residuals(checkpoint(Policy::names(["product"]), f), &x)?;
    // ANCHOR_END: inside

    println!("== second");
    // ANCHOR: second
    // Second derivatives, and a vmap around them.
    let region = checkpoint(Policy::Nothing, |x: &Tensor| x.sin() * x);
    let second = vmap(grad(grad(|x: &Tensor| region(x))))(&Tensor::new([0.5f64, 1.0]))?;
    println!("{second}");
    // ANCHOR_END: second

    println!("== frozen");
    // ANCHOR: frozen
    // The loss captures the frozen layer and is differentiated with respect to the other.
    let (frozen, trained) = {
        let [a, b] = random::key(3).split();
        (nn::Linear::init(a, 32, 32, DType::F32), nn::Linear::init(b, 32, 4, DType::F32))
    };
    let loss = |trained: &nn::Linear| trained.apply(&frozen.apply(&x).relu()).square().mean(..);
    let region = checkpoint(Policy::Nothing, loss);
    println!(
        "{} bytes, and {} in a region",
        saved_residuals(loss, &trained)?.intermediate_bytes(),
        saved_residuals(&region, &trained)?.intermediate_bytes()
    );
    // ANCHOR_END: frozen
    Ok(())
}
