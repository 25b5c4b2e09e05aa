//! The numbers in which products with few rows are computed.

use remat_ir::{DType, Element, bf16, f16};

use super::horizontal_sums;
use super::lanes::{LANES, Loops};
use crate::base::product::Accumulator;
use crate::kernels::matmul::widen_f16;
use crate::number::Number;

/// An element that is converted to a number in registers.
pub(in crate::kernels::matmul) trait Load: Element {
    type Number: Factor;

    fn load(self) -> Self::Number;

    /// Reads `N` neighbours, with vectors of `VECTOR` bytes.
    ///
    /// # Safety
    /// They are valid for reading, and need not be aligned. The function into which this is inlined is compiled for such vectors.
    #[inline(always)]
    unsafe fn load_all<const N: usize, const VECTOR: usize>(from: *const Self) -> [Self::Number; N] {
        // SAFETY: as the caller promises.
        let elements = unsafe { from.cast::<[Self; N]>().read() };
        let mut numbers = [Self::Number::default(); N];
        for i in 0..N {
            numbers[i] = elements[i].load();
        }
        numbers
    }
}

macro_rules! load {
    ($($type:ty => $number:ty, $load:expr;)*) => { $(
        impl Load for $type {
            type Number = $number;

            #[inline(always)]
            fn load(self) -> $number {
                $load(self)
            }
        }
    )* };
}

load! {
    f32 => f32, |x| x;
    f64 => f64, |x| x;
    i64 => i64, |x| x;
    bf16 => f32, Number::widen;
    i8 => f32, f32::from;
    u8 => f32, f32::from;
}

impl Load for f16 {
    type Number = f32;

    #[inline(always)]
    fn load(self) -> f32 {
        self.widen()
    }

    #[inline(always)]
    unsafe fn load_all<const N: usize, const VECTOR: usize>(from: *const f16) -> [f32; N] {
        // SAFETY: as the caller promises.
        unsafe { widen_f16::widened::<N, VECTOR>(from) }
    }
}

/// The type as which elements are multiplied.
pub(in crate::kernels::matmul) trait Factor: Accumulator + Load<Number = Self> {
    /// The loops over a matrix of a dtype, if its elements are converted in registers.
    fn loops(dtype: DType) -> Option<Loops<Self>>;

    /// `self + a * b`, rounded once if `FUSED`, which is slow on a CPU without an instruction for it.
    fn multiply_add_at<const FUSED: bool>(self, a: Self, b: Self) -> Self;

    /// The sums of the lanes of 16 sums, with vectors of `VECTOR` bytes: the second half of the lanes is added to the first, again and
    /// again. The function into which this is inlined is compiled for such vectors.
    #[inline(always)]
    fn add_up<const VECTOR: usize>(sums: &[[Self; LANES]; LANES]) -> [Self; LANES] {
        std::array::from_fn(|i| add_lanes(&sums[i]))
    }
}

/// The sum of the lanes of a sum.
#[inline(always)]
pub(super) fn add_lanes<F: Factor>(lanes: &[F; LANES]) -> F {
    // In registers: through memory each sum would wait for the one before.
    let eight: [F; 8] = std::array::from_fn(|i| lanes[i].plus(lanes[i + 8]));
    let four: [F; 4] = std::array::from_fn(|i| eight[i].plus(eight[i + 4]));
    let two: [F; 2] = std::array::from_fn(|i| four[i].plus(four[i + 2]));
    two[0].plus(two[1])
}

macro_rules! float {
    ($type:ident, $loops:expr $(, $add_up:ident)?) => {
        impl Factor for $type {
            fn loops(dtype: DType) -> Option<Loops<$type>> {
                $loops(dtype)
            }

            #[inline(always)]
            fn multiply_add_at<const FUSED: bool>(self, a: $type, b: $type) -> $type {
                if FUSED { a.mul_add(b, self) } else { self.multiply_add(a, b) }
            }

            $(
                #[inline(always)]
                fn add_up<const VECTOR: usize>(sums: &[[$type; LANES]; LANES]) -> [$type; LANES] {
                    horizontal_sums::$add_up::<VECTOR>(sums)
                }
            )?
        }
    };
}

float!(f32, Loops::f32, floats);
float!(f64, |dtype| (dtype == DType::F64).then(Loops::of::<f64>));

impl Factor for i64 {
    fn loops(dtype: DType) -> Option<Loops<i64>> {
        (dtype == DType::I64).then(Loops::of::<i64>)
    }

    #[inline(always)]
    fn multiply_add_at<const FUSED: bool>(self, a: i64, b: i64) -> i64 {
        self.multiply_add(a, b)
    }
}

/// The type in which products are summed. The sums of a chunk have the type of the factors, and are then added to a sum of this type.
pub(in crate::kernels::matmul) trait Sum<F>: Accumulator {
    /// Most products that are summed as factors before they are added to such a sum.
    const CHUNK: usize;

    fn add(self, sum: F) -> Self;
}

impl<A: Accumulator> Sum<A> for A {
    const CHUNK: usize = usize::MAX;

    #[inline(always)]
    fn add(self, sum: A) -> A {
        self.plus(sum)
    }
}

/// Products of integers of 8 bits. Their sum is exact as an f32, since 256 times the square of 255 is less than 2^24.
impl Sum<f32> for i64 {
    const CHUNK: usize = 256;

    #[inline(always)]
    fn add(self, sum: f32) -> i64 {
        self.wrapping_add(sum as i64)
    }
}
