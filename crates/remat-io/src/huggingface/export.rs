//! Writing models that `transformers` loads.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use remat::files::{cannot, write_synced, wrong};
use remat::{DType, Error, ErrorKind, Result, eval_shape};
use serde_json::json;

use super::config::{self, torch_name};
use super::{Pretrained, WEIGHTS, family};
use crate::atomic::NewFolder;
use crate::name::Named;
use crate::safetensors::{self, Index, Sizes};

const SAVE: &str = "huggingface::save";

/// The options of [`save_with`].
///
/// ```
/// use remat_io::huggingface::ExportOptions;
/// assert_eq!(ExportOptions::default(), ExportOptions { shard_bytes: 50_000_000_000 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportOptions {
    /// The most bytes of tensors in a file, unless a single tensor is larger; a model with more bytes gets several files and an index. The
    /// default is 50 GB, as in `transformers`.
    pub shard_bytes: u64,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions { shard_bytes: 50_000_000_000 }
    }
}

/// Writes a model as a folder that `AutoModelForCausalLM.from_pretrained` of `transformers` loads, with weights in their own dtypes. The
/// blocks may be stacked. The folder is written atomically.
///
/// # Errors
/// If `folder` exists and is not an empty folder; if the weights do not match a model of this configuration; if the system fails.
#[track_caller]
pub fn save<M: Pretrained>(folder: impl AsRef<Path>, model: &M, config: &M::Config) -> Result<()> {
    save_with(&ExportOptions::default(), folder, model, config)
}

/// As [`save`], with options.
///
/// # Errors
/// As [`save`].
#[track_caller]
pub fn save_with<M: Pretrained>(
    options: &ExportOptions,
    folder: impl AsRef<Path>,
    model: &M,
    config: &M::Config,
) -> Result<()> {
    save_with_files(options, folder, model, config, |_| Ok(()))
}

/// As [`save_with`], with other files of the model, such as its tokenizer: `files` gets the folder and writes them there. The folder has a
/// temporary name until then, so the model never appears without them.
///
/// ```
/// use remat::nn::{Gpt2, Gpt2Config};
/// use remat::{DType, random};
/// use remat_io::huggingface::{self, ExportOptions};
///
/// let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
/// let model = Gpt2::init(random::key(0), &config, DType::F32);
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("tiny-gpt2");
/// let card = |folder: &std::path::Path| {
///     std::fs::write(folder.join("README.md"), "A tiny model.").map_err(|error| {
///         remat::Error::new(remat::ErrorKind::Io, "card", error.to_string())
///     })
/// };
/// huggingface::save_with_files(&ExportOptions::default(), &path, &model, &config, card)?;
/// assert!(path.join("README.md").exists() && path.join("model.safetensors").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`save`]; the error of `files`. After an error there is no new folder.
#[track_caller]
pub fn save_with_files<M: Pretrained>(
    options: &ExportOptions,
    folder: impl AsRef<Path>,
    model: &M,
    config: &M::Config,
    files: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let (loc, folder) = (remat::layer::location(), folder.as_ref());
    export(options, folder, model, config, files).map_err(|error| error.at(loc))
}

fn export<M: Pretrained>(
    options: &ExportOptions,
    folder: &Path,
    model: &M,
    config: &M::Config,
    files: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let tensors = M::FAMILY.named(M::FAMILY.prefix, &model.unstacked())?;
    let dtype = expect_config::<M>(&tensors, config)?;
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) || folder.is_file() {
        return Err(wrong(SAVE, folder, "is there already, and is not overwritten"));
    }
    let new = NewFolder::begin(SAVE, folder)?;
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    let shards = shards(tensors, options.shard_bytes)?;
    let count = shards.len();
    let mut index = Index { metadata: Sizes::default(), weight_map: BTreeMap::new() };
    for (number, shard) in shards.into_iter().enumerate() {
        let name = match count {
            1 => WEIGHTS[0].to_string(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        for named in &shard {
            index.metadata.total_size += bytes(named)?;
            index.weight_map.insert(named.name.clone(), name.clone());
        }
        let path = new.partial().join(name);
        write(&path, |out| safetensors::write(SAVE, &path, shard, &metadata, out))?;
    }
    if count > 1 {
        write_json(&new.partial().join(WEIGHTS[1]), &index)?;
    }
    let mut fields = family::fields::<M>(config);
    fields.insert("torch_dtype".into(), json!(torch_name(dtype)));
    write_json(&new.partial().join(config::FILE), &fields)?;
    files(new.partial())?;
    new.finish().map_err(|error| cannot(SAVE, "write", folder, &error))
}

/// Checks that these are the tensors of a model of this configuration, and returns the dtype of the token embedding.
fn expect_config<M: Pretrained>(tensors: &[Named], config: &M::Config) -> Result<DType> {
    let mismatch = |message: String| Err(Error::new(ErrorKind::Structure, SAVE, message));
    let dtype = match tensors.first() {
        Some(named) => named.tensor.dtype()?,
        None => return mismatch("the model has no weights".to_string()),
    };
    let like = eval_shape(|_: &()| M::init(config, dtype))(&())?;
    let expected = M::FAMILY.named(M::FAMILY.prefix, &like)?;
    let of = |tensors: &[Named]| -> Result<BTreeMap<String, Vec<usize>>> {
        tensors.iter().map(|named| Ok((named.name.clone(), named.tensor.shape()?.to_vec()))).collect()
    };
    let (given, expected) = (of(tensors)?, of(&expected)?);
    for (name, shape) in &expected {
        match given.get(name) {
            Some(given) if given == shape => {}
            Some(given) => {
                return mismatch(format!("weight `{name}` has shape {given:?}, and {shape:?} in this configuration"));
            }
            None => return mismatch(format!("the model has no weight `{name}`, which this configuration has")),
        }
    }
    match given.keys().find(|name| !expected.contains_key(*name)) {
        None => Ok(dtype),
        Some(name) => mismatch(format!("the model has a weight `{name}`, which this configuration does not")),
    }
}

/// The bytes of a tensor.
fn bytes(named: &Named) -> Result<u64> {
    Ok((named.tensor.size()? * named.tensor.dtype()?.size()) as u64)
}

/// The tensors, in order, grouped into files of at most this many bytes.
fn shards(tensors: Vec<Named>, most: u64) -> Result<Vec<Vec<Named>>> {
    let (mut shards, mut shard, mut size) = (Vec::new(), Vec::new(), 0);
    for named in tensors {
        let bytes = bytes(&named)?;
        if size > 0 && size + bytes > most {
            shards.push(std::mem::take(&mut shard));
            size = 0;
        }
        size += bytes;
        shard.push(named);
    }
    shards.push(shard);
    Ok(shards)
}

fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |error: &io::Error| cannot(SAVE, "write", path, error);
    let file = File::create_new(path).map_err(|error| failed(&error))?;
    write_synced(&file, content, failed)
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let failed = |error: &io::Error| cannot(SAVE, "write", path, error);
    write(path, |out| {
        let text = serde_json::to_string_pretty(value).map_err(|error| failed(&error.into()))?;
        writeln!(out, "{text}").map_err(|error| failed(&error))
    })
}
