//! Conversions from and to `ndarray` arrays.

use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};
use remat_ir::{Element, Error, ErrorKind, Result};

use super::construct::from_elements;
use crate::Tensor;
use crate::trace::{current_loc, deferred};

impl<T: Element, S: Data<Elem = T>, D: Dimension> From<&ArrayBase<S, D>> for Tensor {
    /// A tensor of the elements of an array in any layout.
    #[track_caller]
    fn from(array: &ArrayBase<S, D>) -> Tensor {
        deferred(|| from_elements(array.iter().copied().collect(), array.shape().into(), "from"))
    }
}

impl<T: Element, S: Data<Elem = T>, D: Dimension> From<ArrayBase<S, D>> for Tensor {
    /// A tensor of the elements of an array in any layout.
    #[track_caller]
    fn from(array: ArrayBase<S, D>) -> Tensor {
        Tensor::from(&array)
    }
}

impl Tensor {
    /// The elements as an array.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    ///
    /// ```
    /// use ndarray::array;
    /// use remat::Tensor;
    /// let x = Tensor::from(array![[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.t().to_ndarray::<f32>()?, array![[1.0f32, 3.0], [2.0, 4.0]].into_dyn());
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let loc = current_loc();
        let elements = self.to_vec::<T>()?;
        ArrayD::from_shape_vec(IxDyn(self.shape()?), elements).map_err(|error| {
            Error::new(ErrorKind::Shape, "to_ndarray", format!("{error}, of {:?}", self.shape())).at(loc)
        })
    }
}
