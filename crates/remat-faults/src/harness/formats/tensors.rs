//! Safetensors, models of Hugging Face, checkpoints.

use std::path::Path;

use anyhow::Result;
use remat::nn::{Gpt2, Gpt2Config, Llama};
use remat::{DType, Tensor, random};
use remat_io::huggingface::{self, ExportOptions};
use remat_io::{Checkpoint, Checkpoints, Progress, SafeTensors, Snapshot};

use super::{Format, Place, Read, Rule, hash};
use crate::harness::work::Work;

pub(super) fn formats() -> Vec<Format> {
    let place = Place::File;
    let (rule, writes) = (Rule::Formed, false);
    vec![
        Format { name: "safetensors", rule, place, writes, make: make_tensors, read: read_tensors },
        Format { name: "Hugging Face folder", rule, place, writes, make: make_folder, read: read_folder },
        Format { name: "config.json", rule, place, writes, make: make_config, read: read_config },
        Format { name: "checkpoint", rule: Rule::Noticed, place, writes, make: make_checkpoint, read: read_checkpoint },
    ]
}

/// Tensors of several dtypes and ranks, one of them empty.
fn tensors() -> (Tensor, Tensor, Tensor, Tensor) {
    let floats = random::normal(random::key(0), [3, 5], DType::F32);
    (floats.to_dtype(DType::Bf16), floats, Tensor::new([1, 2, 3]), Tensor::full([2, 0], 0.0, DType::F32))
}

fn make_tensors(_: &Work, folder: &Path) -> Result<()> {
    Ok(remat_io::save(folder.join("a.safetensors"), &tensors())?)
}

fn read_tensors(_: &Work, folder: &Path) -> Read {
    let path = folder.join("a.safetensors");
    let read = || {
        let file = SafeTensors::open(&path)?;
        let sizes =
            file.names().map(|name| Ok(file.tensor(name)?.shape()?.to_vec())).collect::<remat::Result<Vec<_>>>()?;
        // A tree asks for more: all names, dtypes and shapes.
        remat_io::load(&path, &tensors())?;
        Ok(format!("{sizes:?}"))
    };
    Read::of(read())
}

fn config() -> Gpt2Config {
    Gpt2Config { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() }
}

/// A model in several files, with an index.
fn make_folder(_: &Work, folder: &Path) -> Result<()> {
    let model = Gpt2::init(random::key(0), &config(), DType::F32);
    Ok(huggingface::save_with(&ExportOptions { shard_bytes: 2000 }, folder, &model, &config())?)
}

fn read_folder(_: &Work, folder: &Path) -> Read {
    Read::of(huggingface::load::<Gpt2>(folder, None).map(|(_, config)| format!("{config:?}")))
}

fn make_config(_: &Work, folder: &Path) -> Result<()> {
    let text = r#"{"model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": false, "torch_dtype": "float32"}"#;
    Ok(std::fs::write(folder.join("config.json"), text)?)
}

fn read_config(_: &Work, folder: &Path) -> Read {
    Read::of(huggingface::config::<Llama>(folder).map(|config| format!("{config:?}")))
}

fn make_checkpoint(_: &Work, folder: &Path) -> Result<()> {
    let progress = Progress { step: 7, seed: 1, data: 0u64, config: "small".to_string() };
    let mut checkpoints = Checkpoints::open(folder)?;
    checkpoints.save(Snapshot::new(&progress)?.with("model", &tensors())?)?;
    Ok(checkpoints.finish()?)
}

fn read_checkpoint(_: &Work, folder: &Path) -> Read {
    let read = || {
        let Some(checkpoint) = Checkpoint::latest(folder)?.checkpoint else { return Ok("none".into()) };
        let progress: Progress<u64, String> = checkpoint.progress()?;
        let (bf16, floats, numbers, _) = checkpoint.tree("model", &tensors())?;
        let bytes = [
            bf16.to_dtype(DType::F32).to_vec::<f32>()?,
            floats.to_vec::<f32>()?,
            numbers.to_dtype(DType::F32).to_vec::<f32>()?,
        ];
        let bytes: Vec<u8> = bytes.concat().into_iter().flat_map(f32::to_le_bytes).collect();
        Ok(format!("{progress:?} {}", hash(&bytes)))
    };
    Read::of(read())
}
