//! Llama.

use remat::nn::{Llama, LlamaConfig, RopeScaling};
use remat::{DType, Result, random};
use serde_json::{Map, Value, json};

use super::config::{Fields, LAYERS, WIDE, WIDTH, tokens_json};
use super::family::{Family, Model};

impl Model for Llama {
    type Config = LlamaConfig;

    const FAMILY: Family = Family {
        model_type: "llama",
        architecture: "LlamaForCausalLM",
        prefix: "model.",
        blocks: "layers",
        embedding: "embed_tokens.weight",
        layers: &[
            ("embed", "embed_tokens"),
            ("norm1", "input_layernorm"),
            ("attn.q", "self_attn.q_proj"),
            ("attn.k", "self_attn.k_proj"),
            ("attn.v", "self_attn.v_proj"),
            ("attn.out", "self_attn.o_proj"),
            ("norm2", "post_attention_layernorm"),
            ("mlp.gate", "mlp.gate_proj"),
            ("mlp.up", "mlp.up_proj"),
            ("mlp.down", "mlp.down_proj"),
            ("norm", "norm"),
            ("head", "lm_head"),
        ],
        transposes: true,
        buffers: &[".rotary_emb.inv_freq"],
    };

    fn init(config: &LlamaConfig, dtype: DType) -> Llama {
        Llama::init(random::key(0), config, dtype)
    }

    fn layers(config: &LlamaConfig) -> usize {
        config.num_hidden_layers
    }

    fn is_tied(config: &LlamaConfig) -> bool {
        config.tie_word_embeddings
    }

    fn unstacked(&self) -> Llama {
        Llama { blocks: self.blocks.clone().unstacked(), ..self.clone() }
    }

    #[allow(private_interfaces, reason = "the trait cannot be implemented elsewhere")]
    fn read_config(fields: &Fields) -> Result<LlamaConfig> {
        fields.expect("hidden_act", &[json!("silu"), json!("swish")])?;
        let default = LlamaConfig::default();
        let max_position_embeddings = fields.size("max_position_embeddings", default.max_position_embeddings, WIDE)?;
        // Up to version 4 of `transformers` the base is next to the scaling, since then inside it.
        let rope = match fields.part("rope_parameters")? {
            Some(rope) => Some(rope),
            None => fields.part("rope_scaling")?,
        };
        let inner = rope.as_ref().map_or(Ok(None), |rope| rope.get("rope_theta"))?;
        let rope_scaling = rope.map_or(Ok(RopeScaling::None), |rope| scaling(&rope, max_position_embeddings))?;
        let hidden_size = fields.size("hidden_size", default.hidden_size, WIDTH)?;
        let num_attention_heads = fields.size("num_attention_heads", default.num_attention_heads, WIDTH)?;
        let num_key_value_heads = fields.optional_size("num_key_value_heads", WIDTH)?;
        let head_dim = fields.optional_size("head_dim", WIDTH)?;
        if head_dim.is_none() {
            fields.expect_heads(num_attention_heads, hidden_size)?;
        }
        fields.expect_key_heads(num_key_value_heads.unwrap_or(num_attention_heads), num_attention_heads)?;
        Ok(LlamaConfig {
            vocab_size: fields.size("vocab_size", default.vocab_size, WIDE)?,
            hidden_size,
            intermediate_size: fields.size("intermediate_size", default.intermediate_size, WIDE)?,
            num_hidden_layers: fields.size("num_hidden_layers", default.num_hidden_layers, LAYERS)?,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            max_position_embeddings,
            rms_norm_eps: fields.epsilon("rms_norm_eps", default.rms_norm_eps)?,
            rope_theta: inner.map_or_else(|| fields.or("rope_theta", default.rope_theta), Ok)?,
            rope_scaling,
            tie_word_embeddings: fields.or("tie_word_embeddings", default.tie_word_embeddings)?,
            attention_bias: fields.or("attention_bias", default.attention_bias)?,
            mlp_bias: fields.or("mlp_bias", default.mlp_bias)?,
            initializer_range: fields.or("initializer_range", default.initializer_range)?,
            bos_token_id: fields.or_null("bos_token_id", default.bos_token_id)?,
            eos_token_id: fields.tokens("eos_token_id", default.eos_token_id)?,
            pad_token_id: fields.or_null("pad_token_id", default.pad_token_id)?,
        })
    }

    fn write_config(config: &LlamaConfig) -> Map<String, Value> {
        let fields = json!({
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "num_key_value_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": config.max_position_embeddings,
            "rms_norm_eps": config.rms_norm_eps,
            // The form of version 4 of `transformers`, which version 5 reads too.
            "rope_theta": config.rope_theta,
            "rope_scaling": scaling_json(config.rope_scaling),
            "tie_word_embeddings": config.tie_word_embeddings,
            "attention_bias": config.attention_bias,
            "mlp_bias": config.mlp_bias,
            "initializer_range": config.initializer_range,
            "bos_token_id": config.bos_token_id,
            "eos_token_id": tokens_json(&config.eos_token_id),
            "pad_token_id": config.pad_token_id,
        });
        if let Value::Object(fields) = fields { fields } else { Map::new() }
    }
}

/// The scaling in `rope_parameters` or `rope_scaling`.
fn scaling(rope: &Fields, longest: usize) -> Result<RopeScaling> {
    rope.expect("partial_rotary_factor", &[json!(1.0), json!(1)])?;
    let older = rope.or("type", "default".to_string())?;
    let kind = rope.or("rope_type", older)?;
    let need = |name: &str| -> Result<f64> {
        rope.get(name)?.ok_or_else(|| rope.wrong(&format!("has rotary positions of type `{kind}` without `{name}`")))
    };
    match kind.as_str() {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: need("factor")? }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: need("factor")?,
            low_freq_factor: need("low_freq_factor")?,
            high_freq_factor: need("high_freq_factor")?,
            original_max_position_embeddings: rope.or("original_max_position_embeddings", longest)?,
        }),
        other => {
            Err(rope.wrong(&format!("has rotary positions of type `{other}`; supported are default, linear, llama3")))
        }
    }
}

fn scaling_json(scaling: RopeScaling) -> Value {
    match scaling {
        RopeScaling::None => Value::Null,
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original_max_position_embeddings,
        }),
    }
}
