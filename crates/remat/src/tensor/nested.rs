//! Numbers and nested arrays of numbers, from which tensors are created.

use remat_ir::{Element, Error, ErrorKind, Result, bf16, f16};

use crate::Tensor;

/// A scalar, or an array or `Vec` of nested values of equal shape: the argument of [`Tensor::new`].
pub trait Nested {
    /// The element type.
    type Element: Element;

    /// Appends the elements in row-major order and returns the shape.
    ///
    /// # Errors
    /// If nested values have different shapes.
    fn collect(&self, elements: &mut Vec<Self::Element>) -> Result<Vec<usize>>;

    /// The shape of a value of unknown length, as in an empty sequence.
    fn empty_shape() -> Vec<usize>;
}

macro_rules! scalars {
    ($($type:ty)*) => {
        $(impl Nested for $type {
            type Element = $type;

            fn collect(&self, elements: &mut Vec<$type>) -> Result<Vec<usize>> {
                elements.push(*self);
                Ok(Vec::new())
            }

            fn empty_shape() -> Vec<usize> {
                Vec::new()
            }
        })*
    };
}

scalars!(bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64);

impl<T: Nested, const N: usize> Nested for [T; N] {
    type Element = T::Element;

    fn collect(&self, elements: &mut Vec<T::Element>) -> Result<Vec<usize>> {
        collect_sequence(self, elements)
    }

    fn empty_shape() -> Vec<usize> {
        [vec![N], T::empty_shape()].concat()
    }
}

impl<T: Nested> Nested for [T] {
    type Element = T::Element;

    fn collect(&self, elements: &mut Vec<T::Element>) -> Result<Vec<usize>> {
        collect_sequence(self, elements)
    }

    fn empty_shape() -> Vec<usize> {
        [vec![0], T::empty_shape()].concat()
    }
}

impl<T: Nested> Nested for Vec<T> {
    type Element = T::Element;

    fn collect(&self, elements: &mut Vec<T::Element>) -> Result<Vec<usize>> {
        collect_sequence(self, elements)
    }

    fn empty_shape() -> Vec<usize> {
        <[T]>::empty_shape()
    }
}

impl<T: Nested + ?Sized> Nested for &T {
    type Element = T::Element;

    fn collect(&self, elements: &mut Vec<T::Element>) -> Result<Vec<usize>> {
        (**self).collect(elements)
    }

    fn empty_shape() -> Vec<usize> {
        T::empty_shape()
    }
}

fn collect_sequence<T: Nested>(sequence: &[T], elements: &mut Vec<T::Element>) -> Result<Vec<usize>> {
    let mut inner: Option<Vec<usize>> = None;
    for (i, value) in sequence.iter().enumerate() {
        let shape = value.collect(elements)?;
        match &inner {
            Some(first) if *first != shape => {
                let message = format!("element 0 has shape {first:?} and element {i} has shape {shape:?}");
                return Err(Error::new(ErrorKind::Shape, "new", message));
            }
            _ => inner = Some(shape),
        }
    }
    Ok([vec![sequence.len()], inner.unwrap_or_else(T::empty_shape)].concat())
}

impl<T: Nested, const N: usize> From<[T; N]> for Tensor {
    /// As [`Tensor::new`].
    #[track_caller]
    fn from(values: [T; N]) -> Tensor {
        Tensor::new(values)
    }
}

impl<T: Nested> From<&[T]> for Tensor {
    /// As [`Tensor::new`].
    #[track_caller]
    fn from(values: &[T]) -> Tensor {
        Tensor::new(values)
    }
}

impl<T: Nested> From<Vec<T>> for Tensor {
    /// As [`Tensor::new`].
    #[track_caller]
    fn from(values: Vec<T>) -> Tensor {
        Tensor::new(values)
    }
}
