//! The text of tensors: that of their arrays.

use std::fmt;

use crate::Tensor;
use crate::trace::Repr;

impl fmt::Display for Tensor {
    /// The elements of a concrete tensor as NumPy prints them, `Traced<f32[3]>` for a traced one, or the error.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([[1.0f32, 2.5], [-10.0, 0.125]]);
    /// assert_eq!(x.to_string(), "[[  1.      2.5  ]\n [-10.      0.125]]");
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Concrete(value) => match value.host() {
                Ok(array) => write!(f, "{array}"),
                Err(error) => write!(f, "{error}"),
            },
            Repr::Traced(traced) => write!(f, "Traced<{}>", traced.aval),
            Repr::Abstract(aval) => write!(f, "Abstract<{aval}>"),
            Repr::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Debug for Tensor {
    /// As `Display`, with dtype and shape in front.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(format!("{:?}", Tensor::new([1, 2])), "i32[2] [1 2]");
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Concrete(value) => {
                let separator = if value.aval().rank() > 1 { '\n' } else { ' ' };
                write!(f, "{}{separator}{self}", value.aval())
            }
            Repr::Traced(_) | Repr::Abstract(_) => write!(f, "{self}"),
            Repr::Failed(error) => write!(f, "Failed({error})"),
        }
    }
}
