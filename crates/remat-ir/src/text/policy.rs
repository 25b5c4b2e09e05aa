//! The text form of checkpoint policies.
//!
//! Programs, command lines, configuration files and messages use the same syntax: a policy is written as it prints, `Or(Names(attn, mlp),
//! Dots)`. The words are the variants of [`Policy`], in any case and with or without underscores. JAX's names for the same policies are
//! accepted too.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use super::lex::Token;
use super::parse::Parser;
use crate::{Error, MemorySpace, Policy, Result, did_you_mean, parse_bytes};

/// The arguments after the word of a policy.
#[derive(Clone, Copy)]
enum Form {
    Plain(fn() -> Policy),
    Names(fn(BTreeSet<Arc<str>>) -> Policy),
    OffloadDots,
    SaveAndOffloadNames,
    Budget,
    Policies(fn(Vec<Policy>) -> Policy),
    OfPolicy(fn(Box<Policy>) -> Policy),
    Custom,
}

/// The word, which prints but for the short form of `OffloadNames`, JAX's names (`jax.checkpoint_policies`), and the form of the arguments.
const POLICIES: [(&str, &[&str], Form); 18] = [
    ("Nothing", &["nothing_saveable"], Form::Plain(|| Policy::Nothing)),
    ("Everything", &["everything_saveable"], Form::Plain(|| Policy::Everything)),
    ("Dots", &["dots_saveable", "checkpoint_dots"], Form::Plain(|| Policy::Dots)),
    (
        "DotsWithNoBatchDims",
        &["dots_with_no_batch_dims_saveable", "checkpoint_dots_with_no_batch_dims"],
        Form::Plain(|| Policy::DotsWithNoBatchDims),
    ),
    ("Names", &["save_only_these_names"], Form::Names(Policy::Names)),
    ("AnyNamesBut", &["save_any_names_but_these"], Form::Names(Policy::AnyNamesBut)),
    ("AnythingBut", &["save_anything_except_these_names"], Form::Names(Policy::AnythingBut)),
    ("OffloadDotsWithNoBatchDims", &["offload_dot_with_no_batch_dims"], Form::OffloadDots),
    ("OffloadNames", &[], Form::Names(offload_names)),
    ("SaveAndOffloadNames", &["save_and_offload_only_these_names"], Form::SaveAndOffloadNames),
    ("Budget", &[], Form::Budget),
    ("Or", &["save_from_both_policies"], Form::Policies(Policy::Or)),
    ("And", &[], Form::Policies(Policy::And)),
    ("First", &[], Form::Policies(Policy::First)),
    ("Not", &[], Form::OfPolicy(Policy::Not)),
    ("Must", &[], Form::OfPolicy(Policy::Must)),
    ("Prefer", &[], Form::OfPolicy(Policy::Prefer)),
    ("Custom", &[], Form::Custom),
];

/// Parses what [`Display`](std::fmt::Display) prints, in any case and with or without underscores, and JAX's names for the same policies. A
/// parsed callable has only its name.
///
/// ```
/// use remat_ir::Policy;
/// let policy: Policy = "Or(Names(a, \"b c\"), Dots)".parse()?;
/// assert_eq!(policy, Policy::names(["a", "b c"]).or(Policy::Dots));
/// assert_eq!("dots_with_no_batch_dims_saveable".parse::<Policy>()?, Policy::DotsWithNoBatchDims);
/// assert_eq!("names(attn)".parse::<Policy>()?, Policy::names(["attn"]));
/// assert_eq!("offload_names(attn)".parse::<Policy>()?, "SaveAndOffloadNames((), (attn), host)".parse()?);
/// assert_eq!("budget(64MiB)".parse::<Policy>()?, Policy::budget(64 << 20));
/// assert_eq!("Custom(mine)".parse::<Policy>()?, Policy::custom_named("mine"));
/// let error = "dost".parse::<Policy>().unwrap_err();
/// assert_eq!(error.message(), "line 1, column 1: unknown policy `dost`; did you mean `Dots`?");
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// With line and column, at an unknown word, with the most similar known one, and where names or arguments are missing. `None` is an error:
/// in JAX it is the policy that saves nothing, elsewhere it means no checkpoint. (In programs it has JAX's meaning.)
impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Policy> {
        let mut parser = Parser::new(text)?;
        if let Token::Word(word) = *parser.peek()
            && plain(word) == "none"
        {
            return Err(unknown(&parser, word));
        }
        let policy = policy(&mut parser)?;
        parser.end()?;
        Ok(policy)
    }
}

pub(super) fn policy(p: &mut Parser<'_>) -> Result<Policy> {
    let Token::Word(word) = *p.peek() else { return Err(p.expected("a policy")) };
    // In programs, JAX prints the default of `jax.checkpoint` this way.
    if word == "None" {
        p.advance();
        return Ok(Policy::Nothing);
    }
    let is_it = |name: &str| plain(name) == plain(word);
    let found = POLICIES.iter().find(|(name, jax, _)| is_it(name) || jax.iter().any(|name| is_it(name)));
    let Some(&(_, _, form)) = found else { return Err(unknown(p, word)) };
    p.advance();
    p.nested(|p| with_arguments(p, form))
}

/// A word without underscores, in lower case.
fn plain(word: &str) -> String {
    word.chars().filter(|&c| c != '_').flat_map(char::to_lowercase).collect()
}

fn unknown(p: &Parser<'_>, word: &str) -> Error {
    if plain(word) == "none" {
        return p.message("`none` is not a policy: without a policy there is no checkpoint; `Nothing` saves nothing");
    }
    let jax = POLICIES.iter().flat_map(|(_, jax, _)| jax.iter());
    let known = POLICIES.iter().map(|(name, _, _)| name).chain(jax).copied();
    let near = did_you_mean(word, known, || {
        let names = POLICIES.map(|(name, _, _)| name).join(", ");
        format!("; the policies are {names}")
    });
    p.message(&format!("unknown policy `{word}`{near}"))
}

/// Nothing but the values with these names is kept, in the memory of the host.
fn offload_names(names: BTreeSet<Arc<str>>) -> Policy {
    Policy::SaveAndOffloadNames { saved: BTreeSet::new(), offloaded: names, to: MemorySpace::Host }
}

fn with_arguments(p: &mut Parser<'_>, form: Form) -> Result<Policy> {
    if let Form::Plain(policy) = form {
        return Ok(policy());
    }
    p.mark('(')?;
    Ok(match form {
        Form::Plain(policy) => policy(),
        Form::Names(policy) => policy(names(p)?),
        Form::OffloadDots => {
            let to = destination(p)?;
            p.mark(')')?;
            Policy::OffloadDotsWithNoBatchDims(to)
        }
        Form::SaveAndOffloadNames => {
            p.mark('(')?;
            let saved = names(p)?;
            p.mark(',')?;
            p.mark('(')?;
            let offloaded = names(p)?;
            p.mark(',')?;
            let to = destination(p)?;
            p.mark(')')?;
            Policy::SaveAndOffloadNames { saved, offloaded, to }
        }
        Form::Budget => {
            let bytes = bytes(p)?;
            p.mark(')')?;
            Policy::Budget(bytes)
        }
        Form::Policies(make) => make(p.until(')', policy)?),
        Form::OfPolicy(make) => {
            let inner = policy(p)?;
            p.mark(')')?;
            make(Box::new(inner))
        }
        Form::Custom => {
            let name = name(p)?;
            p.mark(')')?;
            Policy::custom_named(name)
        }
    })
}

/// A size such as `500000`, `64MiB` or `1.5 GiB`.
fn bytes(p: &mut Parser<'_>) -> Result<usize> {
    let expected = |p: &Parser<'_>| p.expected("a number of bytes such as 500000, 64MiB or 1.5GiB");
    let Token::Number(number) = *p.peek() else { return Err(expected(p)) };
    let spaced = match p.peek_at(1) {
        Token::Word(unit) => Some(format!("{number}{unit}")),
        _ => None,
    };
    let bytes = parse_bytes(spaced.as_deref().unwrap_or(number)).ok_or_else(|| expected(p))?;
    p.advance();
    if spaced.is_some() {
        p.advance();
    }
    Ok(bytes)
}

fn names(p: &mut Parser<'_>) -> Result<BTreeSet<Arc<str>>> {
    Ok(p.until(')', name)?.into_iter().collect())
}

fn name(p: &mut Parser<'_>) -> Result<Arc<str>> {
    let name: Arc<str> = match p.peek() {
        Token::Word(word) => Arc::from(*word),
        Token::Text(text) => Arc::from(text.as_str()),
        Token::Number(_) | Token::Mark(_) | Token::End => return Err(p.expected("a name")),
    };
    p.advance();
    Ok(name)
}

/// The memory space to which values are offloaded. JAX writes the space from which they come before it.
fn destination(p: &mut Parser<'_>) -> Result<MemorySpace> {
    let first = memory(p)?;
    if *p.peek() == Token::Mark(',') {
        p.advance();
        return memory(p);
    }
    Ok(first)
}

pub(super) fn memory(p: &mut Parser<'_>) -> Result<MemorySpace> {
    let found = match p.peek() {
        Token::Word(word) => memory_named(word),
        Token::Text(text) => memory_named(text),
        Token::Number(_) | Token::Mark(_) | Token::End => None,
    };
    let memory = found.ok_or_else(|| p.expected("a memory space"))?;
    p.advance();
    Ok(memory)
}

/// The memory space of this name, or of JAX's name for it.
fn memory_named(name: &str) -> Option<MemorySpace> {
    if name == "pinned_host" { Some(MemorySpace::Host) } else { MemorySpace::from_name(name) }
}
