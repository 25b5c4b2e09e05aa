//! Learning rate schedules.

use std::f64::consts::PI;

use crate::trace::pinned;
use crate::{DType, Tensor};

/// A learning rate as a function of the number of steps done.
///
/// A number converts to a constant rate. For a schedule that is not listed here, compute the rate in each step from the step in the
/// optimizer's state, and pass this scalar tensor as the learning rate ([`Schedule::Rate`]).
///
/// ```
/// use remat::{DType, Tensor, optim::Schedule};
/// let rate = Schedule::WarmupCosine { start: 0.0, peak: 1.0, end: 0.1, warmup_steps: 10, steps: 110 };
/// let at = |step: i32| rate.at(&Tensor::from(step), DType::F64).item::<f64>();
/// assert_eq!(at(5)?, 0.5);
/// assert_eq!(at(10)?, 1.0);
/// assert!((at(60)? - 0.55).abs() < 1e-12);
/// assert_eq!(at(1000)?, 0.1);
///
/// let down = Schedule::Piecewise { start: 1.0, scales: vec![(5, 0.5), (8, 0.5)] };
/// let joined = Schedule::Joined {
///     first: Box::new(Schedule::Linear { start: 0.0, end: 1.0, steps: 10 }),
///     then: vec![(10, down)],
/// };
/// let at = |step: i32| joined.at(&Tensor::from(step), DType::F64).item::<f64>();
/// assert_eq!([at(5)?, at(14)?, at(15)?, at(18)?], [0.5, 1.0, 0.5, 0.25]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Schedule {
    /// The same rate in every step.
    Constant(f64),
    /// Linear from `start` to `end` over `steps` steps, then `end`.
    Linear {
        /// The rate of the first step.
        start: f64,
        /// The rate from step `steps` on.
        end: f64,
        /// The number of steps from `start` to `end`.
        steps: u64,
    },
    /// Half a period of a cosine from `start` to `end` over `steps` steps, then `end`. Source: Loshchilov and Hutter, "SGDR", ICLR 2017.
    Cosine {
        /// The rate of the first step.
        start: f64,
        /// The rate from step `steps` on.
        end: f64,
        /// The number of steps from `start` to `end`.
        steps: u64,
    },
    /// Linear warmup from `start` to `peak`, then half a period of a cosine from `peak` to `end`, then `end`.
    WarmupCosine {
        /// The rate of the first step.
        start: f64,
        /// The rate of step `warmup_steps`.
        peak: f64,
        /// The rate from step `steps` on.
        end: f64,
        /// The number of warmup steps.
        warmup_steps: u64,
        /// The number of steps of warmup and cosine together.
        steps: u64,
    },
    /// A rate that is constant except for jumps at given steps.
    Piecewise {
        /// The rate of the first step.
        start: f64,
        /// Pairs of a step and a factor: from this step on, the rate is multiplied by the factor, in addition to earlier ones.
        scales: Vec<(u64, f64)>,
    },
    /// Schedules one after the other, each counting steps from its own start.
    Joined {
        /// The schedule from the first step on.
        first: Box<Schedule>,
        /// The following schedules, with the step at which each begins.
        then: Vec<(u64, Schedule)>,
    },
    /// This rate, a scalar, for custom schedules.
    Rate(Tensor),
}

impl Schedule {
    /// The rate after `step` steps, where `step` is an integer scalar: a scalar of `dtype`, which must be a float.
    #[track_caller]
    pub fn at(&self, step: &Tensor, dtype: DType) -> Tensor {
        pinned(|| match *self {
            Schedule::Constant(rate) => Tensor::scalar(dtype, rate),
            Schedule::Linear { start, end, steps } => line(&step.to_dtype(dtype), dtype, start, end, steps),
            Schedule::Cosine { start, end, steps } => cosine(&step.to_dtype(dtype), dtype, start, end, steps),
            Schedule::WarmupCosine { start, peak, end, warmup_steps, steps } => {
                let step = step.to_dtype(dtype);
                let rest = &step - warmup_steps as f64;
                let after = cosine(&rest, dtype, peak, end, steps.saturating_sub(warmup_steps));
                rest.lt(0).select(line(&step, dtype, start, peak, warmup_steps), after)
            }
            Schedule::Piecewise { start, ref scales } => {
                let mut scales = scales.clone();
                scales.sort_by_key(|&(from, _)| from);
                let mut value = start;
                scales.into_iter().fold(Tensor::scalar(dtype, start), |rate, (from, scale)| {
                    value *= scale;
                    step.lt(last(from)).select(rate, value)
                })
            }
            Schedule::Joined { ref first, ref then } => {
                let mut then: Vec<&(u64, Schedule)> = then.iter().collect();
                then.sort_by_key(|&&(from, _)| from);
                then.into_iter().fold(first.at(step, dtype), |rate, (from, schedule)| {
                    step.lt(last(*from)).select(rate, schedule.at(&(step - last(*from)), dtype))
                })
            }
            Schedule::Rate(ref rate) => rate.to_dtype(dtype),
        })
    }
}

impl From<f64> for Schedule {
    /// A constant rate.
    fn from(rate: f64) -> Schedule {
        Schedule::Constant(rate)
    }
}

impl From<Tensor> for Schedule {
    /// This rate, a scalar.
    fn from(rate: Tensor) -> Schedule {
        Schedule::Rate(rate)
    }
}

/// A number of steps as i32, the type in which steps are counted; larger numbers saturate.
fn last(steps: u64) -> i32 {
    i32::try_from(steps).unwrap_or(i32::MAX)
}

fn line(step: &Tensor, dtype: DType, start: f64, end: f64, steps: u64) -> Tensor {
    if steps == 0 {
        return Tensor::scalar(dtype, end);
    }
    (start - end) * (1 - part(step, steps)) + end
}

fn cosine(step: &Tensor, dtype: DType, start: f64, end: f64, steps: u64) -> Tensor {
    if steps == 0 {
        return Tensor::scalar(dtype, end);
    }
    (start - end) * (((part(step, steps) * PI).cos() + 1) * 0.5) + end
}

/// The share of `steps` that is done, up to 1.
fn part(step: &Tensor, steps: u64) -> Tensor {
    step.clamp(0, steps as f64) / steps as f64
}

/// The constructor of an optimizer with this field as its learning rate.
macro_rules! of_rate {
    ($of:ident: $($rate:ident).+) => {
        impl $of {
            /// The default with this learning rate: a number, a [`Schedule`](crate::optim::Schedule), or a scalar tensor.
            #[must_use]
            pub fn new(learning_rate: impl Into<$crate::optim::Schedule>) -> $of {
                let mut optimizer = $of::default();
                optimizer.$($rate).+ = learning_rate.into();
                optimizer
            }
        }
    };
}

pub(super) use of_rate;
