//! Vectors of numbers: the few operations that the innermost loop of a product needs.
//!
//! This is the one place of the crate with instructions written out. A tile of sums has to stay in registers, and LLVM keeps
//! an array there only where it sees it as values: a tile of 12 by 32 floats in plain loops goes to memory in each step, which
//! is seventeen times slower.

/// Numbers that products are summed in.
pub(super) trait Number: Copy + Send + Sync + Default + 'static {
    /// `sum + a * b`, fused where every CPU of the architecture can.
    fn multiply_add(self, a: Self, b: Self) -> Self;

    /// `self + other`.
    fn plus(self, other: Self) -> Self;
}

macro_rules! real {
    ($($type:ident)*) => { $(
        impl Number for $type {
            #[inline(always)]
            fn multiply_add(self, a: Self, b: Self) -> Self {
                if cfg!(target_arch = "aarch64") { a.mul_add(b, self) } else { self + a * b }
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
        }
    )* };
}

real! { f32 f64 }

impl Number for i64 {
    #[inline(always)]
    fn multiply_add(self, a: Self, b: Self) -> Self {
        self.wrapping_add(a.wrapping_mul(b))
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// A few numbers side by side.
///
/// # Safety
/// The functions may be called where the CPU has the instructions of the type. Pointers that are read or written are valid
/// for [`LANES`](Vector::LANES) numbers, and for one in [`splat`](Vector::splat); they need only the alignment of a number.
pub(super) unsafe trait Vector: Copy {
    /// One of them.
    type Number: Number;
    /// How many they are.
    const LANES: usize;
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const Self::Number) -> Self;
    unsafe fn splat(from: *const Self::Number) -> Self;
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn store(self, to: *mut Self::Number);
    /// Asks for the line of the cache at an address, which may be any.
    #[inline(always)]
    fn prefetch(_: *const Self::Number) {}
}

/// An array, for all CPUs: LLVM makes vectors of it where it can.
#[derive(Clone, Copy)]
pub(super) struct Plain<T, const N: usize>([T; N]);

// SAFETY: the functions do what their names say, by way of references to `N` numbers, which the caller promises.
unsafe impl<T: Number, const N: usize> Vector for Plain<T, N> {
    type Number = T;
    const LANES: usize = N;
    #[inline(always)]
    unsafe fn zero() -> Self {
        Plain([T::default(); N])
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: promised by the caller.
        Plain(unsafe { from.cast::<[T; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn splat(from: *const T) -> Self {
        // SAFETY: promised by the caller.
        Plain([unsafe { from.read() }; N])
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].multiply_add(a.0[i], b.0[i])))
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].plus(other.0[i])))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: promised by the caller.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Vector;

    macro_rules! vector {
        ($($vector:ident $number:ident $lanes:literal $zero:ident $load:ident $splat:ident $fma:ident $add:ident $store:ident;)*) => { $(
            // SAFETY: the functions do what their names say.
            unsafe impl Vector for $vector {
                type Number = $number;
                const LANES: usize = $lanes;
                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: the caller promises the instructions, here and below.
                    unsafe { $zero() }
                }
                #[inline(always)]
                unsafe fn load(from: *const $number) -> Self {
                    // SAFETY: the caller promises the elements, here and below.
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn splat(from: *const $number) -> Self {
                    // SAFETY: as above.
                    unsafe { $splat(from.read()) }
                }
                #[inline(always)]
                unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fma(a, b, self) }
                }
                #[inline(always)]
                unsafe fn plus(self, other: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $number) {
                    // SAFETY: as above.
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                fn prefetch(at: *const $number) {
                    // SAFETY: every x86-64 CPU has SSE, and a prefetch of any address does no harm.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
                }
            }
        )* };
    }

    vector! {
        __m256 f32 8 _mm256_setzero_ps _mm256_loadu_ps _mm256_set1_ps _mm256_fmadd_ps _mm256_add_ps _mm256_storeu_ps;
        __m256d f64 4 _mm256_setzero_pd _mm256_loadu_pd _mm256_set1_pd _mm256_fmadd_pd _mm256_add_pd _mm256_storeu_pd;
        __m512 f32 16 _mm512_setzero_ps _mm512_loadu_ps _mm512_set1_ps _mm512_fmadd_ps _mm512_add_ps _mm512_storeu_ps;
        __m512d f64 8 _mm512_setzero_pd _mm512_loadu_pd _mm512_set1_pd _mm512_fmadd_pd _mm512_add_pd _mm512_storeu_pd;
    }
}
