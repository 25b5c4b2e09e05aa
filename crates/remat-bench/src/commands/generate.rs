//! `remat-bench generate`: tokens per second of a decoder, with random weights or those of a folder of Hugging Face.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use remat::nn::{Decoder, Generator, Gpt2, Gpt2Config, Llama, LlamaConfig, Sampling};
use remat::tree::leaves;
use remat::{Cpu, DType, JitOptions, random};
use remat_command::arguments::up_to;
use remat_command::times::median;
use remat_io::huggingface;
use serde::Serialize;

/// Arguments of `remat-bench generate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kind of model
    #[arg(long, value_enum, default_value = "gpt2")]
    model: Kind,
    /// Blocks
    #[arg(long, default_value_t = 12, value_parser = up_to(10_000))]
    layers: usize,
    /// Width: features per token
    #[arg(long, default_value_t = 768, value_parser = up_to(1 << 16))]
    width: usize,
    /// Attention heads; a Llama has a third as many key heads, at least one
    #[arg(long, default_value_t = 12, value_parser = up_to(1 << 12))]
    heads: usize,
    /// Hidden features of a block
    #[arg(long, default_value_t = 3072, value_parser = up_to(1 << 18))]
    hidden: usize,
    /// Tokens of the vocabulary
    #[arg(long, default_value_t = 50257, value_parser = up_to(1 << 20))]
    vocabulary: usize,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 64, value_parser = up_to(1 << 16))]
    prompt: usize,
    /// Tokens that are drawn, after the first one
    #[arg(long, default_value_t = 64, value_parser = up_to(1 << 16))]
    tokens: usize,
    /// The dtype of weights and cache: f32, bf16 or f16
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// Threads [default: as many as there are cores]
    #[arg(long, value_parser = up_to(1 << 10))]
    threads: Option<usize>,
    /// A folder of Hugging Face with the weights; the kind and the sizes are those there
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
    /// Write the random weights in f32 to this folder, as Hugging Face has them, and measure nothing
    #[arg(long, value_name = "FOLDER", conflicts_with = "from")]
    save: Option<PathBuf>,
    /// Print a line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Gpt2,
    Llama,
}

/// The measurements. Times are medians of three texts after a first one, which compiles the programs and does not count.
#[derive(Serialize)]
struct Record {
    framework: &'static str,
    model: Kind,
    dtype: String,
    parameters: usize,
    prompt: usize,
    tokens: usize,
    /// The time to the first token, including reading the prompt.
    prompt_s: f64,
    /// The time of each later token.
    token_s: f64,
    tokens_per_s: f64,
    /// Bytes of weights over the time of a token.
    weights_gb_per_s: f64,
    /// The tokens of a text, to compare with other frameworks.
    text: Vec<u32>,
}

/// The number of texts.
const TEXTS: usize = 3;

/// Measures, and prints a line.
///
/// # Errors
/// If the sizes do not fit, or a program cannot be run.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let dtype = match args.dtype.as_str() {
        "f32" => DType::F32,
        "bf16" => DType::Bf16,
        "f16" => DType::F16,
        other => anyhow::bail!("unknown dtype `{other}`; there are f32, bf16 and f16"),
    };
    ensure!(args.tokens > 0 && args.prompt > 0, "a prompt and a text have at least one token");
    if let Some(folder) = &args.save {
        match args.model {
            Kind::Gpt2 => huggingface::save(folder, &args.gpt2(DType::F32), &args.gpt2_config())?,
            Kind::Llama => huggingface::save(folder, &args.llama(DType::F32), &args.llama_config())?,
        }
        return Ok(writeln!(out, "{}", folder.display())?);
    }
    let record = match &args.from {
        Some(folder) if huggingface::model_type(folder)? == "llama" => {
            measure(args, Kind::Llama, huggingface::load::<Llama>(folder, Some(dtype))?.0)
        }
        Some(folder) => measure(args, Kind::Gpt2, huggingface::load::<Gpt2>(folder, Some(dtype))?.0),
        None => match args.model {
            Kind::Gpt2 => measure(args, args.model, args.gpt2(dtype)),
            Kind::Llama => measure(args, args.model, args.llama(dtype)),
        },
    }?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&record)?)?;
    } else {
        let Record { parameters, prompt_s, token_s, tokens_per_s, weights_gb_per_s, .. } = &record;
        writeln!(
            out,
            "{} parameters: prompt {:.1} ms, token {:.2} ms, {tokens_per_s:.1} tokens per second, weights at {weights_gb_per_s:.1} GB/s",
            remat_command::table::thousands(*parameters),
            1e3 * prompt_s,
            1e3 * token_s
        )?;
    }
    Ok(())
}

impl Args {
    fn gpt2_config(&self) -> Gpt2Config {
        Gpt2Config {
            vocab_size: self.vocabulary,
            n_positions: self.prompt + self.tokens,
            n_embd: self.width,
            n_layer: self.layers,
            n_head: self.heads,
            n_inner: Some(self.hidden),
            ..Gpt2Config::default()
        }
    }

    fn gpt2(&self, dtype: DType) -> Gpt2 {
        Gpt2::init(random::key(0), &self.gpt2_config(), dtype)
    }

    fn llama_config(&self) -> LlamaConfig {
        LlamaConfig {
            vocab_size: self.vocabulary,
            hidden_size: self.width,
            intermediate_size: self.hidden,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: Some((self.heads / 3).max(1)),
            max_position_embeddings: self.prompt + self.tokens,
            ..LlamaConfig::default()
        }
    }

    fn llama(&self, dtype: DType) -> Llama {
        Llama::init(random::key(0), &self.llama_config(), dtype)
    }
}

fn measure<M: Decoder>(args: &Args, kind: Kind, model: M) -> Result<Record> {
    let device = args.threads.map(Cpu::with_threads).transpose()?.map(Into::into);
    let weights = leaves(&model);
    let (mut parameters, mut bytes) = (0, 0);
    for (_, weight) in &weights {
        let aval = weight.aval()?;
        parameters += aval.size();
        bytes += aval.bytes();
    }
    drop(weights);
    let vocabulary = model.vocabulary()?;
    let generator = Generator::new_with(&JitOptions { device, ..JitOptions::default() }, model, Sampling::greedy());
    let prompt: Vec<u32> = (0..args.prompt).map(|i| (i * 7919 % vocabulary) as u32).collect();
    let (mut prompts, mut times, mut text) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..=TEXTS {
        text.clear();
        let mut started = Instant::now();
        for (i, token) in generator.tokens(random::key(0), &[&prompt], args.tokens + 1)?.enumerate() {
            text.extend(token?);
            let seconds = started.elapsed().as_secs_f64();
            started = Instant::now();
            if number > 0 {
                if i == 0 { &mut prompts } else { &mut times }.push(seconds);
            }
        }
    }
    let (prompt_s, token_s) = (median(&mut prompts), median(&mut times));
    Ok(Record {
        framework: "remat",
        model: kind,
        dtype: args.dtype.clone(),
        parameters,
        prompt: args.prompt,
        tokens: args.tokens,
        prompt_s,
        token_s,
        tokens_per_s: 1.0 / token_s,
        weights_gb_per_s: bytes as f64 / token_s / 1e9,
        text,
    })
}
