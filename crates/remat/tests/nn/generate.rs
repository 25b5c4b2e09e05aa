//! Tokens out of decoders, beside those of whole forward passes.

use remat::nn::{Decoder, Generator, Gpt2, Gpt2Config, KvCache, Llama, LlamaConfig, Sampling, Tokens, generate};
use remat::{DType, Error, Result, Tensor, eval_shape, jit, random, tree};

const CONTEXT: usize = 10;

fn gpt2(dtype: DType) -> Gpt2 {
    let config =
        Gpt2Config { vocab_size: 19, n_positions: CONTEXT, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
    wide(&Gpt2::init(random::key(3), &config, dtype))
}

fn llama(dtype: DType) -> Llama {
    let config = LlamaConfig {
        vocab_size: 19,
        hidden_size: 16,
        intermediate_size: 20,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        ..LlamaConfig::default()
    };
    wide(&Llama::init(random::key(4), &config, dtype))
}

/// A model with weights so large that it writes more than one token again and again.
fn wide<M: Decoder>(model: &M) -> M {
    tree::map(model, |leaf| if leaf.rank().unwrap() >= 2 { leaf * 20.0 } else { leaf.clone() })
}

/// The most likely token after a text, by a whole forward pass.
fn next(apply: impl Fn(&Tensor) -> Tensor, text: &[u32]) -> u32 {
    let tokens: Vec<i32> = text.iter().map(|&token| token as i32).collect();
    let logits = apply(&Tensor::from_vec(tokens, [1, text.len()]));
    logits.index((0, -1)).argmax(-1).item::<i32>().unwrap() as u32
}

#[test]
fn the_most_likely_tokens_are_those_of_whole_passes() {
    let prompts = [vec![3, 1, 4], vec![7], vec![2, 7, 1, 8]];
    for stacked in [false, true] {
        let (mut gpt2, mut llama) = (gpt2(DType::F64), llama(DType::F64));
        if stacked {
            (gpt2.blocks, llama.blocks) = (gpt2.blocks.stacked().unwrap(), llama.blocks.stacked().unwrap());
        }
        let expected = |apply: &dyn Fn(&Tensor) -> Tensor| {
            prompts.clone().map(|mut text| {
                (0..5).for_each(|_| text.push(next(apply, &text)));
                text
            })
        };
        let of_gpt2 = expected(&|tokens| gpt2.apply(tokens));
        let of_llama = expected(&|tokens| llama.apply(tokens));
        let drawn = |prompts: &[Vec<u32>]| {
            let key = || random::key(0);
            (
                generate(key(), &gpt2, prompts, 5, Sampling::greedy()).unwrap(),
                generate(key(), &llama, prompts, 5, Sampling::greedy()).unwrap(),
            )
        };
        // Prompts of unequal lengths go together, and each alone.
        assert_eq!(drawn(&prompts), (of_gpt2.to_vec(), of_llama.to_vec()));
        for (i, prompt) in prompts.iter().enumerate() {
            assert_eq!(drawn(std::slice::from_ref(prompt)), (vec![of_gpt2[i].clone()], vec![of_llama[i].clone()]));
        }
    }
}

#[test]
fn past_the_context_the_last_half_is_read_again() {
    let (gpt2, llama) = (gpt2(DType::F64), llama(DType::F64));
    for length in [1, 4, CONTEXT, 3 * CONTEXT] {
        let prompt: Vec<u32> = (0..length as u32).map(|i| i * 5 % 19).collect();
        for count in [0, 1, 27] {
            let expected = |apply: &dyn Fn(&Tensor) -> Tensor| {
                let (mut text, mut read) = (prompt.clone(), length.min(CONTEXT));
                for _ in 0..count {
                    if read > CONTEXT {
                        read = CONTEXT / 2;
                    }
                    text.push(next(apply, &text[text.len() - read..]));
                    read += 1;
                }
                text
            };
            let mut of_llama = Generator::new(llama.clone(), Sampling::greedy());
            of_llama.context = Some(CONTEXT);
            let mut text = prompt.clone();
            for token in of_llama.tokens(random::key(0), &[&prompt], count).unwrap() {
                text.extend(token.unwrap());
            }
            assert_eq!(text, expected(&|tokens| llama.apply(tokens)), "{length} {count}");
            let text = generate(random::key(0), &gpt2, &[&prompt], count, Sampling::greedy()).unwrap();
            assert_eq!(text, [expected(&|tokens| gpt2.apply(tokens))], "{length} {count}");
        }
    }
    // A context of one position: each token depends on the one before alone.
    let mut generator = Generator::new(llama.clone(), Sampling::greedy());
    generator.context = Some(1);
    let drawn: Vec<u32> =
        generator.tokens(random::key(0), &[[3, 5]], 4).unwrap().flat_map(|tokens| tokens.unwrap()).collect();
    let mut text = vec![5];
    (0..4).for_each(|_| text.push(next(|tokens| llama.apply(tokens), &text[text.len() - 1..])));
    assert_eq!(drawn, text[1..]);
}

#[test]
fn a_key_draws_the_same_text_again() {
    let model = llama(DType::F32);
    let sampling = Sampling { temperature: 2.0, top_k: Some(12), ..Sampling::default() };
    let draw = |seed| generate(random::key(seed), &model, &[[1, 2], [1, 2]], 12, sampling).unwrap();
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    let [first, second] = &draw(1)[..] else { panic!() };
    assert_ne!(first, second);
    let generator = Generator::new(model.clone(), sampling);
    let mut tokens = generator.tokens(random::key(1), &[[1, 2], [1, 2]], 12).unwrap();
    assert_eq!(tokens.next().unwrap().unwrap(), [first[2], second[2]]);
    assert_eq!(tokens.size_hint(), (1, Some(11)));
    assert_eq!(generate(random::key(0), &model, &[] as &[Vec<u32>], 3, sampling).unwrap(), [] as [Vec<u32>; 0]);
}

#[test]
fn the_tokens_that_are_left_are_the_most_likely() {
    let logits = Tensor::new([[0.4f32, 0.1, 0.3, 0.2]; 2]).log();
    let drawn = |top_k, top_p| {
        let sampling = Sampling { temperature: 1.0, top_k, top_p };
        let draw = |i| sampling.choose(random::key(i), &logits).to_vec::<i32>().unwrap();
        let mut all: Vec<i32> = (0..60).flat_map(draw).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    assert_eq!(drawn(None, None), [0, 1, 2, 3]);
    assert_eq!(drawn(Some(2), None), [0, 2]);
    assert_eq!(drawn(Some(1), None), [0]);
    assert_eq!(drawn(Some(9), None), [0, 1, 2, 3]);
    assert_eq!(drawn(None, Some(0.6)), [0, 2]);
    assert_eq!(drawn(None, Some(0.75)), [0, 2, 3]);
    assert_eq!(drawn(None, Some(0.01)), [0]);
    // Of the three that are left, these are four ninths and three ninths.
    assert_eq!(drawn(Some(3), Some(0.7)), [0, 2]);
    assert_eq!(drawn(Some(3), Some(1.0)), [0, 2, 3]);
    let cold = Sampling { temperature: 1e-300, ..Sampling::default() };
    assert_eq!(cold.choose(random::key(0), &logits).to_vec::<i32>().unwrap(), [0, 0]);
}

/// The message of an error, which is where this file called.
fn message(error: Error) -> String {
    let site = error.loc().and_then(|loc| loc.site).map(|site| site.file());
    assert!(site.is_some_and(|file| file.ends_with("tests/nn/generate.rs")), "{error}");
    error.message().to_string()
}

#[test]
fn what_cannot_be_continued_is_an_error() {
    let model = gpt2(DType::F32);
    let refused = |sampling: Sampling, prompt: &[u32]| {
        message(generate(random::key(0), &model, &[prompt], 2, sampling).unwrap_err())
    };
    let own = Sampling::default();
    assert_eq!(refused(own, &[]), "a prompt has no token that could be continued");
    assert_eq!(refused(own, &[3, 19]), "token 19 of a prompt is not one of the 19 of the model");
    for temperature in [-1.0, f64::NAN, f64::INFINITY] {
        let message = format!("the temperature must be at least 0 and finite, not {temperature}");
        assert_eq!(refused(Sampling { temperature, ..own }, &[1]), message);
    }
    assert_eq!(refused(Sampling { top_k: Some(0), ..own }, &[1]), "`top_k` must be at least 1");
    for share in [0.0, 1.5, f64::NAN] {
        assert_eq!(
            refused(Sampling { top_p: Some(share), ..own }, &[1]),
            format!("`top_p` must be above 0 and at most 1, not {share}")
        );
    }
    let broken = tree::map(&model, |leaf| leaf * f64::NAN);
    let generator = Generator::new(broken, own);
    let mut tokens = generator.tokens(random::key(0), &[[1]], 3).unwrap();
    let nan = message(tokens.next().unwrap().unwrap_err());
    assert_eq!(nan, "the logits of the next token are NaN: weights are NaN, or so large that activations overflow");
    assert!(tokens.next().is_none());
    let mut none = Generator::new(model.clone(), own);
    none.context = Some(0);
    let no_room = message(none.tokens(random::key(0), &[[1]], 1).map(drop).unwrap_err());
    assert_eq!(no_room, "a context of 0 positions has no room for a token");
}

#[test]
fn a_layer_that_the_cache_does_not_have_is_an_error() {
    let cache = KvCache::init([2, 1, 4, 1, 2], DType::F32);
    let x = Tensor::ones([1, 1, 1, 2], DType::F32);
    for (layer, shown) in [(2, "2"), (-1, "-1")] {
        let error = cache.attend(&Tensor::from(layer), &x, &x, &x, None).map(drop).unwrap_err();
        assert_eq!(error.message(), format!("there is no layer {shown} in a cache of 2 layers"));
    }
    let attend = jit(|layer: &Tensor| Ok(cache.attend(layer, &x, &x, &x, None)?.0) as Result<Tensor>);
    for (layer, is_there) in [(1, true), (2, false), (-1, false)] {
        let y = attend.call(Tensor::from(layer)).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(y.iter().all(|y| *y == 1.0), is_there);
        assert_eq!(y.iter().all(|y| y.is_nan()), !is_there);
    }
}

/// A token reads and writes the cache where it lies: nothing of its size is copied.
#[test]
fn the_plan_of_a_token_has_no_copy_of_the_cache() {
    let config =
        Gpt2Config { vocab_size: 50, n_positions: 4096, n_embd: 64, n_layer: 3, n_head: 2, ..Gpt2Config::default() };
    let model = Gpt2::init(random::key(0), &config, DType::F32);
    let step = jit(|(model, tokens, cache): &(Gpt2, Tensor, KvCache)| model.apply_cached(tokens, cache.clone()));
    let args = (model.clone(), Tensor::zeros([1, 1], DType::I32), model.cache(1, 4096).unwrap());
    let memory = step.memory(&args).unwrap();
    let (of_a_layer, of_all) = (4096 * 64 * 4, 6 * 4096 * 64 * 4);
    assert!(memory.temporaries < of_a_layer, "{memory}");
    // Where the cache is donated, the next one lies in its memory.
    assert!(memory.peak - memory.donated_peak >= of_all, "{memory}");
}

/// A generator of an abstract model writes what each model writes that it is given.
#[test]
fn one_generator_serves_all_models_of_a_shape() {
    let config =
        Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
    let init = |seed: u64| Gpt2::init(random::key(seed), &config, DType::F32);
    // Nearly the most likely token: the small weights of a new model give all tokens about the same probability.
    let sampling = Sampling { temperature: 0.01, ..Sampling::default() };
    let shared = Generator::new(eval_shape(Gpt2::clone)(&init(0)).unwrap(), sampling);
    let all = |tokens: Result<Tokens<'_, Gpt2>>| tokens.unwrap().collect::<Result<Vec<_>>>().unwrap();
    let prompts = [vec![3, 1, 4], vec![1]];
    let mut texts = Vec::new();
    for seed in 0..3 {
        let own = Generator::new(init(seed), sampling);
        // Of more tokens than there are positions, so that some are read again.
        let expected = all(own.tokens(random::key(9), &prompts, 30));
        assert_eq!(all(shared.tokens_of(random::key(9), &init(seed), &prompts, 30)), expected);
        assert_eq!(own.peak(2, 3, 30).unwrap(), shared.peak(2, 3, 30).unwrap());
        texts.push(expected);
    }
    assert_ne!(texts[0], texts[1]);
    // It has no weights of its own.
    assert!(shared.tokens(random::key(9), &prompts, 1).unwrap().next().unwrap().is_err());
}
