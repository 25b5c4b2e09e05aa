//! Many layers of one kind.

use remat::nn::{
    Block, Gpt2, Gpt2Config, Initializer, Linear, Stack, cross_entropy, kl_divergence, mean_squared_error,
    next_token_loss, smoothed_cross_entropy,
};
use remat::report::saved_residuals;
use remat::{DType, Layers, Policy, Result, Tensor, checkpoint_layers, grad, make_jaxpr, random};

pub(crate) fn main() -> Result<()> {
    println!("== stack");
    // ANCHOR: stack
    let list = Stack::init(random::key(0), 12, |key| Block::init(key, 32, 4, DType::F32));
    let stacked = list.clone().stacked()?;
    let x = random::normal(random::key(1), [2, 16, 32], DType::F32);
    let loss = |blocks: &Stack<Block>| -> Result<Tensor> {
        Ok(blocks.apply(|block, x| block.apply(x), &x)?.square().mean(..))
    };

    for (name, blocks) in [("a list", &list), ("stacked", &stacked)] {
        let equations = make_jaxpr(loss)(blocks)?.jaxpr.eqns.len();
        println!("{name}: {equations} equations");
    }
    // ANCHOR_END: stack

    println!("== policies");
    // ANCHOR: policies
    for policy in [None, Some(Policy::Dots), Some(Policy::names(["attn"])), Some(Policy::Nothing)] {
        let name = policy.as_ref().map_or("none".to_string(), Policy::to_string);
        let kept = saved_residuals(loss, &stacked.clone().with_policy(policy))?.intermediate_bytes();
        println!("{name:<16} {kept:>8} bytes");
    }
    // ANCHOR_END: policies

    println!("== levels");
    // ANCHOR: levels
    let frugal = stacked.clone().with_policy(Policy::Nothing);
    for levels in [1, 2, 3] {
        let blocks = frugal.clone().with_levels(levels);
        let kept = saved_residuals(loss, &blocks)?.intermediate_bytes();
        println!("levels {levels}: {kept:>6} bytes");
    }
    // The gradients are those of the list.
    let one = grad(loss)(&list)?.stacked()?.to_layers();
    let other = grad(loss)(&frugal.with_levels(2))?.to_layers();
    assert!(one[3].mlp.up.weight.allclose(&other[3].mlp.up.weight, 1e-5, 1e-7)?);
    // ANCHOR_END: levels

    println!("== select");
    // ANCHOR: select
    let config =
        Gpt2Config { vocab_size: 50, n_positions: 32, n_embd: 32, n_layer: 6, n_head: 2, ..Gpt2Config::default() };
    let model = Gpt2::init(random::key(0), &config, DType::F32);
    let tokens = Tensor::arange(0..64).reshape([2, 32]) % 50;
    let loss = |model: &Gpt2| next_token_loss(&model.apply(&tokens), &tokens, None);

    println!("{:<33} {:>7}", "no layer", saved_residuals(loss, &model)?.intermediate_bytes());
    for layers in [
        Layers::named("block"),
        Layers::named("block").every(2),
        Layers::named("block").skip(3),
        Layers::named("block/mlp"),
        Layers::matching(|path| path.ends_with("/attention")),
    ] {
        let frugal = checkpoint_layers(layers.clone(), Policy::Nothing, loss);
        println!("{:<33} {:>7}", layers.to_string(), saved_residuals(&frugal, &model)?.intermediate_bytes());
    }
    // ANCHOR_END: select

    println!("== losses");
    // ANCHOR: losses
    let logits = random::normal(random::key(2), [64, 1000], DType::F32);
    let (classes, targets) = (Tensor::arange(0..64), logits.softmax(-1));
    let losses: [(&str, &dyn Fn(&Tensor) -> Tensor); 4] = [
        ("cross_entropy", &|x| cross_entropy(x, &classes)),
        ("smoothed_cross_entropy", &|x| smoothed_cross_entropy(x, &classes, 0.1)),
        ("kl_divergence", &|x| kl_divergence(&x.log_softmax(-1), &targets)),
        ("mean_squared_error", &|x| mean_squared_error(x, &targets)),
    ];
    for (name, loss) in losses {
        println!("{name:<22} {:>7} bytes", saved_residuals(loss, &logits)?.intermediate_bytes());
    }
    // ANCHOR_END: losses

    println!("== initializers");
    // ANCHOR: initializers
    let hidden = Linear {
        weight: Initializer::HeNormal.linear(random::key(3), 256, 256, DType::F32),
        ..Linear::init(random::key(4), 256, 256, DType::F32)
    };
    let orthogonal = Initializer::Orthogonal.linear(random::key(5), 256, 256, DType::F32);
    println!("standard deviation {:.4}", hidden.weight.std(..).item::<f32>()?);
    assert!(orthogonal.matmul(&orthogonal.t()).allclose(&Tensor::eye(256, DType::F32), 0.0, 1e-5)?);
    // ANCHOR_END: initializers
    Ok(())
}
