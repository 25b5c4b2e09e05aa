//! What the compiler says of the commonest mistakes: the remedy, not a list of types.
//!
//! The mistakes are compiled against the library that this test is linked to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The newest library of `remat` beside this test.
fn library(folder: &Path) -> PathBuf {
    let built = |path: &PathBuf| -> SystemTime { fs::metadata(path).and_then(|data| data.modified()).unwrap() };
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let libraries = files.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        // The name of the crate and a hash; those of our other crates have more words.
        name.strip_prefix("libremat-").is_some_and(|rest| rest.ends_with(".rlib"))
    });
    libraries.max_by_key(built).expect("the test is linked to it")
}

/// What the compiler says of a program.
fn said(program: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let source = temporary.path().join("mistake.rs");
    fs::write(&source, format!("use remat::*;\n{program}\n")).unwrap();
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compiler
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--out-dir"])
        .arg(temporary.path());
    compiler.arg("-L").arg(format!("dependency={}", folder.display()));
    compiler.arg("--extern").arg(format!("remat={}", library(folder).display())).arg(&source);
    let output = compiler.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("can't find crate") && !said.contains("found possibly newer version"), "{said}");
    said
}

#[track_caller]
fn hints(program: &str, expected: &[&str]) {
    let said = said(program);
    for part in expected {
        assert!(said.contains(part), "no `{part}` in\n{said}");
    }
}

#[test]
fn right_programs_compile() {
    let program = "pub fn f(w: &Tensor) -> Result<Tensor> { grad(|w: &Tensor| (w * w + 1.0).sum(..))(w) }
        pub fn g(w: &Tensor) -> Result<Tensor> { grad(|w: &Tensor| Ok((w * w).reshape([w.size()?]).sum(..)))(w) }";
    assert_eq!(said(program), "");
}

#[test]
fn a_struct_without_derive() {
    let program = "pub struct Model { pub w: Tensor }
        pub fn f(model: &Model) -> Result<Model> { grad(|m: &Model| m.w.sum(..))(model) }";
    hints(program, &["`Model` is not a tree of tensors", "becomes one by `#[derive(Tree)]`"]);
}

#[test]
fn a_field_that_is_not_a_tree() {
    let map = "#[derive(Tree)] pub struct Model { pub w: std::collections::HashMap<String, Tensor> }";
    hints(map, &["is not a tree of tensors", "`#[tree(static)]`", "`BTreeMap` is a tree"]);
    hints("#[derive(Tree)] pub struct Model { pub w: Tensor, pub f: fn(f32) -> f32 }", &["`#[tree(static)]`"]);
}

#[test]
fn a_loss_with_more_results() {
    let program = "pub fn f(w: &Tensor) -> Result<Tensor> { grad(|w: &Tensor| (w.sum(..), w.clone()))(w) }";
    hints(program, &["must return one tensor, and returns `(remat::Tensor, remat::Tensor)`", "`grad_aux`"]);
}

#[test]
fn a_result_that_is_not_a_tree() {
    let program = "pub fn f() { jit(|x: &Tensor| std::rc::Rc::new(x.clone())).call(Tensor::from(1.0)).unwrap(); }";
    hints(program, &["a traced function cannot return", "`#[derive(Tree)]`"]);
}

#[test]
fn an_array_as_an_operand() {
    hints(
        "pub fn f(x: &Tensor) -> Tensor { x + [1.0, 2.0] }",
        &["is not an operand of a tensor's operation", "`Tensor::new`"],
    );
}
