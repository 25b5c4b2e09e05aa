//! Many layers of one kind.

use remat::nn::{Block, Gpt2, Gpt2Config, Stack, next_token_loss};
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
        let name = Policy::name_of(policy.as_ref());
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
    Ok(())
}
