//! A model of Hugging Face: loaded, adapted, written.

use std::error::Error;

use remat::nn::{Gpt2, Gpt2Config, Lora, Sampling, generate, next_token_loss};
use remat::optim::{AdamW, Frozen, Optimizer, Partition};
use remat::{DType, Tensor, jit, random, tree, value_and_grad};
use remat_io::huggingface;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let config =
        Gpt2Config { vocab_size: 50, n_positions: 32, n_embd: 16, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
    huggingface::save(folder.join("gpt2"), &Gpt2::init(random::key(0), &config, DType::F32), &config)?;

    println!("== load");
    // ANCHOR: load
    // A folder with config.json and model.safetensors, as `transformers` writes it. `None`: in the dtype of the file.
    let (model, config) = huggingface::load::<Gpt2>(folder.join("gpt2"), None)?;
    println!("{} layers of width {}, {} tokens", config.n_layer, config.n_embd, config.vocab_size);
    let text = generate(random::key(0), &model, &[[1, 2, 3]], 5, Sampling::greedy())?;
    // ANCHOR_END: load
    assert_eq!(text[0].len(), 8);

    println!("== adapt");
    // ANCHOR: adapt
    // Two narrow matrices beside each map of the attention; nothing else is trained, and has no optimizer state.
    let lora = Lora { rank: 4, alpha: 8.0, maps: vec!["**.attn.*".into()] };
    let mut adapted = lora.attach(random::key(1), &model)?;
    let optimizer = Partition {
        mask: Lora::mask(),
        chosen: AdamW { learning_rate: 0.01.into(), ..AdamW::default() },
        others: Frozen,
    };
    let mut state = optimizer.init(&adapted);
    let numbers = |model: &Gpt2| tree::leaves(model).iter().map(|(_, leaf)| leaf.size()).sum::<remat::Result<usize>>();
    println!("{} numbers, and {} in adapters", numbers(&model)?, numbers(&adapted)? - numbers(&model)?);

    let tokens = Tensor::arange(0..64).reshape([4, 16]) % 50;
    let step = jit(|(model, state): &(Gpt2, _)| -> remat::Result<_> {
        let loss = |model: &Gpt2| next_token_loss(&model.apply(&tokens), &tokens, None);
        let (loss, gradient) = value_and_grad(loss)(model)?;
        let (model, state) = optimizer.update(model, &gradient, state)?;
        Ok((model, state, loss))
    });
    for i in 0..=20 {
        let loss;
        (adapted, state, loss) = step.call((adapted, state))?;
        if i % 10 == 0 {
            println!("step {i:>2}: loss {:.3}", loss.item::<f32>()?);
        }
    }
    // ANCHOR_END: adapt

    println!("== export");
    // ANCHOR: export
    // In the end adapters become a part of the weights.
    let merged = Lora::merge(&adapted);
    huggingface::save(folder.join("adapted"), &merged, &config)?;
    let (again, _) = huggingface::load::<Gpt2>(folder.join("adapted"), None)?;
    assert_eq!(again.apply(&tokens).to_vec::<f32>()?, merged.apply(&tokens).to_vec::<f32>()?);
    // ANCHOR_END: export
    println!("== wrong");
    // ANCHOR: wrong
    let other = Gpt2Config { n_embd: 32, ..config };
    let error = huggingface::save(folder.join("other"), &merged, &other).expect_err("it has other sizes");
    println!("{}", error.message());
    // ANCHOR_END: wrong
    Ok(())
}
