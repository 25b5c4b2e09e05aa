//! Reads and writes models of Hugging Face: folders with `config.json` and `model.safetensors`, or several files with an index.
//!
//! ```
//! use remat::nn::{Gpt2, Gpt2Config};
//! use remat::{DType, Tensor, random};
//! use remat_io::huggingface;
//!
//! let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
//! let model = Gpt2::init(random::key(0), &config, DType::F32);
//! let folder = tempfile::tempdir()?.keep().join("tiny-gpt2");
//! huggingface::save(&folder, &model, &config)?;
//!
//! assert_eq!(huggingface::model_type(&folder)?, "gpt2");
//! let (again, read) = huggingface::load::<Gpt2>(&folder, None)?;
//! assert_eq!(read, config);
//! let tokens = Tensor::new([[1, 2, 3]]);
//! assert_eq!(again.apply(&tokens).to_vec::<f32>()?, model.apply(&tokens).to_vec::<f32>()?);
//! # std::fs::remove_dir_all(folder.parent().unwrap())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It supports the models that `transformers` calls `gpt2` and `llama`, and by [`load_as`] others with the same weights. A table maps the
//! names of weights in files to paths in the model. Weights of linear maps, which PyTorch stores as `[outputs, inputs]`, are transposed.
//! GPT-2's `Conv1D` already has the layout of [`Linear`](remat::nn::Linear), with queries, keys and values in one matrix as in
//! [`Attention`](remat::nn::Attention). Both libraries rotate feature `i` of a head together with feature `i + size / 2`. A field of the
//! configuration that would change the result, and is not supported, is an error. Tokenizers are not read here: `remat_data::Tokenizer`
//! does that.

mod config;
mod export;
mod family;
mod gpt2;
mod llama;

pub use export::{ExportOptions, save, save_with, save_with_files};

use std::path::{Path, PathBuf};

use remat::files::wrong;
use remat::{DType, Result, eval_shape};

use self::config::Fields;
use self::family::Model;
use crate::{LoadOptions, SafeTensors};

/// A model that can be read from and written to Hugging Face's format: [`Gpt2`](remat::nn::Gpt2) and [`Llama`](remat::nn::Llama).
///
/// ```no_run
/// use remat::nn::Llama;
/// use remat_io::huggingface::{self, Pretrained};
/// fn leaves<M: Pretrained>(folder: &str) -> remat::Result<usize> {
///     let (model, _) = huggingface::load::<M>(folder, None)?;
///     Ok(remat::tree::leaves(&model).len())
/// }
/// println!("{}", leaves::<Llama>("SmolLM-135M")?);
/// # Ok::<(), remat::Error>(())
/// ```
pub trait Pretrained: Model {}

impl<M: Model> Pretrained for M {}

const LOAD: &str = "huggingface::load";

/// The names of files of weights; the first one that exists is used.
const WEIGHTS: [&str; 2] = ["model.safetensors", "model.safetensors.index.json"];

/// The kind of model in a folder: `model_type` of its `config.json`.
///
/// # Errors
/// If the file cannot be read or has no such field.
#[track_caller]
pub fn model_type(folder: impl AsRef<Path>) -> Result<String> {
    let loc = remat::layer::location();
    Fields::read("huggingface::model_type", folder.as_ref())
        .and_then(|fields| fields.model_type())
        .map_err(|error| error.at(loc))
}

/// The configuration of the model in a folder.
///
/// # Errors
/// If `config.json` cannot be read, is of another kind of model, has heads that do not divide the features, or requires something that the
/// model does not support.
#[track_caller]
pub fn config<M: Pretrained>(folder: impl AsRef<Path>) -> Result<M::Config> {
    let loc = remat::layer::location();
    read_config::<M>("huggingface::config", folder.as_ref()).map_err(|error| error.at(loc))
}

/// Parses the configuration in the text of a `config.json`; errors name it `source`.
///
/// # Errors
/// As [`config`].
///
/// ```
/// use remat::nn::{Gpt2, Gpt2Config};
/// use remat_io::huggingface::{config_from_json, config_to_json};
/// let config = Gpt2Config { n_layer: 2, ..Gpt2Config::default() };
/// assert_eq!(config_from_json::<Gpt2>("config.json", &config_to_json::<Gpt2>(&config))?, config);
/// let error = config_from_json::<Gpt2>("config.json", "{}").unwrap_err();
/// assert_eq!(error.message(), "`config.json` has no field `model_type`");
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn config_from_json<M: Pretrained>(source: impl AsRef<Path>, text: &str) -> Result<M::Config> {
    let loc = remat::layer::location();
    let fields = Fields::parse("huggingface::config_from_json", source.as_ref(), text.as_bytes());
    fields.and_then(|fields| fields_config::<M>(&fields)).map_err(|error| error.at(loc))
}

/// A configuration as the text of a `config.json`, without the dtype of weights.
pub fn config_to_json<M: Pretrained>(config: &M::Config) -> String {
    serde_json::Value::Object(family::fields::<M>(config)).to_string()
}

/// Loads the model in a folder and its configuration. The weights are converted to `dtype`; with `None` all get the dtype that the token
/// embedding has in the files.
///
/// # Errors
/// As [`config`]; as [`load`](crate::load) for the weights, which must be safetensors.
#[track_caller]
pub fn load<M: Pretrained>(folder: impl AsRef<Path>, dtype: Option<DType>) -> Result<(M, M::Config)> {
    let (loc, folder) = (remat::layer::location(), folder.as_ref());
    let load = || {
        let config = read_config::<M>(LOAD, folder)?;
        let source = folder.join(config::FILE);
        Ok((read_weights::<M>(folder, (&config, Some(source.as_path())), dtype, |model| model)?, config))
    };
    load().map_err(|error: remat::Error| error.at(loc))
}

/// Loads the weights of a folder of another kind of model, which has the same names of weights: those of this configuration, where `change`
/// makes the model that the files have of one that it describes, for example without some biases. `config.json` is not read; `dtype` is that
/// of [`load`].
///
/// # Errors
/// As [`load`], except for the configuration.
///
/// ```
/// use remat::nn::{Llama, LlamaConfig};
/// use remat::{Tensor, random};
/// use remat_io::huggingface;
///
/// let config = LlamaConfig {
///     vocab_size: 50, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, num_attention_heads: 2, ..LlamaConfig::default()
/// };
/// let model = Llama::new(random::key(0), &config);
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("tiny-mistral");
/// huggingface::save(&path, &model, &config)?;
/// let text = std::fs::read_to_string(path.join("config.json"))?;
/// std::fs::write(path.join("config.json"), text.replace("\"llama\"", "\"mistral\""))?;
///
/// let error = huggingface::load::<Llama>(&path, None).unwrap_err();
/// assert!(error.message().ends_with("is of a model of type `mistral` and not `llama`"), "{error}");
/// let again = huggingface::load_as::<Llama>(&path, &config, None, |model| model)?;
/// let tokens = Tensor::new([[1, 2, 3]]);
/// assert_eq!(again.apply(&tokens).to_vec::<f32>()?, model.apply(&tokens).to_vec::<f32>()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn load_as<M: Pretrained>(
    folder: impl AsRef<Path>,
    config: &M::Config,
    dtype: Option<DType>,
    change: impl Fn(M) -> M,
) -> Result<M> {
    let loc = remat::layer::location();
    read_weights(folder.as_ref(), (config, None), dtype, change).map_err(|error| error.at(loc))
}

/// The weights of a folder in the model that `change` makes of one of this configuration, which is that of a file, or the caller's.
fn read_weights<M: Model>(
    folder: &Path,
    (config, source): (&M::Config, Option<&Path>),
    dtype: Option<DType>,
    change: impl Fn(M) -> M,
) -> Result<M> {
    let file = SafeTensors::opened(&weights(folder)?)?;
    // The model is made before its weights are read, and takes memory for each layer.
    let (layers, tensors) = (M::layers(config), file.names().len());
    if layers > tensors {
        // Named is what is likely to be wrong: a file of a configuration, or the folder that does not fit that of the caller.
        return Err(match source {
            Some(path) => {
                let message = format!("describes a model of {layers} layers, and the weights are {tensors} tensors");
                wrong(LOAD, path, message)
            }
            None => {
                let message = format!("has {tensors} tensors, and the configuration is of a model of {layers} layers");
                wrong(LOAD, folder, message)
            }
        });
    }
    // A file of the model without its head has names without the model's prefix.
    let prefix = if file.names().any(|name| name.starts_with(M::FAMILY.prefix)) { M::FAMILY.prefix } else { "" };
    let dtype = match dtype {
        Some(dtype) => dtype,
        None => file.aval(&format!("{prefix}{}", M::FAMILY.embedding))?.dtype,
    };
    let like = eval_shape(|_: &()| change(M::init(config, dtype)))(&())?;
    let options = LoadOptions { cast_floats: true, ignore_surplus: false };
    let tied = M::is_tied(config);
    let may_be_surplus = |name: &str| M::FAMILY.is_buffer(name) || tied && name == family::HEAD;
    file.named_tree(&options, &like, M::FAMILY.named(prefix, &like)?, may_be_surplus)
}

fn read_config<M: Pretrained>(operation: &'static str, folder: &Path) -> Result<M::Config> {
    fields_config::<M>(&Fields::read(operation, folder)?)
}

fn fields_config<M: Pretrained>(fields: &Fields) -> Result<M::Config> {
    let found = fields.model_type()?;
    if found != M::FAMILY.model_type {
        return Err(fields.wrong(&format!("is of a model of type `{found}` and not `{}`", M::FAMILY.model_type)));
    }
    if fields.get::<serde_json::Value>("quantization_config")?.is_some() {
        return Err(fields.wrong("is of a quantised model (`quantization_config`), which is not supported"));
    }
    M::read_config(fields)
}

/// The file with the weights of a folder, or the index of its files.
fn weights(folder: &Path) -> Result<PathBuf> {
    let found = WEIGHTS.iter().map(|name| folder.join(name)).find(|path| path.exists());
    found.ok_or_else(|| {
        let pickled =
            ["pytorch_model.bin", "pytorch_model.bin.index.json"].iter().any(|name| folder.join(name).exists());
        let hint = match pickled {
            true => "; it has `pytorch_model.bin`, which `transformers` converts by `save_pretrained`",
            false => "",
        };
        wrong(LOAD, folder, format!("has neither `{}` nor `{}`{hint}", WEIGHTS[0], WEIGHTS[1]))
    })
}
