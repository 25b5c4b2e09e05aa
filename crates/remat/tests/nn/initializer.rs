//! Initializers against what `jax.nn.initializers` draws; `data/initializers/generate.py` wrote the numbers.

use remat::nn::Initializer::{
    self, GlorotNormal, GlorotUniform, HeNormal, HeUniform, LecunNormal, LecunUniform, Orthogonal,
};
use remat::{DType, Tensor, jit, random};

const ALL: [(&str, Initializer); 7] = [
    ("lecun.normal", LecunNormal),
    ("lecun.uniform", LecunUniform),
    ("he.normal", HeNormal),
    ("he.uniform", HeUniform),
    ("glorot.normal", GlorotNormal),
    ("glorot.uniform", GlorotUniform),
    ("orthogonal", Orthogonal),
];

fn case(name: &str) -> Vec<f32> {
    let text = include_str!("../data/initializers/vectors.txt");
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect()
}

#[track_caller]
fn expect(name: &str, actual: &Tensor) {
    let (actual, expected) = (actual.to_vec::<f32>().unwrap(), case(name));
    assert_eq!(actual.len(), expected.len(), "{name}");
    for (a, e) in actual.iter().zip(&expected) {
        assert!((a - e).abs() <= 1e-6, "{name}: {a} and {e}");
    }
}

#[test]
fn weights_are_those_of_jax() {
    for (name, initializer) in ALL {
        expect(&format!("{name}.linear"), &initializer.linear(random::key(7), 6, 5, DType::F32));
        expect(&format!("{name}.conv"), &initializer.conv(random::key(7), 4, 5, [3, 2], DType::F32));
    }
}

#[test]
fn every_dtype_has_the_variance() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        for (name, initializer) in ALL {
            let weights = initializer.linear(random::key(3), 100, 300, dtype);
            assert_eq!(weights.dtype().unwrap(), dtype);
            let variance = weights.to_dtype(DType::F64).variance(..).item::<f64>().unwrap();
            let expected = match initializer {
                LecunNormal | LecunUniform => 1.0 / 100.0,
                HeNormal | HeUniform => 2.0 / 100.0,
                GlorotNormal | GlorotUniform => 2.0 / 400.0,
                // Each of the 100 rows of 300 has the length 1.
                Orthogonal => 1.0 / 300.0,
            };
            assert!((variance / expected - 1.0).abs() < 0.03, "{name}, {dtype}: {variance} and {expected}");
        }
    }
}

#[test]
fn layers_without_elements_and_wrong_dtypes() {
    for (name, initializer) in ALL {
        let none = initializer.linear(random::key(0), 0, 0, DType::F32);
        assert_eq!(none.shape().unwrap(), [0, 0], "{name}");
        let error = initializer.linear(random::key(0), 2, 3, DType::I32).error().unwrap().to_string();
        assert!(error.contains("weights must have a float dtype, not i32"), "{error}");
        assert!(error.contains("tests/nn/initializer.rs"), "{error}");
        let error = initializer.conv(random::key(0), 2, usize::MAX, [3], DType::F32).error().unwrap().to_string();
        assert!(error.contains("has too many elements"), "{error}");
    }
}

#[test]
fn a_compiled_draw_has_the_same_weights() {
    for (name, initializer) in ALL {
        let draw = |data: &Tensor| initializer.linear(random::Key::from_data(data.clone()), 6, 5, DType::F32);
        expect(&format!("{name}.linear"), &jit(draw).call(random::key(7).data().clone()).unwrap());
    }
}

#[test]
fn sizes_of_a_kernel_without_elements_are_limited_too() {
    for (name, initializer) in ALL {
        for (inputs, outputs) in [(0, 3), (3, 0), (0, 0)] {
            let kernel = initializer.conv(random::key(0), inputs, outputs, [1 << 40, 1 << 40], DType::F32);
            let error = kernel.error().unwrap().to_string();
            assert!(error.contains("has too many elements"), "{name}: {error}");
        }
    }
}

#[test]
fn orthogonal_weights_of_few_bits_are_finite() {
    for dtype in [DType::Bf16, DType::F16] {
        for (rows, columns) in [(1, 1), (2, 2), (3, 3)] {
            let draw = jit(move |data: &Tensor| {
                Orthogonal.linear(random::Key::from_data(data.clone()), rows, columns, dtype).to_dtype(DType::F32)
            });
            for seed in 0..2000 {
                let q = draw.call(random::key(seed).data().clone()).unwrap();
                let eye = Tensor::eye(rows, DType::F32);
                assert!(q.matmul(&q.t()).allclose(&eye, 0.0, 0.02).unwrap(), "{dtype}, seed {seed}: {q:?}");
            }
        }
    }
}

#[test]
fn orthogonal_weights_are_orthogonal() {
    // The square one has the worst condition.
    for (inputs, outputs) in [(64, 64), (7, 30), (30, 7), (1, 1)] {
        let q = Orthogonal.linear(random::key(5), inputs, outputs, DType::F64);
        let gram = if inputs < outputs { q.matmul(&q.t()) } else { q.t().matmul(&q) };
        let eye = Tensor::eye(inputs.min(outputs), DType::F64);
        assert!(gram.allclose(&eye, 0.0, 1e-13).unwrap(), "{inputs} by {outputs}");
    }
}
