//! Attention as one operation against attention of several; the loss that keeps no probabilities.

use remat::nn::{self, AttentionConfig, dot_product_attention};
use remat::report::saved_residuals;
use remat::{DType, Policy, Result, Tensor, checkpoint, einsum, grad, jvp, random, value_and_grad, vmap};

/// Queries, keys, values and perhaps a bias.
type Operands = Vec<Tensor>;

fn operands(shapes: &[&[usize]]) -> Operands {
    let normal = |(i, shape): (usize, &&[usize])| random::normal(random::key(i as u64), *shape, DType::F64);
    shapes.iter().enumerate().map(normal).collect()
}

fn sizes(x: &Tensor) -> Vec<usize> {
    x.shape().unwrap().to_vec()
}

/// Attention of several operations, for as many key heads as heads.
fn composed(x: &Operands, config: &AttentionConfig) -> Tensor {
    let (q, k, v) = (&x[0], &x[1], &x[2]);
    let scale = config.scale.unwrap_or(1.0 / (*sizes(q).last().unwrap() as f64).sqrt());
    let mut scores = einsum("...tnh,...snh->...nts", &[q, k]) * scale;
    if let Some(bias) = &config.bias {
        scores += bias;
    }
    if let Some(mask) = &config.mask {
        scores = mask.select(scores, f64::NEG_INFINITY);
    }
    if config.causal {
        let [.., positions, others] = sizes(&scores)[..] else { panic!("scores have positions") };
        scores = Tensor::ones([positions, others], DType::Bool).tril(0).select(scores, f64::NEG_INFINITY);
    }
    einsum("...nts,...snh->...tnh", &[&scores.softmax(-1), v])
}

/// Compares values, gradients, and the gradient of the norm of the gradient.
#[track_caller]
fn check(shapes: &[&[usize]], config: impl Fn(&Operands) -> AttentionConfig) {
    let x = operands(shapes);
    let one = |x: &Operands| dot_product_attention(&x[0], &x[1], &x[2], &config(x));
    let several = |x: &Operands| {
        let mut all = x.clone();
        let group = sizes(&x[0])[sizes(&x[0]).len() - 2] / sizes(&x[1])[sizes(&x[1]).len() - 2];
        for heads in &mut all[1..3] {
            *heads = heads.repeat(group, -2);
        }
        composed(&all, &config(x))
    };
    expect_close(&[one(&x)], &[several(&x)]);
    expect_close(&gradient(&one, &x), &gradient(&several, &x));
    let norm = |f: &dyn Fn(&Operands) -> Tensor, x: &Operands| {
        gradient(f, x).iter().map(|g| g.square().sum(..)).fold(Tensor::from(0.0f64), |a, b| a + b)
    };
    let second = |f: &dyn Fn(&Operands) -> Tensor| grad(|x: &Operands| norm(f, x))(&x).unwrap();
    expect_close(&second(&one), &second(&several));
}

fn gradient(f: &dyn Fn(&Operands) -> Tensor, x: &Operands) -> Operands {
    grad(|x: &Operands| f(x).sin().sum(..))(x).unwrap()
}

#[track_caller]
fn expect_close(got: &[Tensor], expected: &[Tensor]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!(got.allclose(expected, 1e-9, 1e-9).unwrap(), "{got}\nand not\n{expected}");
    }
}

#[test]
fn one_operation_is_several() {
    let full = |_: &Operands| AttentionConfig::default();
    let causal = |_: &Operands| AttentionConfig { causal: true, ..AttentionConfig::default() };
    check(&[&[3, 2, 4], &[5, 2, 4], &[5, 2, 4]], full);
    check(&[&[2, 4, 2, 3], &[2, 4, 2, 3], &[2, 4, 2, 5]], causal);
    check(&[&[2, 1, 4, 2, 3], &[2, 1, 4, 2, 3], &[2, 1, 4, 2, 2]], causal);
    check(&[&[2, 5, 2, 3], &[2, 3, 2, 3], &[2, 3, 2, 3]], causal);
    check(&[&[3, 6, 2], &[4, 2, 2], &[4, 2, 3]], causal);
    check(&[&[3, 4, 2], &[4, 1, 2], &[4, 1, 3]], |_| AttentionConfig {
        scale: Some(-2.0),
        ..AttentionConfig::default()
    });
}

#[test]
fn a_bias_broadcasts() {
    let biased = |x: &Operands| AttentionConfig { bias: Some(x[3].clone()), ..AttentionConfig::default() };
    let (q, k): (&[usize], &[usize]) = (&[2, 3, 4, 2, 3], &[2, 3, 5, 2, 3]);
    for bias in
        [&[][..], &[5], &[4, 1], &[2, 4, 5], &[3, 1, 4, 5], &[2, 1, 1, 1, 5], &[1, 1, 2, 4, 5], &[2, 3, 2, 4, 5]]
    {
        check(&[q, k, k, bias], biased);
    }
}

#[test]
fn a_mask_broadcasts() {
    let (q, k): (&[usize], &[usize]) = (&[2, 3, 4, 2, 3], &[2, 3, 5, 2, 3]);
    for shape in [&[5][..], &[4, 5], &[2, 1, 5], &[2, 1, 1, 1, 5]] {
        let positions: usize = shape.iter().product();
        let mask = (Tensor::arange(0..positions as i32) % 3).ne(1).reshape(shape);
        check(&[q, k, k], |_| AttentionConfig { mask: Some(mask.clone()), ..AttentionConfig::default() });
    }
}

#[test]
fn who_may_look_at_nothing_gets_zeros() -> Result<()> {
    let x = operands(&[&[3, 1, 2], &[2, 1, 2], &[2, 1, 2]]);
    let config = AttentionConfig { mask: Some(Tensor::new([[true], [false], [true]])), ..AttentionConfig::default() };
    let f = |x: &Operands| dot_product_attention(&x[0], &x[1], &x[2], &config);
    assert_eq!(f(&x).index(1).to_vec::<f64>()?, [0.0, 0.0]);
    let gradient = gradient(&f, &x);
    assert_eq!(gradient[0].index(1).to_vec::<f64>()?, [0.0, 0.0]);
    assert!(gradient.iter().all(|g| g.is_finite().all(..).item::<bool>().unwrap()));
    let none = operands(&[&[3, 1, 2], &[0, 1, 2], &[0, 1, 2]]);
    assert_eq!(dot_product_attention(&none[0], &none[1], &none[2], &config).to_vec::<f64>()?, [0.0; 6]);
    Ok(())
}

/// Where the CPU has a unit for products of bf16 the weights are rounded to bf16, each by 2^-8 of itself at most; sums are f32.
#[test]
fn narrow_floats_are_computed_in_f32() -> Result<()> {
    for dtype in [DType::F16, DType::Bf16] {
        let x: Operands = operands(&[&[6, 2, 4], &[6, 2, 4], &[6, 2, 4]]).iter().map(|x| x.to_dtype(dtype)).collect();
        let attend = |x: &Operands| dot_product_attention(&x[0], &x[1], &x[2], &AttentionConfig::default());
        let wide: Operands = x.iter().map(|x| x.to_dtype(DType::F32)).collect();
        assert_eq!(attend(&x).dtype()?, dtype);
        if dtype == DType::F16 {
            assert!(attend(&x).eq(attend(&wide).to_dtype(dtype)).all(..).item::<bool>()?);
        } else {
            // The weights of a query sum to 1, and its result is rounded to bf16 too.
            let largest = wide[2].abs().max(..).item::<f32>()?;
            let distance = (attend(&x).to_dtype(DType::F32) - attend(&wide)).abs().max(..).item::<f32>()?;
            assert!(distance <= 2.0 * 2f32.powi(-8) * largest * 1.01, "{distance} of {largest}");
        }
    }
    Ok(())
}

#[test]
fn the_probabilities_of_a_loss_are_no_residual() -> Result<()> {
    let x = random::normal(random::key(0), [4, 10], DType::Bf16);
    let targets = Tensor::new([1, 9, 0, 3]);
    let loss = |x: &Tensor| nn::cross_entropy(&x.sin(), &targets);
    for residuals in [saved_residuals(loss, &x)?, saved_residuals(checkpoint(Policy::Everything, loss), &x)?] {
        let mut avals: Vec<String> = residuals.intermediates().map(|r| r.aval.to_string()).collect();
        avals.sort();
        assert_eq!(avals, ["bf16[4,10]", "bf16[4,10]", "f32[4]", "f32[4]"], "{residuals}");
    }
    Ok(())
}

#[test]
fn the_loss_is_the_mean_of_the_logarithms_of_probabilities() -> Result<()> {
    let x = random::normal(random::key(0), [3, 4, 6], DType::F64);
    let t = random::normal(random::key(1), [3, 4, 6], DType::F64);
    let targets = Tensor::new([[1, 5, 0, 3], [2, 2, -1, 4], [0, -6, 1, 5]]);
    let plain = |x: &Tensor| -x.log_softmax(-1).take_along_axis(&targets.expand_dims(-1), -1).mean(..);
    let loss = |x: &Tensor| nn::cross_entropy(x, &targets);
    let (value, gradient) = value_and_grad(loss)(&x)?;
    let (expected, expected_gradient) = value_and_grad(plain)(&x)?;
    expect_close(&[value, gradient], &[expected, expected_gradient]);
    let (value, tangent) = jvp(loss, &x, &t)?;
    let (expected, expected_tangent) = jvp(plain, &x, &t)?;
    expect_close(&[value, tangent], &[expected, expected_tangent]);
    let curvature = |f: &dyn Fn(&Tensor) -> Tensor| grad(|x: &Tensor| (grad(f)(x).unwrap() * &t).sum(..))(&x).unwrap();
    expect_close(&[curvature(&loss)], &[curvature(&plain)]);
    let each = |(x, targets): &(Tensor, Tensor)| nn::cross_entropy(x, targets);
    let batch = (x.clone(), targets.clone());
    expect_close(&[vmap(each)(&batch)?.mean(..)], &[plain(&x)]);
    Ok(())
}

/// A rounded logsumexp would change all probabilities of a row alike.
#[test]
fn a_loss_of_logits_far_from_zero_is_as_accurate_as_near_it() -> Result<()> {
    let targets = Tensor::new([3, 700]);
    let at = |offset: f32| {
        // Multiples of 2^-10, which are exact at every offset.
        let logits = Tensor::arange(0..2048).to_dtype(DType::F32) / 1024 + offset;
        value_and_grad(|x: &Tensor| nn::cross_entropy(x, &targets))(&logits.reshape([2, 1024]))
    };
    let (expected, expected_gradient) = at(0.0)?;
    for offset in [100.0, -1000.0, 8000.0] {
        let (loss, gradient) = at(offset)?;
        assert_eq!(loss.item::<f32>()?, expected.item::<f32>()?, "offset {offset}");
        assert_eq!(gradient.to_vec::<f32>()?, expected_gradient.to_vec::<f32>()?, "offset {offset}");
        let sums = gradient.sum(1).to_vec::<f32>()?;
        assert!(sums.iter().all(|sum| sum.abs() < 1e-6), "offset {offset}: {sums:?}");
    }
    Ok(())
}

#[test]
fn a_target_out_of_range_has_no_loss() -> Result<()> {
    let logits = Tensor::zeros([2, 60], DType::F32);
    for targets in [[0, 60], [0, -61], [0, -100]] {
        assert!(nn::cross_entropy(&logits, &Tensor::new(targets)).item::<f32>()?.is_nan());
    }
    assert!(
        nn::cross_entropy(&Tensor::zeros([0, 3], DType::F32), &Tensor::zeros([0], DType::I32)).item::<f32>()?.is_nan()
    );
    Ok(())
}

#[test]
fn a_loss_of_narrow_logits_is_computed_in_f32() -> Result<()> {
    let logits = random::normal(random::key(0), [3, 7], DType::Bf16);
    let targets = Tensor::new([3u8, 0, 6]);
    let (loss, gradient) = value_and_grad(|x: &Tensor| nn::cross_entropy(x, &targets))(&logits)?;
    let wide = logits.to_dtype(DType::F32);
    let (expected, expected_gradient) = value_and_grad(|x: &Tensor| nn::cross_entropy(x, &targets))(&wide)?;
    assert_eq!(loss.dtype()?, DType::Bf16);
    assert_eq!(loss.item::<remat::bf16>()?, expected.to_dtype(DType::Bf16).item::<remat::bf16>()?);
    let expected = expected_gradient.to_dtype(DType::Bf16);
    assert_eq!(gradient.to_vec::<remat::bf16>()?, expected.to_vec::<remat::bf16>()?);
    Ok(())
}
