//! A part of a model under a policy.

use remat::{Output, Policy, Tree, checkpoint};

/// What `f` gives for `x`, in a region of this policy, or without checkpoint.
pub(crate) fn under<A: Tree, R: Output>(policy: Option<&Policy>, f: impl Fn(&A) -> R, x: A) -> R {
    match policy {
        None => f(&x),
        Some(policy) => checkpoint(policy.clone(), f)(&x),
    }
}
