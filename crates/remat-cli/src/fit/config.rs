//! The sizes of a model: from arguments, from a list of known models, or from a Hugging Face `config.json`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use remat_cli::text::message;
use serde::Serialize;
use serde_json::Value;

/// The sizes of a decoder: a language model of blocks of causal attention and an MLP.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Config {
    /// The name in tables.
    pub(crate) name: String,
    pub(crate) layers: usize,
    /// Features of a token.
    pub(crate) width: usize,
    pub(crate) heads: usize,
    /// Heads of keys and values, each shared by as many heads of queries.
    pub(crate) key_heads: usize,
    /// Features of a head.
    pub(crate) head_features: usize,
    /// Hidden features of the MLP.
    pub(crate) hidden: usize,
    pub(crate) vocabulary: usize,
    /// The architecture of the blocks.
    pub(crate) kind: Kind,
    /// Whether queries, keys and values have biases.
    pub(crate) qkv_bias: bool,
    /// Whether the map from heads to features has a bias.
    pub(crate) out_bias: bool,
    /// Whether the maps of the MLP have biases.
    pub(crate) mlp_bias: bool,
    /// The tokens back to which attention reads, if it does not read all: longer contexts are refused, since here it reads all.
    pub(crate) window: Option<usize>,
    /// Whether the head shares the weights of the embedding.
    pub(crate) tied: bool,
}

/// The architecture of a decoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub(crate) enum Kind {
    /// Learned positions, layer norms, biases, an MLP with a GELU: Radford et al., 2019.
    Gpt2 { positions: usize },
    /// Rotated queries and keys, RMS norms, an MLP with a gate: Touvron et al., 2023.
    Llama,
}

/// Models of known sizes.
const KNOWN: [&str; 8] =
    ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "llama-1b", "llama-3b", "llama-8b", "decoder-3b"];

impl Config {
    /// The model of this name, or that of a `config.json`.
    ///
    /// # Errors
    /// If there is neither, or the file does not describe a decoder.
    pub(crate) fn read(name: &str) -> Result<Config> {
        if let Some(config) = Config::known(name) {
            return Ok(config);
        }
        let path = Path::new(name);
        let path = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
        if !path.is_file() {
            let hint = remat::ir::did_you_mean(name, KNOWN, || format!("; the models are {}", KNOWN.join(", ")));
            bail!("`{name}` is neither a model nor a config.json{hint}");
        }
        let shown = path.display().to_string();
        let text = fs::read_to_string(&path).with_context(|| shown.clone())?;
        let value: Value = serde_json::from_str(&text).with_context(|| shown.clone())?;
        Config::of_hugging_face(&value).with_context(|| shown)
    }

    fn known(name: &str) -> Option<Config> {
        let gpt = |layers, width, heads| Config {
            name: name.to_string(),
            layers,
            width,
            heads,
            key_heads: heads,
            head_features: width / heads,
            hidden: 4 * width,
            vocabulary: 50_257,
            kind: Kind::Gpt2 { positions: 1024 },
            qkv_bias: true,
            out_bias: true,
            mlp_bias: true,
            window: None,
            tied: true,
        };
        let llama = |layers, width, heads, head_features, hidden, vocabulary, tied| Config {
            name: name.to_string(),
            layers,
            width,
            heads,
            key_heads: 8,
            head_features,
            hidden,
            vocabulary,
            kind: Kind::Llama,
            qkv_bias: false,
            out_bias: false,
            mlp_bias: false,
            window: None,
            tied,
        };
        Some(match name {
            "gpt2" => gpt(12, 768, 12),
            "gpt2-medium" => gpt(24, 1024, 16),
            "gpt2-large" => gpt(36, 1280, 20),
            "gpt2-xl" => gpt(48, 1600, 25),
            "llama-1b" => llama(16, 2048, 32, 64, 8192, 128_256, true),
            "llama-3b" => llama(28, 3072, 24, 128, 8192, 128_256, true),
            "llama-8b" => llama(32, 4096, 32, 128, 14_336, 128_256, false),
            // The model of docs/FITTING.md: the blocks of `llama-3b` between tables of a smaller vocabulary.
            "decoder-3b" => llama(28, 3072, 24, 128, 8192, 32_768, false),
            _ => return None,
        })
    }

    /// The sizes in a Hugging Face `config.json` of GPT-2, Llama and similar models.
    ///
    /// # Errors
    /// If the model is of another kind, or a size is missing or not valid.
    fn of_hugging_face(value: &Value) -> Result<Config> {
        let kind = value["model_type"].as_str().ok_or_else(|| anyhow!("there is no `model_type`"))?;
        let given = |name: &str| value.get(name).filter(|value| !value.is_null());
        let size_or = |name: &str, other: usize| match given(name) {
            None => Ok(other),
            Some(value) => {
                let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
                size.filter(|size| (1..=1 << 24).contains(size))
                    .ok_or_else(|| anyhow!("`{name}` is {value}, not a size"))
            }
        };
        let size = |name: &str| {
            ensure!(given(name).is_some(), "there is no `{name}`");
            size_or(name, 0)
        };
        let flag = |name: &str, other: bool| value.get(name).and_then(Value::as_bool).unwrap_or(other);
        // It is printed as the title.
        let name = message(value["_name_or_path"].as_str().filter(|name| !name.is_empty()).unwrap_or(kind));
        let config = match kind {
            "gpt2" => {
                let (width, heads) = (size("n_embd")?, size("n_head")?);
                Config {
                    name,
                    layers: size("n_layer")?,
                    width,
                    heads,
                    key_heads: heads,
                    head_features: width / heads,
                    hidden: size_or("n_inner", 4 * width)?,
                    vocabulary: size("vocab_size")?,
                    kind: Kind::Gpt2 { positions: size_or("n_positions", 1024)? },
                    qkv_bias: true,
                    out_bias: true,
                    mlp_bias: true,
                    window: None,
                    tied: flag("tie_word_embeddings", true),
                }
            }
            "llama" | "mistral" | "qwen2" => {
                let (width, heads) = (size("hidden_size")?, size("num_attention_heads")?);
                Config {
                    name,
                    layers: size("num_hidden_layers")?,
                    width,
                    heads,
                    key_heads: size_or("num_key_value_heads", heads)?,
                    head_features: match given("head_dim") {
                        Some(_) => size("head_dim")?,
                        None => {
                            ensure!(width.is_multiple_of(heads), "{heads} heads do not divide {width} features");
                            width / heads
                        }
                    },
                    hidden: size("intermediate_size")?,
                    vocabulary: size("vocab_size")?,
                    kind: Kind::Llama,
                    qkv_bias: flag("attention_bias", kind == "qwen2"),
                    // Qwen2 has biases of queries, keys and values alone.
                    out_bias: flag("attention_bias", false) && kind != "qwen2",
                    mlp_bias: flag("mlp_bias", false),
                    window: given("sliding_window")
                        .filter(|_| flag("use_sliding_window", kind == "mistral"))
                        .map(|_| size("sliding_window"))
                        .transpose()?,
                    tied: flag("tie_word_embeddings", false),
                }
            }
            other => bail!("`model_type` is `{other}`; it can be gpt2, llama, mistral or qwen2"),
        };
        config.check()?;
        Ok(config)
    }

    /// Fails unless the model takes sequences of this many tokens.
    ///
    /// # Errors
    /// If they are more than its learned positions, or more than the tokens to which its attention reads back.
    pub(crate) fn check_context(&self, context: usize) -> Result<()> {
        if let Kind::Gpt2 { positions } = self.kind {
            ensure!(
                context <= positions,
                "{} has {positions} positions, fewer than the {context} of --context",
                self.name
            );
        }
        if let Some(window) = self.window {
            let name = &self.name;
            ensure!(
                context <= window,
                "the attention of {name} reads {window} tokens back (sliding_window), which this command does not know; a --context of at most \
                 {window} is the same without"
            );
        }
        Ok(())
    }

    /// Fails unless the sizes fit together.
    ///
    /// # Errors
    /// The sizes that do not fit.
    pub(crate) fn check(&self) -> Result<()> {
        let Config { width, heads, key_heads, head_features, kind, .. } = self;
        ensure!(heads.is_multiple_of(*key_heads), "{key_heads} heads of keys do not divide {heads} heads");
        match kind {
            Kind::Gpt2 { .. } => {
                ensure!(width == &(heads * head_features), "{heads} heads do not divide {width} features")
            }
            Kind::Llama => {
                ensure!(head_features % 2 == 0, "heads of {head_features} features cannot be rotated in pairs")
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Config> {
        Config::of_hugging_face(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn hugging_face_configurations_are_read() {
        let gpt = of(
            r#"{"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_inner": null, "vocab_size": 50257}"#,
        );
        assert_eq!(gpt.unwrap(), Config { name: "gpt2".into(), ..Config::known("gpt2").unwrap() });
        let llama = of(
            r#"{"model_type": "llama", "num_hidden_layers": 28, "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 8,
                "intermediate_size": 8192, "vocab_size": 128256, "head_dim": 128, "tie_word_embeddings": true}"#,
        );
        assert_eq!(llama.unwrap(), Config { name: "llama".into(), ..Config::known("llama-3b").unwrap() });
    }

    #[test]
    fn what_is_not_a_decoder_is_named() {
        let message = |text| of(text).unwrap_err().to_string();
        assert_eq!(message("{}"), "there is no `model_type`");
        assert_eq!(message(r#"{"model_type": "t5"}"#), "`model_type` is `t5`; it can be gpt2, llama, mistral or qwen2");
        assert_eq!(message(r#"{"model_type": "gpt2", "n_embd": 7, "n_head": -1}"#), "`n_head` is -1, not a size");
        let odd = r#"{"model_type": "gpt2", "n_layer": 1, "n_embd": 7, "n_head": 2, "vocab_size": 3}"#;
        assert_eq!(message(odd), "2 heads do not divide 7 features");
        let llama = |more: &str| {
            let sizes = r#""model_type": "llama", "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 8"#;
            of(&format!("{{{sizes}, {more}}}"))
        };
        // Without a size of heads it is that of the features divided by them.
        let odd = llama(r#""hidden_size": 2050, "num_attention_heads": 32"#).unwrap_err().to_string();
        assert_eq!(odd, "32 heads do not divide 2050 features");
        let biased =
            llama(r#""hidden_size": 8, "num_attention_heads": 2, "attention_bias": true, "mlp_bias": true"#).unwrap();
        assert!(biased.qkv_bias && biased.out_bias && biased.mlp_bias);
        let mistral = of(
            r#"{"model_type": "mistral", "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 8, "hidden_size": 8,
                "num_attention_heads": 2, "sliding_window": 64}"#,
        );
        let mistral = mistral.unwrap();
        assert!(mistral.check_context(64).is_ok());
        let error = mistral.check_context(65).unwrap_err().to_string();
        assert!(error.starts_with("the attention of mistral reads 64 tokens back (sliding_window)"), "{error}");
        let error = Config::known("gpt2").unwrap().check_context(4096).unwrap_err().to_string();
        assert_eq!(error, "gpt2 has 1024 positions, fewer than the 4096 of --context");
        let error = Config::read("lama-3b").unwrap_err().to_string();
        assert_eq!(error, "`lama-3b` is neither a model nor a config.json; did you mean `llama-3b`?");
    }
}
