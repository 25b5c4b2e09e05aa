//! Conversions between dtypes.

use remat_ir::{BitcastConvertType, ConvertElementType, DType, ReducePrecision};

use crate::Tensor;
use crate::trace::{bind1, deferred};

impl Tensor {
    /// The elements converted to a dtype. A float becomes an integer by truncation and saturation, with NaN as 0; integers wrap around; as
    /// a bool, anything but zero is `true`; a narrower float is rounded, half to even. Nothing is computed if the tensor already has this
    /// dtype.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// let x = Tensor::new([1.7f32, -1.7, 300.0]);
    /// assert_eq!(x.to_dtype(DType::U8).to_vec::<u8>()?, [1, 0, 255]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Tensor {
        deferred(|| {
            if self.dtype()? == dtype { Ok(self.clone()) } else { Ok(bind1(ConvertElementType { dtype }, &[self])) }
        })
    }

    /// The same bits read as another dtype. A narrower dtype adds a last dimension for the parts of each element, the lowest bits first; a
    /// wider one takes its parts from the last dimension, which is dropped.
    ///
    /// # Errors
    /// If one dtype is bool and the other is not, or the size of the last dimension is not that of the parts of one wider element.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// assert_eq!(Tensor::new([1.0f32]).bitcast(DType::U32).to_vec::<u32>()?, [0x3f80_0000]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Tensor {
        bind1(BitcastConvertType { dtype }, &[self])
    }

    /// The elements rounded, half to even, to a float format of these numbers of bits, but kept in the same dtype. A format without
    /// mantissa bits has no NaN; NaN then becomes infinite, as XLA defines it, while JAX on the CPU keeps it.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([1.01f32]);
    /// assert_eq!(x.reduce_precision(8, 7).to_vec::<f32>()?, [1.0078125]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn reduce_precision(&self, exponent_bits: u32, mantissa_bits: u32) -> Tensor {
        bind1(ReducePrecision { exponent_bits, mantissa_bits }, &[self])
    }
}
