//! `remat generate` and `remat eval`: text from a trained model, and its loss on a text.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use remat::random;
use remat_command::arguments::up_to;
use remat_command::command;
use remat_command::table::thousands;
use remat_command::text::printable;
use remat_data::TokenStream;

use crate::data::{open, plain};
use crate::machine;
use crate::model::Narrowed;
use crate::sample::{Choice, sample};
use crate::sequences::Sequences;
use crate::source::Source;
use crate::train::mean_loss;

/// Arguments of `remat generate`.
#[derive(clap::Args)]
pub(crate) struct Generate {
    /// The folder of a run, of which the last checkpoint is read, of one checkpoint, or of a Hugging Face model (config.json, safetensors,
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
    /// Seed of sampling: the same seed writes the same text
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
    sample(&model, &prompt, args.length, source.context, &args.choice, key, each).map_err(machine::explained)?;
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
    /// The folder of a run, of which the last checkpoint is read, of one checkpoint, or of a Hugging Face model (config.json, safetensors,
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
    if let Some(context) = args.context.filter(|&context| context > source.context) {
        bail!("--context {context} is more than the {} positions of the model", source.context);
    }
    let (context, batch) = (args.context.unwrap_or(source.window), args.batch.unwrap_or(source.batch));
    let tokens = TokenStream::new(&text, &source.tokenizer);
    let mut sequences = Sequences::new(tokens, source.begin, context, batch).map_err(plain)?;
    ensure!(sequences.context() > 0, "the text has too few tokens to predict one from another: {}", sequences.tokens());
    let loss = mean_loss(&source.model, sequences.by_ref()).map_err(machine::explained)?;
    let (bytes, count) = (sequences.bytes(), sequences.tokens());
    writeln!(out, "checkpoint: {}", source.path.display())?;
    writeln!(out, "text: {} bytes in {}", thousands(bytes as usize), text.description())?;
    // The average bytes of the predicted tokens, assuming that they are as long as all others.
    let bytes_of_token = bytes as f64 / count as f64;
    let bits = loss / std::f64::consts::LN_2 / bytes_of_token;
    Ok(writeln!(
        out,
        "loss {loss:.4}, {bits:.4} bits per byte, of {} tokens",
        thousands(sequences.predicted() as usize)
    )?)
}

fn notes(notes: &[String], out: &mut impl Write) -> Result<()> {
    for note in notes {
        command::note(out, note)?;
    }
    Ok(())
}
