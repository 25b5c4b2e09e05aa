//! Names of tensors.

use std::collections::HashSet;

use remat::{Error, ErrorKind, Result, Tensor, Tree, tree};

/// The name of a tree that is a single tensor, whose path is empty.
const LEAF: &str = "tensor";

/// The key for metadata in the header of safetensors.
pub(crate) const RESERVED: &str = "__metadata__";

/// A tensor and its name in a file.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) tensor: Tensor,
    /// Whether the file has the transpose of this matrix.
    pub(crate) transposed: bool,
}

/// The tensors of a tree with their names, none transposed.
///
/// # Errors
/// As [`names`].
#[track_caller]
pub(crate) fn named<T: Tree>(tree: &T) -> Result<Vec<Named>> {
    Ok(names(tree)?.into_iter().map(|(name, tensor)| Named { name, tensor, transposed: false }).collect())
}

/// The tensors of a tree in order, each with its name in a file.
///
/// ```
/// use remat::{DType, nn, random};
/// let model = vec![nn::Linear::init(random::key(0), 2, 3, DType::F32)];
/// let names: Vec<String> = remat_io::names(&model)?.into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["0.weight", "0.bias"]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If two tensors have the same name, as `{"a.b": x}` and `{"a": {"b": y}}` would, or one is called `__metadata__`.
#[track_caller]
pub fn names<T: Tree>(tree: &T) -> Result<Vec<(String, Tensor)>> {
    let wrong = |message: String| Err(Error::new(ErrorKind::Structure, "names", message).at(remat::layer::location()));
    let mut seen = HashSet::new();
    let mut named = Vec::new();
    for (path, tensor) in tree::leaves(tree) {
        let name = if path.0.is_empty() { LEAF.to_string() } else { path.to_string() };
        if name == RESERVED {
            return wrong(format!("a tensor cannot have the name `{name}`, which safetensors keep for themselves"));
        }
        if !seen.insert(name.clone()) {
            return wrong(format!("two tensors of the tree have the name `{name}`; give one of them another key"));
        }
        named.push((name, tensor));
    }
    Ok(named)
}
