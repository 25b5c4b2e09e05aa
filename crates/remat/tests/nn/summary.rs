//! The summary of a model.

use remat::nn::{BatchNorm, Gpt2, Gpt2Config, Linear, RunningStatistics, Stack};
use remat::{DType, Tensor, Tree, random, tree};

#[test]
fn equal_layers_of_a_list_share_lines() {
    let config =
        Gpt2Config { vocab_size: 16, n_positions: 8, n_embd: 4, n_layer: 3, n_head: 2, ..Gpt2Config::default() };
    let summary = tree::summary(&Gpt2::new(random::key(0), &config));
    let text = summary.to_string();
    assert!(text.contains("blocks.*.attn.qkv.weight  f32[4,12]  3 x 48"), "{text}");
    let expected: usize =
        tree::leaves(&Gpt2::new(random::key(0), &config)).iter().map(|(_, x)| x.size().unwrap()).sum();
    assert_eq!((summary.parameters(), summary.bytes()), (expected, 4 * expected));
    assert!(text.ends_with(&format!(
        "{} tensors, {expected} parameters, {}",
        summary.tensors(),
        remat::ir::readable_bytes(4 * expected)
    )));
}

#[test]
fn other_trees() {
    // Elements of a tuple are different parts, and those of a list may differ too.
    let pair = (Tensor::ones([2], DType::F32), Tensor::ones([2], DType::F32));
    assert_eq!(tree::summary(&pair).to_string(), "0  f32[2]  2  8 B\n1  f32[2]  2  8 B\n2 tensors, 4 parameters, 16 B");
    let list = vec![Tensor::ones([2], DType::F32), Tensor::ones([3], DType::F32), Tensor::ones([2], DType::F32)];
    assert_eq!(
        tree::summary(&list).to_string(),
        "*  f32[2]  2 x 2  16 B\n1  f32[3]      3  12 B\n3 tensors, 7 parameters, 28 B"
    );
    // Integers are no parameters, and a model without tensors has none.
    assert_eq!(tree::summary(&Tensor::from(1i32)).to_string(), "  i32[]  1  4 B\n1 tensor, 0 parameters, 4 B");
    assert_eq!(tree::summary(&()).to_string(), "0 tensors, 0 parameters, 0 B");
    // Stacked layers are one tensor each; abstract tensors count as well.
    let stack = Stack::init(random::key(0), 3, |key| Linear::new(key, 4, 4)).stacked().unwrap();
    assert_eq!(tree::parameters(&stack), 3 * (16 + 4));
    assert_eq!(tree::parameters(&Tensor::shape_only([1 << 20, 1 << 20], DType::Bf16)), 1 << 40);
}

#[test]
fn a_failed_tensor_has_its_error() {
    let failed = &Tensor::ones([2], DType::F32) + &Tensor::ones([3], DType::F32);
    let text = tree::summary(&(failed.clone(), failed)).to_string();
    let line = "failed: add: f32[2] and f32[3] do not broadcast: dimension -1 has size 2 and 3";
    assert_eq!(text, format!("0  {line}\n1  {line}\n2 tensors, 0 parameters, 0 B"));
}

#[test]
fn a_model_with_statistics() {
    #[derive(Tree)]
    struct Net {
        norm: BatchNorm,
        statistics: RunningStatistics,
    }
    let net = Net { norm: BatchNorm::new(3), statistics: RunningStatistics::new(3) };
    assert_eq!(
        tree::summary(&net).to_string(),
        "norm.scale           f32[3]  3  12 B
norm.bias            f32[3]  3  12 B
statistics.mean      f32[3]  3  12 B
statistics.variance  f32[3]  3  12 B
4 tensors, 12 parameters, 48 B"
    );
}
