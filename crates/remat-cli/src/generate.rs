//! `remat generate` and `remat eval`: text from a trained model, and its loss on a text.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use remat::{Tensor, random};
use remat_cli::arguments::up_to;
use remat_cli::command;
use remat_cli::table::thousands;
use remat_cli::text::printable;
use remat_data::Tokens;

use crate::data::{Batch, open, whole};
use crate::model::Narrowed;
use crate::sample::{Choice, sample};
use crate::source::Source;
use crate::train::mean_loss;

/// Arguments of `remat generate`.
#[derive(clap::Args)]
pub(crate) struct Generate {
    /// The folder of a run, for its last checkpoint, of one checkpoint, or of a Hugging Face model (config.json, safetensors,
    /// tokenizer.json)
    #[arg(value_name = "FOLDER")]
    from: PathBuf,
    /// The text that the model continues
    #[arg(long, default_value = "\n", allow_hyphen_values = true)]
    prompt: String,
    /// The most tokens to write (bytes for a model without a tokenizer); fewer if the model ends the text
    #[arg(long, default_value_t = 300, value_name = "TOKENS", value_parser = up_to(1 << 32))]
    length: usize,
    #[command(flatten)]
    choice: Choice,
    /// Seed of the draws: the same seed writes the same text
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
}

/// Writes text as the model draws it, and its speed to standard error.
///
/// # Errors
/// If there is no model, or it cannot be read; if the output cannot be written.
pub(crate) fn generate(args: &Generate, out: &mut impl Write) -> Result<()> {
    ensure!(!args.prompt.is_empty(), "the prompt is empty; the model needs a token to continue");
    let source = Source::open(&args.from)?;
    notes(&source.notes, out)?;
    let prompt = source.tokenizer.encode(args.prompt.as_bytes())?;
    let prompt: Vec<u32> = source.begin.into_iter().chain(prompt).collect();
    let mut text = source.tokenizer.decoder();
    let mut drawn = 0u32;
    // Reading the prompt, which compiles programs, does not count towards the speed.
    let mut first = Instant::now();
    let each = |token: u32| -> Result<ControlFlow<()>> {
        if drawn == 0 {
            first = Instant::now();
        }
        drawn += 1;
        if source.ends.contains(&token) {
            return Ok(ControlFlow::Break(()));
        }
        write!(out, "{}", printable(&text.push(token)?))?;
        out.flush()?;
        Ok(ControlFlow::Continue(()))
    };
    let key = random::key(args.seed);
    let model = Narrowed { model: source.model.clone(), vocabulary: source.tokenizer.vocabulary() };
    sample(&model, &prompt, args.length, source.context, &args.choice, key, each)?;
    writeln!(out, "{}", printable(&text.finish()?))?;
    let seconds = first.elapsed().as_secs_f64();
    if drawn > 1 {
        let rate = f64::from(drawn - 1) / seconds.max(1e-9);
        // The text is what was asked for; its speed may be lost.
        let _ = writeln!(std::io::stderr(), "{drawn} tokens, {rate:.1} tokens/s after the first");
    }
    Ok(())
}

/// Arguments of `remat eval`.
#[derive(clap::Args)]
pub(crate) struct Eval {
    /// The folder of a run, for its last checkpoint, of one checkpoint, or of a Hugging Face model (config.json, safetensors,
    /// tokenizer.json)
    #[arg(value_name = "FOLDER")]
    from: PathBuf,
    /// A file or folder of text, of which nothing is held out [default: the text files of the current git checkout or folder]
    #[arg(long, value_name = "PATH")]
    text: Option<PathBuf>,
    /// The column of JSON lines or Parquet with the text [default: text]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Tokens per sequence; the text is cut into sequences that are predicted independently [default: those of training, or up to 1024 for
    /// a Hugging Face model, and no more than the text has]
    #[arg(long, value_name = "TOKENS", value_parser = up_to(1 << 32))]
    context: Option<usize>,
    /// Sequences per batch [default: those of training, or as many as have 1024 tokens]
    #[arg(long, value_name = "SEQUENCES", value_parser = up_to(1 << 32))]
    batch: Option<usize>,
}

/// Prints the loss of a text.
///
/// # Errors
/// As [`generate`]; if the text cannot be read or has no token to predict; if the model has fewer positions than a sequence.
pub(crate) fn eval(args: &Eval, out: &mut impl Write) -> Result<()> {
    let source = Source::open(&args.from)?;
    notes(&source.notes, out)?;
    let text = open(args.text.as_deref(), args.column.as_deref())?;
    notes(text.notes(), out)?;
    let (tokens, bytes) = whole(&text, &source.tokenizer)?;
    let count = tokens.len();
    if let Some(context) = args.context.filter(|&context| context > source.context) {
        bail!("--context {context} is more than the {} positions of the model", source.context);
    }
    // The first token is predicted only if a token precedes each text.
    let predicted = count.saturating_sub(u64::from(source.begin.is_none()));
    ensure!(predicted > 0, "the text has too few tokens to predict one from another: {count}");
    let context = args.context.unwrap_or(source.window).min(usize::try_from(predicted).unwrap_or(usize::MAX));
    let batch = args.batch.unwrap_or(source.batch);
    let counted = predicted / context as u64 * context as u64;
    let loss = mean_loss(&source.model, windows(&tokens, source.begin, context, batch))?;
    writeln!(out, "checkpoint: {}", source.path.display())?;
    writeln!(out, "text: {} bytes in {}", thousands(bytes as usize), text.description())?;
    // The average bytes of the predicted tokens, assuming that they are as long as all others.
    let bytes_of_token = bytes as f64 / count as f64;
    let bits = loss / std::f64::consts::LN_2 / bytes_of_token;
    Ok(writeln!(out, "loss {loss:.4}, {bits:.4} bits per byte, of {} tokens", thousands(counted as usize))?)
}

/// All sequences of a text, in batches of `context` tokens each, after the token that begins sequences if there is one. The end of the text
/// that does not fill a sequence is left out.
fn windows(
    tokens: &Tokens,
    begin: Option<u32>,
    context: usize,
    batch: usize,
) -> impl Iterator<Item = remat::Result<Batch>> {
    let first = u64::from(begin.is_none());
    let count = tokens.len().saturating_sub(first) / context as u64;
    (0..count).step_by(batch).map(move |row| {
        let rows = row..count.min(row.saturating_add(batch as u64));
        let shape = [(rows.end - rows.start) as usize, context];
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for row in rows {
            let start = first + row * context as u64;
            match begin {
                Some(begin) => {
                    inputs.push(begin.cast_signed());
                    inputs.extend(tokens.read(start, context - 1)?);
                }
                None => inputs.extend(tokens.read(start - 1, context)?),
            }
            targets.extend(tokens.read(start, context)?);
        }
        Ok(Batch { tokens: Tensor::from_vec(inputs, shape), targets: Tensor::from_vec(targets, shape) })
    })
}

fn notes(notes: &[String], out: &mut impl Write) -> Result<()> {
    for note in notes {
        command::note(out, note)?;
    }
    Ok(())
}
