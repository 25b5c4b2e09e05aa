use remat_ir::{Array, Binary, Clamp, Compare, DType, IntegerPow, SelectN, Unary, bf16, f16};

use super::{FLOATS, SIGNED, UNSIGNED, assert_close, assert_same, cast, numbers, run, vec1};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Arguments that are exact in every float dtype, and the values there, computed with 40 digits.
#[expect(clippy::approx_constant, reason = "the table is data: its constants are values of functions")]
const VALUES: &[(Unary, [f64; 4], [f64; 4])] = &[
    (
        Unary::Exp,
        [-2.5, -0.5, 0.25, 1.5],
        [0.0820849986238988, 0.6065306597126334, 1.2840254166877414, 4.4816890703380645],
    ),
    (
        Unary::Exp2,
        [-2.5, -0.5, 0.25, 1.5],
        [0.1767766952966369, 0.7071067811865476, 1.189207115002721, 2.8284271247461903],
    ),
    (
        Unary::Expm1,
        [-2.5, -0.0078125, 0.0078125, 1.5],
        [-0.9179150013761012, -0.007782061739756488, 0.007843097206447977, 3.481689070338065],
    ),
    (
        Unary::Log,
        [0.125, 0.75, 1.5, 96.0],
        [-2.0794415416798357, -0.2876820724517809, 0.4054651081081644, 4.564348191467836],
    ),
    (
        Unary::Log1p,
        [-0.75, -0.0078125, 0.0078125, 96.0],
        [-1.3862943611198906, -0.007843177461025893, 0.007782140442054949, 4.574710978503383],
    ),
    (
        Unary::Sqrt,
        [0.125, 0.75, 2.0, 96.0],
        [0.3535533905932738, 0.8660254037844386, 1.4142135623730951, 9.797958971132712],
    ),
    (
        Unary::Rsqrt,
        [0.125, 0.75, 2.0, 96.0],
        [2.8284271247461903, 1.1547005383792515, 0.7071067811865476, 0.10206207261596575],
    ),
    (Unary::Cbrt, [-3.0, 0.125, 2.0, 96.0], [-1.4422495703074083, 0.5, 1.2599210498948732, 4.5788569702133275]),
    (
        Unary::Logistic,
        [-6.0, -0.5, 0.25, 3.0],
        [0.0024726231566347743, 0.37754066879814546, 0.5621765008857981, 0.9525741268224333],
    ),
    (
        Unary::Sin,
        [-2.5, -0.0625, 0.25, 6.0],
        [-0.5984721441039565, -0.0624593178423802, 0.24740395925452294, -0.27941549819892586],
    ),
    (
        Unary::Cos,
        [-2.5, -0.0625, 0.25, 6.0],
        [-0.8011436155469337, 0.9980475107000991, 0.9689124217106447, 0.960170286650366],
    ),
    (
        Unary::Tan,
        [-2.5, -0.0625, 0.25, 6.0],
        [0.7470222972386603, -0.06258150756627502, 0.25534192122103627, -0.29100619138474915],
    ),
    (
        Unary::Asin,
        [-1.0, -0.0625, 0.25, 0.75],
        [-1.5707963267948966, -0.06254076179649139, 0.25268025514207865, 0.848062078981481],
    ),
    (
        Unary::Acos,
        [-1.0, -0.0625, 0.25, 0.75],
        [3.141592653589793, 1.633337088591388, 1.318116071652818, 0.7227342478134157],
    ),
    (
        Unary::Atan,
        [-2.5, -0.0625, 0.25, 96.0],
        [-1.1902899496825317, -0.06241880999595735, 0.24497866312686414, 1.560380036863927],
    ),
    (
        Unary::Sinh,
        [-2.5, -0.0625, 0.25, 6.0],
        [-6.0502044810397875, -0.06254069805219183, 0.2526123168081683, 201.71315737027922],
    ),
    (
        Unary::Cosh,
        [-2.5, -0.0625, 0.25, 6.0],
        [6.132289479663686, 1.0019537608656677, 1.0314130998795732, 201.7156361224559],
    ),
    (
        Unary::Tanh,
        [-2.5, -0.0625, 0.25, 3.0],
        [-0.9866142981514303, -0.062418746747512514, 0.24491866240370913, 0.9950547536867305],
    ),
    (
        Unary::Asinh,
        [-2.5, -0.0625, 0.25, 96.0],
        [-1.6472311463710958, -0.062459381255540306, 0.24746646154726346, 5.25752249766017],
    ),
    (
        Unary::Acosh,
        [1.0625, 1.5, 3.0, 96.0],
        [0.3517373900432606, 0.9624236501192069, 1.762747174039086, 5.257468244187814],
    ),
    (
        Unary::Atanh,
        [-0.75, -0.0625, 0.25, 0.5],
        [-0.9729550745276566, -0.06258157147700301, 0.25541281188299536, 0.5493061443340549],
    ),
    (
        Unary::Erf,
        [-2.5, -0.0625, 0.25, 1.5],
        [-0.999593047982555, -0.07043197772238707, 0.27632639016823696, 0.9661051464753108],
    ),
    (
        Unary::Erfc,
        [-2.5, -0.0625, 0.25, 1.5],
        [1.999593047982555, 1.0704319777223872, 0.7236736098317631, 0.033894853524689274],
    ),
    (
        Unary::Erfcx,
        [-2.5, -0.0625, 0.25, 1.5],
        [1035.814842972623, 1.0746215300274211, 0.7703465477309968, 0.3215854164543175],
    ),
    (
        Unary::ErfInv,
        [-0.75, -0.0625, 0.25, 0.96875],
        [-0.8134198475976185, -0.05544594877278202, 0.2253120550121781, 1.523019401996956],
    ),
    (
        Unary::Lgamma,
        [-2.5, 0.0625, 0.75, 40.0],
        [-0.056243716497674054, 2.7396316219462036, 0.20328095143129538, 106.63176026064346],
    ),
    (
        Unary::Digamma,
        [-2.5, 0.0625, 0.75, 40.0],
        [1.103156640645243, -16.478853490060104, -1.0858608797864722, 3.676327374034843],
    ),
];

/// Values at the edges of the domains.
const EDGES: &[(Unary, &[f64], &[f64])] = &[
    (Unary::Neg, &[0.0, -0.0, INF, NAN, 1.5], &[-0.0, 0.0, -INF, NAN, -1.5]),
    (Unary::Sign, &[0.0, -0.0, INF, -INF, NAN, 1.5, -1.5], &[0.0, -0.0, 1.0, -1.0, NAN, 1.0, -1.0]),
    (Unary::Abs, &[0.0, -0.0, INF, -INF, NAN, 1.5, -1.5], &[0.0, 0.0, INF, INF, NAN, 1.5, 1.5]),
    (Unary::Floor, &[-0.5, 0.5, 1.5, -1.5, -0.0, INF, NAN], &[-1.0, 0.0, 1.0, -2.0, -0.0, INF, NAN]),
    (Unary::Ceil, &[-0.5, 0.5, 1.5, -1.5, -0.0, -INF, NAN], &[-0.0, 1.0, 2.0, -1.0, -0.0, -INF, NAN]),
    (Unary::Round, &[0.5, 1.5, 2.5, -0.5, -1.5, 2.25, INF, NAN], &[0.0, 2.0, 2.0, -0.0, -2.0, 2.0, INF, NAN]),
    (Unary::Exp, &[0.0, INF, -INF, NAN], &[1.0, INF, 0.0, NAN]),
    (Unary::Exp2, &[0.0, 3.0, -1.0, INF, -INF, NAN], &[1.0, 8.0, 0.5, INF, 0.0, NAN]),
    (Unary::Expm1, &[0.0, -0.0, INF, -INF, NAN], &[0.0, -0.0, INF, -1.0, NAN]),
    (Unary::Log, &[0.0, -0.0, 1.0, -1.0, INF, NAN], &[-INF, -INF, 0.0, NAN, INF, NAN]),
    (Unary::Log1p, &[-1.0, -2.0, 0.0, -0.0, INF, NAN], &[-INF, NAN, 0.0, -0.0, INF, NAN]),
    (Unary::Sqrt, &[0.0, -0.0, 4.0, -1.0, INF, NAN], &[0.0, -0.0, 2.0, NAN, INF, NAN]),
    (Unary::Rsqrt, &[0.0, -0.0, 4.0, -1.0, INF, NAN], &[INF, -INF, 0.5, NAN, 0.0, NAN]),
    (Unary::Cbrt, &[0.0, -0.0, 8.0, -27.0, INF, -INF, NAN], &[0.0, -0.0, 2.0, -3.0, INF, -INF, NAN]),
    (Unary::Logistic, &[0.0, INF, -INF, NAN], &[0.5, 1.0, 0.0, NAN]),
    (Unary::Sin, &[0.0, -0.0, INF, NAN], &[0.0, -0.0, NAN, NAN]),
    (Unary::Cos, &[0.0, -0.0, INF, NAN], &[1.0, 1.0, NAN, NAN]),
    (Unary::Tan, &[0.0, -0.0, INF, NAN], &[0.0, -0.0, NAN, NAN]),
    (Unary::Asin, &[0.0, -0.0, 1.5, NAN], &[0.0, -0.0, NAN, NAN]),
    (Unary::Acos, &[1.0, 1.5, NAN], &[0.0, NAN, NAN]),
    (Unary::Atan, &[0.0, -0.0, NAN], &[0.0, -0.0, NAN]),
    (Unary::Sinh, &[0.0, -0.0, INF, -INF, NAN], &[0.0, -0.0, INF, -INF, NAN]),
    (Unary::Cosh, &[0.0, INF, -INF, NAN], &[1.0, INF, INF, NAN]),
    (Unary::Tanh, &[0.0, -0.0, INF, -INF, NAN], &[0.0, -0.0, 1.0, -1.0, NAN]),
    (Unary::Asinh, &[0.0, -0.0, INF, -INF, NAN], &[0.0, -0.0, INF, -INF, NAN]),
    (Unary::Acosh, &[1.0, 0.5, INF, NAN], &[0.0, NAN, INF, NAN]),
    (Unary::Atanh, &[0.0, -0.0, 1.0, -1.0, 1.5, NAN], &[0.0, -0.0, INF, -INF, NAN, NAN]),
    (Unary::Erf, &[0.0, -0.0, INF, -INF, NAN], &[0.0, -0.0, 1.0, -1.0, NAN]),
    (Unary::Erfc, &[0.0, INF, -INF, NAN], &[1.0, 0.0, 2.0, NAN]),
    (Unary::Erfcx, &[0.0, INF, -INF, -30.0, NAN], &[1.0, 0.0, INF, INF, NAN]),
    (Unary::ErfInv, &[0.0, -0.0, 1.0, -1.0, 1.5, NAN], &[0.0, -0.0, INF, -INF, NAN, NAN]),
    (Unary::Lgamma, &[1.0, 2.0, 0.0, -1.0, INF, -INF, NAN], &[0.0, 0.0, INF, INF, INF, INF, NAN]),
    (Unary::Digamma, &[0.0, -0.0, -1.0, INF, -INF, NAN], &[NAN, NAN, NAN, INF, NAN, NAN]),
    (Unary::Neg, &[], &[]),
    (Unary::Exp, &[], &[]),
    (Unary::Lgamma, &[], &[]),
];

#[test]
fn functions_have_their_values_in_every_float_dtype() {
    for &(op, arguments, values) in VALUES {
        for dtype in FLOATS {
            assert_close(&run(op, &[cast(dtype, &arguments)]), &values);
        }
    }
}

#[test]
fn functions_have_their_values_at_the_edges() {
    for &(op, arguments, values) in EDGES {
        for dtype in FLOATS {
            assert_same(&run(op, &[cast(dtype, arguments)]), dtype, values);
        }
    }
}

/// A new function fails here until it has its rows.
#[test]
fn every_function_has_values_and_edges() {
    for op in Unary::ALL {
        let has_edges = EDGES.iter().any(|row| row.0 == op);
        match op {
            // Tests of their own, below.
            Unary::IsFinite | Unary::Not | Unary::PopulationCount => assert!(!op.takes(DType::F32) || !has_edges),
            // Exact functions: the edges have their values.
            Unary::Neg | Unary::Sign | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => {
                assert!(has_edges, "{op:?}");
            }
            _ => assert!(has_edges && VALUES.iter().any(|row| row.0 == op), "{op:?}"),
        }
    }
}

#[test]
fn large_arguments_of_inverse_hyperbolic_functions_do_not_overflow() {
    assert_close(&run(Unary::Acosh, &[Array::scalar(f32::MAX)]), &[89.4159862326283]);
    assert_close(&run(Unary::Asinh, &[Array::scalar(f32::MIN)]), &[-89.4159862326283]);
    assert_close(&run(Unary::Asinh, &[Array::scalar(f64::MAX)]), &[710.475860073944]);
}

#[test]
fn is_finite_gives_bools() {
    for dtype in FLOATS {
        let out = run(Unary::IsFinite, &[cast(dtype, &[1.0, 0.0, INF, -INF, NAN])]);
        assert_eq!(out.as_slice::<bool>().unwrap(), [true, true, false, false, false]);
    }
    // The sum overflows in f16, which has its own largest value.
    let sum = run(Binary::Add, &[Array::scalar(f16::MAX), Array::scalar(f16::MAX)]);
    assert_eq!(run(Unary::IsFinite, &[sum]).as_slice::<bool>().unwrap(), [false]);
}

#[test]
fn integers_wrap() {
    for dtype in SIGNED {
        let min = -2f64.powi(dtype.bits() as i32 - 1);
        let max = -(min + 1.0);
        let x = cast(dtype, &[min, -3.0, 0.0, 5.0]);
        assert_same(&run(Unary::Neg, std::slice::from_ref(&x)), dtype, &[min, 3.0, 0.0, -5.0]);
        assert_same(&run(Unary::Abs, std::slice::from_ref(&x)), dtype, &[min, 3.0, 0.0, 5.0]);
        assert_same(&run(Unary::Sign, std::slice::from_ref(&x)), dtype, &[-1.0, -1.0, 0.0, 1.0]);
        let not = run(Unary::Not, std::slice::from_ref(&x));
        assert_eq!(numbers(&not)[1..], [2.0, -1.0, -6.0]);
        let ones = run(Unary::PopulationCount, &[x]);
        assert_same(&ones, dtype, &[1.0, dtype.bits() as f64 - 1.0, 0.0, 2.0]);
        if dtype.bits() < 64 {
            let max = cast(dtype, &[max]);
            let one = cast(dtype, &[1.0]);
            assert_same(&run(Binary::Add, &[max.clone(), one.clone()]), dtype, &[min]);
            assert_same(&run(Binary::Sub, &[cast(dtype, &[min]), one]), dtype, &[-(min + 1.0)]);
            assert_same(&run(Binary::Mul, &[max, cast(dtype, &[2.0])]), dtype, &[-2.0]);
        }
    }
    assert_eq!(run(Binary::Add, &[vec1(&[i64::MAX]), vec1(&[1i64])]).as_slice::<i64>().unwrap(), [i64::MIN]);
    assert_eq!(run(Binary::Sub, &[vec1(&[0u64]), vec1(&[1u64])]).as_slice::<u64>().unwrap(), [u64::MAX]);
    for dtype in UNSIGNED {
        let x = cast(dtype, &[0.0, 1.0, 7.0]);
        assert_same(&run(Unary::Sign, std::slice::from_ref(&x)), dtype, &[0.0, 1.0, 1.0]);
        assert_same(&run(Unary::Abs, std::slice::from_ref(&x)), dtype, &[0.0, 1.0, 7.0]);
        assert_same(&run(Unary::PopulationCount, &[x]), dtype, &[0.0, 1.0, 3.0]);
    }
    assert_eq!(run(Unary::Not, &[vec1(&[0u16, 0xFF00])]).as_slice::<u16>().unwrap(), [0xFFFF, 0xFF]);
}

#[test]
fn division_of_integers_never_fails() {
    for dtype in SIGNED {
        let min = -2f64.powi(dtype.bits() as i32 - 1);
        let a = cast(dtype, &[7.0, -7.0, 7.0, 5.0, -5.0, min]);
        let b = cast(dtype, &[2.0, 2.0, -2.0, 0.0, 0.0, -1.0]);
        assert_same(&run(Binary::Div, &[a.clone(), b.clone()]), dtype, &[3.0, -3.0, -3.0, -1.0, -1.0, min]);
        assert_same(&run(Binary::Rem, &[a, b]), dtype, &[1.0, -1.0, 1.0, 5.0, -5.0, 0.0]);
    }
    for dtype in UNSIGNED {
        let (a, b) = (cast(dtype, &[7.0, 5.0]), cast(dtype, &[2.0, 0.0]));
        let max = if dtype == DType::U64 { u64::MAX as f64 } else { 2f64.powi(dtype.bits() as i32) - 1.0 };
        assert_same(&run(Binary::Div, &[a.clone(), b.clone()]), dtype, &[3.0, max]);
        assert_same(&run(Binary::Rem, &[a, b]), dtype, &[1.0, 5.0]);
    }
}

#[test]
fn arithmetic_of_floats() {
    for dtype in FLOATS {
        let a = cast(dtype, &[1.5, -2.0, INF, 0.0, NAN, -7.5, 7.5]);
        let b = cast(dtype, &[0.5, 4.0, INF, 0.0, 1.0, 2.0, -2.0]);
        let both = [a, b];
        assert_same(&run(Binary::Add, &both), dtype, &[2.0, 2.0, INF, 0.0, NAN, -5.5, 5.5]);
        assert_same(&run(Binary::AddAny, &both), dtype, &[2.0, 2.0, INF, 0.0, NAN, -5.5, 5.5]);
        assert_same(&run(Binary::Sub, &both), dtype, &[1.0, -6.0, NAN, 0.0, NAN, -9.5, 9.5]);
        assert_same(&run(Binary::Mul, &both), dtype, &[0.75, -8.0, INF, 0.0, NAN, -15.0, -15.0]);
        assert_same(&run(Binary::Div, &both), dtype, &[3.0, -0.5, NAN, NAN, NAN, -3.75, -3.75]);
        assert_same(&run(Binary::Rem, &both), dtype, &[0.0, -2.0, NAN, NAN, NAN, -1.5, 1.5]);
        let a = cast(dtype, &[2.0, -2.0, -8.0, 0.0, NAN, 1.0]);
        let b = cast(dtype, &[3.0, 3.0, 0.5, -1.0, 0.0, NAN]);
        assert_same(&run(Binary::Pow, &[a, b]), dtype, &[8.0, -8.0, NAN, INF, 1.0, 1.0]);
        let (y, x) = (cast(dtype, &[1.0, 1.0, -0.0, 0.0, NAN]), cast(dtype, &[1.0, -1.0, 1.0, 1.0, 1.0]));
        let (quarter, three) = (std::f64::consts::FRAC_PI_4, 3.0 * std::f64::consts::FRAC_PI_4);
        assert_close(&run(Binary::Atan2, &[y, x]), &[quarter, three, -0.0, 0.0, NAN]);
    }
}

#[test]
fn each_operation_rounds_half_floats_once() {
    // 1 + 2^-11 is a tie in f16 and 1 + 2^-8 one in bf16: both round to even.
    let tie = run(Binary::Add, &[Array::scalar(f16::ONE), Array::scalar(f16::from_f32(2f32.powi(-11)))]);
    assert_eq!(tie.as_slice::<f16>().unwrap(), [f16::ONE]);
    let tie = run(Binary::Add, &[Array::scalar(bf16::from_f32(1.0078125)), Array::scalar(bf16::from_f32(0.00390625))]);
    assert_eq!(tie.as_slice::<bf16>().unwrap(), [bf16::from_f32(1.015625)]);
    // The square overflows f16 on the way to the fourth power, and f32 holds it.
    let power = run(IntegerPow { y: -4 }, &[Array::scalar(f16::from_f32(16.0))]);
    assert_eq!(power.as_slice::<f16>().unwrap(), [f16::from_f32(1.0 / 65536.0)]);
}

#[test]
fn extrema_propagate_nan_and_order_zeros() {
    for dtype in FLOATS {
        let a = cast(dtype, &[1.0, NAN, 2.0, -0.0, 0.0, -INF]);
        let b = cast(dtype, &[2.0, 1.0, NAN, 0.0, -0.0, INF]);
        assert_same(&run(Binary::Max, &[a.clone(), b.clone()]), dtype, &[2.0, NAN, NAN, 0.0, 0.0, INF]);
        assert_same(&run(Binary::Min, &[a, b]), dtype, &[1.0, NAN, NAN, -0.0, -0.0, -INF]);
    }
    for dtype in SIGNED {
        let (a, b) = (cast(dtype, &[-1.0, 5.0]), cast(dtype, &[1.0, 4.0]));
        assert_same(&run(Binary::Max, &[a.clone(), b.clone()]), dtype, &[1.0, 5.0]);
        assert_same(&run(Binary::Min, &[a, b]), dtype, &[-1.0, 4.0]);
    }
    for dtype in UNSIGNED.into_iter().chain([DType::Bool]) {
        let (a, b) = (cast(dtype, &[0.0, 1.0]), cast(dtype, &[1.0, 1.0]));
        assert_same(&run(Binary::Max, &[a.clone(), b.clone()]), dtype, &[1.0, 1.0]);
        assert_same(&run(Binary::Min, &[a, b]), dtype, &[0.0, 1.0]);
    }
}

#[test]
fn bits() {
    for dtype in SIGNED.into_iter().chain(UNSIGNED) {
        let (a, b) = (cast(dtype, &[12.0, 5.0]), cast(dtype, &[10.0, 3.0]));
        assert_same(&run(Binary::And, &[a.clone(), b.clone()]), dtype, &[8.0, 1.0]);
        assert_same(&run(Binary::Or, &[a.clone(), b.clone()]), dtype, &[14.0, 7.0]);
        assert_same(&run(Binary::Xor, &[a, b]), dtype, &[6.0, 6.0]);
        let bits = dtype.bits() as f64;
        let (a, b) = (cast(dtype, &[1.0, 3.0, 1.0, 7.0]), cast(dtype, &[3.0, 1.0, bits, bits + 1.0]));
        assert_same(&run(Binary::ShiftLeft, &[a, b]), dtype, &[8.0, 6.0, 0.0, 0.0]);
        let (a, b) = (cast(dtype, &[8.0, 7.0, 7.0]), cast(dtype, &[3.0, 1.0, bits]));
        assert_same(&run(Binary::ShiftRightLogical, &[a.clone(), b.clone()]), dtype, &[1.0, 3.0, 0.0]);
        assert_same(&run(Binary::ShiftRightArithmetic, &[a, b]), dtype, &[1.0, 3.0, 0.0]);
    }
    for dtype in SIGNED {
        let bits = dtype.bits() as f64;
        let (a, b) = (cast(dtype, &[-8.0, -1.0, -8.0, -8.0, 8.0]), cast(dtype, &[1.0, 2.0, bits, -1.0, -1.0]));
        assert_same(&run(Binary::ShiftRightArithmetic, &[a.clone(), b.clone()]), dtype, &[-4.0, -1.0, -1.0, -1.0, 0.0]);
        let top = cast(dtype, &[bits - 1.0]);
        assert_same(&run(Binary::ShiftRightLogical, &[cast(dtype, &[-1.0]), top]), dtype, &[1.0]);
        assert_eq!(numbers(&run(Binary::ShiftLeft, &[a, b]))[2..], [0.0, 0.0, 0.0]);
    }
    let high = run(Binary::ShiftRightArithmetic, &[vec1(&[0x80u8]), vec1(&[3u8])]);
    assert_eq!(high.as_slice::<u8>().unwrap(), [0xF0]);
    let (a, b) = (vec1(&[false, true, true]), vec1(&[true, true, false]));
    assert_eq!(run(Binary::And, &[a.clone(), b.clone()]).as_slice::<bool>().unwrap(), [false, true, false]);
    assert_eq!(run(Binary::Or, &[a.clone(), b.clone()]).as_slice::<bool>().unwrap(), [true, true, true]);
    assert_eq!(run(Binary::Xor, &[a.clone(), b]).as_slice::<bool>().unwrap(), [true, false, true]);
    assert_eq!(run(Unary::Not, &[a]).as_slice::<bool>().unwrap(), [true, false, false]);
}

#[test]
fn integer_powers() {
    for dtype in FLOATS {
        let x = cast(dtype, &[2.0, -2.0, 0.0, NAN]);
        let powers: [(i32, [f64; 4]); 7] = [
            (0, [1.0; 4]),
            (1, [2.0, -2.0, 0.0, NAN]),
            (2, [4.0, 4.0, 0.0, NAN]),
            (3, [8.0, -8.0, 0.0, NAN]),
            (5, [32.0, -32.0, 0.0, NAN]),
            (-1, [0.5, -0.5, INF, NAN]),
            (-4, [0.0625, 0.0625, INF, NAN]),
        ];
        for (y, want) in powers {
            assert_same(&run(IntegerPow { y }, std::slice::from_ref(&x)), dtype, &want);
        }
    }
    for dtype in SIGNED {
        assert_same(&run(IntegerPow { y: 5 }, &[cast(dtype, &[2.0, -2.0, 0.0])]), dtype, &[32.0, -32.0, 0.0]);
    }
    for dtype in UNSIGNED {
        assert_same(&run(IntegerPow { y: 0 }, &[cast(dtype, &[2.0, 0.0])]), dtype, &[1.0, 1.0]);
    }
    assert_eq!(run(IntegerPow { y: 9 }, &[vec1(&[2u8])]).as_slice::<u8>().unwrap(), [0]);
    assert_eq!(run(IntegerPow { y: i32::MIN }, &[vec1(&[1.0f32, 2.0])]).as_slice::<f32>().unwrap(), [1.0, 0.0]);
}

#[test]
fn comparisons() {
    let all = [
        (Compare::Eq, [false, true, false]),
        (Compare::Ne, [true, false, true]),
        (Compare::Lt, [true, false, false]),
        (Compare::Le, [true, true, false]),
        (Compare::Gt, [false, false, true]),
        (Compare::Ge, [false, true, true]),
    ];
    for (op, want) in all {
        for dtype in DType::ALL {
            let (a, b) = (cast(dtype, &[0.0, 1.0, 1.0]), cast(dtype, &[1.0, 1.0, 0.0]));
            assert_eq!(run(op, &[a, b]).as_slice::<bool>().unwrap(), want, "{op:?} {dtype}");
        }
        for dtype in FLOATS {
            let (a, b) = (cast(dtype, &[NAN, 1.0, NAN, -0.0]), cast(dtype, &[1.0, NAN, NAN, 0.0]));
            let ne = op == Compare::Ne;
            let equal = matches!(op, Compare::Eq | Compare::Le | Compare::Ge);
            assert_eq!(run(op, &[a, b]).as_slice::<bool>().unwrap(), [ne, ne, ne, equal], "{op:?} {dtype}");
        }
    }
    assert_eq!(run(Compare::Lt, &[vec1(&[-1i8]), vec1(&[1i8])]).as_slice::<bool>().unwrap(), [true]);
    assert_eq!(run(Compare::Lt, &[vec1(&[255u8]), vec1(&[1u8])]).as_slice::<bool>().unwrap(), [false]);
}

#[test]
fn scalars_stand_for_every_element() {
    let (one, x) = (Array::scalar(1.0f32), vec1(&[1.0f32, 2.0, 3.0]));
    assert_same(&run(Binary::Sub, &[one.clone(), x.clone()]), DType::F32, &[0.0, -1.0, -2.0]);
    assert_same(&run(Binary::Sub, &[x.clone(), one.clone()]), DType::F32, &[0.0, 1.0, 2.0]);
    let scalar = run(Binary::Sub, &[one.clone(), one.clone()]);
    assert_eq!((scalar.shape(), numbers(&scalar)), (&[][..], vec![0.0]));
    assert_eq!(run(Compare::Lt, &[one.clone(), x.clone()]).as_slice::<bool>().unwrap(), [false, true, true]);
    assert_eq!(run(Compare::Lt, &[x.clone(), one.clone()]).as_slice::<bool>().unwrap(), [false, false, false]);
    assert_eq!(run(Compare::Le, &[one.clone(), one.clone()]).shape(), []);
    let empty = vec1::<f32>(&[]);
    assert_eq!(run(Binary::Add, &[one, empty]).shape(), [0]);
    // An array of one element is not a scalar, and x was not overwritten.
    assert_eq!(run(Binary::Add, &[vec1(&[1i32]), vec1(&[2i32])]).shape(), [1]);
    assert_same(&x, DType::F32, &[1.0, 2.0, 3.0]);
}

#[test]
fn selection() {
    for dtype in DType::ALL {
        let (a, b) = (cast(dtype, &[0.0, 1.0, 0.0]), cast(dtype, &[1.0, 0.0, 1.0]));
        let (zero, one) = (Array::full(a.data().get(0).unwrap(), []), Array::full(b.data().get(0).unwrap(), []));
        let which = vec1(&[false, true, true]);
        let ins = |a: &Array, b: &Array| [which.clone(), a.clone(), b.clone()];
        assert_same(&run(SelectN, &ins(&a, &b)), dtype, &[0.0, 0.0, 1.0]);
        assert_same(&run(SelectN, &ins(&zero, &b)), dtype, &[0.0, 0.0, 1.0]);
        assert_same(&run(SelectN, &ins(&a, &one)), dtype, &[0.0, 1.0, 1.0]);
        assert_same(&run(SelectN, &ins(&zero, &one)), dtype, &[0.0, 1.0, 1.0]);
        let third = cast(dtype, &[1.0, 1.0, 1.0]);
        for (index, want) in [(-3, [0.0, 1.0, 0.0]), (0, [0.0, 1.0, 0.0]), (1, [1.0, 0.0, 1.0]), (9, [1.0, 1.0, 1.0])] {
            let ins = [Array::scalar(index), a.clone(), b.clone(), third.clone()];
            assert_same(&run(SelectN, &ins), dtype, &want);
        }
        let ins = [vec1(&[2, 1, -1]), a.clone(), b.clone(), third];
        assert_same(&run(SelectN, &ins), dtype, &[1.0, 0.0, 0.0]);
        assert_same(&run(SelectN, &[Array::scalar(true), a.clone(), b]), dtype, &[1.0, 0.0, 1.0]);
        assert_same(&run(SelectN, &[vec1(&[false, false, false]), a]), dtype, &[0.0, 1.0, 0.0]);
    }
}

#[test]
fn clamping() {
    for dtype in DType::ALL {
        let (low, x, high) =
            (cast(dtype, &[0.0, 1.0, 1.0]), cast(dtype, &[0.0, 0.0, 1.0]), cast(dtype, &[0.0, 1.0, 0.0]));
        // Where the bounds cross, the maximum wins.
        assert_same(&run(Clamp, &[low, x, high]), dtype, &[0.0, 1.0, 0.0]);
    }
    for dtype in FLOATS {
        let x = cast(dtype, &[-2.0, 0.5, 3.0, NAN, INF]);
        let bound = |x: f64| Array::full(cast(dtype, &[x]).data().get(0).unwrap(), []);
        assert_same(&run(Clamp, &[bound(-1.0), x.clone(), bound(1.0)]), dtype, &[-1.0, 0.5, 1.0, NAN, 1.0]);
        assert_same(&run(Clamp, &[bound(NAN), x.clone(), bound(1.0)]), dtype, &[NAN; 5]);
        assert_same(&run(Clamp, &[x, bound(1.0), bound(2.0)]), dtype, &[1.0, 1.0, 2.0, NAN, 2.0]);
    }
}
