//! Tokenizers beside those of Python, and text out of tokens that come one by one.

use remat_data::Tokenizer;

/// The text of tokens that are pushed one by one.
fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    let mut decoder = tokenizer.decoder();
    let mut text: String = tokens.iter().map(|&token| decoder.push(token).unwrap()).collect();
    text += &decoder.finish().unwrap();
    text
}

#[test]
fn bytes() {
    let tokenizer = Tokenizer::bytes();
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(tokenizer.encode(&all).unwrap(), (0..256).collect::<Vec<u32>>());
    assert_eq!(tokenizer.decode(&[0xff, 97]).unwrap(), "\u{fffd}a");
    let error = tokenizer.decode(&[256]).unwrap_err();
    assert_eq!(error.message(), "there is no token 256: the vocabulary has 256");
    assert!(error.loc().is_some());
    assert_eq!(tokenizer.begin_of_text(), None);
    assert_ne!(tokenizer.fingerprint(), Tokenizer::bytes_with_end().fingerprint());
}

#[test]
fn streamed_bytes_are_the_text() {
    let tokenizer = Tokenizer::bytes_with_end();
    for text in ["", "a\u{20ac}\u{1f600}b", &"\u{1f600}".repeat(100), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}x"] {
        assert_eq!(streamed(&tokenizer, &tokenizer.encode(text.as_bytes()).unwrap()), text);
    }
    let mut broken: Vec<u32> = vec![0xe2, 0x82, 97, 0xe2];
    assert_eq!(streamed(&tokenizer, &broken), "\u{fffd}a\u{fffd}");
    // What never becomes text comes nevertheless, and memory stays bounded.
    broken = vec![0x80; 1000];
    assert_eq!(streamed(&tokenizer, &broken).chars().count(), 1000);
    let mut decoder = tokenizer.decoder();
    assert!(decoder.push(1000).is_err());
    assert_eq!(decoder.push(97).unwrap(), "a");
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn without_the_feature() {
    let error = Tokenizer::open("tokenizer.json").unwrap_err();
    let expected = "`tokenizer.json` cannot be read by this build, which knows bytes alone: build it with the feature `tokenizers`";
    assert_eq!(error.message(), expected);
}

#[cfg(feature = "tokenizers")]
mod hugging_face {
    use std::fs;
    use std::path::{Path, PathBuf};

    use serde::Deserialize;

    use super::*;

    /// What was saved is the same tokenizer, with its end of text, whatever is in the folder before.
    #[test]
    fn tokenizers_are_saved() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(folder.path().join("tokenizer_config.json"), "of another").unwrap();
        let data = |name: &str| Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(name);
        let json = fs::read(data("gpt2/tokenizer.json")).unwrap();
        let end = Tokenizer::open(data("gpt2/tokenizer.json")).unwrap().end_of_text().unwrap();
        for config in [None, Some(r#"{"eos_token": {"content": "<|endoftext|>"}}"#)] {
            let from = other.path().join("tokenizer.json");
            fs::write(&from, &json).unwrap();
            config.inspect(|config| fs::write(other.path().join("tokenizer_config.json"), config).unwrap());
            let tokenizer = Tokenizer::open(&from).unwrap();
            fs::remove_file(&from).unwrap();
            tokenizer.save(folder.path()).unwrap();
            let saved = Tokenizer::open(folder.path()).unwrap();
            assert_eq!((saved.fingerprint(), saved.end_of_text()), (tokenizer.fingerprint(), Some(end)));
            assert_eq!(folder.path().join("tokenizer_config.json").exists(), config.is_some());
        }
        let error = Tokenizer::open(data("gpt2")).unwrap().save(folder.path().join("none")).unwrap_err();
        assert!(error.message().starts_with("cannot write `") && error.loc().is_some(), "{error}");
    }

    #[derive(Deserialize)]
    struct Case {
        text: String,
        tokens: Vec<u32>,
        decoded: String,
    }

    fn data(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
    }

    #[test]
    fn tokens_are_those_of_python() {
        for (name, vocabulary, end) in [("gpt2", 300, 0), ("llama2", 400, 2), ("bert", 120, 1)] {
            let tokenizer = Tokenizer::open(data(name)).unwrap();
            assert_eq!((tokenizer.vocabulary(), tokenizer.end_of_text()), (vocabulary, Some(end)), "{name}");
            let cases: Vec<Case> = serde_json::from_slice(&fs::read(data(name).join("cases.json")).unwrap()).unwrap();
            for Case { text, tokens, decoded } in cases {
                assert_eq!(tokenizer.encode(text.as_bytes()).unwrap(), tokens, "{name}: {text:?}");
                assert_eq!(tokenizer.decode(&tokens).unwrap(), decoded, "{name}: {text:?}");
                assert_eq!(streamed(&tokenizer, &tokens), decoded, "{name}: {text:?}");
                // A long text, of which the decoder forgets the beginning.
                let long: Vec<u32> = tokens.iter().copied().cycle().take(20 * tokens.len()).collect();
                if name == "gpt2" {
                    assert_eq!(streamed(&tokenizer, &long), decoded.repeat(20), "{text:?}");
                } else {
                    assert_eq!(streamed(&tokenizer, &long), tokenizer.decode(&long).unwrap(), "{name}: {text:?}");
                }
            }
        }
    }

    #[test]
    fn characters_of_several_tokens_wait() {
        let tokenizer = Tokenizer::open(data("gpt2/tokenizer.json")).unwrap();
        let tokens = tokenizer.encode("a\u{1f600}".as_bytes()).unwrap();
        assert_eq!(tokens.len(), 5);
        let mut decoder = tokenizer.decoder();
        let parts: Vec<String> = tokens.iter().map(|&token| decoder.push(token).unwrap()).collect();
        assert_eq!(parts, ["a", "", "", "", "\u{1f600}"]);
        assert_eq!(tokenizer.encode(b"a\xff").unwrap(), tokenizer.encode("a\u{fffd}".as_bytes()).unwrap());
    }

    #[test]
    fn long_texts_have_the_same_tokens_in_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let text = "let x = [1, 2];\n    it's nobler\n\nÀ la carte\n".repeat(40_000);
        let path = folder.path().join("a.txt");
        fs::write(&path, &text).unwrap();
        let tokenizer = Tokenizer::open(data("gpt2")).unwrap();
        let source = remat_data::Source::open(&path, None).unwrap();
        assert!(source.pieces().count() > 1);
        let mut stream = remat_data::TokenStream::new(&source, &tokenizer);
        let tokens: Vec<Vec<u32>> = stream.by_ref().collect::<remat::Result<_>>().unwrap();
        let mut expected = tokenizer.encode(text.as_bytes()).unwrap();
        expected.push(0);
        assert_eq!(stream.bytes(), text.len() as u64);
        assert!(tokens.concat() == expected);
    }

    /// A tokenizer whose file puts `<s>` before each text, as that of Llama does.
    #[test]
    fn the_token_that_begins_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let json = fs::read_to_string(data("llama2/tokenizer.json")).unwrap();
        let plain = Tokenizer::open(data("llama2")).unwrap();
        assert_eq!(plain.begin_of_text(), None);
        let template = r#""post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}}"#;
        fs::write(&path, json.replace(r#""post_processor":null"#, template)).unwrap();
        let tokenizer = Tokenizer::open(&path).unwrap();
        assert_eq!(tokenizer.begin_of_text(), Some(1));
        assert_eq!(tokenizer.encode(b"to be").unwrap(), plain.encode(b"to be").unwrap());
    }

    /// The crate that reads them panics at some.
    #[test]
    fn files_that_are_cut_off_or_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        fs::write(&path, r#"{"decoder":{"type":"#).unwrap();
        let error = Tokenizer::open(&path).unwrap_err();
        assert!(error.message().contains("` is not a `tokenizer.json` of Hugging Face: ") && error.loc().is_some());
        let whole = fs::read(data("bert/tokenizer.json")).unwrap();
        for at in (0..whole.len()).step_by(7) {
            fs::write(&path, &whole[..at]).unwrap();
            assert!(Tokenizer::open(&path).is_err(), "{at}");
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 7);
            fs::write(&path, damaged).unwrap();
            // Some are tokenizers, of which some cannot be used.
            let _ = Tokenizer::open(&path).and_then(|tokenizer| tokenizer.decode(&tokenizer.encode(b"to be")?));
        }
    }

    #[test]
    fn files_that_are_not_tokenizers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let message = |path: &Path| {
            let error = Tokenizer::open(path).unwrap_err();
            assert!(error.loc().is_some());
            error.message().replace(folder.path().to_str().unwrap(), "DIR")
        };
        let missing = "cannot read `DIR/tokenizer.json`: No such file or directory (os error 2)";
        assert_eq!(message(folder.path()), missing);
        fs::write(&path, "{}").unwrap();
        assert!(message(&path).starts_with("`DIR/tokenizer.json` is not a `tokenizer.json` of Hugging Face: "));
        fs::copy(data("gpt2/tokenizer.json"), &path).unwrap();
        let config = folder.path().join("tokenizer_config.json");
        fs::write(&config, "{\"eos_token\": \"<end>\"}").unwrap();
        let lacks = "`DIR/tokenizer.json` lacks the token `<end>`, which `tokenizer_config.json` says ends a text";
        assert_eq!(message(&path), lacks);
        fs::write(&config, "[").unwrap();
        assert!(message(&path).starts_with("`DIR/tokenizer_config.json` is damaged: "));
        fs::write(&config, "{\"eos_token\": null, \"bos_token\": 3}").unwrap();
        assert_eq!(Tokenizer::open(&path).unwrap().end_of_text(), Some(0));
        let same = Tokenizer::open(data("gpt2")).unwrap();
        assert_eq!(Tokenizer::open(&path).unwrap().fingerprint(), same.fingerprint());
        assert_ne!(Tokenizer::open(data("bert")).unwrap().fingerprint(), same.fingerprint());
    }
}
