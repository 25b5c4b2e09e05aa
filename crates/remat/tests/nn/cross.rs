//! Cross-attention against what JAX computes; `data/cross_attention/generate.py` wrote the numbers.

use remat::nn::CrossAttention;
use remat::report::saved_residuals;
use remat::{DType, Policy, Tensor, checkpoint, grad, jit, random, tree, vmap};

use super::vectors::{filled, input};

fn case(name: &str) -> Vec<f64> {
    let text = include_str!("../data/cross_attention/vectors.txt");
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect()
}

/// The layer of a case, of the sizes of the script, and its mask.
fn layer(name: &str, dtype: DType) -> (CrossAttention, Option<Tensor>) {
    let heads = match name {
        "plain" => [2, 2],
        "causal" => [4, 1],
        _ => [4, 2],
    };
    let layer = CrossAttention::init(random::key(0), [6, 5], heads, 3, dtype).causal(name == "causal");
    let lengths = Tensor::new([4, 2]).reshape([2, 1, 1, 1]);
    (filled(&layer), (name == "mask").then(|| Tensor::arange(0..4).lt(lengths)))
}

/// The sequence and the source of the script.
fn sequences(dtype: DType) -> (Tensor, Tensor) {
    let source: Vec<f64> = (0..40).map(|i| (0.9 * f64::from(i) + 1.0).cos()).collect();
    (input(&[2, 3, 6], dtype), Tensor::from_vec(source, [2, 4, 5]).to_dtype(dtype))
}

fn numbers(tensors: &[&Tensor]) -> Vec<f64> {
    tensors.iter().flat_map(|x| x.to_dtype(DType::F64).to_vec::<f64>().unwrap()).collect()
}

type Args = (Tensor, Tensor, CrossAttention);

/// The result, and the gradient of the mean of its squares, under a policy.
fn computed(name: &str, dtype: DType, policy: Option<Policy>) -> Vec<f64> {
    let (layer, mask) = layer(name, dtype);
    let (x, source) = sequences(dtype);
    let f = checkpoint(policy, |(x, source, layer): &Args| layer.apply(x, source, mask.as_ref()));
    let args = (x, source, layer);
    let gradient = jit(grad(|args: &Args| f(args).square().mean(..))).call(args.clone()).unwrap();
    let mut all = numbers(&[&f(&args)]);
    all.extend(tree::leaves(&gradient).iter().flat_map(|(_, leaf)| numbers(&[leaf])));
    all
}

const CASES: [&str; 4] = ["plain", "grouped", "causal", "mask"];

#[test]
fn results_and_gradients_are_those_of_jax() {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::F16, 2e-2), (DType::Bf16, 1e-1)] {
        for name in CASES {
            let (actual, expected) = (computed(name, dtype, None), case(name));
            assert_eq!(actual.len(), expected.len(), "{name}");
            for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
                assert!((a - e).abs() <= tolerance * e.abs().max(1.0), "{name} in {dtype}, number {i}: {a} and {e}");
            }
        }
    }
}

#[test]
fn bits_are_the_same_under_every_policy() {
    for dtype in [DType::F32, DType::Bf16] {
        for name in CASES {
            let expected = computed(name, dtype, None);
            for policy in [
                Policy::Everything,
                Policy::Nothing,
                Policy::Dots,
                Policy::DotsWithNoBatchDims,
                Policy::names(["qkv"]),
                Policy::names(["attn"]),
            ] {
                let name_of = policy.to_string();
                assert_eq!(computed(name, dtype, Some(policy)), expected, "{name} in {dtype} under {name_of}");
            }
        }
    }
}

/// The three maps have the name `qkv`, and the result has the name `attn`.
#[test]
fn policies_save_by_name() {
    let (layer, _) = layer("grouped", DType::F32);
    let kept = |name: &'static str| {
        let f = checkpoint(Policy::names([name]), |(x, source, layer): &Args| layer.apply(x, source, None));
        let (x, source) = sequences(DType::F32);
        let after = |args: &Args| f(args).sin().sum(..);
        saved_residuals(after, &(x, source, layer.clone())).unwrap().intermediate_bytes()
    };
    // Queries of 2 by 3 positions and 4 heads, keys and values of 2 by 4 positions and 2 heads, each with 3 features of 4 bytes.
    let (qkv, attn) = ((2 * 3 * 4 + 2 * (2 * 4 * 2)) * 3 * 4, 2 * 3 * 6 * 4);
    assert_eq!(kept("qkv"), qkv + attn, "with the operand of the sine");
    assert_eq!(kept("attn"), attn);
}

#[test]
fn a_source_is_projected_once() {
    let (layer, mask) = layer("mask", DType::F32);
    let (x, source) = sequences(DType::F32);
    let (projected, mask) = (layer.project(&source), mask.unwrap());
    let whole = layer.apply_projected(&x, &projected, Some(&mask));
    assert_eq!(numbers(&[&whole]), numbers(&[&layer.apply(&x, &source, Some(&mask))]));
    for i in 0..3 {
        let one = layer.apply_projected(&x.index((.., i..i + 1)), &projected, Some(&mask));
        assert!(one.allclose(&whole.index((.., i..i + 1)), 1e-5, 1e-6).unwrap());
    }
}

#[test]
fn examples_empty_sequences_and_no_biases() {
    let (layer, _) = layer("grouped", DType::F64);
    let (x, source) = sequences(DType::F64);
    // Without an axis of examples, and mapped over one.
    let mapped =
        vmap(|(x, source): &(Tensor, Tensor)| layer.apply(x, source, None))(&(x.clone(), source.clone())).unwrap();
    let batched = layer.apply(&x, &source, None);
    assert!(mapped.allclose(&batched, 1e-13, 1e-13).unwrap());
    // A position that attends to nothing has the bias of the last map.
    let nothing = layer.apply(&x, &source, Some(&Tensor::zeros([1, 4], DType::Bool)));
    let bias = layer.out.bias.as_ref().unwrap().broadcast_to([2, 3, 6]);
    assert_eq!(numbers(&[&nothing]), numbers(&[&bias]));
    let none = layer.apply(&x, &source.index((.., ..0)), None);
    assert_eq!(numbers(&[&none]), numbers(&[&bias]));
    assert_eq!(layer.apply(&x.index((.., ..0)), &source, None).shape().unwrap(), [2, 0, 6]);
    let plain = layer.without_bias();
    assert_eq!(tree::leaves(&plain).len(), 4);
    assert_eq!(numbers(&[&plain.apply(&x, &source.index((.., ..0)), None)]), [0.0; 36]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let message = |x: Tensor| {
        let error = x.error().unwrap();
        assert!(error.to_string().contains("cross.rs"), "{error}");
        format!("{}: {}", error.operation(), error.message())
    };
    let (layer, _) = layer("grouped", DType::F32);
    let (x, source) = sequences(DType::F32);
    assert_eq!(
        message(layer.apply(&Tensor::zeros([6], DType::F32), &source, None)),
        "nn::CrossAttention::apply: takes axes of positions and of features, not f32[6]"
    );
    assert_eq!(
        message(layer.apply(&x, &Tensor::zeros([5], DType::F32), None)),
        "nn::CrossAttention::apply: takes axes of positions and of features, not f32[5]"
    );
    assert_eq!(
        message(layer.apply(&x, &x, None)),
        "nn::Linear::apply: takes 5 features in the last axis, as its weights f32[5,6] do, not f32[2,3,6]"
    );
    assert_eq!(
        message(layer.apply(&x.index(0), &source, None)),
        "dot_product_attention: the batches of queries f32[3,4,3] and keys f32[2,4,2,3] differ"
    );
    assert_eq!(
        message(layer.apply(&x, &source.to_dtype(DType::Bf16), None)),
        "matmul: bf16[2,4,5] and f32[5,6] have different dtypes; convert one with .to_dtype(DType::F32)"
    );
    assert_eq!(
        message(layer.apply(&x, &source, Some(&Tensor::zeros([4], DType::F32)))),
        "dot_product_attention: the mask must be bool, not f32[1,1,1,4]"
    );
    assert_eq!(
        message(layer.apply(&x, &source, Some(&Tensor::zeros([5], DType::Bool)))),
        "dot_product_attention: the mask bool[1,1,1,5] does not broadcast to [2, 4, 3, 4]"
    );
    let three = CrossAttention::new(random::key(0), [6, 5], [4, 3], 3);
    assert_eq!(message(three.q.weight.clone()), "nn::CrossAttention::init: 3 key heads do not divide 4 heads");
    assert_eq!(message(three.apply(&x, &source, None)), "nn::CrossAttention::init: 3 key heads do not divide 4 heads");
    let changed = CrossAttention { heads: 5, ..layer.clone() };
    assert_eq!(
        message(changed.apply(&x, &source, None)),
        "nn::CrossAttention::apply: 2 key heads do not divide 5 heads"
    );
    let changed = CrossAttention { heads: 8, ..layer };
    assert_eq!(
        message(changed.apply(&x, &source, None)),
        "nn::CrossAttention::apply: 8 heads do not divide 12 features"
    );
    assert!(CrossAttention::init(random::key(0), [6, 5], [4, 2], 3, DType::I32).k.weight.error().is_some());
    // More features than can be counted.
    let CrossAttention { q, k, v, out, .. } = CrossAttention::new(random::key(0), [6, 5], [1 << 33; 2], 1 << 33);
    for weight in [q.weight, k.weight, v.weight, out.weight] {
        assert!(message(weight).ends_with(" is too large"));
    }
}
