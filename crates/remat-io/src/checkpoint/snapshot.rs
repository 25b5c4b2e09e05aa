//! The state of a run at one step, to be written.

use std::fmt::Display;

use remat::{Device, Error, ErrorKind, Result, Tree};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Progress, finite};
use crate::name::{self, Named};

/// The state of a run at one step: trees and progress.
///
/// Tensors in the host's memory are shared, not copied, since tensors never change. So while a snapshot is written in the background, a
/// training step to which the model is donated does not overwrite it, but allocates new memory: at most the bytes of the trees, as a copy
/// would take, and less with each tensor that is written. Tensors on a device are copied to the host when they are added, so that their
/// memory on the device, which is scarcer, can be donated to the next step.
///
/// ```
/// use remat::Tensor;
/// use remat_io::{Progress, Snapshot};
/// let model = vec![Tensor::from(1.0f32)];
/// let snapshot = Snapshot::new(&Progress { step: 7, seed: 0, data: (), config: "small" })?.with("model", &model)?;
/// assert_eq!(snapshot.step(), 7);
/// # Ok::<(), remat::Error>(())
/// ```
pub struct Snapshot {
    pub(super) step: u64,
    pub(super) progress: Box<RawValue>,
    /// The trees by name, each with its tensors.
    pub(super) trees: Vec<(String, Vec<Named>)>,
}

impl Snapshot {
    /// A snapshot without trees.
    ///
    /// # Errors
    /// If the progress cannot be JSON: if a map has keys that are not strings, or if a float is NaN or infinite.
    #[track_caller]
    pub fn new<D: Serialize, C: Serialize>(progress: &Progress<D, C>) -> Result<Snapshot> {
        let loc = remat::layer::location();
        let failed = |why: &dyn Display| {
            let message = format!("the progress of step {} cannot be written as JSON: {why}", progress.step);
            Error::new(ErrorKind::Argument, "Snapshot::new", message).at(loc)
        };
        let json = serde_json::value::to_raw_value(progress).map_err(|error| failed(&error))?;
        // In JSON they would be null, which does not read back as a float.
        finite::check(progress).map_err(|error| failed(&error))?;
        Ok(Snapshot { step: progress.step, progress: json, trees: Vec::new() })
    }

    /// The same snapshot with a tree, which gets a file of this name, such as `model` or `optimizer`.
    ///
    /// # Errors
    /// If the name is empty, has characters other than letters, digits, `_` and `-`, or is taken; if a tensor has no elements to write (it
    /// is failed, traced or abstract); as [`names`](crate::names).
    #[track_caller]
    pub fn with<T: Tree>(mut self, name: &str, tree: &T) -> Result<Snapshot> {
        let (loc, operation) = (remat::layer::location(), "Snapshot::with");
        let wrong = |message: String| Err(Error::new(ErrorKind::Argument, operation, message).at(loc));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            return wrong(format!("{name:?} is not the name of a tree: take letters, digits, `_` and `-`"));
        }
        if self.trees.iter().any(|(taken, _)| taken == name) {
            return wrong(format!("the snapshot has a tree `{name}` already"));
        }
        let mut tensors = name::named(tree)?;
        for Named { name: path, tensor, .. } in &mut tensors {
            let host = tensor.to_device(&Device::cpu());
            if let Some(error) = host.error() {
                let message = format!("tensor `{path}` of the tree `{name}`: {}", error.message());
                return Err(Error::new(error.kind(), operation, message).at(loc));
            }
            *tensor = host;
        }
        self.trees.push((name.to_string(), tensors));
        Ok(self)
    }

    /// The number of completed steps.
    pub fn step(&self) -> u64 {
        self.step
    }
}
