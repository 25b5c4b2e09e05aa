//! Programs that need more memory than they may.

use std::env;
use std::process::Command;

use remat::ir::Reference;
use remat::report::{LiveKind, LiveValue, MemoryReport};
use remat::tree::Output;
use remat::{
    Cpu, DType, Device, JitOptions, OverLimit, Tensor, Tree, jit_with, named_scope, scan, value_and_grad, while_loop,
};

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
    JitOptions { device: Some(Device::new(Reference)), ..JitOptions::default() }
}

fn limited(bytes: usize) -> JitOptions {
    JitOptions { memory_limit: Some(bytes), ..unlimited() }
}

#[test]
fn a_limit_lists_what_is_live() {
    let x = Tensor::zeros([64, 8], DType::F32);
    let run = jit_with(&limited(1 << 13), |m: &Model| {
        let hidden = named_scope("mlp", || x.matmul(&m.up).named("hidden"));
        hidden.tanh().matmul(&m.down)
    });
    let file = file!();
    let line = line!() - 4;
    let expected = format!(
        "compile: the program needs 14.00 KiB (14336 B) and the limit is 8.00 KiB (8192 B)
arguments and results alone take 6.00 KiB (6144 B); a smaller batch needs less
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
    let need = jit_with(&unlimited(), double).memory(&x).unwrap().peak;
    assert!(jit_with(&limited(need), double).call(x.clone()).is_ok());
    let error = jit_with(&limited(need - 1), double).call(x).expect_err("one byte too few");
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
    let double = jit_with(&unlimited(), |x: &Tensor| x.exp().cumsum(0).exp());
    match env::var("REMAT_MEMORY_LIMIT").as_deref() {
        Err(_) | Ok("") => assert!(double.call(x).is_ok()),
        Ok("1KiB") => {
            let error = double.call(x.clone()).expect_err("1200 bytes are more than 1 KiB");
            let expected = "the program needs 1.17 KiB (1200 B) and the limit is 1.00 KiB (1024 B)";
            assert!(error.message().starts_with(expected), "{error}");
            assert!(jit_with(&limited(1200), |x: &Tensor| x.exp().cumsum(0)).call(x).is_ok());
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

/// The native engine on this number of threads.
fn native(threads: usize) -> JitOptions {
    JitOptions { device: Some(Cpu::with_threads(threads).expect("threads start").into()), ..JitOptions::default() }
}

/// The native engine's report of a function, whose numbers agree with each other on any number of threads; and the error
/// under a limit lists the same values.
fn report<A: Tree, R: Output>(args: &A, f: impl Fn(&A) -> R) -> MemoryReport {
    let reports = [1, 2, 3].map(|threads| {
        let step = jit_with(&native(threads), &f);
        let report = step.memory_report(args).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(report.stats, step.memory(args).unwrap_or_else(|e| panic!("{e}")));
        let sum = |of: fn(LiveKind) -> bool| report.live.iter().filter(|v| of(v.kind)).map(|v| v.bytes).sum::<usize>();
        let stats = report.stats;
        // What the function captured is an argument of the program.
        let of_arguments = sum(|kind| matches!(kind, LiveKind::Argument(_) | LiveKind::Constant));
        assert_eq!(of_arguments, stats.arguments, "{report:#}");
        assert_eq!(sum(|kind| kind == LiveKind::Output), stats.outputs, "{report:#}");
        let inside = sum(|kind| matches!(kind, LiveKind::Temporary | LiveKind::Scratch));
        assert!(inside <= stats.temporaries, "{report:#}");
        assert!(inside * 100 >= stats.temporaries * 99, "what is listed explains what is planned: {report:#}");
        assert_eq!(stats.peak, stats.arguments + stats.outputs + stats.temporaries + stats.overhead);
        report
    });
    let limited = JitOptions {
        memory_limit: Some(reports[0].stats.donated_peak - 1),
        over_limit: OverLimit::Refuse,
        ..native(1)
    };
    let error = jit_with(&limited, &f).memory(args).expect_err("one byte too few");
    assert_eq!(error.kind(), remat::ErrorKind::Memory);
    // No call fits then, also one that donates the arguments.
    let table = MemoryReport::new(reports[0].stats, reports[0].donated.clone()).to_string();
    let listed = table.lines().skip(1).take(8).collect::<Vec<_>>().join("\n");
    assert!(error.message().contains(&listed), "{error}\nlists other values than\n{table}");
    let [first, ..] = reports;
    first
}

/// The values of this name.
fn named<'a>(report: &'a MemoryReport, name: &str) -> Vec<&'a LiveValue> {
    report.live.iter().filter(|value| value.name.as_deref() == Some(name)).collect()
}

/// Fails unless all are temporaries of these bytes, which this operation computes in this line.
fn expect_all(values: &[&LiveValue], count: usize, bytes: usize, operation: &str, line: u32) {
    assert_eq!(values.len(), count, "{values:#?}");
    for value in values {
        assert_eq!((value.bytes, value.kind), (bytes, LiveKind::Temporary));
        assert_eq!(value.operation, Some(operation));
        let site = value.loc.site.expect("the user wrote it");
        assert_eq!((site.file(), site.line()), (file!(), line));
    }
}

const LINE: u32 = line!() + 4;

/// A layer, whose result is in memory until its gradient is computed.
fn layer(x: &Tensor, weight: &Tensor) -> Tensor {
    x.matmul(weight).tanh().named("bent")
}

#[test]
fn the_native_engine_lists_what_is_live_of_unrolled_layers() {
    let weights = vec![Tensor::zeros([64, 64], DType::F32); 12];
    let x = Tensor::zeros([512, 64], DType::F32);
    let report = report(&weights, |weights| {
        let loss = |weights: &Vec<Tensor>| weights.iter().fold(x.clone(), |x, w| layer(&x, w)).square().sum(..);
        value_and_grad(loss)(weights)
    });
    // The gradient of the last layer has taken the place of its result.
    expect_all(&named(&report, "bent"), 11, 512 * 64 * 4, "tanh", LINE);
    let lines = |of: fn(&LiveValue) -> bool| {
        report.live.iter().filter(|v| of(v)).map(|v| v.to_string()).collect::<Vec<String>>()
    };
    // Arguments of one size come in their order.
    let arguments = lines(|v| matches!(v.kind, LiveKind::Argument(_)));
    let expected: Vec<String> = (0..12).map(|i| format!("16.00 KiB  f32[64,64]  argument {i}")).collect();
    assert_eq!(arguments, expected);
    assert_eq!(lines(|v| v.kind == LiveKind::Constant), ["128.00 KiB  f32[512,64]  constant"]);
    let outputs = lines(|v| v.kind == LiveKind::Output && v.aval.rank() == 2);
    let of_product = format!("16.00 KiB  f32[64,64]  output of dot_general  {}:{LINE}:7, derivative", file!());
    assert_eq!(outputs, vec![of_product; 12]);
}

#[test]
fn the_native_engine_lists_what_is_live_in_a_scan() {
    let weights = Tensor::zeros([5, 64, 64], DType::F32);
    let x = Tensor::zeros([512, 64], DType::F32);
    let line = line!() + 3;
    let report = report(&weights, |weights| {
        let loss = |weights: &Tensor| {
            let (x, ()) = scan(|x: &Tensor, w: &Tensor| (layer(x, w), ()), &x, weights)?;
            Ok::<_, remat::Error>(x.square().sum(..))
        };
        value_and_grad(loss)(weights)
    });
    let stacks: Vec<&LiveValue> = report.live.iter().filter(|v| v.aval.shape[..] == [5, 512, 64]).collect();
    expect_all(&stacks, 2, 5 * 512 * 64 * 4, "scan", line);
    // What the body of the backward pass has, beside these: its values and the scratch memory of its steps.
    let of_body: Vec<&LiveValue> =
        report.live.iter().filter(|v| v.loc.site.is_some_and(|site| site.line() == LINE)).collect();
    assert!(of_body.iter().any(|v| v.kind == LiveKind::Scratch && v.operation == Some("dot_general")), "{report:#}");
    assert!(of_body.iter().any(|v| v.kind == LiveKind::Temporary && v.bytes == 512 * 64 * 4), "{report:#}");
}

#[test]
fn the_native_engine_lists_what_is_live_in_a_while_loop() {
    let x = Tensor::zeros([512, 64], DType::F32);
    let line = line!() + 4;
    let report = report(&x, |x| {
        let body = |x: &Tensor| {
            let wide = x.matmul(&Tensor::ones([64, 300], DType::F32));
            let sums = wide.cumsum(0).named("sums");
            (wide * sums).matmul(&Tensor::ones([300, 64], DType::F32))
        };
        while_loop(|x: &Tensor| x.sum(..).lt(100.0), body, x)
    });
    // The product of both is in the place of the one that has no name.
    expect_all(&named(&report, "sums"), 1, 512 * 300 * 4, "cumsum", line);
    assert_eq!(report.live.iter().filter(|v| v.bytes == 512 * 300 * 4).count(), 2, "{report:#}");
}

#[test]
fn the_native_engine_lists_the_condition_where_it_needs_more() {
    let x = Tensor::zeros([16, 16], DType::F32);
    let line = line!() + 3;
    let report = report(&x, |x| {
        let condition = |x: &Tensor| {
            let wide = x.matmul(&Tensor::ones([16, 4000], DType::F32)).named("looked at");
            wide.sum(..).lt(100.0)
        };
        while_loop(condition, |x: &Tensor| x.cumsum(0) * 2.0, x)
    });
    expect_all(&named(&report, "looked at"), 1, 16 * 4000 * 4, "dot_general", line);
}
