//! Pooling: reductions over sliding windows.

use remat_ir::{Error, ErrorKind, ReduceWindow, Result, Shape, Window, WindowKind};

use super::conv::{Padding, spatial_numbers};
use super::elementwise::require_float;
use crate::Tensor;
use crate::trace::{bind1, deferred};

/// The windows of [`Tensor::max_pool`] and similar methods. They slide over the last `window.len()` dimensions; a window of size 1 leaves
/// its dimension as it is. An empty `Vec` means the window itself for strides, and ones for dilations.
///
/// ```
/// use remat::{Padding, PoolConfig};
/// let config = PoolConfig { strides: vec![1, 1], padding: Padding::Same, ..PoolConfig::new([3, 3]) };
/// # assert_eq!(config.window, [3, 3]);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PoolConfig {
    /// The size of a window.
    pub window: Vec<usize>,
    /// The distance between windows.
    pub strides: Vec<usize>,
    /// The padding of the operand.
    pub padding: Padding,
    /// The distance between the elements of a window.
    pub dilation: Vec<usize>,
    /// Whether an average counts the padding, as zeros; `true` by default.
    pub count_padding: bool,
}

impl PoolConfig {
    /// Adjacent windows of this size, without padding.
    pub fn new(window: impl Into<Vec<usize>>) -> PoolConfig {
        PoolConfig {
            window: window.into(),
            strides: Vec::new(),
            padding: Padding::Valid,
            dilation: Vec::new(),
            count_padding: true,
        }
    }
}

impl Tensor {
    /// The largest element of each window, ignoring padding.
    ///
    /// # Errors
    /// If there are more window sizes than dimensions, or the configuration is malformed.
    ///
    /// ```
    /// use remat::{PoolConfig, Tensor};
    /// let x = Tensor::arange(0..16).reshape([1, 1, 4, 4]);
    /// assert_eq!(x.max_pool(&PoolConfig::new([2, 2])).to_vec::<i32>()?, [5, 7, 13, 15]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool(&self, config: &PoolConfig) -> Tensor {
        deferred(|| self.reduce_window("max_pool", WindowKind::Max, config))
    }

    /// The smallest element of each window, ignoring padding.
    ///
    /// # Errors
    /// As [`Tensor::max_pool`].
    ///
    /// ```
    /// use remat::{PoolConfig, Tensor};
    /// let x = Tensor::arange(0..16).reshape([1, 1, 4, 4]);
    /// assert_eq!(x.min_pool(&PoolConfig::new([2, 2])).to_vec::<i32>()?, [0, 2, 8, 10]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn min_pool(&self, config: &PoolConfig) -> Tensor {
        deferred(|| self.reduce_window("min_pool", WindowKind::Min, config))
    }

    /// The sum of each window.
    ///
    /// # Errors
    /// As [`Tensor::max_pool`], or if the dtype is bool.
    ///
    /// ```
    /// use remat::{PoolConfig, Tensor};
    /// let x = Tensor::arange(0..4).reshape([1, 1, 4]);
    /// assert_eq!(x.sum_pool(&PoolConfig::new([2])).to_vec::<i32>()?, [1, 5]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn sum_pool(&self, config: &PoolConfig) -> Tensor {
        deferred(|| self.reduce_window("sum_pool", WindowKind::Sum, config))
    }

    /// The mean of each window; padding counts as zeros, or not at all with `count_padding: false`.
    ///
    /// # Errors
    /// As [`Tensor::max_pool`], or if the dtype is not a float.
    ///
    /// ```
    /// use remat::{PoolConfig, Tensor};
    /// let x = Tensor::arange(0.0..4.0f32).reshape([1, 1, 4]);
    /// assert_eq!(x.avg_pool(&PoolConfig::new([2])).to_vec::<f32>()?, [0.5, 2.5]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool(&self, config: &PoolConfig) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            require_float("avg_pool", aval)?;
            let sums = self.reduce_window("avg_pool", WindowKind::Sum, config)?;
            if config.count_padding {
                return Ok(sums / config.window.iter().fold(1usize, |size, &n| size.saturating_mul(n)));
            }
            // The number of elements in a window does not depend on the dimensions that it leaves alone.
            let slid = aval.rank() - config.window.len();
            let shape: Shape = (0..aval.rank()).map(|d| if d < slid { 1 } else { aval.shape[d] }).collect();
            let ones = Tensor::ones(&shape[..], aval.dtype);
            Ok(sums / ones.reduce_window("avg_pool", WindowKind::Sum, config)?)
        })
    }

    fn reduce_window(&self, name: &str, kind: WindowKind, config: &PoolConfig) -> Result<Tensor> {
        let aval = self.aval()?;
        let slid = config.window.len();
        let mut op = ReduceWindow {
            kind,
            window: Window {
                dimensions: Shape::new(),
                strides: Shape::new(),
                padding: Vec::new(),
                base_dilation: Shape::from_elem(1, aval.rank()),
                window_dilation: Shape::new(),
            },
        };
        let Some(left_alone) = aval.rank().checked_sub(slid) else {
            let message = format!("a window of {slid} dimensions does not fit {aval}");
            return Err(Error::new(ErrorKind::Argument, name, message));
        };
        let numbers = |what: &str, numbers: &[usize]| spatial_numbers(name, what, numbers, slid);
        let window = numbers("window", &config.window)?;
        let strides = if config.strides.is_empty() { window.clone() } else { numbers("strides", &config.strides)? };
        let dilation = numbers("dilation", &config.dilation)?;
        let windows: Vec<usize> =
            (0..slid).map(|i| (window[i] - 1).saturating_mul(dilation[i]).saturating_add(1)).collect();
        let padding = config.padding.resolve(name, &aval.shape[left_alone..], &windows, &strides)?;
        let all = |numbers: &[usize]| std::iter::repeat_n(1, left_alone).chain(numbers.iter().copied()).collect();
        op.window.dimensions = all(&window);
        op.window.strides = all(&strides);
        op.window.window_dilation = all(&dilation);
        op.window.padding = std::iter::repeat_n((0, 0), left_alone).chain(padding).collect();
        Ok(bind1(op, &[self]))
    }
}
