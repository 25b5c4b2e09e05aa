//! The numbers of PyTorch, transformers and diffusers in `tests/data/nn`, and what they were computed of.

use remat::{DType, Result, Tensor, Tree, grad, tree};

/// The numbers of a case.
pub(crate) fn case(name: &str) -> Vec<f64> {
    let text = include_str!("../data/nn/vectors.txt");
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("there is no case {name}"));
    line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect()
}

/// That a tensor has the numbers of a case, up to this part of their size.
#[track_caller]
pub(crate) fn expect(name: &str, actual: &Tensor, tolerance: f64) {
    let (expected, actual) = (case(name), actual.to_dtype(DType::F64).to_vec::<f64>().unwrap());
    assert_eq!(actual.len(), expected.len(), "{name}");
    for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
        assert!((a - e).abs() <= tolerance * e.abs().max(1.0), "{name}, element {i}: {a} and {e}");
    }
}

/// That the gradient of a loss has the numbers of a case: for each leaf the sum of its elements, each times a cosine.
#[track_caller]
pub(crate) fn expect_gradient<M: Tree>(name: &str, loss: impl Fn(&M) -> Result<Tensor>, model: &M, tolerance: f64) {
    let gradient = grad(loss)(model).unwrap();
    let sums = tree::leaves(&gradient).into_iter().map(|(_, leaf)| {
        let leaf = leaf.to_dtype(DType::F64).reshape([leaf.size().unwrap()]);
        (&leaf * input(leaf.shape().unwrap(), DType::F64)).sum(..)
    });
    expect(name, &Tensor::stack(&sums.collect::<Vec<_>>(), 0), tolerance);
}

/// The model with the leaves that the script has.
pub(crate) fn filled<M: Tree>(model: &M) -> M {
    let mut k = 0.0;
    tree::map_with_path(model, |path, old| {
        let aval = old.aval().unwrap().clone();
        let size = aval.size();
        let scale = if path.to_string().ends_with("scale") { 1.0 } else { 0.0 };
        let values: Vec<f64> = (0..size).map(|i| 0.4 * (0.7 * i as f64 + 1.3 * k).sin() + scale).collect();
        k += 1.0;
        Tensor::from_vec(values, &aval.shape[..]).to_dtype(aval.dtype)
    })
}

/// The inputs that the script has.
pub(crate) fn input(shape: &[usize], dtype: DType) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product()).map(|i: usize| (0.9 * i as f64).cos()).collect();
    Tensor::from_vec(values, shape).to_dtype(dtype)
}
