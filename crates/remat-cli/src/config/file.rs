//! The TOML file of a configuration.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::settings::command;
use super::{Config, Setting};

impl Setting {
    /// The settings of a file.
    ///
    /// # Errors
    /// If the file cannot be read or is not TOML, or a value is a list or a table. [`Config::of`] checks whether settings are valid.
    pub(crate) fn read(path: &Path) -> Result<Vec<Setting>> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))?;
        let line = |at: usize| 1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count();
        let table = DeTable::parse(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            anyhow!("`{shown}`, line {}: {}", line(at), error.message())
        })?;
        let mut settings = Vec::new();
        for (key, value) in table.get_ref() {
            let at = line(key.span().start);
            let value = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_string(),
                DeValue::Integer(_) => bail!("`{shown}`, line {at}: `{}` is not a decimal number", key.get_ref()),
                DeValue::Float(number) => number.as_str().to_string(),
                DeValue::Boolean(is_so) => is_so.to_string(),
                DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                    bail!("`{shown}`, line {at}: `{}` is not a number, a string, true or false", key.get_ref())
                }
            };
            settings.push(Setting::of_line(path.to_path_buf(), at, key.get_ref().to_string(), value));
        }
        Ok(settings)
    }
}

impl Config {
    /// The text of a file: each key with its help, in the order of `--help`. Keys without a value are comments.
    ///
    /// # Errors
    /// As [`Config::to_settings`].
    pub(crate) fn to_toml(&self) -> Result<String> {
        let settings = self.to_settings()?;
        let mut text =
            String::from("# For `remat train --config FILE`. A flag of the same name holds in place of a line.\n");
        for arg in command().get_arguments() {
            let Some(key) = arg.get_long() else { continue };
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = match settings.get(key) {
                Some(value) => write!(text, "\n# {help}\n{key} = {}\n", toml_value(value)),
                None => write!(text, "\n# {help}\n# {key} =\n"),
            };
        }
        Ok(text)
    }
}

/// A value in TOML. Its basic strings are those of JSON, except for one character; integers are signed 64-bit.
fn toml_value(value: &Value) -> String {
    match value {
        Value::Number(number) if number.as_u64().is_some_and(|number| i64::try_from(number).is_err()) => {
            format!("\"{number}\"")
        }
        _ => value.to_string().replace('\x7f', "\\u007F"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("run.toml");
        fs::write(&path, text)?;
        let named = |error: anyhow::Error| anyhow!(error.to_string().replace(&path.display().to_string(), "run.toml"));
        Setting::read(&path).and_then(|settings| Config::of(&settings)).map_err(named)
    }

    #[test]
    fn a_file_is_read_and_written() {
        let config =
            read("layers = 3\nlearning-rate = 1e-3\nsteps = 1_000\n\ntext = 'a \"b\"'\nseed = 7 # seven\n").unwrap();
        assert_eq!((config.sizes.layers, config.learning_rate, config.seed, config.steps), (Some(3), 1e-3, 7, 1000));
        assert_eq!(read(&config.to_toml().unwrap()).unwrap(), config);
        let odd = Config { seed: u64::MAX, text: Some("\x7f\n\u{1}".into()), ..config };
        assert_eq!(read(&odd.to_toml().unwrap()).unwrap(), odd);
        assert_eq!(read("").unwrap(), Config::of(&[]).unwrap());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text| read(text).unwrap_err().to_string();
        assert_eq!(
            error("steps = 3\n\nwidht = 3"),
            "`run.toml`, line 3: `widht` is not a setting; did you mean `width`?"
        );
        assert_eq!(
            error("steps = 3\nwidth = -1"),
            "`run.toml`, line 2: `width`: invalid value '-1': invalid digit found in string"
        );
        assert_eq!(error("[model]\nwidth = 1"), "`run.toml`, line 1: `model` is not a number, a string, true or false");
        assert_eq!(error("width = 0x10"), "`run.toml`, line 1: `width` is not a decimal number");
        assert!(error("steps = 3\nsteps = 4").starts_with("`run.toml`, line 2: "), "{}", error("steps = 3\nsteps = 4"));
        assert!(error("steps 3").starts_with("`run.toml`, line 1: "));
        let missing = Setting::read(Path::new("nowhere.toml")).unwrap_err();
        assert!(format!("{missing:#}").starts_with("cannot read `nowhere.toml`: "));
    }
}
