//! No policy changes a bit, also where the forward and the backward pass are two programs, so that an operand is a view in one
//! program and a stored residual in the other.

use proptest::prelude::*;
use remat::{ConvConfig, DType, Error, Padding, Policy, PoolConfig, Result, Tensor, checkpoint, grad, jit, scan, vjp};
use remat_conformance::random_programs::config;

type Pair = (Tensor, Tensor);
type Body = fn(&Tensor, &Tensor) -> Tensor;

/// Numbers from -0.2 to 0.2 whose sums are rounded.
fn data(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let size: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 31 + 3) % 1009) as f64 / 2522.5 - 0.2;
    Tensor::from_vec((0..size).map(number).collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

fn bits((a, b): Pair) -> Vec<u64> {
    let bits = |x: Tensor| x.to_dtype(DType::F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{e}"));
    [bits(a), bits(b)].concat().into_iter().map(f64::to_bits).collect()
}

/// Policies under which other values are stored. All programs name a value `v`.
fn policies() -> [Policy; 9] {
    [
        Policy::Nothing,
        Policy::Everything,
        Policy::Dots,
        Policy::DotsWithNoBatchDims,
        Policy::Dots.not(),
        Policy::names(["v"]),
        Policy::anything_but(["v"]),
        Policy::anything_but([] as [&str; 0]),
        Policy::budget(12_000),
    ]
}

/// Gradients as one program, op by op, and with the pullback called apart, under every policy: all have the same bits.
fn check(what: &str, args: &Pair, loss: impl Fn(&Pair) -> Result<Tensor> + Copy) -> Result<()> {
    let expected = bits(jit(grad(loss)).call(args.clone())?);
    let same = |how: &str, got: Pair| {
        let different = bits(got).iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert_eq!(different, 0, "{what}, {how}: numbers that differ, of {}", expected.len());
    };
    same("op by op", grad(loss)(args)?);
    let one = Tensor::from(1.0f64).to_dtype(args.0.dtype()?);
    for policy in policies() {
        let region = checkpoint(policy.clone(), loss);
        let region = |args: &Pair| region(args);
        same(&format!("{policy:?} in one program"), jit(grad(region)).call(args.clone())?);
        let (_, pullback) = vjp(region, args)?;
        same(&format!("{policy:?} apart"), pullback.call(&one)?);
    }
    Ok(())
}

/// The layers of a stack of weights as a scan, and unrolled.
fn check_layers(what: &str, args: &Pair, layer: Body) -> Result<()> {
    check(&format!("{what} in a scan"), args, |(x, w): &Pair| {
        let (c, ()) = scan(|c: &Tensor, w: &Tensor| (layer(c, w), ()), x, w)?;
        Ok(c.square().sum(..))
    })?;
    let layers = args.1.shape()?[0] as i64;
    check(&format!("{what} unrolled"), args, |(x, w): &Pair| {
        let c = (0..layers).fold(x.clone(), |c, i| layer(&c, &w.index(i)));
        Ok(c.square().sum(..))
    })
}

#[test]
fn products_of_vectors_and_views() -> Result<()> {
    let layers: [(&str, Body); 6] = [
        ("transposed", |c, w| w.t().named("v").matmul(c).tanh() + c),
        ("as it is", |c, w| w.named("v").matmul(c).tanh() + c),
        ("from the left", |c, w| c.matmul(&w.t().named("v")).tanh() + c),
        ("reversed", |c, w| w.flip([0]).t().named("v").matmul(&c.flip(0).named("v")).tanh() + c),
        ("broadcast", |c, w| w.index(3).expand_dims([1]).broadcast_to([40, 40]).named("v").matmul(c).tanh() + c),
        ("an outer product", |c, w| (w.t() * c).named("v").t().matmul(c).tanh() + w.t().named("v").sum(0)),
    ];
    for (name, layer) in layers {
        for dtype in [DType::F32, DType::Bf16] {
            check_layers(&format!("{name}, {dtype}"), &(data(dtype, &[40], 1), data(dtype, &[3, 40, 40], 2)), layer)?;
        }
    }
    Ok(())
}

#[test]
fn products_of_matrices_that_are_views() -> Result<()> {
    let layers: [(&str, Body); 4] = [
        ("transposed", |c, w| c.matmul(&w.t().named("v")).tanh() + c),
        ("one row of a product", |c, w| c.matmul(&w.t()).named("v").index(1).tanh() + c),
        ("one column of a product", |c, w| c.matmul(w).named("v").index((.., 32..)).tanh() + c),
        ("both transposed", |c, w| w.t().named("v").matmul(&c.t().named("v")).tanh().t() + c),
    ];
    for (name, layer) in layers {
        check_layers(name, &(data(DType::F32, &[7, 33], 1), data(DType::F32, &[3, 33, 33], 2)), layer)?;
    }
    Ok(())
}

#[test]
fn convolutions_of_views() -> Result<()> {
    let config = || ConvConfig { padding: Padding::Same, ..ConvConfig::default() };
    let image = data(DType::F32, &[2, 8, 9, 9], 1);
    let hwio: Body = |x, w| {
        let config = ConvConfig { padding: Padding::Same, ..ConvConfig::default() };
        x.conv(&w.transpose([3, 2, 0, 1]).named("v"), &config).tanh() + x
    };
    check_layers("a kernel stored as HWIO", &(image.clone(), data(DType::F32, &[3, 3, 3, 8, 8], 2)), hwio)?;
    let nhwc: Body = |x, w| {
        let config = ConvConfig { padding: Padding::Same, ..ConvConfig::default() };
        let image = x.transpose([0, 3, 1, 2]).named("v");
        image.conv(w, &config).tanh().transpose([0, 2, 3, 1]) + x
    };
    let images = data(DType::F32, &[2, 9, 9, 8], 1);
    check_layers("an image stored as NHWC", &(images, data(DType::F32, &[3, 8, 8, 3, 3], 2)), nhwc)?;
    let slices = |(x, w): &Pair| {
        let y = x.conv(&w.flip([2, 3]).named("v"), &config()).index((.., .., 1..8, 1..8));
        Ok::<_, Error>(y.conv(&w.transpose([1, 0, 3, 2]).named("v"), &config()).square().sum(..))
    };
    check("slices and reversed kernels", &(image, data(DType::F32, &[8, 8, 3, 3], 3)), slices)
}

/// Sums of what one policy stores and another one computes in the loop that sums.
#[test]
fn sums_of_computed_values() -> Result<()> {
    let args = (data(DType::F32, &[], 1), data(DType::F32, &[60, 70], 2));
    check("a scalar's gradient", &args, |(a, x): &Pair| {
        let y = (x * a).sin().named("v");
        let z = (&y * x.cos() + y.t().reshape([60, 70]) * x.exp()).tanh().named("v");
        Ok((&z * &y * x.sigmoid() * a).sum(..))
    })?;
    let args = (data(DType::F32, &[1, 70, 1], 1), data(DType::F32, &[30, 70, 41], 2));
    check("a bias between axes", &args, |(b, x): &Pair| {
        let y = (x + b).sin().named("v");
        Ok(((&y * b.exp()).tanh().named("v") * (&y + b) * x.flip([2])).sum(..))
    })
}

#[derive(Clone, Copy, Debug)]
enum Step {
    MatrixVector(u8, usize),
    Matrices(u8, u8, usize),
    Convolution(u8, u8, usize),
    Pool(u8),
    Sum(u8, u8),
}

const SIDE: usize = 12;

/// A view of a square matrix, with a name.
fn view(kind: u8, x: &Tensor) -> Tensor {
    let view = match kind % 6 {
        0 => x.t(),
        1 => x.flip([0]),
        2 => x.t().flip([0, 1]),
        3 => x.index(2).broadcast_to([SIDE, SIDE]),
        4 => Tensor::concatenate(&[x.index((.., 6..)), x.index((.., ..6))], 1),
        _ => x.clone(),
    };
    view.named("v")
}

fn run(steps: &[Step], (x, w): &Pair) -> Result<Tensor> {
    let mut x = x.clone();
    let weights = |i: usize| w.index((i % 4) as i64);
    for &step in steps {
        let y = match step {
            Step::MatrixVector(kind, i) => view(kind, &weights(i)).matmul(&x.index(i as i64 % 12)).expand_dims([0]),
            Step::Matrices(a, b, i) => view(a, &x).matmul(&view(b, &weights(i))),
            Step::Convolution(a, b, i) => {
                let image = view(a, &x).reshape([1, 4, 6, 6]);
                let kernel = view(b, &weights(i)).reshape([4, 4, 3, 3]);
                let config = ConvConfig { padding: Padding::Same, ..ConvConfig::default() };
                image.conv(&kernel, &config).reshape([SIDE, SIDE])
            }
            Step::Pool(a) => {
                let pooled = view(a, &x).reshape([1, 1, SIDE, SIDE]).sum_pool(&PoolConfig::new([3, 3]));
                pooled.reshape([16]).sum(0).expand_dims([0, 1])
            }
            Step::Sum(a, axis) => view(a, &x).sum([i64::from(axis % 2)]).expand_dims([0]),
        };
        x = (y + &x * 0.5).tanh();
    }
    Ok(x.square().sum(..))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (kind, number) = (any::<u8>, || 0..64usize);
    let step = prop_oneof![
        (kind(), number()).prop_map(|(a, i)| Step::MatrixVector(a, i)),
        (kind(), kind(), number()).prop_map(|(a, b, i)| Step::Matrices(a, b, i)),
        (kind(), kind(), number()).prop_map(|(a, b, i)| Step::Convolution(a, b, i)),
        kind().prop_map(Step::Pool),
        (kind(), kind()).prop_map(|(a, axis)| Step::Sum(a, axis)),
    ];
    prop::collection::vec(step, 1..6)
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn random_programs_of_views(steps in steps()) {
        let args = (data(DType::F32, &[SIDE, SIDE], 1), data(DType::F32, &[4, SIDE, SIDE], 2));
        check("random", &args, |args: &Pair| run(&steps, args))?;
    }
}
