//! Times a Llama of a folder of Hugging Face that writes tokens one by one with a cache in candle: its own model, greedily, as `remat-bench generate`
//! and `torch_generate.py` do.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};
use clap::Parser;
use serde_json::json;

#[derive(Parser)]
struct Args {
    /// The folder of the model
    #[arg(long)]
    from: PathBuf,
    /// The kind of the model, of which there is one here
    #[arg(long, default_value = "llama", value_parser = ["llama"])]
    model: String,
    #[arg(long, default_value = "f32")]
    dtype: String,
    #[arg(long, default_value_t = 64)]
    prompt: usize,
    #[arg(long, default_value_t = 64)]
    tokens: usize,
}

const TEXTS: usize = 3;

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0
}

/// The token with the largest logit after these tokens, which stand at `position`.
fn next(model: &Llama, tokens: &[u32], position: usize, cache: &mut Cache) -> Result<u32> {
    let logits = model.forward(&Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?, position, cache)?;
    Ok(logits.argmax(D::Minus1)?.squeeze(0)?.to_scalar()?)
}

fn main() -> Result<()> {
    let args = Args::parse();
    let dtype = match args.dtype.as_str() {
        "f32" => DType::F32,
        "bf16" => DType::BF16,
        "f16" => DType::F16,
        other => bail!("unknown dtype `{other}`"),
    };
    let config: LlamaConfig = serde_json::from_slice(&fs::read(args.from.join("config.json"))?)?;
    let config: Config = config.into_config(false);
    let weights = fs::read(args.from.join("model.safetensors"))?;
    let model = Llama::load(VarBuilder::from_buffered_safetensors(weights, dtype, &Device::Cpu)?, &config)?;
    let prompt: Vec<u32> = (0..args.prompt).map(|i| (i * 7919 % config.vocab_size) as u32).collect();
    let (mut prompts, mut times, mut text) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..=TEXTS {
        text.clear();
        let mut cache = Cache::new(true, dtype, &config, &Device::Cpu)?;
        let (mut tokens, mut position) = (prompt.clone(), 0);
        for i in 0..=args.tokens {
            let started = Instant::now();
            let token = next(&model, &tokens, position, &mut cache)?;
            let seconds = started.elapsed().as_secs_f64();
            position += tokens.len();
            tokens = vec![token];
            text.push(token);
            // The first text warms up.
            if number > 0 {
                if i == 0 { &mut prompts } else { &mut times }.push(seconds);
            }
        }
    }
    let (prompt_s, token_s) = (median(&mut prompts), median(&mut times));
    let record = json!({
        "framework": "candle 0.11.1", "model": args.model, "dtype": args.dtype, "prompt": args.prompt, "tokens": args.tokens,
        "prompt_s": prompt_s, "token_s": token_s, "tokens_per_s": 1.0 / token_s, "text": text,
    });
    println!("{record}");
    Ok(())
}
