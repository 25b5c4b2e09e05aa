//! The names of weights in files, for each kind of model.

use remat::tree::{Segment, leaves};
use remat::{DType, Error, ErrorKind, Result, Tree};
use serde_json::{Map, Value};

use super::config::Fields;
use crate::name::Named;

/// The name of the head's weight, for all kinds.
pub(super) const HEAD: &str = "lm_head.weight";

/// The properties of a kind of model.
pub struct Family {
    /// `model_type` of `config.json`.
    pub(super) model_type: &'static str,
    /// The class of `transformers`.
    pub(super) architecture: &'static str,
    /// The prefix of all names but the head's.
    pub(super) prefix: &'static str,
    /// The name of the list of blocks.
    pub(super) blocks: &'static str,
    /// The name of the token embedding after the prefix.
    pub(super) embedding: &'static str,
    /// Our names of layers and theirs, for layers in a block and outside.
    pub(super) layers: &'static [(&'static str, &'static str)],
    /// Whether linear maps of blocks are stored as `[outputs, inputs]`.
    pub(super) transposes: bool,
    /// The suffixes of names of buffers that files of older versions contain besides weights.
    pub(super) buffers: &'static [&'static str],
}

/// A model that Hugging Face has too.
pub trait Model: Tree + Clone {
    /// Its configuration.
    type Config: Clone + std::fmt::Debug + PartialEq;

    #[doc(hidden)]
    const FAMILY: Family;

    /// A model of these sizes, whose weights are not used.
    #[doc(hidden)]
    fn init(config: &Self::Config, dtype: DType) -> Self;

    /// The number of its blocks.
    #[doc(hidden)]
    fn layers(config: &Self::Config) -> usize;

    /// Whether the head is tied to the token embedding.
    #[doc(hidden)]
    fn is_tied(config: &Self::Config) -> bool;

    /// The same model with its blocks in a list.
    #[doc(hidden)]
    fn unstacked(&self) -> Self;

    #[doc(hidden)]
    #[allow(private_interfaces, reason = "the trait cannot be implemented elsewhere")]
    fn read_config(fields: &Fields) -> Result<Self::Config>;

    #[doc(hidden)]
    fn write_config(config: &Self::Config) -> Map<String, Value>;
}

/// The fields of a configuration, including those of its kind.
pub(super) fn fields<M: Model>(config: &M::Config) -> Map<String, Value> {
    let mut fields = M::write_config(config);
    fields.insert("model_type".into(), M::FAMILY.model_type.into());
    fields.insert("architectures".into(), vec![M::FAMILY.architecture].into());
    fields
}

impl Family {
    /// Whether a tensor of a file is a buffer, not a weight.
    pub(super) fn is_buffer(&self, name: &str) -> bool {
        self.buffers.iter().any(|end| name.ends_with(end))
    }

    /// The tensors of a model with a list of blocks, with their names in files.
    ///
    /// # Errors
    /// If the model has adapters, or a weight without a name in files.
    pub(super) fn named<M: Tree>(&self, prefix: &str, model: &M) -> Result<Vec<Named>> {
        let named = |(path, tensor): (remat::tree::Path, remat::Tensor)| {
            if path.0.contains(&Segment::Field("adapter")) {
                let message = format!("the model has adapters, as `{path}`: merge them first, with `Lora::merge`");
                return Err(Error::new(ErrorKind::Structure, "huggingface", message));
            }
            let (name, transposed) = self.name(prefix, &path.0).ok_or_else(|| {
                let message = format!("weight `{path}` has no name in models of type `{}`", self.model_type);
                Error::new(ErrorKind::Internal, "huggingface", message)
            })?;
            Ok(Named { name, tensor, transposed })
        };
        leaves(model).into_iter().map(named).collect()
    }

    /// The name of the weight at a path, and whether it is stored transposed.
    fn name(&self, prefix: &str, path: &[Segment]) -> Option<(String, bool)> {
        let (field, path) = path.split_last()?;
        let (block, path) = match path {
            [Segment::Field("blocks"), Segment::Index(block), rest @ ..] => (Some(block), rest),
            _ => (None, path),
        };
        let layer = path.iter().map(Segment::to_string).collect::<Vec<_>>().join(".");
        let (_, theirs) = self.layers.iter().find(|(ours, _)| *ours == layer)?;
        let field = field.to_string();
        let kind = if field == "bias" { "bias" } else { "weight" };
        // Embeddings and the scales of norms are not transposed.
        let is_map = field == "weight";
        Some(match block {
            None if layer == "head" => (format!("{theirs}.{kind}"), is_map),
            None => (format!("{prefix}{theirs}.{kind}"), false),
            Some(block) => (format!("{prefix}{}.{block}.{theirs}.{kind}", self.blocks), is_map && self.transposes),
        })
    }
}
