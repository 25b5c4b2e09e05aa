//! The operands that kernels read, and the outputs that they write.

// Only this module turns bytes into elements, so that kernels can be safe code.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use remat_ir::{DType, Element};

/// An operand that a kernel reads: the elements of its buffer. [`copy`](crate::copy) has an example.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    dtype: DType,
    start: *const u8,
    bytes: usize,
    in_place: bool,
    elements: PhantomData<&'a [u8]>,
}

/// An output that a kernel writes: row-major, without gaps. [`copy`](crate::copy) has an example.
pub struct Target<'a> {
    dtype: DType,
    start: *mut u8,
    bytes: usize,
    elements: PhantomData<&'a mut [u8]>,
}

// SAFETY: a source gives out only the shared borrow of bytes that `new` received, or nothing if it is in place; `&[u8]` is `Send`.
unsafe impl Send for Source<'_> {}
// SAFETY: no method of a source changes anything, and the bytes that it gives out are shared: `&[u8]` is `Sync`.
unsafe impl Sync for Source<'_> {}
// SAFETY: a target is the exclusive borrow of the bytes that `new` received; `&mut [u8]` is `Send`.
unsafe impl Send for Target<'_> {}
// SAFETY: a shared target gives out only its address (its elements need `&mut self`), and writing through an address is unsafe.
unsafe impl Sync for Target<'_> {}

impl<'a> Source<'a> {
    /// Bytes that hold elements of this dtype, aligned to its size.
    ///
    /// # Safety
    /// Each element must be a valid one: a bool is 0 or 1.
    pub unsafe fn new(dtype: DType, bytes: &'a [u8]) -> Source<'a> {
        Source { dtype, start: bytes.as_ptr(), bytes: bytes.len(), in_place: false, elements: PhantomData }
    }

    /// An operand whose elements are in the memory of the output, which begins at `start`.
    pub fn in_place(dtype: DType, start: *const u8) -> Source<'a> {
        Source { dtype, start, bytes: 0, in_place: true, elements: PhantomData }
    }

    /// The address of the elements. For an operand in place it is that of the output.
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// Whether the output holds this operand's elements.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The elements; empty if the operand is in place.
    ///
    /// # Panics
    /// If `T` is not the dtype.
    pub fn slice<T: Element>(&self) -> &'a [T] {
        assert_eq!(self.dtype, T::DTYPE);
        self.words()
    }

    /// The bits of the elements as numbers of another type, possibly of another size; empty if the operand is in place. See [`with_word!`].
    ///
    /// # Panics
    /// If one of `T` and the dtype is bool and the other is not.
    pub(crate) fn words<T: Element>(&self) -> &'a [T] {
        assert!(have_the_same_bits(self.dtype, T::DTYPE));
        if self.bytes == 0 {
            return &[];
        }
        assert!(self.start.cast::<T>().is_aligned());
        // SAFETY: the bytes are aligned (checked), and are borrowed for `'a`. If `T` is bool, so is the dtype (checked), and
        // the elements are valid (promised to `new`); any bits are valid as a number.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.bytes / size_of::<T>()) }
    }
}

impl<'a> Target<'a> {
    /// Bytes that hold elements of this dtype, aligned to its size.
    ///
    /// # Safety
    /// Each element must be a valid one: a bool is 0 or 1.
    pub unsafe fn new(dtype: DType, bytes: &'a mut [u8]) -> Target<'a> {
        Target { dtype, start: bytes.as_mut_ptr(), bytes: bytes.len(), elements: PhantomData }
    }

    /// The address of the elements.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The elements.
    ///
    /// # Panics
    /// If `T` is not the dtype.
    pub fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(self.dtype, T::DTYPE);
        self.words_mut()
    }

    /// The bits of the elements as numbers of another type, possibly of another size. See [`with_word!`].
    ///
    /// # Panics
    /// If one of `T` and the dtype is bool and the other is not.
    pub(crate) fn words_mut<T: Element>(&mut self) -> &mut [T] {
        assert!(have_the_same_bits(self.dtype, T::DTYPE));
        if self.bytes == 0 {
            return &mut [];
        }
        assert!(self.start.cast::<T>().is_aligned());
        // SAFETY: the bytes are aligned (checked), and are borrowed exclusively for as long as the slice lives. If one of `T`
        // and the dtype is bool, so is the other (checked), and what is written is valid; any bits are valid as a number.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.bytes / size_of::<T>()) }
    }
}

/// Whether elements of the two dtypes have the same valid bits: a bool has two values only.
fn have_the_same_bits(a: DType, b: DType) -> bool {
    (a == DType::Bool) == (b == DType::Bool)
}

/// Runs a block with `$word` bound to one type for all dtypes of a size, for code that moves elements without interpreting them: bool, or
/// the unsigned integer of that size.
macro_rules! with_word {
    ($dtype:expr, $word:ident => $body:expr) => {
        match ($dtype, $dtype.size()) {
            (remat_ir::DType::Bool, _) => {
                type $word = bool;
                $body
            }
            (_, 1) => {
                type $word = u8;
                $body
            }
            (_, 2) => {
                type $word = u16;
                $body
            }
            (_, 4) => {
                type $word = u32;
                $body
            }
            _ => {
                type $word = u64;
                $body
            }
        }
    };
}

pub(crate) use with_word;
