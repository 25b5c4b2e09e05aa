//! Gradients of the methods that are made of several operations, against central differences in f64.

use remat::argument::keep;
use remat::index::step;
use remat::{ConvConfig, Padding, PoolConfig, Tensor, einsum, grad, nn};

/// Checks the gradient of `sum(weights * f(x))` at a fixed point, with other weights for every element.
#[track_caller]
fn check(dims: &[usize], f: impl Fn(&Tensor) -> Tensor) {
    let size: usize = dims.iter().product();
    let point: Vec<f64> = (0..size).map(|i| ((i * 7 + 3) % 11) as f64 / 4.0 - 1.3).collect();
    let loss = |x: &Tensor| {
        let y = f(x);
        let weights = Tensor::iota([y.size().unwrap()], 0, y.dtype().unwrap()).reshape(y.shape().unwrap()).sin() + 1.5;
        (y * weights).sum(..)
    };
    let at = |values: Vec<f64>| Tensor::from_vec(values, dims);
    let gradient = grad(loss)(&at(point.clone())).unwrap().to_vec::<f64>().unwrap();
    for i in 0..size {
        let moved = |by: f64| {
            let mut values = point.clone();
            values[i] += by;
            loss(&at(values)).item::<f64>().unwrap()
        };
        let difference = (moved(1e-6) - moved(-1e-6)) / 2e-6;
        let distance = (gradient[i] - difference).abs();
        assert!(distance <= 1e-7 * (1.0 + difference.abs()) * 10.0, "{i}: {} and {difference}", gradient[i]);
    }
}

#[test]
fn cross_entropy_has_its_gradient() {
    check(&[2, 3, 4], |x| nn::cross_entropy(x, &Tensor::new([[3, 0, 1], [-1, 2, 2]])));
    check(&[3], |x| nn::cross_entropy(x, &Tensor::new(1u8)));
}

#[test]
fn activations_have_their_gradients() {
    check(&[2, 3], |x| x.softmax(-1));
    check(&[2, 3], |x| x.log_softmax(0));
    check(&[2, 3], |x| x.logsumexp(..));
    check(&[6], |x| x.gelu() + x.gelu_exact() + x.silu() + x.softplus() + x.elu(1.5) + x.leaky_relu(0.1) + x.relu());
    check(&[2, 3], |x| x.layer_norm(-1, 1e-5, Some(&x.index(0)), Some(&x.index(1))));
    check(&[2, 3], |x| x.rms_norm(-1, 1e-5, None) + x.normalize(0, 1e-6));
    check(&[2, 3], |x| x.variance(keep(0)) + x.std(1).reshape([2, 1]) + x.norm(..));
}

/// As those of `jax.nn`.
#[test]
fn activations_with_corners_have_one_slope_there() {
    let x = Tensor::new([-3.0f32, 0.0, 1.0, 6.0, 7.0, f32::NAN]);
    let slopes = |f: fn(&Tensor) -> Tensor| {
        let slopes = grad(move |x: &Tensor| f(x).sum(..))(&x).unwrap();
        slopes.to_vec::<f32>().unwrap()
    };
    assert_eq!(slopes(|x| x.relu()), [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
    assert_eq!(slopes(|x| x.relu6()), [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(slopes(|x| x.leaky_relu(0.5)), [0.5, 1.0, 1.0, 1.0, 1.0, 0.5]);
    let largest = Tensor::new([f32::INFINITY]);
    assert_eq!(grad(|x: &Tensor| x.relu().sum(..))(&largest).unwrap().to_vec::<f32>().unwrap(), [1.0]);
    assert!(x.relu().to_vec::<f32>().unwrap()[5].is_nan() && x.relu6().to_vec::<f32>().unwrap()[5].is_nan());
    assert_eq!(Tensor::new([-2, 0, 3]).relu().to_vec::<i32>().unwrap(), [0, 0, 3]);
    let zero = Tensor::new([-0.0f32]).relu().to_vec::<f32>().unwrap();
    assert_eq!(zero[0].to_bits(), 0);
}

#[test]
fn indexing_has_its_gradients() {
    let indices = Tensor::new([[2, 0], [2, 9]]);
    check(&[4, 3], |x| x.index((step(.., -2), 1..)));
    check(&[4, 3], |x| x.take_clipped(&indices, 0));
    check(&[4, 3], |x| x.index((&Tensor::new([3, 3]), &Tensor::new([0, -1]))));
    check(&[4, 3], |x| x.take_along_axis(&Tensor::new([[0], [2], [2], [1]]), 1));
    check(&[4, 3], |x| x.at((.., 1)).set(x.index((.., 0))));
    check(&[4, 3], |x| x.at(&indices).add(x.index(0) * 2));
    check(&[4, 3], |x| x.at((step(.., 2), &Tensor::new([0, 2]))).unique().mul(x.index((..2, ..2))));
    check(&[4, 3], |x| x.dynamic_slice((1, 0), [2, 3]).dynamic_index(1, 0));
}

#[test]
fn moves_and_products_have_their_gradients() {
    check(&[2, 3], |x| x.roll(1, 1).tile([2, 1]).repeat(2, 1).t().diagonal(1, 0, 1));
    check(&[3, 3], |x| einsum("ij,jk,ki->i", &[x, x, x]) + x.trace());
    check(&[2, 2, 3], |x| einsum("bij,bkj->bik", &[x, x]).matmul(&x.index(0)));
    check(&[1, 2, 5], |x| {
        let config = ConvConfig { padding: Padding::Same, ..ConvConfig::default() };
        x.conv(&x.reshape([1, 2, 5]).index((.., .., ..3)), &config)
    });
    check(&[1, 1, 6], |x| x.max_pool(&PoolConfig::new([2])) + x.avg_pool(&PoolConfig::new([2])));
    check(&[5], |x| x.sort(0) + x.cumsum(0) + x.cumlogsumexp(0) + x.clamp(-1, 0.3));
    check(&[5], |x| x.top_k(2).0);
}

#[test]
fn softplus_is_smooth_at_zero() {
    let slope = |x: &Tensor| grad(|x: &Tensor| x.softplus())(x).unwrap();
    let zero = Tensor::from(0.0f64);
    assert_eq!(slope(&zero).item::<f64>().unwrap(), 0.5);
    assert_eq!(grad(slope)(&zero).unwrap().item::<f64>().unwrap(), 0.25);
}
