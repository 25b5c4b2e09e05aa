use remat_ir::{Array, BitcastConvertType, ConvertElementType, DType, Literal, ReducePrecision, bf16, f16};

use super::{FLOATS, assert_same, cast, error, numbers, run, vec1};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn to(dtype: DType, x: Array) -> Array {
    run(ConvertElementType { dtype }, &[x])
}

#[test]
fn small_values_convert_between_all_dtypes() {
    for from in DType::ALL {
        for dtype in DType::ALL {
            let (x, want) = match (from, dtype) {
                (DType::Bool, _) => ([1.0, 0.0, 1.0], [1.0, 0.0, 1.0]),
                (_, DType::Bool) => ([2.0, 0.0, 100.0], [1.0, 0.0, 1.0]),
                _ => ([2.0, 0.0, 100.0], [2.0, 0.0, 100.0]),
            };
            assert_same(&to(dtype, cast(from, &x)), dtype, &want);
            assert_same(&to(dtype, cast(from, &[])), dtype, &[]);
        }
    }
}

#[test]
fn floats_truncate_and_saturate_to_integers() {
    for from in FLOATS {
        let x = || cast(from, &[1.5, -1.5, -0.5, NAN, INF, -INF]);
        for dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
            let out = to(dtype, x());
            let bits = dtype.bits() as u32;
            let bounds = if dtype.is_signed() {
                (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
            } else {
                (0, (1i128 << bits) - 1)
            };
            let got: Vec<i128> = (0..6).map(|i| out.data().get(i).unwrap().as_i128().unwrap()).collect();
            let negative = if dtype.is_signed() { -1 } else { 0 };
            assert_eq!(got, [1, negative, 0, 0, bounds.1, bounds.0], "{from} to {dtype}");
        }
        assert_eq!(to(DType::Bool, x()).as_slice::<bool>().unwrap(), [true; 6]);
        assert_eq!(to(DType::Bool, cast(from, &[0.0, -0.0])).as_slice::<bool>().unwrap(), [false; 2]);
    }
}

#[test]
fn integers_wrap_to_integers() {
    assert_eq!(to(DType::I8, vec1(&[300, -129, 128])).as_slice::<i8>().unwrap(), [44, 127, -128]);
    assert_eq!(to(DType::U8, vec1(&[-1i64, 256])).as_slice::<u8>().unwrap(), [255, 0]);
    assert_eq!(to(DType::U64, vec1(&[-1i8])).as_slice::<u64>().unwrap(), [u64::MAX]);
    assert_eq!(to(DType::I64, vec1(&[u32::MAX])).as_slice::<i64>().unwrap(), [4294967295]);
}

#[test]
fn to_smaller_floats_rounds_once() {
    let f16s = |x: Array| numbers(&to(DType::F16, x));
    let bf16s = |x: Array| numbers(&to(DType::Bf16, x));
    // Ties go to even; a little more than a tie goes up, though f32 cannot tell it from the tie.
    let tie = 1.0 + 2f64.powi(-11);
    assert_eq!(f16s(vec1(&[tie, tie + 1e-15, tie + 2f64.powi(-10)])), [1.0, 1.0009765625, 1.001953125]);
    assert_eq!(f16s(vec1(&[tie as f32])), [1.0]);
    let tie = 1.0 + 2f64.powi(-8);
    assert_eq!(bf16s(vec1(&[tie, tie + 1e-15, -tie - 1e-15])), [1.0, 1.0078125, -1.0078125]);
    assert_eq!(Literal::from_f64(DType::Bf16, tie + 1e-15).as_f64(), 1.0078125);
    assert_eq!(
        f16s(vec1(&[65519.0, 65520.0, 1e300, -INF, 2f64.powi(-25), 1e-300])),
        [65504.0, INF, INF, -INF, 0.0, 0.0]
    );
    assert!(f16s(vec1(&[NAN]))[0].is_nan());
    // Integers too large for f64 to hold: 2^62 + 2^54 is a tie of bf16.
    let tie = (1i64 << 62) + (1 << 54);
    let up = 2f64.powi(62) + 2f64.powi(55);
    assert_eq!(bf16s(vec1(&[tie, tie + 1, -tie - 1])), [2f64.powi(62), up, -up]);
    assert_eq!(bf16s(vec1(&[(1u64 << 62) + (1 << 54) + 1])), [up]);
    assert_eq!(bf16s(vec1(&[257i32, 258, 259])), [256.0, 258.0, 260.0]);
    assert_eq!(f16s(vec1(&[2049u32, 2051])), [2048.0, 2052.0]);
    assert_eq!(to(DType::F32, vec1(&[16777217i32])).as_slice::<f32>().unwrap(), [16777216.0]);
    assert_eq!(to(DType::F32, vec1(&[1e300, 0.1])).as_slice::<f32>().unwrap(), [f32::INFINITY, 0.1]);
}

#[test]
fn bitcasts_keep_bits_little_end_first() {
    let cast = |dtype, x: &Array| run(BitcastConvertType { dtype }, std::slice::from_ref(x));
    let one = vec1(&[1.0f32, -0.0]);
    assert_eq!(cast(DType::U32, &one).as_slice::<u32>().unwrap(), [0x3F80_0000, 0x8000_0000]);
    let bytes = cast(DType::U8, &one);
    assert_eq!((bytes.shape(), bytes.as_slice::<u8>().unwrap()), (&[2, 4][..], &[0, 0, 0x80, 0x3F, 0, 0, 0, 0x80][..]));
    assert_eq!(cast(DType::F32, &bytes).as_slice::<f32>().unwrap(), [1.0, -0.0]);
    assert_eq!(cast(DType::F32, &bytes).shape(), [2]);
    let numeric = DType::ALL.into_iter().filter(|&d| d != DType::Bool);
    for from in numeric.clone() {
        for dtype in numeric.clone().filter(|d| d.size() <= from.size()) {
            let x = Array::full(Literal::from_bits(from, 0x0123_4567_89AB_CDEF), [3, 2]);
            let parts = cast(dtype, &x);
            assert_eq!(parts.data().get(0), Some(Literal::from_bits(dtype, 0x0123_4567_89AB_CDEF)), "{from} {dtype}");
            let back = cast(from, &parts);
            assert_eq!((back.shape(), back.data().get(5)), (x.shape(), x.data().get(5)), "{from} {dtype}");
        }
    }
    let flags = vec1(&[true, false]);
    assert_eq!(cast(DType::Bool, &flags).as_slice::<bool>().unwrap(), [true, false]);
    assert_eq!(
        error(BitcastConvertType { dtype: DType::U8 }, &[flags]),
        "bitcast_convert_type: bool[2] and u8 do not have the same bits: a bool has no defined ones"
    );
    assert_eq!(
        error(BitcastConvertType { dtype: DType::F32 }, &[vec1(&[1u8, 2, 3])]),
        "bitcast_convert_type: u8[3] to f32 needs a last dimension of size 4"
    );
    assert_eq!(cast(DType::U8, &vec1::<f16>(&[])).shape(), [0, 2]);
}

#[test]
fn reduced_precision() {
    let reduce = |exponent_bits, mantissa_bits, x: &Array| {
        run(ReducePrecision { exponent_bits, mantissa_bits }, std::slice::from_ref(x))
    };
    let x = vec1(&[0.1f32, 65519.0, 65520.0, 1e-5, -1e-8, f32::INFINITY, f32::NAN, -0.0]);
    // To f16: 1e-5 would be subnormal there.
    let got = reduce(5, 10, &x);
    assert_same(&got, DType::F32, &[f16::from_f32(0.1).to_f64(), 65504.0, INF, 0.0, -0.0, INF, NAN, -0.0]);
    // To bf16: the exponent stays, and so do subnormals.
    let x = vec1(&[0.1f32, f32::MAX, -f32::MAX, f32::from_bits(0x0001_8000), f32::from_bits(0x0002_8001)]);
    let got = reduce(8, 7, &x);
    let subnormals = [f32::from_bits(0x0002_0000) as f64, f32::from_bits(0x0003_0000) as f64];
    assert_same(&got, DType::F32, &[bf16::from_f32(0.1).to_f64(), INF, -INF, subnormals[0], subnormals[1]]);
    // To its own format or a larger one: the same bits.
    for dtype in FLOATS {
        let x = cast(dtype, &[1.5, -0.0, INF, NAN, -2.0]);
        let (exponent, mantissa) = dtype.float_format().unwrap();
        assert_same(&reduce(exponent, mantissa, &x), dtype, &numbers(&x));
        assert_same(&reduce(11, 52, &x), dtype, &numbers(&x));
        // Ties to even with one bit of mantissa.
        let x = cast(dtype, &[1.25, 1.75, -1.25, 2.5, 3.5]);
        assert_same(&reduce(11, 1, &x), dtype, &[1.0, 2.0, -1.0, 2.0, 4.0]);
        // Without a mantissa there is no NaN.
        let x = cast(dtype, &[1.25, 1.5, NAN, -INF]);
        assert_same(&reduce(11, 0, &x).reshaped([4]).unwrap(), dtype, &[1.0, 2.0, INF, -INF]);
        // One bit of exponent holds neither 1 nor anything smaller, and 2 is infinite.
        let x = cast(dtype, &[1.0, 1.5, -2.0, 0.0]);
        assert_same(&reduce(1, 52, &x), dtype, &[0.0, 0.0, -INF, 0.0]);
    }
    assert_eq!(
        error(ReducePrecision { exponent_bits: 0, mantissa_bits: 3 }, &[x]),
        "reduce_precision: a format for f32[5] has at least one bit of exponent"
    );
}
