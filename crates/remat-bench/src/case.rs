//! Cases to measure and their results. Both are sent as JSON between the process that starts a measurement and the one that measures.

use std::sync::Arc;

use anyhow::Result;
use remat::{DType, Device, Policy, Tensor, Tree, make_jaxpr, random, value_and_grad};
use remat_command::arguments::policy;
use remat_ir::{Jaxpr, Profile};
use remat_opt::cost::contractions;
use serde::{Deserialize, Serialize};

use crate::measure::{Measured, Runs, measure, profiled};
use crate::models::gpt::{self, Attention, Gpt, LayersAs};
use crate::models::mobilenet::MobileNet;
use crate::models::resnet::{self, ResNet};
use crate::models::unet::{self, UNet};
use crate::models::wave::{self, Wave};
use crate::models::{ChannelsAre, Form};

/// A case to measure, in its own process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    #[serde(flatten)]
    pub(crate) work: Work,
    /// The policy as it prints, or `none`.
    pub(crate) policy: String,
    pub(crate) dtype: Float,
    /// The name of the device.
    pub(crate) device: String,
    pub(crate) threads: usize,
    /// How many steps are timed.
    pub(crate) repeat: usize,
}

/// The model, and its sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "lowercase")]
pub(crate) enum Work {
    Step {
        #[serde(flatten)]
        sizes: gpt::Sizes,
        layers_as: LayersAs,
        attention: Attention,
    },
    Resnet {
        #[serde(flatten)]
        sizes: resnet::Sizes,
    },
    Unet {
        #[serde(flatten)]
        sizes: unet::Sizes,
    },
    Mobilenet {
        #[serde(flatten)]
        sizes: resnet::Sizes,
    },
    Wave {
        channels: ChannelsAre,
    },
}

/// The dtype of weights and activations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Float {
    F32,
    Bf16,
}

impl Float {
    pub(crate) fn dtype(self) -> DType {
        match self {
            Float::F32 => DType::F32,
            Float::Bf16 => DType::Bf16,
        }
    }
}

/// The result of a measurement: a line of JSON, in which the scripts for other frameworks use the same names. Times are
/// seconds, sizes bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) framework: String,
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) parameters: usize,
    /// The first step, for which memory is newly allocated.
    pub(crate) first_s: f64,
    pub(crate) step_s: f64,
    /// Useful operations per second.
    pub(crate) gflops: f64,
    pub(crate) trace_s: f64,
    pub(crate) compile_s: f64,
    pub(crate) arguments: usize,
    pub(crate) planned_peak: usize,
    pub(crate) temporaries: usize,
    /// `None` on devices whose memory is not from this process's allocator.
    pub(crate) allocator_peak: Option<usize>,
    pub(crate) resident_peak: Option<usize>,
    pub(crate) resident_growth: Option<usize>,
    /// `None` if it is not finite, since JSON cannot represent it.
    pub(crate) loss: Option<f64>,
}

impl Case {
    /// Measures it, in this process.
    ///
    /// # Errors
    /// If there is no such policy, or the model cannot be built or run with it.
    pub(crate) fn measure(self) -> Result<Record> {
        let policy = policy(&self.policy)?;
        let runs = Runs { device: Device::named(&self.device)?, repeat: self.repeat };
        let (measured, flops) = self.work.measure(policy, self.dtype.dtype(), &runs)?;
        Ok(Record {
            framework: concat!("remat ", env!("CARGO_PKG_VERSION")).into(),
            case: self,
            parameters: measured.parameters,
            first_s: measured.first_s,
            step_s: measured.step_s,
            gflops: flops / measured.step_s / 1e9,
            trace_s: measured.trace_s,
            compile_s: measured.compile_s,
            arguments: measured.planned.arguments,
            planned_peak: measured.planned.peak,
            temporaries: measured.planned.temporaries,
            allocator_peak: measured.allocator_peak,
            resident_peak: measured.resident_peak,
            resident_growth: measured.resident_growth,
            loss: Some(measured.loss).filter(|loss| loss.is_finite()),
        })
    }

    /// The names and values of the sizes that are varied.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, String)> {
        match &self.work {
            Work::Step { sizes: gpt::Sizes { layers, sequence, batch, .. }, .. } => {
                [("layers", layers), ("sequence", sequence), ("batch", batch)].map(|(n, v)| (n, v.to_string())).into()
            }
            _ => Vec::new(),
        }
    }

    /// The names and values that distinguish it from other cases of the same work and sizes.
    pub(crate) fn labels(&self) -> Vec<(&'static str, String)> {
        let mut labels = vec![("policy", self.policy.clone())];
        if let Work::Step { layers_as, attention, .. } = &self.work {
            labels.extend([("layers as", label(layers_as)), ("attention", label(attention))]);
        }
        if let Work::Resnet { sizes: resnet::Sizes { channels, .. } }
        | Work::Unet { sizes: unet::Sizes { channels, .. } } = &self.work
        {
            labels.push(("channels", label(channels)));
        }
        labels.extend([("dtype", label(&self.dtype)), ("device", self.device.clone())]);
        labels.push(("threads", self.threads.to_string()));
        labels
    }
}

/// What is done with a model, a batch of data and a loss.
trait Subject {
    type Given;

    /// Whether it runs a step, so that weights and data have to be those of a model.
    const RUNS: bool = true;

    fn take<M: Tree, D: Tree>(
        self,
        model: M,
        data: D,
        loss: impl Fn(&M, &D) -> remat::Result<Tensor>,
    ) -> remat::Result<Self::Given>;
}

impl Work {
    /// Makes the model, its data and its loss.
    fn with<S: Subject>(&self, policy: Option<Policy>, dtype: DType, subject: S) -> remat::Result<S::Given> {
        let [weights, data] = random::key(0).split();
        let policy = policy.as_ref();
        match *self {
            Work::Step { sizes, layers_as, attention } => {
                let init = if S::RUNS { Gpt::init } else { Gpt::zeros };
                let (model, tokens) = init(&sizes, layers_as, dtype);
                let choices = gpt::Choices { sizes, attention, policy: policy.cloned() };
                subject.take(model, tokens, |model: &Gpt, tokens: &Tensor| model.loss(tokens, &choices))
            }
            Work::Resnet { sizes } => {
                let model = ResNet::init(weights, &sizes, dtype);
                let batch = resnet::Batch::random(data, &sizes, dtype);
                subject.take(model, batch, |model: &ResNet, batch: &resnet::Batch| Ok(model.loss(batch, policy)))
            }
            Work::Unet { sizes } => {
                let model = UNet::init(weights, &sizes, dtype);
                let batch = unet::Batch::random(data, &sizes, dtype);
                subject.take(model, batch, |model: &UNet, batch: &unet::Batch| Ok(model.loss(batch, policy)))
            }
            Work::Mobilenet { sizes } => {
                let model = MobileNet::init(weights, &sizes, dtype);
                let batch = resnet::Batch::random(data, &sizes, dtype);
                subject.take(model, batch, |model: &MobileNet, batch: &resnet::Batch| model.loss(batch, policy))
            }
            Work::Wave { channels } => {
                let form = Form { dtype, channels };
                let (model, batch) = (Wave::init(weights, form), wave::Batch::random(data, form));
                subject.take(model, batch, |model: &Wave, batch: &wave::Batch| Ok(model.loss(batch, policy)))
            }
        }
    }

    /// The program of the step: loss and gradient.
    ///
    /// # Errors
    /// If the model cannot be built with the policy.
    pub(crate) fn step(&self, policy: Option<Policy>, dtype: DType) -> remat::Result<Arc<Jaxpr>> {
        self.with(policy, dtype, Program)
    }

    /// The measurements, and the useful operations of a step.
    fn measure(&self, policy: Option<Policy>, dtype: DType, runs: &Runs) -> remat::Result<(Measured, f64)> {
        let flops = if let Work::Step { sizes, .. } = self { Some(sizes.flops()) } else { None };
        self.with(policy, dtype, Measurements { runs, flops })
    }

    /// The profile of the step with the median time.
    ///
    /// # Errors
    /// If the model cannot be built with the policy, or the device has no profiles.
    pub(crate) fn profile(&self, policy: Option<Policy>, dtype: DType, runs: &Runs) -> remat::Result<Profile> {
        self.with(policy, dtype, ProfileOf(runs))
    }
}

/// The program of a loss and its gradient.
struct Program;

impl Subject for Program {
    type Given = Arc<Jaxpr>;

    const RUNS: bool = false;

    fn take<M: Tree, D: Tree>(
        self,
        model: M,
        data: D,
        loss: impl Fn(&M, &D) -> remat::Result<Tensor>,
    ) -> remat::Result<Arc<Jaxpr>> {
        let step = |(model, data): &(M, D)| value_and_grad(|model: &M| loss(model, data))(model);
        Ok(make_jaxpr(step)(&(model, data))?.jaxpr)
    }
}

/// The measurements, with the useful operations: three times those of the loss's products, unless they are known.
struct Measurements<'a> {
    runs: &'a Runs,
    flops: Option<f64>,
}

impl Subject for Measurements<'_> {
    type Given = (Measured, f64);

    fn take<M: Tree, D: Tree>(
        self,
        model: M,
        data: D,
        loss: impl Fn(&M, &D) -> remat::Result<Tensor>,
    ) -> remat::Result<(Measured, f64)> {
        let counted = || -> remat::Result<f64> {
            let forward = make_jaxpr(|model: &M| loss(model, &data))(&model)?;
            Ok(3.0 * contractions(&forward.jaxpr).flops as f64)
        };
        let flops = self.flops.map_or_else(counted, Ok)?;
        Ok((measure(model, data, loss, self.runs)?, flops))
    }
}

/// The profile of a step.
struct ProfileOf<'a>(&'a Runs);

impl Subject for ProfileOf<'_> {
    type Given = Profile;

    fn take<M: Tree, D: Tree>(
        self,
        model: M,
        data: D,
        loss: impl Fn(&M, &D) -> remat::Result<Tensor>,
    ) -> remat::Result<Profile> {
        profiled(model, data, loss, self.0)
    }
}

/// A choice as the command line names it.
pub(crate) fn label(choice: &impl clap::ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
