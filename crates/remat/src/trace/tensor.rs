//! The tensor type.

use std::sync::Arc;

use remat_ir::{Array, Aval, DType, Element, Error, ErrorKind, Literal, Loc, Result, Value, Var, counted};

use super::scope::current_loc;
use super::tracer::{TraceId, escaped, is_open};

/// An array: concrete, traced, abstract or failed.
///
/// Rank, dtype and memory are run-time values. Cloning is cheap, since elements are shared. A concrete tensor is `Send` and `Sync`. It is
/// in the host's memory or on a [`Device`](crate::Device), where it may be pending, and is copied to the host when it is read. Inside a
/// trace a tensor is a variable of the program being traced. A failed tensor carries the error of the operation that created it: functions
/// that return a tensor defer their errors, and reading a tensor or ending the trace reports the first one. An abstract tensor has dtype
/// and shape but no elements, and is an argument for tracing only.
///
/// ```
/// use remat::Tensor;
/// let x = Tensor::from(vec![1.0f32, 2.0, 3.0]);
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// assert_eq!(x.shape()?, [3]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor(pub(crate) Repr);

/// The kinds of tensors.
#[derive(Clone)]
pub(crate) enum Repr {
    Concrete(Value),
    /// Shared, so that a tensor has the size of an array and a list of arrays becomes a list of tensors in place.
    Traced(Arc<Variable>),
    /// Dtype and shape only.
    Abstract(Arc<Aval>),
    Failed(Error),
}

/// A variable of an open trace.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// The trace that it belongs to.
    pub(crate) trace: TraceId,
    pub(crate) var: Var,
    pub(crate) aval: Aval,
    /// Where it was created, for the error of an escaped tensor.
    pub(crate) loc: Loc,
}

impl Tensor {
    /// A failed tensor.
    pub(crate) fn failed(error: Error) -> Tensor {
        Tensor(Repr::Failed(error))
    }

    /// A concrete tensor of this array.
    pub fn from_array(array: Array) -> Tensor {
        Tensor::from_value(array.into())
    }

    /// A scalar, which is a literal in a program.
    pub(crate) fn literal(literal: Literal) -> Tensor {
        Tensor::from_array(Array::full(literal, []))
    }

    /// A scalar of this value, converted to `dtype` as [`Literal::from_f64`] does.
    pub(crate) fn scalar(dtype: DType, value: f64) -> Tensor {
        Tensor::literal(Literal::from_f64(dtype, value))
    }

    /// A concrete tensor of this value.
    pub fn from_value(value: Value) -> Tensor {
        Tensor(Repr::Concrete(value))
    }

    /// A tensor of this dtype and shape without elements, to trace a function with.
    pub(crate) fn from_aval(aval: Aval) -> Tensor {
        Tensor(Repr::Abstract(aval.into()))
    }

    /// The array of a concrete tensor. If it is on a device, this waits for it and copies it to the host, once.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 2.0]).array()?.aval().bytes(), 8);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a failed tensor; of kind [`ErrorKind::Traced`] if the tensor is traced or abstract; the error of the run that computes
    /// it.
    #[track_caller]
    pub fn array(&self) -> Result<&Array> {
        self.read("array")
    }

    /// As [`Tensor::array`], for a method of this name.
    #[track_caller]
    pub(crate) fn read(&self, operation: &str) -> Result<&Array> {
        self.value(operation)?.host()
    }

    /// The value of a concrete tensor, for a method of this name.
    #[track_caller]
    pub(crate) fn value(&self, operation: &str) -> Result<&Value> {
        match &self.0 {
            Repr::Concrete(value) => Ok(value),
            Repr::Failed(error) => Err(error.clone()),
            Repr::Abstract(aval) => Err(no_elements(operation, aval).at(current_loc())),
            Repr::Traced(traced) if !is_open(traced.trace) => Err(escaped(operation, traced).at(current_loc())),
            Repr::Traced(traced) => {
                let message = format!(
                    "the value of a traced tensor ({}) is not known while its function is traced; \
                     return it from the function, or compute with `select`, `cond` or `while_loop` instead",
                    traced.aval
                );
                Err(Error::new(ErrorKind::Traced, operation, message).at(current_loc()))
            }
        }
    }

    /// Dtype and shape.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 2.0]).aval()?.to_string(), "f32[2]");
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a failed tensor.
    pub fn aval(&self) -> Result<&Aval> {
        match &self.0 {
            Repr::Concrete(array) => Ok(array.aval()),
            Repr::Traced(traced) => Ok(&traced.aval),
            Repr::Abstract(aval) => Ok(aval),
            Repr::Failed(error) => Err(error.clone()),
        }
    }

    /// The dtype.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// assert_eq!(Tensor::new([1u8, 2]).dtype()?, DType::U8);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a failed tensor.
    pub fn dtype(&self) -> Result<DType> {
        Ok(self.aval()?.dtype)
    }

    /// The sizes of all dimensions, outermost first.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 2, 3], [4, 5, 6]]).shape()?, [2, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a failed tensor.
    pub fn shape(&self) -> Result<&[usize]> {
        Ok(&self.aval()?.shape)
    }

    /// The sizes of a tensor of `N` dimensions.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// let x = Tensor::zeros([2, 3, 4], DType::F32);
    /// let [batch, tokens, width] = x.dims()?;
    /// assert_eq!((batch, tokens, width), (2, 3, 4));
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a failed tensor; if it has another number of dimensions.
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        let aval = self.aval()?;
        let loc = current_loc();
        <[usize; N]>::try_from(&aval.shape[..]).map_err(|_| {
            let message = format!("{aval} has {}, not {N}", counted(aval.rank(), "dimension"));
            Error::new(ErrorKind::Shape, "dims", message).at(loc)
        })
    }

    /// The error of a failed tensor.
    pub fn error(&self) -> Option<&Error> {
        match &self.0 {
            Repr::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the tensor is a variable of a program being traced.
    pub fn is_traced(&self) -> bool {
        matches!(self.0, Repr::Traced(_))
    }

    /// Whether the tensor has dtype and shape but no elements.
    pub fn is_abstract(&self) -> bool {
        matches!(self.0, Repr::Abstract(_))
    }

    /// The elements in row-major order.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).t().to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a failed tensor; if it is traced or abstract; if `T` is not its dtype.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.elements::<T>("to_vec")?.to_vec())
    }

    #[track_caller]
    fn elements<T: Element>(&self, operation: &str) -> Result<&[T]> {
        let array = self.read(operation)?;
        let Some(slice) = array.as_slice::<T>() else {
            let message = format!(
                "{} cannot be read as {}; convert it first with .to_dtype(DType::{:?})",
                array.aval(),
                T::DTYPE,
                T::DTYPE
            );
            return Err(Error::new(ErrorKind::DType, operation, message).at(current_loc()));
        };
        Ok(slice)
    }

    /// The value of a tensor of one element.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.5f32, 2.0]).sum(..).item::<f32>()?, 3.5);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::to_vec`], or if it does not have exactly one element.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let array = self.read("item")?;
        if array.data().len() != 1 {
            let message = format!("takes a tensor of one element and got {}; `to_vec` reads several", array.aval());
            return Err(Error::new(ErrorKind::Shape, "item", message).at(current_loc()));
        }
        Ok(self.elements::<T>("item")?[0])
    }
}

/// The error of reading an abstract tensor, or of computing with one.
pub(super) fn no_elements(operation: &str, aval: &Aval) -> Error {
    let message = format!(
        "the tensor ({aval}) is abstract: it has no elements, and stands for an argument where a function is only traced"
    );
    Error::new(ErrorKind::Traced, operation, message)
}
