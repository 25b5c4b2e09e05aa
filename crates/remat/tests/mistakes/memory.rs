//! Programs that need more memory than they may.

use std::env;
use std::process::Command;
use std::sync::Arc;

use remat::{DType, JitOptions, Reference, Tensor, Tree, jit_with, named_scope};

#[derive(Clone, Tree)]
struct Model {
    up: Tensor,
    down: Tensor,
}

fn model() -> Model {
    Model { up: Tensor::zeros([8, 32], DType::F32), down: Tensor::zeros([32, 8], DType::F32) }
}

/// The reference evaluator, whose temporaries are those of the program as it is written.
fn unlimited() -> JitOptions {
    JitOptions { device: Some(Arc::new(Reference)), ..JitOptions::default() }
}

fn limited(bytes: usize) -> JitOptions {
    JitOptions { memory_limit: Some(bytes), ..unlimited() }
}

#[test]
fn a_limit_lists_what_is_live() {
    let x = Tensor::zeros([64, 8], DType::F32);
    let run = jit_with(limited(1 << 13), |m: &Model| {
        let hidden = named_scope("mlp", || x.matmul(&m.up).named("hidden"));
        hidden.tanh().matmul(&m.down)
    });
    let file = file!();
    let line = line!() - 4;
    let expected = format!(
        "compile: the program needs 14.00 KiB (14336 B) and the limit is 8.00 KiB (8192 B)
live at the peak:
  8.00 KiB  f32[64,32]  tanh                   {file}:{0}:16
  2.00 KiB  f32[64,8]   constant
  2.00 KiB  f32[64,8]   output of dot_general  {file}:{0}:23
  1.00 KiB  f32[8,32]   argument up
  1.00 KiB  f32[32,8]   argument down",
        line + 1
    );
    mistake!(run.call(model()), &expected, 0, 18);
    mistake!(run.memory(&model()), &expected, 0, 18);
    mistake!(run.memory_report(&model()), &expected, 0, 18);
    mistake!(run.lower(&model()).unwrap().compile(), &expected, 0, 43);
}

#[test]
fn what_fits_exactly_is_compiled() {
    let double = |x: &Tensor| x * 2;
    let x = Tensor::zeros([4], DType::F32);
    let need = jit_with(unlimited(), double).memory(&x).unwrap().peak;
    assert!(jit_with(limited(need), double).call(x.clone()).is_ok());
    let error = jit_with(limited(need - 1), double).call(x).expect_err("one byte too few");
    assert_eq!(error.kind(), remat::ErrorKind::Memory);
}

/// Runs the test of this name with a limit in its environment.
fn run_with_limit(test: &str, limit: &str) -> bool {
    let this = env::current_exe().expect("the test is a program");
    let child = Command::new(this).args(["--exact", test]).env("REMAT_MEMORY_LIMIT", limit).output();
    let output = child.expect("the test runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "no test is called {test}");
    output.status.success()
}

/// Passes where the environment has no limit, or one of 1 KiB.
#[test]
fn under_the_limit_of_the_environment() {
    let x = Tensor::zeros([100], DType::F32);
    let double = jit_with(unlimited(), |x: &Tensor| x.exp().cumsum(0).exp());
    match env::var("REMAT_MEMORY_LIMIT").as_deref() {
        Err(_) | Ok("") => assert!(double.call(x).is_ok()),
        Ok("1KiB") => {
            let error = double.call(x.clone()).expect_err("1200 bytes are more than 1 KiB");
            let expected = "the program needs 1.17 KiB (1200 B) and the limit is 1.00 KiB (1024 B)";
            assert!(error.message().starts_with(expected), "{error}");
            assert!(jit_with(limited(1200), |x: &Tensor| x.exp().cumsum(0)).call(x).is_ok());
        }
        Ok(_) => mistake!(
            double.call(x),
            "compile: REMAT_MEMORY_LIMIT is '1 XB' and must be a number of bytes such as 500000, 512MiB or 1.5GiB",
            1,
            20
        ),
    }
}

#[test]
fn the_environment_has_a_limit() {
    for limit in ["", "1KiB", "1 XB"] {
        assert!(run_with_limit("memory::under_the_limit_of_the_environment", limit), "{limit}");
    }
    assert!(!run_with_limit("memory::under_the_limit_of_the_environment", "2KiB"));
}
