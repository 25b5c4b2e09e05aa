//! `remat generate` and `remat eval`: what a trained model writes, and how well it predicts a text.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use remat::random;
use remat_cli::arguments::up_to;
use remat_cli::table::thousands;

use crate::data::{batches, load};
use crate::run::Saved;
use crate::sample::{Choice, Readable, sample};
use crate::train::mean_loss;

/// Arguments of `remat generate`.
#[derive(clap::Args)]
pub(crate) struct Generate {
    /// The folder of a run, for its last checkpoint, or of one checkpoint
    #[arg(value_name = "FOLDER")]
    from: PathBuf,
    /// The text that the model continues
    #[arg(long, default_value = "\n", allow_hyphen_values = true)]
    prompt: String,
    /// Bytes to write
    #[arg(long, default_value_t = 300, value_name = "BYTES", value_parser = up_to(1 << 32))]
    length: usize,
    #[command(flatten)]
    choice: Choice,
    /// The seed of the draws: the same seed writes the same text
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
}

/// Writes text as the model draws it.
///
/// # Errors
/// If there is no checkpoint, or it cannot be read; if the output cannot be written.
pub(crate) fn generate(args: &Generate, out: &mut impl Write) -> Result<()> {
    ensure!(!args.prompt.is_empty(), "the prompt is empty; the model needs a byte to continue");
    let saved = Saved::open(&args.from)?;
    notes(&saved, out)?;
    let mut text = Readable::default();
    let each = |byte: u8| -> Result<()> {
        write!(out, "{}", text.push(byte))?;
        Ok(out.flush()?)
    };
    let (model, context) = (saved.model()?, saved.context());
    sample(&model, args.prompt.as_bytes(), args.length, context, &args.choice, random::key(args.seed), each)?;
    Ok(writeln!(out, "{}", text.rest())?)
}

/// Arguments of `remat eval`.
#[derive(clap::Args)]
pub(crate) struct Eval {
    /// The folder of a run, for its last checkpoint, or of one checkpoint
    #[arg(value_name = "FOLDER")]
    from: PathBuf,
    /// A file or folder of text, of which nothing is held out [default: the text files of the current git checkout or folder]
    #[arg(long, value_name = "PATH")]
    text: Option<PathBuf>,
}

/// Prints the loss of a text.
///
/// # Errors
/// As [`generate`]; if the text cannot be read or is shorter than a sequence.
pub(crate) fn eval(args: &Eval, out: &mut impl Write) -> Result<()> {
    let saved = Saved::open(&args.from)?;
    notes(&saved, out)?;
    let text = load(args.text.as_deref())?;
    let context = saved.context();
    let bytes = text.files.concat();
    let counted = bytes.len().saturating_sub(1) / context * context;
    ensure!(counted > 0, "the text has {} bytes, no more than a context of {context}", bytes.len());
    let loss = mean_loss(&saved.model()?, batches(&bytes, saved.config.batch, context))?;
    writeln!(out, "checkpoint: {}", saved.path().display())?;
    writeln!(out, "text: {} bytes in {}", thousands(bytes.len()), text.source)?;
    let bits = loss / std::f64::consts::LN_2;
    Ok(writeln!(out, "loss {loss:.4}, {bits:.4} bits per byte, of {} bytes", thousands(counted))?)
}

fn notes(saved: &Saved, out: &mut impl Write) -> Result<()> {
    for note in &saved.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}
