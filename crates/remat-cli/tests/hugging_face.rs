//! Models in folders as Hugging Face has them, generated with and evaluated as a user does it.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{error, stdout};
use remat::nn::{self, Llama, LlamaConfig, Sampling};
use remat::{DType, Tensor, random, tree};
use remat_io::huggingface;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

fn remat(folder: &Path, args: &[&str]) -> Output {
    common::command(folder, args.iter().copied()).output().unwrap()
}

/// The loss that a report ends with, and the number of tokens.
fn loss(report: &str) -> (f64, usize) {
    let words: Vec<&str> = report.lines().last().unwrap().split_whitespace().collect();
    let number = |word: &str| word.trim_matches(',').replace(',', "");
    (number(words[1]).parse().unwrap(), number(words[words.len() - 2]).parse().unwrap())
}

/// The mean loss of sequences under a model: of each token but the first.
fn mean_loss(model: &Llama, sequences: &[Vec<i32>]) -> f64 {
    let each = sequences.iter().map(|sequence| {
        let tensor = |tokens: &[i32]| Tensor::from_vec(tokens.to_vec(), [1, tokens.len()]);
        let logits = model.apply(&tensor(&sequence[..sequence.len() - 1]));
        let loss = nn::cross_entropy(&logits.to_dtype(DType::F32), &tensor(&sequence[1..]));
        f64::from(loss.item::<f32>().unwrap()) * (sequence.len() - 1) as f64
    });
    each.sum::<f64>() / sequences.iter().map(|sequence| sequence.len() - 1).sum::<usize>() as f64
}

/// A folder without a tokenizer, whose tokens are bytes, of a model with as many positions as today's have.
#[test]
fn a_model_of_bytes_with_many_positions() {
    let at = TempDir::new().unwrap();
    let config = LlamaConfig {
        vocab_size: 256,
        hidden_size: 16,
        intermediate_size: 20,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        max_position_embeddings: 131_072,
        eos_token_id: Vec::new(),
        ..LlamaConfig::default()
    };
    let model = Llama::init(random::key(1), &config, DType::F32);
    huggingface::save(at.path().join("model"), &model, &config).unwrap();
    fs::write(at.path().join("text.txt"), "to be or not to be").unwrap();
    let eval = |flags: &[&str]| remat(at.path(), &[&["eval", "model", "--text", "text.txt"], flags].concat());
    let bytes: Vec<i32> = b"to be or not to be".iter().map(|&byte| i32::from(byte)).collect();

    let (whole, count) = loss(&stdout(eval(&[])));
    assert_eq!(count, 17);
    assert!((whole - mean_loss(&model, std::slice::from_ref(&bytes))).abs() < 2e-4);
    // What is left of the text at its end is not counted.
    let expected = mean_loss(&model, &[bytes[..6].to_vec(), bytes[5..11].to_vec(), bytes[10..16].to_vec()]);
    for flags in [&["--context", "5"][..], &["--context", "5", "--batch", "2"]] {
        let (parts, count) = loss(&stdout(eval(flags)));
        assert_eq!(count, 15);
        assert!((parts - expected).abs() < 2e-4, "{parts} is not {expected}");
    }
    let long = error(eval(&["--context", "131073"]));
    assert!(long.contains("--context 131073 is more than the 131072 positions of the model"), "{long}");
    assert!(error(eval(&["--batch", "0"])).contains("--batch"));
    fs::write(at.path().join("text.txt"), "t").unwrap();
    let short = error(eval(&[]));
    assert!(short.contains("the text has too few tokens to predict one from another: 1"), "{short}");

    let written = remat(at.path(), &["generate", "model", "--prompt", "to", "--length", "12", "--temperature", "0"]);
    let expected = nn::generate(random::key(0), &model, &[b"to".map(u32::from)], 12, Sampling::greedy()).unwrap();
    let expected: Vec<u8> = expected[0][2..].iter().map(|&token| token as u8).collect();
    let shown = |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    let expected: String = String::from_utf8_lossy(&expected).chars().map(shown).collect();
    assert_eq!(stdout(written), format!("{expected}\n"));
}

#[test]
fn a_tokenizer_that_cannot_be_read_is_an_error() {
    let at = TempDir::new().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../remat-io/tests/data/huggingface/gpt2");
    let message = error(remat(at.path(), &["generate", data.to_str().unwrap()]));
    assert!(message.contains("tokenizer.json`"), "{message}");
}

/// What was trained here, with adapters too, is a folder that writes the same and that nothing overwrites.
#[test]
fn a_run_is_exported() {
    let at = common::folder(&"to be or not to be, ".repeat(60));
    let run = |args: &str| common::remat(at.path(), args);
    let small = "--batch 4 --steps 6 --sample 0 --learning-rate 0.02";
    let sizes = "--layers 2 --width 16 --heads 2 --context 12";
    for (name, flags) in [
        ("gpt2", format!("{sizes} --layers-as scan")),
        ("llama", format!("--model llama-tiny {sizes} --kv-heads 1")),
        ("adapted", "--from llama --lora 2 --context 12".to_string()),
    ] {
        stdout(run(&format!("train --text text.txt {small} {flags} --save {name}")));
        let said = stdout(run(&format!("export {name} --to out/{name}")));
        let expected = "after step 6 to out/".to_string() + name;
        assert!(
            said.contains(&expected)
                && said.ends_with("; its tokens are bytes, for which there is no tokenizer.json\n"),
            "{said}"
        );
        for command in ["generate FOLDER --prompt to --length 20 --seed 3", "eval FOLDER --text text.txt --context 12"]
        {
            let [own, exported] = [name.to_string(), format!("out/{name}")]
                .map(|folder| stdout(run(&command.replace("FOLDER", &folder))));
            let without_path = |text: &str| {
                text.lines().filter(|line| !line.starts_with("checkpoint: ")).collect::<Vec<_>>().join("\n")
            };
            assert_eq!(without_path(&own), without_path(&exported), "{name}");
        }
    }
    stdout(run("export llama --to half --dtype bf16"));
    let (half, config) = huggingface::load::<Llama>(at.path().join("half"), None).unwrap();
    let (whole, same) = huggingface::load::<Llama>(at.path().join("out/llama"), None).unwrap();
    assert_eq!((half.embed.table.dtype().unwrap(), config), (DType::Bf16, same));
    assert!(half.embed.table.to_dtype(DType::F32).allclose(&whole.embed.table, 0.01, 0.0).unwrap());

    assert!(error(run("export llama --to half")).contains("is there already, and is not overwritten"));
    assert!(error(run("export out --to other")).contains("has no checkpoint"));
    assert!(error(run("export llama --to other --dtype i8")).contains("[possible values: f32, bf16, f16]"));
    assert!(!at.path().join("other").exists());
}

/// Leaves out the tensors of a file whose names end like this.
fn leave_out(path: &Path, end: &str) {
    let file = fs::read(path).unwrap();
    let (length, rest) = file.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
    let (mut kept, mut left) = (Map::new(), Vec::new());
    for (name, mut entry) in header.into_iter().filter(|(name, _)| !name.ends_with(end)) {
        if name != "__metadata__" {
            let [start, stop] = [0usize, 1].map(|i| entry["data_offsets"][i].as_u64().unwrap() as usize);
            entry["data_offsets"] = json!([left.len(), left.len() + stop - start]);
            left.extend_from_slice(&data[start..stop]);
        }
        kept.insert(name, entry);
    }
    let header = Value::Object(kept).to_string();
    let header = format!("{header:<width$}", width = header.len().next_multiple_of(8));
    fs::write(path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &left].concat()).unwrap();
}

/// A Mistral has the weights of a Llama, and reads some tokens back; a Qwen2 has biases of queries, keys and values alone.
#[test]
fn a_mistral_and_a_qwen2_are_evaluated_and_trained() {
    let text = "to be or not to be, ".repeat(30);
    let at = common::folder(&text);
    let bytes: Vec<i32> = text.bytes().map(i32::from).collect();
    let sequences: Vec<Vec<i32>> = (0..(bytes.len() - 1) / 12).map(|i| bytes[i * 12..][..13].to_vec()).collect();
    for (kind, attention_bias) in [("mistral", false), ("qwen2", true)] {
        let config = LlamaConfig {
            vocab_size: 256,
            hidden_size: 16,
            intermediate_size: 20,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            num_key_value_heads: Some(1),
            max_position_embeddings: 32,
            eos_token_id: Vec::new(),
            attention_bias,
            ..LlamaConfig::default()
        };
        let model = tree::map_with_path(&Llama::init(random::key(1), &config, DType::F32), |path, leaf| {
            if path.to_string().ends_with("bias") { leaf + 0.5 } else { leaf.clone() }
        });
        let folder = at.path().join(kind);
        huggingface::save(&folder, &model, &config).unwrap();
        leave_out(&folder.join("model.safetensors"), "o_proj.bias");
        let path = folder.join("config.json");
        let mut fields: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        fields["model_type"] = kind.into();
        fields["sliding_window"] = 12.into();
        fs::write(&path, fields.to_string()).unwrap();
        let without_out_bias = |block: nn::LlamaBlock| {
            let attn = nn::GroupedAttention { out: block.attn.out.without_bias(), ..block.attn };
            nn::LlamaBlock { attn, ..block }
        };
        let blocks: Vec<_> = model.blocks.to_layers().into_iter().map(without_out_bias).collect();
        let model = Llama { blocks: blocks.into(), ..model };

        let run = |args: &str| common::remat(at.path(), &args.replace("MODEL", kind));
        let (found, count) = loss(&stdout(run("eval MODEL --text text.txt --context 12")));
        let expected = mean_loss(&model, &sequences);
        assert_eq!(count, 12 * sequences.len());
        assert!((found - expected).abs() < 2e-4, "{kind}: {found} is not {expected}");
        assert!(!stdout(run("generate MODEL --prompt to --length 6")).is_empty());

        // As far as the window reaches, the attention reads all; a Qwen2 has none unless it says so.
        let more = run("eval MODEL --text text.txt --context 13");
        let small = "train --text text.txt --from MODEL --batch 2 --steps 2 --sample 0 --learning-rate 0";
        let trained = run(&format!("{small} --context 13 --save MODEL-13"));
        if kind == "mistral" {
            assert!(error(more).contains("--context 13 is more than the 12 positions of the model"));
            assert!(error(trained).contains("reads 12 tokens back (sliding_window)"));
            stdout(run(&format!("{small} --context 12 --save MODEL-13")));
        } else {
            stdout(more);
            stdout(trained);
        }
        let (after, _) = loss(&stdout(run("eval MODEL-13 --text text.txt --context 12")));
        assert!((after - found).abs() < 2e-4, "{kind}: training began from other weights: {after} is not {found}");
    }
}

#[cfg(feature = "tokenizers")]
mod with_tokenizer {
    use super::*;

    /// The letters that the tokenizer knows, from token 3 on.
    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz ";

    /// A folder with the model of Llama, 61 tokens and 16 positions, and a tokenizer of letters which puts `<s>` before texts, or does not.
    fn folder(begins: bool) -> TempDir {
        let at = TempDir::new().unwrap();
        let model = at.path().join("model");
        fs::create_dir(&model).unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../remat-io/tests/data/huggingface");
        for name in ["config.json", "model.safetensors"] {
            fs::copy(data.join("llama-tied-biases-bf16").join(name), model.join(name)).unwrap();
        }
        let special = ["<unk>", "<s>", "</s>"];
        let added = |(id, token): (usize, &&str)| json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
        let letters = LETTERS.chars().map(String::from).chain(["\n".to_string()]);
        // As many tokens as the model has, so that what it writes has text.
        let others = (special.len() + LETTERS.len() + 1..61).map(|i| format!("[{i}]"));
        let tokens = special.iter().map(|token| token.to_string()).chain(letters).chain(others);
        let vocabulary: serde_json::Map<_, _> = tokens.enumerate().map(|(i, token)| (token, json!(i))).collect();
        let template = json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        });
        let tokenizer = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": special.iter().enumerate().map(added).collect::<Vec<_>>(),
            "normalizer": null,
            "pre_tokenizer": null,
            "post_processor": if begins { template } else { json!(null) },
            "decoder": {"type": "Fuse"},
            "model": {
                "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": [],
            },
        });
        fs::write(model.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        fs::write(at.path().join("text.txt"), "to be or not to be").unwrap();
        at
    }

    fn tokens(text: &str) -> Vec<u32> {
        text.chars().map(|c| 3 + LETTERS.find(c).unwrap() as u32).collect()
    }

    /// What begins texts comes before prompts.
    #[test]
    fn prompts_begin_as_the_tokenizer_says() {
        let mut texts = Vec::new();
        for begins in [true, false] {
            let at = folder(begins);
            let (model, _) = huggingface::load::<Llama>(at.path().join("model"), None).unwrap();
            let args = ["generate", "model", "--prompt", "to be", "--length", "9", "--temperature", "1", "--seed", "5"];
            let written = stdout(remat(at.path(), &args));
            let prompt: Vec<u32> = begins.then_some(1).into_iter().chain(tokens("to be")).collect();
            let all =
                nn::generate(random::key(5), &model, std::slice::from_ref(&prompt), 9, Sampling::default()).unwrap();
            let drawn: Vec<u32> = all[0][prompt.len()..].iter().copied().take_while(|&token| token != 2).collect();
            let tokenizer = remat_data::Tokenizer::open(at.path().join("model")).unwrap();
            assert_eq!(written, format!("{}\n", tokenizer.decode(&drawn).unwrap()));
            texts.push(written);
        }
        assert_ne!(texts[0], texts[1]);
    }

    /// It comes before each sequence that is evaluated too, and the first token is predicted.
    #[test]
    fn sequences_begin_as_the_tokenizer_says() {
        let text: Vec<i32> = tokens("to be or not to be").into_iter().chain([2]).map(u32::cast_signed).collect();
        for begins in [true, false] {
            let at = folder(begins);
            let (model, _) = huggingface::load::<Llama>(at.path().join("model"), None).unwrap();
            let sequences = |context: usize| -> Vec<Vec<i32>> {
                if begins {
                    return text.chunks_exact(context).map(|chunk| [&[1], chunk].concat()).collect();
                }
                (0..(text.len() - 1) / context).map(|i| text[i * context..][..context + 1].to_vec()).collect()
            };
            for (flags, context) in [(&[][..], 16), (&["--context", "4", "--batch", "3"], 4)] {
                let args = [&["eval", "model", "--text", "text.txt"], flags].concat();
                let (found, count) = loss(&stdout(remat(at.path(), &args)));
                let expected = sequences(context);
                assert_eq!(count, expected.len() * context);
                let expected = mean_loss(&model, &expected);
                assert!((found - expected).abs() < 5e-3, "{found} is not {expected}");
            }
        }
    }

    /// A run has its tokenizer with it when it is exported.
    #[test]
    fn a_tokenizer_is_exported() {
        let at = folder(true);
        fs::write(at.path().join("text.txt"), "to be or not to be ".repeat(40)).unwrap();
        let run = |args: &str| common::remat(at.path(), args);
        stdout(run("train --text text.txt --from model --context 12 --batch 2 --steps 2 --sample 0 --save run"));
        let read = |path: &str| fs::read(at.path().join(path)).unwrap();
        // The run has a copy, on which alone it depends.
        let tokenizer = read("model/tokenizer.json");
        fs::remove_file(at.path().join("model/tokenizer.json")).unwrap();
        let said = stdout(run("export run --to out"));
        assert!(said.ends_with(" to out\n"), "{said}");
        assert_eq!(read("out/tokenizer.json"), tokenizer);
        assert!(!stdout(run("generate out --prompt to --length 5")).is_empty());
    }
}
