//! Layers in f32, and the methods that set their options.

use remat::nn::{
    Attention, BatchNorm, Block, Conv, ConvTranspose, CrossAttention, Embedding, GatedMlp, GroupNorm, GroupedAttention,
    Gru, KvCache, LayerNorm, Linear, Lstm, Mlp, Pairing, RmsNorm, RopeScaling, Rotary, RunningStatistics, Sampling,
};
use remat::tree::leaves;
use remat::{DType, Padding, Tensor, Tree, random};

/// Fails unless both have equal leaves at equal paths.
fn same<T: Tree>(one: &T, other: &T) {
    let (one, other) = (leaves(one), leaves(other));
    assert!(!one.is_empty());
    assert_eq!(one.len(), other.len());
    for ((path, x), (other, y)) in one.iter().zip(&other) {
        assert_eq!((path, x.aval().unwrap()), (other, y.aval().unwrap()));
        let values = |x: &Tensor| x.to_dtype(DType::F64).to_vec::<f64>().unwrap();
        assert_eq!(values(x), values(y), "{path}");
    }
}

#[test]
fn new_is_init_in_f32() {
    let key = || random::key(3);
    const F32: DType = DType::F32;
    same(&Attention::new(key(), 8, 2), &Attention::init(key(), 8, 2, F32));
    same(&BatchNorm::new(3), &BatchNorm::init(3, F32));
    same(&Block::new(key(), 8, 2), &Block::init(key(), 8, 2, F32));
    same(&Conv::new(key(), 2, 4, [3, 1]), &Conv::init(key(), 2, 4, [3, 1], F32));
    same(&ConvTranspose::new(key(), 2, 4, [3, 1]), &ConvTranspose::init(key(), 2, 4, [3, 1], F32));
    same(&CrossAttention::new(key(), [8, 6], [4, 2], 3), &CrossAttention::init(key(), [8, 6], [4, 2], 3, F32));
    same(&Embedding::new(key(), 5, 3), &Embedding::init(key(), 5, 3, F32));
    same(&GatedMlp::new(key(), 4, 6), &GatedMlp::init(key(), 4, 6, F32));
    same(&GroupNorm::new(4, 2), &GroupNorm::init(4, 2, F32));
    same(&GroupedAttention::new(key(), 8, [4, 2], 3), &GroupedAttention::init(key(), 8, [4, 2], 3, F32));
    same(&Gru::new(key(), 3, 4), &Gru::init(key(), 3, 4, F32));
    same(&KvCache::new([2, 1, 4, 2, 3]), &KvCache::init([2, 1, 4, 2, 3], F32));
    same(&LayerNorm::new(3), &LayerNorm::init(3, F32));
    same(&Linear::new(key(), 3, 5), &Linear::init(key(), 3, 5, F32));
    same(&Lstm::new(key(), 3, 4), &Lstm::init(key(), 3, 4, F32));
    same(&Mlp::new(key(), 4, 6), &Mlp::init(key(), 4, 6, F32));
    same(&RmsNorm::new(3), &RmsNorm::init(3, F32));
    same(&RunningStatistics::new(3), &RunningStatistics::init(3, F32));
}

#[test]
fn an_error_of_new_has_the_line_of_the_user() {
    let line = line!() + 1;
    let attention = Attention::new(random::key(0), 8, 3);
    let error = attention.qkv.weight.error().expect("3 heads do not divide 8 features");
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
}

#[test]
fn options_are_set() {
    let key = || random::key(0);
    let conv = Conv::new(key(), 1, 4, [3]).strides([2]).padding(Padding::Valid).dilation([3]).groups(4);
    assert_eq!((conv.strides, conv.padding, conv.dilation, conv.groups), (vec![2], Padding::Valid, vec![3], 4));
    assert!(Conv::new(key(), 1, 4, [3]).without_bias().bias.is_none());
    let conv = ConvTranspose::new(key(), 1, 4, [3]).strides([2]).padding(Padding::Valid).dilation([3]).groups(4);
    assert_eq!((conv.strides, conv.padding, conv.dilation, conv.groups), (vec![2], Padding::Valid, vec![3], 4));
    assert!(ConvTranspose::new(key(), 1, 4, [3]).without_bias().bias.is_none());
    assert!(Linear::new(key(), 1, 4).without_bias().bias.is_none());
    assert!(LayerNorm::new(4).without_bias().bias.is_none());
    assert!(!Attention::new(key(), 4, 2).causal(false).causal);
    assert!(CrossAttention::new(key(), [4, 4], [2, 1], 2).causal(true).causal);
    let eps = [LayerNorm::new(2).eps(0.5).eps, RmsNorm::new(2).eps(0.5).eps, BatchNorm::new(2).eps(0.5).eps];
    assert_eq!((eps, GroupNorm::new(2, 1).eps(0.5).eps), ([0.5; 3], 0.5));
    assert!(Lstm::new(key(), 2, 2).reverse(true).reverse && Gru::new(key(), 2, 2).reverse(true).reverse);
    assert_eq!(RunningStatistics::new(2).momentum(0.5).momentum, 0.5);
    let rotary = Rotary::new(4).theta(5e5).pairing(Pairing::Neighbours).scaling(RopeScaling::Linear { factor: 2.0 });
    assert_eq!((rotary.theta, rotary.pairing), (5e5, Pairing::Neighbours));
    assert_eq!(rotary.scaling, RopeScaling::Linear { factor: 2.0 });
    let sampling = Sampling::default().temperature(0.5).top_k(40).top_p(0.9);
    assert_eq!((sampling.temperature, sampling.top_k, sampling.top_p), (0.5, Some(40), Some(0.9)));
}
