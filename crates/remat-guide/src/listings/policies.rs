//! A transformer block under each policy.

use remat::ir::{Decision, MemorySpace};
use remat::report::saved_residuals;
use remat::{DType, Policy, Result, checkpoint, jit, nn, random, value_and_grad};

pub(crate) fn main() -> Result<()> {
    // ANCHOR: setup
    let [weights, data] = random::key(0).split();
    let block = nn::Block::init(weights, 64, 4, DType::F32);
    let x = random::normal(data, [4, 128, 64], DType::F32);
    // ANCHOR_END: setup

    println!("== table");
    // ANCHOR: table
    let run = |policy: Option<Policy>| checkpoint(policy, |block: &nn::Block| block.apply(&x).square().mean(..));
    let plain = jit(|block: &nn::Block| value_and_grad(run(None))(block)).cost(&block)?.flops;
    println!("{:<34} {:>9}  {:>10}", "policy", "saved", "operations");
    for policy in [
        None,
        Some(Policy::Everything),
        Some(Policy::Dots),
        Some(Policy::DotsWithNoBatchDims),
        Some(Policy::names(["attn", "mlp"])),
        Some(Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host)),
        Some(Policy::Nothing),
    ] {
        let saved = saved_residuals(run(policy.clone()), &block)?.intermediate_bytes();
        let flops = jit(|block: &nn::Block| value_and_grad(run(policy.clone()))(block)).cost(&block)?.flops;
        let name = policy.map_or("none".to_string(), |policy| policy.to_string());
        println!("{name:<34} {saved:>9}  {:>9.0} %", 100.0 * flops as f64 / plain as f64);
    }
    // ANCHOR_END: table

    println!("== combined");
    // ANCHOR: combined
    // One name or another; all that is not a product; and one of your own: nothing above 256 KiB.
    let small = Policy::custom("small", |candidate| {
        let bytes: usize = candidate.outs.iter().map(|aval| aval.bytes()).sum();
        (bytes > 256 * 1024).then_some(Decision::Recompute)
    });
    for policy in [
        Policy::names(["attn"]).or(Policy::names(["mlp"])),
        Policy::Everything.and(Policy::Dots.not()),
        Policy::First(vec![small, Policy::Everything]),
    ] {
        let saved = saved_residuals(run(Some(policy.clone())), &block)?.intermediate_bytes();
        println!("{:<38} {saved:>9}", policy.to_string());
    }
    // ANCHOR_END: combined
    Ok(())
}
