//! Comparing the elements of concrete tensors.

use remat_ir::{Error, ErrorKind, Literal, Result};

use crate::Tensor;
use crate::trace::current_loc;

impl Tensor {
    /// Whether every element is within `atol + rtol * |expected|` of the expected one, for tests. NaN is close to NaN, and an infinity to
    /// itself.
    ///
    /// # Errors
    /// The error of a failed tensor; if one is traced; if dtypes or shapes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// let third = Tensor::from(1.0f32) / 3;
    /// assert!(third.allclose(&Tensor::from(0.33333f32), 1e-4, 0.0)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn allclose(&self, expected: &Tensor, rtol: f64, atol: f64) -> Result<bool> {
        let (x, y) = (self.read("allclose")?, expected.read("allclose")?);
        if x.dtype() != y.dtype() || x.shape() != y.shape() {
            let message = format!("{} and {} cannot be compared", x.aval(), y.aval());
            return Err(Error::new(ErrorKind::Shape, "allclose", message).at(current_loc()));
        }
        Ok((0..x.data().len()).all(|i| match (x.data().get(i), y.data().get(i)) {
            (Some(a), Some(b)) => close(a, b, rtol, atol),
            _ => false,
        }))
    }
}

fn close(a: Literal, b: Literal, rtol: f64, atol: f64) -> bool {
    let (x, y) = (a.as_f64(), b.as_f64());
    let distance = match (a.as_i128(), b.as_i128()) {
        // 64-bit integers differ by less than f64 can tell apart.
        (Some(a), Some(b)) => (a - b).abs() as f64,
        _ if x == y || x.is_nan() && y.is_nan() => 0.0,
        _ if y.is_infinite() => return false,
        _ => (x - y).abs(),
    };
    distance == 0.0 || distance <= atol + rtol * y.abs()
}
