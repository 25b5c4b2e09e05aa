//! The algorithms of convolutions, in the order in which they are tried.

use remat_ir::{Aval, Conv, DType};

use super::col2im;
use super::depthwise::{self, Depthwise};
use super::direct::{self, Direct};
use super::finite::IfFinite;
use super::long_windows::{self, LongWindows};
use super::narrow::Narrow;
use super::numbers::Numbers;
use super::winograd::{self, Gradient, Winograd};
use super::{ConvKernel, pairs};
use crate::base::product::Accumulator;
use crate::interface::{Kernel, Layout};
use crate::kernels::choice::{Algorithm, Below, Family};
use crate::kernels::matmul::accumulator;

/// The family of convolutions.
pub(crate) struct Convolutions;

/// A convolution with the dtypes and layouts of its operands.
#[derive(Clone, Copy)]
pub(crate) struct Convolution<'a> {
    pub(super) op: &'a Conv,
    pub(super) ins: [(DType, &'a Layout); 2],
    pub(super) out: &'a Aval,
}

/// The value of an expression with `$sum` bound to the float in which products are summed; the default value if they are summed as integers.
macro_rules! with_float_sums {
    ($problem:expr, $sum:ident => $body:expr) => {
        match $problem.sums() {
            DType::F32 => {
                type $sum = f32;
                $body
            }
            DType::F64 => {
                type $sum = f64;
                $body
            }
            _ => Default::default(),
        }
    };
}

impl Family for Convolutions {
    type Problem<'a> = Convolution<'a>;

    const NAME: &'static str = "conv";

    const ALGORITHMS: &'static [Algorithm<Convolutions>] = &[
        Algorithm {
            name: "depthwise",
            why: "Where each channel has weights of its own, neighbouring channels are multiplied element by element, not as matrices.",
            applies: |x| with_float_sums!(x, A => Depthwise::<A>::applies(depthwise::SIZES, x.op, x.ins, x.out)),
            build: |x, _| with_float_sums!(x, A => boxed(Depthwise::<A>::new(depthwise::SIZES, x.op, x.ins, x.out))),
        },
        Algorithm {
            name: "winograd",
            why: "Minimal filtering multiplies 16 times for four results of a 3x3 window instead of 36 times.",
            applies: |x| Winograd::applies(winograd::SIZES, x.op, x.ins, x.out),
            build: |x, below| x.if_finite(Winograd::new(winograd::SIZES, x.op, x.ins, x.out), below),
        },
        Algorithm {
            name: "winograd_gradient",
            why: "Minimal filtering does the same for gradients of the weights of 3x3 windows.",
            // Where both apply, the algorithm above computes the results, and those that are not finite are sums of products.
            applies: |x| {
                Gradient::applies(winograd::GRADIENT_SIZES, x.op, x.ins, x.out)
                    && !Winograd::applies(winograd::SIZES, x.op, x.ins, x.out)
            },
            build: |x, below| x.if_finite(Gradient::new(winograd::GRADIENT_SIZES, x.op, x.ins, x.out), below),
        },
        Algorithm {
            name: "col2im_unit",
            why: "A window gathered for few output features is multiplied few times, so products come first, on the unit for bf16.",
            applies: |x| col2im::applies_to_pairs(x.op, x.ins, x.out),
            build: |x, below| x.if_finite(col2im::of_pairs(x.op, x.ins, x.out), below),
        },
        Algorithm {
            name: "pairs",
            why: "Windows of bf16 that are read in place, word by word, are not gathered.",
            applies: |x| pairs::applies(x.op, x.ins, x.out),
            build: |x, _| boxed(pairs::of(x.op, x.ins, x.out)),
        },
        Algorithm {
            name: "im2col_unit",
            why: "A unit for narrow elements multiplies several times as many of them in a cycle as vectors of f32 do.",
            applies: |x| Narrow::new(x.op, x.ins, x.out).is_some(),
            build: |x, _| boxed(Narrow::new(x.op, x.ins, x.out).map(|unit| ConvKernel::new(unit, x.op, x.ins, x.out))),
        },
        Algorithm {
            name: "col2im",
            why: "A window gathered for few output features is multiplied few times, so products come first.",
            applies: |x| with_float_sums!(x, A => col2im::applies_to_numbers::<A>(x.is_direct::<A>(), x.op, x.ins, x.out)),
            build: |x, below| {
                with_float_sums!(x, A => {
                    x.if_finite(col2im::of_numbers::<A>(x.is_direct::<A>(), x.op, x.ins, x.out), below)
                })
            },
        },
        Algorithm {
            name: "direct",
            why: "Windows of few weights are read in place, at offsets from each position, and not gathered.",
            applies: |x| with_float_sums!(x, A => Direct::<A>::applies(direct::SIZES, x.op, x.ins, x.out)),
            build: |x, _| with_float_sums!(x, A => boxed(Direct::<A>::new(direct::SIZES, x.op, x.ins, x.out))),
        },
        Algorithm {
            name: "long_windows",
            why: "Long windows at few positions, as in gradients of weights, are read in place for each position.",
            applies: |x| with_float_sums!(x, A => LongWindows::<A>::applies(long_windows::SIZES, x.op, x.ins, x.out)),
            build: |x, _| with_float_sums!(x, A => boxed(LongWindows::<A>::new(long_windows::SIZES, x.op, x.ins, x.out))),
        },
        Algorithm {
            name: "im2col",
            why: "Blocks of windows are gathered and multiplied as matrices, which computes any convolution.",
            applies: |_| true,
            build: |x, _| match x.sums() {
                DType::F32 => x.gathered::<f32>(),
                DType::F64 => x.gathered::<f64>(),
                _ => boxed(Some(ConvKernel::new(Numbers::<i64>::new(x.ins, x.out), x.op, x.ins, x.out))),
            },
        },
    ];
}

impl Convolution<'_> {
    /// The type in which products are summed.
    fn sums(&self) -> DType {
        accumulator(self.ins[0].0, self.out.dtype)
    }

    /// Whether windows could be read in place, for results that are not rounded.
    fn is_direct<A: Accumulator>(&self) -> bool {
        self.out.dtype == A::DTYPE && Direct::<A>::new(direct::SIZES, self.op, self.ins, self.out).is_some()
    }

    fn gathered<A: Accumulator>(&self) -> Option<Box<dyn Kernel>> {
        boxed(Some(ConvKernel::new(Numbers::<A>::new(self.ins, self.out), self.op, self.ins, self.out)))
    }

    /// A kernel that is right for finite numbers, and one below it for other results.
    fn if_finite<K: Kernel + 'static>(&self, fast: Option<K>, below: Below<'_>) -> Option<Box<dyn Kernel>> {
        Some(Box::new(IfFinite::new(fast?, below(), self.out.dtype)))
    }
}

fn boxed<K: Kernel + 'static>(kernel: Option<K>) -> Option<Box<dyn Kernel>> {
    Some(Box::new(kernel?))
}
