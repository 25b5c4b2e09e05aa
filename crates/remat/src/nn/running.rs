//! Batch norm with running statistics.

use remat_ir::{Error, Result};

use super::BatchNorm;
use crate::layer::pinned;
use crate::tensor::reduced_size;
use crate::trace::{current_loc, setters};
use crate::{DType, Tensor, Tree};

/// Averages of the means and variances that a [`BatchNorm`] saw in training, for use at inference. They are a state, not weights: a
/// training step takes them and returns the next ones, and no gradient is taken of them.
///
/// ```
/// use remat::nn::{BatchNorm, RunningStatistics};
/// use remat::Tensor;
/// let norm = BatchNorm::new(1).eps(0.0);
/// let statistics = RunningStatistics::new(1).momentum(0.5);
/// let x = Tensor::new([[1.0f32], [3.0]]);
/// let (y, statistics) = norm.train(&x, &statistics)?;
/// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0]);
/// // Halfway from 0 and 1 to the mean, 2, and the variance, of two examples 2.
/// assert_eq!((statistics.mean.to_vec::<f32>()?, statistics.variance.to_vec::<f32>()?), (vec![1.0], vec![1.5]));
/// let used = norm.eval(&Tensor::new([[1.0f32]]), &statistics);
/// assert_eq!(used.to_vec::<f32>()?, [0.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct RunningStatistics {
    /// `[channels]`, in f32 (f64 for weights in f64).
    pub mean: Tensor,
    /// `[channels]`, in the same dtype; unbiased, with the sum of squares divided by one less than the number of elements.
    pub variance: Tensor,
    /// The weight of a new batch in the averages; 0.1 by default.
    pub momentum: f64,
}

setters! { RunningStatistics:
    momentum(f64) => momentum;
}

impl RunningStatistics {
    /// Means of zeros and variances of ones, for weights of this dtype.
    #[track_caller]
    pub fn init(features: usize, dtype: DType) -> RunningStatistics {
        pinned(|| {
            let work = if dtype.is_float() { dtype.wide() } else { DType::F32 };
            RunningStatistics {
                mean: Tensor::zeros([features], work),
                variance: Tensor::ones([features], work),
                momentum: 0.1,
            }
        })
    }
}

impl BatchNorm {
    /// As [`BatchNorm::apply`], and the running statistics updated with those of this batch.
    ///
    /// # Errors
    /// As [`BatchNorm::apply`]; if the statistics have another shape or are not floats.
    #[track_caller]
    pub fn train(&self, x: &Tensor, statistics: &RunningStatistics) -> Result<(Tensor, RunningStatistics)> {
        let loc = current_loc();
        pinned(|| {
            let y = self.apply(x);
            let aval = y.aval()?;
            self.check_statistics("nn::BatchNorm::train", &statistics.mean, &statistics.variance)?;
            let work = aval.dtype.wide();
            let x = x.to_dtype(work).stop_gradient();
            let axes = self.reduced(aval.rank());
            let count = reduced_size(aval, &axes);
            let towards = |old: &Tensor, new: Tensor| -> Result<Tensor> {
                Ok(old + (new.to_dtype(old.dtype()?) - old) * statistics.momentum)
            };
            // The variance of a batch with one element is undefined, and leaves the average as it is.
            let variance = match count {
                0 | 1 => statistics.variance.clone(),
                _ => towards(&statistics.variance, x.variance_ddof(axes.clone(), 1))?,
            };
            let mean = if count == 0 { statistics.mean.clone() } else { towards(&statistics.mean, x.mean(axes))? };
            Ok((y, RunningStatistics { mean, variance, momentum: statistics.momentum }))
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// `x` normalised by running statistics: as [`BatchNorm::apply_given`].
    ///
    /// # Errors
    /// As [`BatchNorm::apply_given`].
    #[track_caller]
    pub fn eval(&self, x: &Tensor, statistics: &RunningStatistics) -> Tensor {
        self.apply_given(x, &statistics.mean, &statistics.variance)
    }
}
