//! Random numbers that are drawn in loops: against what JAX draws (`data/random/generate.py` wrote the numbers), and against their
//! distributions.

use remat::random::{self, Key};
use remat::{
    Checks, DType, ErrorKind, JitOptions, Policy, Result, Tensor, checkpoint, grad, jit, jit_with, jvp, make_jaxpr,
    value_and_grad, vmap,
};
use remat_testkit::sized;

use super::random::{FLOATS, bits, check, check_within, reshaped, tensor, vectors};

/// The concentrations of the script, one in each row.
fn concentrations(dtype: DType) -> Tensor {
    reshaped(tensor([0.0f64, 0.05, 0.7, 1.0, 3.5, 200.0]), [6, 1]).to_dtype(dtype)
}

/// How far a draw may be from JAX's, in epsilon of the dtype. Logarithms and powers differ between engines by some epsilons, and a power
/// with the exponent 1 / concentration multiplies these.
fn epsilons(dtype: DType) -> f64 {
    if dtype == DType::F64 { 256.0 } else { 32.0 }
}

fn numbers(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F64).to_vec::<f64>().unwrap()
}

#[test]
fn gammas_are_those_of_jax() {
    let key = || random::key(13);
    for dtype in FLOATS {
        let (name, a) = (dtype.long_name(), concentrations(dtype));
        let check = |what: &str, x: Tensor| check_within(epsilons(dtype), &format!("{what}.{name}"), &x);
        check("gamma", random::gamma(key(), [6, 8], dtype, &a));
        check("gamma.scalar", random::gamma(key(), (), dtype, 2.5));
        check("log_gamma", random::log_gamma(key(), [6, 8], dtype, &a));
        let (a, b) = (a.index(1..), tensor([0.05f64, 0.5, 1.0, 4.0]));
        check("beta", random::beta(key(), [5, 4], dtype, &a, b));
        check("dirichlet", random::dirichlet(key(), [5], &concentrations(dtype).reshape([2, 3])));
    }
}

#[test]
fn derivatives_of_gammas_are_those_of_jax() {
    for dtype in FLOATS {
        let a = concentrations(dtype).index(1..).broadcast_to([5, 8]);
        let slopes = |log: bool| {
            let draw = |a: &Tensor| {
                let key = random::key(13);
                if log { random::log_gamma(key, [5, 8], dtype, a) } else { random::gamma(key, [5, 8], dtype, a) }
            };
            grad(|a: &Tensor| draw(a).sum(..))(&a).unwrap()
        };
        let check = |name: &str, slopes: Tensor, tolerance: f64, from: usize| {
            let expected = &vectors()[&format!("{name}.slope.{}", dtype.long_name())[..]].bits;
            let value = |bits: u64| remat_ir::Literal::from_bits(dtype, bits).as_f64();
            let pairs = numbers(&slopes).into_iter().zip(expected.iter().map(|&bits| value(bits)));
            for (i, (a, e)) in pairs.enumerate().skip(from) {
                assert!((a - e).abs() <= tolerance * e.abs().max(1e-3), "{name}, {dtype}, number {i}: {a} and {e}");
            }
        };
        // The last row has the concentration 200, for which JAX has an error of 2e-6 in f32.
        let tolerance = match dtype {
            DType::F64 => 1e-12,
            DType::F32 => 1e-4,
            DType::F16 => 0.01,
            _ => 0.05,
        };
        check("gamma", slopes(false), tolerance, 0);
        // JAX is wrong where the number is too small for the dtype, as those of the first row are.
        check("log_gamma", slopes(true), tolerance, if dtype == DType::F64 { 0 } else { 8 });
    }
}

#[test]
fn poissons_are_those_of_jax() {
    let key = || random::key(17);
    let rates = reshaped(tensor([0.0f32, 0.3, 4.5, 9.9, 12.0, 300.0, 900.0]), [7, 1]);
    for dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
        let few = if dtype.bits() == 8 { 5 } else { 7 };
        let x = random::poisson(key(), [few, 20], dtype, rates.index(..few));
        check(&format!("poisson.{}", dtype.long_name()), &x);
    }
    check("poisson.scalar", &random::poisson(key(), (), DType::I32, 20));
    check("poisson.outside", &random::poisson(key(), [2], DType::I32, tensor([-1.0, f64::NAN])));
}

/// The largest difference of the cumulative distribution of a sample and this one, times the root of the number of elements: the statistic
/// of Kolmogorov and Smirnov, which is above 1.95 by chance once in a thousand.
fn kolmogorov(sample: &Tensor, distribution: impl Fn(f64) -> f64) -> f64 {
    let mut sample = numbers(sample);
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let differences = sample.iter().enumerate().map(|(i, &x)| {
        let p = distribution(x);
        assert!((0.0..=1.0).contains(&p), "{x} has {p}");
        (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
    });
    differences.fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn gammas_and_betas_are_distributed_as_they_should_be() {
    let n = 20_000;
    for dtype in [DType::F64, DType::F32] {
        let draw = |a: f64| random::gamma(random::key(0), [n], dtype, a);
        let expect = |what: &str, x: &Tensor, distribution: &dyn Fn(f64) -> f64, wrong: &dyn Fn(f64) -> f64| {
            let statistic = kolmogorov(x, distribution);
            assert!(statistic < 1.95, "{what} in {dtype}: {statistic}");
            // The test sees a parameter that is wrong by a twentieth.
            assert!(kolmogorov(x, wrong) > 1.95, "{what} in {dtype}");
        };
        let exponential = |scale: f64| move |x: f64| 1.0 - (-x / scale).exp();
        expect("gamma(1)", &draw(1.0), &exponential(1.0), &exponential(1.05));
        let erlang = |scale: f64| {
            move |x: f64| {
                let x = x / scale;
                1.0 - (-x).exp() * (1.0 + x + x * x / 2.0 + x.powi(3) / 6.0)
            }
        };
        expect("gamma(4)", &draw(4.0), &erlang(1.0), &erlang(1.05));
        let half = |scale: f64| move |x: f64| Tensor::from((x / scale).sqrt()).erf().item::<f64>().unwrap();
        expect("gamma(1/2)", &draw(0.5), &half(1.0), &half(1.1));
        // A small power of a small number: x^a / gamma(a + 1), up to a relative error of x.
        let small = random::log_gamma(random::key(0), [n], dtype, 0.001);
        let tiny = |a: f64| move |log_x: f64| (a * log_x + 0.000576).exp().min(1.0);
        expect("log_gamma(0.001)", &small, &tiny(0.001), &tiny(0.00105));

        let beta = random::beta(random::key(1), [n], dtype, 2.0, 2.0);
        let parabola = |x: f64| x * x * (3.0 - 2.0 * x);
        expect("beta(2, 2)", &beta, &parabola, &|x| parabola(x.powf(1.05)));
        let power = random::beta(random::key(1), [n], dtype, 0.3, 1.0);
        expect("beta(0.3, 1)", &power, &|x| x.powf(0.3), &|x| x.powf(0.315));

        // A marginal is a beta distribution, of the concentration and the sum of the others.
        let dirichlet = random::dirichlet(random::key(2), [n], &tensor([1.0, 0.5, 1.5]).to_dtype(dtype));
        expect("dirichlet", &dirichlet.index((.., 0)), &|x| 1.0 - (1.0 - x).powi(2), &|x| 1.0 - (1.0 - x).powf(2.1));
        assert!(dirichlet.sum(-1).allclose(&Tensor::ones([n], dtype), 1e-6, 0.0).unwrap());
    }
}

#[test]
fn moments_of_narrow_floats() {
    // As in JAX the numbers are computed in the dtype, so that only moments are close.
    for (dtype, tolerance) in [(DType::F16, 0.03), (DType::Bf16, 0.1)] {
        for a in [0.3, 1.0, 6.0] {
            let x = numbers(&random::gamma(random::key(0), [20_000], dtype, a));
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
            assert!((mean / a - 1.0).abs() < tolerance, "{dtype}, {a}: mean {mean}");
            assert!((variance / a - 1.0).abs() < 3.0 * tolerance, "{dtype}, {a}: variance {variance}");
        }
    }
}

#[test]
fn poissons_are_distributed_as_they_should_be() {
    // For the last one as many as show the errors of JAX, whose draws have a statistic of 5.5.
    for (rate, n) in [(0.5, 20_000), (9.0, 20_000), (11.0, 20_000), (300.0, 20_000), (2e4, 20_000), (1e6, 400_000)] {
        let x = random::poisson(random::key(0), [n], DType::I32, rate);
        // The logarithms of the probabilities of all numbers that can occur, and their sums.
        let spread = 10.0 * f64::sqrt(rate) + 20.0;
        let first = (rate - spread).floor().max(0.0);
        let k = Tensor::arange(0..(2.0 * spread) as i32 + 1).to_dtype(DType::F64) + first;
        let sums = |rate: f64| {
            let logarithms = &k * rate.ln() - rate - (&k + 1.0).lgamma();
            logarithms.exp().cumsum(0).to_vec::<f64>().unwrap()
        };
        let statistic = |sums: Vec<f64>| {
            let mut counts = vec![0; sums.len()];
            for x in numbers(&x) {
                counts[(x - first) as usize] += 1;
            }
            let mut sum = 0;
            let differences = counts.iter().zip(&sums).map(|(count, p)| {
                sum += count;
                (f64::from(sum) / n as f64 - p).abs()
            });
            differences.fold(0.0, f64::max) * (n as f64).sqrt()
        };
        // Below 1.95 for a distribution with steps too.
        let right = statistic(sums(rate));
        assert!(right < 1.95, "rate {rate}: {right}");
        let wrong = statistic(sums(rate + 0.06 * rate.sqrt()));
        assert!(wrong > 1.95, "rate {rate}: {wrong}");
    }
}

#[test]
fn special_concentrations_and_rates() {
    let key = || random::key(0);
    for dtype in FLOATS {
        let a = tensor([0.0, -0.5, -3.0, f64::NAN, f64::INFINITY]).to_dtype(dtype);
        let kinds = |x: Tensor| {
            let kind = |x: f64| match x {
                x if x.is_nan() => "nan",
                x if x.is_infinite() => "infinite",
                0.0 => "zero",
                _ => "other",
            };
            numbers(&x).into_iter().map(kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(random::gamma(key(), [5], dtype, &a)), ["zero", "nan", "nan", "nan", "infinite"]);
        assert_eq!(kinds(random::log_gamma(key(), [5], dtype, &a)), ["infinite", "nan", "nan", "nan", "infinite"]);
        let zero = random::gamma(key(), [300], dtype, 0);
        assert!(numbers(&zero).iter().all(|&x| x == 0.0), "{dtype}");
        assert!(numbers(&random::beta(key(), [100], dtype, 0, 1)).iter().all(|&x| x == 0.0), "{dtype}");
        assert!(numbers(&random::beta(key(), [100], dtype, 1, 0)).iter().all(|&x| x == 1.0), "{dtype}");
        assert!(numbers(&random::beta(key(), [100], dtype, 0, 0)).iter().all(|x| x.is_nan()), "{dtype}");
        let some = random::dirichlet(key(), (), &tensor([0.0, 2.0, 0.0]).to_dtype(dtype));
        assert_eq!(numbers(&some), [0.0, 1.0, 0.0]);
        // Derivatives of concentrations without numbers are NaN, and not infinite loops.
        let slopes = grad(|a: &Tensor| random::gamma(key(), [5], dtype, a).sum(..))(&a).unwrap();
        assert_eq!(kinds(slopes)[..4], ["nan"; 4]);
    }
    // A large one: the number over the concentration is nearly 1.
    let large = random::gamma(key(), [100], DType::F32, 1e30) / 1e30;
    assert!(large.allclose(&Tensor::ones([100], DType::F32), 1e-5, 0.0).unwrap());

    let rates = tensor([0.0, f64::INFINITY, -2.0, f64::NAN, 1e30]);
    let signed = random::poisson(key(), [5], DType::I32, &rates).to_vec::<i32>().unwrap();
    assert_eq!(signed, [0, i32::MAX, -1, -1, i32::MAX]);
    let unsigned = random::poisson(key(), [5], DType::U8, &rates).to_vec::<u8>().unwrap();
    assert_eq!(unsigned, [0, 255, 255, 255, 255]);
    assert!(numbers(&random::poisson(key(), [300], DType::I32, 0)).iter().all(|&x| x == 0.0));
    // The rates of others change no number.
    let all = random::poisson(key(), [2, 50], DType::I32, reshaped(tensor([3.0, 40.0]), [2, 1]));
    let few = random::poisson(key(), [2, 50], DType::I32, reshaped(tensor([3.0, 1e6]), [2, 1]));
    assert_eq!(numbers(&all.index(0)), numbers(&few.index(0)));
}

#[test]
fn no_numbers() {
    let key = || random::key(0);
    assert_eq!(random::gamma(key(), [0, 3], DType::F32, 2.0).shape().unwrap(), [0, 3]);
    assert_eq!(random::log_gamma(key(), [0], DType::F16, 2.0).shape().unwrap(), [0]);
    assert_eq!(random::beta(key(), [2, 0], DType::F64, 1.0, 2.0).shape().unwrap(), [2, 0]);
    assert_eq!(random::poisson(key(), [0], DType::U8, 3.0).shape().unwrap(), [0]);
    assert_eq!(random::dirichlet(key(), [0], &tensor([1.0f32, 2.0])).shape().unwrap(), [0, 2]);
    assert_eq!(random::dirichlet(key(), [4], &tensor([0.0f32; 0])).shape().unwrap(), [4, 0]);
    let slope = grad(|a: &Tensor| random::gamma(key(), [0], DType::F32, a).sum(..))(&Tensor::from(2.0f32)).unwrap();
    assert_eq!(slope.item::<f32>().unwrap(), 0.0);
}

type Distribution = (&'static str, fn(Key, &Tensor) -> Tensor);

/// Distributions of a concentration of three elements.
const DISTRIBUTIONS: [Distribution; 5] = [
    ("gamma", |key, a| random::gamma(key, [2, 3], DType::F32, a)),
    ("log_gamma", |key, a| random::log_gamma(key, [2, 3], DType::F32, a)),
    ("beta", |key, a| random::beta(key, [2, 3], DType::F32, a, 2.0)),
    ("dirichlet", |key, a| random::dirichlet(key, [2], a)),
    ("poisson", |key, a| random::poisson(key, [2, 3], DType::I32, a).to_dtype(DType::F32)),
];

#[test]
fn draws_are_the_same_under_transformations() {
    let a = tensor([0.4f32, 1.5, 20.0]);
    for (name, draw) in DISTRIBUTIONS {
        let expected = bits(&draw(random::key(3), &a));
        let jitted = jit(|(key, a): &(Key, Tensor)| draw(key.reuse(), a)).call((random::key(3), a.clone())).unwrap();
        assert_eq!(bits(&jitted), expected, "{name}");
        let keys = random::key(4).split_batch(3);
        let mapped = vmap(|key: &Key| draw(key.reuse(), &a))(&keys).unwrap();
        let each: Vec<Tensor> = random::key(4).split_vec(3).into_iter().map(|key| draw(key, &a)).collect();
        assert_eq!(bits(&mapped), bits(&Tensor::stack(&each, 0)), "{name}");
        // By concentrations too.
        let mapped = vmap(|a: &Tensor| draw(random::key(3), a))(&Tensor::stack(&[&a, &(&a * 2)], 0)).unwrap();
        assert_eq!(bits(&mapped.index(0)), expected, "{name}");
        assert_eq!(bits(&mapped.index(1)), bits(&draw(random::key(3), &(&a * 2))), "{name}");
    }
}

#[test]
fn gradients_are_the_same_under_every_policy() {
    let a = tensor([0.4f32, 1.5, 300.0]);
    for (name, draw) in DISTRIBUTIONS {
        let under = |policy: Option<Policy>| {
            let f = checkpoint(policy, |a: &Tensor| draw(random::key(3), &(a * 2).exp().log()).sin());
            let (value, gradient) = jit(value_and_grad(|a: &Tensor| f(a).sum(..))).call(a.clone()).unwrap();
            (bits(&value), bits(&gradient))
        };
        let expected = under(None);
        assert_eq!(expected.1.iter().any(|&bits| bits != 0), name != "poisson");
        for policy in [Policy::Everything, Policy::Nothing, Policy::Dots] {
            assert_eq!(under(Some(policy)), expected, "{name}");
        }
    }
}

/// The quantile of a draw does not depend on the concentration, so differences of draws from the same key are no derivatives, but their
/// mean is: that of the mean, 1, and that of the variance, 1.
#[test]
fn derivatives_of_moments() {
    let n = 20_000;
    let concentrations = [0.3, 1000.0, 1.0, 4.0];
    for &a in &concentrations[..sized(2, concentrations.len())] {
        let draw = |a: &Tensor| random::gamma(random::key(0), [n], DType::F64, a);
        let (_, mean) = jvp(|a: &Tensor| draw(a).mean(..), &Tensor::from(a), &Tensor::from(1.0)).unwrap();
        assert!((mean.item::<f64>().unwrap() - 1.0).abs() < 0.02, "{a}: {mean}");
        let (_, square) = jvp(|a: &Tensor| draw(a).square().mean(..), &Tensor::from(a), &Tensor::from(1.0)).unwrap();
        // The mean of the square is a + a^2.
        assert!((square.item::<f64>().unwrap() / (1.0 + 2.0 * a) - 1.0).abs() < 0.03, "{a}: {square}");
    }
    // A beta distribution has the mean a / (a + b).
    let mean = |a: &Tensor| random::beta(random::key(0), [n], DType::F64, a, 3.0).mean(..);
    let slope = grad(mean)(&Tensor::from(2.0)).unwrap().item::<f64>().unwrap();
    assert!((slope - 3.0 / 25.0).abs() < 0.002, "{slope}");
}

#[test]
fn a_second_derivative_is_an_error() {
    let draw = |a: &Tensor| random::gamma(random::key(0), [3], DType::F32, a).sum(..);
    let second = grad(|a: &Tensor| -> Result<Tensor> { grad(draw)(a) })(&Tensor::from(2.0f32));
    let error = second.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Differentiation);
    assert_eq!(error.message(), "the derivative of a random number by its concentration has no derivative");
    // By what does not change the numbers there is one.
    let scaled = |x: &Tensor| (random::gamma(random::key(0), [3], DType::F32, 2.0) * x).square().sum(..);
    let second = grad(|x: &Tensor| -> Result<Tensor> { grad(scaled)(x) })(&Tensor::from(1.0f32)).unwrap();
    assert!(second.item::<f32>().unwrap() > 0.0);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let key = || random::key(0);
    let message = |x: Tensor| super::random::message(&x, file!());
    let f32 = DType::F32;
    for (operation, x) in [
        ("random::gamma", random::gamma(key(), [2], DType::I32, 1.0)),
        ("random::log_gamma", random::log_gamma(key(), [2], DType::I32, 1.0)),
        ("random::beta", random::beta(key(), [2], DType::I32, 1.0, 1.0)),
        ("random::dirichlet", random::dirichlet(key(), [2], &tensor([1i32, 2]))),
    ] {
        assert_eq!(message(x), format!("{operation}: draws floats, not i32; `randint` draws integers"));
    }
    assert_eq!(
        message(random::poisson(key(), [2], f32, 1.0)),
        "random::poisson: draws integers, not f32; convert them with .to_dtype(DType::F32)"
    );
    let three = tensor([1.0f32, 2.0, 3.0]);
    assert_eq!(message(random::gamma(key(), [2], f32, &three)), "random::gamma: f32[3] does not broadcast to f32[2]");
    assert_eq!(
        message(random::beta(key(), [2], f32, 1.0, &three)),
        "random::beta: f32[3] does not broadcast to f32[2]"
    );
    assert_eq!(
        message(random::poisson(key(), [2], DType::I32, &three)),
        "random::poisson: f32[3] does not broadcast to f32[2]"
    );
    assert_eq!(
        message(random::gamma(key(), [1], f32, tensor([true]))),
        "random::gamma: takes numbers, not bool[1]; convert it with .to_dtype(DType::F32)"
    );
    assert_eq!(
        message(random::dirichlet(key(), [2], &Tensor::from(1.0f32))),
        "random::dirichlet: the concentrations f32[] have no axis of probabilities"
    );
    let keys = || key().split_batch(3);
    let hint =
        "takes one key, of type u32[2], and got u32[3,2]; map over stacked keys with `vmap`, or make them with `split`";
    for (operation, x) in [
        ("random::gamma", random::gamma(keys(), [2], f32, 1.0)),
        ("random::log_gamma", random::log_gamma(keys(), [2], f32, 1.0)),
        ("random::beta", random::beta(keys(), [2], f32, 1.0, 1.0)),
        ("random::dirichlet", random::dirichlet(keys(), [2], &three)),
        ("random::poisson", random::poisson(keys(), [2], DType::I32, 1.0)),
    ] {
        assert_eq!(message(x), format!("{operation}: {hint}"));
    }
    assert_eq!(
        message(random::gamma(key(), [i64::MAX, 4], f32, 1.0)),
        format!("random::gamma: the shape [{}, 4] is too large", i64::MAX)
    );
}

#[test]
fn programs_print_and_parse() {
    let draw = |a: &Tensor| random::gamma(random::key(0), [3], DType::F32, a).sum(..);
    let program = make_jaxpr(grad(draw))(&Tensor::from(2.0f32)).unwrap().jaxpr;
    let text = program.to_string();
    assert!(text.contains("without a derivative"), "{text}");
    assert_eq!(text.parse::<remat::ir::Jaxpr>().unwrap().to_string(), text);
}

/// Drawing and differentiating makes no NaN and no infinite value on the way, so that checks report the user's.
#[test]
fn checks_find_nothing() {
    let options = JitOptions { checks: Some(Checks::NANS), ..JitOptions::default() };
    let a = tensor([0.05f32, 0.4, 1.0, 3.5, 300.0]);
    let draws: [Distribution; 5] = [
        ("gamma", |key, a| random::gamma(key, [200, 5], DType::F32, a)),
        ("log_gamma", |key, a| random::log_gamma(key, [200, 5], DType::F32, a)),
        ("beta", |key, a| random::beta(key, [200, 5], DType::F32, a, 2.0)),
        ("dirichlet", |key, a| random::dirichlet(key, [200], a)),
        ("poisson", |key, a| random::poisson(key, [200, 5], DType::I32, a).to_dtype(DType::F32)),
    ];
    let mut found = Vec::new();
    for (name, draw) in draws {
        if let Err(error) = jit_with(&options, |a: &Tensor| draw(random::key(3), a)).call(a.clone()) {
            found.push(format!("{name}: {error}"));
        }
        let slope = grad(|a: &Tensor| draw(random::key(3), a).sin().sum(..));
        if let Err(error) = jit_with(&options, slope).call(a.clone()) {
            found.push(format!("gradient of {name}: {error}"));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
