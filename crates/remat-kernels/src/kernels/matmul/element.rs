//! Reads elements of any dtype as numbers of the type in which products are summed, and writes sums as elements.

// Elements are bytes with a dtype here, and are converted by functions of tiles, which take pointers.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use remat_ir::{ConvertElementType, DType, Prim, bf16};

use super::widen_f16;
use crate::base::product::Accumulator;
use crate::interface::Source;
use crate::interface::with_word;
use crate::simd::multiversion;
use crate::tile::{self, StridedFn, TileFn};

/// Elements that are converted at a time, through memory of this many numbers of 8 bytes.
const CHUNK: usize = 256;

/// Memory for a chunk of elements of any dtype.
type Chunk = MaybeUninit<[u64; CHUNK]>;

/// The type in which products are summed, as in the evaluator: i64 (modulo 2^64) for results that are integers or bools; f32 for f16, bf16
/// and f32, which is exact for the products of f16 and bf16; f64 otherwise.
pub(in super::super) fn accumulator(from: DType, to: DType) -> DType {
    match (from, to) {
        (_, to) if !to.is_float() => DType::I64,
        (from, to) if !from.is_float() || from == DType::F64 || to == DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// How elements of a dtype are converted to numbers to sum.
pub(in super::super) struct Reader<A> {
    dtype: DType,
    gather: StridedFn,
    load: Option<TileFn>,
    convert: Option<TileFn>,
    number: PhantomData<A>,
}

impl<A: Accumulator> Reader<A> {
    pub(in super::super) fn new(dtype: DType) -> Reader<A> {
        let convert = ConvertElementType { dtype: A::DTYPE };
        let needed = tile::register_type(dtype) != A::DTYPE;
        Reader {
            dtype,
            gather: tile::strided(dtype.size()),
            load: widen_f16::load(dtype),
            convert: needed.then(|| tile::elementwise(&Prim::from(convert), &[dtype])).flatten(),
            number: PhantomData,
        }
    }

    /// The dtype of the elements.
    pub(in super::super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The elements of an operand of this dtype.
    pub(in super::super) fn of<'a>(&'a self, source: Source<'a>) -> Elements<'a, A> {
        if self.dtype == A::DTYPE {
            return Elements::Numbers(source.slice());
        }
        let len = with_word!(self.dtype, W => source.words::<W>().len());
        Elements::Other { source, len, reader: self }
    }
}

/// The elements of an operand, to be read as numbers.
#[derive(Clone, Copy)]
pub(in super::super) enum Elements<'a, A> {
    /// Elements of this type already.
    Numbers(&'a [A]),
    /// Elements to convert.
    Other { source: Source<'a>, len: usize, reader: &'a Reader<A> },
}

impl<A: Accumulator> Elements<'_, A> {
    /// The elements, if they need no conversion.
    pub(in super::super) fn numbers(&self) -> Option<&[A]> {
        match self {
            Elements::Numbers(numbers) => Some(numbers),
            Elements::Other { .. } => None,
        }
    }

    /// The first element, the number of elements, and the bytes of each.
    pub(in super::super) fn bytes(&self) -> (*const u8, usize, usize) {
        match self {
            Elements::Numbers(numbers) => (numbers.as_ptr().cast(), numbers.len(), size_of::<A>()),
            Elements::Other { source, len, reader } => (source.as_ptr(), *len, reader.dtype.size()),
        }
    }

    /// The elements, if they are bf16 and the numbers are real.
    pub(in super::super) fn bf16(&self) -> Option<&[bf16]> {
        match self {
            Elements::Other { source, reader, .. } if reader.dtype == DType::Bf16 && A::DTYPE.is_float() => {
                Some(source.slice())
            }
            _ => None,
        }
    }

    /// Reads `to.len()` elements that are `stride` apart, the first at `start`.
    #[inline]
    pub(in super::super) fn read(&self, start: isize, stride: isize, to: &mut [A]) {
        match *self {
            Elements::Numbers(from) if stride == 1 => to.copy_from_slice(&from[start as usize..][..to.len()]),
            Elements::Numbers(from) => {
                for (i, to) in to.iter_mut().enumerate() {
                    *to = from[(start + i as isize * stride) as usize];
                }
            }
            Elements::Other { source, len, reader } => match self.bf16() {
                Some(from) if stride == 1 => widen(&from[start as usize..][..to.len()], to),
                Some(from) if stride == -1 => widen_backwards(&from[..=start as usize], to),
                _ => reader.convert(source, len, start, stride, to),
            },
        }
    }
}

multiversion! {
    /// Widens neighbours. Segments are often so short that functions of tiles, which copy the rest that does not fill a vector, would take
    /// most of the time.
    fn widen<A: Accumulator>(from: &[bf16], to: &mut [A]) {
        for (to, &x) in to.iter_mut().zip(from) {
            *to = A::from_bf16(x);
        }
    }
}

multiversion! {
    /// As [`widen`], from the last element to the first.
    fn widen_backwards<A: Accumulator>(from: &[bf16], to: &mut [A]) {
        let from = &from[from.len() - to.len()..];
        for (to, &x) in to.iter_mut().zip(from.iter().rev()) {
            *to = A::from_bf16(x);
        }
    }
}

impl<A: Accumulator> Reader<A> {
    /// Reads and converts `to.len()` of the `len` elements of an operand, which are `stride` apart, the first at `start`.
    fn convert(&self, source: Source<'_>, len: usize, start: isize, stride: isize, to: &mut [A]) {
        if to.is_empty() {
            return;
        }
        let last = start + (to.len() as isize - 1) * stride;
        assert!(start >= 0 && last >= 0 && (start.max(last) as usize) < len);
        let from = |i: usize| {
            let at = (start + i as isize * stride) as usize;
            // SAFETY: the element is in the operand, since the first and the last element are (checked).
            unsafe { source.as_ptr().add(at * self.dtype.size()) }
        };
        for (i, to) in to.chunks_mut(CHUNK).enumerate() {
            let (mut gathered, mut loaded) = (Chunk::uninit(), Chunk::uninit());
            let (n, to, mut at) = (to.len(), to.as_mut_ptr().cast(), from(i * CHUNK));
            // SAFETY: the elements that are read are in the operand, of the dtype of the functions, or in a chunk; those that are written
            // are in `to` or in a chunk, which fits this many elements of any dtype.
            unsafe {
                if stride != 1 {
                    (self.gather)(n, gathered.as_mut_ptr().cast(), at, stride);
                    at = gathered.as_ptr().cast();
                }
                match (self.load, self.convert) {
                    (Some(load), Some(convert)) => {
                        load(n, loaded.as_mut_ptr().cast(), &[at]);
                        convert(n, to, &[loaded.as_ptr().cast()]);
                    }
                    (Some(only), None) | (None, Some(only)) => only(n, to, &[at]),
                    (None, None) => to.copy_from_nonoverlapping(at, n * size_of::<A>()),
                }
            }
        }
    }
}

/// How sums are converted to elements of a dtype: rounded once.
pub(in super::super) struct Writer<A> {
    pub(in super::super) dtype: DType,
    /// The conversions of a sum, one after the other.
    converts: [Option<TileFn>; 2],
    store: Option<TileFn>,
    number: PhantomData<A>,
}

impl<A: Accumulator> Writer<A> {
    pub(in super::super) fn new(dtype: DType) -> Writer<A> {
        Writer::through([A::DTYPE, A::DTYPE, dtype])
    }

    /// A writer of sums of this type that are integers of at most 32 bits: as elements of a dtype of integers, to which they wrap.
    pub(in super::super) fn of_integers(dtype: DType) -> Writer<A> {
        Writer::through([A::DTYPE, DType::I32, dtype])
    }

    /// A writer of sums that are converted from each of these dtypes to the next.
    fn through(dtypes: [DType; 3]) -> Writer<A> {
        let convert = |from: DType, dtype: DType| {
            let convert = Prim::from(ConvertElementType { dtype });
            (dtype != from).then(|| tile::elementwise(&convert, &[from])).flatten()
        };
        let [from, between, dtype] = dtypes;
        let converts = [convert(from, between), convert(between, dtype)];
        Writer { dtype, converts, store: tile::store(dtype), number: PhantomData }
    }

    /// Whether sums need no conversion.
    pub(in super::super) fn is_direct(&self) -> bool {
        self.dtype == A::DTYPE
    }

    /// Writes sums, from `to` on.
    ///
    /// # Safety
    /// `to` is valid for writing this many elements of the dtype, and aligned.
    pub(in super::super) unsafe fn write(&self, sums: &[A], to: *mut u8) {
        let size = self.dtype.size();
        for (i, sums) in sums.chunks(CHUNK).enumerate() {
            let n = sums.len();
            // SAFETY: the elements are those that the caller promises, and the chunks fit as many of any dtype; the functions
            // are for these dtypes.
            unsafe {
                let to = to.add(i * CHUNK * size);
                let mut at = sums.as_ptr().cast::<u8>();
                let mut registers = [Chunk::uninit(), Chunk::uninit()];
                for (convert, register) in self.converts.iter().zip(&mut registers) {
                    if let Some(convert) = convert {
                        let register = register.as_mut_ptr().cast::<u8>();
                        convert(n, register, &[at]);
                        at = register;
                    }
                }
                match self.store {
                    Some(store) => store(n, to, &[at]),
                    None => to.copy_from_nonoverlapping(at, n * size),
                }
            }
        }
    }
}
