//! Arrays that are large enough for several tasks and tiles, with sizes that no power of two divides.

// The functions take trees, and a slice is not one.
#![allow(clippy::ptr_arg)]

use remat::nn::{AttentionConfig, dot_product_attention};
use remat::{ConvConfig, DType, Padding, PoolConfig, Result, Tensor, einsum, make_jaxpr, random, scan, value_and_grad};

use crate::cases::Cases;
use crate::closeness::Closeness;
use crate::conform::Check;

type Args = Vec<Tensor>;

/// A function, and the shapes of its arguments.
type Case = (&'static str, fn(&Args) -> Result<Tensor>, &'static [&'static [usize]]);

const CASES: &[Case] = &[
    ("elementwise", |x| Ok((&x[0] * 2.0 + x[0].sin()).tanh() * &x[1]), &[&[331, 257], &[257]]),
    ("scalar loop", |x| Ok(x[0].exp().sqrt().log1p() / (x[0].square() + 0.5)), &[&[100_003]]),
    // Divided, since gradients take its sine, which is inaccurate for numbers whose last place is a thousandth or more.
    ("sum of all", |x| Ok(x[0].square().sum(..) / 1024.0), &[&[331, 257]]),
    ("sum of rows", |x| Ok((&x[0] + 1.0).sum(1)), &[&[331, 257]]),
    ("sum of columns", |x| Ok((&x[0] * 0.5).sum(0)), &[&[331, 257]]),
    ("sum in the middle", |x| Ok(x[0].sum(1)), &[&[31, 77, 41]]),
    ("max and min", |x| Ok(x[0].max(0).expand_dims([0]) - x[0].min(1).expand_dims([1])), &[&[331, 257]]),
    ("positions of max", |x| Ok(x[0].argmax(0)), &[&[331, 257]]),
    ("softmax", |x| Ok(x[0].softmax(-1)), &[&[67, 1031]]),
    ("normalisation", |x| Ok(x[0].normalize(-1, 1e-5) * &x[1]), &[&[131, 517], &[517]]),
    ("matrix product", |x| Ok(x[0].matmul(&x[1])), &[&[131, 257], &[257, 193]]),
    (
        "product with transposes",
        |x| Ok(x[0].transpose([1, 0]).matmul(&x[1].transpose([1, 0]))),
        &[&[257, 131], &[193, 257]],
    ),
    ("matrix and vector", |x| Ok(x[0].matmul(&x[1])), &[&[511, 257], &[257]]),
    ("batched product", |x| Ok(einsum("bqhd,bkhd->bhqk", &[&x[0], &x[1]])), &[&[3, 67, 5, 19], &[3, 71, 5, 19]]),
    ("bias and activation", |x| Ok((x[0].matmul(&x[1]) + &x[2]).gelu()), &[&[131, 97], &[97, 211], &[211]]),
    (
        "attention",
        |x| {
            Ok(dot_product_attention(
                &x[0],
                &x[1],
                &x[2],
                &AttentionConfig { causal: true, ..AttentionConfig::default() },
            ))
        },
        &[&[2, 133, 3, 24], &[2, 133, 3, 24], &[2, 133, 3, 24]],
    ),
    ("convolution", convolution, &[&[2, 13, 37, 29], &[17, 13, 3, 3]]),
    // Large enough for minimal filtering, forward and in both gradients.
    ("convolution of many features", convolution, &[&[2, 34, 25, 21], &[37, 34, 3, 3]]),
    ("pooling", |x| Ok(x[0].max_pool(&PoolConfig::new([3, 3]))), &[&[2, 7, 61, 59]]),
    ("running sums", |x| Ok(x[0].cumsum(1) + x[0].cummax(0)), &[&[97, 1009]]),
    ("sorting", |x| Ok(x[0].sort(0)), &[&[5003, 7]]),
    ("largest", |x| Ok(x[0].top_k(17).0), &[&[13, 1511]]),
    ("lookup", |x| Ok(x[0].take(&numbers(&x[1])?, 0)), &[&[101, 67], &[1999]]),
    (
        "pieces",
        |x| Ok(Tensor::concatenate(&[x[0].flip(0), x[0].pad([(3, -5), (1, 2)], 0.5).index((.., 1..258))], 0)),
        &[&[331, 257]],
    ),
    ("transpose", |x| Ok(x[0].transpose([2, 0, 1]).exp()), &[&[67, 41, 53]]),
    ("conversions", |x| Ok(x[0].to_dtype(DType::I32).to_dtype(DType::Bf16).to_dtype(DType::F32) * 3.0), &[&[331, 257]]),
    ("choice", |x| Ok(x[0].gt(0.1).select(&x[0], x[0].square())), &[&[331, 257]]),
    (
        "loop",
        |x| {
            Ok(scan(
                |h: &Tensor, x: &Tensor| {
                    let h = (h.matmul(x)).tanh();
                    (h.clone(), h)
                },
                &x[0],
                &x[1],
            )?
            .1)
        },
        &[&[67, 61], &[5, 61, 61]],
    ),
];

/// A convolution whose result has the positions of the image.
fn convolution(x: &Args) -> Result<Tensor> {
    Ok(x[0].conv(&x[1], &ConvConfig { padding: Padding::Same, ..ConvConfig::default() }))
}

/// Integers from 0 to 100, from floats between -1 and 1.
fn numbers(x: &Tensor) -> Result<Tensor> {
    Ok((x.abs() * 100.0).to_dtype(DType::I32))
}

fn arguments(shapes: &[&[usize]], dtype: DType) -> Args {
    let mut n = 0;
    let mut next = || {
        n += 1;
        (f64::from(n) * 0.618_033_988_75).fract() * 1.8 - 0.9
    };
    let tensor = |shape: &&[usize]| {
        let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|_| next()).collect();
        Tensor::from_vec(values, shape.to_vec()).to_dtype(dtype)
    };
    shapes.iter().map(tensor).collect()
}

/// Sums of many numbers round often.
const CLOSENESS: Closeness = Closeness::Sums(4096);

pub(crate) fn large_arrays_agree(cases: &mut Cases<'_>) {
    for &(name, f, shapes) in CASES {
        for dtype in [DType::F32, DType::F64, DType::Bf16] {
            let args = arguments(shapes, dtype);
            cases.programs(format!("{name} in {dtype}"), || {
                Ok(vec![Check::traced(make_jaxpr(f)(&args), &args, CLOSENESS)?])
            });
        }
    }
}

pub(crate) fn gradients_of_large_arrays_agree(cases: &mut Cases<'_>) {
    for &(name, f, shapes) in CASES.iter().filter(|(name, ..)| *name != "positions of max") {
        let args = arguments(shapes, DType::F32);
        let loss = |x: &Args| Ok::<_, remat::Error>(f(x)?.sin().mean(..));
        cases.programs(format!("gradient of {name}"), || {
            Ok(vec![Check::traced(make_jaxpr(value_and_grad(loss))(&args), &args, CLOSENESS)?])
        });
    }
}

pub(crate) fn many_random_numbers_agree(cases: &mut Cases<'_>) {
    let f = |x: &Tensor| random::bits(random::key(7), [100_003], DType::U32) + x;
    let x = Tensor::from(1u32);
    cases.programs("random bits".to_string(), || {
        Ok(vec![Check::traced(make_jaxpr(f)(&x), std::slice::from_ref(&x), Closeness::Exact)?])
    });
}
