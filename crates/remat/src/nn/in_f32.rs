//! Constructors of layers in f32.
//!
//! Each layer with weights has two constructors: `new` makes f32, and `init` the dtype that it takes last.

use super::{
    Attention, BatchNorm, Block, Conv, ConvTranspose, CrossAttention, Embedding, GatedMlp, Gpt2, Gpt2Config, GroupNorm,
    GroupedAttention, Gru, KvCache, LayerNorm, Linear, Llama, LlamaConfig, Lstm, Mlp, ResNet, ResNetConfig, RmsNorm,
    RunningStatistics, UNet, UNetConfig, Vit, VitConfig,
};
use crate::DType;
use crate::random::Key;

macro_rules! in_f32 {
    ($($layer:ident($($name:ident: $type:ty),*);)*) => {
        $(impl $layer {
            /// As [`init`](Self::init) in f32.
            #[must_use]
            #[track_caller]
            pub fn new($($name: $type),*) -> $layer {
                $layer::init($($name,)* DType::F32)
            }
        })*
    };
}

in_f32! {
    Attention(key: Key, features: usize, heads: usize);
    BatchNorm(features: usize);
    Block(key: Key, features: usize, heads: usize);
    Conv(key: Key, inputs: usize, outputs: usize, window: impl AsRef<[usize]>);
    ConvTranspose(key: Key, inputs: usize, outputs: usize, window: impl AsRef<[usize]>);
    CrossAttention(key: Key, features: [usize; 2], heads: [usize; 2], size: usize);
    Embedding(key: Key, entries: usize, features: usize);
    GatedMlp(key: Key, features: usize, hidden: usize);
    Gpt2(key: Key, config: &Gpt2Config);
    GroupNorm(features: usize, groups: usize);
    GroupedAttention(key: Key, features: usize, heads: [usize; 2], size: usize);
    Gru(key: Key, inputs: usize, features: usize);
    KvCache(shape: [usize; 5]);
    LayerNorm(features: usize);
    Linear(key: Key, inputs: usize, outputs: usize);
    Llama(key: Key, config: &LlamaConfig);
    Lstm(key: Key, inputs: usize, features: usize);
    Mlp(key: Key, features: usize, hidden: usize);
    ResNet(key: Key, config: &ResNetConfig);
    RmsNorm(features: usize);
    RunningStatistics(features: usize);
    UNet(key: Key, config: &UNetConfig);
    Vit(key: Key, config: &VitConfig);
}
