//! Indices that are known only at run time: the starts of the slices that gathers read and scatters write.

use std::ops::Range;

use remat_ir::{Aval, DType, Element, IndexMode};
use smallvec::SmallVec;

use super::strided::StridedIter;
use crate::interface::Source;
use crate::interface::layout::row_major;
use crate::simd::multiversion;

/// Index vectors whose starts are computed together, on the stack.
pub(crate) const BLOCK: usize = 256;

/// The slices of an array to which index vectors point.
pub(crate) struct Slices {
    /// The dtype of the indices.
    dtype: DType,
    /// The largest start and the stride of the dimension for each component of an index vector.
    components: SmallVec<[(i64, isize); 4]>,
    mode: IndexMode,
    /// All index vectors. The offsets are the part of the array offset that batching dimensions contribute, and the offset of the
    /// counterpart.
    vectors: StridedIter<2>,
}

/// The dimension numbers of a gather or a scatter.
pub(crate) struct Numbers<'a> {
    /// The size of a slice along each axis of the array.
    pub(crate) sizes: &'a [usize],
    /// The dimension of the array for each component of an index vector.
    pub(crate) index_map: &'a [usize],
    /// Batching dimensions of the array, which correspond to dimensions of the indices.
    pub(crate) operand_batching: &'a [usize],
    pub(crate) index_batching: &'a [usize],
    pub(crate) mode: IndexMode,
}

/// The starts of consecutive index vectors.
pub(crate) struct Starts {
    /// The range of index vectors.
    vectors: Range<usize>,
    /// Offsets in the array; negative for a dropped slice.
    array: [isize; BLOCK],
    /// Offsets in the counterpart of the slices: the result of a gather, the updates of a scatter.
    counterpart: [isize; BLOCK],
}

impl Slices {
    /// The slices of `array` at `indices`. `counterpart` has the strides of index vectors in the slices' counterpart.
    pub(crate) fn new(array: &Aval, indices: &Aval, numbers: &Numbers<'_>, counterpart: &[isize]) -> Slices {
        let strides = row_major(&array.shape);
        let batch = &indices.shape[..indices.rank() - 1];
        let mut batching: SmallVec<[isize; 4]> = SmallVec::from_elem(0, batch.len());
        for (&d, &i) in numbers.operand_batching.iter().zip(numbers.index_batching) {
            batching[i] = strides[d];
        }
        Slices {
            dtype: indices.dtype,
            components: numbers
                .index_map
                .iter()
                .map(|&d| ((array.shape[d] - numbers.sizes[d]) as i64, strides[d]))
                .collect(),
            mode: numbers.mode,
            vectors: StridedIter::new(batch, [&batching, counterpart]),
        }
    }

    /// The number of index vectors.
    pub(crate) fn len(&self) -> usize {
        self.vectors.len()
    }

    /// The distance in the counterpart between the slices of neighbouring index vectors; `None` if there is only one.
    pub(crate) fn counterpart_stride(&self) -> Option<isize> {
        self.vectors.strides().last().map(|stride| stride[1])
    }

    /// Adds the components of the index vectors from `first` on to their starts.
    fn add_components(&self, indices: &Source<'_>, first: usize, starts: &mut [isize]) {
        match self.dtype {
            DType::I8 => self.add(indices.slice::<i8>(), first, starts),
            DType::I16 => self.add(indices.slice::<i16>(), first, starts),
            DType::I32 => self.add(indices.slice::<i32>(), first, starts),
            DType::I64 => self.add(indices.slice::<i64>(), first, starts),
            DType::U8 => self.add(indices.slice::<u8>(), first, starts),
            DType::U16 => self.add(indices.slice::<u16>(), first, starts),
            DType::U32 => self.add(indices.slice::<u32>(), first, starts),
            DType::U64 => self.add(indices.slice::<u64>(), first, starts),
            DType::Bool | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => {}
        }
    }

    fn add<T: Index>(&self, indices: &[T], first: usize, starts: &mut [isize]) {
        let n = self.components.len();
        let indices = &indices[first * n..(first + starts.len()) * n];
        let drop = self.mode == IndexMode::FillOrDrop;
        for (c, &(most, stride)) in self.components.iter().enumerate() {
            add_component(&indices[c..], n, most, stride, drop, starts);
        }
    }
}

multiversion! {
    /// Adds every `n`th index, clamped and times `stride`, to the starts, or drops slices that are out of range.
    fn add_component<T: Index>(
        indices: &[T],
        n: usize,
        most: i64,
        stride: isize,
        drop: bool,
        starts: &mut [isize],
    ) {
        let add = |start: &mut isize, index: T| {
            let index = index.value();
            let clamped = index.min(most).max(0);
            let dropped = (drop & (index != clamped)) | (*start < 0);
            *start = if dropped { -1 } else { *start + clamped as isize * stride };
        };
        if n == 1 {
            for (start, &index) in starts.iter_mut().zip(indices) {
                add(start, index);
            }
        } else {
            for (i, start) in starts.iter_mut().enumerate() {
                add(start, indices[i * n]);
            }
        }
    }
}

/// An integer type as an index.
trait Index: Element {
    /// The index as an i64. A number beyond the range of i64 is beyond every size, and so is its bound.
    fn value(self) -> i64;
}

macro_rules! index {
    ($($type:ident, |$i:ident| $value:expr;)*) => { $(
        impl Index for $type {
            #[inline(always)]
            fn value(self) -> i64 {
                let $i = self;
                $value
            }
        }
    )* };
}

index! {
    i8, |i| i.into();
    i16, |i| i.into();
    i32, |i| i.into();
    i64, |i| i;
    u8, |i| i.into();
    u16, |i| i.into();
    u32, |i| i.into();
    u64, |i| i.min(i64::MAX as u64) as i64;
}

impl Starts {
    pub(crate) fn new() -> Starts {
        Starts { vectors: 0..0, array: [0; BLOCK], counterpart: [0; BLOCK] }
    }

    /// Finds the starts of `count` index vectors, at most [`BLOCK`], from `first` on: in the array and in the counterpart.
    pub(crate) fn find(
        &mut self,
        slices: &Slices,
        indices: &Source<'_>,
        first: usize,
        count: usize,
    ) -> (&[isize], &[isize]) {
        let (array, counterpart) = (&mut self.array[..count], &mut self.counterpart[..count]);
        if self.vectors == (first..first + count) {
            return (array, counterpart);
        }
        self.vectors = first..first + count;
        match (slices.vectors.sizes(), slices.vectors.strides()) {
            ([] | [_], strides) => {
                let [stride, counterpart_stride] = strides.first().copied().unwrap_or_default();
                for (i, (array, counterpart)) in array.iter_mut().zip(counterpart.iter_mut()).enumerate() {
                    let vector = (first + i) as isize;
                    (*array, *counterpart) = (vector * stride, vector * counterpart_stride);
                }
            }
            _ => {
                let mut slots = array.iter_mut().zip(counterpart.iter_mut());
                slices.vectors.each(first..first + count, |start| {
                    if let Some((array, counterpart)) = slots.next() {
                        [*array, *counterpart] = start;
                    }
                });
            }
        }
        slices.add_components(indices, first, array);
        (array, counterpart)
    }

    /// The start of one index vector in the array. The following ones are computed with it.
    pub(crate) fn of(&mut self, slices: &Slices, indices: &Source<'_>, vector: usize) -> isize {
        if !self.vectors.contains(&vector) {
            self.find(slices, indices, vector, BLOCK.min(slices.len() - vector));
        }
        self.array[vector - self.vectors.start]
    }
}

/// The value of an integer scalar.
pub(crate) fn integer(scalar: &Source<'_>) -> i64 {
    match scalar.dtype() {
        DType::I8 => scalar.slice::<i8>()[0].value(),
        DType::I16 => scalar.slice::<i16>()[0].value(),
        DType::I32 => scalar.slice::<i32>()[0].value(),
        DType::I64 => scalar.slice::<i64>()[0].value(),
        DType::U8 => scalar.slice::<u8>()[0].value(),
        DType::U16 => scalar.slice::<u16>()[0].value(),
        DType::U32 => scalar.slice::<u32>()[0].value(),
        DType::U64 => scalar.slice::<u64>()[0].value(),
        DType::Bool | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => 0,
    }
}

/// Operands for the tests of gathers and scatters.
#[cfg(test)]
pub(crate) mod samples {
    use remat_ir::{Array, Gather, Literal, Shape};

    use super::*;
    use crate::test_support::{Stream, filled, wild};

    /// Indices below `n`, and some out of range.
    pub(crate) fn indices(dtype: DType, shape: &[usize], n: usize, seed: u64) -> Array {
        filled(dtype, shape, seed, |stream| Literal::from_i128(dtype, stream.below(n + 6) as i128 - 3))
    }

    /// A gather with any dimension numbers, of an operand of at most four dimensions of less than `size` elements.
    pub(crate) fn any_gather(stream: &mut Stream, dtype: DType, size: usize) -> (Gather, Array, Array) {
        let shape: Vec<usize> = (0..stream.below(4) + 1).map(|_| stream.below(size)).collect();
        let batch: Vec<usize> = (0..stream.below(3)).map(|_| stream.below(size)).collect();
        let mut op = Gather {
            offset_dims: Shape::new(),
            collapsed_slice_dims: Shape::new(),
            start_index_map: Shape::new(),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            slice_sizes: Shape::new(),
            mode: if stream.below(2) == 0 { IndexMode::Clip } else { IndexMode::FillOrDrop },
            fill_value: Literal::from_f64(dtype, 1.0),
        };
        let mut batch_of_indices = batch.clone();
        for (d, &n) in shape.iter().enumerate() {
            let batching = op.operand_batching_dims.len();
            let kind = stream.below(4);
            if kind == 0 && batching < batch.len() && n > 0 {
                batch_of_indices[batching] = n;
                op.operand_batching_dims.push(d);
                op.start_indices_batching_dims.push(batching);
                op.slice_sizes.push(1);
                continue;
            }
            op.slice_sizes.push(if kind == 1 { n.min(1) } else { stream.below(n + 1) });
            if kind == 1 && n > 0 {
                op.collapsed_slice_dims.push(d);
            }
            if kind == 1 || stream.below(2) == 0 {
                op.start_index_map.insert(stream.below(op.start_index_map.len() + 1), d);
            }
        }
        let window = shape.len() - op.collapsed_slice_dims.len() - op.operand_batching_dims.len();
        let rank = window + batch.len();
        let mut dims: Vec<usize> = (0..rank).collect();
        while dims.len() > window {
            dims.remove(stream.below(dims.len()));
        }
        op.offset_dims = dims.into();
        let components = op.start_index_map.len();
        let shape_of_indices: Vec<usize> = batch_of_indices.iter().copied().chain([components]).collect();
        let seed = stream.bits();
        (op, wild(dtype, &shape, seed), indices(DType::I32, &shape_of_indices, size, seed))
    }
}
