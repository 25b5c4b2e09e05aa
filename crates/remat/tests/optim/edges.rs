//! Models that every optimizer has to take: narrow floats, scalars, empty leaves, integers.

use remat::optim::{
    Accumulate, Adafactor, Adam8bit, AdamW, Frozen, Lion, Mask, Muon, Optimizer, Partition, Schedule, Sgd,
};
use remat::tree::{leaves, map};
use remat::{DType, Tensor, Tree, jit};

use super::values;

#[derive(Clone, Tree)]
struct Edges {
    matrix: Tensor,
    half: Tensor,
    single: Tensor,
    double: Tensor,
    scalar: Tensor,
    empty: Tensor,
    empty_matrices: Tensor,
    deep: Tensor,
    whole: Tensor,
    flags: Tensor,
}

fn edges(value: f64) -> Edges {
    let full = |shape: &[usize], dtype| Tensor::full(shape, value, dtype);
    let matrix = Tensor::arange(0..15).to_dtype(DType::F32).sin().reshape([3, 5]) * value;
    Edges {
        matrix: matrix.to_dtype(DType::Bf16),
        half: full(&[7], DType::F16),
        single: full(&[2, 2], DType::F32),
        double: full(&[2, 3], DType::F64),
        scalar: full(&[], DType::Bf16),
        empty: full(&[0], DType::F32),
        empty_matrices: full(&[2, 0, 3], DType::F16),
        deep: full(&[1, 2, 1, 3, 1, 2], DType::F32),
        whole: Tensor::new([[1, 2], [3, 4]]),
        flags: Tensor::new([true, false]),
    }
}

/// Three steps in `jit` and outside of it: dtypes and shapes stay, integers too, all is finite, and narrow floats have states in f32.
fn check<O: Optimizer>(optimizer: &O, moves: bool) {
    let first = edges(0.5);
    for size in [0.25, 0.0] {
        let gradients = edges(size);
        let step = jit(|(model, state): &(Edges, O::State<Edges>)| optimizer.update(model, &gradients, state));
        let (mut model, mut state) = (map(&first, |x| x.clone()), optimizer.init(&first));
        for _ in 0..3 {
            let expected = optimizer.update(&model, &gradients, &state).unwrap();
            (model, state) = step.call((model, state)).unwrap();
            for ((path, x), (_, y)) in leaves(&model).iter().zip(leaves(&expected.0)) {
                assert_eq!(values(x), values(&y), "{path}");
            }
        }
        for ((path, before), (_, after)) in leaves(&first).iter().zip(leaves(&model)) {
            assert_eq!(before.aval().unwrap(), after.aval().unwrap(), "{path}");
            assert!(values(&after).iter().all(|x| x.is_finite()), "{path}");
            let is_float = before.dtype().unwrap().is_float() && before.size().unwrap() > 0;
            let moved = values(before) != values(&after);
            assert!(if moves && size > 0.0 { moved == is_float } else { is_float || !moved }, "{path}");
        }
        for (path, x) in leaves(&state) {
            assert!(!matches!(x.dtype().unwrap(), DType::Bf16 | DType::F16), "{path}");
        }
    }
}

#[test]
fn every_optimizer_takes_every_leaf() {
    let rate = Schedule::Constant(0.1);
    let adamw = AdamW { learning_rate: rate.clone(), ..AdamW::default() };
    check(&adamw, true);
    check(&Sgd { learning_rate: rate.clone(), ..Sgd::default() }, true);
    check(&Sgd { learning_rate: rate.clone(), momentum: 0.9, nesterov: true }, true);
    check(&Lion { learning_rate: rate.clone(), ..Lion::default() }, true);
    let adafactor = Adafactor { learning_rate: rate.clone(), weight_decay: 0.1, ..Adafactor::default() };
    check(&adafactor, true);
    check(&Adafactor { min_factored: 0, momentum: Some(0.9), ..adafactor }, true);
    check(&Adam8bit { adamw: adamw.clone(), min_size: 0, block: 4 }, true);
    check(&Muon { learning_rate: rate, adamw: adamw.clone(), weight_decay: 0.1, ..Muon::default() }, true);
    check(&Accumulate { optimizer: adamw.clone(), steps: 2 }, true);
    check(&Partition { mask: Mask::Matrices, chosen: Sgd::default(), others: adamw }, true);
    check(&Frozen, false);
}

/// An infinite gradient makes its block of moments NaN, whichever signs they have.
#[test]
fn infinite_gradients_of_eight_bits() {
    let adam = Adam8bit { min_size: 0, block: 4, ..Adam8bit::default() };
    let model = Tensor::zeros([8], DType::F32);
    for infinity in [f32::INFINITY, f32::NEG_INFINITY] {
        let first = Tensor::new([1.0f32, infinity, -1.0, 0.0, 1.0, 2.0, -1.0, 0.0]);
        let (_, state) = adam.update(&model, &first, &adam.init(&model)).unwrap();
        let (after, state) = adam.update(&model, &Tensor::ones([8], DType::F32), &state).unwrap();
        let nan: Vec<bool> = after.is_nan().to_vec().unwrap();
        assert_eq!(nan, [true, true, true, true, false, false, false, false]);
        for scales in [&state.mu_scale, &state.nu_scale] {
            assert_eq!(scales.is_nan().to_vec::<bool>().unwrap(), [true, false]);
        }
    }
}

/// A model of no leaves, and one that is a leaf.
#[test]
fn smallest_models() {
    fn both(optimizer: &impl Optimizer) {
        optimizer.update(&(), &(), &optimizer.init(&())).unwrap();
        let x = Tensor::from(1.0f32);
        assert!(optimizer.update(&x, &x, &optimizer.init(&x)).unwrap().0.item::<f32>().unwrap() < 1.0);
    }
    both(&AdamW::default());
    both(&Sgd::default());
    both(&Lion::default());
    both(&Adafactor::default());
    both(&Adam8bit { min_size: 0, ..Adam8bit::default() });
    both(&Muon::default());
    both(&Accumulate { optimizer: Sgd::default(), steps: 1 });
}
