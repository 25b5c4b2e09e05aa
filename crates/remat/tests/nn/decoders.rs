//! GPT-2 and Llama, beside transformers, and with a cache.

use remat::nn::{
    Gpt2, Gpt2Config, GroupedAttention, KvCache, Llama, LlamaConfig, Pairing, RopeScaling, Rotary, cross_entropy_where,
    next_token_loss,
};
use remat::{DType, Policy, Result, Tensor, Tree, grad, jit, random, tree};

use super::vectors::{expect, expect_gradient, filled, input};

fn gpt2(options: bool, dtype: DType) -> Gpt2 {
    let mut config =
        Gpt2Config { vocab_size: 19, n_positions: 12, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
    if options {
        config = Gpt2Config { n_inner: Some(12), layer_norm_epsilon: 1e-3, tie_word_embeddings: false, ..config };
    }
    filled(&Gpt2::init(random::key(0), &config, dtype))
}

fn llama(options: bool, dtype: DType) -> Llama {
    let mut config = LlamaConfig {
        vocab_size: 19,
        hidden_size: 16,
        intermediate_size: 20,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        ..LlamaConfig::default()
    };
    if options {
        config = LlamaConfig {
            num_key_value_heads: Some(2),
            head_dim: Some(6),
            rms_norm_eps: 1e-3,
            attention_bias: true,
            mlp_bias: true,
            tie_word_embeddings: true,
            rope_theta: 500.0,
            rope_scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position_embeddings: 16,
            },
            ..config
        };
    }
    filled(&Llama::init(random::key(0), &config, dtype))
}

fn tokens() -> Tensor {
    (Tensor::arange(0..18) * 7 % 19).reshape([2, 9])
}

#[test]
fn gpt2_is_that_of_transformers() {
    for (name, options) in [("gpt2", false), ("gpt2.options", true)] {
        for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 2e-5)] {
            let model = gpt2(options, dtype);
            let loss = |model: &Gpt2| Ok(next_token_loss(&model.apply(&tokens()), &tokens(), None));
            expect(&format!("{name}.logits"), &model.apply(&tokens()), tolerance);
            expect(&format!("{name}.loss"), &loss(&model).unwrap(), 5e-5);
            expect_gradient(&format!("{name}.gradient"), loss, &model, 5e-5);
        }
    }
}

#[test]
fn llama_is_that_of_transformers() {
    for (name, options) in [("llama", false), ("llama.options", true)] {
        // transformers computes angles and norms in f32 in any case.
        for dtype in [DType::F64, DType::F32] {
            let model = llama(options, dtype);
            let loss = |model: &Llama| Ok(next_token_loss(&model.apply(&tokens()), &tokens(), None));
            expect(&format!("{name}.logits"), &model.apply(&tokens()), 5e-5);
            expect(&format!("{name}.loss"), &loss(&model).unwrap(), 5e-5);
            expect_gradient(&format!("{name}.gradient"), loss, &model, 2e-4);
        }
    }
}

#[test]
fn neighbours_turn_as_in_gpt_j() {
    let rotary = Rotary { pairing: Pairing::Neighbours, ..Rotary::new(6) };
    let x = input(&[2, 5, 3, 6], DType::F64);
    expect("rotary.neighbours", &rotary.at(&Tensor::arange(3..8), DType::F64).apply(&x), 1e-6);
}

#[test]
fn features_that_are_not_rotated_stay() {
    for pairing in [Pairing::Halves, Pairing::Neighbours] {
        let x = input(&[5, 3, 10], DType::Bf16);
        let part = Rotary { pairing, ..Rotary::new(4) }.at(&Tensor::arange(0..5), DType::Bf16);
        let (y, own) = (part.apply(&x), part.apply(&x.index((.., .., ..4))));
        assert_eq!(y.dtype().unwrap(), DType::Bf16);
        let bits = |x: Tensor| x.to_dtype(DType::F64).to_vec::<f64>().unwrap();
        assert_eq!(bits(y.index((.., .., 4..))), bits(x.index((.., .., 4..))));
        assert_eq!(bits(y.index((.., .., ..4))), bits(own));
    }
    let linear = Rotary { scaling: RopeScaling::Linear { factor: 2.0 }, ..Rotary::new(4) };
    assert_eq!(linear.frequencies(), [0.5, 0.005]);
}

/// The logits of all tokens, given to a model with a cache in parts.
fn in_parts<M: Tree>(
    model: &M,
    mut cache: KvCache,
    parts: &[usize],
    apply: impl Fn(&M, &Tensor, KvCache) -> Result<(Tensor, KvCache)>,
) -> Tensor {
    let (mut at, mut logits) = (0, Vec::new());
    for &count in parts {
        let (next, held) = apply(model, &tokens().index((.., at..at + count)), cache).unwrap();
        logits.push(next);
        cache = held;
        at += count;
    }
    assert_eq!(cache.length.item::<i32>().unwrap(), 9);
    Tensor::concatenate(&logits, 1)
}

#[test]
fn a_cache_gives_the_same_logits() {
    for stacked in [false, true] {
        for options in [false, true] {
            let (mut gpt2, mut llama) = (gpt2(options, DType::F64), llama(options, DType::F64));
            if stacked {
                gpt2.blocks = gpt2.blocks.stacked().unwrap().with_policy(Policy::Dots);
                llama.blocks = llama.blocks.stacked().unwrap();
            }
            let expected = [gpt2.apply(&tokens()), llama.apply(&tokens())];
            for parts in [&[9][..], &[4, 1, 3, 1], &[1; 9]] {
                let actual = [
                    in_parts(&gpt2, gpt2.cache(2, 9).unwrap(), parts, Gpt2::apply_cached),
                    in_parts(&llama, llama.cache(2, 12).unwrap(), parts, Llama::apply_cached),
                ];
                for (actual, expected) in actual.iter().zip(&expected) {
                    assert!(actual.allclose(expected, 1e-10, 1e-12).unwrap(), "{stacked} {options} {parts:?}");
                }
            }
        }
    }
}

#[test]
fn one_program_serves_all_positions() {
    // In f64: of one token and of nine, attention rounds in different places, and norms of small values make that larger.
    let model = llama(true, DType::F64);
    let expected = model.apply(&tokens());
    let step = jit(|(tokens, cache): &(Tensor, KvCache)| model.apply_cached(tokens, cache.clone()));
    let mut cache = model.cache(2, 9).unwrap();
    for i in 0..9usize {
        let (logits, next) = step.call((tokens().index((.., i..=i)), cache)).unwrap();
        assert!(logits.allclose(&expected.index((.., i..=i)), 1e-10, 1e-12).unwrap(), "{i}");
        cache = next;
    }
    assert_eq!(step.cache_size(), 1);
    // The cache is full: an error where the length is known, NaN where it is not.
    let next = tokens().index((.., ..1));
    let (logits, _) = step.call((next.clone(), cache.clone())).unwrap();
    assert!(logits.to_vec::<f64>().unwrap().iter().all(|x| x.is_nan()));
    let line = line!() + 1;
    let error = model.apply_cached(&next, cache.clone()).map(drop).unwrap_err();
    assert_eq!(error.message(), "9 of 9 positions are taken, and 1 more do not fit");
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
    let error = jit(|cache: &KvCache| model.apply_cached(&tokens().tile([1, 2]), cache.clone())).call(cache).map(drop);
    assert_eq!(error.unwrap_err().message(), "0 of 9 positions are taken, and 18 more do not fit");
}

#[test]
fn stacked_blocks_train_as_listed_ones() {
    let loss = |model: &Llama| next_token_loss(&model.apply(&tokens()), &tokens(), None);
    let listed = llama(false, DType::F64);
    let mut stacked = listed.clone();
    stacked.blocks = stacked.blocks.stacked().unwrap().with_policy(Policy::names(["attn", "mlp"]));
    let (a, b) = (grad(loss)(&listed).unwrap(), grad(loss)(&stacked).unwrap());
    let b = Llama { blocks: b.blocks.unstacked().with_policy(None), ..b };
    for ((path, a), (_, b)) in tree::leaves(&a).iter().zip(tree::leaves(&b)) {
        assert!(a.allclose(&b, 1e-12, 1e-14).unwrap(), "{path}");
    }
}

#[test]
fn a_new_model_has_the_loss_of_chance() {
    let tokens = Tensor::arange(0..64).reshape([2, 32]);
    let config =
        Gpt2Config { vocab_size: 64, n_positions: 32, n_embd: 32, n_layer: 4, n_head: 4, ..Gpt2Config::default() };
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        let model = Gpt2::init(random::key(1), &config, dtype);
        let loss = next_token_loss(&model.apply(&tokens), &tokens, None).to_dtype(DType::F32).item::<f32>().unwrap();
        assert!((loss - 64f32.ln()).abs() < 0.1, "{loss}");
    }
    let model = Gpt2::init(random::key(1), &config, DType::F32);
    let deviation = |path: &str| {
        let leaf = tree::leaves(&model).into_iter().find(|(own, _)| own.to_string() == path).unwrap().1;
        leaf.std(..).item::<f32>().unwrap()
    };
    assert!((deviation("embed.table") / 0.02 - 1.0).abs() < 0.1);
    assert!((deviation("blocks.1.attn.qkv.weight") / 0.02 - 1.0).abs() < 0.1);
    assert!((deviation("blocks.2.mlp.down.weight") / (0.02 / 8f32.sqrt()) - 1.0).abs() < 0.1);
    assert_eq!(deviation("blocks.2.mlp.down.bias"), 0.0);
}

#[test]
fn ignored_tokens_do_not_count() {
    let logits = input(&[2, 4, 5], DType::F64);
    let targets = Tensor::new([[1, -100, 3, 4], [0, 2, -100, 99]]);
    let mask = targets.ge(0) & targets.lt(5);
    let loss = |logits: &Tensor| cross_entropy_where(logits, &targets, &mask);
    let rows = [(0, 0, 1), (0, 2, 3), (0, 3, 4), (1, 0, 0), (1, 1, 2)];
    let expected: f64 = rows
        .iter()
        .map(|&(b, t, class)| -logits.log_softmax(-1).index((b, t, class)).item::<f64>().unwrap())
        .sum::<f64>()
        / 5.0;
    assert!((loss(&logits).item::<f64>().unwrap() - expected).abs() < 1e-12);
    let gradient = grad(loss)(&logits).unwrap();
    assert_eq!(gradient.index((0, 1)).to_vec::<f64>().unwrap(), [0.0; 5]);
    assert!(gradient.to_vec::<f64>().unwrap().iter().all(|x| x.is_finite()));
    let none = cross_entropy_where(&logits, &targets, &targets.lt(-500));
    assert!(none.item::<f64>().unwrap().is_nan());
    let shifted = next_token_loss(&logits, &targets, Some(&mask));
    let by_hand = cross_entropy_where(&logits.index((.., ..-1)), &targets.index((.., 1..)), &mask.index((.., 1..)));
    assert_eq!(shifted.item::<f64>().unwrap(), by_hand.item::<f64>().unwrap());
}

#[test]
fn what_does_not_fit_is_an_error() {
    let message = |x: Tensor| x.error().unwrap().message().to_string();
    let model = gpt2(false, DType::F32);
    assert_eq!(message(model.apply(&tokens().tile([1, 2]))), "18 positions are more than the 12 that the model has");
    assert_eq!(model.cache(1, 13).unwrap_err().message(), "13 positions are more than the 12 that the model has");
    assert_eq!(
        message(model.apply(&Tensor::zeros([2, 3], DType::F32))),
        "the tokens must be integers [batch, positions], not f32[2,3]"
    );
    let three = GroupedAttention::init(random::key(0), 8, [4, 3], 2, DType::F32);
    assert_eq!(message(three.q.weight.clone()), "3 key heads do not divide 4 heads");
    // More features than can be counted.
    let huge = GroupedAttention::init(random::key(0), 8, [1 << 33; 2], 1 << 33, DType::F32);
    let config = LlamaConfig {
        vocab_size: 8,
        hidden_size: 8,
        intermediate_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 1 << 33,
        head_dim: Some(1 << 33),
        attention_bias: true,
        ..LlamaConfig::default()
    };
    let model = Llama::new(random::key(0), &config);
    for GroupedAttention { q, k, v, out, .. } in [huge, model.blocks.to_layers().remove(0).attn] {
        for weight in [q.weight, k.weight, v.weight, out.weight] {
            assert!(message(weight).ends_with(" is too large"));
        }
    }
    // Its error is that of the weights, before there are frequencies of as many features.
    assert_eq!(message(model.apply(&tokens())), format!("the shape [8, {}] is too large", i64::MAX));
    let one = LlamaConfig { num_attention_heads: 1, head_dim: Some(1 << 62), ..config };
    let model = Llama::new(random::key(0), &one);
    let expected = format!("the shape [8, {}] is too large", 1i64 << 62);
    assert_eq!(message(model.apply(&tokens())), expected);
    let refused = model.apply_cached(&tokens(), KvCache::new([1, 2, 9, 1, 1])).map(drop).unwrap_err();
    assert_eq!(refused.message(), expected);
    let turned = Llama { rotary: Rotary::new(1 << 62), ..llama(false, DType::F32) };
    assert_eq!(
        message(turned.apply(&tokens())),
        format!("the heads have 4 features, and {} are to be rotated", 1u64 << 62)
    );
    assert_eq!(
        message(Rotary::new(1 << 62).at(&Tensor::arange(0..4), DType::F32).sin),
        format!("there is no memory for the frequencies of {} features", 1u64 << 62)
    );
    let two = GroupedAttention { key_heads: 3, ..GroupedAttention::init(random::key(0), 8, [4, 2], 2, DType::F32) };
    assert_eq!(message(two.apply(&Tensor::ones([3, 8], DType::F32), None)), "3 key heads do not divide 4 heads");
    assert_eq!(
        message(two.apply(&Tensor::ones([8], DType::F32), None)),
        "takes axes of positions and of features, not f32[8]"
    );
    let at = Tensor::arange(0..4);
    assert_eq!(message(Rotary::new(5).at(&at, DType::F32).cos), "5 features cannot be paired");
    assert_eq!(
        message(Rotary::new(4).at(&at.to_dtype(DType::F32), DType::F32).cos),
        "the positions must be integers, not f32[4]"
    );
    let rotation = Rotary::new(4).at(&at, DType::F32);
    assert_eq!(
        message(rotation.apply(&Tensor::ones([4, 1, 2], DType::F32))),
        "takes axes of positions, heads and at least 4 features, not f32[4,1,2]"
    );
    assert_eq!(
        message(rotation.apply(&Tensor::ones([1, 2, 4], DType::F32))),
        "f32[1,2,4] does not have the positions of the rotation f32[4,1,2]"
    );
    assert_eq!(
        message(cross_entropy_where(
            &Tensor::ones([3, 2], DType::F32),
            &Tensor::zeros([3], DType::I32),
            &at.index(..3)
        )),
        "the mask must be bool, not i32[3]; compare it first, as in `x.ge(0)`"
    );
    assert_eq!(
        message(next_token_loss(&Tensor::ones([2], DType::F32), &Tensor::from(1i32), None)),
        "the tokens i32[] have no axis of positions"
    );
    let cache = KvCache::init([1, 2, 4, 2, 2], DType::F32);
    let x = Tensor::ones([3, 1, 2, 2], DType::F32);
    let error = cache.attend(&Tensor::from(0i32), &x, &x, &x, None).map(drop).unwrap_err();
    assert_eq!(error.message(), "f32[3,1,2,2] is not 1 position of the cache f32[1,2,4,2,2]");
}

#[test]
fn a_cache_of_another_model_is_an_error() {
    let cache = |shape| KvCache::init(shape, DType::F32);
    let attend = |shape: [usize; 4], dtype, cache: &KvCache| {
        let x = Tensor::ones(shape, dtype);
        cache.attend(&Tensor::from(0i32), &x, &x, &x, None).map(drop).unwrap_err().message().to_string()
    };
    let held = cache([1, 2, 4, 2, 2]);
    for (shape, dtype) in [([2, 1, 1, 2], DType::F32), ([2, 1, 2, 1], DType::F32), ([2, 1, 2, 2], DType::F64)] {
        let given = Tensor::ones(shape, dtype);
        let expected = format!("{} is not 1 position of the cache f32[1,2,4,2,2]", given.aval().unwrap());
        assert_eq!(attend(shape, dtype, &held), expected);
    }
    let mixed = KvCache { values: Tensor::zeros([2], DType::F32), ..held };
    assert_eq!(attend([2, 1, 2, 2], DType::F32, &mixed), "f32[2,1,2,2] is not 1 position of the cache f32[2]");

    let (gpt2, llama) = (gpt2(false, DType::F32), llama(true, DType::F32));
    for layers in [1, 3] {
        let refused = [
            gpt2.apply_cached(&tokens(), cache([layers, 2, 12, 2, 4])),
            llama.apply_cached(&tokens(), cache([layers, 2, 12, 2, 6])),
        ];
        for (error, sizes) in refused.into_iter().zip(["2,4", "2,6"]) {
            let expected = format!("the cache f32[{layers},2,12,{sizes}] does not have the 2 layers of the model");
            assert_eq!(error.map(drop).unwrap_err().message(), expected);
        }
    }
}

#[test]
fn a_rotation_is_of_the_positions_of_what_it_turns() {
    let rotation = |positions: Tensor| Rotary::new(4).at(&positions, DType::F32);
    let refused = |rotation: remat::nn::Rotation, shape: &[usize]| {
        rotation.apply(&Tensor::ones(shape, DType::F32)).error().unwrap().message().to_string()
    };
    let one = rotation(Tensor::arange(3..4));
    assert_eq!(refused(one, &[5, 2, 4]), "f32[5,2,4] does not have the positions of the rotation f32[1,1,2]");
    let batch = || rotation(Tensor::arange(0..10).reshape([2, 5]));
    for shape in [&[3, 5, 1, 4][..], &[1, 5, 1, 4], &[5, 1, 4]] {
        let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
        let expected = format!("f32[{}] does not have the positions of the rotation f32[2,5,1,2]", sizes.join(","));
        assert_eq!(refused(batch(), shape), expected);
    }
    // Each example may have positions of its own, or all the same.
    let x = input(&[2, 5, 3, 4], DType::F32);
    let own = batch().apply(&x);
    for (i, start) in [0, 5].into_iter().enumerate() {
        let alone = rotation(Tensor::arange(start..start + 5)).apply(&x.index(i));
        assert!(own.index(i).allclose(&alone, 1e-6, 1e-6).unwrap());
    }
    let shared = rotation(Tensor::arange(0..5).reshape([1, 5])).apply(&x);
    assert!(shared.allclose(&rotation(Tensor::arange(0..5)).apply(&x), 0.0, 0.0).unwrap());
    let other = remat::nn::Rotation { sin: Tensor::ones([1, 1, 2], DType::F32), ..rotation(Tensor::arange(0..5)) };
    assert_eq!(refused(other, &[5, 2, 4]), "f32[5,2,4] does not have the positions of the rotation f32[1,1,2]");
}

#[test]
fn sizes_that_do_not_fit_are_failed_weights() {
    let config = LlamaConfig { vocab_size: 9, hidden_size: 16, intermediate_size: 8, ..LlamaConfig::default() };
    for (heads, head_dim) in [(3, None), (0, None), (3, Some(4))] {
        let config = LlamaConfig { num_hidden_layers: 1, num_attention_heads: heads, head_dim, ..config.clone() };
        let logits = Llama::init(random::key(0), &config, DType::F32).apply(&tokens());
        match head_dim {
            None => assert_eq!(logits.error().unwrap().message(), format!("{heads} heads do not divide 16 features")),
            Some(_) => assert_eq!(logits.shape().unwrap(), [2, 9, 9]),
        }
    }
}
