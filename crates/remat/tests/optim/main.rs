//! Optimizers against what optax computes; `data/optim/generate.py` wrote the numbers.

mod around;
mod edges;
mod memory_saving;
mod setters;
mod stacked;
mod step;
mod update;

use remat::optim::{AdamW, Lion, Mask, Moments, Momentum, Optimizer, Schedule, Sgd};
use remat::optim::{add_decayed_weights, clip_by_global_norm, clip_by_value, global_norm};
use remat::tree::leaves;
use remat::{DType, Error, ErrorKind, Tensor, Tree, bf16, grad, jit, tree};

#[derive(Clone, Tree)]
struct Model {
    a: Tensor,
    b: Tensor,
    layers: usize,
}

fn expected(name: &str) -> Vec<f64> {
    let lines = include_str!("../data/optim/vectors.txt").lines();
    let mut words = lines.map(|l| l.split(' ')).find(|w| w.clone().next() == Some(name)).unwrap();
    words.next();
    words.map(|w| w.parse().unwrap()).collect()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F64).to_vec().unwrap()
}

fn close(name: &str, actual: &[f64], tolerance: f64) {
    let expected = expected(name);
    assert_eq!(actual.len(), expected.len(), "{name}");
    for (a, e) in actual.iter().zip(&expected) {
        assert!((a - e).abs() <= tolerance * e.abs().max(1.0), "{name}: {actual:?} and not {expected:?}");
    }
}

fn model(x: &[f64; 7], dtype: DType) -> Model {
    let part = |x: &[f64]| Tensor::from_slice(x, [x.len()]).to_dtype(dtype);
    Model { a: part(&x[..4]).reshape([2, 2]), b: part(&x[4..]), layers: 1 }
}

fn start(dtype: DType) -> Model {
    model(&std::array::from_fn(|i| i as f64 * 0.5 - 1.0), dtype)
}

fn gradient(step: usize, dtype: DType) -> Model {
    model(&std::array::from_fn(|i| (7.0 * i as f64 + 3.0 * step as f64).cos() * (step + 1) as f64), dtype)
}

type Step<'a, S> = dyn Fn(&Model, &Model, &S) -> Result<(Model, S), Error> + 'a;

/// Twenty steps in f64 and in f32.
fn run<S>(name: &str, init: impl Fn(&Model) -> S, update: &Step<'_, S>) {
    // Schedules have their rates in f32 in optax.
    let exact = if name.ends_with("options") { 1e-6 } else { 1e-12 };
    for (dtype, tolerance) in [(DType::F64, exact), (DType::F32, 1e-5)] {
        let mut model = start(dtype);
        let mut state = init(&model);
        for step in 0..20 {
            (model, state) = update(&model, &gradient(step, dtype), &state).unwrap();
        }
        assert_eq!((model.a.dtype().unwrap(), model.layers), (dtype, 1));
        close(name, &[values(&model.a), values(&model.b)].concat(), tolerance);
    }
}

fn run_optimizer(name: &str, optimizer: &impl Optimizer) {
    run(name, |m| optimizer.init(m), &|m, g, s| optimizer.update(m, g, s));
}

#[test]
fn adamw() {
    let run_adamw = |name, adam: AdamW| run_optimizer(name, &adam);
    run_adamw("adamw", AdamW { learning_rate: 0.1.into(), ..AdamW::default() });
    let cosine = Schedule::WarmupCosine { start: 0.01, peak: 0.2, end: 0.05, warmup_steps: 2, steps: 5 };
    run_adamw(
        "adamw.options",
        AdamW { learning_rate: cosine, b1: 0.8, b2: 0.9, eps: 1e-3, weight_decay: 0.1, decay: Mask::All },
    );
    let matrices = AdamW { learning_rate: 0.1.into(), weight_decay: 0.5, decay: Mask::Matrices, ..AdamW::default() };
    run_adamw("adamw.matrices", matrices.clone());
    run_adamw("adamw.matrices", AdamW { decay: Mask::paths(["a"]), ..matrices.clone() });
    run_adamw("adamw.matrices", AdamW { decay: Mask::Custom(|path, _| path.to_string() == "a"), ..matrices });
    let rate = Schedule::from(Tensor::from(0.1f64));
    run_adamw("adamw", AdamW { learning_rate: rate, ..AdamW::default() });
}

#[test]
fn sgd() {
    let run_sgd = |name, sgd: Sgd| run_optimizer(name, &sgd);
    let sgd = Sgd { learning_rate: 0.1.into(), ..Sgd::default() };
    assert!(sgd.init(&start(DType::F32)).velocity.is_none());
    run_sgd("sgd", sgd.clone());
    run_sgd("sgd.momentum", Sgd { momentum: 0.9, ..sgd.clone() });
    run_sgd("sgd.nesterov", Sgd { momentum: 0.9, nesterov: true, ..sgd.clone() });
    run("clipped", |m| sgd.init(m), &|m, g, s| sgd.update(m, &clip_by_global_norm(g, 3.0).0, s));
    run("clipped.value", |m| sgd.init(m), &|m, g, s| sgd.update(m, &clip_by_value(g, 1.5), s));
    let momentum = Sgd { momentum: 0.9, ..sgd };
    run("sgd.decayed", |m| momentum.init(m), &|m, g, s| {
        momentum.update(m, &add_decayed_weights(g, m, 0.3, &Mask::paths(["a"]))?, s)
    });
}

#[test]
fn lion() {
    let run_lion = |name, lion: Lion| run_optimizer(name, &lion);
    run_lion("lion", Lion { learning_rate: 0.1.into(), ..Lion::default() });
    let linear = Schedule::Linear { start: 0.2, end: 0.1, steps: 4 };
    run_lion("lion.options", Lion { learning_rate: linear, b1: 0.5, b2: 0.8, weight_decay: 0.2, decay: Mask::All });
}

#[test]
fn schedules() {
    let at = |schedule: &Schedule, dtype| -> Vec<f64> {
        (0..12).map(|step: i32| values(&schedule.at(&Tensor::from(step), dtype))[0]).collect()
    };
    let check = |name: &str, schedule: Schedule| {
        close(name, &at(&schedule, DType::F64), 1e-14);
        close(name, &at(&schedule, DType::F32), 1e-6);
    };
    check("schedule.linear", Schedule::Linear { start: 0.5, end: 2.0, steps: 7 });
    check("schedule.cosine", Schedule::Cosine { start: 0.5, end: 0.05, steps: 9 });
    let warmup = Schedule::WarmupCosine { start: 0.1, peak: 1.0, end: 0.25, warmup_steps: 3, steps: 9 };
    check("schedule.warmup_cosine", warmup);
    // Jumps are in force by their number, in whatever order they are given.
    check("schedule.piecewise", Schedule::Piecewise { start: 0.5, scales: vec![(8, 0.1), (3, 0.5)] });
    let joined = Schedule::Joined {
        first: Box::new(Schedule::Linear { start: 0.0, end: 1.0, steps: 4 }),
        then: vec![(4, Schedule::Cosine { start: 1.0, end: 0.0, steps: 5 }), (10, 0.25.into())],
    };
    check("schedule.joined", joined);
    assert_eq!(at(&Schedule::Piecewise { start: 0.5, scales: vec![(u64::MAX, 9.0)] }, DType::F32), [0.5; 12]);
    assert_eq!(at(&Schedule::Joined { first: Box::new(2.0.into()), then: vec![] }, DType::F32), [2.0; 12]);
    // In any order.
    let then = vec![(8, 3.0.into()), (4, 1.0.into())];
    let joined = Schedule::Joined { first: Box::new(2.0.into()), then };
    assert_eq!(at(&joined, DType::F32), [2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0]);
    // Lengths of zero are at their end at once.
    assert_eq!(at(&Schedule::Linear { start: 1.0, end: 2.0, steps: 0 }, DType::F32), [2.0; 12]);
    let no_warmup = Schedule::WarmupCosine { start: 9.0, peak: 1.0, end: 0.5, warmup_steps: 0, steps: 0 };
    assert_eq!(at(&no_warmup, DType::F32), [0.5; 12]);
}

#[test]
fn norms() {
    close("global_norm", &values(&global_norm(&gradient(2, DType::F64))), 1e-14);
    close("global_norm", &values(&global_norm(&gradient(2, DType::F32))), 1e-6);
    assert_eq!(global_norm(&()).item::<f32>().unwrap(), 0.0);
    assert_eq!(global_norm(&(Tensor::new([3, 4]), Tensor::new([2.0f32]))).item::<f32>().unwrap(), 2.0);
    let mixed = (Tensor::new([bf16::from_f32(300.0)]), Tensor::new([400.0f64]));
    assert_eq!(global_norm(&mixed).item::<f64>().unwrap(), 500.0);
    let (clipped, norm) = clip_by_global_norm(&mixed, 50.0);
    assert_eq!(values(&clipped.0), [30.0]);
    assert_eq!((clipped.0.dtype().unwrap(), values(&clipped.1), values(&norm)), (DType::Bf16, vec![40.0], vec![500.0]));
    let (same, _) = clip_by_global_norm(&mixed, 501.0);
    assert_eq!((values(&same.0), values(&same.1)), (vec![300.0], vec![400.0]));
    let values_of = |max| values(&clip_by_value(&Tensor::new([-3.0f32, f32::NAN, f32::INFINITY, 0.5]), max));
    assert_eq!((values_of(2.0)[0], values_of(2.0)[2..].to_vec()), (-2.0, vec![2.0, 0.5]));
    assert!(values_of(2.0)[1].is_nan());
    assert_eq!(values_of(0.0)[3], 0.0);
    let (narrow, whole) = clip_by_value(&(Tensor::new([bf16::from_f32(300.0)]), Tensor::new([7])), 1.0);
    assert_eq!((narrow.dtype().unwrap(), whole.to_vec::<i32>().unwrap()), (DType::Bf16, vec![7]));
    let (zero, _) = clip_by_global_norm(&Tensor::new([0.0f32]), 1.0);
    assert_eq!(values(&zero), [0.0]);
}

#[test]
fn narrow_floats_and_integers() {
    let adam = AdamW { learning_rate: 0.01.into(), ..AdamW::default() };
    let model = (start(DType::Bf16), Tensor::new([7, 8]));
    let gradients = (gradient(0, DType::Bf16), Tensor::new([0, 0]));
    let mut state = adam.init(&model);
    assert_eq!(state.mu.0.a.dtype().unwrap(), DType::F32);
    let mut next = model.clone();
    for _ in 0..3 {
        (next, state) = adam.update(&next, &gradients, &state).unwrap();
    }
    assert_eq!(next.0.a.dtype().unwrap(), DType::Bf16);
    assert_eq!(next.1.to_vec::<i32>().unwrap(), [7, 8]);
    assert_eq!(state.step.item::<i32>().unwrap(), 3);
    // The average square moves, which 0.999 in bf16, that is 1, would not let it.
    let g = values(&gradients.0.a)[0];
    assert!((values(&state.nu.0.a)[0] - g * g * (1.0 - 0.999f64.powi(3))).abs() < 1e-8);

    let paths: Vec<String> = leaves(&state).iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(paths, ["step", "mu.0.a", "mu.0.b", "mu.1", "nu.0.a", "nu.0.b", "nu.1"]);
    let last = Moments { step: Tensor::from(i32::MAX), ..state };
    assert_eq!(adam.update(&next, &gradients, &last).unwrap().1.step.item::<i32>().unwrap(), i32::MAX);
}

/// A step inside `jit`, with gradients from `grad`, learns, and is the step as it is.
#[test]
fn inside_jit() {
    let adam = AdamW { learning_rate: 0.1.into(), ..AdamW::default() };
    let loss = |m: &Model| (&m.a - 3).square().sum(..) + (&m.b + 1).square().sum(..);
    let plain = |(model, state): &(Model, Moments<Model>)| -> Result<_, Error> {
        let gradients = clip_by_global_norm(&grad(loss)(model)?, 1.0).0;
        adam.update(model, &gradients, state)
    };
    let step = jit(plain);
    let first = start(DType::F32);
    let (mut model, mut state) = (first.clone(), adam.init(&first));
    let mut expected = (first.clone(), adam.init(&first));
    for _ in 0..50 {
        (model, state) = step.call((model, state)).unwrap();
        expected = plain(&expected).unwrap();
    }
    assert_eq!(step.cache_size(), 1);
    assert_eq!(values(&model.a), values(&expected.0.a));
    assert_eq!(state.step.item::<i32>().unwrap(), 50);
    let value = |m: &Model| values(&loss(m))[0];
    assert!(value(&model) < 0.1 * value(&first), "{} of {}", value(&model), value(&first));
}

#[test]
fn mistakes() {
    let adam = AdamW::default();
    let (model, gradients) = (start(DType::F32), gradient(0, DType::F32));
    let state = adam.init(&model);
    let message = |gradients: &Model| {
        let error = adam.update(&model, gradients, &state).err().unwrap();
        assert_eq!(error.loc().and_then(|l| l.site).map(|s| s.file()), Some(file!()));
        error.message().to_string()
    };
    assert_eq!(
        message(&Model { layers: 2, ..gradients.clone() }),
        "the structures of the model and of the gradients differ: the values of type usize at `layers` differ"
    );
    assert_eq!(
        message(&Model { b: Tensor::new([0.0f32, 1.0]), ..gradients.clone() }),
        "`b` is f32[3] in the model and f32[2] in the gradients"
    );
    // A model that is one tensor has an empty path.
    let one = Tensor::new([0.0f32, 1.0]);
    let error = adam.update(&one, &Tensor::new([0.0f32]), &adam.init(&one)).err().unwrap();
    assert_eq!(error.message(), "the parameter is f32[2] in the model and f32[1] in the gradients");
    let failed = Tensor::new([1.0f32, 2.0]) + Tensor::new([1.0f32, 2.0, 3.0]);
    let error = adam.update(&model, &Model { a: failed, ..gradients.clone() }, &state).err().unwrap();
    assert_eq!(error.operation(), "add");

    let sgd = Sgd::default();
    let still = sgd.init(&model);
    let error = Sgd { momentum: 0.9, ..sgd }.update(&model, &gradients, &still).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Structure);
    let lion = Lion::default();
    let short = Momentum { mu: vec![Tensor::from(0.0f32)], ..lion.init(&vec![]) };
    let error = lion.update(&vec![], &vec![], &short).err().unwrap();
    assert_eq!(error.message(), "the structures of the model and of the state differ: 0 elements against 1 element");
}

#[test]
fn maps_over_leaves() {
    let one = start(DType::F32);
    let two = tree::map_with_path(&one, |path, x| if path.to_string() == "a" { x * 2 } else { x.clone() });
    assert_eq!((values(&two.a)[0], values(&two.b)), (-2.0, values(&one.b)));
    let sum = tree::map2(&one, &two, |x, y| x + y).unwrap();
    assert_eq!(values(&sum.a)[0], -3.0);
    let error = tree::map2(&one, &Model { layers: 3, ..one.clone() }, |x, _| x.clone()).err().unwrap();
    assert_eq!(error.message(), "the trees have different structures: the values of type usize at `layers` differ");
}
