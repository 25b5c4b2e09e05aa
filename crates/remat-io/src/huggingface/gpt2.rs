//! GPT-2.

use remat::nn::{Gpt2, Gpt2Config};
use remat::{DType, Result, random};
use serde_json::{Map, Value, json};

use super::config::{Fields, LAYERS, WIDE, WIDTH, tokens_json};
use super::family::{Family, Model};

impl Model for Gpt2 {
    type Config = Gpt2Config;

    const FAMILY: Family = Family {
        model_type: "gpt2",
        architecture: "GPT2LMHeadModel",
        prefix: "transformer.",
        blocks: "h",
        embedding: "wte.weight",
        layers: &[
            ("embed", "wte"),
            ("positions", "wpe"),
            ("norm1", "ln_1"),
            ("attn.qkv", "attn.c_attn"),
            ("attn.out", "attn.c_proj"),
            ("norm2", "ln_2"),
            ("mlp.up", "mlp.c_fc"),
            ("mlp.down", "mlp.c_proj"),
            ("norm", "ln_f"),
            ("head", "lm_head"),
        ],
        transposes: false,
        buffers: &[".attn.bias", ".attn.masked_bias"],
    };

    fn init(config: &Gpt2Config, dtype: DType) -> Gpt2 {
        Gpt2::init(random::key(0), config, dtype)
    }

    fn layers(config: &Gpt2Config) -> usize {
        config.n_layer
    }

    fn is_tied(config: &Gpt2Config) -> bool {
        config.tie_word_embeddings
    }

    fn unstacked(&self) -> Gpt2 {
        Gpt2 { blocks: self.blocks.clone().unstacked(), ..self.clone() }
    }

    #[allow(private_interfaces, reason = "the trait cannot be implemented elsewhere")]
    fn read_config(fields: &Fields) -> Result<Gpt2Config> {
        fields.expect("activation_function", &[json!("gelu_new"), json!("gelu_pytorch_tanh")])?;
        fields.expect("scale_attn_weights", &[json!(true)])?;
        fields.expect("scale_attn_by_inverse_layer_idx", &[json!(false)])?;
        fields.expect("add_cross_attention", &[json!(false)])?;
        let default = Gpt2Config::default();
        let n_embd = fields.size("n_embd", default.n_embd, WIDTH)?;
        let n_head = fields.size("n_head", default.n_head, WIDTH)?;
        fields.expect_heads(n_head, n_embd)?;
        Ok(Gpt2Config {
            vocab_size: fields.size("vocab_size", default.vocab_size, WIDE)?,
            n_positions: fields.size("n_positions", default.n_positions, WIDE)?,
            n_embd,
            n_layer: fields.size("n_layer", default.n_layer, LAYERS)?,
            n_head,
            n_inner: fields.optional_size("n_inner", WIDE)?,
            layer_norm_epsilon: fields.epsilon("layer_norm_epsilon", default.layer_norm_epsilon)?,
            initializer_range: fields.or("initializer_range", default.initializer_range)?,
            tie_word_embeddings: fields.or("tie_word_embeddings", default.tie_word_embeddings)?,
            bos_token_id: fields.or_null("bos_token_id", default.bos_token_id)?,
            eos_token_id: fields.tokens("eos_token_id", default.eos_token_id)?,
            pad_token_id: fields.or_null("pad_token_id", default.pad_token_id)?,
        })
    }

    fn write_config(config: &Gpt2Config) -> Map<String, Value> {
        let fields = json!({
            "vocab_size": config.vocab_size,
            "n_positions": config.n_positions,
            "n_embd": config.n_embd,
            "n_layer": config.n_layer,
            "n_head": config.n_head,
            "n_inner": config.n_inner,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": config.layer_norm_epsilon,
            "initializer_range": config.initializer_range,
            "tie_word_embeddings": config.tie_word_embeddings,
            "bos_token_id": config.bos_token_id,
            "eos_token_id": tokens_json(&config.eos_token_id),
            "pad_token_id": config.pad_token_id,
        });
        if let Value::Object(fields) = fields { fields } else { Map::new() }
    }
}
