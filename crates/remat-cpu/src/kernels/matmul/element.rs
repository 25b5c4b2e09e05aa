//! Elements of any dtype read as numbers of the type that products are summed in, and sums written as elements.

// What is read and written is known as bytes and a dtype, and converted by functions of tiles, which take pointers.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use remat_ir::{Binary, ConvertElementType, DType, Op};

use super::tile::Accumulator;
use crate::kernels::Source;
use crate::kernels::operand::with_word;
use crate::tile::{self, StridedFn, TileFn};

/// Elements that are converted at a time, through memory of this many numbers of 8 bytes.
const CHUNK: usize = 256;

/// Memory for a chunk of elements of any dtype.
type Chunk = [u64; CHUNK];

/// The type that products are summed in, as the evaluator has it: integers and bools modulo 2^64, and otherwise f32 where
/// it is exact for the products of f16 and bf16 or is the dtype itself.
pub(in super::super) fn accumulator(from: DType, to: DType) -> DType {
    match (from, to) {
        (_, to) if !to.is_float() => DType::I64,
        (from, to) if !from.is_float() || from == DType::F64 || to == DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// How elements of a dtype become numbers to sum.
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
            load: tile::load(dtype),
            convert: needed.then(|| tile::elementwise(&Op::from(convert), &[dtype])).flatten(),
            number: PhantomData,
        }
    }

    /// The elements of an operand of this dtype.
    pub(in super::super) fn of<'a>(&'a self, source: Source<'a>) -> Elements<'a, A> {
        let len = with_word!(self.dtype, W => source.words::<W>().len());
        Elements { direct: (self.dtype == A::DTYPE).then(|| source.slice()), source, len, reader: self }
    }
}

/// The elements of an operand, to be read as numbers.
#[derive(Clone, Copy)]
pub(in super::super) struct Elements<'a, A> {
    /// The elements, where no conversion is needed.
    pub(in super::super) direct: Option<&'a [A]>,
    source: Source<'a>,
    len: usize,
    reader: &'a Reader<A>,
}

impl<A: Accumulator> Elements<'_, A> {
    /// Reads `to.len()` elements that are `step` apart, the first at `start`.
    #[inline]
    pub(in super::super) fn read(&self, start: isize, step: isize, to: &mut [A]) {
        if to.is_empty() {
            return;
        }
        let last = start + (to.len() as isize - 1) * step;
        assert!(start >= 0 && last >= 0 && (start.max(last) as usize) < self.len);
        let Reader { dtype, gather, load, convert, .. } = *self.reader;
        let from = |i: usize| {
            let at = (start + i as isize * step) as usize;
            // SAFETY: the element is one of the operand's, since the first and the last are (checked).
            unsafe { self.source.as_ptr().add(at * dtype.size()) }
        };
        // SAFETY, of all calls: the elements that are read are the operand's, of the dtype that the functions are for, and lie
        // `step` apart from `from(i)` on; those that are written are in `to` or in the chunk, which they fit.
        let run = |function: TileFn, n: usize, to: *mut u8, from: *const u8| unsafe { function(n, to, &[from]) };
        let (to, n) = (to.as_mut_ptr(), to.len());
        match (load.or(convert), load.and(convert)) {
            (None, _) => unsafe { gather(n, to.cast(), from(0), step) },
            (Some(only), None) if step == 1 => run(only, n, to.cast(), from(0)),
            (Some(first), second) => {
                let mut chunk: Chunk = [0; CHUNK];
                let chunk = chunk.as_mut_ptr().cast::<u8>();
                for i in (0..n).step_by(CHUNK) {
                    let n = CHUNK.min(n - i);
                    // SAFETY: element `i` is in `to`.
                    let to = unsafe { to.add(i) }.cast();
                    let mut at = from(i);
                    if step != 1 {
                        unsafe { gather(n, chunk, at, step) };
                        at = chunk;
                    }
                    match second {
                        None => run(first, n, to, at),
                        Some(second) => {
                            let mut loaded: Chunk = [0; CHUNK];
                            run(first, n, loaded.as_mut_ptr().cast(), at);
                            run(second, n, to, loaded.as_ptr().cast());
                        }
                    }
                }
            }
        }
    }
}

/// How sums become elements of a dtype: rounded once, and added to what is there if it is to be accumulated.
pub(super) struct Writer<A> {
    pub(super) dtype: DType,
    convert: Option<TileFn>,
    add: Option<TileFn>,
    load: Option<TileFn>,
    store: Option<TileFn>,
    number: PhantomData<A>,
}

impl<A: Accumulator> Writer<A> {
    pub(super) fn new(dtype: DType, accumulate: bool) -> Writer<A> {
        let convert = Op::from(ConvertElementType { dtype });
        // The sum of bools is what one of them is.
        let add = Op::from(if dtype == DType::Bool { Binary::Or } else { Binary::Add });
        Writer {
            dtype,
            convert: (dtype != A::DTYPE).then(|| tile::elementwise(&convert, &[A::DTYPE])).flatten(),
            add: accumulate.then(|| tile::elementwise(&add, &[dtype, dtype])).flatten(),
            load: tile::load(dtype),
            store: tile::store(dtype),
            number: PhantomData,
        }
    }

    /// Whether sums are elements as they are.
    pub(super) fn is_direct(&self) -> bool {
        self.dtype == A::DTYPE && self.add.is_none()
    }

    /// Writes sums to `to` on; each is added to the element that lies at `before` on, if they are accumulated.
    ///
    /// # Safety
    /// `to` is valid for writing as many elements of the dtype, and `before` for reading them if they are accumulated; the two
    /// are equal or do not overlap. All are aligned.
    pub(super) unsafe fn write(&self, sums: &[A], to: *mut u8, before: *const u8) {
        let size = self.dtype.size();
        for (i, sums) in sums.chunks(CHUNK).enumerate() {
            let n = sums.len();
            // SAFETY: the elements are those that the caller promises, and the chunks fit as many of any dtype; the functions
            // are for these dtypes.
            unsafe {
                let (to, before) = (to.add(i * CHUNK * size), before.wrapping_add(i * CHUNK * size));
                let mut at = sums.as_ptr().cast::<u8>();
                let (mut rounded, mut loaded): (Chunk, Chunk) = ([0; CHUNK], [0; CHUNK]);
                let register = rounded.as_mut_ptr().cast::<u8>();
                if let Some(convert) = self.convert {
                    convert(n, register, &[at]);
                    at = register;
                }
                if let Some(add) = self.add {
                    let mut old = before;
                    if let Some(load) = self.load {
                        load(n, loaded.as_mut_ptr().cast(), &[old]);
                        old = loaded.as_ptr().cast();
                    }
                    add(n, register, &[old, at]);
                    at = register;
                }
                match self.store {
                    Some(store) => store(n, to, &[at]),
                    None => to.copy_from_nonoverlapping(at, n * size),
                }
            }
        }
    }
}

/// Scratch memory as numbers.
pub(in super::super) fn numbers<A: Accumulator>(scratch: &mut [u8]) -> &mut [A] {
    // SAFETY: any bits are a number.
    unsafe { scratch.align_to_mut().1 }
}
