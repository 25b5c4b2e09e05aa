//! Checkpointed regions around the layers of a model, without changes to the model.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use remat_ir::{Error, ErrorKind, Policy, Result, did_you_mean};

use super::checkpoint::{expect_names, trace_value};
use super::program::eval_shape;
use crate::trace::{
    Names, Order, Output, Seen, Selection, Tree, avals, current_loc, fail, operands, pattern, rebuild, run, structure,
    untraced, with_selection,
};

const NAME: &str = "checkpoint_layers";

/// The layers that [`checkpoint_layers`] selects. A layer is code that runs in a [`named_scope`](crate::named_scope), such as attention,
/// MLPs, blocks, recurrent layers and the models of [`nn`](crate::nn) (but not single linear maps, convolutions and norms). Its path is the
/// names of the enclosing scopes and its own, as in `gpt2/block/attention`.
///
/// A string is a pattern for the end of the path: `block` selects `gpt2/block`. In a pattern `*` matches any one name, and `**` any number
/// of names; with a leading `/` it must match the whole path.
///
/// ```
/// use remat::Layers;
/// let halves = Layers::named("block").every(2);
/// let outer = Layers::named("/*");
/// let attention = Layers::matching(|path| path.ends_with("/attention") && !path.contains("encoder"));
/// # let _ = (halves, outer, attention);
/// ```
#[derive(Clone)]
pub struct Layers {
    test: Test,
    skip: usize,
    every: usize,
}

#[derive(Clone)]
enum Test {
    /// One of these patterns.
    Patterns(Arc<[Arc<str>]>),
    Custom(Arc<dyn Fn(&str) -> bool + Send + Sync>),
}

impl Layers {
    /// The layers that match a pattern.
    pub fn named(pattern: impl Into<Arc<str>>) -> Layers {
        Layers::any_of([pattern])
    }

    /// The layers that match one of several patterns.
    ///
    /// ```
    /// use remat::Layers;
    /// assert_eq!(Layers::any_of(["encoder/block", "decoder/block"]).to_string(), "encoder/block, decoder/block");
    /// ```
    pub fn any_of(patterns: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Layers {
        let patterns = patterns.into_iter().map(Into::into).collect();
        Layers { test: Test::Patterns(patterns), skip: 0, every: 1 }
    }

    /// The layers whose path satisfies the predicate.
    pub fn matching(predicate: impl Fn(&str) -> bool + Send + Sync + 'static) -> Layers {
        Layers { test: Test::Custom(Arc::new(predicate)), skip: 0, every: 1 }
    }

    /// The first of these layers and then every `n`-th, in the order in which the function runs them: 2 selects every other one. 0 counts
    /// as 1. Layers in the body of a loop count once, whatever its length.
    #[must_use]
    pub fn every(self, n: usize) -> Layers {
        Layers { every: n.max(1), ..self }
    }

    /// These layers except the first `n`.
    #[must_use]
    pub fn skip(self, n: usize) -> Layers {
        Layers { skip: n, ..self }
    }

    /// Whether the layer with this path is selected, regardless of its number.
    fn matches(&self, path: &str) -> bool {
        match &self.test {
            Test::Patterns(patterns) => patterns.iter().any(|pattern| matches(pattern, path)),
            Test::Custom(predicate) => predicate(path),
        }
    }

    /// A test that counts the layers for which it is called.
    fn test(&self) -> impl Fn(&str) -> bool + 'static {
        let (layers, met) = (self.clone(), Cell::new(0usize));
        move |path| {
            if !layers.matches(path) {
                return false;
            }
            let number = met.replace(met.get() + 1);
            number.checked_sub(layers.skip).is_some_and(|after| after.is_multiple_of(layers.every))
        }
    }
}

impl From<&str> for Layers {
    fn from(pattern: &str) -> Layers {
        Layers::named(pattern)
    }
}

impl From<String> for Layers {
    fn from(pattern: String) -> Layers {
        Layers::named(pattern)
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = match &self.test {
            Test::Patterns(patterns) => patterns.join(", "),
            Test::Custom(_) => "..".to_string(),
        };
        f.debug_struct("Layers").field("test", &test).field("skip", &self.skip).field("every", &self.every).finish()
    }
}

/// The patterns, without the slash of whole paths, and which of the matching layers are selected.
impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.test {
            Test::Patterns(patterns) => {
                let plain: Vec<&str> =
                    patterns.iter().map(|pattern| pattern.strip_prefix('/').unwrap_or(pattern)).collect();
                f.write_str(&plain.join(", "))?;
            }
            Test::Custom(_) => f.write_str("chosen layers")?,
        }
        if self.every > 1 {
            write!(f, ", one of every {}", self.every)?;
        }
        if self.skip > 0 { write!(f, " after the first {}", self.skip) } else { Ok(()) }
    }
}

/// Whether a path matches a pattern.
fn matches(pattern: &str, path: &str) -> bool {
    let (is_whole, pattern) = pattern.strip_prefix('/').map_or((false, pattern), |rest| (true, rest));
    pattern::matches(pattern.split('/'), &path.split('/').collect::<Vec<_>>(), is_whole)
}

/// The function with a [`checkpoint`](crate::checkpoint) around each selected layer, wherever it runs: also inside loops, branches and
/// calls. So a model can get a policy from outside, even if its author did not write any checkpoint.
///
/// Values, gradients and residuals are those of the same `checkpoint`s written by hand. Selections nest: `checkpoint_layers("attention",
/// Policy::Nothing, checkpoint_layers("block", Policy::Dots, f))` has regions within regions, and the outermost policy decides what the
/// forward pass keeps. If two calls select the same layer, the inner call's region is the inner one.
///
/// With `None` for the policy there is no region and no check of the selection: the returned function only calls `f`.
///
/// A function that is jitted inside `f` is traced again for each call of the returned function, so call this inside `jit`.
///
/// ```
/// use remat::nn::{Gpt2, Gpt2Config, next_token_loss};
/// use remat::report::saved_residuals;
/// use remat::{Layers, Policy, Tensor, checkpoint_layers, random};
/// let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 4, n_head: 2, ..Gpt2Config::default() };
/// let model = Gpt2::new(random::key(0), &config);
/// let tokens = Tensor::arange(0..16).reshape([2, 8]);
/// let loss = |model: &Gpt2| next_token_loss(&model.apply(&tokens), &tokens, None);
/// let kept = |layers: Layers| -> remat::Result<usize> {
///     let loss = checkpoint_layers(layers, Policy::Nothing, loss);
///     Ok(saved_residuals(|model: &Gpt2| loss(model), &model)?.intermediate_bytes())
/// };
/// assert!(kept("block".into())? < kept(Layers::named("block").every(2))?);
/// let error = kept("blok".into()).unwrap_err();
/// assert_eq!(error.message(), "the pattern `blok` matches no named scope; did you mean `block`?");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If there is a policy and no layer is selected, or the policy mentions a name that no value in the selected layers has. The error is a
/// failed tensor, or an `Err` if `f` returns a `Result`.
///
/// # Panics
/// As [`checkpoint`](crate::checkpoint).
#[track_caller]
pub fn checkpoint_layers<A: Tree, R: Output>(
    layers: impl Into<Layers>,
    policy: impl Into<Option<Policy>>,
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> R {
    let (layers, policy) = (layers.into(), policy.into().map(Arc::new));
    let loc = current_loc();
    move |x| {
        let Some(policy) = &policy else { return f(x) };
        let leaves = structure(x).0;
        let Ok(avals) = avals(&leaves) else { return untraced(&f, x, loc) };
        let trace = |order| {
            let (takes, seen) = (Box::new(layers.test()), Default::default());
            let selection = Rc::new(Selection { takes, policy: policy.clone(), seen });
            let (program, value) = with_selection(selection.clone(), || trace_value(order, avals.clone(), &f, x, loc));
            (program.map(|program| (program, selection.seen.take())), value)
        };
        let (program, value) = trace(Order::current());
        value.map_tree(|tree| {
            let outs = program.and_then(|(program, seen)| {
                expect_met(&layers, policy, &seen, |order| Ok(trace(order).0?.1.names)).map_err(|e| e.at(loc))?;
                run(NAME, &program.jaxpr, &operands(&program.captured, leaves), loc)
            });
            rebuild(tree, outs.inspect_err(|error| drop(fail(error.clone())))?)
        })
    }
}

/// The layers that a function runs more than once, those around others alone: the blocks of a model, unrolled or in a loop. If there are none,
/// the scopes that run once, those around others alone too.
///
/// # Errors
/// If the function cannot be traced.
pub(crate) fn repeated<A: Tree, R: Output>(
    f: impl Fn(&A) -> R,
    x: &A,
) -> Result<std::result::Result<Layers, Vec<Arc<str>>>> {
    let selection =
        Rc::new(Selection { takes: Box::new(|_| false), policy: Arc::new(Policy::Nothing), seen: Default::default() });
    with_selection(selection.clone(), || eval_shape(f)(x))?;
    let Seen { scopes, .. } = selection.seen.take();
    let repeated: Vec<&Arc<str>> = scopes.iter().filter(|(_, runs)| **runs > 1).map(|(path, _)| path).collect();
    if repeated.is_empty() {
        return Ok(Err(outermost(&scopes.keys().collect::<Vec<_>>()).cloned().collect()));
    }
    let patterns: Vec<String> = outermost(&repeated).map(|path| format!("/{path}")).collect();
    Ok(Ok(Layers::any_of(patterns)))
}

/// The paths that are not inside others of them.
fn outermost<'a>(paths: &'a [&'a Arc<str>]) -> impl Iterator<Item = &'a Arc<str>> {
    let is_inside = |path: &str, of: &str| path.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
    paths.iter().copied().filter(move |path| !paths.iter().any(|of| is_inside(path, of)))
}

/// Fails if no layer was selected, or if the policy does not fit the selected layers.
fn expect_met(layers: &Layers, policy: &Policy, seen: &Seen, traced: impl Fn(Order) -> Result<Names>) -> Result<()> {
    if seen.selected > 0 {
        return expect_names(NAME, policy, &|| seen.names.clone(), "the selected layers", &traced);
    }
    let list = |paths: &mut dyn Iterator<Item = &str>| paths.take(8).collect::<Vec<_>>().join(", ");
    let all = list(&mut seen.scopes.keys().map(|path| &**path));
    let message = match &layers.test {
        _ if seen.scopes.is_empty() => {
            "nothing in the function runs in a named scope, which remat::named_scope makes".to_string()
        }
        _ if layers.skip > 0 && seen.scopes.keys().any(|path| layers.matches(path)) => {
            format!("all layers that match are among the first {}, which are skipped", layers.skip)
        }
        Test::Custom(_) => format!("the predicate holds for none of the named scopes {all}"),
        Test::Patterns(patterns) => {
            let pattern = patterns.join(", ");
            let names: BTreeSet<&str> = seen.scopes.keys().flat_map(|path| path.split('/')).collect();
            let paths = seen.scopes.keys().map(|path| &**path);
            let hint = did_you_mean(pattern.trim_start_matches('/'), names.into_iter().chain(paths), || {
                format!("; there are {all}")
            });
            format!("the pattern `{pattern}` matches no named scope{hint}")
        }
    };
    Err(Error::new(ErrorKind::Argument, NAME, message))
}
