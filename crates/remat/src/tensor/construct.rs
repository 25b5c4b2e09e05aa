//! Creating tensors.

use std::ops::Range;

use remat_ir::{
    Array, BroadcastInDim, Compare, DType, Element, Error, ErrorKind, Iota, Literal, Result, Shape, bf16, f16,
};

use super::argument::{Dims, Operand, Scalar};
use super::nested::Nested;
use crate::Tensor;
use crate::trace::{bind1, deferred};

impl Tensor {
    /// A tensor of a number, or of nested arrays or `Vec`s of numbers, with the dtype of their Rust type.
    ///
    /// # Errors
    /// If `Vec`s inside have different lengths.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!(x.aval()?.to_string(), "f32[2,3]");
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn new(values: impl Nested) -> Tensor {
        deferred(|| {
            let mut elements = Vec::new();
            let shape = values.collect(&mut elements)?;
            Ok(Tensor::from_array(Array::from_vec(elements, shape)?))
        })
    }

    /// A tensor of these elements, in row-major order.
    ///
    /// # Errors
    /// If the number of elements is not that of the shape.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::from_slice(&[1, 2, 3, 4, 5, 6], [2, 3]);
    /// assert_eq!(x.aval()?.to_string(), "i32[2,3]");
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn from_slice<T: Element>(elements: &[T], shape: impl Dims) -> Tensor {
        deferred(|| from_elements(elements.to_vec(), shape.to_shape("from_slice")?, "from_slice"))
    }

    /// An abstract tensor: dtype and shape without elements, an argument for tracing a function by [`Jitted::lower`](crate::Jitted::lower),
    /// [`eval_shape`](crate::eval_shape) or [`make_jaxpr`](crate::make_jaxpr). It takes no memory, whatever its size. Reading it, or
    /// computing with it outside of a trace, is an error.
    ///
    /// ```
    /// use remat::{DType, Tensor, jit};
    /// let x = Tensor::shape_only([1 << 20, 1 << 20], DType::F32);
    /// let memory = jit(|x: &Tensor| x.sum(0)).memory(&x)?;
    /// assert_eq!((memory.arguments, memory.outputs), (1 << 42, 1 << 22));
    /// assert!(x.sum(0).error().is_some());
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a size is negative, or there are more than 2^63 elements or bytes.
    #[doc(alias = "ShapeDtypeStruct")]
    #[track_caller]
    pub fn shape_only(shape: impl Dims, dtype: DType) -> Tensor {
        deferred(|| {
            let aval = remat_ir::Aval::new(dtype, shape.to_shape("shape_only")?);
            match aval.excess() {
                None => Ok(Tensor::from_aval(aval)),
                Some(excess) => Err(Error::new(ErrorKind::Shape, "shape_only", format!("{aval} {excess}"))),
            }
        })
    }

    /// As [`Tensor::from_slice`], without a copy.
    ///
    /// # Errors
    /// If the number of elements is not that of the shape.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::from_vec(vec![0.5f64; 12], [3, 4]);
    /// assert_eq!(x.aval()?.to_string(), "f64[3,4]");
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn from_vec<T: Element>(elements: Vec<T>, shape: impl Dims) -> Tensor {
        deferred(|| from_elements(elements, shape.to_shape("from_vec")?, "from_vec"))
    }

    /// A tensor of zeros.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// assert_eq!(Tensor::zeros([2], DType::I32).to_vec::<i32>()?, [0, 0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros(shape: impl Dims, dtype: DType) -> Tensor {
        deferred(|| Ok(fill(Literal::from_f64(dtype, 0.0), shape.to_shape("zeros")?)))
    }

    /// A tensor of ones; of `true` for bools.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// assert_eq!(Tensor::ones([2], DType::F32).to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn ones(shape: impl Dims, dtype: DType) -> Tensor {
        deferred(|| Ok(fill(Literal::from_f64(dtype, 1.0), shape.to_shape("ones")?)))
    }

    /// A tensor filled with `value`, a number or a tensor that broadcasts to `shape`.
    ///
    /// # Errors
    /// If the dtype cannot represent the number, or the tensor has another dtype or does not broadcast.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// assert_eq!(Tensor::full([3], 0.5, DType::F32).to_vec::<f32>()?, [0.5, 0.5, 0.5]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn full(shape: impl Dims, value: impl Operand, dtype: DType) -> Tensor {
        deferred(|| {
            let shape = shape.to_shape("full")?;
            let value = value.argument().of_dtype("full", dtype)?;
            let aval = value.aval()?;
            if aval.dtype != dtype {
                let message = format!("the value is {aval}; convert it with .to_dtype(DType::{dtype:?})");
                return Err(Error::new(ErrorKind::DType, "full", message));
            }
            Ok(value.broadcast_to(&shape[..]))
        })
    }

    /// Zeros of the dtype and shape of this tensor.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.5f32, 2.5]).zeros_like().to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        deferred(|| self.filled_like(0.0))
    }

    /// Ones of the dtype and shape of this tensor.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.5f32, 2.5]).ones_like().to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        deferred(|| self.filled_like(1.0))
    }

    /// `value` in the dtype and shape of this tensor.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).full_like(7).to_vec::<i32>()?, [7, 7]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn full_like(&self, value: impl Operand) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            Ok(Tensor::full(&aval.shape[..], value, aval.dtype))
        })
    }

    /// A tensor of this shape in which each element is its own index along dimension `axis`; a negative axis counts from the last.
    ///
    /// # Errors
    /// If the axis is out of range, or the dtype is bool.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// assert_eq!(Tensor::iota([2, 3], 1, DType::I32).to_vec::<i32>()?, [0, 1, 2, 0, 1, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn iota(shape: impl Dims, axis: impl super::Int, dtype: DType) -> Tensor {
        deferred(|| {
            let shape = shape.to_shape("iota")?;
            let axis = super::argument::axis("iota", &remat_ir::Aval::new(dtype, shape.iter().copied()), axis.get())?;
            Ok(bind1(Iota { dtype, shape, axis }, &[]))
        })
    }

    /// The numbers from `range.start` up to but excluding `range.end`, one apart, in the dtype of their Rust type.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::arange(2..5).to_vec::<i32>()?, [2, 3, 4]);
    /// assert_eq!(Tensor::arange(0.0..2.5f32).to_vec::<f32>()?, [0.0, 1.0, 2.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn arange<T: Element + Operand>(range: Range<T>) -> Tensor {
        deferred(|| arange("arange", range, Scalar::Int(1)))
    }

    /// The numbers from `start` up or down to but excluding `end`, `step` apart.
    ///
    /// # Errors
    /// If the step is 0, or `start`, `end` or `step` is not finite.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::arange_step(5, 0, -2).to_vec::<i32>()?, [5, 3, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn arange_step<T: Element + Operand>(start: T, end: T, step: T) -> Tensor {
        deferred(|| arange("arange_step", start..end, scalar_of("arange_step", &step)?))
    }

    /// `num` evenly spaced numbers from `start` to `end`, both included.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// let x = Tensor::linspace(0.0, 1.0, 5, DType::F32);
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace(start: f64, end: f64, num: usize, dtype: DType) -> Tensor {
        deferred(|| {
            if !dtype.is_float() {
                return Err(Error::new(ErrorKind::DType, "linspace", format!("takes a float dtype and got {dtype}")));
            }
            let index = Tensor::iota([num], 0, dtype);
            if num < 2 {
                return Ok(index + start);
            }
            // A weighted mean instead of `start + i * step`, so that the last number is exactly `end`.
            let t = index / (num - 1);
            Ok((1.0 - &t) * start + t * end)
        })
    }

    /// The identity matrix of size `n`.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// assert_eq!(Tensor::eye(2, DType::F32).to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn eye(n: usize, dtype: DType) -> Tensor {
        deferred(|| Ok(diagonal_mask(&[n, n], 0, Compare::Eq).to_dtype(dtype)))
    }

    /// Ones on diagonal `offset` of an `n` by `m` matrix, zeros elsewhere; positive offsets are above the main diagonal.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// assert_eq!(Tensor::eye_offset(2, 3, 1, DType::I32).to_vec::<i32>()?, [0, 1, 0, 0, 0, 1]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn eye_offset(n: usize, m: usize, offset: i64, dtype: DType) -> Tensor {
        deferred(|| Ok(diagonal_mask(&[n, m], offset, Compare::Eq).to_dtype(dtype)))
    }

    /// The matrices in the last two dimensions with zeros above diagonal `offset`.
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]]);
    /// assert_eq!(x.tril(0).to_vec::<i32>()?, [1, 0, 3, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn tril(&self, offset: i64) -> Tensor {
        deferred(|| self.triangle("tril", offset, Compare::Ge))
    }

    /// The matrices in the last two dimensions with zeros below diagonal `offset`.
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]]);
    /// assert_eq!(x.triu(0).to_vec::<i32>()?, [1, 2, 0, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn triu(&self, offset: i64) -> Tensor {
        deferred(|| self.triangle("triu", offset, Compare::Le))
    }

    /// The matrix with this vector on diagonal `offset`, or the diagonal of a matrix.
    ///
    /// # Errors
    /// If the tensor does not have one or two dimensions.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).diag(0).to_vec::<i32>()?, [1, 0, 0, 2]);
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).diag(0).to_vec::<i32>()?, [1, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn diag(&self, offset: i64) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            match aval.rank() {
                1 => {
                    let shift = offset.unsigned_abs() as usize;
                    let n = aval.shape[0].saturating_add(shift);
                    let width = i64::try_from(shift).unwrap_or(i64::MAX);
                    let widths = if offset < 0 { (0, width) } else { (width, 0) };
                    let row = self.pad([widths], Tensor::literal(zero(aval.dtype)));
                    Ok(diagonal_mask(&[n, n], offset, Compare::Eq).select(row, Tensor::literal(zero(aval.dtype))))
                }
                2 => Ok(self.diagonal(offset, 0, 1)),
                _ => {
                    let message = format!("takes a vector or a matrix and got {aval}");
                    Err(Error::new(ErrorKind::Shape, "diag", message))
                }
            }
        })
    }

    fn filled_like(&self, value: f64) -> Result<Tensor> {
        let aval = self.aval()?;
        Ok(fill(Literal::from_f64(aval.dtype, value), aval.shape.clone()))
    }

    fn triangle(&self, operation: &str, offset: i64, keep: Compare) -> Result<Tensor> {
        let aval = self.aval()?;
        let [.., n, m] = aval.shape[..] else {
            let message = format!("takes at least two dimensions and got {aval}");
            return Err(Error::new(ErrorKind::Shape, operation, message));
        };
        Ok(diagonal_mask(&[n, m], offset, keep).select(self, Tensor::literal(zero(aval.dtype))))
    }
}

/// A literal repeated to a shape: a literal itself for a scalar, one equation otherwise, never a captured constant.
#[track_caller]
pub(crate) fn fill(value: Literal, shape: Shape) -> Tensor {
    let scalar = Tensor::literal(value);
    if shape.is_empty() { scalar } else { bind1(BroadcastInDim { shape, dims: Shape::new() }, &[&scalar]) }
}

/// Zero of this dtype.
pub(crate) fn zero(dtype: DType) -> Literal {
    Literal::from_f64(dtype, 0.0)
}

/// Whether `row + offset` satisfies this comparison with `column`.
fn diagonal_mask(shape: &[usize; 2], offset: i64, compare: Compare) -> Tensor {
    // 32 bits suffice for every matrix that fits in memory, and an offset beyond the sizes is equivalent to one at the edge.
    let bound = i64::try_from(shape[0].max(shape[1])).unwrap_or(i64::MAX);
    let rows = Tensor::iota(shape, 0, DType::I32);
    let rows = if offset == 0 { rows } else { rows + offset.clamp(-bound, bound) };
    let columns = Tensor::iota(shape, 1, DType::I32);
    match compare {
        Compare::Eq => rows.eq(columns),
        Compare::Ne => rows.ne(columns),
        Compare::Lt => rows.lt(columns),
        Compare::Le => rows.le(columns),
        Compare::Gt => rows.gt(columns),
        Compare::Ge => rows.ge(columns),
    }
}

pub(crate) fn from_elements<T: Element>(elements: Vec<T>, shape: Shape, operation: &str) -> Result<Tensor> {
    let count = elements.len();
    let size = shape.iter().try_fold(1usize, |size, &n| size.checked_mul(n));
    if size != Some(count) {
        let message =
            format!("{} cannot fill {}", remat_ir::counted(count, "element"), remat_ir::Aval::new(T::DTYPE, shape));
        return Err(Error::new(ErrorKind::Shape, operation, message));
    }
    Ok(Tensor::from_array(Array::new(remat_ir::Aval::new(T::DTYPE, shape), T::wrap(elements))?))
}

fn scalar_of(operation: &str, value: &impl Operand) -> Result<Scalar> {
    match value.argument() {
        super::Argument::Scalar(scalar) => Ok(scalar),
        super::Argument::Tensor(_) => Err(Error::new(ErrorKind::Argument, operation, "takes numbers")),
    }
}

fn arange<T: Element + Operand>(operation: &str, range: Range<T>, step: Scalar) -> Result<Tensor> {
    let dtype = T::DTYPE;
    let wrong = |message: &str| Err(Error::new(ErrorKind::Argument, operation, message));
    let (start, end) = (scalar_of(operation, &range.start)?, scalar_of(operation, &range.end)?);
    let count = match (start, end, step) {
        (_, _, Scalar::Int(0)) => return wrong("the step is 0"),
        (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) => {
            let (distance, step) = if step < 0 { (start - end, -step) } else { (end - start, step) };
            (distance.max(0) + step - 1) / step
        }
        (Scalar::Float(start), Scalar::Float(end), step) => {
            let step = match step {
                Scalar::Float(step) => step,
                Scalar::Int(step) => step as f64,
                Scalar::Bool(_) => return wrong("takes numbers"),
            };
            let count = ((end - start) / step).ceil();
            if step == 0.0 {
                return wrong("the step is 0");
            }
            if !count.is_finite() {
                return wrong("start, end and step must be finite");
            }
            count.max(0.0) as i128
        }
        _ => return wrong("takes numbers"),
    };
    let Ok(count) = usize::try_from(count) else { return wrong("there are more numbers than memory can hold") };
    let mut out = bind1(Iota { dtype, shape: Shape::from_elem(count, 1), axis: 0 }, &[]);
    if step != Scalar::Int(1) {
        out *= Tensor::literal(step.literal(operation, dtype)?);
    }
    let start = start.literal(operation, dtype)?;
    Ok(if start.is_zero() { out } else { out + Tensor::literal(start) })
}

macro_rules! from_scalar {
    ($($type:ty)*) => {
        $(impl From<$type> for Tensor {
            /// A scalar of the dtype of `value`.
            fn from(value: $type) -> Tensor {
                Tensor::from_array(Array::scalar(value))
            }
        })*
    };
}

from_scalar!(bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64);
