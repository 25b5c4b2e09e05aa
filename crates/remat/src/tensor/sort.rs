//! Sorting.

use std::borrow::Borrow;

use remat_ir::{DType, Error, ErrorKind, Iota, Sort, TopK};

use super::argument::{Int, axis};
use crate::Tensor;
use crate::trace::{bind, bind1, deferred, deferred_all};

impl Tensor {
    /// The elements along an axis in ascending order; NaN comes last.
    ///
    /// # Errors
    /// If the axis is out of range.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([3, 1, 2]).sort(0).to_vec::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(&self, axis: impl Int) -> Tensor {
        deferred(|| {
            let axis = self::axis("sort", self.aval()?, axis.get())?;
            Ok(bind1(Sort { axis, num_keys: 1, is_stable: true }, &[self]))
        })
    }

    /// The i32 indices that sort the elements along an axis in ascending order. Equal elements keep their order; NaN comes last.
    ///
    /// # Errors
    /// If the axis is out of range.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([3, 1, 2]).argsort(0).to_vec::<i32>()?, [1, 2, 0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort(&self, axis: impl Int) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let axis = self::axis("argsort", aval, axis.get())?;
            let positions = bind1(Iota { dtype: DType::I32, shape: aval.shape.clone(), axis }, &[]);
            let mut sorted = bind(Sort { axis, num_keys: 1, is_stable: true }, &[self, &positions], 2);
            sorted.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "argsort", "sort has no result"))
        })
    }

    /// Tensors of one shape sorted together along an axis: the first `keys` of them are compared, the first one before the others, and the
    /// rest are rearranged with them. Equal keys keep their order.
    ///
    /// # Errors
    /// If the axis is out of range, shapes differ, or `keys` is 0 or more than the number of tensors. Without tensors the result is empty.
    ///
    /// ```
    /// use remat::Tensor;
    /// let (x, y) = (Tensor::new([2, 1, 2]), Tensor::new([0.5f32, 1.5, 2.5]));
    /// let sorted = Tensor::sort_together(&[&x, &y], 0, 1);
    /// assert_eq!(sorted[1].to_vec::<f32>()?, [1.5, 0.5, 2.5]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn sort_together(tensors: &[impl Borrow<Tensor>], axis: impl Int, keys: usize) -> Vec<Tensor> {
        deferred_all(tensors.len(), || {
            let tensors: Vec<&Tensor> = tensors.iter().map(Borrow::borrow).collect();
            let Some(first) = tensors.first() else { return Ok(Vec::new()) };
            let axis = self::axis("sort_together", first.aval()?, axis.get())?;
            Ok(bind(Sort { axis, num_keys: keys, is_stable: true }, &tensors, tensors.len()))
        })
    }

    /// The `k` largest elements along the last axis, in descending order, and their i32 positions. Equal elements keep their order, and NaN
    /// is the largest. Zeros of both signs are equal, as in a sort; JAX's `top_k` puts 0 before -0 on the CPU.
    ///
    /// # Errors
    /// If there is no dimension, or it is smaller than `k`.
    ///
    /// ```
    /// use remat::Tensor;
    /// let (values, positions) = Tensor::new([3, 7, 5]).top_k(2);
    /// assert_eq!(values.to_vec::<i32>()?, [7, 5]);
    /// assert_eq!(positions.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn top_k(&self, k: usize) -> (Tensor, Tensor) {
        let mut out = bind(TopK { k }, &[self], 2).into_iter();
        match (out.next(), out.next()) {
            (Some(values), Some(positions)) => (values, positions),
            _ => {
                let failed = deferred(|| Err(Error::new(ErrorKind::Internal, "top_k", "has two results")));
                (failed.clone(), failed)
            }
        }
    }
}
