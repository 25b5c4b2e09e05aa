//! Optimizers with smaller states, and Muon.

use remat::optim::{Adafactor, Adam8bit, AdamW, Mask, Muon, Optimizer};
use remat::{DType, Tensor, Tree};

use super::{close, expected, gradient, run, start, values};

#[derive(Clone, Tree)]
struct Shapes {
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    e: Tensor,
}

fn shapes(f: impl Fn(f64) -> f64, dtype: DType) -> Shapes {
    let part = |start: usize, shape: &[usize]| {
        let size: usize = shape.iter().product();
        let elements: Vec<f64> = (start..start + size).map(|i| f(i as f64)).collect();
        Tensor::from_slice(&elements, shape).to_dtype(dtype)
    };
    Shapes { a: part(0, &[5, 3]), b: part(15, &[2, 4, 3]), c: part(39, &[3]), d: part(42, &[]), e: part(43, &[0]) }
}

/// Twenty steps in f64 and in f32.
fn run_shapes(name: &str, optimizer: &impl Optimizer, [exact, rounded]: [f64; 2]) {
    for (dtype, tolerance) in [(DType::F64, exact), (DType::F32, rounded)] {
        let mut model = shapes(|i| i * 3.0 / 42.0 - 1.0, dtype);
        let mut state = optimizer.init(&model);
        for step in 0..20 {
            let gradients = shapes(|i| (7.0 * i + 3.0 * f64::from(step)).cos(), dtype);
            (model, state) = optimizer.update(&model, &gradients, &state).unwrap();
        }
        let Shapes { a, b, c, d, e } = &model;
        close(name, &[a, b, c, d, e].map(values).concat(), tolerance);
    }
}

#[test]
fn adafactor() {
    // Optax has the length of the averages in f32.
    let tolerances = [1e-6, 1e-5];
    let adafactor = Adafactor { learning_rate: 0.1.into(), min_factored: 3, ..Adafactor::default() };
    run_shapes("shapes.adafactor", &adafactor, tolerances);
    let plain = Adafactor { scale_by_parameter: false, clip: None, decay_rate: 0.6, ..adafactor.clone() };
    run_shapes("shapes.adafactor.plain", &plain, tolerances);
    let decay = Mask::paths(["a"]);
    let options = Adafactor { momentum: Some(0.9), weight_decay: 0.01, decay, ..adafactor };
    run_shapes("shapes.adafactor.options", &options, tolerances);
}

#[test]
fn adafactor_keeps_sums_of_rows_and_columns() {
    let adafactor = Adafactor { min_factored: 3, ..Adafactor::default() };
    let state = adafactor.init(&shapes(|i| i, DType::Bf16));
    let of = |tree: &Shapes| [&tree.a, &tree.b, &tree.c, &tree.d, &tree.e].map(|x| x.shape().unwrap().to_vec());
    assert_eq!(of(&state.row)[..3], [vec![3], vec![2, 3], vec![0]]);
    assert_eq!(of(&state.column)[..3], [vec![5], vec![2, 4], vec![0]]);
    assert_eq!(of(&state.full), [vec![0], vec![0], vec![3], vec![], vec![0]]);
    assert!(state.momentum.is_none());
    assert_eq!(state.row.a.dtype().unwrap(), DType::F32);

    let model = shapes(|i| i, DType::F32);
    let with = Adafactor { momentum: Some(0.9), ..adafactor.clone() };
    let message = |result: remat::Result<_>| result.err().unwrap().message().to_string();
    assert_eq!(
        message(with.update(&model, &model, &state).map(drop)),
        "the state of `a` is f32[0] where this optimizer keeps f32[5,3]; make it with `init` of the same optimizer and model"
    );
    assert!(message(adafactor.update(&model, &model, &with.init(&model)).map(drop)).contains("is f32[5,3] where"));
    let unfactored = Adafactor::default().init(&model);
    assert!(message(adafactor.update(&model, &model, &unfactored).map(drop)).contains("is f32[0] where"));
}

#[test]
fn muon() {
    let adamw = AdamW { learning_rate: 0.01.into(), ..AdamW::default() };
    let muon = Muon { learning_rate: 0.1.into(), adamw, ..Muon::default() };
    // The polynomial spreads small singular values, and the roundings in them.
    let tolerances = [1e-11, 1e-4];
    run_shapes("shapes.muon", &muon, tolerances);
    let options = Muon { nesterov: false, weight_decay: 0.1, rms: Some(0.2), beta: 0.8, iterations: 3, ..muon.clone() };
    run_shapes("shapes.muon.options", &options, tolerances);
    // A mask that takes vectors leaves them to AdamW all the same.
    run_shapes("shapes.muon", &Muon { matrices: Mask::All, ..muon.clone() }, tolerances);

    let state = muon.init(&shapes(|i| i, DType::F32));
    assert_eq!((state.muon.mu.b.size().unwrap(), state.muon.mu.c.size().unwrap()), (24, 0));
    assert_eq!((state.adamw.mu.b.size().unwrap(), state.adamw.mu.c.size().unwrap()), (0, 3));
}

#[test]
fn muon_makes_orthogonal_matrices() {
    let muon = Muon { learning_rate: 1.0.into(), ..Muon::default() };
    for (rows, columns) in [(8, 8), (5, 9), (9, 5), (1, 4), (4, 1), (1, 1)] {
        let gradient = Tensor::arange(1..rows * columns + 1).to_dtype(DType::F32).sin().reshape([rows, columns]);
        let model = Tensor::zeros([rows, columns], DType::F32);
        let (moved, _) = muon.update(&model, &gradient, &muon.init(&model)).unwrap();
        let x = moved / (columns as f64 / rows as f64).max(1.0).sqrt();
        // The sum of the squares of singular values; those of this gradient beyond the second are zero, and stay so.
        let sum = x.square().sum(..).item::<f32>().unwrap();
        let rank = rows.min(columns).min(2) as f32;
        assert!((0.45 * rank..1.45 * rank).contains(&sum), "{rows} by {columns}: {sum}");
    }
}

fn run_8bit(name: &str, block: usize) {
    let adam = Adam8bit { adamw: AdamW { learning_rate: 0.1.into(), ..AdamW::default() }, block, min_size: 0 };
    let mut model = start(DType::F64);
    let mut state = adam.init(&model);
    for step in 0..20 {
        (model, state) = adam.update(&model, &gradient(step, DType::F64), &state).unwrap();
    }
    let reached = [values(&model.a), values(&model.b)].concat();
    close(name, &reached, 1e-12);
    // Near to what AdamW reaches, after moves of 0.1.
    for (with, without) in reached.iter().zip(expected("adamw")) {
        assert!((with - without).abs() < 0.01, "{with} and {without}");
    }
}

#[test]
fn adam_with_eight_bits() {
    run_8bit("adam8bit", 2);
    run_8bit("adam8bit.one_block", 256);
    // Those below `min_size` are those of AdamW.
    let adam = Adam8bit { adamw: AdamW { learning_rate: 0.1.into(), ..AdamW::default() }, ..Adam8bit::default() };
    run("adamw", |m| adam.init(m), &|m, g, s| adam.update(m, g, s));
}

/// Over more elements than a block, of all magnitudes, in f32 and as jitted.
#[test]
fn eight_bits_follow_adamw() {
    let adamw = AdamW { learning_rate: 0.01.into(), ..AdamW::default() };
    let adam = Adam8bit { adamw: adamw.clone(), min_size: 0, ..Adam8bit::default() };
    let model = Tensor::zeros([3, 1001], DType::F32);
    let (mut one, mut other) = ((model.clone(), adamw.init(&model)), (model.clone(), adam.init(&model)));
    assert_eq!(other.1.nu_scale.shape().unwrap(), [12]);
    let i = Tensor::arange(0..3003).to_dtype(DType::F32).reshape([3, 1001]);
    let step = remat::jit(|(model, state, gradient): &(Tensor, _, Tensor)| adam.update(model, gradient, state));
    for t in 0..30 {
        // Four decades of magnitudes, and elements whose gradients stop.
        let size = ((&i * 0.7).sin() * 4.0).exp();
        let gradient = (&i * 1.3 + f64::from(t) * 0.2).sin()
            * size
            * i.lt(if t < 10 { 3003.0 } else { 2000.0 }).to_dtype(DType::F32);
        one = adamw.update(&one.0, &gradient, &one.1).unwrap();
        let expected = adam.update(&other.0, &gradient, &other.1).unwrap();
        other = step.call((other.0, other.1, gradient)).unwrap();
        assert_eq!(values(&other.0), values(&expected.0));
    }
    let far = (&one.0 - &other.0).abs();
    let (most, mean) = (far.max(..).item::<f32>().unwrap(), far.mean(..).item::<f32>().unwrap());
    // The functions of `generate.py` give 0.1855 and 0.01627 for these gradients.
    assert!(most < 0.2 && mean < 0.018, "{most} at most, {mean} in the mean");
    assert!(other.1.mu.dtype().unwrap() == DType::U8 && other.1.nu.dtype().unwrap() == DType::U8);
}

/// Zeros stay zeros, and what is not finite is not finite afterwards, in its block only.
#[test]
fn blocks_of_zeros_and_of_nan() {
    let adam = Adam8bit { block: 2, min_size: 0, ..Adam8bit::default() };
    let model = Tensor::new([1.0f32, 1.0, 1.0, 1.0, 1.0]);
    let state = adam.init(&model);
    let (same, zeros) = adam.update(&model, &model.zeros_like(), &state).unwrap();
    assert!(same.allclose(&model, 1e-6, 0.0).unwrap());
    assert_eq!(zeros.mu.to_vec::<u8>().unwrap(), [127; 5]);
    assert_eq!(zeros.nu_scale.to_vec::<f32>().unwrap(), [0.0; 3]);
    let gradient = Tensor::new([1.0f32, 1.0, f32::NAN, 1.0, 1.0]);
    let (next, state) = adam.update(&same, &gradient, &zeros).unwrap();
    let (next, _) = adam.update(&next, &model, &state).unwrap();
    let is_nan: Vec<bool> = values(&next).iter().map(|x| x.is_nan()).collect();
    assert_eq!(is_nan, [false, false, true, true, false]);
    let error = Adam8bit { block: 0, ..adam }.update(&model, &model, &state).err().unwrap();
    assert_eq!(error.message(), "`block` is 0 and must be at least 1");
}
