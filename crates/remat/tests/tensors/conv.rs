//! Convolution and pooling, against JAX 0.10.

use remat::{ConvConfig, DType, Padding, PoolConfig, Tensor};

#[track_caller]
fn equal(tensor: Tensor, dims: &[usize], expected: &[i64]) {
    assert_eq!(tensor.shape().unwrap(), dims);
    assert_eq!(tensor.to_dtype(DType::I64).to_vec::<i64>().unwrap(), expected);
}

#[test]
fn convolutions_are_jaxs() {
    let (x, kernel) = (
        Tensor::from_slice(&[3, -4, -3, -2, -3, 3, 3, 1, -4, -4, -2, -1, 1, 0, -2, -3, 2, 2, -4, -3], [2, 2, 5])
            .to_dtype(DType::F64),
        Tensor::from_slice(&[0, -1, 3, 0, -1, -1, 1, 1, -3, 2, 2, 4], [3, 2, 2]).to_dtype(DType::F64),
    );
    let config = ConvConfig { strides: vec![2], padding: Padding::Same, ..ConvConfig::default() };
    equal(x.conv(&kernel, &config), &[2, 3, 3], &[13, 5, -12, 7, 2, -1, 1, -9, 1, -8, 6, -9, 2, -3, -1, 6, -15, 0]);
    let (x, kernel) = (
        Tensor::from_slice(
            &[
                3, -2, -2, 1, 1, 2, 3, -2, 4, -4, -4, 4, 4, -2, -3, -2, -4, 4, 1, 1, -2, 0, -3, 2, 0, -4, -2, 2, 0, -1,
                -2, -4, 1, 1, 0, 4, 4, -3, 1, 1,
            ],
            [1, 2, 4, 5],
        )
        .to_dtype(DType::F64),
        Tensor::from_slice(
            &[-2, -2, 0, 2, -2, 2, 1, -3, -1, 3, 3, 1, -4, 2, -2, 3, 4, -1, 4, 2, -2, 3, -1, -4],
            [2, 2, 3, 2],
        )
        .to_dtype(DType::F64),
    );
    let config = ConvConfig { strides: vec![1, 2], padding: Padding::SameLower, ..ConvConfig::default() };
    equal(
        x.conv(&kernel, &config),
        &[1, 2, 4, 3],
        &[0, -27, -17, -18, 10, -12, -6, 30, 0, 22, -28, 15, 17, -3, 21, 8, 8, -23, -36, -17, -35, -6, -19, 8],
    );
    let (x, kernel) = (
        Tensor::from_slice(
            &[
                1, 3, 1, -1, 4, 0, -1, -3, -3, 2, 3, -2, 1, 3, -3, -2, 0, 1, -1, -1, -3, 1, 4, -3, 3, -3, -4, 2, -3, 2,
                -2, 1, 4, 4, 0, -3, -2, 3, 1, -3,
            ],
            [1, 2, 4, 5],
        )
        .to_dtype(DType::F64),
        Tensor::from_slice(
            &[3, 4, 4, 1, 4, 1, 0, 4, 1, 3, -1, 3, 4, -4, 0, -1, -4, -4, -2, -3, 2, -3, 1, 3],
            [2, 2, 3, 2],
        )
        .to_dtype(DType::F64),
    );
    let config = ConvConfig {
        strides: vec![1, 1],
        padding: Padding::Explicit(vec![(1, 0), (-1, 2)]),
        kernel_dilation: vec![1, 2],
        ..ConvConfig::default()
    };
    equal(
        x.conv(&kernel, &config),
        &[1, 2, 3, 4],
        &[-9, 15, -16, 25, -21, 26, -10, 10, -15, 3, 2, -7, 15, 7, 3, 0, 36, -21, -12, 26, 17, -25, 7, 5],
    );
    let (x, kernel) = (
        Tensor::from_slice(&[0, -3, -4, -2, -1, 0, -2, 3, 1], [1, 1, 3, 3]).to_dtype(DType::F64),
        Tensor::from_slice(&[4, 4, 2, -4], [1, 1, 2, 2]).to_dtype(DType::F64),
    );
    let config = ConvConfig {
        strides: vec![1, 1],
        padding: Padding::Explicit(vec![(1, 1), (1, 1)]),
        input_dilation: vec![2, 2],
        ..ConvConfig::default()
    };
    equal(
        x.conv(&kernel, &config),
        &[1, 1, 6, 6],
        &[
            0, 0, 12, -6, 16, -8, 0, 0, -12, -12, -16, -16, 8, -4, 4, -2, 0, 0, -8, -8, -4, -4, 0, 0, 8, -4, -12, 6,
            -4, 2, -8, -8, 12, 12, 4, 4,
        ],
    );
    let (x, kernel) = (
        Tensor::from_slice(&[-3, 2, 0, 4, 2, 3, -4, -2, 2, 1, -1, -3, 1, -4, 2, 3], [1, 4, 4]).to_dtype(DType::F64),
        Tensor::from_slice(&[2, -4, 0, -2, 0, 2, -3, -4, 0, 1, -3, 4, 0, 4, 0, 2], [4, 2, 2]).to_dtype(DType::F64),
    );
    let config = ConvConfig { strides: vec![1], padding: Padding::Valid, feature_groups: 2, ..ConvConfig::default() };
    equal(x.conv(&kernel, &config), &[1, 4, 3], &[-20, 12, -12, -14, 7, 28, -18, 19, 3, -4, 0, -6]);
    let (x, kernel) = (
        Tensor::from_slice(
            &[
                2, 0, -1, 2, -4, 1, 0, -3, -3, -4, 2, 2, -1, 4, -1, -2, 4, -4, -1, -4, -1, 2, -1, 0, 0, -4, -4, -2, 0,
                -4, 4, 3,
            ],
            [4, 2, 4],
        )
        .to_dtype(DType::F64),
        Tensor::from_slice(&[1, 2, 2, -4, 4, -4, 3, 3, 2, -3, 3, 4, 3, 2, -2, 0], [4, 2, 2]).to_dtype(DType::F64),
    );
    let config = ConvConfig { strides: vec![1], padding: Padding::Valid, batch_groups: 2, ..ConvConfig::default() };
    equal(
        x.conv(&kernel, &config),
        &[2, 4, 3],
        &[-10, 0, 15, -1, 7, -21, 25, -3, 7, 6, -18, -9, -29, 12, 12, 13, -15, -9, -4, 8, 22, -8, -12, -24],
    );
    let (x, kernel) = (
        Tensor::from_slice(
            &[0, 3, -1, -1, -2, 0, 1, 0, -2, 0, 1, -3, 1, 2, -4, 1, -1, 4, -1, -2, 2, 3, -4, -4],
            [1, 4, 3, 2],
        )
        .to_dtype(DType::F64),
        Tensor::from_slice(
            &[-3, -1, 0, 1, -1, 3, 1, -3, -2, -3, -3, 3, 4, -1, -2, 3, -3, -3, -2, -1, -1, -2, -2, 1],
            [2, 2, 2, 3],
        )
        .to_dtype(DType::F64),
    );
    let config = ConvConfig {
        strides: vec![2, 1],
        padding: Padding::Same,
        layout: Some(["NHWC", "HWIO", "NHWC"]),
        ..ConvConfig::default()
    };
    equal(
        x.conv(&kernel, &config),
        &[1, 2, 3, 3],
        &[13, 4, 8, -4, 15, 1, 1, 10, 7, -28, 5, 26, 33, -5, 4, -21, 13, 32],
    );
    let (x, kernel) = (
        Tensor::from_slice(&[0, 1, 4, 4, -3, 3, -1, 3, 2, -4, 3, 4], [1, 1, 2, 3, 2]).to_dtype(DType::F64),
        Tensor::from_slice(&[4, -4, -3, 1, 0, -4, 3, -2], [1, 1, 2, 2, 2]).to_dtype(DType::F64),
    );
    let config = ConvConfig { strides: vec![1, 1, 1], padding: Padding::Same, ..ConvConfig::default() };
    equal(x.conv(&kernel, &config), &[1, 1, 2, 3, 2], &[-10, -20, 29, 19, -40, 12, -26, 24, 19, -28, -4, 16]);
    let (x, kernel) = (
        Tensor::from_slice(&[-4, 3, 1, -4, -3, 3], [2, 3]).to_dtype(DType::F64),
        Tensor::from_slice(&[2, 3, 4, -2, 0, -1, -4, -2, -4, -3, -1, 4], [4, 3]).to_dtype(DType::F64),
    );
    let config = ConvConfig { strides: vec![], padding: Padding::Valid, ..ConvConfig::default() };
    equal(x.conv(&kernel, &config), &[2, 4], &[5, 7, 6, 13, -5, 5, 10, 27]);
}

#[test]
fn pools_are_jaxs() {
    let x = Tensor::from_slice(
        &[
            3, 1, -2, -3, 2, 2, -1, -3, -2, 4, 2, 1, -2, 3, -1, 0, 2, -1, 0, -4, 3, -2, 0, 0, -3, -2, -1, -4, 3, -1, 1,
            -3, 4, 0, -4, -1, -1, -2, 2, 4,
        ],
        [1, 2, 5, 4],
    )
    .to_dtype(DType::F64);
    let config = PoolConfig { strides: vec![2, 2], padding: Padding::Valid, ..PoolConfig::new([2, 2]) };
    equal(x.max_pool(&config), &[1, 2, 2, 2], &[3, -1, 4, 2, 3, 0, 4, 1]);
    let config = PoolConfig { strides: vec![1, 2], padding: Padding::Same, ..PoolConfig::new([3, 2]) };
    equal(x.max_pool(&config), &[1, 2, 5, 2], &[3, -1, 4, 2, 4, 2, 4, 2, 3, 0, 3, 0, 3, 1, 4, 1, 4, 4, 4, 4]);
    let config = PoolConfig { strides: vec![2, 1], padding: Padding::SameLower, ..PoolConfig::new([2, 3]) };
    equal(
        x.min_pool(&config),
        &[1, 2, 3, 4],
        &[1, -2, -3, -3, -2, -2, -3, -3, -2, -2, -4, -4, -2, -2, -2, 0, -3, -3, -4, -4, -2, -4, -4, -4],
    );
    let config = PoolConfig {
        strides: vec![1, 1],
        padding: Padding::Explicit(vec![(1, 1), (0, 1)]),
        dilation: vec![2, 1],
        ..PoolConfig::new([2, 2])
    };
    equal(
        x.sum_pool(&config),
        &[1, 2, 5, 4],
        &[
            4, 1, -4, -3, 6, 5, -2, -2, 5, 3, -5, -3, 3, 5, -1, -3, 1, 2, -1, 0, -5, -3, -5, -4, 3, -2, -2, -3, -1, -7,
            -10, -5, -1, 0, 4, 1, 4, -4, -5, -1,
        ],
    );
    let config = PoolConfig { strides: vec![2, 2, 1], padding: Padding::Valid, ..PoolConfig::new([2, 2, 1]) };
    equal(x.sum_pool(&config), &[1, 1, 2, 4], &[5, -1, -4, -10, 3, 6, -2, -3]);
}

#[test]
fn averages_count_the_padding_or_not() {
    let x = Tensor::new([[[1.0f32, 2.0, 3.0]]]);
    let config = PoolConfig { strides: vec![1], padding: Padding::Same, ..PoolConfig::new([3]) };
    assert_eq!(x.avg_pool(&config).to_vec::<f32>().unwrap(), [1.0, 2.0, 5.0 / 3.0]);
    let config = PoolConfig { count_padding: false, ..config };
    assert_eq!(x.avg_pool(&config).to_vec::<f32>().unwrap(), [1.5, 2.0, 2.5]);
}

#[test]
fn a_convolution_can_be_summed_in_a_wider_dtype() {
    let x = Tensor::new([[[100i8, 100]]]);
    let config = ConvConfig { dtype: Some(DType::I32), ..ConvConfig::default() };
    assert_eq!(x.conv(&x, &config).to_vec::<i32>().unwrap(), [20000]);
}
