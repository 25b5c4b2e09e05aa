//! What a training step needs memory for: the parts are the peak, and each change is what a step with it needs.

use remat::memory::{self, Change, Options, Part};
use remat::nn::{Gpt2, Gpt2Config, next_token_loss};
use remat::optim::{AdamW, Optimizer, Sgd};
use remat::{DType, Layers, Policy, Result, Tensor, checkpoint_layers, jit, named_scope, random, scan, value_and_grad};
use remat_testkit::sized;

fn config() -> Gpt2Config {
    Gpt2Config { vocab_size: 64, n_positions: 64, n_embd: 64, n_layer: sized(4, 6), n_head: 4, ..Gpt2Config::default() }
}

fn batch(size: usize) -> Tensor {
    Tensor::arange(0..64 * size as i64).reshape([size, 64]) % 64
}

fn loss(model: &Gpt2, tokens: &Tensor) -> Tensor {
    next_token_loss(&model.apply(tokens), tokens, None)
}

#[test]
fn activations_dominate_a_large_batch_and_a_policy_helps_most() -> Result<()> {
    let model = Gpt2::init(random::key(0), &config(), DType::F32);
    let tokens = batch(16);
    let report = memory::report(&AdamW::default(), &model, |model: &Gpt2| loss(model, &tokens))?;
    assert_eq!(Part::ALL.iter().map(|&part| report.bytes(part)).sum::<usize>(), report.peak, "{report}");
    assert_eq!(report.largest(), Part::Activations, "{report}");
    let parameters: usize = remat::tree::leaves(&model).iter().map(|(_, leaf)| leaf.aval().unwrap().bytes()).sum();
    assert_eq!(report.bytes(Part::Parameters), parameters);
    // Two moments, and the number of the step.
    assert_eq!(report.bytes(Part::Optimizer), 2 * parameters + 4);
    assert_eq!(report.bytes(Part::Batch), tokens.aval()?.bytes());
    let best = report.best().expect("a policy");
    assert!(matches!(&best.change, Change::Policy(_, Policy::Nothing)), "{report}");
    assert!(best.is_planned && best.more_operations > 0.1 && best.more_operations < 0.4, "{report}");
    // A plan needs no more than the best policy, for less.
    let planned = report.planned.expect("a plan");
    assert!(planned.limit == best.peak && planned.peak <= best.peak, "{report}");
    assert!(planned.overhead > 0.0 && planned.overhead < best.more_operations, "{report}");
    assert!(report.to_string().contains("\nwithout a policy, a memory limit of "), "{report}");

    // The step that trains has these peaks.
    let adam = AdamW::default();
    let args = || (model.clone(), adam.init(&model));
    let plain = jit(|(model, state): &(Gpt2, <AdamW as Optimizer>::State<Gpt2>)| {
        let (value, gradients) = value_and_grad(|model: &Gpt2| loss(model, &tokens))(model)?;
        let (model, state) = adam.update(model, &gradients, state)?;
        Result::Ok((value, model, state))
    });
    assert_eq!(plain.memory(&args())?.donated_peak, report.peak);
    let again = jit(|(model, state): &(Gpt2, <AdamW as Optimizer>::State<Gpt2>)| {
        let loss = checkpoint_layers("block", Policy::Nothing, |model: &Gpt2| loss(model, &tokens));
        let (value, gradients) = value_and_grad(loss)(model)?;
        let (model, state) = adam.update(model, &gradients, state)?;
        Result::Ok((value, model, state))
    });
    assert_eq!(again.memory(&args())?.donated_peak, best.peak);
    Ok(())
}

#[test]
fn the_state_of_the_optimizer_dominates_a_small_batch() -> Result<()> {
    let model = Gpt2::init(random::key(0), &config(), DType::F32);
    let tokens = batch(1);
    let options = Options { plans: false, ..Options::default() };
    let report = memory::report_with(&options, &AdamW::default(), &model, |model: &Gpt2| loss(model, &tokens))?;
    assert_eq!(report.largest(), Part::Optimizer, "{report}");
    let peak = |wanted: fn(&Change) -> bool| report.levers.iter().find(|l| wanted(&l.change)).map(|l| l.peak);
    let saved = |peak: Option<usize>| report.peak - peak.expect("it was tried");
    let (state, parameters) = (report.bytes(Part::Optimizer), report.bytes(Part::Parameters));
    assert!(saved(peak(|change| matches!(change, Change::Adafactor))) > state / 3, "{report}");
    assert!(saved(peak(|change| matches!(change, Change::Adam8bit))) > state / 3, "{report}");
    assert!(saved(peak(|change| matches!(change, Change::HalfPrecision))) > parameters / 3, "{report}");
    let sharded = report.levers.iter().find(|l| matches!(l.change, Change::Sharded(8))).expect("eight chips");
    assert!(!sharded.is_planned && sharded.peak < report.peak / 2, "{report}");
    Ok(())
}

#[test]
fn a_model_that_no_memory_holds_is_planned() -> Result<()> {
    let config =
        Gpt2Config { vocab_size: 50_257, n_positions: 1024, n_embd: 1600, n_layer: 12, n_head: 25, ..config() };
    let model = remat::eval_shape(|key: &Tensor| Gpt2::init(random::Key::from_data(key.clone()), &config, DType::F32))(
        random::key(0).data(),
    )?;
    let tokens = Tensor::shape_only([64, 1024], DType::I32);
    let options = Options { plans: false, ..Options::default() };
    let report = memory::report_with(&options, &AdamW::default(), &model, |model: &Gpt2| loss(model, &tokens))?;
    assert!(report.peak > 40 << 30 && report.planned.is_none(), "{report}");
    Ok(())
}

#[test]
fn a_model_without_state_or_layers_is_told_so() -> Result<()> {
    let model = Tensor::ones([64, 64], DType::F64);
    let x = Tensor::ones([256, 64], DType::F64);
    let options = Options { chips: 1, ..Options::default() };
    let sgd = Sgd { learning_rate: 0.1.into(), ..Sgd::default() };
    let report = memory::report_with(&options, &sgd, &model, |w: &Tensor| x.matmul(w).tanh().sum(..))?;
    assert!(report.bytes(Part::Optimizer) < 100, "{report}");
    assert!(!report.levers.iter().any(|lever| matches!(lever.change, Change::Policy(..))), "{report}");
    let note = report.note.as_deref().unwrap_or_default();
    let advice = "give all layers one name with remat::named_scope, or name them in `Options::layers`";
    assert_eq!(note, format!("no layer has a named scope that runs more than once; {advice}"));
    let text = report.to_string();
    assert!(text.ends_with(&format!("a policy was not tried: {note}")), "{text}");
    Ok(())
}

/// Layers of any name are found, unrolled and in loops, and not those inside of them or that run once.
#[test]
fn the_scopes_that_repeat_are_the_layers() -> Result<()> {
    let weights = Tensor::ones([6, 64, 64], DType::F32);
    let x = Tensor::ones([512, 64], DType::F32);
    let layer = |x: &Tensor, w: &Tensor| {
        named_scope("stage", || named_scope("inner", || x.matmul(w).tanh()).exp().log1p().sin())
    };
    let scanned = |w: &Tensor| -> Result<Tensor> {
        let first = named_scope("stem", || x.sin());
        let body = |x: &Tensor, w: &Tensor| (layer(x, w), ());
        Ok(named_scope("trunk", || scan(body, &first, w))?.0.sum(..))
    };
    let unrolled = |w: &Tensor| -> Result<Tensor> {
        let first = named_scope("stem", || x.sin());
        Ok((0..6).fold(first, |x, i| layer(&x, &w.index(i))).sum(..))
    };
    let best =
        |report: &memory::TrainingMemory| report.best().map(|lever| lever.change.to_string()).unwrap_or_default();
    let report = memory::report(&Sgd::default(), &weights, scanned)?;
    assert_eq!(best(&report), "recompute everything in trunk/stage", "{report}");
    let report = memory::report(&Sgd::default(), &weights, unrolled)?;
    assert_eq!(best(&report), "recompute everything in stage", "{report}");
    assert!(report.levers.iter().any(|lever| matches!(lever.change, Change::Sharded(_))), "{report}");
    let once = memory::report(&Sgd::default(), &weights, |w: &Tensor| named_scope("stem", || (w * 2.0).sin().sum(..)))?;
    let note = once.note.as_deref().unwrap_or_default();
    assert!(note.starts_with("no layer has a named scope that runs more than once (there are stem); give"), "{once}");
    let many = |w: &Tensor| -> Result<Tensor> {
        Ok((0..12).fold(x.clone(), |x, i| named_scope(&format!("layer{i}"), || layer(&x, &w.index(i)))).sum(..))
    };
    let many = memory::report(&Sgd::default(), &Tensor::ones([12, 64, 64], DType::F32), many)?;
    let note = many.note.unwrap_or_default();
    assert!(
        note.contains("(there are layer0, layer1, layer10, layer11, layer2, ")
            && note.contains("layer5, ..); give all"),
        "{note}"
    );
    let beside = memory::report(&Sgd::default(), &weights, |w: &Tensor| {
        { named_scope("a", || named_scope("c", || w.sin())) + named_scope("a-b", || w.cos()) }.sum(..)
    })?;
    assert!(beside.note.is_some_and(|note| note.contains("(there are a, a-b);")));
    let none = Options { policies: Vec::new(), ..Options::default() };
    let report = memory::report_with(&none, &Sgd::default(), &weights, |w: &Tensor| {
        named_scope("stem", || (w * 2.0).sin().sum(..))
    })?;
    assert_eq!(report.note, None);
    // Eight chips would lower the peak, and are not here.
    assert!(once.best().is_none_or(|best| !matches!(best.change, Change::Sharded(_))), "{once}");
    assert!(!once.to_string().contains("> fully sharded"), "{once}");
    Ok(())
}

#[test]
fn a_mistake_in_the_loss_is_an_error() {
    let model = Tensor::ones([3], DType::F32);
    let error = memory::report(&AdamW::default(), &model, |w: &Tensor| w.matmul(&Tensor::ones([2], DType::F32)));
    let error = error.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("tests/rematerialization/training_memory.rs"), "{error}");
    let unplanned = || Options { plans: false, ..Options::default() };
    let unknown = Options { layers: Some(Layers::named("blok")), ..unplanned() };
    let tokens = batch(1);
    let model = Gpt2::init(random::key(0), &config(), DType::F32);
    let report = memory::report_with(&unknown, &AdamW::default(), &model, |model: &Gpt2| loss(model, &tokens));
    let note = report.expect("the step can be planned").note.unwrap_or_default();
    assert_eq!(note, "the pattern `blok` matches no named scope; did you mean `block`?");
    // One policy with a name that nothing has leaves the others.
    let options = Options { policies: vec![Policy::names(["hidde"]), Policy::Nothing], ..unplanned() };
    let report = memory::report_with(&options, &AdamW::default(), &model, |model: &Gpt2| loss(model, &tokens));
    let report = report.expect("the step can be planned");
    assert!(report.note.as_deref().unwrap_or_default().contains("`hidde`"), "{report}");
    assert!(report.levers.iter().any(|lever| matches!(lever.change, Change::Policy(..))), "{report}");
}

#[test]
fn live_bytes_rise_in_the_forward_pass_and_fall_in_the_backward_pass() -> Result<()> {
    let model = Gpt2::init(random::key(0), &config(), DType::F32);
    let tokens = batch(16);
    let step = |policy: Option<Policy>| {
        let tokens = tokens.clone();
        jit(move |model: &Gpt2| {
            let loss = |model: &Gpt2| loss(model, &tokens);
            match &policy {
                Some(policy) => value_and_grad(checkpoint_layers("block", policy.clone(), loss))(model),
                None => value_and_grad(loss)(model),
            }
        })
    };
    let plain = step(None).memory_report(&model)?;
    let (most, arena) = (plain.timeline.iter().max().copied().unwrap_or_default(), plain.stats.temporaries);
    // Gaps between the blocks of the arena are in its bytes too.
    assert!(most <= arena && most > arena - arena / 10, "{most} of {arena}");
    let top = plain.timeline.iter().position(|&bytes| bytes == most).unwrap_or_default();
    let count = plain.timeline.len();
    assert!(top > count / 5 && top < 4 * count / 5, "the peak is at step {top} of {count}");
    assert!(plain.timeline[0] < most / 4 && plain.timeline[count - 1] < most / 4, "{:?}", plain.timeline);
    let again = step(Some(Policy::Nothing)).memory_report(&model)?;
    assert!(again.timeline.iter().max() < Some(&(most / 2)), "{:?}", again.timeline);
    Ok(())
}
