//! Convolutions, transposed convolutions, pooling and their normalisation.

use remat::nn::{self, ConvTranspose, GroupNorm, MaxPool};
use remat::{ConvConfig, DType, Padding, PoolConfig, Tensor, random};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32)
}

fn transposed() -> ConvTranspose {
    ConvTranspose::init(random::key(0), 4, 6, [3, 3], DType::F32)
}

#[test]
fn windows_of_convolutions() {
    let (x, kernel) = (zeros(&[1, 2, 8]), zeros(&[3, 2, 5]));
    let dilated = ConvConfig { kernel_dilation: vec![0], ..ConvConfig::default() };
    mistake!(x.conv(&kernel, &dilated), "conv: kernel_dilation is [0] and not 1 positive number", 0, 16);
    let padded = ConvConfig { padding: Padding::Explicit(vec![(1, 1); 2]), ..ConvConfig::default() };
    mistake!(x.conv(&kernel, &padded), "conv: 2 pairs of padding for 1 spatial dimension", 0, 16);
    let grouped = ConvConfig { feature_groups: 2, ..ConvConfig::default() };
    mistake!(
        x.conv(&kernel, &grouped),
        "conv_general_dilated: input features differ: 2 of f32[1,2,8] and 2 of f32[3,2,5] in 2 groups",
        1,
        11
    );
}

#[test]
fn images_with_channels_last() {
    let layer = nn::Conv::init(random::key(0), 3, 8, [3, 3], DType::F32);
    mistake!(
        layer.apply(&zeros(&[2, 16, 16, 3])),
        "nn::Conv::apply: the channels are axis 1 of a batch, and the kernel f32[8,3,3,3] takes 3 of them, not f32[2,16,16,3]",
        1,
        15
    );
    let grouped = nn::Conv { groups: 2, ..layer };
    mistake!(
        grouped.apply(&zeros(&[2, 3, 16, 16])),
        "nn::Conv::apply: the channels are axis 1 of a batch, and the kernel f32[8,3,3,3] in 2 groups takes 6 of them, not f32[2,3,16,16]",
        1,
        17
    );
}

#[test]
fn transposed_convolutions() {
    let x = zeros(&[2, 4, 8, 8]);
    let layer = ConvTranspose { kernel: zeros(&[4]), ..transposed() };
    mistake!(
        layer.apply(&x),
        "nn::ConvTranspose::apply: the kernel must be [inputs, outputs / groups, spatial..], not f32[4]",
        1,
        15
    );
    let layer = transposed();
    mistake!(
        layer.apply(&zeros(&[2, 4, 8])),
        "nn::ConvTranspose::apply: f32[2,4,8] and the kernel f32[4,6,3,3] must have the same rank",
        1,
        15
    );
    mistake!(
        layer.apply(&zeros(&[2, 3, 8, 8])),
        "nn::ConvTranspose::apply: the channels are axis 1 of a batch, and the kernel f32[4,6,3,3] takes 4 of them, not \
         f32[2,3,8,8]",
        1,
        15
    );
    let layer = ConvTranspose { groups: 3, ..transposed() };
    mistake!(layer.apply(&x), "nn::ConvTranspose::apply: 3 groups do not divide 4 features", 0, 20);
    let layer = ConvTranspose { strides: vec![2], ..transposed() };
    mistake!(layer.apply(&x), "nn::ConvTranspose::apply: strides is [2] and not 2 positive numbers", 0, 20);
    let layer = ConvTranspose { dilation: vec![1, 0], ..transposed() };
    mistake!(layer.apply(&x), "nn::ConvTranspose::apply: dilation is [1, 0] and not 2 positive numbers", 0, 20);
    let layer = ConvTranspose { padding: Padding::Explicit(vec![(1, 1)]), ..transposed() };
    mistake!(layer.apply(&x), "nn::ConvTranspose::apply: padding is [(1, 1)] and not 2 pairs", 0, 20);
    let layer = ConvTranspose { padding: Padding::Explicit(vec![(i64::MIN, i64::MIN), (0, 0)]), ..transposed() };
    mistake!(layer.apply(&x), "conv_general_dilated: the result has more than 2^63 elements", 0, 20);
    let layer = ConvTranspose { dilation: vec![usize::MAX, 1], ..transposed() };
    mistake!(layer.apply(&x), "conv_general_dilated: rhs_dilation has 18446744073709551615, which is past 2^63", 0, 20);
    let layer = ConvTranspose { strides: vec![usize::MAX, 1], ..transposed() };
    mistake!(layer.apply(&x), "conv_general_dilated: lhs_dilation has 18446744073709551615, which is past 2^63", 0, 20);
}

#[test]
fn windows_of_pools() {
    let x = zeros(&[1, 3, 8, 8]);
    mistake!(x.max_pool(&PoolConfig::new([2, 0])), "max_pool: window is [2, 0] and not 2 positive numbers", 0, 16);
    mistake!(
        x.min_pool(&PoolConfig::new([1; 5])),
        "min_pool: a window of 5 dimensions does not fit f32[1,3,8,8]",
        1,
        11
    );
    let strided = PoolConfig { strides: vec![2], ..PoolConfig::new([2, 2]) };
    mistake!(x.sum_pool(&strided), "sum_pool: strides is [2] and not 2 positive numbers", 0, 16);
    let dilated = PoolConfig { dilation: vec![0, 1], ..PoolConfig::new([2, 2]) };
    mistake!(x.avg_pool(&dilated), "avg_pool: dilation is [0, 1] and not 2 positive numbers", 0, 16);
    let padded =
        PoolConfig { padding: Padding::Explicit(vec![(i64::MIN, 0), (0, i64::MAX)]), ..PoolConfig::new([2, 2]) };
    mistake!(
        x.max_pool(&padded),
        "reduce_window_max: the result f32[1,3,0,4611686018427387907] has more than 2^63 elements",
        1,
        11
    );
    let large = PoolConfig { dilation: vec![usize::MAX, 1], ..PoolConfig::new([2, 2]) };
    mistake!(
        x.max_pool(&large),
        "reduce_window_max: window_dilation has 18446744073709551615, which is past 2^63",
        1,
        11
    );
    let layer = MaxPool { config: PoolConfig { strides: vec![0, 0], ..PoolConfig::new([2, 2]) } };
    mistake!(layer.apply(&x), "max_pool: strides is [0, 0] and not 2 positive numbers", 0, 20);
}

#[test]
fn pools_of_whole_images() {
    let (vector, none) = (zeros(&[3]), zeros(&[1, 3, 0]));
    mistake!(
        nn::global_avg_pool(&vector),
        "nn::global_avg_pool: takes an array [batch, features, spatial..], not f32[3]",
        1,
        9
    );
    mistake!(
        nn::global_max_pool(&vector),
        "nn::global_max_pool: takes an array [batch, features, spatial..], not f32[3]",
        1,
        9
    );
    mistake!(nn::global_max_pool(&none), "max: dimension 2 of f32[1,3,0] is empty: it has no element to choose", 0, 14);
    mistake!(
        nn::adaptive_avg_pool(&none, [2]),
        "nn::adaptive_avg_pool: a spatial dimension of f32[1,3,0] is empty",
        1,
        9
    );
    mistake!(
        nn::adaptive_max_pool(&zeros(&[1, 3, 8]), [0]),
        "nn::adaptive_max_pool: the sizes are [0] and not 1 positive number",
        1,
        9
    );
    // Sizes larger than those of the operand are fine, up to what can be counted and held.
    let row = zeros(&[1, 1, 5]);
    mistake!(
        nn::adaptive_max_pool(&row, [1 << 60]),
        "nn::adaptive_max_pool: there is no memory for the 1152921504606846976 windows of axis 2 of f32[1,1,5]",
        1,
        9
    );
    mistake!(
        nn::adaptive_avg_pool(&row, [1 << 60]),
        "nn::adaptive_avg_pool: there is no memory for the 1152921504606846976 windows of axis 2 of f32[1,1,5]",
        1,
        9
    );
    mistake!(
        nn::adaptive_max_pool(&row, [1 << 62]),
        "nn::adaptive_max_pool: the result f32[1,1,4611686018427387904] takes more than 2^63 bytes",
        1,
        9
    );
    mistake!(
        nn::adaptive_avg_pool(&zeros(&[0, 1, 5, 5]), [1 << 40, 1 << 40]),
        "nn::adaptive_avg_pool: the result f32[0,1,1099511627776,1099511627776] has more than 2^63 elements",
        1,
        9
    );
    let ints = Tensor::arange(0..8).reshape([1, 2, 4]);
    mistake!(
        nn::adaptive_avg_pool(&ints, [2]),
        "nn::adaptive_avg_pool: takes floats, not i32[1,2,4]; convert it with .to_dtype(DType::F32)",
        1,
        9
    );
    mistake!(
        nn::global_avg_pool(&ints),
        "mean: takes floats, not i32[1,2,4]; convert it with .to_dtype(DType::F32)",
        1,
        9
    );
}

#[test]
fn groups_of_channels() {
    let layer = GroupNorm { groups: 3, ..GroupNorm::init(4, 2, DType::F32) };
    mistake!(layer.apply(&zeros(&[1, 4, 8])), "nn::GroupNorm::apply: 3 groups do not divide 4 features", 0, 20);
    mistake!(
        layer.apply(&zeros(&[4])),
        "nn::GroupNorm::apply: takes a batch with the channels of the weights f32[4] as axis 1, not f32[4]",
        1,
        15
    );
}
