//! The first NaN and the index out of range, with their lines, and prints.

use remat::{Checks, DType, Policy, Result, Tensor, checkpoint, debug_print, grad, jit, scan, value_and_grad, vmap};

pub(crate) fn main() -> Result<()> {
    println!("== nans");
    // ANCHOR: nans
    // The distance of each step of a walk from its mean. In step 3 the walk stands still there.
    let walk = Tensor::new([[2.0f32, 1.0], [0.5, -1.0], [0.0, 3.0], [0.0, 0.0], [1.0, 1.0]]);
    let loss = |scale: &Tensor| -> Result<Tensor> {
        let body = |sum: &Tensor, step: &Tensor| {
            let distance = (step * scale).square().sum(..).sqrt();
            (sum + distance, ())
        };
        Ok(scan(body, &Tensor::from(0.0f32), &walk)?.0)
    };
    let step = jit(|scale: &Tensor| value_and_grad(loss)(scale)).checks(Checks::NANS);
    if let Err(error) = step.call(Tensor::from(1.0f32)) {
        println!("{error}");
    }
    // ANCHOR_END: nans

    println!("== indices");
    // ANCHOR: indices
    let table = Tensor::ones([100, 8], DType::F32);
    let embed = jit(|tokens: &Tensor| table.take(tokens, 0).mean(..)).checks(Checks::INDICES);
    if let Err(error) = embed.call(Tensor::new([[5, 17], [100, 3]])) {
        println!("{error}");
    }
    // ANCHOR_END: indices

    println!("== prints");
    // ANCHOR: prints
    // Two layers with these scales, each a region: the backward pass computes all of it again.
    let scales = Tensor::new([0.5f32, 2.0]);
    let loss = |xs: &Tensor| -> Result<Tensor> {
        let layer = checkpoint(Policy::Nothing, |(x, scale): &(Tensor, Tensor)| -> Result<Tensor> {
            let next = (x * scale).tanh();
            debug_print("{:.3} after scale {}", &(next.clone(), scale.clone()))?;
            Ok(next)
        });
        let model = vmap(|x: &Tensor| -> Result<Tensor> {
            Ok(scan(|x: &Tensor, scale: &Tensor| Ok((layer(&(x.clone(), scale.clone()))?, ())), x, &scales)?.0)
        });
        let sum = model(xs)?.sum(..);
        debug_print("loss {}", &sum)?;
        Ok(sum)
    };
    jit(grad(loss)).call(Tensor::new([0.1f32, 0.2, 0.3]))?;
    // ANCHOR_END: prints
    Ok(())
}
