//! The errors of the transcendental functions, in units of the last place, and their special values.

use remat_ir::{Array, Binary, DType, Data, Element, Prim, Unary, eval_op, special};

use super::tests::{is_approximate, run, values};
use super::*;

/// The distance between tested arguments; it is larger without optimisation, where everything takes long.
const STEP: usize = if remat_debug::CHECKS { 40_009 } else { 997 };

/// The result of an operation's function for this CPU.
fn apply<T: Element>(op: impl Into<Prim>, ins: &[Vec<T>]) -> Vec<T> {
    let ins: Vec<Array> = ins.iter().map(|x| Array::from_vec(x.clone(), [x.len()]).expect("the size")).collect();
    let result = run(Level::best(), &op.into(), &ins).expect("a function").remove(0);
    T::into_vec(result.try_into_data().expect("the only one")).expect("the dtype")
}

/// The error of `got` in units of the last place of f32, infinite where the two differ in kind or in the sign of zero.
fn error_f32(got: f32, expected: f64) -> f64 {
    let rounded = expected as f32;
    if got.is_nan() || rounded.is_nan() || got.is_infinite() || rounded.is_infinite() {
        let same = got == rounded || (got.is_nan() && rounded.is_nan());
        // The largest number and infinity are one unit apart.
        let border = got.abs() >= f32::MAX && rounded.abs() >= f32::MAX && got.signum() == rounded.signum();
        return if same { 0.0 } else { if border { 1.0 } else { f64::INFINITY } };
    }
    if got == 0.0 && got.is_sign_negative() != expected.is_sign_negative() {
        return f64::INFINITY;
    }
    let exponent = (expected.abs().max(f32::MIN_POSITIVE.into()).to_bits() >> 52) as i32 - 1023;
    (f64::from(got) - expected).abs() / 2f64.powi(exponent - 23)
}

/// The error of a result in units of the last place of f64, relative to the nearest f64.
fn error_f64(got: f64, expected: f64) -> f64 {
    let ordered = |x: f64| x.to_bits() as i64 ^ ((x.to_bits() as i64) >> 63 & i64::MAX);
    match (got.is_nan(), expected.is_nan()) {
        (true, true) => 0.0,
        (false, false) => ordered(got).abs_diff(ordered(expected)) as f64,
        _ => f64::INFINITY,
    }
}

fn logistic(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

/// The bounds are those in the documentation of `math`.
#[test]
fn functions_of_f32() {
    let functions: [(Unary, fn(f64) -> f64, f64); 25] = [
        (Unary::Exp, f64::exp, 0.8),
        (Unary::Exp2, f64::exp2, 0.9),
        (Unary::Expm1, f64::exp_m1, 1.5),
        (Unary::Log, f64::ln, 0.8),
        (Unary::Log1p, f64::ln_1p, 1.5),
        (Unary::Logistic, logistic, 1.6),
        (Unary::Tanh, f64::tanh, 1.7),
        (Unary::Sin, f64::sin, 1.7),
        (Unary::Cos, f64::cos, 1.7),
        (Unary::Erf, libm::erf, 1.1),
        (Unary::Erfc, libm::erfc, 0.6),
        (Unary::Erfcx, special::erfcx, 0.6),
        (Unary::ErfInv, special::erf_inv, 0.6),
        (Unary::Tan, f64::tan, 0.6),
        (Unary::Asin, f64::asin, 0.6),
        (Unary::Acos, f64::acos, 0.6),
        (Unary::Atan, f64::atan, 0.6),
        (Unary::Sinh, f64::sinh, 0.6),
        (Unary::Cosh, f64::cosh, 0.6),
        (Unary::Asinh, libm::asinh, 0.6),
        (Unary::Acosh, special::acosh, 0.6),
        (Unary::Atanh, libm::atanh, 0.6),
        (Unary::Cbrt, f64::cbrt, 0.6),
        // These are rounded from f64, whose errors also count near zeros.
        (Unary::Lgamma, libm::lgamma, 0.5),
        (Unary::Digamma, special::digamma, 0.5),
    ];
    for op in Unary::ALL.into_iter().filter(|&op| is_approximate(op)) {
        assert!(functions.iter().any(|row| row.0 == op), "there is no bound for {op:?} of f32");
    }
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0, -1.0, f32::MAX, f32::MIN, 1e-45, -1e-45];
    let patterns = (0..=u32::MAX).step_by(STEP).map(f32::from_bits);
    let x: Vec<f32> = special.into_iter().chain(patterns).collect();
    for (op, reference, bound) in functions {
        let y = apply(op, std::slice::from_ref(&x));
        let errors = x.iter().zip(&y).map(|(&x, &y)| (error_f32(y, reference(x.into())), x, y));
        let (error, x, y) = errors.max_by(|a, b| a.0.total_cmp(&b.0)).expect("arguments");
        assert!(error <= bound, "{op:?} of {x:e} is {y:e}: {error} units from {:e}", reference(x.into()));
    }
}

/// Near the zero of the digamma function, where its f64 is least accurate: the f32 around it.
#[test]
fn digamma_of_f32_beside_its_zero() {
    let y = apply(Unary::Digamma, &[vec![1.461_632_1f32, 1.461_632_3]]);
    for (y, expected) in y.into_iter().zip([-1.203605254910667e-08, 1.0331946336967871e-07]) {
        assert!(error_f32(y, expected) <= 1.6, "{y:e} and not {expected:e}");
    }
}

#[test]
fn functions_of_two_f32() {
    let special = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 7.0, 8_388_609.0, 16_777_215.0, 1e10, f32::MAX, f32::INFINITY, 1e-45];
    let special = special.into_iter().flat_map(|x| [x, -x]).chain([f32::NAN, 0.99, 1.000_001, -2.5]);
    let special: Vec<f32> = special.collect();
    let mut pairs: Vec<(f32, f32)> = special.iter().flat_map(|&a| special.iter().map(move |&b| (a, b))).collect();
    let bits = |i: usize, factor: usize| i.wrapping_mul(factor) as u32;
    for i in (0..10_000_000).step_by(STEP / 9) {
        let a = f32::from_bits(bits(i, 2_654_435_761));
        let b = f32::from_bits(bits(i, 40_503_123));
        // Numbers whose results are neither zero nor infinity.
        let near = f32::from_bits(0x3F00_0000 + bits(i, 977) % 0x0180_0000);
        pairs.extend([(a, b), (a.abs(), near), (a.abs(), -near), (near, 50.0 * near), (near, a)]);
    }
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
    let functions: [(Binary, fn(f64, f64) -> f64); 2] = [(Binary::Pow, f64::powf), (Binary::Atan2, f64::atan2)];
    for (op, reference) in functions {
        let y = apply(op, &[a.clone(), b.clone()]);
        for ((&a, &b), &y) in a.iter().zip(&b).zip(&y) {
            let expected = reference(a.into(), b.into());
            let error = error_f32(y, expected);
            assert!(error <= 0.6, "{op:?} of {a:e} and {b:e} is {y:e}: {error} units from {expected:e}");
        }
    }
}

/// Exact values, rounded to the nearest f64, at arguments with large errors or where methods meet.
#[test]
#[expect(clippy::approx_constant, reason = "the largest errors are near such numbers")]
fn functions_of_f64() {
    let values = [
        (Unary::Exp, 3.8445202962642675, 46.73625941444404),
        (Unary::Exp, -2.8568964044686274, 0.05744677543456482),
        (Unary::Exp, 0.001, 1.0010005001667084),
        (Unary::Exp, 0.34657, 1.4142084849595797),
        (Unary::Exp, -745.1, 5e-324),
        (Unary::Exp, -708.5, 2.006132305331306e-308),
        (Unary::Exp, 709.78, 1.7928227943945155e+308),
        (Unary::Exp, -20.3, 1.5269401591266087e-09),
        (Unary::Exp2, -3.4724822204643457, 0.09009043672669288),
        (Unary::Exp2, 0.49999, 1.4142037598256334),
        (Unary::Exp2, 1e-09, 1.000000000693147),
        (Unary::Exp2, -1073.6, 5e-324),
        (Unary::Exp2, -1022.3, 1.8073215736421466e-308),
        (Unary::Exp2, 1023.99, 1.7852755613304564e+308),
        (Unary::Exp2, 0.5, 1.4142135623730951),
        (Unary::Expm1, 1.773955139858093, 4.89411938737715),
        (Unary::Expm1, 0.3909028106502661, 0.4783148299739831),
        (Unary::Expm1, -0.3465, -0.2928411807127287),
        (Unary::Expm1, 1e-05, 1.0000050000166668e-05),
        (Unary::Expm1, -1e-17, -1e-17),
        (Unary::Expm1, 0.6931, 0.9999056411060797),
        (Unary::Expm1, -30.2, -0.9999999999999234),
        (Unary::Expm1, 50.5, 8.548134287298057e+21),
        (Unary::Log, 1.398696736575385, 0.3355409006162891),
        (Unary::Log, 0.70710678, -0.3465735919580042),
        (Unary::Log, 1.4142136, 0.346573616886212),
        (Unary::Log, 0.9999999, -1.0000000494736474e-07),
        (Unary::Log, 1.0000001, 9.999999505838704e-08),
        (Unary::Log, 3.1e-310, -712.6699767166631),
        (Unary::Log, 1.7e+308, 709.7268368932282),
        (Unary::Log, 5e-324, -744.4400719213812),
        (Unary::Log1p, 0.4517911233262522, 0.37279805159605534),
        (Unary::Log1p, -0.2928, -0.3464417676587034),
        (Unary::Log1p, -0.9999999, -16.118095651484676),
        (Unary::Log1p, 1e-10, 9.999999999500001e-11),
        (Unary::Log1p, 3e-17, 3e-17),
        (Unary::Log1p, 0.41421, 0.3465710712986274),
        (Unary::Log1p, 1e+300, 690.7755278982137),
        (Unary::Log1p, -0.5, -0.6931471805599453),
        (Unary::Logistic, -2.772195371175865, 0.05884531041283023),
        (Unary::Logistic, 2.772195371175865, 0.9411546895871697),
        (Unary::Logistic, -36.9, 9.430476078526807e-17),
        (Unary::Logistic, -700.3, 7.304228033645715e-305),
        (Unary::Logistic, 1e-09, 0.50000000025),
        (Unary::Logistic, 0.1, 0.52497918747894),
        (Unary::Logistic, 30.5, 0.9999999999999433),
        (Unary::Tanh, -0.2262833936790245, -0.2224986740904679),
        (Unary::Tanh, 0.20583324892725008, 0.20297481274733106),
        (Unary::Tanh, 1e-09, 1e-09),
        (Unary::Tanh, 0.5493, 0.49999539173530155),
        (Unary::Tanh, -1.3, -0.8617231593133063),
        (Unary::Tanh, 18.9, 0.9999999999999999),
        (Unary::Tanh, -3e-05, -2.9999999991e-05),
        (Unary::Sin, 0.8395594450338884, 0.7443489936543538),
        (Unary::Sin, 3.141592653589793, 1.2246467991473532e-16),
        (Unary::Sin, 6.283185307179586, -2.4492935982947064e-16),
        (Unary::Sin, -100000.0, -0.03574879797201651),
        (Unary::Sin, 1048575.3, -0.3552429645743519),
        (Unary::Sin, 1e-08, 1e-08),
        (Unary::Sin, 2000000.0, -0.65571431556347),
        (Unary::Sin, 1e+22, -0.8522008497671888),
        (Unary::Sin, 2.3293370296571396, 0.7258405796906231),
        (Unary::Sin, -710.0, -6.0288706691585265e-05),
        (Unary::Cos, -8.105171377242185, -0.24855654091451684),
        (Unary::Cos, 1.5707963267948966, 6.123233995736766e-17),
        (Unary::Cos, 4.71238898038469, -1.8369701987210297e-16),
        (Unary::Cos, -100000.0, -0.9993608074382124),
        (Unary::Cos, 1048575.3, 0.9347740026982061),
        (Unary::Cos, 1e-08, 1.0),
        (Unary::Cos, 2000000.0, 0.7550090968757464),
        (Unary::Cos, 1e+22, 0.523214785395139),
        (Unary::Cos, 76.13177600581696, 0.7428007715471329),
        (Unary::Cos, 11.0, 0.004425697988050785),
    ];
    for (op, x, expected) in values {
        let y = apply(op, &[vec![x]])[0];
        assert!(error_f64(y, expected) <= 2.0, "{op:?} of {x:e} is {y:e} and should be {expected:e}");
    }
}

/// Functions that call a library: exact values, rounded to the nearest f64, where errors are large, and bounds in units of the larger of
/// the result and the last number.
#[test]
fn functions_of_f64_that_are_those_of_libraries() {
    let values = [
        (Unary::Tan, 0.07924800469130051, 0.07941432150270732, 0.6, 0.0),
        (Unary::Asin, 0.028942296796230414, 0.02894633893746678, 0.6, 0.0),
        (Unary::Acos, 0.9375, 0.3554212016902235, 0.6, 0.0),
        (Unary::Atan, -2.0012540249323475e-05, -2.0012540246651788e-05, 0.6, 0.0),
        (Unary::Sinh, -0.031013956167950715, -0.031018928282694792, 1.4, 0.0),
        (Unary::Cosh, 2.0554233759074276, 3.9690912075577134, 1.0, 0.0),
        (Unary::Asinh, 0.0019522309642185732, 0.0019522297241617245, 1.4, 0.0),
        (Unary::Acosh, 1.0018519768539074, 0.06085072718826206, 1.7, 0.0),
        (Unary::Atanh, -0.23987769226622913, -0.2446443334520764, 1.4, 0.0),
        (Unary::Cbrt, -8.183537156446297e-16, -9.353633581190833e-06, 0.6, 0.0),
        (Unary::Rsqrt, 4.288551049211996e+174, 4.828861040479911e-88, 1.4, 0.0),
        (Unary::Erf, 4.187447741814166e-05, 4.725028792402519e-05, 1.0, 0.0),
        (Unary::Erfc, 17.70299307208523, 2.4920143085697485e-138, 2.7, 0.0),
        (Unary::Erfc, 18.965758360941766, 1.80772497218453e-158, 2.7, 0.0),
        (Unary::Erfc, 1.35180035897234, 0.055910269502234405, 2.7, 0.0),
        (Unary::Erfcx, 0.012487120919861594, 0.9860642684449822, 3.9, 0.0),
        (Unary::Erfcx, 9.394608612879205, 0.05972001815350227, 3.9, 0.0),
        (Unary::Erfcx, -1.1819449413708547, 7.703510181211578, 3.9, 0.0),
        (Unary::Erfcx, 1e6, 5.641895835474742e-7, 3.9, 0.0),
        (Unary::ErfInv, -0.8393811092586286, -0.9920659486808829, 2.3, 0.0),
        (Unary::ErfInv, -0.7928232177437096, -0.8919209036696449, 2.3, 0.0),
        (Unary::ErfInv, 0.9999999064085615, 3.7750637948928354, 2.3, 0.0),
        (Unary::Lgamma, 10.545669447603917, 14.045906044791137, 2.1, 0.0),
        (Unary::Lgamma, 0.7283780327006952, 0.22736269398701625, 2.1, 0.0),
        (Unary::Lgamma, 1365.5006683943002, 8489.735483986473, 2.1, 0.0),
        (Unary::Lgamma, -9.00006460671689, -3.1547807758233963, 4.3, 1.0),
        (Unary::Lgamma, -7.000494037340902, -0.9132573232215452, 4.3, 1.0),
        (Unary::Lgamma, -2.4587924729343236, -0.0026640108386543192, 4.3, 1.0),
        (Unary::Lgamma, -3.1435056991220067, 0.0005852599827692068, 4.3, 1.0),
        (Unary::Digamma, 3.078014516952161, 0.9531351437665955, 16.0, 1.0),
        (Unary::Digamma, 1.0635157468892729, -0.4773244012547503, 16.0, 1.0),
        (Unary::Digamma, 1.4616321315554128, -1.2979339053278997e-08, 16.0, 1.0),
        (Unary::Digamma, -10.763341416071675, -0.9947491489761686, 170.0, 1.0),
        (Unary::Digamma, -10.793496952523451, -1.7187628842550635, 170.0, 1.0),
        (Unary::Digamma, -5.667088718029819, 0.00095985353844066, 170.0, 1.0),
    ];
    let vectorised = [Unary::Exp, Unary::Exp2, Unary::Expm1, Unary::Log, Unary::Log1p, Unary::Logistic, Unary::Tanh];
    let tested_apart = vectorised.into_iter().chain([Unary::Sin, Unary::Cos]);
    let tested: Vec<Unary> = tested_apart.chain(values.iter().map(|row| row.0)).collect();
    for op in Unary::ALL.into_iter().filter(|&op| is_approximate(op)) {
        assert!(tested.contains(&op), "there is no exact value for {op:?} of f64");
    }
    for (op, x, expected, bound, least) in values {
        let y = apply(op, &[vec![x]])[0];
        let of: f64 = f64::max(f64::abs(expected), least);
        let unit = of.next_up() - of;
        // The nearest f64 is up to half a unit from the exact value.
        let error = f64::abs(y - expected) / unit;
        assert!(error <= bound + 0.5, "{op:?} of {x:e} is {y:e}, {error} units from {expected:e}");
    }
}

/// Comparison with the functions of libm, whose own errors are up to two units.
#[test]
fn functions_of_f64_on_random_arguments() {
    let functions: [(Unary, fn(f64) -> f64); 9] = [
        (Unary::Exp, libm::exp),
        (Unary::Exp2, libm::exp2),
        (Unary::Expm1, libm::expm1),
        (Unary::Log, libm::log),
        (Unary::Log1p, libm::log1p),
        (Unary::Logistic, logistic),
        (Unary::Tanh, libm::tanh),
        (Unary::Sin, libm::sin),
        (Unary::Cos, libm::cos),
    ];
    let all = values(DType::F64, 4_000_000_000 / (STEP * 100), 5);
    let x = all.as_slice::<f64>().expect("the dtype").to_vec();
    for (op, reference) in functions {
        let y = apply(op, std::slice::from_ref(&x));
        for (&x, &y) in x.iter().zip(&y) {
            let expected = reference(x);
            assert!(error_f64(y, expected) <= 4.0, "{op:?} of {x:e} is {y:e} and should be {expected:e}");
        }
    }
}

/// The other functions of f64 are those of the evaluator, and functions of f16 and bf16 are rounded from f32. All have the evaluator's
/// NaNs, infinities and zeros.
#[test]
fn results_are_those_of_the_evaluator() {
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        let (a, b) = (values(dtype, 1500, 1), values(dtype, 1500, 2));
        for op in Unary::ALL.into_iter().filter(|&op| is_approximate(op)) {
            compare(op.into(), std::slice::from_ref(&a));
        }
        for op in [Binary::Pow, Binary::Atan2] {
            compare(op.into(), &[a.clone(), b.clone()]);
        }
    }
}

fn compare(op: Prim, ins: &[Array]) {
    let dtype = ins[0].dtype();
    let (tolerance, smallest) = match dtype {
        DType::F16 => (2f64.powi(-10), 2f64.powi(-24)),
        DType::Bf16 => (2f64.powi(-7), 1e-38),
        DType::F32 => (1e-6, 1e-38),
        _ => (1e-15, 1e-307),
    };
    let expected = eval_op(&op.clone().into(), ins).expect("valid operands").remove(0);
    for level in Level::all() {
        for got in run(level, &op, ins).expect("a function") {
            for i in 0..expected.data().len() {
                let [got, expected] = [&got, &expected].map(|x| x.data().get(i).expect("the size").as_f64());
                let x = ins[0].data().get(i).expect("the size");
                let close = (got - expected).abs() <= tolerance * expected.abs() + smallest;
                let same = got == expected || (got.is_nan() && expected.is_nan());
                assert!(same || close, "{op:?} of {x}: {got:e}, {expected:e}, {dtype} at {level:?}");
                let sign = got != 0.0 || expected != 0.0 || got.is_sign_negative() == expected.is_sign_negative();
                assert!(sign, "{op:?} of {x}: the sign of zero, {dtype} at {level:?}");
            }
        }
    }
}

#[test]
fn all_levels_give_the_same_bits() {
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        let (a, b) = (values(dtype, 700, 3), values(dtype, 700, 4));
        let unary = Unary::ALL.into_iter().filter(|&op| is_approximate(op)).map(Prim::from);
        for (op, ins) in unary.map(|op| (op, vec![a.clone()])).chain([(Binary::Pow.into(), vec![a.clone(), b])]) {
            let results = Level::all().map(|level| run(level, &op, &ins).expect("a function").remove(0));
            let bits = results.map(|x| match x.data() {
                Data::F32(x) => x.iter().map(|x| if x.is_nan() { 0 } else { x.to_bits().into() }).collect::<Vec<u64>>(),
                Data::F64(x) => x.iter().map(|x| if x.is_nan() { 0 } else { x.to_bits() }).collect(),
                Data::F16(x) => x.iter().map(|x| if x.is_nan() { 0 } else { x.to_bits().into() }).collect(),
                Data::Bf16(x) => x.iter().map(|x| if x.is_nan() { 0 } else { x.to_bits().into() }).collect(),
                _ => unreachable!("a float"),
            });
            let bits: Vec<Vec<u64>> = bits.collect();
            assert!(bits.windows(2).all(|pair| pair[0] == pair[1]), "{op:?} {dtype}");
        }
    }
}

/// A result does not depend on the position of its element in the tile or on other elements.
#[test]
fn results_do_not_depend_on_the_neighbours() {
    for op in [Unary::Exp, Unary::Sin, Unary::Cos, Unary::Tan, Unary::Tanh] {
        let x: Vec<f32> =
            (0..200).map(|i| if i % 70 == 13 { 1e9 + i as f32 } else { i as f32 * 0.37 - 30.0 }).collect();
        let together = apply(op, std::slice::from_ref(&x));
        let alone: Vec<f32> = x.iter().map(|&x| apply(op, &[vec![x]])[0]).collect();
        assert!(together.iter().zip(&alone).all(|(a, b)| a.to_bits() == b.to_bits()), "{op:?}");
    }
}
