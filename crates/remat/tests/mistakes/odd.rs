//! Sizes and numbers at the edge of what can be counted: an error or a tensor, never a panic.

use remat::index::step;
use remat::nn::{
    Attention, Block, ConvTranspose, Gpt2, Gpt2Config, Gru, Lstm, ResNet, ResNetConfig, UNet, UNetConfig, Vit,
    VitConfig,
};
use remat::{
    BatchAxes, ConvConfig, DType, Padding, PoolConfig, ScanOptions, Tensor, VmapOptions, eval_shape, fori_loop, random,
    scan_with, vmap_with,
};

const HUGE: i64 = 1 << 40;

#[test]
fn shapes_past_what_can_be_counted() {
    mistake!(
        Tensor::zeros([HUGE, HUGE], DType::F32),
        "broadcast_in_dim: the result f32[1099511627776,1099511627776] has more than 2^63 elements",
        1,
        9
    );
    mistake!(
        Tensor::zeros([HUGE, HUGE, 0], DType::F32),
        "broadcast_in_dim: the result f32[1099511627776,1099511627776,0] has more than 2^63 elements",
        1,
        9
    );
    mistake!(
        Tensor::zeros([i64::MAX], DType::F32),
        "broadcast_in_dim: the result f32[9223372036854775807] takes more than 2^63 bytes",
        1,
        9
    );
    mistake!(
        Tensor::iota([HUGE, HUGE], 0, DType::I32),
        "iota: the result i32[1099511627776,1099511627776] has more than 2^63 elements",
        1,
        9
    );
    mistake!(
        Tensor::eye(1 << 40, DType::F32),
        "iota: the result i32[1099511627776,1099511627776] has more than 2^63 elements",
        1,
        9
    );
    mistake!(
        Tensor::from_slice(&[1.0f32], [HUGE, HUGE, 0]),
        "from_slice: 1 element cannot fill f32[1099511627776,1099511627776,0]",
        1,
        9
    );
    mistake!(
        random::normal(random::key(0), [HUGE, HUGE], DType::F32),
        "random::normal: the shape [1099511627776, 1099511627776] is too large",
        1,
        9
    );
    let x = Tensor::new([1.0f32, 2.0]);
    mistake!(
        x.broadcast_to([HUGE, HUGE, 2]),
        "broadcast_in_dim: the result f32[1099511627776,1099511627776,2] has more than 2^63 elements",
        1,
        11
    );
    mistake!(
        x.reshape([HUGE, HUGE]),
        "reshape: [1099511627776, 1099511627776] has more elements than memory can hold",
        1,
        11
    );
    mistake!(
        x.tile([HUGE, HUGE]),
        "broadcast_in_dim: the result f32[1099511627776,1,1099511627776,2] has more than 2^63 elements",
        1,
        11
    );
    mistake!(
        x.tile(i64::MAX),
        "broadcast_in_dim: the result f32[9223372036854775807,2] has more than 2^63 elements",
        1,
        11
    );
    mistake!(
        x.repeat(usize::MAX, 0),
        "broadcast_in_dim: the result f32[2,18446744073709551615] has more than 2^63 elements",
        1,
        11
    );
    mistake!(x.pad([(i64::MAX, i64::MAX)], 0), "pad: the result has more than 2^63 elements", 0, 16);
    mistake!(
        x.pad([(i64::MIN, 0)], 0),
        "pad: padding (-9223372036854775808, 0, 0) leaves dimension 0 of f32[2] with size -9223372036854775806",
        1,
        11
    );
    mistake!(
        x.pad_dilated([(0, 0, usize::MAX)], 0),
        "pad: padding_config has 18446744073709551615, which is past 2^63",
        1,
        11
    );
    mistake!(
        x.diag(i64::MIN),
        "iota: the result i32[9223372036854775807,9223372036854775807] has more than 2^63 elements",
        1,
        11
    );
    mistake!(
        x.diag(i64::MAX),
        "iota: the result i32[9223372036854775807,9223372036854775807] has more than 2^63 elements",
        1,
        11
    );
    mistake!(
        x.top_k(usize::MAX),
        "top_k: k is 18446744073709551615, and the last dimension of f32[2] has size 2",
        1,
        11
    );
}

#[test]
fn arrays_past_what_memory_holds() {
    mistake!(
        Tensor::zeros([1i64 << 60], DType::F32),
        "broadcast_in_dim: there is no memory for the result f32[1152921504606846976], of 4611686018427387904 bytes",
        1,
        9
    );
    mistake!(
        Tensor::arange(0_i64..i64::MAX),
        "iota: the result i64[9223372036854775807] takes more than 2^63 bytes",
        1,
        9
    );
    mistake!(
        Tensor::arange(i64::MIN..i64::MAX),
        "iota: the result i64[18446744073709551615] has more than 2^63 elements",
        1,
        9
    );
    mistake!(Tensor::arange(0.0..1e300f64), "arange: there are more numbers than memory can hold", 0, 14);
    mistake!(
        Tensor::linspace(0.0, 1.0, usize::MAX, DType::F32),
        "iota: the result f32[9223372036854775807] takes more than 2^63 bytes",
        1,
        9
    );
    mistake!(
        Tensor::new([0]).one_hot(usize::MAX, DType::F32),
        "iota: the result i32[1,18446744073709551615] has more than 2^63 elements",
        1,
        26
    );
    mistake!(
        Tensor::new([0]).one_hot(1 << 55, DType::F32),
        "iota: there is no memory for the result i32[1,36028797018963968], of 144115188075855872 bytes",
        1,
        26
    );
    mistake!(
        random::uniform(random::key(0), [1i64 << 55], DType::F32, 0.0..1.0),
        "random::uniform: there is no memory to compute the result f32[36028797018963968], of 144115188075855872 bytes",
        1,
        9
    );
    mistake!(
        random::permutation(random::key(0), usize::MAX),
        "random::permutation: 18446744073709551615 elements are too many for i32 indices",
        1,
        9
    );
}

#[test]
fn layers_past_what_can_be_counted() {
    let key = || random::key(0);
    mistake!(
        Lstm::init(key(), 3, 1 << 62, DType::F32).input.weight,
        "random::uniform: the shape [3, 9223372036854775807] is too large",
        1,
        9
    );
    mistake!(
        Gru::init(key(), 3, 1 << 63, DType::F32).hidden.weight,
        "random::uniform: the shape [9223372036854775807, 9223372036854775807] is too large",
        1,
        9
    );
    mistake!(
        Attention::init(key(), 1 << 63, 1, DType::F32).qkv.weight,
        "random::truncated_normal: the shape [9223372036854775807, 9223372036854775807] is too large",
        1,
        9
    );
    mistake!(
        Block::init(key(), 1 << 62, 1, DType::F32).mlp.up.weight,
        "random::truncated_normal: the shape [4611686018427387904, 9223372036854775807] is too large",
        1,
        9
    );
    let config =
        Gpt2Config { vocab_size: 8, n_positions: 8, n_embd: 1 << 62, n_layer: 1, n_head: 1, ..Gpt2Config::default() };
    mistake!(
        Gpt2::init(key(), &config, DType::F32).blocks.to_layers().remove(0).mlp.up.weight,
        "random::truncated_normal: the shape [4611686018427387904, 9223372036854775807] is too large",
        1,
        9
    );
    let config = UNetConfig {
        block_out_channels: vec![1 << 63],
        layers_per_block: 1,
        norm_num_groups: 1,
        time: true,
        ..UNetConfig::default()
    };
    mistake!(
        UNet::init(key(), &config, DType::F32).up.remove(0).blocks.remove(0).conv1.kernel,
        "random::truncated_normal: the shape [9223372036854775807, 9223372036854775807, 3, 3] is too large",
        1,
        9
    );
    mistake!(
        UNet::init(key(), &config, DType::F32).time.unwrap().1.weight,
        "random::truncated_normal: the shape [9223372036854775807, 9223372036854775807] is too large",
        1,
        9
    );
    let config =
        ResNetConfig { embedding_size: 4, hidden_sizes: vec![1 << 62], depths: vec![1], ..ResNetConfig::resnet18() };
    mistake!(
        ResNet::init(key(), &config, DType::F32).stages.remove(0).remove(0).convs.remove(0).conv.kernel,
        "random::normal: the shape [4611686018427387904, 4, 3, 3] is too large",
        1,
        9
    );
    let config = VitConfig {
        image_size: 1 << 40,
        patch_size: 1,
        hidden_size: 8,
        num_hidden_layers: 0,
        num_attention_heads: 1,
        ..VitConfig::default()
    };
    mistake!(
        Vit::init(key(), &config, DType::F32).positions,
        "random::normal: the shape [9223372036854775807, 8] is too large",
        1,
        9
    );
    // A kernel without inputs may be of any number of groups.
    let kernel = Tensor::zeros([0, 1 << 30, 3], DType::F32);
    let layer = ConvTranspose { kernel, groups: 1 << 40, ..ConvTranspose::init(key(), 1, 1, [3], DType::F32) };
    mistake!(
        layer.apply(&Tensor::zeros([1, 0, 4], DType::F32)),
        "reshape: the result f32[1099511627776,0,1073741824,3] has more than 2^63 elements",
        1,
        15
    );
}

#[test]
fn axes_and_indices_at_the_ends_of_integers() {
    let x = Tensor::zeros([2, 3], DType::F32);
    mistake!(
        x.sum(i64::MIN),
        "sum: axis -9223372036854775808 is out of range for f32[2,3], which has 2 dimensions",
        1,
        11
    );
    mistake!(
        x.sum(usize::MAX),
        "sum: axis 9223372036854775807 is out of range for f32[2,3], which has 2 dimensions",
        1,
        11
    );
    mistake!(
        x.expand_dims(i64::MIN),
        "expand_dims: axis -9223372036854775808 is out of range: f32[2,3] becomes a tensor of 3 dimensions",
        1,
        11
    );
    mistake!(
        x.index(i64::MIN),
        "index: index -9223372036854775808 is out of range for dimension 0 of f32[2,3], of size 2",
        1,
        11
    );
    mistake!(
        x.index(i64::MIN..i64::MAX),
        "index: range -9223372036854775808..9223372036854775807 is out of range for dimension 0 of f32[2,3], of size 2",
        1,
        11
    );
    mistake!(
        x.index(..=i64::MAX),
        "index: range ..9223372036854775807 is out of range for dimension 0 of f32[2,3], of size 2",
        1,
        11
    );
    mistake!(
        x.split(0, 0),
        "split: dimension 0 of f32[2,3] does not split into 0 equal parts; `chunk` and `split_at` make unequal ones",
        1,
        11
    );
    mistake!(x.chunk(0, 0), "chunk: f32[2,3] cannot be cut into 0 parts", 0, 16);
    mistake!(
        x.split_at(&[usize::MAX], 0),
        "split_at: 18446744073709551615..2 is not a range of dimension 0 of f32[2,3]",
        1,
        11
    );
    let axes = |axis| VmapOptions { in_axes: BatchAxes::All(axis), ..VmapOptions::default() };
    mistake!(
        vmap_with(&axes(i64::MIN), |x: &Tensor| x.sin())(&x),
        "vmap: the argument is f32[2,3] and has no axis -9223372036854775808 of examples; to share it among all examples, \
         capture it in the closure",
        1,
        9
    );
    mistake!(
        vmap_with(&axes(i64::MAX), |x: &Tensor| x.sin())(&x),
        "vmap: the argument is f32[2,3] and has no axis 9223372036854775807 of examples; to share it among all examples, \
         capture it in the closure",
        1,
        9
    );
    mistake!(
        fori_loop(i64::MIN, i64::MAX, |_: &Tensor, x: &Tensor| x.sin(), &x),
        "fori_loop: the bounds -9223372036854775808 and 9223372036854775807 do not fit the index, an i32",
        1,
        9
    );
}

#[test]
fn steps_at_the_ends_of_integers_are_no_mistake() {
    let x = Tensor::arange(0..6);
    assert_eq!(x.index(step(.., i64::MAX)).to_vec::<i32>().unwrap(), [0]);
    assert_eq!(x.index(step(.., i64::MIN)).to_vec::<i32>().unwrap(), [5]);
    assert_eq!(x.roll(i64::MIN, 0).to_vec::<i32>().unwrap().len(), 6);
    assert_eq!(x.reshape([2, 3]).tril(i64::MIN).to_vec::<i32>().unwrap(), [0; 6]);
    assert_eq!(x.reshape([2, 3]).triu(i64::MIN).to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(x.reshape([2, 3]).diagonal(i64::MIN, 0, 1).to_vec::<i32>().unwrap(), []);
    assert_eq!(x.chunk(usize::MAX >> 8, 0).len(), 6);
    let ends = Tensor::new([i32::MIN, -1]);
    assert_eq!((ends.abs().neg() / -1).to_vec::<i32>().unwrap(), [i32::MIN, 1]);
    assert_eq!((&ends / 0).to_vec::<i32>().unwrap().len(), 2);
    assert_eq!((&ends % 0).to_vec::<i32>().unwrap().len(), 2);
    assert_eq!((&ends << 99).to_vec::<i32>().unwrap(), [0, 0]);
    assert_eq!(ends.powi(i32::MAX).to_vec::<i32>().unwrap(), [0, -1]);
    assert_eq!(x.take(&Tensor::new([i64::MIN, i64::MAX]), 0).to_vec::<i32>().unwrap(), [i32::MIN; 2]);
    assert_eq!(x.take(&Tensor::new([u64::MAX]), 0).to_vec::<i32>().unwrap().len(), 1);
    assert_eq!(x.dynamic_slice(i32::MIN, [2]).to_vec::<i32>().unwrap(), [0, 1]);
    assert_eq!(x.dynamic_slice(Tensor::from(u64::MAX), [2]).to_vec::<i32>().unwrap(), [4, 5]);
}

#[test]
fn windows_past_what_can_be_counted() {
    let x = Tensor::zeros([1, 1, 4], DType::F32);
    let kernel = Tensor::zeros([1, 1, 2], DType::F32);
    let config = ConvConfig::default();
    mistake!(
        x.conv(&kernel, &ConvConfig { kernel_dilation: vec![usize::MAX], ..config.clone() }),
        "conv_general_dilated: rhs_dilation has 18446744073709551615, which is past 2^63",
        1,
        11
    );
    mistake!(
        x.conv(&kernel, &ConvConfig { input_dilation: vec![usize::MAX], ..config.clone() }),
        "conv_general_dilated: lhs_dilation has 18446744073709551615, which is past 2^63",
        1,
        11
    );
    let huge = ConvConfig { strides: vec![usize::MAX], padding: Padding::Same, ..config.clone() };
    mistake!(
        x.conv(&kernel, &huge),
        "conv_general_dilated: window_strides has 18446744073709551615, which is past 2^63",
        1,
        11
    );
    let padding = Padding::Explicit(vec![(i64::MAX, i64::MAX)]);
    mistake!(
        x.conv(&kernel, &ConvConfig { padding, ..config.clone() }),
        "conv_general_dilated: the result has more than 2^63 elements",
        1,
        11
    );
    mistake!(
        x.conv(&kernel, &ConvConfig { feature_groups: 0, ..config.clone() }),
        "conv_general_dilated: feature_group_count has a 0",
        1,
        11
    );
    mistake!(
        x.conv(&kernel, &ConvConfig { batch_groups: usize::MAX, ..config.clone() }),
        "conv_general_dilated: batch_group_count has 18446744073709551615, which is past 2^63",
        1,
        11
    );
    let pool = PoolConfig { dilation: vec![usize::MAX], padding: Padding::Same, ..PoolConfig::new([3]) };
    mistake!(
        x.max_pool(&pool),
        "reduce_window_max: window_dilation has 18446744073709551615, which is past 2^63",
        1,
        11
    );
    let pool = PoolConfig { padding: Padding::Same, ..PoolConfig::new([usize::MAX]) };
    mistake!(
        x.avg_pool(&pool),
        "reduce_window_sum: window_dimensions has 18446744073709551615, which is past 2^63",
        1,
        11
    );
}

#[test]
fn shapes_past_memory_are_fine_where_nothing_is_computed() {
    let y = eval_shape(|x: &Tensor| x.broadcast_to([1 << 30, 1 << 20, 2]))(&Tensor::new([1.0f32, 2.0])).unwrap();
    assert_eq!(y.aval().unwrap().to_string(), "f32[1073741824,1048576,2]");
}

#[test]
fn loops_and_batches_of_nothing() {
    let zero = Tensor::from(0.0f32);
    let options = ScanOptions { length: Some(0), ..ScanOptions::default() };
    let (sum, ys) = scan_with(&options, |c: &Tensor, _: &()| (c + 1, c.clone()), &zero, &()).unwrap();
    assert_eq!((sum.item::<f32>().unwrap(), ys.dims().unwrap()), (0.0, [0]));
    assert_eq!(fori_loop(5, -5, |_: &Tensor, x: &Tensor| x + 1, &zero).unwrap().item::<f32>().unwrap(), 0.0);
    let options = VmapOptions { size: Some(0), ..VmapOptions::default() };
    let out = vmap_with(&options, |_: &()| Tensor::from(1.0f32))(&()).unwrap();
    assert_eq!(out.shape().unwrap(), [0]);
    let options = VmapOptions { size: Some(usize::MAX), ..VmapOptions::default() };
    mistake!(
        vmap_with(&options, |_: &()| Tensor::new([1.0f32, 2.0]))(&()),
        "broadcast_in_dim: the result f32[18446744073709551615,2] has more than 2^63 elements",
        1,
        9
    );
    let options = ScanOptions { length: Some(usize::MAX), ..ScanOptions::default() };
    mistake!(
        scan_with(&options, |c: &Tensor, _: &()| (c + 1, c.clone()), &zero, &()),
        "scan: there is no memory for the result f32[] f32[18446744073709551615], of 18446744073709551615 bytes",
        1,
        9
    );
}

#[test]
fn empty_tensors() {
    let x = Tensor::zeros([0, 3], DType::F32);
    for y in [x.sum(0), x.prod(0), x.mean(0), x.variance(0), x.norm(0)] {
        assert_eq!(y.to_vec::<f32>().unwrap().len(), 3);
    }
    for y in [x.sort(0), x.cumsum(0), x.flip(0), x.roll(2, 0), x.softmax(1), x.layer_norm(1, 1e-5, None, None)] {
        assert_eq!(y.shape().unwrap(), [0, 3]);
    }
    assert_eq!(x.t().matmul(&x).to_vec::<f32>().unwrap(), [0.0; 9]);
    assert_eq!(x.to_string(), "[]");
    assert_eq!(x.top_k(0).0.shape().unwrap(), [0, 0]);
    mistake!(x.take(&Tensor::new([0]), 0), "gather: elements of the result f32[1,3] have no source in f32[0,3]", 0, 16);
}
