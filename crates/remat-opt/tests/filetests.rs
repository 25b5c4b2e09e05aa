//! The passes on small programs: what each makes of them, written down in `filetests`.
//!
//! A command is the name of a pass, or of a pipeline. Masks of `dce` are digits, one for each output: `used=101`.

use remat_ir::{Jaxpr, Result};
use remat_opt::pipeline::{CPU, JIT, XLA, run};
use remat_opt::{cse, dce, fold_literals};
use remat_testkit::FileTests;

#[test]
fn filetests() {
    let mut tests = FileTests::new()
        .command("dce", |jaxpr, args| {
            let digits: Option<String> = args.get("used")?;
            let all = vec![true; jaxpr.outs.len()];
            let used = digits.map_or(all, |digits| digits.chars().map(|c| c == '1').collect());
            print(&dce(jaxpr, &used, &vec![false; jaxpr.ins.len()])?.jaxpr)
        })
        .command("cse", |jaxpr, _| print(&cse(jaxpr)?))
        .command("fold", |jaxpr, _| print(&fold_literals(jaxpr)?))
        .command("jit", |jaxpr, _| print(&run(JIT, jaxpr)?))
        .command("cpu", |jaxpr, _| print(&run(CPU, jaxpr)?))
        .command("xla", |jaxpr, _| print(&run(XLA, jaxpr)?));
    for pass in CPU {
        tests = tests.command(pass.name, |jaxpr, _| print(&run(&[*pass], jaxpr)?));
    }
    if let Err(report) = tests.run(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests")) {
        panic!("{report}");
    }
}

#[test]
fn names_of_passes_are_unique() {
    let mut names: Vec<&str> = JIT.iter().chain(CPU).map(|pass| pass.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// The program as text, which reads back as the same program.
fn print(jaxpr: &Jaxpr) -> Result<String> {
    remat_ir::check(jaxpr)?;
    let text = jaxpr.to_string();
    assert_eq!(Jaxpr::parse(&text)?.to_string(), text, "what prints also parses");
    Ok(text)
}
