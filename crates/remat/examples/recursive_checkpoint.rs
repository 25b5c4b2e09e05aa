//! Names and recursion: the second half of JAX's tutorial on gradient checkpointing
//! (<https://docs.jax.dev/en/latest/gradient-checkpointing.html>); the first is the example `checkpoint`.
//!
//! Run it with `cargo run -p remat --example recursive_checkpoint`.

use remat::report::{print_fwd_bwd, print_saved_residuals, saved_residuals};
use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, grad};

#[derive(Clone, Tree)]
struct Problem {
    params: Vec<Tensor>,
    x: Tensor,
    y: Tensor,
}

/// Layers of sines; their outputs have names.
fn predict(params: &[Tensor], x: &Tensor) -> Tensor {
    let (last, layers) = params.split_last().expect("there is a layer");
    let layer = |x: Tensor, (i, w): (usize, &Tensor)| w.matmul(&x).sin().named(&format!("layer{i}_output"));
    last.matmul(&layers.iter().enumerate().fold(x.clone(), layer))
}

fn loss(problem: &Problem) -> Tensor {
    (predict(&problem.params, &problem.x) - &problem.y).square().sum(..)
}

/// Functions one after the other.
fn chain<'f>(fs: &'f [fn(&Tensor) -> Tensor]) -> impl Fn(&Tensor) -> Tensor + 'f {
    move |x| fs.iter().fold(x.clone(), |x, f| f(&x))
}

/// The same, with a checkpoint around the second half, and both halves made likewise: it keeps about log2 of the number of
/// functions, and computes each up to that often.
fn recursive<'f>(fs: &'f [fn(&Tensor) -> Tensor]) -> Box<dyn Fn(&Tensor) -> Tensor + 'f> {
    if fs.len() <= 2 {
        return Box::new(chain(fs));
    }
    let (first, second) = fs.split_at(fs.len() / 2);
    let first = checkpoint(Policy::Nothing, recursive(first));
    let second = recursive(second);
    Box::new(move |x| second(&first(x)))
}

fn main() -> Result<()> {
    let problem = Problem {
        params: vec![Tensor::ones([4, 4], DType::F32); 3],
        x: Tensor::ones([4], DType::F32),
        y: Tensor::ones([4], DType::F32),
    };
    println!("Without a checkpoint:");
    print_saved_residuals(loss, &problem)?;

    println!("\nOne layer's output is kept, by its name:");
    let named = checkpoint(Policy::names(["layer0_output"]), loss);
    print_saved_residuals(&named, &problem)?;

    println!("\nAll that has a name but this one:");
    print_saved_residuals(checkpoint(Policy::any_names_but(["layer1_output"]), loss), &problem)?;

    println!("\nA mistyped name is an error:");
    let error = grad(checkpoint(Policy::names(["layer0_outptu"]), loss))(&problem).map(drop);
    println!("{}", error.expect_err("no value has this name"));

    println!("\nEight sines, each kept:");
    let (x, sines) = (Tensor::from(3.0f32), [(|x: &Tensor| x.sin()) as fn(&Tensor) -> Tensor; 16]);
    print_saved_residuals(chain(&sines[..8]), &x)?;
    println!("\nThe same by recursion:");
    print_saved_residuals(recursive(&sines[..8]), &x)?;
    print_fwd_bwd(recursive(&sines[..8]), &x)?;

    let kept = |f: &dyn Fn(&Tensor) -> Tensor| Ok::<_, remat::Error>(saved_residuals(f, &x)?.intermediates().count());
    println!("\n16 sines keep {} values, and {} by recursion", kept(&chain(&sines))?, kept(&recursive(&sines))?);
    assert_eq!(grad(chain(&sines))(&x)?.item::<f32>()?, grad(recursive(&sines))(&x)?.item::<f32>()?);
    Ok(())
}
