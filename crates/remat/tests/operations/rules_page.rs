//! `docs/RULES.md` shows for every operation its program, jvp, transpose and vmap, and is never stale: run with `BLESS=1`
//! to write it anew.

use std::collections::BTreeSet;
use std::fmt::Write;

use remat::DType;
use remat::ir::Jaxpr;
use remat::transform::{jvp, transpose, vmap};
use remat_ir::Builder;
use remat_testkit::{Sample, all_samples};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/RULES.md");

#[test]
fn the_page_of_rules_is_fresh() {
    let page = page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PAGE, page).unwrap();
    } else {
        let written = std::fs::read_to_string(PAGE).unwrap();
        assert!(written == page, "docs/RULES.md is stale; run this test with BLESS=1");
    }
}

fn page() -> String {
    let mut page = String::from(
        "# The rules of every operation\n\nFor one application of each first-order operation: its program, its derivative (primals, \
         then tangents), its transpose\nin the operands in which it is linear (known operands, then cotangents), and its batch of \
         three. Written by a test.\n",
    );
    let mut seen = BTreeSet::new();
    let mut samples = all_samples();
    // The most telling sample of an operation is one of plain arrays of f32, with the fewest empty or scalar ones.
    samples.sort_by_key(|s| (s.subject().name(), plainness(s)));
    for sample in samples {
        if seen.insert(sample.subject().name()) {
            describe(&sample, &mut page);
        }
    }
    page
}

fn plainness(sample: &Sample) -> usize {
    let odd = |a: &remat::ir::Array| match a.dtype() {
        DType::F32 => 0,
        DType::I32 | DType::U32 | DType::Bool => 1,
        _ => 2,
    };
    let small = |a: &remat::ir::Array| if a.aval().size() < 2 || a.aval().rank() > 4 { 3 } else { 0 };
    sample.inputs.iter().map(|a| odd(a) + small(a)).sum()
}

fn describe(sample: &Sample, page: &mut String) {
    let mut b = Builder::new();
    let ins = b.inputs(sample.inputs.iter().map(|a| a.aval().clone()));
    let outs = b.emit(sample.op.clone(), &ins).unwrap();
    let jaxpr = b.finish(outs.to_vec());
    let floats: Vec<bool> = sample.inputs.iter().map(|a| a.dtype().is_float()).collect();
    let no_outs = vec![false; jaxpr.outs.len()];

    writeln!(page, "\n## `{}`\n\n```text\n{jaxpr}\n```", sample.subject().name()).unwrap();
    if floats.contains(&true) {
        match jvp(&jaxpr, &floats, &no_outs) {
            Ok(derivative) if derivative.nonzero.contains(&true) => section(page, "jvp", &derivative.jaxpr),
            Ok(_) => page.push_str("\njvp: no result has a tangent.\n"),
            Err(error) => writeln!(page, "\njvp: {error}.").unwrap(),
        }
    }
    if let Some(operands) = sample.linear.first() {
        let linear: Vec<bool> = (0..jaxpr.ins.len()).map(|i| operands.contains(&i)).collect();
        let cotangents: Vec<bool> = jaxpr.out_avals().iter().map(|a| a.dtype.is_float()).collect();
        section(page, "transpose", &transpose(&jaxpr, &linear, &cotangents, true).unwrap().jaxpr);
    }
    if !jaxpr.ins.is_empty() {
        section(page, "vmap", &vmap(&jaxpr, 3, &vec![true; jaxpr.ins.len()], &no_outs).unwrap().jaxpr);
    }
}

fn section(page: &mut String, title: &str, jaxpr: &Jaxpr) {
    writeln!(page, "\n{title}\n\n```text\n{jaxpr}\n```").unwrap();
}
