//! The one tensor type.

use std::sync::Arc;

use remat_ir::{Array, Aval, DType, Element, Error, ErrorKind, Loc, Result, Var, counted};

use super::scope::current_loc;
use super::tracer::{TraceId, escaped, is_open};

/// An array: concrete, traced or failed.
///
/// Rank, dtype and memory are run-time values. Cloning is cheap: elements are shared. A concrete tensor is `Send` and
/// `Sync`. Inside a trace a tensor stands for a variable of the program that is being traced. A failed tensor carries the
/// error of the operation that made it: what returns a tensor never fails, it defers, and what reads one back, or ends
/// the trace, reports the first error.
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
    Concrete(Array),
    /// Shared, so that a tensor is as large as an array: a list of arrays becomes a list of tensors where it lies.
    Traced(Arc<Variable>),
    Failed(Error),
}

/// A variable of an open trace.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// The trace that it belongs to.
    pub(crate) trace: TraceId,
    pub(crate) var: Var,
    pub(crate) aval: Aval,
    /// Where it was made, for the error of an escaped tensor.
    pub(crate) loc: Loc,
}

impl Tensor {
    /// A failed tensor.
    pub(crate) fn failed(error: Error) -> Tensor {
        Tensor(Repr::Failed(error))
    }

    /// A concrete tensor of this array.
    pub fn from_array(array: Array) -> Tensor {
        Tensor(Repr::Concrete(array))
    }

    /// The array of a concrete tensor.
    ///
    /// # Errors
    /// The error of a failed tensor; of kind [`ErrorKind::Traced`] if the tensor is traced.
    #[track_caller]
    pub fn array(&self) -> Result<&Array> {
        self.read("array")
    }

    /// As [`Tensor::array`], for a method of this name.
    #[track_caller]
    pub(crate) fn read(&self, operation: &str) -> Result<&Array> {
        match &self.0 {
            Repr::Concrete(array) => Ok(array),
            Repr::Failed(error) => Err(error.clone()),
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
    /// # Errors
    /// The error of a failed tensor.
    pub fn aval(&self) -> Result<&Aval> {
        match &self.0 {
            Repr::Concrete(array) => Ok(array.aval()),
            Repr::Traced(traced) => Ok(&traced.aval),
            Repr::Failed(error) => Err(error.clone()),
        }
    }

    /// The dtype.
    ///
    /// # Errors
    /// The error of a failed tensor.
    pub fn dtype(&self) -> Result<DType> {
        Ok(self.aval()?.dtype)
    }

    /// The sizes of all dimensions, outermost first.
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

    /// Whether the tensor stands for a variable of a program that is being traced.
    pub fn is_traced(&self) -> bool {
        matches!(self.0, Repr::Traced(_))
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// The error of a failed tensor; if it is traced; if `T` is not its dtype.
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
    /// # Errors
    /// As [`Tensor::to_vec`], or if it has not exactly one element.
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
