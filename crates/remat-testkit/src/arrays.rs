//! Arrays of any dtype for tests, and comparisons of them.

use remat_ir::{Array, Aval, DType, Element, Literal, with_dtype};

/// A stream of pseudo-random numbers, the same in every run (Vigna, splitmix64).
pub struct Stream(u64);

impl Stream {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Stream {
        Stream(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() >> 11) as usize % bound
    }
}

/// Ordinary values: floats from -2 to 2, integers from -8 to 8 (unsigned from 0 to 16), bools.
pub fn plain(dtype: DType, shape: &[usize], seed: u64) -> Array {
    filled(dtype, shape, seed, |stream| {
        let step = stream.below(4097) as f64;
        match dtype {
            DType::Bool => Literal::from_bool(step > 2048.0),
            _ if dtype.is_float() => Literal::from_f64(dtype, step / 1024.0 - 2.0),
            _ => Literal::from_i128(dtype, (step / 256.0) as i128 - if dtype.is_signed() { 8 } else { 0 }),
        }
    })
}

/// Values of every kind: a few small ones, often repeated, so that there are ties; NaNs, infinities, zeros of both signs, the ends of the
/// range, and any bits.
pub fn wild(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let special = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, f64::MAX, f64::MIN, 1e-40];
    filled(dtype, shape, seed, |stream| match stream.below(8) {
        0 => Literal::from_f64(dtype, special[stream.below(special.len())]),
        1 | 2 => match stream.bits() {
            bits if dtype == DType::Bool => Literal::from_bool(bits & 1 == 1),
            bits => Literal::from_bits(dtype, bits),
        },
        _ => Literal::from_f64(dtype, stream.below(9) as f64 - 4.0),
    })
}

/// An array whose elements are drawn by `value`, one after the other.
pub fn filled(dtype: DType, shape: &[usize], seed: u64, value: impl Fn(&mut Stream) -> Literal) -> Array {
    let mut stream = Stream::new(seed);
    let aval = Aval::new(dtype, shape.iter().copied());
    let data = with_dtype!(dtype, T => {
        T::wrap((0..aval.size()).map(|_| T::from_literal(value(&mut stream)).expect("the dtype")).collect())
    });
    Array::new(aval, data).expect("as many elements as the shape has")
}

/// Fails unless the avals are equal and the elements have the same bits, where all NaNs are equal.
///
/// # Panics
/// If they differ; the message begins with the first element that does, and ends with `what`.
#[track_caller]
pub fn assert_same(got: &Array, expected: &Array, what: &str) {
    assert_each(got, expected, what, |a, b| a == b || (a.as_f64().is_nan() && b.as_f64().is_nan()));
}

/// Fails unless the avals are equal and every element is within `tolerance` times the larger of its size and `scale`.
/// Elements that are NaN or infinite must be equal.
///
/// # Panics
/// If they differ; the message begins with the first element that does, and ends with `what`.
#[track_caller]
pub fn assert_close(got: &Array, expected: &Array, tolerance: f64, scale: f64, what: &str) {
    assert_each(got, expected, what, |a, b| {
        let (a, b) = (a.as_f64(), b.as_f64());
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(scale)
    });
}

#[track_caller]
fn assert_each(got: &Array, expected: &Array, what: &str, equal: impl Fn(Literal, Literal) -> bool) {
    assert_eq!(got.aval(), expected.aval(), "{what}");
    for i in 0..expected.data().len() {
        let (a, b) = (got.data().get(i).expect("the size"), expected.data().get(i).expect("the size"));
        assert!(equal(a, b), "element {i} is {a} and should be {b}: {what}");
    }
}
