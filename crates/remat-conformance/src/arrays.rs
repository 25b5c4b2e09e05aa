//! Arrays as arguments of programs.

use remat::Tensor;
use remat_ir::{Array, Aval, DType, Element, Literal, with_dtype};

/// The elements.
pub(crate) fn literals(x: &Array) -> Vec<Literal> {
    (0..x.data().len()).filter_map(|i| x.data().get(i)).collect()
}

/// An array of these elements, in the memory space of `like`.
pub(crate) fn build(dtype: DType, like: &Array, literals: Vec<Literal>) -> Array {
    let shape = like.shape().iter().copied();
    let array = with_dtype!(dtype, T => {
        Array::from_vec(literals.into_iter().map(|l| T::from_literal(l).expect("the dtype is T's")).collect(), shape)
    });
    array.expect("there are as many elements as before").in_memory(like.aval().memory)
}

/// The same numbers in another dtype, as far as it can represent them.
pub(crate) fn convert(x: &Array, dtype: DType) -> Array {
    let convert = |l: Literal| match l.as_i128() {
        Some(value) if !dtype.is_float() => Literal::from_i128(dtype, value),
        _ => Literal::from_f64(dtype, l.as_f64()),
    };
    build(dtype, x, literals(x).into_iter().map(convert).collect())
}

/// Replaces every second element by numbers that are easy to get wrong: with `huge` also huge ones, whose sums depend on the order, and
/// with `subnormal` also subnormal ones, which some engines replace by zeros.
pub(crate) fn with_special_numbers(x: &Array, huge: bool, subnormal: bool) -> Array {
    let dtype = x.dtype();
    let bits = |bits: u64| Literal::from_bits(dtype, bits);
    let special: Vec<Literal> = match dtype.float_format() {
        Some((exponent, mantissa)) => {
            let (infinity, sign) = (((1u64 << exponent) - 1) << mantissa, 1u64 << (exponent + mantissa));
            let mut special = vec![infinity, sign | infinity, sign, infinity | 1 << (mantissa - 1), 0];
            if subnormal {
                special.extend([1, sign | 3]);
            }
            if huge {
                // The largest, the smallest normal one, 1 and its neighbour.
                let one = (infinity >> 1) & infinity;
                special.extend([infinity - 1, sign | (infinity - 1), 1 << mantissa, one, one + 1]);
            }
            special.into_iter().map(bits).collect()
        }
        None if dtype == DType::Bool => vec![Literal::from_bool(true)],
        None => {
            let width = 8 * dtype.size();
            let all = u64::MAX >> (64 - width);
            [0, all, all >> 1, (all >> 1) + 1, 1].map(bits).into()
        }
    };
    let mut special = special.into_iter().cycle();
    let replace = |(i, l): (usize, Literal)| if i % 2 == 0 { special.next().unwrap_or(l) } else { l };
    build(dtype, x, literals(x).into_iter().enumerate().map(replace).collect())
}

/// An arbitrary array whose elements every float dtype represents exactly.
pub(crate) fn vector(aval: &Aval, seed: usize) -> Array {
    let value = |i: usize| Literal::from_f64(aval.dtype, ((i * 7 + seed * 5) % 17) as f64 / 8.0 - 0.9375);
    let like = Array::full(Literal::from_f64(aval.dtype, 0.0), aval.shape.iter().copied()).in_memory(aval.memory);
    build(aval.dtype, &like, (0..aval.size()).map(value).collect())
}

/// The elements of a tensor.
pub(crate) fn array(x: &Tensor) -> Array {
    let aval = x.aval().expect("the tensor did not fail").clone();
    let array = with_dtype!(aval.dtype, T => {
        Array::from_vec(x.to_vec::<T>().expect("the tensor is concrete"), aval.shape.iter().copied())
    });
    array.expect("a tensor has as many elements as its shape").in_memory(aval.memory)
}
