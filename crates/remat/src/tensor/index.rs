//! Indices, as in NumPy's brackets: numbers, ranges, new axes, an ellipsis, tensors of integers.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use remat_ir::{Aval, Error, ErrorKind, Result, Shape};

use super::argument::{Int, axis_of, dimensions};
use crate::Tensor;

/// One entry of an index. Usually written as a number, a range, [`NewAxis`], [`Ellipsis`] or a tensor.
#[derive(Clone)]
pub enum Index {
    /// One index; the dimension is dropped. Negative numbers count from the end.
    At(i64),
    /// A range of indices; missing bounds are the ends. A negative step takes the indices of the range from last to first.
    Range {
        /// The first index.
        start: Option<i64>,
        /// The index after the last.
        end: Option<i64>,
        /// The stride.
        step: i64,
    },
    /// A new axis of size 1.
    NewAxis,
    /// All remaining dimensions, whole.
    Ellipsis,
    /// The indices in a tensor of integers.
    Tensor(Tensor),
}

/// A new axis of size 1 in an index: NumPy's `np.newaxis`.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// All dimensions that no other entry of the index takes: NumPy's `...`.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// Every `by`th index of a range; backwards from the last one if `by` is negative.
///
/// ```
/// use remat::index::step;
/// use remat::Tensor;
/// let x = Tensor::arange(0..6);
/// assert_eq!(x.index(step(1.., 2)).to_vec::<i32>()?, [1, 3, 5]);
/// assert_eq!(x.index(step(0..3, -1)).to_vec::<i32>()?, [2, 1, 0]);
/// # Ok::<(), remat::Error>(())
/// ```
pub fn step(range: impl IndexRange, by: i64) -> Index {
    let (start, end) = range.bounds();
    Index::Range { start, end, step: by }
}

/// A range of indices for [`step`]: Rust's ranges of any integers.
pub trait IndexRange: sealed::Sealed {
    /// The first index and the one after the last; `None` is the end of the axis.
    #[doc(hidden)]
    fn bounds(&self) -> (Option<i64>, Option<i64>);
}

mod sealed {
    pub trait Sealed {}
}

/// The indices from `start` up to but excluding `end`, like `start..end`. Use it for an end counted from the last, since clippy considers
/// `1..-1` an empty range.
///
/// ```
/// use remat::index::span;
/// use remat::Tensor;
/// assert_eq!(Tensor::arange(0..5).index(span(1, -1)).to_vec::<i32>()?, [1, 2, 3]);
/// # Ok::<(), remat::Error>(())
/// ```
pub fn span(start: impl Int, end: impl Int) -> Range<i64> {
    start.get()..end.get()
}

/// A value that converts to an [`Index`].
pub trait AsIndex {
    /// The entry.
    fn as_index(&self) -> Index;
}

impl AsIndex for Index {
    fn as_index(&self) -> Index {
        self.clone()
    }
}

impl AsIndex for NewAxis {
    fn as_index(&self) -> Index {
        Index::NewAxis
    }
}

impl AsIndex for Ellipsis {
    fn as_index(&self) -> Index {
        Index::Ellipsis
    }
}

impl AsIndex for Tensor {
    fn as_index(&self) -> Index {
        Index::Tensor(self.clone())
    }
}

impl<T: AsIndex + ?Sized> AsIndex for &T {
    fn as_index(&self) -> Index {
        (**self).as_index()
    }
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(impl AsIndex for $type {
            fn as_index(&self) -> Index {
                Index::At(self.get())
            }
        })*
    };
}

integers!(i32 i64 isize u32 u64 usize);

macro_rules! ranges {
    ($($type:ty => |$range:ident| $start:expr, $end:expr;)*) => {
        $(
            impl<T: Int> sealed::Sealed for $type {}

            impl<T: Int> IndexRange for $type {
                fn bounds(&self) -> (Option<i64>, Option<i64>) {
                    let $range = self;
                    ($start, $end)
                }
            }

            impl<T: Int> AsIndex for $type {
                fn as_index(&self) -> Index {
                    whole(self)
                }
            }
        )*
    };
}

ranges! {
    Range<T> => |r| Some(r.start.get()), Some(r.end.get());
    RangeFrom<T> => |r| Some(r.start.get()), None;
    RangeTo<T> => |_r| None, Some(_r.end.get());
    RangeInclusive<T> => |r| Some((*r.start()).get()), after(*r.end());
    RangeToInclusive<T> => |r| None, after(r.end);
}

/// The bound after an inclusive one; `None` after the last index.
fn after(end: impl Int) -> Option<i64> {
    (end.get() != -1).then(|| end.get().saturating_add(1))
}

impl sealed::Sealed for RangeFull {}

impl IndexRange for RangeFull {
    fn bounds(&self) -> (Option<i64>, Option<i64>) {
        (None, None)
    }
}

impl AsIndex for RangeFull {
    fn as_index(&self) -> Index {
        whole(self)
    }
}

/// All indices of a range.
fn whole(range: &impl IndexRange) -> Index {
    let (start, end) = range.bounds();
    Index::Range { start, end, step: 1 }
}

/// A whole index: one entry, or a tuple, array, slice or `Vec` of them.
pub trait Indices {
    /// The entries.
    fn to_indices(&self) -> Vec<Index>;
}

impl<T: AsIndex> Indices for T {
    fn to_indices(&self) -> Vec<Index> {
        vec![self.as_index()]
    }
}

impl<T: AsIndex, const N: usize> Indices for [T; N] {
    fn to_indices(&self) -> Vec<Index> {
        self.iter().map(AsIndex::as_index).collect()
    }
}

impl<T: AsIndex> Indices for [T] {
    fn to_indices(&self) -> Vec<Index> {
        self.iter().map(AsIndex::as_index).collect()
    }
}

impl<T: AsIndex> Indices for Vec<T> {
    fn to_indices(&self) -> Vec<Index> {
        self.iter().map(AsIndex::as_index).collect()
    }
}

impl Indices for () {
    fn to_indices(&self) -> Vec<Index> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: AsIndex),*> Indices for ($($name,)*) {
            fn to_indices(&self) -> Vec<Index> {
                vec![$(self.$index.as_index()),*]
            }
        }
    };
}

crate::trace::for_tuples!(tuples);

/// A resolved index: an entry for each dimension of the tensor, in order, with new axes in between.
pub(crate) enum Entry {
    /// A dimension that is dropped.
    At(usize),
    /// `len` indices with stride `step` from `first`, which is the last one in the tensor if `step` is negative.
    Range { first: usize, len: usize, step: i64 },
    /// A new axis.
    New,
    /// Indices from a tensor.
    Tensor(Tensor),
}

/// One or several dimensions of the result of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Out {
    /// The indices of a range of this dimension of the tensor.
    Range(usize),
    /// The dimensions that the index tensors have in common.
    Block,
    /// A new one.
    New,
}

/// Resolves an index.
///
/// # Errors
/// If there are more entries than dimensions or two ellipses, a number is out of range, a range ends before it starts, a step is 0, or a
/// tensor does not hold integers.
pub(crate) fn resolve(operation: &str, aval: &Aval, indices: Vec<Index>) -> Result<Vec<Entry>> {
    let used = indices.iter().filter(|i| !matches!(i, Index::NewAxis | Index::Ellipsis)).count();
    let wrong = |kind, message| Err(Error::new(kind, operation, message));
    if used > aval.rank() {
        let message = format!("{used} indices are given for {aval}, which has {}", dimensions(aval.rank()));
        return wrong(ErrorKind::Axis, message);
    }
    let ellipses = indices.iter().filter(|i| matches!(i, Index::Ellipsis)).count();
    if ellipses > 1 {
        return wrong(ErrorKind::Argument, format!("an index of {aval} has {ellipses} ellipses"));
    }
    let rest = aval.rank() - used;
    let mut axis = 0;
    let mut entries = Vec::new();
    let whole = |size: usize| Entry::Range { first: 0, len: size, step: 1 };
    for index in indices {
        match index {
            Index::NewAxis => {
                entries.push(Entry::New);
                continue;
            }
            Index::Ellipsis => {
                entries.extend(aval.shape[axis..axis + rest].iter().map(|&size| whole(size)));
                axis += rest;
                continue;
            }
            Index::At(i) => {
                let Some(index) = axis_of(aval.shape[axis], i) else {
                    let size = aval.shape[axis];
                    let message = format!("index {i} is out of range for dimension {axis} of {aval}, of size {size}");
                    return wrong(ErrorKind::Axis, message);
                };
                entries.push(Entry::At(index));
            }
            Index::Range { start, end, step } => entries.push(range(operation, aval, axis, start, end, step)?),
            Index::Tensor(tensor) => {
                let index = tensor.aval()?;
                if !index.dtype.is_integer() {
                    let hint = if index.dtype == remat_ir::DType::Bool {
                        "choose elements by a mask with `mask.select(x, other)`"
                    } else {
                        "convert it with .to_dtype(DType::I32)"
                    };
                    return wrong(ErrorKind::DType, format!("an index tensor holds integers, not {index}; {hint}"));
                }
                entries.push(Entry::Tensor(tensor));
            }
        }
        axis += 1;
    }
    entries.extend(aval.shape[axis..].iter().map(|&size| whole(size)));
    Ok(entries)
}

fn range(operation: &str, aval: &Aval, axis: usize, start: Option<i64>, end: Option<i64>, step: i64) -> Result<Entry> {
    let size = aval.shape[axis] as i64;
    let wrong = |message: String| Err(Error::new(ErrorKind::Axis, operation, message));
    let index = |bound: i64| (-size..=size).contains(&bound).then(|| if bound < 0 { bound + size } else { bound });
    let text = |bound: Option<i64>| bound.map_or(String::new(), |b| b.to_string());
    let (Some(first), Some(limit)) = (index(start.unwrap_or(0)), index(end.unwrap_or(size))) else {
        let (start, end) = (text(start), text(end));
        return wrong(format!("range {start}..{end} is out of range for dimension {axis} of {aval}, of size {size}"));
    };
    if first > limit {
        let (start, end) = (text(start), text(end));
        return wrong(format!("range {start}..{end} of dimension {axis} of {aval} ends before it starts"));
    }
    if step == 0 {
        return wrong(format!("the step of dimension {axis} of {aval} is 0"));
    }
    let len = (limit - first).unsigned_abs().div_ceil(step.unsigned_abs()) as usize;
    let first = if step < 0 { (limit - 1).max(0) } else { first };
    // A step past the end is never taken, and its multiples must not overflow.
    Ok(Entry::Range { first: first as usize, len, step: if len > 1 { step } else { step.signum() } })
}

/// The dimensions of the result in NumPy's order: those of the index tensors take the place of tensors and numbers if these are adjacent,
/// and come first otherwise.
pub(crate) fn layout(entries: &[Entry]) -> Vec<Out> {
    let advanced = |e: &Entry| matches!(e, Entry::Tensor(_) | Entry::At(_));
    let block = entries.iter().any(|e| matches!(e, Entry::Tensor(_)));
    let first = entries.iter().position(advanced).unwrap_or(0);
    let count = entries.iter().filter(|e| advanced(e)).count();
    let neighbours = entries[first..].iter().take_while(|e| advanced(e)).count() == count;
    let mut out = Vec::new();
    let mut axis = 0;
    for (i, entry) in entries.iter().enumerate() {
        if block && i == first {
            out.insert(if neighbours { out.len() } else { 0 }, Out::Block);
        }
        match entry {
            Entry::New => {
                out.push(Out::New);
                continue;
            }
            Entry::Range { .. } => out.push(Out::Range(axis)),
            Entry::At(_) | Entry::Tensor(_) => {}
        }
        axis += 1;
    }
    out
}

/// The sizes of a layout; `block` is the common shape of the index tensors.
pub(crate) fn sizes(layout: &[Out], entries: &[Entry], block: &[usize]) -> Shape {
    let lens: Vec<usize> = entries
        .iter()
        .filter(|e| !matches!(e, Entry::New))
        .map(|e| if let Entry::Range { len, .. } = e { *len } else { 1 })
        .collect();
    let mut shape = Shape::new();
    for out in layout {
        match out {
            Out::Range(axis) => shape.push(lens[*axis]),
            Out::Block => shape.extend_from_slice(block),
            Out::New => shape.push(1),
        }
    }
    shape
}
