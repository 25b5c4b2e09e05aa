//! A tree without its arrays.

use remat_ir::{Aval, DType, Error, ErrorKind, Loc, Result};

use crate::trace::{Path, Structure, Tensor, Tree, avals, leaf_paths, rebuild, structure, zeros};

/// The kind of error for two avals that differ.
pub(super) fn mismatch(a: &Aval, b: &Aval) -> ErrorKind {
    if a.dtype == b.dtype { ErrorKind::Shape } else { ErrorKind::DType }
}

/// The structure and the avals of a tree, to check and rebuild other trees. It keeps no elements alive.
pub(super) struct Skeleton<T> {
    like: T,
    structure: Structure,
    paths: Vec<Path>,
    avals: Vec<Aval>,
}

impl<T: Tree> Skeleton<T> {
    /// The skeleton of `tree`, whose leaves have these avals. The leaves themselves may belong to a trace that has ended.
    pub(super) fn new(tree: &T, avals: Vec<Aval>) -> Result<Skeleton<T>> {
        let placeholder = Tensor::scalar(DType::F32, 0.0);
        let like = rebuild(tree, vec![placeholder; avals.len()])?;
        Ok(Skeleton { like, structure: structure(tree).1, paths: leaf_paths(tree), avals })
    }

    /// The skeleton of a tree.
    ///
    /// # Errors
    /// The error of a failed leaf.
    pub(super) fn of(tree: &T) -> Result<Skeleton<T>> {
        Skeleton::new(tree, avals(&structure(tree).0)?)
    }

    /// The paths of the leaves.
    pub(super) fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// The leaves of another tree. Errors call it `what`, and this tree `this`.
    ///
    /// # Errors
    /// If its structure differs, or the aval of a float.
    pub(super) fn matching(&self, operation: &str, what: &str, this: &str, tree: &T, loc: Loc) -> Result<Vec<Tensor>> {
        let (leaves, given) = structure(tree);
        if let Some(difference) = given.difference(&self.structure) {
            let message = format!("the {what} has another structure than the {this}: {difference}");
            return Err(Error::new(ErrorKind::Structure, operation, message).at(loc));
        }
        for ((leaf, expected), path) in leaves.iter().zip(&self.avals).zip(&self.paths) {
            let given = leaf.aval().map_err(|e| e.at(loc))?;
            if expected.dtype.is_float() && expected != given {
                let message = format!("the {what}{} is {given} and must be {expected}", path.place());
                return Err(Error::new(mismatch(expected, given), operation, message).at(loc));
            }
        }
        Ok(leaves)
    }

    /// A tree of `values` at the leaves in the mask, and of zeros at the others.
    pub(super) fn fill(&self, mask: &[bool], values: Vec<Tensor>, loc: Loc) -> Result<T> {
        let mut values = values.into_iter();
        let mut fill = |(&has, aval): (&bool, &Aval)| {
            let value = if has { values.next() } else { None };
            value.unwrap_or_else(|| zeros(aval, loc))
        };
        let leaves = mask.iter().zip(&self.avals).map(&mut fill).collect();
        rebuild(&self.like, leaves)
    }
}
