//! Vector instructions from plain Rust loops, compiled once per instruction set.
//!
//! [`multiversion!`] takes a function with loops that LLVM can vectorise and compiles it for each [`Level`]. A call selects the version for
//! this CPU, which costs a load and a branch:
//!
//! ```text
//! multiversion! {
//!     /// Adds `a * x` to `y`.
//!     pub(crate) fn scaled_add<T: Real>(a: T, x: &[T], y: &mut [T]) {
//!         for (y, &x) in y.iter_mut().zip(x) {
//!             *y = a.mul_add(x, *y);
//!         }
//!     }
//! }
//! ```
//!
//! If a call is so short that even this counts, the second form returns a function pointer to the version for a level, for reuse:
//!
//! ```text
//! multiversion! {
//!     /// The function that negates `n` elements.
//!     fn negate<T: Real>(level: Level) -> unsafe fn(n: usize, out: *mut T, x: *const T) {
//!         for i in 0..n {
//!             unsafe { out.add(i).write(-x.add(i).read()) }
//!         }
//!     }
//! }
//! let negate = negate::<f32>(Level::best());
//! ```
//!
//! With `where T::IS_COMMON =>` before its body, a function is compiled for all levels only if this constant of the type is true, and
//! otherwise for [`Level::PLAIN`] alone. Each version takes time to build, which rare dtypes are not worth.
//!
//! When writing such a function:
//!
//! - Functions that it calls are compiled for a level only where they are inlined: mark them `#[inline(always)]`. Closures
//!   and iterators are inlined as a rule.
//! - Generic parameters are types with at most one bound.
//! - Rust never contracts `a * b + c`, so that all levels give the same bits. `mul_add` is one instruction at every level
//!   but [`Level::PLAIN`] on x86-64, where it calls a (slow) function with the same result.
//! - LLVM does not reorder floating-point additions: a sum is vectorised only if it is written with several sums side by
//!   side.

// A version is called only if its level proves that the CPU has the instructions.
#![allow(unsafe_code)]

use std::sync::LazyLock;

use crate::isa::{Isa, allows};

/// A set of instructions that this CPU has. Levels are created only for instructions that were detected, so a level proves that functions
/// compiled for it may be called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Level(Instructions);

/// The instruction sets for which functions are compiled. Each includes the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Instructions {
    /// The baseline of the architecture: SSE2 on x86-64, NEON on AArch64.
    Plain,
    /// x86-64-v3: AVX2, FMA, F16C, BMI.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// x86-64-v4: AVX-512 F, BW, CD, DQ, VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The baseline of the architecture.
    pub(crate) const PLAIN: Level = Level(Instructions::Plain);

    /// The best level that this CPU has and the environment allows ([`allows`]).
    #[inline]
    pub(crate) fn best() -> Level {
        static BEST: LazyLock<Level> =
            LazyLock::new(|| Level::all().filter(|level| allows(level.isa())).last().unwrap_or(Level::PLAIN));
        *BEST
    }

    /// The instruction set.
    pub(crate) fn isa(self) -> Isa {
        match self.0 {
            Instructions::Plain => Isa::Baseline,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => Isa::Avx512,
        }
    }

    /// The levels that this CPU has, from plain to best.
    pub(crate) fn all() -> impl Iterator<Item = Level> {
        #[cfg(target_arch = "x86_64")]
        let found = {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            [(avx2, Instructions::Avx2), (avx512, Instructions::Avx512)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let found: [(bool, Instructions); 0] = [];
        let found = found.into_iter().filter_map(|(has, instructions)| has.then_some(Level(instructions)));
        std::iter::once(Level::PLAIN).chain(found)
    }

    /// The instructions.
    #[inline]
    pub(crate) fn instructions(self) -> Instructions {
        self.0
    }

    /// The level with these instructions, by number. Functions compiled for one level know it as a constant.
    ///
    /// # Safety
    /// The CPU has the instructions.
    #[inline(always)]
    pub(crate) unsafe fn numbered(number: u8) -> Level {
        #[cfg(target_arch = "x86_64")]
        match number {
            0 => Level::PLAIN,
            1 => Level(Instructions::Avx2),
            _ => Level(Instructions::Avx512),
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = number;
            Level::PLAIN
        }
    }
}

/// Instantiates a function for a level, whose number is the function's last generic parameter.
macro_rules! with_level_number {
    ($level:expr, $($function:ident)::+::<$($generic:ty),*>) => {
        match $level.instructions() {
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Instructions::Avx512 => $($function)::+::<$($generic,)* 2>,
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Instructions::Avx2 => $($function)::+::<$($generic,)* 1>,
            $crate::simd::Instructions::Plain => $($function)::+::<$($generic,)* 0>,
        }
    };
}

pub(crate) use with_level_number;

/// Compiles a function for each [`Level`]; see the module's documentation.
macro_rules! multiversion {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$($generic:ident $(: $bound:path)?),+>)? ($level:ident: Level)
        -> unsafe fn($($arg:ident: $type:ty),* $(,)?) $(where $is_common:expr =>)?
        $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name $(<$($generic $(: $bound)?),+>)? ($level: $crate::simd::Level) -> unsafe fn($($type),*) {
            // A version may assume about its arguments what the function's documentation requires of callers.
            #[inline(always)]
            unsafe fn plain $(<$($generic $(: $bound)?),+>)? ($($arg: $type),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            unsafe fn avx2 $(<$($generic $(: $bound)?),+>)? ($($arg: $type),*) {
                // SAFETY: the same arguments, and both functions have the same requirements.
                unsafe { plain $(::<$($generic),+>)? ($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
            unsafe fn avx512 $(<$($generic $(: $bound)?),+>)? ($($arg: $type),*) {
                // SAFETY: the same arguments, and both functions have the same requirements.
                unsafe { plain $(::<$($generic),+>)? ($($arg),*) }
            }
            // If this constant condition is false, no other versions are compiled.
            if const { false $(|| !$is_common)? } {
                return plain $(::<$($generic),+>)?;
            }
            match $level.instructions() {
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Instructions::Avx512 => avx512 $(::<$($generic),+>)?,
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Instructions::Avx2 => avx2 $(::<$($generic),+>)?,
                $crate::simd::Instructions::Plain => plain $(::<$($generic),+>)?,
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$($generic:ident $(: $bound:path)?),+>)? ($($arg:ident: $type:ty),* $(,)?)
        $(-> $output:ty)? $(where $is_common:expr =>)?
        $body:block
    ) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        $vis fn $name $(<$($generic $(: $bound)?),+>)? ($($arg: $type),*) $(-> $output)? {
            #[inline(always)]
            fn plain $(<$($generic $(: $bound)?),+>)? ($($arg: $type),*) $(-> $output)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            fn avx2 $(<$($generic $(: $bound)?),+>)? ($($arg: $type),*) $(-> $output)? {
                plain $(::<$($generic),+>)? ($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
            fn avx512 $(<$($generic $(: $bound)?),+>)? ($($arg: $type),*) $(-> $output)? {
                plain $(::<$($generic),+>)? ($($arg),*)
            }
            // If this constant condition is false, no other versions are compiled.
            if const { false $(|| !$is_common)? } {
                return plain $(::<$($generic),+>)? ($($arg),*);
            }
            match $crate::simd::Level::best().instructions() {
                // SAFETY: a level exists only if the CPU has its instructions, and these are the ones of this level.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Instructions::Avx512 => unsafe { avx512 $(::<$($generic),+>)? ($($arg),*) },
                // SAFETY: a level exists only if the CPU has its instructions, and these are the ones of this level.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Instructions::Avx2 => unsafe { avx2 $(::<$($generic),+>)? ($($arg),*) },
                $crate::simd::Instructions::Plain => plain $(::<$($generic),+>)? ($($arg),*),
            }
        }
    };
}

pub(crate) use multiversion;

/// Bytes of a cache line.
pub(crate) const CACHE_LINE: usize = 64;

/// As [`prefetch`], into the second-level cache.
#[inline(always)]
pub(crate) fn prefetch_far(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing, and every CPU of this architecture has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = address;
}

/// Prefetches the cache line of an address into the first-level cache; the address may be invalid. Does nothing on other CPUs.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing, and every CPU of this architecture has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    multiversion! {
        /// Adds `a * x` to `y`.
        fn scaled_add<T: num_like::Number>(a: T, x: &[T], y: &mut [T]) {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = *y + a * x;
            }
        }
    }

    multiversion! {
        /// The first of the elements.
        fn first(x: &[u8]) -> Option<&u8> {
            x.first()
        }
    }

    multiversion! {
        /// The function that negates `n` floats.
        fn negate(level: Level) -> unsafe fn(n: usize, out: *mut f32, x: *const f32) {
            for i in 0..n {
                // SAFETY: the caller passes pointers to `n` floats.
                unsafe { out.add(i).write(-x.add(i).read()) }
            }
        }
    }

    mod num_like {
        use std::ops::{Add, Mul};
        pub(super) trait Number: Copy + Add<Output = Self> + Mul<Output = Self> {}
        impl Number for f32 {}
        impl Number for i64 {}
    }

    #[test]
    fn a_function_is_called_at_the_best_level() {
        let mut y: Vec<f32> = (0..37).map(|i| i as f32).collect();
        scaled_add(2.0, &[1.0; 37], &mut y);
        assert!(y.iter().enumerate().all(|(i, &y)| y == i as f32 + 2.0));
        let mut y = [1i64, 2];
        scaled_add(3, &[10, 20], &mut y);
        assert_eq!(y, [31, 62]);
        assert_eq!(first(&[7, 8]), Some(&7));
        assert_eq!(first(&[]), None);
    }

    #[test]
    fn a_version_can_be_had_for_each_level() {
        for level in Level::all() {
            let (x, mut out) = ([1.0f32, -2.0, f32::INFINITY], [0.0f32; 3]);
            // SAFETY: both pointers are to three floats.
            unsafe { negate(level)(3, out.as_mut_ptr(), x.as_ptr()) };
            assert_eq!(out, [-1.0, 2.0, f32::NEG_INFINITY], "{level:?}");
        }
    }

    #[test]
    fn the_best_level_is_the_last_that_is_allowed() {
        assert_eq!(Level::all().filter(|level| allows(level.isa())).last(), Some(Level::best()));
        assert!(Level::all().is_sorted());
    }
}
