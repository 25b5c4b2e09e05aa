//! Shapes that do not fit, in each family of operations.

use remat::{ConvConfig, DType, Padding, PoolConfig, Tensor, nn, random};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32)
}

#[test]
fn elementwise_operands_do_not_broadcast() {
    let (x, y) = (zeros(&[2, 3]), zeros(&[4]));
    mistake!(&x + &y, "add: f32[2,3] and f32[4] do not broadcast: dimension -1 has size 3 and 4", 0, 14);
    mistake!(x.atan2(&y), "atan2: f32[2,3] and f32[4] do not broadcast: dimension -1 has size 3 and 4", 0, 16);
    mistake!(
        x.gt(0).select(&x, &y),
        "select: bool[2,3] and f32[4] do not broadcast: dimension -1 has size 3 and 4",
        1,
        17
    );
    mistake!(x.clamp(&y, 1), "clamp: f32[4] and f32[2,3] do not broadcast: dimension -1 has size 4 and 3", 0, 16);
}

#[test]
fn assignment_operators_are_the_users_line_too() {
    let mut x = zeros(&[2, 3]);
    x += zeros(&[4]);
    mistake!(x, "add: f32[2,3] and f32[4] do not broadcast: dimension -1 has size 3 and 4", -1, 5);
}

#[test]
fn matrices_whose_inner_sizes_differ() {
    let (x, y) = (zeros(&[8, 16]), zeros(&[8, 4]));
    mistake!(x.matmul(&y), "matmul: the inner sizes of f32[8,16] and f32[8,4] differ: 16 and 8", 0, 16);
    mistake!(x.dot(&y), "dot: the inner sizes of f32[8,16] and f32[8,4] differ: 16 and 8", 0, 16);
    mistake!(
        x.matmul(&Tensor::from(2.0f32)),
        "matmul: takes vectors and matrices, not the scalar f32[]; multiply by it with `*`",
        1,
        11
    );
    mistake!(
        zeros(&[3, 2, 4]).matmul(&zeros(&[5, 4, 2])),
        "matmul: f32[3,2,4] and f32[5,4,2] do not broadcast: 3 and 5 matrices",
        1,
        27
    );
}

#[test]
fn general_products() {
    let (x, y) = (zeros(&[2, 3]), zeros(&[2, 4]));
    mistake!(
        x.dot_general(&y, (1, 1), (0, 0)),
        "dot_general: contracting dimensions differ: 3 of f32[2,3] and 4 of f32[2,4]",
        1,
        11
    );
    mistake!(
        x.dot_general(&y, ([0, 1], [0]), ((), ())),
        "dot_general: f32[2,3] has 2 contracting dimensions and f32[2,4] has 1",
        1,
        11
    );
    mistake!(
        x.dot_general(&y, (0, 0), (0, 0)),
        "dot_general: axis 0 of f32[2,3] is given both as contracted and as batch axis",
        1,
        11
    );
    mistake!(
        x.dot_general(&zeros(&[3, 4]), ((), ()), (0, 0)),
        "dot_general: batch dimensions differ: 2 of f32[2,3] and 3 of f32[3,4]",
        1,
        11
    );
}

#[test]
fn joining() {
    let (x, y) = (zeros(&[2, 3]), zeros(&[2, 4]));
    mistake!(
        Tensor::concatenate(&[&x, &y], 0),
        "concatenate: sizes of f32[2,3] and f32[2,4] differ in dimension 1",
        1,
        9
    );
    mistake!(Tensor::concatenate(&[&x, &zeros(&[3])], 0), "concatenate: ranks of f32[2,3] and f32[3] differ", 0, 14);
    mistake!(Tensor::stack(&[&x, &y], 0), "stack: f32[2,3] and f32[2,4] have different shapes", 0, 14);
    mistake!(Tensor::concatenate(&[] as &[Tensor], 0), "concatenate: takes at least one tensor", 0, 14);
}

#[test]
fn reshaping() {
    let x = zeros(&[2, 3]);
    mistake!(x.reshape([4, 2]), "reshape: f32[2,3] has 6 elements and f32[4,2] has 8", 0, 16);
    mistake!(x.reshape([4, -1]), "reshape: f32[2,3] has 6 elements, which [4, -1] does not divide", 0, 16);
    mistake!(x.reshape([-1, -1]), "reshape: only one size of [-1, -1] can be -1, for f32[2,3]", 0, 16);
    mistake!(x.reshape([-2, 3]), "reshape: the size -2 is negative, for f32[2,3]", 0, 16);
    mistake!(x.squeeze(0), "squeeze: dimension 0 of f32[2,3] has size 2 and not 1", 0, 16);
}

#[test]
fn broadcasting_to_a_shape() {
    mistake!(zeros(&[2, 3]).broadcast_to([3, 2]), "broadcast_to: f32[2,3] does not broadcast to f32[3,2]", 0, 29);
    mistake!(zeros(&[2, 3]).broadcast_to([3]), "broadcast_to: f32[2,3] does not broadcast to f32[3]", 0, 29);
}

#[test]
fn transposing() {
    mistake!(
        zeros(&[2, 3]).transpose([0]),
        "transpose: takes one axis for each dimension of f32[2,3] and got 1",
        1,
        24
    );
    mistake!(zeros(&[3]).t(), "t: takes at least two dimensions and got f32[3]", 0, 26);
}

#[test]
fn padding() {
    mistake!(zeros(&[2, 3]).pad([(1, 1)], 0), "pad: padding_config has 1 entries and f32[2,3] has 2 dimensions", 0, 29);
    mistake!(
        zeros(&[2, 3]).pad([(-3, 0), (0, 0)], 0),
        "pad: padding (-3, 0, 0) leaves dimension 0 of f32[2,3] with size -1",
        1,
        24
    );
    mistake!(zeros(&[2]).pad([(1, 1)], zeros(&[2])), "pad: the padding value f32[2] is not a scalar", 0, 26);
}

#[test]
fn splitting() {
    mistake!(
        zeros(&[5, 2]).split(2, 0),
        "split: dimension 0 of f32[5,2] does not split into 2 equal parts; `chunk` and `split_at` make unequal ones",
        1,
        24
    );
    mistake!(zeros(&[5, 2]).split_at(&[3, 1], 0), "split_at: 3..1 is not a range of dimension 0 of f32[5,2]", 0, 29);
    mistake!(zeros(&[5, 2]).split_at(&[3, 7], 0), "split_at: 7..5 is not a range of dimension 0 of f32[5,2]", 0, 29);
}

#[test]
fn convolution() {
    let x = zeros(&[1, 3, 8, 8]);
    mistake!(
        x.conv(&zeros(&[4, 2, 3, 3]), &ConvConfig::default()),
        "conv_general_dilated: input features differ: 3 of f32[1,3,8,8] and 2 of f32[4,2,3,3] in 1 groups",
        1,
        11
    );
    mistake!(
        x.conv(&zeros(&[4, 3, 3]), &ConvConfig::default()),
        "conv: f32[1,3,8,8] and the kernel f32[4,3,3] must have the same rank, at least 2",
        1,
        11
    );
    let strides = ConvConfig { strides: vec![2], ..ConvConfig::default() };
    mistake!(x.conv(&zeros(&[4, 3, 3, 3]), &strides), "conv: strides is [2] and not 2 positive numbers", 0, 16);
    let groups = ConvConfig { feature_groups: 2, ..ConvConfig::default() };
    mistake!(
        x.conv(&zeros(&[4, 3, 3, 3]), &groups),
        "conv_general_dilated: input features differ: 3 of f32[1,3,8,8] and 3 of f32[4,3,3,3] in 2 groups",
        1,
        11
    );
    let padding = ConvConfig { padding: Padding::Explicit(vec![(1, 1)]), ..ConvConfig::default() };
    mistake!(x.conv(&zeros(&[4, 3, 3, 3]), &padding), "conv: 1 pair of padding for 2 spatial dimensions", 0, 16);
    let layout = ConvConfig { layout: Some(["NHWC", "HWIO", "NHW"]), ..ConvConfig::default() };
    mistake!(x.conv(&zeros(&[4, 3, 3, 3]), &layout), "conv: the layout \"NHW\" must have 4 letters", 0, 16);
}

#[test]
fn pooling() {
    let x = zeros(&[4, 4]);
    mistake!(
        x.max_pool(&PoolConfig::new([2, 2, 2])),
        "max_pool: a window of 3 dimensions does not fit f32[4,4]",
        1,
        11
    );
    mistake!(x.avg_pool(&PoolConfig::new([2, 0])), "avg_pool: window is [2, 0] and not 2 positive numbers", 0, 16);
}

#[test]
fn reducing_nothing() {
    mistake!(zeros(&[2, 0]).max(1), "max: dimension 1 of f32[2,0] is empty: it has no element to choose", 0, 29);
    mistake!(zeros(&[2, 0]).argmin(1), "argmin: dimension 1 of f32[2,0] is empty", 0, 29);
    mistake!(
        zeros(&[2, 3, 4]).argmax([0, 1]),
        "argmax: takes one axis of f32[2,3,4], or `..` for all, and got 2",
        1,
        27
    );
}

#[test]
fn sorting() {
    mistake!(zeros(&[2, 3]).top_k(5), "top_k: k is 5, and the last dimension of f32[2,3] has size 3", 0, 29);
    mistake!(
        Tensor::from(1.0f32).top_k(1),
        "top_k: takes the largest along the last dimension, and f32[] has none",
        1,
        30
    );
    mistake!(
        Tensor::sort_together(&[zeros(&[3]), zeros(&[4])], 0, 1),
        "sort: f32[3] and f32[4] have different shapes",
        1,
        9
    );
    mistake!(
        Tensor::sort_together(&[zeros(&[3]), zeros(&[3])], 0, 3),
        "sort: num_keys is 3; with 2 operands it has to be from 1 to 2",
        1,
        9
    );
}

#[test]
fn normalising() {
    mistake!(
        zeros(&[2, 3]).layer_norm(-1, 1e-5, Some(&zeros(&[4])), None),
        "mul: f32[2,3] and f32[4] do not broadcast: dimension -1 has size 3 and 4",
        1,
        24
    );
}

#[test]
fn comparing_for_a_test() {
    mistake!(
        zeros(&[2, 3]).allclose(&zeros(&[3]), 0.0, 0.0),
        "allclose: f32[2,3] and f32[3] cannot be compared",
        1,
        24
    );
}

#[test]
fn dimensions_that_were_not_expected() {
    let x = Tensor::zeros([2, 3], DType::F32);
    mistake!(x.dims::<3>(), "dims: f32[2,3] has 2 dimensions, not 3", 0, 16);
    mistake!(Tensor::from(1.0f32).dims::<1>(), "dims: f32[] has 0 dimensions, not 1", 0, 35);
    let failed = &x + Tensor::zeros([4], DType::F32);
    let message = "add: f32[2,3] and f32[4] do not broadcast: dimension -1 has size 3 and 4";
    mistake!(failed.dims::<2>(), message, -2, 18);
    mistake!(failed.shape().map(<[usize]>::to_vec), message, -3, 18);
}

#[test]
fn features_of_layers() {
    let layer = nn::Linear::init(random::key(0), 4, 8, DType::F32);
    let takes = "nn::Linear::apply: takes 4 features in the last axis, as its weights f32[4,8] do, not";
    mistake!(layer.apply(&zeros(&[2, 3])), &format!("{takes} f32[2,3]"), 0, 20);
    mistake!(layer.apply(&zeros(&[])), &format!("{takes} f32[]"), 0, 20);
    // In a model all layers have the line of its caller: the scope and the sizes say which one it is.
    let mlp = nn::Mlp { down: nn::Linear::init(random::key(1), 5, 4, DType::F32), up: layer };
    let takes = "nn::Linear::apply: takes 5 features in the last axis, as its weights f32[5,4] do, not f32[2,8]";
    mistake!(mlp.apply(&zeros(&[2, 4])), takes, 0, 18, "mlp");
    let table = nn::Embedding::init(random::key(0), 10, 4, DType::F32);
    mistake!(
        table.logits(&zeros(&[2, 3])),
        "nn::Embedding::logits: takes 4 features in the last axis, as its weights f32[10,4] do, not f32[2,3]",
        1,
        15
    );
}
