//! Elements as bytes, and their sums.

use std::ops::Range;

use remat_ir::{DType, Data, Element, bf16, f16, with_dtype};

/// An element as it is sent: little endian, with a bool as a byte.
trait Wire: Element {
    /// The type of sums: f64 for floats, rounded to the dtype at the end; a wrapping integer for integers.
    type Sum: Copy;

    fn encode(elements: &[Self], bytes: &mut Vec<u8>);
    fn decode(bytes: &[u8], elements: &mut [Self]);
    fn widened(self) -> Self::Sum;
    fn sum(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn narrowed(sum: Self::Sum, divisor: u32) -> Self;
    fn sums(sums: &mut Sums) -> Option<&mut Vec<Self::Sum>>;
}

/// Sums of elements, in the type of sums.
pub(crate) enum Sums {
    Floats(Vec<f64>),
    Integers(Vec<u64>),
}

impl Sums {
    /// No sums yet, of elements of a dtype.
    pub(crate) fn new(dtype: DType) -> Sums {
        if dtype.is_float() { Sums::Floats(Vec::new()) } else { Sums::Integers(Vec::new()) }
    }

    /// Adds elements received as bytes. The first elements are stored, not added to zeros, which would turn -0 into 0.
    pub(crate) fn add(&mut self, dtype: DType, bytes: &[u8]) {
        with_dtype!(dtype, T => add::<T>(self, bytes));
    }

    /// Writes the sums, divided by this number, to a range of elements.
    pub(crate) fn store(&mut self, divisor: u32, data: &mut Data, range: Range<usize>) {
        with_dtype!(data.dtype(), T => store::<T>(self, divisor, data, range));
    }
}

fn add<T: Wire>(sums: &mut Sums, bytes: &[u8]) {
    let mut elements = vec![T::default(); bytes.len() / size_of::<T>()];
    T::decode(bytes, &mut elements);
    let Some(sums) = T::sums(sums) else { return };
    if sums.is_empty() {
        sums.extend(elements.iter().map(|&x| x.widened()));
    } else {
        sums.iter_mut().zip(&elements).for_each(|(sum, &x)| *sum = T::sum(*sum, x.widened()));
    }
}

fn store<T: Wire>(sums: &mut Sums, divisor: u32, data: &mut Data, range: Range<usize>) {
    if let (Some(sums), Some(elements)) = (T::sums(sums), T::slice_mut(data).and_then(|data| data.get_mut(range))) {
        elements.iter_mut().zip(sums).for_each(|(x, &mut sum)| *x = T::narrowed(sum, divisor));
    }
}

/// Appends a range of elements.
pub(crate) fn encode(data: &Data, range: Range<usize>, bytes: &mut Vec<u8>) {
    fn append<T: Wire>(data: &Data, range: Range<usize>, bytes: &mut Vec<u8>) {
        T::encode(T::slice(data).and_then(|data| data.get(range)).unwrap_or_default(), bytes);
    }
    with_dtype!(data.dtype(), T => append::<T>(data, range, bytes));
}

/// Writes bytes to a range of elements of the same length.
pub(crate) fn decode(bytes: &[u8], data: &mut Data, range: Range<usize>) {
    fn write<T: Wire>(bytes: &[u8], data: &mut Data, range: Range<usize>) {
        T::decode(bytes, T::slice_mut(data).and_then(|data| data.get_mut(range)).unwrap_or_default());
    }
    with_dtype!(data.dtype(), T => write::<T>(bytes, data, range));
}

macro_rules! wire {
    ($($type:ty: $sum:ty, $sums:ident, $to_bytes:expr, $from_bytes:expr, $widened:expr, $plus:expr, $narrowed:expr;)*) => { $(
        impl Wire for $type {
            type Sum = $sum;

            fn encode(elements: &[$type], bytes: &mut Vec<u8>) {
                let start = bytes.len();
                bytes.resize(start + size_of_val(elements), 0);
                let to_bytes: fn($type) -> [u8; size_of::<$type>()] = $to_bytes;
                for (to, &x) in bytes[start..].as_chunks_mut().0.iter_mut().zip(elements) {
                    *to = to_bytes(x);
                }
            }

            fn decode(bytes: &[u8], elements: &mut [$type]) {
                let from_bytes: fn([u8; size_of::<$type>()]) -> $type = $from_bytes;
                for (x, &from) in elements.iter_mut().zip(bytes.as_chunks().0) {
                    *x = from_bytes(from);
                }
            }

            fn widened(self) -> $sum {
                let widened: fn($type) -> $sum = $widened;
                widened(self)
            }

            fn sum(a: $sum, b: $sum) -> $sum {
                let plus: fn($sum, $sum) -> $sum = $plus;
                plus(a, b)
            }

            fn narrowed(sum: $sum, divisor: u32) -> $type {
                let narrowed: fn($sum, u32) -> $type = $narrowed;
                narrowed(sum, divisor)
            }

            fn sums(sums: &mut Sums) -> Option<&mut Vec<$sum>> {
                if let Sums::$sums(sums) = sums { Some(sums) } else { None }
            }
        }
    )* };
}

macro_rules! integers {
    ($($type:ty)*) => {
        wire! { $(
            $type: u64, Integers, <$type>::to_le_bytes, <$type>::from_le_bytes, |x| x as u64, u64::wrapping_add, |sum, _| sum as $type;
        )* }
    };
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

wire! {
    bool: u64, Integers, |x| [u8::from(x)], |[byte]| byte != 0, u64::from, |a, b| a | b, |sum, _| sum != 0;
    f16: f64, Floats, f16::to_le_bytes, f16::from_le_bytes, f64::from, |a, b| a + b, |sum, n| f16::from_f64(sum / f64::from(n));
    bf16: f64, Floats, bf16::to_le_bytes, bf16::from_le_bytes, f64::from, |a, b| a + b, |sum, n| bf16::from_f64(sum / f64::from(n));
    f32: f64, Floats, f32::to_le_bytes, f32::from_le_bytes, f64::from, |a, b| a + b, |sum, n| (sum / f64::from(n)) as f32;
    f64: f64, Floats, f64::to_le_bytes, f64::from_le_bytes, |x| x, |a, b| a + b, |sum, n| sum / f64::from(n);
}
