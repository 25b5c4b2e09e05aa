//! Vision transformers.

use remat_ir::{Error, ErrorKind};

use crate::layer::{deferred, pinned};
use crate::nn::{Attention, Block, Conv, LayerNorm, Linear, Mlp, Stack};
use crate::random::{self, Key};
use crate::{DType, Padding, Tensor, Tree, named_scope};

/// The sizes of a [`Vit`]; the names are those of Hugging Face's `config.json`. The default is ViT-B/16.
#[derive(Clone, Debug, PartialEq)]
pub struct VitConfig {
    /// The height and the width of an image.
    pub image_size: usize,
    /// The height and the width of a patch, which divide those of the image.
    pub patch_size: usize,
    /// The channels of an image.
    pub num_channels: usize,
    /// The number of features.
    pub hidden_size: usize,
    /// The number of blocks.
    pub num_hidden_layers: usize,
    /// The number of heads, which divides the number of features.
    pub num_attention_heads: usize,
    /// The hidden features of a block.
    pub intermediate_size: usize,
    /// Added to the variance in norms.
    pub layer_norm_eps: f64,
    /// The number of classes.
    pub num_labels: usize,
}

impl Default for VitConfig {
    fn default() -> VitConfig {
        VitConfig {
            image_size: 224,
            patch_size: 16,
            num_channels: 3,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            layer_norm_eps: 1e-6,
            num_labels: 1000,
        }
    }
}

/// A vision transformer that classifies images: patches are tokens, and the head reads one additional, learned token.
///
/// It uses the `tanh` approximation of gelu, as the original implementation does. Source: Dosovitskiy et al., "An image is worth 16x16
/// words", 2020.
///
/// ```
/// use remat::nn::{Vit, VitConfig};
/// use remat::{DType, Tensor, random};
/// let config = VitConfig {
///     image_size: 16, patch_size: 4, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 16,
///     num_labels: 10, ..VitConfig::default()
/// };
/// let model = Vit::new(random::key(0), &config);
/// assert_eq!(model.apply(&Tensor::ones([2, 3, 16, 16], DType::F32)).shape()?, [2, 10]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Vit {
    /// The convolution from a patch to its features.
    pub patches: Conv,
    /// The class token, `[features]`.
    pub class: Tensor,
    /// The vectors of positions, with that of the class token first: `[positions, features]`.
    pub positions: Tensor,
    /// The blocks, which attend to all positions.
    pub blocks: Stack<Block>,
    /// The norm after the last block.
    pub norm: LayerNorm,
    /// From the features of the class token to the classes.
    pub head: Linear,
}

impl Vit {
    /// Weights as the parts initialise them, and normal positions of standard deviation 0.02.
    ///
    /// # Errors
    /// If the patches do not divide the image, the heads do not divide the features, or the dtype is not a float: the weights are failed
    /// tensors.
    #[track_caller]
    pub fn init(key: Key, config: &VitConfig, dtype: DType) -> Vit {
        pinned(|| {
            let features = config.hidden_size;
            let norm = || LayerNorm { eps: config.layer_norm_eps, ..LayerNorm::init(features, dtype) };
            let [patches, at, blocks, head] = key.split();
            let block = |key: Key| {
                let [attn, mlp] = key.split();
                Block {
                    norm1: norm(),
                    attn: Attention {
                        causal: false,
                        ..Attention::init(attn, features, config.num_attention_heads, dtype)
                    },
                    norm2: norm(),
                    mlp: Mlp::init(mlp, features, config.intermediate_size, dtype),
                }
            };
            let size = config.patch_size;
            let positions = deferred(|| {
                if size == 0 || !config.image_size.is_multiple_of(size) {
                    let message = format!("patches of {size} do not divide an image of {}", config.image_size);
                    return Err(Error::new(ErrorKind::Shape, "nn::Vit::init", message));
                }
                let count = (config.image_size / size).saturating_pow(2).saturating_add(1);
                Ok(random::normal(at, [count, features], dtype) * 0.02)
            });
            Vit {
                patches: Conv {
                    strides: vec![size, size],
                    padding: Padding::Valid,
                    ..Conv::init(patches, config.num_channels, features, [size, size], dtype)
                },
                class: Tensor::zeros([features], dtype),
                positions,
                blocks: Stack::init(blocks, config.num_hidden_layers, block),
                norm: norm(),
                head: Linear::init(head, features, config.num_labels, dtype),
            }
        })
    }

    /// The logits of images `dtype[batch, channels, height, width]`: `dtype[batch, classes]`.
    ///
    /// # Errors
    /// If the images have another size or dtype.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        deferred(|| {
            named_scope("vit", || {
                // An error of the weights, such as that of `init`, takes precedence over those of this call.
                let [positions, features] = self.positions.dims()?;
                let patches = self.patches.apply(x);
                let [batch, _, height, width] = patches.dims()?;
                if height * width + 1 != positions {
                    let message =
                        format!("{} has {} patches, and the model {}", x.aval()?, height * width, positions - 1);
                    return Err(Error::new(ErrorKind::Shape, "nn::Vit::apply", message));
                }
                let tokens = patches.reshape([batch, features, height * width]).swap_axes(1, 2);
                let class = self.class.broadcast_to([batch, 1, features]);
                let x = Tensor::concatenate(&[class, tokens], 1) + &self.positions;
                let x = self.blocks.apply(|block, x| block.apply(x), &x)?;
                Ok(self.head.apply(&self.norm.apply(&x.index((.., 0)))))
            })
        })
    }
}
