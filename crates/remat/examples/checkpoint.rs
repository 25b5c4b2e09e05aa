//! What the backward pass keeps, and how a checkpoint changes it: the first half of JAX's tutorial on gradient
//! checkpointing (<https://docs.jax.dev/en/latest/gradient-checkpointing.html>).
//!
//! Run it with `cargo run -p remat --example checkpoint`.

use remat::report::{print_fwd_bwd, print_saved_residuals, saved_residuals};
use remat::{DType, Policy, Result, Tensor, checkpoint, grad};

/// Three matrices and a vector.
type Args = (Tensor, Tensor, Tensor, Tensor);

/// One layer. Its gradient needs `w`, `x` and the cosine of the product.
fn g((w, x): &(Tensor, Tensor)) -> Tensor {
    w.matmul(x).sin()
}

/// Three layers without a checkpoint.
fn f((w1, w2, w3, x): &Args) -> Tensor {
    let x = g(&(w1.clone(), x.clone()));
    let x = g(&(w2.clone(), x));
    g(&(w3.clone(), x))
}

/// The same layers, each computed again in the backward pass from what went into it.
fn f2((w1, w2, w3, x): &Args) -> Tensor {
    let g = checkpoint(Policy::Nothing, g);
    let x = g(&(w1.clone(), x.clone()));
    let x = g(&(w2.clone(), x));
    g(&(w3.clone(), x))
}

fn main() -> Result<()> {
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32);
    let args: Args = (ones(&[5, 4]), ones(&[6, 5]), ones(&[7, 6]), ones(&[4]));

    println!("Without a checkpoint the backward pass keeps the sines and the cosines:");
    print_saved_residuals(f, &args)?;

    println!("\nWith one around each layer it keeps what enters the layers:");
    print_saved_residuals(f2, &args)?;

    println!("\nWith one around the whole, and a policy that keeps matrix products, the sines are computed again:");
    let f3 = checkpoint(Policy::DotsWithNoBatchDims, f);
    print_saved_residuals(&f3, &args)?;

    println!("\nThe programs show it: on the left what runs forward, on the right what runs backward.");
    print_fwd_bwd(&f3, &args)?;

    // The gradients are the same, in every bit.
    let plain = grad(|args: &Args| f(args).sum(..))(&args)?;
    for other in [grad(|args: &Args| f2(args).sum(..))(&args)?, grad(|args: &Args| f3(args).sum(..))(&args)?] {
        assert_eq!(plain.0.to_vec::<f32>()?, other.0.to_vec::<f32>()?);
        assert_eq!(plain.3.to_vec::<f32>()?, other.3.to_vec::<f32>()?);
    }

    // What is saved can be read by a program too.
    let bytes = |f: &dyn Fn(&Args) -> Tensor| Ok::<_, remat::Error>(saved_residuals(f, &args)?.intermediate_bytes());
    let (plain, layers, dots) = (bytes(&f)?, bytes(&f2)?, bytes(&f3)?);
    println!("\nintermediate bytes: {plain} without checkpoint, {layers} by layer, {dots} with matrix products kept");
    assert!(layers < plain && dots < plain);
    Ok(())
}
