//! Sort keys: integers in the order of the elements, packed with the position of the element. Sorting them sorts integers, and equal
//! elements keep their order.

use remat_ir::{Element, bf16, f16};

use crate::number::{Number, Scalar};

/// An element type that can be sorted.
pub(crate) trait Key: Element {
    /// A key in the order of the elements. Zeros are equal, and NaNs are equal and last. Elements of at most 32 bits have keys of at most
    /// 32 bits.
    fn key(self) -> u64;
}

macro_rules! keys {
    ($($type:ident, |$x:ident| $key:expr;)*) => { $(
        impl Key for $type {
            #[inline(always)]
            fn key(self) -> u64 {
                let $x = self;
                $key
            }
        }
    )* };
}

keys! {
    bool, |x| x.into();
    i8, |x| (x as u8 ^ (1 << 7)).into();
    i16, |x| (x as u16 ^ (1 << 15)).into();
    i32, |x| (x as u32 ^ (1 << 31)).into();
    i64, |x| x as u64 ^ (1 << 63);
    u8, |x| x.into();
    u16, |x| x.into();
    u32, |x| x.into();
    u64, |x| x;
    f16, |x| x.widen().key() >> 13;
    bf16, |x| x.widen().key() >> 16;
    f32, |x| {
        // Adding zero makes negative zero positive.
        let bits = (x + 0.0).to_bits();
        let key = if bits >> 31 == 1 { !bits } else { bits | (1 << 31) };
        if x.is_nan() { u32::MAX } else { key }.into()
    };
    f64, |x| {
        let bits = (x + 0.0).to_bits();
        let key = if bits >> 63 == 1 { !bits } else { bits | (1 << 63) };
        if x.is_nan() { u64::MAX } else { key }
    };
}

/// A key and the position of its element, as one integer that is ordered by the key first.
pub(crate) trait Packed: Scalar + Ord {
    /// The type of a position.
    type Position: Scalar;
    fn pack(key: u64, position: usize) -> Self;
    /// As [`Packed::pack`], but ordered by descending keys.
    fn pack_descending(key: u64, position: usize) -> Self;
    /// The key that was packed.
    fn unpack_key(self) -> u64;
    /// The key that was packed by [`Packed::pack_descending`].
    fn unpack_descending(self) -> u64;
    fn position(self) -> usize;
    fn narrow(position: usize) -> Self::Position;
    fn widen(position: Self::Position) -> usize;
}

macro_rules! packed {
    ($($packed:ident $half:ident;)*) => { $(
        impl Packed for $packed {
            type Position = $half;

            #[inline(always)]
            fn pack(key: u64, position: usize) -> Self {
                $packed::from(key as $half) << $half::BITS | position as $packed
            }
            #[inline(always)]
            fn pack_descending(key: u64, position: usize) -> Self {
                $packed::from(!(key as $half)) << $half::BITS | position as $packed
            }
            #[inline(always)]
            fn unpack_key(self) -> u64 {
                (self >> $half::BITS) as u64
            }
            #[inline(always)]
            fn unpack_descending(self) -> u64 {
                !((self >> $half::BITS) as $half) as u64
            }
            #[inline(always)]
            fn position(self) -> usize {
                self as $half as usize
            }
            #[inline(always)]
            fn narrow(position: usize) -> $half {
                position as $half
            }
            #[inline(always)]
            fn widen(position: $half) -> usize {
                position as usize
            }
        }
    )* };
}

packed! {
    u64 u32;
    u128 u64;
}

/// Whether the key of an element of this many bytes and a position below `n` fit in a u64. They always fit in a u128.
pub(crate) fn fits_u64(bytes: usize, n: usize) -> bool {
    bytes <= 4 && u32::try_from(n).is_ok()
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use remat_ir::{DType, with_dtype};

    use super::*;
    use crate::test_support::wild;

    #[test]
    fn keys_have_the_order_of_the_elements() {
        for dtype in DType::ALL {
            let x = wild(dtype, &[300], 1);
            with_dtype!(dtype, T => {
                let x = x.as_slice::<T>().expect("the dtype");
                for &a in x {
                    assert!(dtype.size() > 4 || u32::try_from(a.key()).is_ok(), "{a:?}");
                    for &b in x {
                        let expected = match [a, b].map(|x| x.partial_cmp(&x).is_none()) {
                            [false, false] => a.partial_cmp(&b).expect("numbers"),
                            [a_is_nan, b_is_nan] => a_is_nan.cmp(&b_is_nan),
                        };
                        assert_eq!(a.key().cmp(&b.key()), expected, "{a:?} {b:?}");
                        if expected != Ordering::Equal {
                            assert_eq!(u128::pack(a.key(), 7).cmp(&u128::pack(b.key(), 3)), expected);
                            let [x, y] = [(a, 7), (b, 3)].map(|(v, i)| u128::pack_descending(v.key(), i));
                            assert_eq!(x.cmp(&y), expected.reverse());
                        }
                    }
                }
            });
        }
    }

    #[test]
    fn equal_keys_are_ordered_by_position() {
        assert!(u64::pack(5, 1) < u64::pack(5, 2) && u64::pack_descending(5, 1) < u64::pack_descending(5, 2));
        let packed = u64::pack(5, 9);
        assert_eq!((packed.unpack_key(), packed.position()), (5, 9));
    }
}
