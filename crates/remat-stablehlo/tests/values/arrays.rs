//! Arguments as the script computes them, and what JAX computed.

use remat_ir::{Array, Aval, DType, Data, Element, bf16, f16, with_dtype};

/// The argument of this number, as the script computes it.
pub(crate) fn argument(number: usize, aval: &Aval) -> Array {
    let spread = |i: usize| ((i * 7919 + (number + 1) * 104729) % 1009) as i64;
    let float = |i: usize| (spread(i) - 504) as f32 / 512.0;
    let size = aval.size();
    let data = match aval.dtype {
        DType::Bool => Data::Bool((0..size).map(|i| spread(i) % 2 == 1).collect()),
        DType::F16 => Data::F16((0..size).map(|i| f16::from_f32(float(i))).collect()),
        DType::Bf16 => Data::Bf16((0..size).map(|i| bf16::from_f32(float(i))).collect()),
        DType::F32 => Data::F32((0..size).map(float).collect()),
        DType::F64 => Data::F64((0..size).map(|i| f64::from(float(i))).collect()),
        DType::I32 => Data::I32((0..size).map(|i| (spread(i) % 5) as i32).collect()),
        DType::U32 => Data::U32((0..size).map(|i| (spread(i) % 5) as u32).collect()),
        DType::I64 => Data::I64((0..size).map(|i| spread(i) % 5).collect()),
        other => panic!("no program takes {}", other.name()),
    };
    Array::new(aval.clone(), data).unwrap()
}

/// The results in a file of values.
pub(crate) fn results(text: &str) -> Vec<Array> {
    text.lines().map(result).collect()
}

fn result(line: &str) -> Array {
    let (dtype, rest) = line.split_once('[').unwrap();
    let (shape, hex) = rest.split_once("] ").unwrap();
    let shape = shape.split(',').filter(|size| !size.is_empty()).map(|size| size.parse().unwrap());
    let aval = Aval::new(DType::from_name(dtype).unwrap(), shape);
    let digit = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len() / 2).map(digit).collect();
    let data = with_dtype!(aval.dtype, T => {
        let element = |chunk: &[u8]| {
            let mut bits = [0; 8];
            bits[..chunk.len()].copy_from_slice(chunk);
            T::from_literal(remat_ir::Literal::from_bits(T::DTYPE, u64::from_le_bytes(bits))).unwrap()
        };
        T::wrap(bytes.chunks(aval.dtype.size()).map(element).collect())
    });
    Array::new(aval, data).unwrap()
}

/// The largest difference of two arrays of one aval, by the largest element that is expected; both may have the same infinities and NaNs.
/// Integers and bools differ by 1 or not at all.
pub(crate) fn difference(got: &Array, expected: &Array) -> f64 {
    assert_eq!(got.aval(), expected.aval());
    let value = |array: &Array, i: usize| array.data().get(i).unwrap().as_f64();
    let is_float = got.dtype().is_float();
    let mut difference: f64 = 0.0;
    for i in 0..got.data().len() {
        let (g, e) = (value(got, i), value(expected, i));
        if !is_float {
            difference = difference.max(if g == e { 0.0 } else { 1.0 });
        } else if e.is_finite() {
            difference = if g.is_finite() { difference.max((g - e).abs()) } else { f64::INFINITY };
        } else if !(g == e || (g.is_nan() && e.is_nan())) {
            return f64::INFINITY;
        }
    }
    if is_float { difference / largest(expected) } else { difference }
}

/// The largest finite element by size.
pub(crate) fn largest(array: &Array) -> f64 {
    let sizes = (0..array.data().len()).map(|i| array.data().get(i).unwrap().as_f64().abs());
    sizes.filter(|size| size.is_finite()).fold(f64::MIN_POSITIVE, f64::max)
}
