//! The architecture of a model, and its sizes.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use remat::nn::{self, Gpt2Config, LlamaConfig, RopeScaling};
use remat_command::arguments::up_to;
use remat_command::table::thousands;
use remat_io::huggingface::{config_from_json, config_to_json};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The tokens of a text without a tokenizer: its bytes.
const BYTES: usize = 256;

/// Models of known sizes. Those named `tiny` are our own, and learn bytes.
const KNOWN: [&str; 10] = [
    "gpt2-tiny",
    "llama-tiny",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "llama-1b",
    "llama-3b",
    "llama-8b",
    "decoder-3b",
];

/// Sizes that replace those of a named model.
#[derive(Clone, Copy, PartialEq, Debug, Default, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Sizes {
    /// Transformer blocks [default: those of the model; 2 of gpt2-tiny]
    #[arg(long, value_parser = up_to(10_000))]
    pub(crate) layers: Option<usize>,
    /// Model width: features per token [default: that of the model; 96 of gpt2-tiny]
    #[arg(long, value_parser = up_to(1 << 20))]
    pub(crate) width: Option<usize>,
    /// Attention heads; must divide the width [default: those of the model; 4 of gpt2-tiny]
    #[arg(long, value_parser = up_to(1 << 20))]
    pub(crate) heads: Option<usize>,
    /// Heads of keys and values, for a llama; must divide the heads [default: those of the model]
    #[arg(long, value_parser = up_to(1 << 20))]
    pub(crate) kv_heads: Option<usize>,
    /// Hidden features of the MLP of a block [default: those of the model, or from the width if that is given]
    #[arg(long, value_parser = up_to(1 << 24))]
    pub(crate) hidden: Option<usize>,
    /// Vocabulary size [default: that of the model; 256 of gpt2-tiny, which are bytes]
    #[arg(long, value_parser = up_to(1 << 24))]
    pub(crate) vocab: Option<usize>,
    /// Sequence length in tokens [default: that of the model, up to 1024; 64 of gpt2-tiny]
    #[arg(long, value_parser = up_to(1 << 24))]
    pub(crate) context: Option<usize>,
}

/// The family of a model, and its configuration in Hugging Face's form.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Architecture {
    Gpt2(Gpt2Config),
    Llama(LlamaConfig),
    /// A Llama in whose attention queries, keys and values alone have biases.
    Qwen2(LlamaConfig),
}

impl Architecture {
    /// The model of this name, or that of a `config.json` or its folder, with other sizes if they are given.
    ///
    /// # Errors
    /// If there is no such model, or a size does not belong to its family.
    pub(crate) fn named(name: &str, sizes: &Sizes) -> Result<Architecture> {
        if let Some(architecture) = known(name) {
            return architecture.resized(sizes, name.ends_with("-tiny"));
        }
        let path = Path::new(name);
        let path = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
        if !path.is_file() {
            let list = || format!("; the models are {}", KNOWN.join(", "));
            let hint = remat::ir::did_you_mean(name, KNOWN, list);
            bail!("`{name}` is neither a model nor a config.json, nor a folder with one{hint}");
        }
        Architecture::read(&path, sizes.context)?.resized(sizes, false)
    }

    /// The architecture in a `config.json`, for sequences of this many tokens if it is known.
    ///
    /// # Errors
    /// If it cannot be read; as [`Architecture::from_json`]; if its attention does not read all of a sequence.
    pub(crate) fn read(path: &Path, context: Option<usize>) -> Result<Architecture> {
        let (architecture, window) = Architecture::parse(path, &text(path)?)?;
        if let (Some(window), Some(context)) = (window, context) {
            ensure!(
                context <= window,
                "the attention of `{}` reads {window} tokens back (sliding_window), which the models here do not know; a --context of at most \
                 {window} is the same without",
                path.display()
            );
        }
        Ok(architecture)
    }

    /// The configuration in the text of a `config.json`.
    ///
    /// # Errors
    /// If it is not one, or of an unknown family.
    pub(crate) fn from_json(source: &Path, text: &str) -> Result<Architecture> {
        Ok(Architecture::parse(source, text)?.0)
    }

    /// As [`Architecture::from_json`], with the tokens back to which the attention reads, if it does not read all.
    fn parse(source: &Path, text: &str) -> Result<(Architecture, Option<usize>)> {
        let shown = source.display();
        let mut value: Value = serde_json::from_str(text).with_context(|| shown.to_string())?;
        let kind = match value["model_type"].as_str() {
            Some("gpt2") => return Ok((Architecture::Gpt2(config_from_json::<nn::Gpt2>(source, text)?), None)),
            Some(kind @ ("llama" | "mistral" | "qwen2")) => kind.to_string(),
            Some(other) => {
                bail!("`{shown}` is of a model of type `{other}`; it can be `gpt2`, `llama`, `mistral` or `qwen2`")
            }
            None => bail!("`{shown}` has no field `model_type`"),
        };
        let given = |name: &str| value.get(name).filter(|value| !value.is_null());
        let has_window = given("use_sliding_window").and_then(Value::as_bool).unwrap_or(kind == "mistral");
        let size = |value: &Value| value.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
        let window = given("sliding_window").filter(|_| has_window).map(|window| {
            size(window).with_context(|| format!("`{shown}` has `sliding_window`: {window}, which is not a size"))
        });
        let window = window.transpose()?;
        value["model_type"] = "llama".into();
        if kind == "qwen2" {
            value["attention_bias"] = true.into();
        }
        let mut config = config_from_json::<nn::Llama>(source, &value.to_string())?;
        // No longer sequences than those for which the window is the same as none.
        config.max_position_embeddings = config.max_position_embeddings.min(window.unwrap_or(usize::MAX));
        Ok(if kind == "qwen2" { (Architecture::Qwen2(config), window) } else { (Architecture::Llama(config), window) })
    }

    /// The text of a `config.json`.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Architecture::Gpt2(config) => config_to_json::<nn::Gpt2>(config),
            Architecture::Llama(config) => config_to_json::<nn::Llama>(config),
            Architecture::Qwen2(config) => {
                let mut fields = json!({ "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"] });
                let own = serde_json::from_str::<Map<String, Value>>(&config_to_json::<nn::Llama>(config));
                for (name, value) in own.into_iter().flatten() {
                    if fields.get(&name).is_none() {
                        fields[name] = value;
                    }
                }
                fields.to_string()
            }
        }
    }

    /// The name of the family.
    fn family(&self) -> &'static str {
        match self {
            Architecture::Gpt2(_) => "gpt2",
            Architecture::Llama(_) => "llama",
            Architecture::Qwen2(_) => "qwen2",
        }
    }

    /// The number of blocks.
    pub(crate) fn layers(&self) -> usize {
        match self {
            Architecture::Gpt2(config) => config.n_layer,
            Architecture::Llama(config) | Architecture::Qwen2(config) => config.num_hidden_layers,
        }
    }

    /// The most positions of a sequence, if there is such a number: that of the table of learned positions.
    pub(crate) fn positions(&self) -> Option<usize> {
        if let Architecture::Gpt2(config) = self { Some(config.n_positions) } else { None }
    }

    /// The tokens that end a text.
    pub(crate) fn ends(&self) -> &[i64] {
        match self {
            Architecture::Gpt2(config) => &config.eos_token_id,
            Architecture::Llama(config) | Architecture::Qwen2(config) => &config.eos_token_id,
        }
    }

    /// The number of tokens of the vocabulary.
    pub(crate) fn vocabulary(&self) -> usize {
        match self {
            Architecture::Gpt2(config) => config.vocab_size,
            Architecture::Llama(config) | Architecture::Qwen2(config) => config.vocab_size,
        }
    }

    /// The sequence length of the model.
    pub(crate) fn context(&self) -> usize {
        match self {
            Architecture::Gpt2(config) => config.n_positions,
            Architecture::Llama(config) | Architecture::Qwen2(config) => config.max_position_embeddings,
        }
    }

    /// The same family with other sizes if they are given. Our own models draw their weights for their width.
    ///
    /// # Errors
    /// If a size does not belong to the family.
    fn resized(self, sizes: &Sizes, is_ours: bool) -> Result<Architecture> {
        Ok(match self {
            Architecture::Gpt2(config) => {
                ensure!(sizes.kv_heads.is_none(), "--kv-heads: a GPT-2 has as many of them as heads");
                let n_embd = sizes.width.unwrap_or(config.n_embd);
                Architecture::Gpt2(Gpt2Config {
                    n_layer: sizes.layers.unwrap_or(config.n_layer),
                    n_embd,
                    n_head: sizes.heads.unwrap_or(config.n_head),
                    n_inner: sizes.hidden.or(config.n_inner.filter(|_| sizes.width.is_none())),
                    vocab_size: sizes.vocab.unwrap_or(config.vocab_size),
                    n_positions: sizes.context.unwrap_or(config.n_positions),
                    initializer_range: if is_ours { deviation(n_embd) } else { config.initializer_range },
                    ..config
                })
            }
            Architecture::Qwen2(config) => match Architecture::Llama(config).resized(sizes, is_ours)? {
                Architecture::Llama(config) => Architecture::Qwen2(config),
                other => other,
            },
            Architecture::Llama(config) => {
                let hidden_size = sizes.width.unwrap_or(config.hidden_size);
                let heads = sizes.heads.unwrap_or(config.num_attention_heads);
                let is_resized = sizes.width.is_some() || sizes.heads.is_some();
                let key_heads = match sizes.heads {
                    None => config.num_key_value_heads,
                    Some(heads) => config.num_key_value_heads.filter(|&own| heads.is_multiple_of(own)),
                };
                let hidden = if sizes.width.is_some() { gated(hidden_size) } else { config.intermediate_size };
                Architecture::Llama(LlamaConfig {
                    num_hidden_layers: sizes.layers.unwrap_or(config.num_hidden_layers),
                    hidden_size,
                    num_attention_heads: heads,
                    num_key_value_heads: sizes.kv_heads.or(key_heads),
                    head_dim: config.head_dim.filter(|_| !is_resized),
                    intermediate_size: sizes.hidden.unwrap_or(hidden),
                    vocab_size: sizes.vocab.unwrap_or(config.vocab_size),
                    max_position_embeddings: sizes.context.unwrap_or(config.max_position_embeddings),
                    initializer_range: if is_ours { deviation(hidden_size) } else { config.initializer_range },
                    ..config
                })
            }
        })
    }
}

/// The standard deviation of the weights of our own small models: that of GPT-2, scaled to their width. Source: Nguyen and Salazar,
/// "Transformers without tears", 2019.
fn deviation(width: usize) -> f64 {
    (0.4 / width.max(1) as f64).sqrt()
}

/// The hidden features of a gated MLP: two thirds of four times the width, in multiples of 32, so that it has as many weights as an MLP
/// without a gate. Source: Touvron et al., "LLaMA", 2023.
fn gated(width: usize) -> usize {
    (width * 8).div_ceil(3).next_multiple_of(32)
}

/// # Errors
/// If the file cannot be read.
fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn known(name: &str) -> Option<Architecture> {
    let gpt =
        |n_layer, n_embd, n_head| Architecture::Gpt2(Gpt2Config { n_layer, n_embd, n_head, ..Gpt2Config::default() });
    // Llama 3.
    let llama = |layers, width, heads, intermediate_size, factor: Option<f64>, is_tied| -> LlamaConfig {
        let scaling = factor.map_or(RopeScaling::None, |factor| RopeScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        });
        LlamaConfig {
            vocab_size: 128_256,
            hidden_size: width,
            intermediate_size,
            num_hidden_layers: layers,
            num_attention_heads: heads,
            num_key_value_heads: Some(8),
            max_position_embeddings: if factor.is_some() { 131_072 } else { 8192 },
            rms_norm_eps: 1e-5,
            rope_theta: 500_000.0,
            rope_scaling: scaling,
            tie_word_embeddings: is_tied,
            bos_token_id: Some(128_000),
            eos_token_id: vec![128_001],
            ..LlamaConfig::default()
        }
    };
    Some(match name {
        "gpt2-tiny" => Architecture::Gpt2(Gpt2Config {
            n_layer: 2,
            n_embd: 96,
            n_head: 4,
            n_positions: 64,
            vocab_size: BYTES,
            tie_word_embeddings: false,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            ..Gpt2Config::default()
        }),
        "llama-tiny" => Architecture::Llama(LlamaConfig {
            num_hidden_layers: 2,
            hidden_size: 96,
            intermediate_size: gated(96),
            num_attention_heads: 4,
            num_key_value_heads: Some(2),
            max_position_embeddings: 64,
            vocab_size: BYTES,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            ..LlamaConfig::default()
        }),
        "gpt2" => gpt(12, 768, 12),
        "gpt2-medium" => gpt(24, 1024, 16),
        "gpt2-large" => gpt(36, 1280, 20),
        "gpt2-xl" => gpt(48, 1600, 25),
        "llama-1b" => Architecture::Llama(llama(16, 2048, 32, 8192, Some(32.0), true)),
        "llama-3b" => Architecture::Llama(llama(28, 3072, 24, 8192, Some(32.0), true)),
        "llama-8b" => Architecture::Llama(llama(32, 4096, 32, 14_336, None, false)),
        // The model of docs/FITTING.md: the blocks of `llama-3b` between tables of a smaller vocabulary.
        "decoder-3b" => Architecture::Llama(LlamaConfig {
            vocab_size: 32_768,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            ..llama(28, 3072, 24, 8192, None, false)
        }),
        _ => return None,
    })
}

/// The family and the sizes, for people.
impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, heads, key_heads) = match self {
            Architecture::Gpt2(config) => (config.n_embd, config.n_head, None),
            Architecture::Llama(config) | Architecture::Qwen2(config) => {
                (config.hidden_size, config.num_attention_heads, config.num_key_value_heads)
            }
        };
        write!(f, "{}, layers {}, width {width}, heads {heads}", self.family(), self.layers())?;
        if let Some(count) = key_heads {
            write!(f, " of queries and {count} of keys")?;
        }
        write!(f, ", vocabulary {}", thousands(self.vocabulary()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_model_is_written_and_read() {
        for name in KNOWN {
            let architecture = Architecture::named(name, &Sizes::default()).unwrap();
            assert_eq!(
                Architecture::from_json(Path::new("config.json"), &architecture.to_json()).unwrap(),
                architecture
            );
        }
    }

    #[test]
    fn other_sizes_take_the_place_of_those_of_the_name() {
        let sizes = Sizes { width: Some(24), heads: Some(3), vocab: Some(300), ..Sizes::default() };
        let Architecture::Llama(config) = Architecture::named("llama-tiny", &sizes).unwrap() else { panic!() };
        // Two key heads do not divide three heads.
        assert_eq!((config.num_key_value_heads, config.intermediate_size, config.vocab_size), (None, 64, 300));
        let Architecture::Llama(config) = Architecture::named("llama-3b", &Sizes::default()).unwrap() else { panic!() };
        assert_eq!(config.intermediate_size, 8192);
        let keys = Sizes { kv_heads: Some(1), ..Sizes::default() };
        let error = Architecture::named("gpt2", &keys).unwrap_err().to_string();
        assert_eq!(error, "--kv-heads: a GPT-2 has as many of them as heads");
    }

    #[test]
    fn a_folder_of_hugging_face_is_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let expected = Architecture::named("llama-tiny", &Sizes::default()).unwrap();
        fs::write(folder.path().join("config.json"), expected.to_json()).unwrap();
        for path in [folder.path().to_path_buf(), folder.path().join("config.json")] {
            assert_eq!(Architecture::named(path.to_str().unwrap(), &Sizes::default()).unwrap(), expected);
        }
        let resized = Sizes { layers: Some(3), ..Sizes::default() };
        let resized = Architecture::named(folder.path().to_str().unwrap(), &resized).unwrap();
        assert!(resized.to_string().starts_with("llama, layers 3, "), "{resized}");
    }

    const SMALL: &str = r#""num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 8, "hidden_size": 8, "num_attention_heads": 2"#;

    #[test]
    fn a_mistral_is_a_llama_within_its_window() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let named = |more: &str, context| {
            fs::write(&path, format!(r#"{{"model_type": "mistral", {SMALL}{more}}}"#)).unwrap();
            Architecture::named(path.to_str().unwrap(), &Sizes { context, ..Sizes::default() })
        };
        let windowed = r#", "sliding_window": 64"#;
        assert!(named(windowed, Some(64)).is_ok() && named("", Some(65)).is_ok());
        assert_eq!(named(windowed, None).unwrap().context(), 64);
        let error = named(windowed, Some(65)).unwrap_err().to_string();
        assert!(error.contains("reads 64 tokens back (sliding_window)"), "{error}");
        assert!(named(r#", "sliding_window": -1"#, None).unwrap_err().to_string().ends_with("which is not a size"));
    }

    #[test]
    fn a_qwen2_is_read_and_written() {
        let text = format!(r#"{{"model_type": "qwen2", {SMALL}, "sliding_window": 64, "use_sliding_window": false}}"#);
        let read = |text: &str| Architecture::from_json(Path::new("config.json"), text).unwrap();
        let architecture = read(&text);
        assert!(matches!(&architecture, Architecture::Qwen2(config) if config.attention_bias), "{architecture:?}");
        assert_eq!(read(&architecture.to_json()), architecture);
        assert!(architecture.to_string().starts_with("qwen2, layers 1, "), "{architecture}");
    }

    #[test]
    fn an_unknown_model_is_named() {
        let error = Architecture::named("gpt-2", &Sizes::default()).unwrap_err().to_string();
        assert_eq!(error, "`gpt-2` is neither a model nor a config.json, nor a folder with one; did you mean `gpt2`?");
        let error = |text: &str| Architecture::from_json(Path::new("c.json"), text).unwrap_err().to_string();
        assert_eq!(error("{}"), "`c.json` has no field `model_type`");
        assert_eq!(
            error(r#"{"model_type": "t5"}"#),
            "`c.json` is of a model of type `t5`; it can be `gpt2`, `llama`, `mistral` or `qwen2`"
        );
    }
}
