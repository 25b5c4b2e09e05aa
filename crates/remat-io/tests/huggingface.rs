//! Models of Hugging Face: logits beside those of `transformers`, what is exported, and folders that cannot be loaded.
//! `data/huggingface/generate.py` made the folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use remat::nn::{Gpt2, Gpt2Config, Llama, LlamaConfig, Lora, RopeScaling};
use remat::{DType, Error, ErrorKind, Policy, Tensor, random, tree};
use remat_io::huggingface::{
    ExportOptions, Pretrained, config, config_from_json, load, load_as, model_type, save, save_with, save_with_files,
};
use remat_io::{SafeTensors, names};
use remat_testkit::not_tested;
use serde_json::{Value, json};
use tempfile::TempDir;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/huggingface").join(name)
}

/// Both kinds, by what they compute.
trait Logits: Pretrained {
    fn of(&self, tokens: &Tensor) -> Tensor;
    /// The same model with its blocks as a loop.
    fn looped(self) -> Self;
}

impl Logits for Gpt2 {
    fn of(&self, tokens: &Tensor) -> Tensor {
        self.apply(tokens)
    }

    fn looped(self) -> Gpt2 {
        Gpt2 { blocks: self.blocks.stacked().unwrap().with_policy(Policy::Nothing), ..self }
    }
}

impl Logits for Llama {
    fn of(&self, tokens: &Tensor) -> Tensor {
        self.apply(tokens)
    }

    fn looped(self) -> Llama {
        Llama { blocks: self.blocks.stacked().unwrap().with_policy(Policy::Nothing), ..self }
    }
}

/// The tokens of all tests, and the logits of `transformers` for a model.
fn expected(name: &str) -> (Tensor, Tensor) {
    let file = SafeTensors::open(folder(name).join("expected.safetensors")).unwrap();
    (file.tensor("tokens").unwrap().to_dtype(DType::I32), file.tensor("logits").unwrap())
}

#[track_caller]
fn assert_close(given: &Tensor, expected: &Tensor) {
    let distance = (given - expected).abs().max(..).item::<f32>().unwrap();
    assert!(distance < 1e-4, "{distance}");
}

fn bits<T: remat::Tree>(model: &T) -> Vec<(String, Vec<u64>)> {
    let leaf = |(name, leaf): (String, Tensor)| {
        let array = leaf.array().unwrap();
        (name, (0..array.data().len()).map(|i| array.data().get(i).unwrap().bits()).collect())
    };
    names(model).unwrap().into_iter().map(leaf).collect()
}

/// Loads a folder, compares logits, exports the model in several ways, and loads that.
#[track_caller]
fn round_trip<M: Logits>(name: &str, dtype: DType) -> (M, M::Config) {
    let (tokens, logits) = expected(name);
    let (model, read) = load::<M>(folder(name), Some(DType::F32)).unwrap();
    assert_close(&model.of(&tokens), &logits);
    let (stored, _) = load::<M>(folder(name), None).unwrap();
    assert!(tree::leaves(&stored).iter().all(|(_, leaf)| leaf.dtype().unwrap() == dtype));
    assert_eq!(bits(&tree::map(&stored, |leaf| leaf.to_dtype(DType::F32))), bits(&model));

    let out = tempfile::tempdir().unwrap();
    let whole = out.path().join("whole");
    save(&whole, &stored, &read).unwrap();
    let (again, config) = load::<M>(&whole, None).unwrap();
    assert_eq!((bits(&again), &config), (bits(&stored), &read));
    // In several files, of blocks that run as a loop.
    let shards = out.path().join("shards");
    fs::create_dir(&shards).unwrap();
    save_with(&ExportOptions { shard_bytes: 6000 }, &shards, &stored.clone().looped(), &read).unwrap();
    assert!(shards.join("model.safetensors.index.json").is_file());
    assert_eq!(bits(&load::<M>(&shards, None).unwrap().0), bits(&stored));
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 2);
    transformers_loads([&whole, &shards], &logits);
    (model, read)
}

/// Where `REMAT_TEST_PYTHON` names a Python with `transformers`, it loads exported folders and computes the same logits of each.
fn transformers_loads(folders: [&Path; 2], logits: &Tensor) {
    let Some(python) = std::env::var_os("REMAT_TEST_PYTHON") else {
        return not_tested("exported folders in transformers", &"REMAT_TEST_PYTHON is not set");
    };
    let output = Command::new(python).arg(folder("generate.py")).arg("--check").args(folders).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<f32> = text.lines().map(|line| line.parse().unwrap()).collect();
    for numbers in numbers.chunks(numbers.len() / 2) {
        assert_close(&Tensor::from_slice(numbers, logits.shape().unwrap()), logits);
    }
}

#[test]
fn gpt2() {
    let (model, config) = round_trip::<Gpt2>("gpt2", DType::F32);
    assert!(model.head.is_none() && config.tie_word_embeddings);
    let small =
        Gpt2Config { vocab_size: 61, n_positions: 16, n_embd: 16, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
    assert_eq!(config, small);
}

#[test]
fn gpt2_with_a_head_of_its_own_in_several_files() {
    let (model, config) = round_trip::<Gpt2>("gpt2-untied-sharded", DType::F32);
    assert!(model.head.is_some());
    assert_eq!(config.n_inner, Some(40));
}

#[test]
fn gpt2_as_of_2019_in_f16() {
    let (_, config) = round_trip::<Gpt2>("gpt2-2019-f16", DType::F16);
    assert!(config.tie_word_embeddings);
}

#[test]
fn llama_in_several_files() {
    let (model, config) = round_trip::<Llama>("llama-sharded", DType::F32);
    assert!(model.head.is_some());
    assert_eq!((config.num_key_value_heads, config.rope_theta), (Some(2), 500.0));
    let scaling = RopeScaling::Llama3 {
        factor: 4.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8,
    };
    assert_eq!(config.rope_scaling, scaling);
}

#[test]
fn llama_with_biases_in_bf16() {
    let (model, config) = round_trip::<Llama>("llama-tied-biases-bf16", DType::Bf16);
    assert!(model.head.is_none() && config.attention_bias && config.mlp_bias);
    assert_eq!(config.head_dim, Some(6));
}

#[test]
fn llama_of_version_4() {
    let (_, config) = round_trip::<Llama>("llama-version-4", DType::F32);
    assert_eq!((config.rope_theta, config.rope_scaling), (300.0, RopeScaling::Linear { factor: 2.0 }));
}

/// The names in an exported file are those of `transformers`.
#[test]
fn names_in_exported_files() {
    let sorted =
        |path: PathBuf| -> Vec<String> { SafeTensors::open(path).unwrap().names().map(str::to_string).collect() };
    let out = tempfile::tempdir().unwrap();
    let (model, config) = load::<Gpt2>(folder("gpt2"), None).unwrap();
    save(out.path().join("gpt2"), &model, &config).unwrap();
    let file = "model.safetensors";
    assert_eq!(sorted(out.path().join("gpt2").join(file)), sorted(folder("gpt2").join(file)));
    let (model, config) = load::<Llama>(folder("llama-version-4"), None).unwrap();
    save(out.path().join("llama"), &model, &config).unwrap();
    assert_eq!(sorted(out.path().join("llama").join(file)), sorted(folder("llama-version-4").join(file)));
    assert_eq!(SafeTensors::open(out.path().join("llama").join(file)).unwrap().metadata()["format"], "pt");
}

/// A copy of a folder, with `config.json` changed.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let path = copy.path().join("config.json");
    let mut config = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(path, config.to_string()).unwrap();
    copy
}

/// What ends a text is lost by no load and save: one token, several, none, or what a file does not say.
#[test]
fn tokens_that_begin_and_end_texts() {
    let out = tempfile::tempdir().unwrap();
    let set = |fields: Value| {
        move |config: &mut Value| {
            for (name, value) in fields.as_object().unwrap() {
                config[name] = value.clone();
            }
        }
    };
    let cases = [
        json!({"bos_token_id": 128_000, "eos_token_id": [128_001, 128_008, 128_009], "pad_token_id": 128_004}),
        json!({"bos_token_id": 0, "eos_token_id": 7, "pad_token_id": -1}),
        json!({"bos_token_id": null, "eos_token_id": null, "pad_token_id": null}),
    ];
    for (case, fields) in cases.into_iter().enumerate() {
        let exported =
            |path: PathBuf| -> Value { serde_json::from_slice(&fs::read(path.join("config.json")).unwrap()).unwrap() };
        let llama = changed("llama-version-4", set(fields.clone()));
        let (model, read) = load::<Llama>(llama.path(), None).unwrap();
        let path = out.path().join(format!("llama{case}"));
        save(&path, &model, &read).unwrap();
        assert_eq!(config::<Llama>(&path).unwrap(), read);
        let gpt2 = changed("gpt2", set(fields.clone()));
        let (model, read) = load::<Gpt2>(gpt2.path(), None).unwrap();
        let other = out.path().join(format!("gpt2{case}"));
        save(&other, &model, &read).unwrap();
        assert_eq!(config::<Gpt2>(&other).unwrap(), read);
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&exported(path.clone())[name], value, "{name}");
            assert_eq!(&exported(other.clone())[name], value, "{name}");
        }
    }
    let silent = changed("llama-version-4", |config| {
        for name in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            config.as_object_mut().unwrap().remove(name);
        }
    });
    let read = config::<Llama>(silent.path()).unwrap();
    assert_eq!((read.bos_token_id, read.eos_token_id, read.pad_token_id), (Some(1), vec![2], None));
    let wrong = changed("gpt2", |config| config["eos_token_id"] = json!("end"));
    let text = message(config::<Gpt2>(wrong.path()), &wrong);
    assert!(text.starts_with("`DIR/config.json` has a field `eos_token_id` that cannot be used: "), "{text}");
}

#[track_caller]
fn message<T>(result: remat::Result<T>, folder: &TempDir) -> String {
    let Err(error) = result else { panic!("no error") };
    assert!(error.loc().is_some(), "{error}");
    error.message().replace(folder.path().to_str().unwrap(), "DIR")
}

#[test]
fn configurations_that_are_not_supported() {
    let file = "`DIR/config.json`";
    let gpt2 = |field: &str, value: Value| {
        let copy = changed("gpt2", |config| config[field] = value);
        message(load::<Gpt2>(copy.path(), None), &copy)
    };
    let llama = |field: &str, value: Value| {
        let copy = changed("llama-version-4", |config| config[field] = value);
        message(load::<Llama>(copy.path(), None), &copy)
    };
    let relu = gpt2("activation_function", json!("relu"));
    assert_eq!(
        relu,
        format!("{file} has `activation_function`: \"relu\"; supported is \"gelu_new\", \"gelu_pytorch_tanh\"")
    );
    assert!(gpt2("scale_attn_by_inverse_layer_idx", json!(true)).ends_with("supported is false"));
    assert!(gpt2("n_embd", json!("wide")).starts_with(&format!("{file} has a field `n_embd` that cannot be used: ")));
    for epsilon in [1e39, -1e-5] {
        let reason = format!("cannot be used: {epsilon} is not a number of f32 from 0 on");
        assert_eq!(
            gpt2("layer_norm_epsilon", json!(epsilon)),
            format!("{file} has a field `layer_norm_epsilon` that {reason}")
        );
        assert_eq!(llama("rms_norm_eps", json!(epsilon)), format!("{file} has a field `rms_norm_eps` that {reason}"));
    }
    assert_eq!(gpt2("model_type", json!("llama")), format!("{file} is of a model of type `llama` and not `gpt2`"));
    assert_eq!(gpt2("model_type", Value::Null), format!("{file} has no field `model_type`"));
    let quantised = gpt2("quantization_config", json!({"bits": 4}));
    assert_eq!(quantised, format!("{file} is of a quantised model (`quantization_config`), which is not supported"));
    for heads in [0, 3] {
        let expected = format!("{file} describes a model of {heads} heads, which do not divide its 16 features");
        assert_eq!(gpt2("n_head", json!(heads)), expected);
    }
    for key_heads in [0, 3] {
        let expected = format!("{file} describes a model of {key_heads} key heads, which do not divide its 4 heads");
        assert_eq!(llama("num_key_value_heads", json!(key_heads)), expected);
    }
    // Its heads have a size of their own, 4, and need not divide the features.
    assert!(llama("hidden_size", json!(18)).starts_with("tensor "));
    let error = config_from_json::<Llama>("c.json", r#"{"model_type": "llama", "hidden_size": 18}"#).unwrap_err();
    assert_eq!(error.message(), "`c.json` describes a model of 32 heads, which do not divide its 18 features");
    assert_eq!(
        gpt2("n_embd", json!(32)),
        "tensor `transformer.wte.weight` of `DIR/model.safetensors` is f32[61,16] and must be f32[61,32]"
    );
    assert_eq!(
        gpt2("n_layer", json!(1)).split(": ").next().unwrap(),
        "`DIR/model.safetensors` has 12 tensors that the tree does not"
    );
    // No size of a file makes memory be reserved that its weights do not take.
    for (field, most) in [("n_layer", 10_000), ("n_embd", 1 << 20), ("n_head", 1 << 20), ("n_inner", 1 << 24)] {
        for size in [1 << 31, 1_000_000_000_000_u64, u64::MAX] {
            let expected = format!("{file} has `{field}`: {size}; at most {most} is supported");
            assert_eq!(gpt2(field, json!(size)), expected);
        }
    }
    for field in ["num_hidden_layers", "vocab_size", "max_position_embeddings", "num_key_value_heads", "head_dim"] {
        assert!(llama(field, json!(1_u64 << 31)).contains("`: 2147483648; at most "), "{field}");
    }
    let layers = |tensors| format!("{file} describes a model of 9999 layers, and the weights are {tensors} tensors");
    assert_eq!(gpt2("n_layer", json!(9999)), layers(28));
    assert_eq!(llama("num_hidden_layers", json!(9999)), layers(21));
    // A configuration of the caller is not that of the file, so that the folder is named.
    let copy = changed("gpt2", |_| {});
    let given = Gpt2Config { n_layer: 9999, ..config::<Gpt2>(copy.path()).unwrap() };
    assert_eq!(
        message(load_as::<Gpt2>(copy.path(), &given, None, |model| model), &copy),
        "`DIR` has 28 tensors, and the configuration is of a model of 9999 layers"
    );
    let yarn = llama("rope_scaling", json!({"rope_type": "yarn", "factor": 2.0}));
    assert_eq!(yarn, format!("{file} has rotary positions of type `yarn`; supported are default, linear, llama3"));
    let factor = llama("rope_scaling", json!({"rope_type": "linear"}));
    assert_eq!(factor, format!("{file} has rotary positions of type `linear` without `factor`"));
    assert!(
        llama("hidden_act", json!("gelu")).starts_with(&format!("{file} has `hidden_act`: \"gelu\"; supported is"))
    );
    let untied = changed("llama-tied-biases-bf16", |config| config["tie_word_embeddings"] = json!(false));
    let head = message(load::<Llama>(untied.path(), None), &untied);
    assert_eq!(head, "`DIR/model.safetensors` has no tensor `lm_head.weight`");

    let text = changed("gpt2", |_| {});
    fs::write(text.path().join("config.json"), "{").unwrap();
    assert!(message(config::<Gpt2>(text.path()), &text).starts_with(&format!("{file} is not a configuration: EOF")));
    assert_eq!(model_type(folder("llama-sharded")).unwrap(), "llama");
    assert!(message(model_type(text.path().join("none")), &text).starts_with("cannot read `DIR/none/config.json`"));
}

#[test]
fn weights_that_cannot_be_loaded() {
    let copy = changed("gpt2", |_| {});
    let path = copy.path().join("model.safetensors");
    let model = || message(load::<Gpt2>(copy.path(), None), &copy);
    fs::remove_file(&path).unwrap();
    let none = "`DIR` has neither `model.safetensors` nor `model.safetensors.index.json`";
    assert_eq!(model(), none);
    fs::write(copy.path().join("pytorch_model.bin"), "").unwrap();
    assert_eq!(
        model(),
        format!("{none}; it has `pytorch_model.bin`, which `transformers` converts by `save_pretrained`")
    );

    let copy = changed("gpt2-untied-sharded", |_| {});
    let model = || message(load::<Gpt2>(copy.path(), None), &copy);
    let path = copy.path().join("model.safetensors.index.json");
    let index = fs::read_to_string(&path).unwrap();
    let map = |file: &str| json!({"weight_map": {"transformer.wte.weight": file}}).to_string();
    for file in ["../secret", "/etc/passwd", "a/b", ".", ""] {
        fs::write(&path, map(file)).unwrap();
        let message = model();
        assert!(message.contains(&format!("is in `{file}`, which is not the name of a file beside it")), "{message}");
    }
    fs::write(&path, map("model-00003-of-00003.safetensors")).unwrap();
    assert!(model().starts_with(
        "`DIR/model-00003-of-00003.safetensors` has no tensor `transformer.wte.weight`, which `DIR/model"
    ));
    fs::write(&path, map("lost.safetensors")).unwrap();
    assert!(model().starts_with("cannot read `DIR/lost.safetensors`"));
    fs::write(&path, "[]").unwrap();
    assert!(model().starts_with("`DIR/model.safetensors.index.json` is not an index of safetensors: "));
    fs::write(&path, index.replace("total_size\": ", "total_size\": 1.5e3, \"more\": ")).unwrap();
    load::<Gpt2>(copy.path(), None).unwrap();
}

#[test]
fn models_that_cannot_be_exported() {
    let out = tempfile::tempdir().unwrap();
    let sizes = LlamaConfig {
        vocab_size: 11,
        hidden_size: 8,
        intermediate_size: 12,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        ..LlamaConfig::default()
    };
    let model = Llama::init(random::key(0), &sizes, DType::F32);
    let path = out.path().join("model");
    let failed = |config: &LlamaConfig| message(save(&path, &model, config), &out);
    let wider = failed(&LlamaConfig { vocab_size: 12, ..sizes.clone() });
    assert_eq!(wider, "weight `lm_head.weight` has shape [8, 11], and [8, 12] in this configuration");
    let deeper = failed(&LlamaConfig { num_hidden_layers: 2, ..sizes.clone() });
    assert_eq!(deeper, "the model has no weight `model.layers.1.input_layernorm.weight`, which this configuration has");
    let tied = failed(&LlamaConfig { tie_word_embeddings: true, ..sizes.clone() });
    assert_eq!(tied, "the model has a weight `lm_head.weight`, which this configuration does not");
    let lost = message(save(out.path().join("a/b"), &model, &sizes), &out);
    assert!(lost.starts_with("cannot write `DIR/a/b`: "), "{lost}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);

    save(&path, &model, &sizes).unwrap();
    assert_eq!(failed(&sizes), "`DIR/model` is there already, and is not overwritten");
    let file = message(save(path.join("config.json"), &model, &sizes), &out);
    assert_eq!(file, "`DIR/model/config.json` is there already, and is not overwritten");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let plain = out.path().join("plain");
        fs::create_dir(&plain).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
    }
}

/// A model is there with all of its files or not at all, and what a killed process has left is no obstacle and goes.
#[test]
fn a_model_is_exported_as_a_whole() {
    let out = tempfile::tempdir().unwrap();
    let sizes =
        Gpt2Config { vocab_size: 11, n_positions: 4, n_embd: 8, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
    let model = Gpt2::init(random::key(0), &sizes, DType::F32);
    let (path, options) = (out.path().join("model"), ExportOptions::default());
    let names = || {
        let mut names: Vec<String> =
            fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let full = |_: &Path| Err(Error::new(ErrorKind::Io, "card", "the disk is full"));
    assert_eq!(message(save_with_files(&options, &path, &model, &sizes, full), &out), "the disk is full");
    assert_eq!(names(), Vec::<String>::new());
    // Of a killed process, then of one that lives.
    let left = out.path().join(".model.partial");
    fs::create_dir_all(left.join("more")).unwrap();
    fs::write(left.join("model.safetensors"), "half").unwrap();
    let lock = fs::File::open(&left).unwrap();
    lock.lock().unwrap();
    assert_eq!(message(save(&path, &model, &sizes), &out), "`DIR/model` is written by another process");
    assert_eq!(fs::read(left.join("model.safetensors")).unwrap(), b"half");
    drop(lock);
    let card = |folder: &Path| {
        assert!(folder.join("model.safetensors").exists() && names() == [".model.partial", "model"]);
        fs::write(folder.join("README.md"), "a model").unwrap();
        Ok(())
    };
    // An empty folder is replaced.
    fs::create_dir(&path).unwrap();
    save_with_files(&options, &path, &model, &sizes, card).unwrap();
    assert_eq!(names(), ["model"]);
    let mut files: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["README.md", "config.json", "model.safetensors"]);
    // Through a link, files of others could be removed.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&path, out.path().join(".other.partial")).unwrap();
        let error = message(save(out.path().join("other"), &model, &sizes), &out);
        assert!(error.starts_with("cannot write `DIR/other`: "), "{error}");
        assert!(path.join("config.json").exists());
    }
    let nothing = message(save(out.path().join(".."), &model, &sizes), &out);
    assert_eq!(nothing, "`DIR/..` is there already, and is not overwritten");
}

#[test]
fn adapters_are_merged_before_a_model_is_exported() {
    let out = tempfile::tempdir().unwrap();
    let (plain, read) = load::<Gpt2>(folder("gpt2"), None).unwrap();
    let lora = Lora { rank: 2, alpha: 4.0, maps: vec!["**.attn.qkv".into()] };
    for plain in [plain.clone(), plain.looped()] {
        let adapted = lora.attach(random::key(0), &plain).unwrap();
        let error = save(out.path().join("model"), &adapted, &read).unwrap_err();
        let message = "the model has adapters, as `blocks.0.attn.qkv.adapter.a`: merge them first, with `Lora::merge`";
        assert_eq!((error.kind(), error.message()), (ErrorKind::Structure, message));
        let merged = out.path().join(if plain.blocks.is_stacked() { "looped" } else { "listed" });
        save(merged, &Lora::merge(&adapted), &read).unwrap();
    }
}
