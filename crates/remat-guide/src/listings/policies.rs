//! Transformer blocks under each policy.

use remat::argument::keep;
use remat::ir::{Decision, MemorySpace};
use remat::report::{Reason, policy_decisions, readable_bytes, saved_residuals};
use remat::{DType, Error, Policy, Result, Tensor, checkpoint, custom_remat, grad, jit, nn, random, value_and_grad};

pub(crate) fn main() -> Result<()> {
    // ANCHOR: setup
    let [weights, data] = random::key(0).split();
    let blocks = nn::Stack::init(weights, 6, |key| nn::Block::init(key, 64, 4, DType::F32));
    let x = random::normal(data, [4, 128, 64], DType::F32);
    // ANCHOR_END: setup

    println!("== table");
    // ANCHOR: table
    type Blocks = nn::Stack<nn::Block>;
    let loss =
        |blocks: &Blocks| -> Result<Tensor> { Ok(blocks.apply(|block, x| block.apply(x), &x)?.square().mean(..)) };
    let step = jit(|blocks: &Blocks| value_and_grad(loss)(blocks));
    let plain = step.cost(&blocks)?.flops;
    println!("{:<34} {:>10} {:>10}  {:>10}", "policy", "peak", "saved", "operations");
    for policy in [
        None,
        Some(Policy::Everything),
        Some(Policy::Dots),
        Some(Policy::DotsWithNoBatchDims),
        Some(Policy::names(["attn", "up"])),
        Some(Policy::names(["attn"])),
        Some(Policy::budget(256 << 10)),
        Some(Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host)),
        Some(Policy::Nothing),
    ] {
        let name = Policy::name_of(policy.as_ref());
        let blocks = blocks.clone().with_policy(policy);
        let peak = readable_bytes(step.memory(&blocks)?.peak);
        let saved = readable_bytes(saved_residuals(loss, &blocks)?.intermediate_bytes());
        println!(
            "{name:<34} {peak:>10} {saved:>10}  {:>9.0} %",
            100.0 * step.cost(&blocks)?.flops as f64 / plain as f64
        );
    }
    // ANCHOR_END: table
    let peak = |policy: Option<Policy>| Ok::<_, Error>(step.memory(&blocks.clone().with_policy(policy))?.peak);
    let names = peak(Some(Policy::names(["attn"])))?;
    assert!(names < peak(Some(Policy::names(["attn", "up"])))? && names < peak(Some(Policy::DotsWithNoBatchDims))?);
    assert!(peak(Some(Policy::DotsWithNoBatchDims))? < peak(None)?);

    println!("== combined");
    // ANCHOR: combined
    // One name or another; all that is not a product; and one of your own: nothing above 256 KiB.
    let small = Policy::custom("small", |candidate| {
        let bytes: usize = candidate.outs.iter().map(|aval| aval.bytes()).sum();
        (bytes > 256 * 1024).then_some(Decision::Recompute)
    });
    for policy in [
        Policy::names(["attn"]).or(Policy::names(["up"])),
        Policy::Everything.and(Policy::Dots.not()),
        Policy::First(vec![small, Policy::Everything]),
    ] {
        let saved = saved_residuals(loss, &blocks.clone().with_policy(Some(policy.clone())))?.intermediate_bytes();
        println!("{:<38} {saved:>9}", policy.to_string());
    }
    // ANCHOR_END: combined

    println!("== budget");
    // ANCHOR: budget
    let block = nn::Block::init(random::key(1), 64, 4, DType::F32);
    let region = checkpoint(Policy::budget(600 << 10), |block: &nn::Block| block.apply(&x).square().mean(..));
    let saved = saved_residuals(|block: &nn::Block| region(block), &block)?;
    println!("{} in {} values", readable_bytes(saved.intermediate_bytes()), saved.intermediates().count());
    let decisions = policy_decisions(|block: &nn::Block| region(block), &block)?;
    for kept in decisions.iter().filter(|d| d.decision == Decision::Save && d.has_effect()) {
        if let Reason::Saves { picoseconds, bytes } = kept.reason {
            println!(
                "{:<12} {:>4} ns for {:>6} bytes: {}",
                kept.aval.to_string(),
                picoseconds / 1000,
                bytes,
                kept.kind
            );
        }
    }
    // ANCHOR_END: budget

    println!("== strength");
    // ANCHOR: strength
    let (attention, budget) = (Policy::names(["attn"]), Policy::budget(600 << 10));
    for policy in
        [budget.clone(), Policy::must(attention.clone()).or(budget.clone()), Policy::prefer(Policy::Dots).or(budget)]
    {
        let region = checkpoint(policy.clone(), |block: &nn::Block| block.apply(&x).square().mean(..));
        let saved = saved_residuals(|block: &nn::Block| region(block), &block)?;
        let named = saved.intermediates().filter(|value| value.kind.to_string() == "named 'attn'").count();
        let products = saved.intermediates().filter(|value| value.kind.to_string() == "output of dot_general").count();
        println!("{:<38} {named} named, {products} products", policy.to_string());
    }
    let contradiction = checkpoint(Policy::must(attention).or(Policy::budget(1 << 10)), |block: &nn::Block| {
        block.apply(&x).square().mean(..)
    });
    println!("{}", grad(|block: &nn::Block| contradiction(block))(&block).unwrap_err().message());
    // ANCHOR_END: strength

    println!("== custom");
    // ANCHOR: custom
    // A norm with a scale. From its result, which the product after it keeps anyway, it computes its normalised values again.
    type Pair = (Tensor, Tensor);
    let norm = custom_remat(
        |(x, scale): &Pair, _: Option<&Policy>| {
            let centered = x - x.mean(keep(-1));
            let deviation = (centered.square().mean(keep(-1)) + 1e-5).sqrt();
            let y = centered / &deviation * scale;
            (y.clone(), (y, deviation))
        },
        |(_, scale): &Pair, (y, _): &Pair| (y / scale, scale.clone()),
        |(_, deviation): &Pair, (z, scale): &Pair, ct: &Tensor| {
            let d = ct * scale;
            let dx = (&d - d.mean(keep(-1)) - z * (&d * z).mean(keep(-1))) / deviation;
            (dx, (ct * z).sum([0, 1]))
        },
    );
    let plain = |(x, scale): &Pair| {
        let centered = x - x.mean(keep(-1));
        &centered / (centered.square().mean(keep(-1)) + 1e-5).sqrt() * scale
    };
    let (w, scale) = (Tensor::eye(64, DType::F32), Tensor::ones([64], DType::F32));
    let layer = |norm: &dyn Fn(&Pair) -> Tensor, (w, scale): &Pair| {
        norm(&(x.matmul(w), scale.clone())).matmul(w).square().mean(..)
    };
    let args = (w, scale);
    for (name, norm) in [("plain", &plain as &dyn Fn(&Pair) -> Tensor), ("passes its result", &norm)] {
        let saved = saved_residuals(|args: &Pair| layer(norm, args), &args)?;
        println!("{name}: {}", readable_bytes(saved.intermediate_bytes()));
        saved.intermediates().for_each(|value| println!("  {} {}", value.aval, value.kind));
    }
    // ANCHOR_END: custom
    let gradient = |norm: &dyn Fn(&Pair) -> Tensor| grad(|args: &Pair| layer(norm, args))(&args);
    assert!(gradient(&norm)?.0.allclose(&gradient(&plain)?.0, 1e-4, 1e-6)?);
    Ok(())
}
