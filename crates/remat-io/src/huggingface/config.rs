//! Reads and writes `config.json`.

use std::path::{Path, PathBuf};

use remat::files::{cannot, wrong};
use remat::{DType, Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::open;

/// The name of the file.
pub(super) const FILE: &str = "config.json";

/// The most layers of a model.
pub(super) const LAYERS: usize = 10_000;

/// The most features of a token, and heads.
pub(super) const WIDTH: usize = 1 << 20;

/// The most hidden features of an MLP, tokens of a vocabulary, and positions.
pub(super) const WIDE: usize = 1 << 24;

/// The fields of a configuration, or of a part of it.
pub(super) struct Fields {
    operation: &'static str,
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Fields {
    /// Reads the file of a folder.
    ///
    /// # Errors
    /// If it cannot be read or is not a JSON object.
    pub(super) fn read(operation: &'static str, folder: &Path) -> Result<Fields> {
        let path = folder.join(FILE);
        let text = open::read(&path).map_err(|error| cannot(operation, "read", &path, &error))?;
        Fields::parse(operation, &path, &text)
    }

    /// The fields in the text of a file.
    ///
    /// # Errors
    /// If it is not a JSON object.
    pub(super) fn parse(operation: &'static str, path: &Path, text: &[u8]) -> Result<Fields> {
        let fields = serde_json::from_slice(text)
            .map_err(|error| wrong(operation, path, format!("is not a configuration: {error}")))?;
        Ok(Fields { operation, path: path.to_path_buf(), fields })
    }

    /// An error of the file.
    pub(super) fn wrong(&self, message: &str) -> Error {
        wrong(self.operation, &self.path, message)
    }

    /// A field; `None` if it is missing or null.
    ///
    /// # Errors
    /// If it has another type.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value.clone())
                .map(Some)
                .map_err(|error| self.wrong(&format!("has a field `{name}` that cannot be used: {error}"))),
        }
    }

    /// A field, or the default of `transformers` if it is missing.
    ///
    /// # Errors
    /// If it has another type.
    pub(super) fn or<T: DeserializeOwned>(&self, name: &str, default: T) -> Result<T> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// The small number that is added to a variance, or the default of `transformers` if it is missing.
    ///
    /// # Errors
    /// If it has another type, is negative, or does not fit into f32.
    pub(super) fn epsilon(&self, name: &str, default: f64) -> Result<f64> {
        let epsilon = self.or(name, default)?;
        if (0.0..=f64::from(f32::MAX)).contains(&epsilon) {
            return Ok(epsilon);
        }
        Err(self
            .wrong(&format!("has a field `{name}` that cannot be used: {epsilon} is not a number of f32 from 0 on")))
    }

    /// A size, up to the largest that any model of its kind has, since memory is reserved by it; the default of `transformers` if it is
    /// missing.
    ///
    /// # Errors
    /// If it has another type, or is larger.
    pub(super) fn size(&self, name: &str, default: usize, most: usize) -> Result<usize> {
        Ok(self.optional_size(name, most)?.unwrap_or(default))
    }

    /// As [`Fields::size`]; `None` if it is missing or null.
    ///
    /// # Errors
    /// As there.
    pub(super) fn optional_size(&self, name: &str, most: usize) -> Result<Option<usize>> {
        match self.fields.get(name).and_then(Value::as_u64) {
            Some(size) if size > most as u64 => {
                Err(self.wrong(&format!("has `{name}`: {size}; at most {most} is supported")))
            }
            _ => self.get(name),
        }
    }

    /// A field that may be null, or the default of `transformers` if it is missing.
    ///
    /// # Errors
    /// If it has another type.
    pub(super) fn or_null<T: DeserializeOwned>(&self, name: &str, default: Option<T>) -> Result<Option<T>> {
        if self.fields.contains_key(name) { self.get(name) } else { Ok(default) }
    }

    /// The tokens in a field: one, a list, or null for none; the default of `transformers` if it is missing.
    ///
    /// # Errors
    /// If it has another type.
    pub(super) fn tokens(&self, name: &str, default: Vec<i64>) -> Result<Vec<i64>> {
        match self.fields.get(name) {
            None => Ok(default),
            Some(Value::Array(_)) => self.or(name, Vec::new()),
            Some(_) => Ok(self.get(name)?.into_iter().collect()),
        }
    }

    /// The object in a field.
    ///
    /// # Errors
    /// If it is not an object.
    pub(super) fn part(&self, name: &str) -> Result<Option<Fields>> {
        let fields = self.get(name)?;
        Ok(fields.map(|fields| Fields { operation: self.operation, path: self.path.clone(), fields }))
    }

    /// Checks that a field, if present, has one of these values.
    ///
    /// # Errors
    /// If it has another value, which is not supported.
    pub(super) fn expect(&self, name: &str, values: &[Value]) -> Result<()> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(()),
            Some(value) if values.contains(value) => Ok(()),
            Some(value) => {
                let supported: Vec<String> = values.iter().map(Value::to_string).collect();
                let message = format!("has `{name}`: {value}; supported is {}", supported.join(", "));
                Err(self.wrong(&message))
            }
        }
    }

    /// Checks that the heads of a model divide its features, so that each has as many as the others.
    ///
    /// # Errors
    /// If they do not.
    pub(super) fn expect_heads(&self, heads: usize, features: usize) -> Result<()> {
        if heads > 0 && features.is_multiple_of(heads) {
            return Ok(());
        }
        Err(self.wrong(&format!("describes a model of {heads} heads, which do not divide its {features} features")))
    }

    /// Checks that the key heads of a model divide its heads, so that each is of as many as the others.
    ///
    /// # Errors
    /// If they do not.
    pub(super) fn expect_key_heads(&self, key_heads: usize, heads: usize) -> Result<()> {
        if key_heads > 0 && heads.is_multiple_of(key_heads) {
            return Ok(());
        }
        Err(self.wrong(&format!("describes a model of {key_heads} key heads, which do not divide its {heads} heads")))
    }

    /// The kind of model.
    ///
    /// # Errors
    /// If the field is missing.
    pub(super) fn model_type(&self) -> Result<String> {
        self.get("model_type")?.ok_or_else(|| self.wrong("has no field `model_type`"))
    }
}

/// The name of a dtype in `torch`.
pub(super) fn torch_name(dtype: DType) -> &'static str {
    dtype.long_name()
}

/// Tokens as a field: one as a number, several as a list, none as null.
pub(super) fn tokens_json(tokens: &[i64]) -> Value {
    match tokens {
        [] => Value::Null,
        &[token] => token.into(),
        _ => tokens.into(),
    }
}
