//! Many layers of one shape as a loop: `scan` over stacked weights, with a checkpoint in its body.
//!
//! The program has one copy of the layer whatever the depth, and the checkpoint's policy says what each iteration keeps.
//! Run it with `cargo run -p remat --example scan_layers`.

use remat::report::saved_residuals;
use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, grad, make_jaxpr, random, scan};

/// The weights of a layer, or of all layers stacked: the same type.
#[derive(Clone, Tree)]
struct Layer {
    up: Tensor,
    down: Tensor,
}

impl Layer {
    fn init(key: random::Key, depth: usize, width: usize) -> Layer {
        let [up, down] = key.split();
        let scale = (width as f64).powf(-0.5);
        Layer {
            up: random::normal(up, [depth, width, 4 * width], DType::F32) * scale,
            down: random::normal(down, [depth, 4 * width, width], DType::F32) * (0.5 * scale),
        }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        x + x.matmul(&self.up).gelu().named("hidden").matmul(&self.down)
    }
}

/// The loss of a stack of layers.
fn loss(layers: &Layer, x: &Tensor, policy: Policy) -> Result<Tensor> {
    let body = checkpoint(policy, |(x, layer): &(Tensor, Layer)| layer.apply(x));
    let (x, _) = scan(|x: &Tensor, layer: &Layer| (body(&(x.clone(), layer.clone())), ()), x, layers)?;
    Ok(x.square().mean(..))
}

fn main() -> Result<()> {
    let (depth, width) = (24, 32);
    let [weights, data] = random::key(0).split();
    let layers = Layer::init(weights, depth, width);
    let x = random::normal(data, [16, width], DType::F32);

    let jaxpr = make_jaxpr(|layers: &Layer| loss(layers, &x, Policy::Nothing))(&layers)?;
    println!("{depth} layers are {} equations, one of which is the loop", jaxpr.jaxpr.eqns.len());

    let mut gradients = Vec::new();
    for policy in [Policy::Everything, Policy::names(["hidden"]), Policy::Nothing] {
        let loss = |layers: &Layer| loss(layers, &x, policy.clone());
        let kept = saved_residuals(loss, &layers)?.intermediate_bytes();
        println!("{:<15} keeps {kept:>9} bytes", policy.to_string());
        gradients.push(grad(loss)(&layers)?.up.to_vec::<f32>()?);
    }
    assert!(gradients.iter().all(|gradient| *gradient == gradients[0]));
    println!("and the gradients are the same, in every bit");
    Ok(())
}
