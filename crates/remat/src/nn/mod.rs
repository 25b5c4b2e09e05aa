//! Layers of neural networks: plain structs of tensors.
//!
//! A layer is a struct that derives [`Tree`](crate::Tree). It is created from a random key, by `new` in f32 and by `init` in any dtype, and
//! applied by a method. Its fields are public, and its options have methods too: `Conv::new(key, 3, 8, [3, 3]).strides([2, 2])`. So a model
//! is a struct of layers, its gradient has the model's own type, and freezing, sharing or replacing a part is ordinary Rust. There is no
//! trait for layers, no parameter store and no training mode.
//!
//! ```
//! use remat::{DType, Tensor, Tree, grad, nn, random};
//!
//! #[derive(Tree)]
//! struct Model { hidden: nn::Linear, out: nn::Linear }
//!
//! impl Model {
//!     fn apply(&self, x: &Tensor) -> Tensor {
//!         self.out.apply(&self.hidden.apply(x).relu())
//!     }
//! }
//!
//! let [first, second] = random::key(0).split();
//! let hidden = nn::Linear::new(first, 4, 16);
//! let model = Model { hidden, out: nn::Linear::new(second, 16, 3) };
//! let (x, classes) = (Tensor::ones([8, 4], DType::F32), Tensor::zeros([8], DType::I32));
//! let gradient = grad(|model: &Model| nn::cross_entropy(&model.apply(&x), &classes))(&model)?;
//! assert_eq!(gradient.out.weight.shape()?, [16, 3]);
//! # Ok::<(), remat::Error>(())
//! ```
//!
//! Values that a checkpoint policy may want to keep have names: `qkv` and `attn` in [`Attention`], [`GroupedAttention`] and
//! [`CrossAttention`], `up` and `mlp` in [`Mlp`], these and `gate` in [`GatedMlp`], and `conv` in the models with convolutions.
//!
//! Where layers multiply sizes, the products saturate, so that weights beyond all memory are refused as such.

mod attention;
mod block;
mod cache;
mod channels;
mod conv;
mod conv_transpose;
mod cross;
mod divergence;
mod dropout;
mod generate;
mod grouped;
mod in_f32;
mod initializer;
mod linear;
mod lora;
mod loss;
mod models;
mod norm;
mod pool;
mod precision;
mod recurrent;
mod regression;
mod reserved;
mod resize;
mod rotary;
mod running;
mod sampling;
mod sinusoidal;
mod stack;

pub use attention::{Attention, AttentionConfig, dot_product_attention};
pub use block::{Block, Mlp};
pub use cache::KvCache;
pub use channels::Channels;
pub use conv::Conv;
pub use conv_transpose::ConvTranspose;
pub use cross::CrossAttention;
pub use divergence::{binary_cross_entropy, kl_divergence};
pub use dropout::dropout;
pub use generate::{Decoder, Generator, Tokens, generate};
pub use grouped::{GatedMlp, GroupedAttention};
pub use initializer::Initializer;
pub use linear::{Embedding, Linear};
pub use lora::{Lora, LowRank};
pub use loss::{
    cross_entropy, cross_entropy_in, cross_entropy_where, next_token_loss, smoothed_cross_entropy,
    smoothed_cross_entropy_where,
};
pub use models::{
    ConvNorm, Gpt2, Gpt2Config, Llama, LlamaBlock, LlamaConfig, ResNet, ResNetBlock, ResNetConfig, UNet, UNetBlock,
    UNetConfig, UNetDown, UNetUp, Vit, VitConfig,
};
pub use norm::{BatchNorm, GroupNorm, LayerNorm, RmsNorm};
pub use pool::{AvgPool, MaxPool, adaptive_avg_pool, adaptive_max_pool, global_avg_pool, global_max_pool};
pub use precision::Precision;
pub use recurrent::{Gru, Lstm, LstmState};
pub use regression::{huber_loss, mean_absolute_error, mean_squared_error};
pub use resize::{Interpolation, ResizeConfig, resize};
pub use rotary::{Pairing, RopeScaling, Rotary, Rotation};
pub use running::RunningStatistics;
pub use sampling::Sampling;
pub use sinusoidal::sinusoidal_embedding;
pub use stack::Stack;
