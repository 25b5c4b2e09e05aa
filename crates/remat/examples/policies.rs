//! Policies: by name, by operation, combined, and your own.
//!
//! Run it with `cargo run -p remat --example policies`.

use remat::ir::{Decision, MemorySpace};
use remat::report::saved_residuals;
use remat::{DType, Policy, Result, Tensor, checkpoint, grad};

/// A gated layer, whose interesting values have names.
fn layer((w, gate, x): &(Tensor, Tensor, Tensor)) -> Tensor {
    let up = x.matmul(w).named("up");
    let gate = x.matmul(gate).sigmoid().named("gate");
    (up * gate).tanh()
}

fn main() -> Result<()> {
    let ones = |shape: [usize; 2]| Tensor::ones(shape, DType::F32) * 0.125;
    let args = (ones([64, 256]), ones([64, 256]), ones([32, 64]));

    let large = |bytes: usize| {
        // A policy of your own sees the operation, the types and the name, and may leave a decision open.
        Policy::custom(format!("at most {bytes} bytes"), move |candidate| {
            let size: usize = candidate.outs.iter().map(|aval| aval.bytes()).sum();
            (size > bytes).then_some(Decision::Recompute)
        })
    };
    let policies = [
        Policy::Nothing,
        Policy::Everything,
        Policy::Dots,
        Policy::names(["gate"]),
        Policy::any_names_but(["gate"]),
        Policy::anything_but(["up", "gate"]),
        // What a policy moves to the memory of the host takes none on the device.
        Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host),
        Policy::save_and_offload_names(["gate"], ["up"]),
        // Combinations.
        Policy::names(["gate"]).or(Policy::names(["up"])),
        Policy::Dots.and(Policy::names(["up"]).not()),
        Policy::First(vec![large(40_000), Policy::Everything]),
        Policy::First(vec![large(20_000), Policy::Everything]),
    ];
    let loss = |policy: Policy| {
        let layer = checkpoint(policy, layer);
        move |args: &(Tensor, Tensor, Tensor)| layer(args).sum(..)
    };
    let expected = grad(loss(Policy::Nothing))(&args)?;
    println!("{:<45} {:>10}", "policy", "bytes kept");
    for policy in policies {
        let saved = saved_residuals(loss(policy.clone()), &args)?;
        println!("{:<45} {:>10}", policy.to_string(), saved.intermediate_bytes());
        // No policy changes the gradient.
        assert_eq!(expected.1.to_vec::<f32>()?, grad(loss(policy))(&args)?.1.to_vec::<f32>()?);
    }

    // A name that no value has is a mistake, and says so.
    let error = grad(loss(Policy::names(["gaet"])))(&args).expect_err("no value has this name");
    println!("\n{error}");
    Ok(())
}
