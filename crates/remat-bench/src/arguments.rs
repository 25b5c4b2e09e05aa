//! Values of arguments.

use anyhow::Result;
use remat::Policy;
use remat_command::arguments::policy;

/// The meaning of a list of policies, for the help.
pub(crate) const POLICY_HELP: &str = "What the checkpoint around each block saves: none (no checkpoint), or a policy as the \
     library and JAX write it: everything, dots, dots_with_no_batch_dims, nothing, 'names(A)', ...";

/// The policies of a list with commas between them, each as it prints.
///
/// # Errors
/// If one of them is not a policy.
pub(crate) fn policies(text: &str) -> Result<Vec<String>> {
    let mut depth = 0usize;
    let parts = text.split(|c| {
        depth = match c {
            '(' => depth + 1,
            ')' => depth.saturating_sub(1),
            _ => depth,
        };
        c == ',' && depth == 0
    });
    parts.map(|part| Ok(Policy::name_of(policy(part)?.as_ref()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_inside_of_a_policy_do_not_end_it() {
        let printed = ["none", "Names(a, b)", "Or(Dots, Names(c))", "DotsWithNoBatchDims"];
        assert_eq!(policies("none,names(a,b), or(dots, names(c)),dots_with_no_batch_dims").unwrap(), printed);
        assert_eq!(
            policies("dost").unwrap_err().to_string().lines().next(),
            Some("parse: line 1, column 1: unknown policy `dost`; did you mean `Dots`?")
        );
    }
}
