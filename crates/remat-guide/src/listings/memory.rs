//! Memory before the run.

use remat::memory::Change;
use remat::nn::{Gpt2, Gpt2Config, next_token_loss};
use remat::optim::{AdamW, Moments, Optimizer};
use remat::report::readable_bytes;
use remat::{
    DType, ErrorKind, JitOptions, OverLimit, Policy, Result, Tensor, checkpoint_layers, eval_shape, jit, jit_with,
    memory, plan, random, tree, value_and_grad,
};

pub(crate) fn main() -> Result<()> {
    // ANCHOR: model
    // Shapes only: no weight is made. `tree::map` and `eval_shape` work for any model.
    let config =
        Gpt2Config { vocab_size: 512, n_positions: 128, n_embd: 128, n_layer: 4, n_head: 4, ..Gpt2Config::default() };
    let model = eval_shape(|_: &()| Gpt2::init(random::key(0), &config, DType::F32))(&())?;
    let tokens = Tensor::zeros([8, 128], DType::I32);
    let loss = |model: &Gpt2| next_token_loss(&model.apply(&tokens), &tokens, None);
    // ANCHOR_END: model

    println!("== peak");
    // ANCHOR: peak
    let adam = AdamW::default();
    let train = |(model, state): &(Gpt2, Moments<Gpt2>)| -> Result<(Gpt2, Moments<Gpt2>, Tensor)> {
        let (loss, gradient) = value_and_grad(loss)(model)?;
        let (model, state) = adam.update(model, &gradient, state)?;
        Ok((model, state, loss))
    };
    let state = eval_shape(|model: &Gpt2| adam.init(model))(&model)?;
    let planned = jit(train).memory(&(model.clone(), state.clone()))?;
    println!("{planned}");
    // ANCHOR_END: peak
    assert!(planned.donated_peak < planned.peak);

    println!("== report");
    // ANCHOR: report
    let report = memory::report(&adam, &model, loss)?;
    println!("{report}");
    // ANCHOR_END: report
    assert_eq!((report.peak, report.largest()), (planned.donated_peak, memory::Part::Activations));
    let best = report.best().expect("a change helps");
    assert!(matches!(&best.change, Change::Policy(_, Policy::Nothing)) && best.is_planned);
    assert!(report.levers.iter().any(|lever| matches!(lever.change, Change::HalfPrecision)));
    let policy = |wanted: Policy| {
        let lever =
            report.levers.iter().find(|lever| matches!(&lever.change, Change::Policy(_, policy) if *policy == wanted));
        lever.expect("the policy is tried").peak
    };
    assert!(best.peak < policy(Policy::DotsWithNoBatchDims) && policy(Policy::DotsWithNoBatchDims) < report.peak);

    println!("== best");
    // ANCHOR: best
    let frugal = checkpoint_layers("block", Policy::Nothing, loss);
    let after = memory::report(&adam, &model, &frugal)?;
    println!("{} MiB before, {} MiB after", report.peak >> 20, after.peak >> 20);
    // ANCHOR_END: best
    assert_eq!(after.peak, best.peak);

    println!("== limit");
    // ANCHOR: limit
    let strict = JitOptions { memory_limit: Some(16 << 20), over_limit: OverLimit::Refuse, ..JitOptions::default() };
    let refused = jit_with(&strict, train).memory(&(model.clone(), state.clone())).expect_err("it needs more");
    println!("{refused}");
    // ANCHOR_END: limit
    assert_eq!(refused.kind(), ErrorKind::Memory);

    println!("== plan");
    // ANCHOR: plan
    let free = plan(train, (model.clone(), state.clone()))?;
    let small = free.for_bytes(24 << 20)?;
    println!("{}", small.explain()?);
    let step = jit_with(&small.options(), train);
    // ANCHOR_END: plan
    assert!(small.peak() <= 24 << 20 && small.overhead() > 0.0);
    let lowered = step.lower(&(model.clone(), state.clone()))?;
    assert!(lowered.compile()?.memory().donated_peak <= small.peak());

    println!("== curve");
    // ANCHOR: curve
    println!("peak        more time  recomputed   at least");
    for point in free.pareto(6)? {
        let [more, again, least] = [point.overhead(), point.repeated(), point.bound()].map(|share| 100.0 * share);
        println!("{:9}  {more:8.1} %  {again:8.1} %  {least:7.1} %", readable_bytes(point.peak()));
    }
    let cheap = free.for_slowdown(0.02)?;
    // ANCHOR_END: curve
    assert!(cheap.overhead() <= 0.02 && cheap.peak() < free.peak());

    println!("== saved");
    let path = std::env::temp_dir().join(format!("remat-guide-{}.plan", std::process::id()));
    // ANCHOR: saved
    small.save(&path)?;
    let same = plan(train, (model.clone(), state.clone()))?.load(&path)?;
    // ANCHOR_END: saved
    assert_eq!((same.peak(), same.overhead()), (small.peak(), small.overhead()));
    let other = plan(|model: &Gpt2| value_and_grad(loss)(model), model.clone())?;
    let error = other.load(&path).err().expect("another program");
    println!("{}", error.message().replace(&path.display().to_string(), "step.plan"));
    std::fs::remove_file(&path).expect("the file is there");

    println!("== live");
    // ANCHOR: live
    let small = tree::map(&model, Tensor::clone);
    let live = jit(|model: &Gpt2| value_and_grad(loss)(model)).memory_report(&small)?;
    println!("{} values are live at the peak; the largest:", live.live.len());
    let mut largest: Vec<_> = live.live.iter().collect();
    largest.sort_by_key(|value| std::cmp::Reverse(value.bytes));
    for value in &largest[..5] {
        println!("{value}");
    }
    // ANCHOR_END: live
    assert!(live.live.len() > 100 && largest.iter().take(4).all(|value| value.bytes == 2 << 20));
    Ok(())
}
