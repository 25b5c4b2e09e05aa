//! Programs and policies as text.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use remat::ir::{Jaxpr, check};
use remat::nn::Block;
use remat::{DType, Policy, Tensor, checkpoint, grad, make_jaxpr, random, scan};

use super::{Format, Place, Read, Rule};
use crate::harness::work::Work;

pub(super) fn formats() -> Vec<Format> {
    let (rule, place, writes) = (Rule::Formed, Place::Line, false);
    vec![
        Format { name: "program text", rule, place, writes, make: make_program, read: read_program },
        Format { name: "policy", rule, place, writes, make: make_policy, read: read_policy },
    ]
}

/// The gradient of a checkpointed block, and a loop.
fn make_program(_: &Work, folder: &Path) -> Result<()> {
    let block = Block::init(random::key(0), 8, 2, DType::F32);
    let x = random::normal(random::key(1), [2, 4, 8], DType::F32);
    let apply = |x: &Tensor| block.apply(x);
    let loss = |x: &Tensor| checkpoint(Policy::names(["attn"]), apply)(x).square().sum(..);
    let gradient = make_jaxpr(|x: &Tensor| grad(loss)(x))(&x)?;
    let sums = |x: &Tensor| {
        let step = |sum: &Tensor, x: &Tensor| {
            let next = sum + x.sin();
            (next.clone(), next)
        };
        scan(step, &Tensor::full([4, 8], 0.0, DType::F32), x).map(|(last, all)| last.sum(..) + all.max(..))
    };
    let looped = make_jaxpr(sums)(&x)?;
    fs::write(folder.join("gradient"), gradient.to_string())?;
    Ok(fs::write(folder.join("loop"), looped.to_string())?)
}

fn make_policy(_: &Work, folder: &Path) -> Result<()> {
    let text = "or(names(attn, \"a b\"), any_names_but(qkv), save_and_offload_names((attn), (mlp), host), dots)";
    Ok(fs::write(folder.join("policy"), text)?)
}

/// Texts of a folder; what is not UTF-8 does not come to a parser.
fn texts(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder)? {
        texts.push(String::from_utf8_lossy(&fs::read(entry?.path())?).into_owned());
    }
    Ok(texts)
}

fn read_each(folder: &Path, read: impl Fn(&str) -> remat::Result<std::result::Result<String, String>>) -> Read {
    let texts = match texts(folder).context("the files of a folder") {
        Ok(texts) => texts,
        Err(error) => return Read::Broken(format!("{error:#}")),
    };
    let mut values = String::new();
    for text in texts {
        match read(&text) {
            Ok(Ok(value)) => values += &value,
            Ok(Err(broken)) => return Read::Broken(broken),
            Err(error) => return Read::Error(error.message().into()),
        }
    }
    Read::Value(values)
}

/// A program that is read has no faults, and comes back from its text.
fn read_program(_: &Work, folder: &Path) -> Read {
    read_each(folder, |text| {
        // Tools read programs that break the rules: to check and to print these must work too.
        if let Ok(unchecked) = Jaxpr::parse_unchecked(text) {
            let _ = (check(&unchecked), unchecked.to_string());
        }
        let (program, _) = Jaxpr::parse_closed(text)?;
        let printed = program.to_string();
        Ok(match (check(&program), Jaxpr::parse(&printed)) {
            (Err(faults), _) => Err(format!("the parser took a program with faults: {faults}")),
            (_, Err(error)) => Err(format!("what a program prints is not read: {error}")),
            (Ok(()), Ok(again)) if again.to_string() != printed => Err("a program reads back as another one".into()),
            (Ok(()), Ok(_)) => Ok(printed),
        })
    })
}

fn read_policy(_: &Work, folder: &Path) -> Read {
    read_each(folder, |text| {
        let printed = text.parse::<Policy>()?.to_string();
        Ok(match printed.parse::<Policy>() {
            Ok(again) if again.to_string() == printed => Ok(printed),
            Ok(_) => Err("a policy reads back as another one".into()),
            Err(error) => Err(format!("what a policy prints is not read: {error}")),
        })
    })
}
