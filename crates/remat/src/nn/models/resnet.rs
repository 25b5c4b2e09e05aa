//! Residual networks for images.

use remat_ir::{Error, ErrorKind, Result};

use super::checked;
use crate::layer::pinned;
use crate::nn::{BatchNorm, Conv, Linear, RunningStatistics, global_avg_pool};
use crate::random::{self, Key};
use crate::trace::current_loc;
use crate::{DType, Padding, PoolConfig, Tensor, Tree, named_scope};

/// The sizes of a [`ResNet`]; the names are those of Hugging Face's `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct ResNetConfig {
    /// The channels of an image.
    pub num_channels: usize,
    /// The features after the first convolution.
    pub embedding_size: usize,
    /// The features of each stage; multiples of 4 with bottlenecks.
    pub hidden_sizes: Vec<usize>,
    /// The blocks of each stage.
    pub depths: Vec<usize>,
    /// Whether a block has three convolutions instead of two; the middle one then has a quarter of the features.
    pub bottleneck: bool,
    /// The number of classes.
    pub num_labels: usize,
}

impl ResNetConfig {
    /// The 18 layers of the paper, for 1,000 classes.
    pub fn resnet18() -> ResNetConfig {
        ResNetConfig {
            num_channels: 3,
            embedding_size: 64,
            hidden_sizes: vec![64, 128, 256, 512],
            depths: vec![2, 2, 2, 2],
            bottleneck: false,
            num_labels: 1000,
        }
    }

    /// The 50 layers of the paper, for 1,000 classes.
    pub fn resnet50() -> ResNetConfig {
        ResNetConfig {
            hidden_sizes: vec![256, 512, 1024, 2048],
            depths: vec![3, 4, 6, 3],
            bottleneck: true,
            ..ResNetConfig::resnet18()
        }
    }

    fn check(&self) -> Result<()> {
        let error = |message| Err(Error::new(ErrorKind::Shape, "nn::ResNet::init", message));
        let (sizes, depths) = (&self.hidden_sizes, &self.depths);
        if sizes.len() != depths.len() {
            return error(format!(
                "the hidden sizes {sizes:?} and the depths {depths:?} must be one of each per stage"
            ));
        }
        match sizes.iter().find(|size| self.bottleneck && !size.is_multiple_of(4)) {
            Some(size) => error(format!("the features of a bottleneck block must be a multiple of 4, not {size}")),
            None => Ok(()),
        }
    }
}

/// A convolution without bias, and a batch norm.
#[derive(Clone, Debug, Tree)]
pub struct ConvNorm {
    /// The convolution, whose result has the name `conv`.
    pub conv: Conv,
    /// The norm.
    pub norm: BatchNorm,
}

impl ConvNorm {
    /// Normal weights with a variance of 2 over the number of elements that each input feature reaches. Source: He et al., "Delving deep
    /// into rectifiers", 2015.
    fn init(key: Key, inputs: usize, outputs: usize, window: usize, stride: usize, dtype: DType) -> ConvNorm {
        let deviation = (2.0 / outputs.saturating_mul(window * window).max(1) as f64).sqrt();
        let kernel = random::normal(key.fold_in(1), [outputs, inputs, window, window], dtype) * deviation;
        let pad = (window as i64 - 1) / 2;
        let conv = Conv {
            kernel,
            bias: None,
            strides: vec![stride, stride],
            padding: Padding::Explicit(vec![(pad, pad); 2]),
            ..Conv::init(key, inputs, outputs, [window, window], dtype)
        };
        ConvNorm { conv, norm: BatchNorm::init(outputs, dtype) }
    }

    fn apply(&self, x: &Tensor, norms: &mut Norms) -> Result<Tensor> {
        norms.apply(&self.norm, &self.conv.apply(x).named("conv"))
    }
}

/// A block of [`ResNet`]: convolutions with a shortcut, which is a convolution too if the shape changes.
#[derive(Clone, Debug, Tree)]
pub struct ResNetBlock {
    /// Two or three convolutions, with a ReLU between them.
    pub convs: Vec<ConvNorm>,
    /// The convolution of the shortcut, if there is one.
    pub shortcut: Option<ConvNorm>,
}

impl ResNetBlock {
    fn init(key: Key, inputs: usize, outputs: usize, stride: usize, bottleneck: bool, dtype: DType) -> ResNetBlock {
        let [a, b, c, short] = key.split();
        let inner = if bottleneck { outputs / 4 } else { outputs };
        let convs = if bottleneck {
            vec![
                ConvNorm::init(a, inputs, inner, 1, 1, dtype),
                ConvNorm::init(b, inner, inner, 3, stride, dtype),
                ConvNorm::init(c, inner, outputs, 1, 1, dtype),
            ]
        } else {
            vec![ConvNorm::init(a, inputs, inner, 3, stride, dtype), ConvNorm::init(b, inner, outputs, 3, 1, dtype)]
        };
        let changes = inputs != outputs || stride != 1;
        ResNetBlock { convs, shortcut: changes.then(|| ConvNorm::init(short, inputs, outputs, 1, stride, dtype)) }
    }

    fn apply(&self, x: &Tensor, norms: &mut Norms) -> Result<Tensor> {
        named_scope("block", || {
            let mut y = x.clone();
            for (i, conv) in self.convs.iter().enumerate() {
                y = conv.apply(&if i == 0 { y } else { y.relu() }, norms)?;
            }
            let short = self.shortcut.as_ref().map_or(Ok(x.clone()), |conv| conv.apply(x, norms))?;
            Ok((y + short).relu())
        })
    }
}

/// A residual network that classifies images, with strides in the middle convolution of a block, as in torchvision.
///
/// Its norms have [`RunningStatistics`], a state separate from the weights. Source: He et al., "Deep residual learning", 2015.
///
/// ```
/// use remat::nn::{ResNet, ResNetConfig, cross_entropy};
/// use remat::{DType, Tensor, random, value_and_grad_aux};
/// let small = ResNetConfig { embedding_size: 4, hidden_sizes: vec![4, 8], depths: vec![1, 1], num_labels: 10, ..ResNetConfig::resnet18() };
/// let model = ResNet::new(random::key(0), &small);
/// let (x, classes) = (random::normal(random::key(1), [2, 3, 32, 32], DType::F32), Tensor::new([3, 5]));
/// let statistics = model.statistics()?;
/// let loss = |model: &ResNet| {
///     let (logits, statistics) = model.train(&x, &statistics)?;
///     remat::Result::Ok((cross_entropy(&logits, &classes), statistics))
/// };
/// let ((_, statistics), gradient) = value_and_grad_aux(loss)(&model)?;
/// assert_eq!(gradient.head.weight.shape()?, [8, 10]);
/// assert_eq!(model.eval(&x, &statistics)?.shape()?, [2, 10]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct ResNet {
    /// The first convolution, of 7 by 7 pixels.
    pub stem: ConvNorm,
    /// The blocks of each stage.
    pub stages: Vec<Vec<ResNetBlock>>,
    /// From the mean of each feature to the classes.
    pub head: Linear,
}

impl ResNet {
    /// Weights as in He et al.
    ///
    /// # Errors
    /// If the numbers of depths and hidden sizes differ, a bottleneck's features are not a multiple of 4, or the dtype is not a float: the
    /// weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, config: &ResNetConfig, dtype: DType) -> ResNet {
        pinned(|| {
            let [stem, blocks, head] = key.split();
            let mut inputs = config.embedding_size;
            let mut number = 0u32;
            let mut stages = Vec::new();
            for (stage, (&outputs, &depth)) in config.hidden_sizes.iter().zip(&config.depths).enumerate() {
                let mut own = Vec::new();
                for i in 0..depth {
                    number += 1;
                    let stride = if i == 0 && stage > 0 { 2 } else { 1 };
                    own.push(ResNetBlock::init(
                        blocks.fold_in(number),
                        inputs,
                        outputs,
                        stride,
                        config.bottleneck,
                        dtype,
                    ));
                    inputs = outputs;
                }
                stages.push(own);
            }
            let model = ResNet {
                stem: ConvNorm::init(stem, config.num_channels, config.embedding_size, 7, 2, dtype),
                stages,
                head: Linear::init(head, inputs, config.num_labels, dtype),
            };
            checked(config.check(), model)
        })
    }

    /// The initial statistics of all norms, in the order in which they run.
    ///
    /// # Errors
    /// If weights are failed tensors.
    #[track_caller]
    pub fn statistics(&self) -> Result<Vec<RunningStatistics>> {
        let blocks = self.stages.iter().flatten().flat_map(|block| block.convs.iter().chain(&block.shortcut));
        let norms = std::iter::once(&self.stem).chain(blocks).map(|conv| &conv.norm.scale);
        norms.map(|scale| Ok(RunningStatistics::init(scale.size()?, scale.dtype()?))).collect()
    }

    /// The logits `dtype[batch, classes]` of images `dtype[batch, channels, height, width]`, normalised by the batch's own statistics, and
    /// the running statistics updated with those of the batch.
    ///
    /// # Errors
    /// If shapes or dtypes do not fit, or the statistics belong to another model.
    #[track_caller]
    pub fn train(&self, x: &Tensor, statistics: &[RunningStatistics]) -> Result<(Tensor, Vec<RunningStatistics>)> {
        let loc = current_loc();
        let mut norms = Norms { training: true, held: statistics.to_vec(), at: 0 };
        let logits = pinned(|| self.run(x, &mut norms)).map_err(|error: Error| error.at(loc))?;
        Ok((logits, norms.held))
    }

    /// As [`ResNet::train`], normalised by running statistics, so that the result for an image does not depend on the others.
    ///
    /// # Errors
    /// As [`ResNet::train`].
    #[track_caller]
    pub fn eval(&self, x: &Tensor, statistics: &[RunningStatistics]) -> Result<Tensor> {
        let loc = current_loc();
        let mut norms = Norms { training: false, held: statistics.to_vec(), at: 0 };
        pinned(|| self.run(x, &mut norms)).map_err(|error: Error| error.at(loc))
    }

    fn run(&self, x: &Tensor, norms: &mut Norms) -> Result<Tensor> {
        named_scope("resnet", || {
            let pool = PoolConfig {
                strides: vec![2, 2],
                padding: Padding::Explicit(vec![(1, 1); 2]),
                ..PoolConfig::new([3, 3])
            };
            let mut x = self.stem.apply(x, norms)?.relu().max_pool(&pool);
            for block in self.stages.iter().flatten() {
                x = block.apply(&x, norms)?;
            }
            if norms.at != norms.held.len() {
                let (given, norms) = (norms.held.len(), norms.at);
                return Err(wrong_count(format!("{given} statistics are given, and the model has {norms} norms")));
            }
            let logits = self.head.apply(&global_avg_pool(&x));
            logits.aval()?;
            Ok(logits)
        })
    }
}

/// The statistics of the norms of a model, in the order in which they run.
struct Norms {
    training: bool,
    held: Vec<RunningStatistics>,
    /// The number of norms that have run.
    at: usize,
}

impl Norms {
    fn apply(&mut self, norm: &BatchNorm, x: &Tensor) -> Result<Tensor> {
        let count = self.held.len();
        let Some(held) = self.held.get_mut(self.at) else {
            return Err(wrong_count(format!("{count} statistics are given, and the model has more norms")));
        };
        self.at += 1;
        if !self.training {
            return Ok(norm.eval(x, held));
        }
        let (y, next) = norm.train(x, held)?;
        *held = next;
        Ok(y)
    }
}

fn wrong_count(message: String) -> Error {
    Error::new(ErrorKind::Structure, "nn::ResNet", message)
}
