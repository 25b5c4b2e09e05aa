//! Arguments of methods other than tensors: scalars, axes, shapes.

use remat_ir::{Aval, DType, Error, ErrorKind, Literal, Result, Shape, bf16, f16};

use crate::Tensor;

/// A Rust number or bool that is used with a tensor, whose dtype it takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    /// A bool.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
}

impl Scalar {
    /// The literal of this dtype.
    ///
    /// # Errors
    /// If the dtype cannot represent the value: 0.5 is not an integer, -1 is not unsigned, 2 is not a bool, 300 does not fit in `u8`, and
    /// 1e6 does not fit in `f16`. Rounding to a float is not an error.
    pub fn literal(self, operation: &str, dtype: DType) -> Result<Literal> {
        let wrong = |what: String, conversion: DType| {
            let message =
                format!("{what} and the tensor holds {dtype}; convert it with .to_dtype(DType::{conversion:?})");
            Err(Error::new(ErrorKind::DType, operation, message))
        };
        match self {
            Scalar::Bool(value) if dtype == DType::Bool => Ok(Literal::from_bool(value)),
            Scalar::Bool(value) => wrong(format!("the scalar {value} is a bool"), DType::Bool),
            Scalar::Int(value) if dtype == DType::Bool => wrong(format!("the scalar {value} is a number"), DType::I32),
            Scalar::Int(value) => {
                let literal = Literal::from_i128(dtype, value);
                if literal.as_i128().is_some_and(|kept| kept != value) {
                    return Err(out_of_range(operation, &value.to_string(), dtype));
                }
                finite(operation, literal, &value.to_string())
            }
            Scalar::Float(value) if dtype.is_float() && !value.is_finite() => Ok(Literal::from_f64(dtype, value)),
            Scalar::Float(value) if dtype.is_float() => {
                finite(operation, Literal::from_f64(dtype, value), &format!("{value:?}"))
            }

            Scalar::Float(value) => wrong(format!("the scalar {value:?} is a float"), DType::F32),
        }
    }
}

/// The literal of a finite number, if it is one itself.
fn finite(operation: &str, literal: Literal, text: &str) -> Result<Literal> {
    if literal.as_f64().is_finite() { Ok(literal) } else { Err(out_of_range(operation, text, literal.dtype())) }
}

fn out_of_range(operation: &str, value: &str, dtype: DType) -> Error {
    Error::new(ErrorKind::DType, operation, format!("the scalar {value} is out of range for {dtype}"))
}

/// A tensor or a scalar.
#[derive(Clone, Copy)]
pub enum Argument<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A scalar, which takes the dtype of the tensor beside it.
    Scalar(Scalar),
}

impl Argument<'_> {
    /// The tensor, or the scalar in this dtype.
    pub(crate) fn of_dtype(&self, operation: &str, dtype: DType) -> Result<Tensor> {
        match self {
            Argument::Tensor(tensor) => Ok((*tensor).clone()),
            Argument::Scalar(scalar) => Ok(Tensor::literal(scalar.literal(operation, dtype)?)),
        }
    }

    /// The dtype of a tensor.
    pub(crate) fn dtype(&self) -> Result<Option<DType>> {
        match self {
            Argument::Tensor(tensor) => tensor.dtype().map(Some),
            Argument::Scalar(_) => Ok(None),
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An operand of an operation: a tensor, a reference to one, or a Rust number or bool.
///
/// A number takes the dtype of the tensor with which it is used, so `&x * 2` and `&x * 0.5` work for any float dtype. A number that the
/// dtype cannot represent is an error.
///
/// ```
/// use remat::Tensor;
/// let x = Tensor::new([1.0f32, 2.0]);
/// assert_eq!((&x * 2).to_vec::<f32>()?, [2.0, 4.0]);
/// assert!((Tensor::new([1, 2]) * 2.5).error().is_some());
/// # Ok::<(), remat::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operand of a tensor's operation",
    label = "neither a tensor nor a number",
    note = "`Tensor::new` makes a tensor of an array, a slice or a `Vec`"
)]
pub trait Operand: sealed::Sealed {
    /// The tensor or scalar.
    fn argument(&self) -> Argument<'_>;
}

impl sealed::Sealed for Tensor {}
impl Operand for Tensor {
    fn argument(&self) -> Argument<'_> {
        Argument::Tensor(self)
    }
}

impl<T: Operand + ?Sized> sealed::Sealed for &T {}
impl<T: Operand + ?Sized> Operand for &T {
    fn argument(&self) -> Argument<'_> {
        (**self).argument()
    }
}

macro_rules! scalars {
    ($($type:ty => |$x:ident| $scalar:expr;)*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Operand for $type {
                fn argument(&self) -> Argument<'_> {
                    let $x = *self;
                    Argument::Scalar($scalar)
                }
            }
        )*
    };
}

scalars! {
    bool => |x| Scalar::Bool(x);
    i8 => |x| Scalar::Int(x.into());
    i16 => |x| Scalar::Int(x.into());
    i32 => |x| Scalar::Int(x.into());
    i64 => |x| Scalar::Int(x.into());
    isize => |x| Scalar::Int(x as i128);
    u8 => |x| Scalar::Int(x.into());
    u16 => |x| Scalar::Int(x.into());
    u32 => |x| Scalar::Int(x.into());
    u64 => |x| Scalar::Int(x.into());
    usize => |x| Scalar::Int(x as i128);
    f16 => |x| Scalar::Float(x.to_f64());
    bf16 => |x| Scalar::Float(x.to_f64());
    f32 => |x| Scalar::Float(x.into());
    f64 => |x| Scalar::Float(x);
}

/// A Rust integer that can be an axis, an index or a size.
pub trait Int: Copy {
    /// The value.
    fn get(self) -> i64;
}

/// One or several integers: the sizes of a shape. A number, an array, a slice or a `Vec`; `[]` is the shape of a scalar.
pub trait Dims {
    /// The integers.
    fn to_ints(&self) -> Vec<i64>;

    /// The integers as a shape.
    ///
    /// # Errors
    /// If one is negative.
    fn to_shape(&self, operation: &str) -> Result<Shape> {
        let size = |n: i64| {
            usize::try_from(n).map_err(|_| Error::new(ErrorKind::Shape, operation, format!("the size {n} is negative")))
        };
        self.to_ints().into_iter().map(size).collect()
    }
}

impl<T: Int, const N: usize> Dims for [T; N] {
    fn to_ints(&self) -> Vec<i64> {
        self.iter().map(|n| n.get()).collect()
    }
}

impl<T: Int> Dims for [T] {
    fn to_ints(&self) -> Vec<i64> {
        self.iter().map(|n| n.get()).collect()
    }
}

impl<T: Int> Dims for Vec<T> {
    fn to_ints(&self) -> Vec<i64> {
        self.as_slice().to_ints()
    }
}

impl<T: Dims + ?Sized> Dims for &T {
    fn to_ints(&self) -> Vec<i64> {
        (**self).to_ints()
    }
}

impl Dims for () {
    fn to_ints(&self) -> Vec<i64> {
        Vec::new()
    }
}

/// The dimensions that a method works on: `..` for all, a number, an array, a slice or a `Vec`; negative numbers count from the last. A
/// reduction keeps dimensions wrapped in [`keep`] with size 1.
///
/// ```
/// use remat::argument::keep;
/// use remat::Tensor;
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(x.sum(..).item::<f32>()?, 10.0);
/// assert_eq!(x.sum(-1).to_vec::<f32>()?, [3.0, 7.0]);
/// assert_eq!(x.sum(keep([0, 1])).shape()?, [1, 1]);
/// # Ok::<(), remat::Error>(())
/// ```
pub trait Axes {
    /// The dimensions of a tensor of this rank, in the order given.
    ///
    /// # Errors
    /// If one is out of range or given twice.
    fn resolve(&self, operation: &str, aval: &Aval) -> Result<Shape>;

    /// Whether a reduction keeps the dimensions with size 1.
    fn keeps(&self) -> bool {
        false
    }

    /// Whether this is `..`.
    fn is_all(&self) -> bool {
        false
    }
}

impl Axes for std::ops::RangeFull {
    fn is_all(&self) -> bool {
        true
    }

    fn resolve(&self, _: &str, aval: &Aval) -> Result<Shape> {
        Ok((0..aval.rank()).collect())
    }
}

macro_rules! ints {
    ($($type:ty)*) => {
        $(
            impl Int for $type {
                fn get(self) -> i64 {
                    // A value that does not fit is out of range for every use of an integer.
                    i64::try_from(self).unwrap_or(i64::MAX)
                }
            }

            impl Dims for $type {
                fn to_ints(&self) -> Vec<i64> {
                    vec![self.get()]
                }
            }

            impl Axes for $type {
                fn resolve(&self, operation: &str, aval: &Aval) -> Result<Shape> {
                    Ok(Shape::from_elem(axis(operation, aval, self.get())?, 1))
                }
            }
        )*
    };
}

ints!(i32 i64 isize u32 u64 usize);

macro_rules! axes_of_sequences {
    ($($type:ty, [$($generics:tt)*];)*) => {
        $(impl<T: Int, $($generics)*> Axes for $type {
            fn resolve(&self, operation: &str, aval: &Aval) -> Result<Shape> {
                distinct_axes(operation, aval, &self.to_ints())
            }
        })*
    };
}

axes_of_sequences! {
    [T; N], [const N: usize];
    [T], [];
    Vec<T>, [];
}

impl Axes for () {
    fn resolve(&self, _: &str, _: &Aval) -> Result<Shape> {
        Ok(Shape::new())
    }
}

impl<T: Axes + ?Sized> Axes for &T {
    fn resolve(&self, operation: &str, aval: &Aval) -> Result<Shape> {
        (**self).resolve(operation, aval)
    }

    fn keeps(&self) -> bool {
        (**self).keeps()
    }

    fn is_all(&self) -> bool {
        (**self).is_all()
    }
}

/// Axes that a reduction keeps with size 1; see [`keep`].
#[derive(Clone, Copy, Debug)]
pub struct Keep<A>(A);

/// Axes that a reduction keeps with size 1, so that the result broadcasts against the operand: NumPy's `keepdims`.
///
/// ```
/// use remat::argument::keep;
/// use remat::Tensor;
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 5.0]]);
/// let centered = &x - x.mean(keep(1));
/// assert_eq!(centered.to_vec::<f32>()?, [-0.5, 0.5, -1.0, 1.0]);
/// # Ok::<(), remat::Error>(())
/// ```
pub fn keep<A: Axes>(axes: A) -> Keep<A> {
    Keep(axes)
}

impl<A: Axes> Axes for Keep<A> {
    fn resolve(&self, operation: &str, aval: &Aval) -> Result<Shape> {
        self.0.resolve(operation, aval)
    }

    fn keeps(&self) -> bool {
        true
    }

    fn is_all(&self) -> bool {
        self.0.is_all()
    }
}

/// One dimension of a tensor; negative numbers count from the last.
pub(crate) fn axis(operation: &str, aval: &Aval, axis: i64) -> Result<usize> {
    axis_of(aval.rank(), axis).ok_or_else(|| {
        let message = format!("axis {axis} is out of range for {aval}, which has {}", dimensions(aval.rank()));
        Error::new(ErrorKind::Axis, operation, message)
    })
}

/// Dimension `axis` of `rank`; a negative axis counts from the last.
pub(crate) fn axis_of(rank: usize, axis: i64) -> Option<usize> {
    let rank = rank as i64;
    (-rank..rank).contains(&axis).then(|| axis.rem_euclid(rank) as usize)
}

/// Several different dimensions.
pub(crate) fn distinct_axes(operation: &str, aval: &Aval, axes: &[i64]) -> Result<Shape> {
    let mut out = Shape::new();
    for &given in axes {
        let axis = axis(operation, aval, given)?;
        if out.contains(&axis) {
            let message = format!("axis {given} of {aval} is given twice");
            return Err(Error::new(ErrorKind::Axis, operation, message));
        }
        out.push(axis);
    }
    Ok(out)
}

/// `1 dimension`, `2 dimensions`.
pub(crate) fn dimensions(rank: usize) -> String {
    if rank == 1 { "1 dimension".to_string() } else { format!("{rank} dimensions") }
}
