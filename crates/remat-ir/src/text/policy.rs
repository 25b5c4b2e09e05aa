//! The text form of checkpoint policies.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use super::lex::Token;
use super::parse::Parser;
use crate::{Error, MemorySpace, Policy, Result};

/// Reads what [`Display`](std::fmt::Display) prints. A callable is not at hand: of it there is the name only.
///
/// ```
/// use remat_ir::Policy;
/// let policy: Policy = "Or(Names(a, \"b c\"), Dots)".parse()?;
/// assert_eq!(policy, Policy::names(["a", "b c"]).or(Policy::Dots));
/// assert_eq!("Custom(mine)".parse::<Policy>()?, Policy::custom_named("mine"));
/// # Ok::<(), remat_ir::Error>(())
/// ```
impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Policy> {
        let mut parser = Parser::new(text)?;
        let policy = policy(&mut parser)?;
        parser.end()?;
        Ok(policy)
    }
}

pub(super) fn policy(p: &mut Parser<'_>) -> Result<Policy> {
    let Token::Word(word) = *p.peek() else { return Err(p.expected("a policy")) };
    let policy = match word {
        // JAX's word for the default.
        "None" | "Nothing" => Policy::Nothing,
        "Everything" => Policy::Everything,
        "Dots" => Policy::Dots,
        "DotsWithNoBatchDims" => Policy::DotsWithNoBatchDims,
        "Names"
        | "AnyNamesBut"
        | "AnythingBut"
        | "OffloadDotsWithNoBatchDims"
        | "SaveAndOffloadNames"
        | "Or"
        | "And"
        | "Not"
        | "First"
        | "Custom" => {
            p.advance();
            return p.nested(|p| with_arguments(p, word));
        }
        _ => return Err(p.expected("a policy")),
    };
    p.advance();
    Ok(policy)
}

fn with_arguments(p: &mut Parser<'_>, word: &str) -> Result<Policy> {
    p.mark('(')?;
    Ok(match word {
        "Names" => Policy::Names(names(p)?),
        "AnyNamesBut" => Policy::AnyNamesBut(names(p)?),
        "AnythingBut" => Policy::AnythingBut(names(p)?),
        "OffloadDotsWithNoBatchDims" => {
            let to = memory(p)?;
            p.mark(')')?;
            Policy::OffloadDotsWithNoBatchDims(to)
        }
        "SaveAndOffloadNames" => {
            p.mark('(')?;
            let saved = names(p)?;
            p.mark(',')?;
            p.mark('(')?;
            let offloaded = names(p)?;
            p.mark(',')?;
            let to = memory(p)?;
            p.mark(')')?;
            Policy::SaveAndOffloadNames { saved, offloaded, to }
        }
        "Or" => Policy::Or(p.until(')', policy)?),
        "And" => Policy::And(p.until(')', policy)?),
        "First" => Policy::First(p.until(')', policy)?),
        "Not" => {
            let inner = policy(p)?;
            p.mark(')')?;
            Policy::Not(Box::new(inner))
        }
        _ => {
            let name = name(p)?;
            p.mark(')')?;
            Policy::custom_named(name)
        }
    })
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

pub(super) fn memory(p: &mut Parser<'_>) -> Result<MemorySpace> {
    if let Token::Word(word) = p.peek()
        && let Some(memory) = MemorySpace::from_name(word)
    {
        p.advance();
        return Ok(memory);
    }
    Err(p.expected("a memory space"))
}
