//! Parsers for values of arguments.

use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::Result;
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use remat::Policy;

/// A parser of numbers from 1 to `most`, so that sizes that no machine has are errors, not hangs or aborts later.
///
/// ```
/// use clap::Parser;
///
/// #[derive(Parser)]
/// struct Args {
///     #[arg(long, value_parser = remat_command::arguments::up_to(10))]
///     layers: usize,
/// }
///
/// assert_eq!(Args::try_parse_from(["command", "--layers=10"]).unwrap().layers, 10);
/// assert!(Args::try_parse_from(["command", "--layers=11"]).is_err());
/// ```
pub fn up_to(most: u64) -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=most)
}

/// A number of threads; by default as many as there are cores.
///
/// ```
/// use remat_command::arguments::threads_or_all;
///
/// assert_eq!(threads_or_all(Some(3)), 3);
/// assert!(threads_or_all(None) >= 1);
/// ```
pub fn threads_or_all(threads: Option<usize>) -> usize {
    threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get))
}

/// A parser of numbers from 0 to the largest `f32`.
///
/// # Errors
/// What is wrong with the text, for the user.
///
/// ```
/// use remat_command::arguments::magnitude;
///
/// assert_eq!(magnitude("3e-3"), Ok(0.003));
/// assert_eq!(magnitude("-1"), Err("must be a number from 0 to 3.4028235e38".into()));
/// ```
pub fn magnitude(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| error.to_string())?;
    let is_it = (0.0..=f64::from(f32::MAX)).contains(&number);
    is_it.then_some(number).ok_or_else(|| format!("must be a number from 0 to {:e}", f32::MAX))
}

/// Parses a policy in the syntax of the library; the text `none` is `None`, which means no checkpoint. The library checks whether the names
/// exist.
///
/// # Errors
/// If there is no such policy, or it is not well formed.
///
/// ```
/// use remat::Policy;
/// use remat_command::arguments::policy;
///
/// assert_eq!(Policy::name_of(policy("names(attn, mlp)")?.as_ref()), "Names(attn, mlp)");
/// assert_eq!(Policy::name_of(policy("budget(1.5GiB)")?.as_ref()), "Budget(1536MiB)");
/// assert_eq!(Policy::name_of(policy("none")?.as_ref()), "none");
/// # Ok::<(), anyhow::Error>(())
/// ```
pub fn policy(text: &str) -> Result<Option<Policy>> {
    if text.trim() == "none" { Ok(None) } else { Ok(Some(text.parse()?)) }
}
