//! Attention and losses on operands that do not fit.

use remat::nn::{self, AttentionConfig, dot_product_attention};
use remat::{DType, Tensor};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32)
}

#[test]
fn queries_keys_and_values() {
    let config = AttentionConfig::default();
    let attend = |q: &[usize], k: &[usize], v: &[usize]| [q, k, v].map(zeros);
    let [q, k, v] = attend(&[4, 8], &[4, 8], &[4, 8]);
    mistake!(
        dot_product_attention(&q, &k, &v, &config),
        "dot_product_attention: takes queries [.., positions, heads, features], not f32[4,8]",
        1,
        9
    );
    let [q, k, v] = attend(&[2, 4, 2, 8], &[4, 2, 8], &[4, 2, 8]);
    mistake!(
        dot_product_attention(&q, &k, &v, &config),
        "dot_product_attention: the batches of queries f32[2,4,2,8] and keys f32[4,2,8] differ",
        1,
        9
    );
    let [q, k, v] = attend(&[2, 4, 2, 8], &[2, 4, 2, 6], &[2, 4, 2, 8]);
    mistake!(
        dot_product_attention(&q, &k, &v, &config),
        "dot_product_attention: the features of queries f32[2,4,2,8] and keys f32[2,4,2,6] differ",
        1,
        9
    );
    let [q, k, v] = attend(&[2, 4, 2, 8], &[2, 5, 2, 8], &[2, 4, 2, 8]);
    mistake!(
        dot_product_attention(&q, &k, &v, &config),
        "dot_product_attention: the positions of keys f32[2,5,2,8] and values f32[2,4,2,8] differ",
        1,
        9
    );
    let [q, k, v] = attend(&[2, 4, 3, 8], &[2, 5, 2, 8], &[2, 5, 2, 8]);
    mistake!(
        dot_product_attention(&q, &k, &v, &config),
        "dot_product_attention: the 3 heads of f32[2,4,3,8] are not a multiple of the 2 of f32[2,5,2,8]",
        1,
        9
    );
    let v = v.to_dtype(DType::F64);
    mistake!(
        dot_product_attention(&k, &k, &v, &config),
        "dot_product_attention: f32[2,5,2,8] and f64[2,5,2,8] have different dtypes; convert one with \
         .to_dtype(DType::F64)",
        1,
        9
    );
    let k = k.to_dtype(DType::I32);
    mistake!(
        dot_product_attention(&k, &k, &k, &config),
        "dot_product_attention: takes floats, not i32[2,5,2,8]; convert it with .to_dtype(DType::F32)",
        1,
        9
    );
}

#[test]
fn biases_and_masks() {
    let x = zeros(&[2, 4, 3, 8]);
    let bias = |bias: Tensor| AttentionConfig { bias: Some(bias), ..AttentionConfig::default() };
    mistake!(
        dot_product_attention(&x, &x, &x, &bias(zeros(&[2, 3, 4, 5]))),
        "dot_product_attention: the bias f32[2,3,4,5] does not broadcast to [2, 3, 4, 4]",
        1,
        9
    );
    mistake!(
        dot_product_attention(&x, &x, &x, &bias(zeros(&[1, 2, 3, 4, 4]))),
        "dot_product_attention: the bias f32[1,2,3,4,4] has more dimensions than the scores, which have 4",
        1,
        9
    );
    mistake!(
        dot_product_attention(&x, &x, &x, &bias(Tensor::zeros([4, 4], DType::Bf16))),
        "dot_product_attention: f32[2,4,3,8] and bf16[1,1,4,4] have different dtypes; convert one with \
         .to_dtype(DType::F32)",
        1,
        9
    );
    let mask = AttentionConfig { mask: Some(zeros(&[4, 4])), ..AttentionConfig::default() };
    mistake!(
        dot_product_attention(&x, &x, &x, &mask),
        "dot_product_attention: the mask must be bool, not f32[1,1,4,4]",
        1,
        9
    );
}

#[test]
fn targets_of_a_loss() {
    let logits = zeros(&[2, 5]);
    mistake!(
        nn::cross_entropy(&logits, &Tensor::new([1i32])),
        "nn::cross_entropy: the targets i32[1] are not one for each position of the logits f32[2,5]",
        1,
        9
    );
    mistake!(
        nn::cross_entropy(&logits, &zeros(&[2])),
        "nn::cross_entropy: the targets must be integers, not f32[2]; convert them with .to_dtype(DType::I32)",
        1,
        9
    );
    mistake!(
        nn::cross_entropy(&Tensor::new([[1i32, 2]]), &Tensor::new([1i32])),
        "nn::cross_entropy: the logits must be floats, not i32[1,2]; convert them with .to_dtype(DType::F32)",
        1,
        9
    );
    let (mask, targets) = (Tensor::zeros([3], DType::Bool), Tensor::zeros([2], DType::I32));
    mistake!(
        nn::cross_entropy_where(&logits, &targets, &mask),
        "nn::cross_entropy_where: the mask bool[3] does not broadcast to the targets i32[2]",
        1,
        9
    );
    let (logits, tokens) = (zeros(&[2, 4, 5]), Tensor::zeros([2, 4], DType::I32));
    mistake!(
        nn::next_token_loss(&logits, &tokens, Some(&mask)),
        "nn::next_token_loss: the mask bool[3] does not broadcast to the targets i32[2,4]",
        1,
        9
    );
}

#[test]
fn features_of_a_norm() {
    let x = zeros(&[2, 4, 6]);
    mistake!(
        nn::LayerNorm::new(4).apply(&x),
        "nn::LayerNorm::apply: takes 4 features in the last axis, as its weights f32[4] do, not f32[2,4,6]",
        1,
        31
    );
    // One feature would broadcast.
    let one = zeros(&[2, 4, 1]);
    mistake!(
        nn::RmsNorm::new(4).apply(&one),
        "nn::RmsNorm::apply: takes 4 features in the last axis, as its weights f32[4] do, not f32[2,4,1]",
        1,
        29
    );
}
