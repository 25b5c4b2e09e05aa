//! The text of every sample of every first-order operation, in one file per family. `BLESS=1` rewrites the files.
//!
//! Of each sample there is a line with its name and the statements of its function, without `stablehlo.`. A sample whose text is that
//! of one above it but for element types and constants has its line alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use remat_ir::{Builder, Op};
use remat_testkit::{Sample, all_samples};
use remat_xla::{Options, stablehlo};

#[test]
fn samples_have_the_text_that_the_files_have() {
    let bless = std::env::var_os("BLESS").is_some_and(|v| !v.is_empty() && v != "0");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut report = String::new();
    let families = families();
    for (family, text) in &families {
        let path = folder.join(format!("{family}.txt"));
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if *text == expected {
            continue;
        }
        if bless {
            fs::write(&path, text).unwrap();
        } else {
            let line = text.lines().zip(expected.lines()).position(|(a, b)| a != b);
            let line = line.unwrap_or(text.lines().count().min(expected.lines().count()));
            let at = |text: &str| text.lines().nth(line).unwrap_or("the end").to_string();
            report += &format!("{}:{}: {}\nand not {}\n", path.display(), line + 1, at(text), at(&expected));
        }
    }
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let known: BTreeSet<String> = families.keys().map(|family| format!("{family}.txt")).collect();
    report.extend(files.filter(|file| !known.contains(file)).map(|file| format!("{file}: there is no such family\n")));
    assert!(report.is_empty(), "{report}\nBLESS=1 rewrites the files");
}

/// The text of each family.
fn families() -> BTreeMap<String, String> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for sample in all_samples() {
        let statements = statements(&sample);
        let text = texts.entry(family(sample.subject())).or_default();
        let avals: Vec<String> = sample.inputs.iter().map(|x| x.aval().to_string()).collect();
        *text += &format!("{} ({}) of {}\n", sample.subject().name(), sample.label, avals.join(" "));
        if seen.insert((sample.subject().name(), skeleton(&statements))) {
            *text += &statements;
        }
    }
    texts
}

/// The variant of the operation, which is that of its family.
fn family(op: &Op) -> String {
    let Some(prim) = op.prim() else { panic!("samples are of first-order operations") };
    let variant = format!("{prim:?}");
    variant.split(['(', ' ']).next().unwrap_or_default().to_lowercase()
}

/// The statements of the function of a sample.
fn statements(sample: &Sample) -> String {
    let mut b = Builder::new();
    let ins = b.inputs(sample.inputs.iter().map(|x| x.aval().clone()));
    let outs = b.emit(sample.op.clone(), &ins).unwrap();
    let module = stablehlo(&b.finish(outs.into_vec()), &Options::default()).unwrap();
    let lines: Vec<&str> = module.lines().collect();
    let inside = lines[2..lines.len() - 2].iter();
    inside.map(|line| line.replacen("    ", "  ", 1).replace("stablehlo.", "") + "\n").collect()
}

/// The statements without element types and constants.
fn skeleton(statements: &str) -> String {
    let mut skeleton = String::new();
    let mut rest = statements;
    while let Some(start) = rest.find("tensor<").into_iter().chain(rest.find("dense<")).min() {
        let end = start + rest[start..].find('>').unwrap_or(rest.len() - start - 1) + 1;
        let sizes = rest[start..end].rfind('x').map_or("", |x| &rest[start..start + x]);
        skeleton += &rest[..start];
        skeleton += if rest[start..].starts_with("dense<") { "dense" } else { sizes };
        rest = &rest[end..];
    }
    skeleton + rest
}
