//! Checks of values: the first NaN, infinite value, index out of range or zero divisor is an error at the line that made it.

use std::env;
use std::process::Command;

use remat::ir::Loc;
use remat::{
    Checks, DType, Device, Error, ErrorKind, JitOptions, Padding, Policy, PoolConfig, Result, ScanOptions, Tensor,
    checkpoint, cond, custom_jvp, custom_remat, custom_vjp, fori_loop, grad, jit, jit_with, named_scope, nn, scan,
    scan_with, switch, value_and_grad, vmap, while_loop,
};
use remat_testkit::installed;

fn options(checks: Checks) -> JitOptions {
    JitOptions { checks: Some(checks), ..JitOptions::default() }
}

/// The error of a call of this function with checks.
#[track_caller]
fn error_of(checks: Checks, f: impl Fn(&Tensor) -> Tensor, x: impl Into<Tensor>) -> Error {
    let error = jit_with(&options(checks), f).call(x.into()).expect_err("a check fails");
    assert_eq!(error.kind(), ErrorKind::Value, "{error}");
    error
}

/// Whether an error is located at this line of this file.
#[track_caller]
fn assert_at(error: &Error, line: u32) {
    let site = error.loc().and_then(|loc: Loc| loc.site).expect("a line");
    assert!(site.file().ends_with("checks.rs") && site.line() == line, "{error}: not at line {line}");
}

/// `[1, 2, .., 0, ..]`, of which the logarithm and the reciprocal are infinite at 0.
fn with_zero() -> Tensor {
    Tensor::new([1.0f32, 2.0, 0.0, 4.0])
}

#[test]
fn messages_have_the_operation_the_elements_and_the_operands() {
    let error = error_of(Checks::NANS, |x| (x - 1.0).sqrt(), Tensor::new([[3.0f32, 1.0], [0.5, -2.0]]));
    let message = "2 of 4 elements of the result f32[2,2] are NaN, the first at [1, 0], of f32[2,2] from -3 to 2";
    assert_eq!((error.operation(), error.message()), ("sqrt", message));
    let error = error_of(Checks::NANS, |x| x.log(), with_zero());
    let message = "1 of 4 elements of the result f32[4] are infinite, the first at [2], of f32[4] from 0 to 4";
    assert_eq!((error.operation(), error.message()), ("log", message));
    let error = error_of(Checks::NANS, |x| x * f32::MAX, Tensor::from(2.0f32));
    let message = format!(
        "1 of 1 elements of the result f32[] are infinite, the first at [], of f32[] of 2 and f32[] of {}",
        f64::from(f32::MAX)
    );
    assert_eq!((error.operation(), error.message()), ("mul", &*message));
}

#[test]
fn nan_is_found_at_the_line_that_makes_it() {
    let nan = |f: &dyn Fn(&Tensor) -> Tensor| error_of(Checks::NANS, f, with_zero());
    // In the forward pass, in a scope, and of each dtype.
    let error = nan(&|x| named_scope("attention", || x.exp() + x.log()));
    assert_at(&error, line!() - 1);
    assert!(error.to_string().contains("(attention)"), "{error}");
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        let error = nan(&|x| x.to_dtype(dtype).reciprocal().to_dtype(DType::F32));
        assert_at(&error, line!() - 1);
    }
    // A conversion that overflows.
    let error = nan(&|x| (x * 1e5).to_dtype(DType::F16));
    assert_at(&error, line!() - 1);
    // A reduction, a product and a division.
    let error = nan(&|x| x * 1e38 * x.sum(..).exp().square().square().square().square());
    assert_at(&error, line!() - 1);
    let error = nan(&|x| (x * 3e38).reshape([1, 4]).matmul(&Tensor::ones([4, 1], DType::F32)));
    assert_at(&error, line!() - 1);
    let error = nan(&|x| x / x);
    assert_at(&error, line!() - 1);
    assert_eq!(error.operation(), "div");
}

#[test]
fn nan_of_a_derivative_is_told() {
    // sqrt' is infinite at 0.
    let f = grad(|x: &Tensor| {
        let root = x.sqrt();
        root.sum(..)
    });
    let error = error_of(Checks::NANS, |x| f(x).unwrap(), with_zero());
    assert_at(&error, line!() - 4);
    assert!(error.message().ends_with("in the derivative"), "{error}");
    // In the forward pass of a gradient it is not.
    let error = error_of(Checks::NANS, |x| grad(|x: &Tensor| x.log().sin().sum(..))(x).unwrap(), with_zero());
    assert!(!error.message().contains("derivative"), "{error}");
    // A custom rule: its cotangents are those of the line that calls it.
    let broken =
        custom_vjp(|x: &Tensor| x.square(), |x| (x.square(), x.clone()), |x: &Tensor, ct: &Tensor| ct / (x - 2.0));
    let error = error_of(Checks::NANS, |x| grad(|x: &Tensor| broken(x).sum(..))(x).unwrap(), with_zero());
    assert!(error.message().ends_with("in the derivative") && error.operation() == "div", "{error}");
}

#[test]
fn nan_of_a_region_that_is_computed_again_is_told() {
    // The region is finite in the forward pass, and so is what is computed again of it: what is wrong is its derivative.
    let block = |x: &Tensor| checkpoint(Policy::Nothing, |x: &Tensor| x.sin().sqrt())(x);
    let error = error_of(Checks::NANS, |x| grad(|x: &Tensor| block(x).sum(..))(x).unwrap(), with_zero() * 0.5);
    assert!(error.message().ends_with("in the derivative"), "{error}");
    // The forward pass comes first where both are wrong.
    let block = |x: &Tensor| checkpoint(Policy::Nothing, |x: &Tensor| x.log().sin())(x);
    let error = error_of(Checks::NANS, |x| grad(|x: &Tensor| block(x).sum(..))(x).unwrap(), with_zero());
    assert_at(&error, line!() - 2);
    assert!(!error.message().contains("derivative"), "{error}");
}

#[test]
fn nan_of_a_loop_has_the_iteration() {
    let steps = Tensor::arange(0..12).to_dtype(DType::F32);
    let xs = &steps;
    let f = |carry: &Tensor| {
        let body = |carry: &Tensor, x: &Tensor| (carry + (7.0 - x).reciprocal(), x * 2.0);
        scan(body, carry, xs).unwrap().0
    };
    let error = error_of(Checks::NANS, f, Tensor::from(0.0f32));
    assert_at(&error, line!() - 4);
    assert!(error.message().ends_with(", in iteration 7 of 12"), "{error}");
    // The root at 0 is fine, and its derivative is not.
    let f = |carry: &Tensor| {
        let body = |carry: &Tensor, x: &Tensor| (carry + ((x - 3.0) * carry).abs().sqrt() * 1e-3, x * 2.0);
        grad(|carry: &Tensor| scan(body, carry, xs).unwrap().0)(carry).unwrap()
    };
    let error = error_of(Checks::NANS, f, Tensor::from(1.0f32));
    assert!(
        error.message().contains("in iteration 3 of 12") && error.message().ends_with("in the derivative"),
        "{error}"
    );
    // Loops of unknown length, and a loop in a loop.
    let f =
        |x: &Tensor| while_loop(|x: &Tensor| x.lt(100.0), |x: &Tensor| x * 2.0 + (x - 8.0).reciprocal(), x).unwrap();
    let error = error_of(Checks::NANS, f, Tensor::from(8.0f32));
    assert!(error.message().ends_with(", in iteration 0"), "{error}");
    let f = |x: &Tensor| {
        let inner =
            |_: &Tensor, x: &Tensor| fori_loop(0, 2, |_: &Tensor, x: &Tensor| x - 1.0 + x.log() * 0.0, x).unwrap();
        fori_loop(0, 3, inner, x).unwrap()
    };
    let error = error_of(Checks::NANS, f, Tensor::from(3.0f32));
    assert!(error.message().ends_with(", in iteration 1 of 3, in iteration 1 of 2"), "{error}");
}

thread_local! {
    /// The line on which `nan!` stood last.
    static LINE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// The logarithm of a tensor, which is NaN below zero, on a line that is remembered.
macro_rules! nan {
    ($x:expr) => {{
        LINE.set(line!());
        $x.log()
    }};
}

/// NaN of one logarithm in each of twenty places of a program is found at its line, and what the error says of the place.
#[test]
fn nan_is_found_in_each_of_twenty_places() {
    type Function = Box<dyn Fn(&Tensor) -> Result<Tensor>>;
    let one = || Tensor::from(1.0f32);
    let numbers = || Tensor::arange(0..12).to_dtype(DType::F32);
    fn gradient(f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Function {
        Box::new(move |x| grad(&f)(x))
    }
    fn plain(f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Function {
        Box::new(f)
    }
    // x is -1; each place, and the end of the message.
    let places: Vec<(&str, Function, &str)> = vec![
        ("a function", plain(|x| Ok(nan!(x))), ""),
        ("a scope", plain(|x| Ok(named_scope("head", || nan!(x)))), ""),
        ("a jit in a jit", plain(|x| jit(|x: &Tensor| nan!(x)).call(x.clone())), ""),
        ("a batch", plain(move |x| vmap(|y: &Tensor| nan!(y))(&(x * numbers()))), ""),
        ("a region", plain(|x| Ok(checkpoint(Policy::Nothing, |x: &Tensor| nan!(x))(x))), ""),
        ("the forward pass", gradient(|x| Ok(nan!(x).sin())), ""),
        (
            "the forward pass of nested regions",
            gradient(|x| {
                let inner = checkpoint(Policy::Nothing, |x: &Tensor| nan!(x));
                Ok(checkpoint(Policy::Dots, |x: &Tensor| inner(x).sin())(x).sin())
            }),
            "",
        ),
        (
            "an iteration of a scan",
            plain(move |x| Ok(scan(|c: &Tensor, y: &Tensor| (c + nan!((6.5 - y)), ()), x, &numbers())?.0)),
            "in iteration 7 of 12",
        ),
        (
            "an iteration of a reversed scan",
            plain(move |x| {
                let reversed = ScanOptions { reverse: true, ..ScanOptions::default() };
                Ok(scan_with(&reversed, |c: &Tensor, y: &Tensor| (c + nan!((y - 3.5)), ()), x, &numbers())?.0)
            }),
            "in iteration 8 of 12",
        ),
        (
            "an iteration of a loop in a loop",
            plain(|x| {
                let inner = |i: &Tensor, x: &Tensor| {
                    let body = |j: &Tensor, x: &Tensor| x + nan!((4.5 - (i * 3 + j).to_dtype(DType::F32)));
                    fori_loop(0, 3, body, x)
                };
                fori_loop(0, 4, inner, x)
            }),
            "in iteration 1 of 4, in iteration 2 of 3",
        ),
        (
            "the body of a while loop",
            plain(|x| while_loop(|x: &Tensor| x.lt(5.0), |x: &Tensor| x + 1.0 + nan!((2.5 - x)) * 0.0, x)),
            "in iteration 4",
        ),
        (
            "the condition of a while loop",
            plain(|x| while_loop(|x: &Tensor| nan!((2.5 - x)).lt(9.0), |x: &Tensor| x + 1.0, x)),
            "in iteration 4",
        ),
        ("a branch", plain(|x| cond(&x.lt(0.0), |x: &Tensor| nan!(x), |x: &Tensor| x.sin(), x)), ""),
        (
            "a branch of several, in a loop",
            plain(|x| {
                let body = |i: &Tensor, x: &Tensor| {
                    let branches: [&dyn Fn(&Tensor) -> Tensor; 3] = [&|x| x.sin(), &|x| x.cos() - 2.0, &|x| nan!(x)];
                    switch(i, &branches, x)
                };
                fori_loop(0, 3, body, x)
            }),
            "in iteration 2 of 3",
        ),
        (
            "a function with a jvp",
            plain(|x| Ok(custom_jvp(|x: &Tensor| nan!(x), |x: &Tensor, t: &Tensor| (x.log(), t / x))(x))),
            "",
        ),
        (
            "the jvp of a function",
            gradient(|x| Ok(custom_jvp(|x: &Tensor| x.sin(), |x: &Tensor, t: &Tensor| (x.sin(), nan!(x) * t))(x))),
            "",
        ),
        (
            "the forward rule of a function",
            gradient(|x| {
                let forward = |x: &Tensor| (x.sin(), nan!(x));
                Ok(custom_vjp(|x: &Tensor| x.sin(), forward, |r: &Tensor, ct: &Tensor| ct * r)(x))
            }),
            "",
        ),
        (
            "the backward rule of a function, in a loop",
            gradient(move |x| {
                let backward = |x: &Tensor, ct: &Tensor| ct * nan!((x + 4.5));
                let f = custom_vjp(|x: &Tensor| x - 1.0, |x: &Tensor| (x - 1.0, x.clone()), backward);
                Ok(scan(|x: &Tensor, _: &Tensor| (f(x), ()), x, &numbers())?.0)
            }),
            "in iteration 0 of 12, in the derivative",
        ),
        (
            "what a function computes again",
            gradient(|x| {
                let forward = |x: &Tensor, _: Option<&Policy>| (x.sin(), x.clone());
                let again = |_: &Tensor, x: &Tensor| nan!(x);
                Ok(custom_remat(forward, again, |_: &Tensor, r: &Tensor, ct: &Tensor| ct * r)(x))
            }),
            "in the backward pass",
        ),
        (
            "the derivative of a derivative",
            gradient(|x| {
                let f = custom_vjp(
                    |x: &Tensor| x.square(),
                    |x: &Tensor| (x.square(), x.clone()),
                    |x: &Tensor, ct: &Tensor| ct * x * 2.0,
                );
                let inner = grad(move |x: &Tensor| f(x))(x)?;
                Ok(inner * nan!(x))
            }),
            "",
        ),
    ];
    assert_eq!(places.len(), 20);
    let x = one() * -1.0;
    for (place, f, told) in places {
        let call = |checks| jit_with(&options(checks), |x: &Tensor| f(x)).call(x.clone());
        // Without checks nobody is told, and the program runs.
        call(Checks::NONE).unwrap_or_else(|error| panic!("{place}: {error}"));
        let error = call(Checks::NANS).expect_err(place);
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Value, "log"), "{place}: {error}");
        assert_at(&error, LINE.get());
        assert!(error.message().ends_with(told), "{place}: {error}");
        let is_derivative = error.message().contains("derivative");
        assert_eq!(is_derivative, told.contains("derivative"), "{place}: {error}");
    }
}

#[test]
fn branches_that_do_not_run_are_not_checked() {
    let f = |is_log: bool| {
        move |x: &Tensor| cond(&Tensor::from(is_log), |x: &Tensor| x.log(), |x: &Tensor| x.exp(), x).unwrap()
    };
    let fine = jit_with(&options(Checks::ALL), f(false)).call(with_zero());
    assert_eq!(fine.unwrap().to_vec::<f32>().unwrap()[2], 1.0);
    assert_eq!(error_of(Checks::NANS, f(true), with_zero()).operation(), "log");
}

#[test]
fn infinite_literals_and_arguments_are_fine() {
    let masked = |x: &Tensor| x.gt(1.0).select(x, f32::NEG_INFINITY).softmax(-1);
    let f = jit_with(&options(Checks::ALL), masked);
    let plain = jit_with(&options(Checks::NONE), masked);
    let bits = |x: Tensor| x.to_vec::<f32>().unwrap();
    assert_eq!(bits(f.call(with_zero()).unwrap()), bits(plain.call(with_zero()).unwrap()));
    let largest = jit_with(&options(Checks::NANS), |x: &Tensor| x.max(..));
    assert_eq!(largest.call(Tensor::new([f32::INFINITY, 0.0])).unwrap().item::<f32>().unwrap(), f32::INFINITY);
    // The largest element of a window of padding.
    let windows = PoolConfig { padding: Padding::Explicit(vec![(2, 0)]), ..PoolConfig::new([2]) };
    let pooled =
        jit_with(&options(Checks::NANS), |x: &Tensor| x.max_pool(&windows)).call(Tensor::ones([4], DType::F32));
    assert_eq!(bits(pooled.unwrap())[0], f32::NEG_INFINITY);
    // Infinity less infinity is NaN, though.
    assert_eq!(error_of(Checks::NANS, |x| x - x, Tensor::new([f32::INFINITY, 0.0])).operation(), "sub");
    // NaN that a program replaces is fine, and one that it returns is an error of the argument.
    let nan = Tensor::new([1.0f32, f32::NAN]);
    let cleared = jit_with(&options(Checks::NANS), |x: &Tensor| x.is_nan().select(0.0, x));
    assert_eq!(bits(cleared.call(nan.clone()).unwrap()), [1.0, 0.0]);
    let error = error_of(Checks::NANS, |x| x * 2.0, nan);
    assert_eq!(error.message(), "argument 0, f32[2], has NaN, the first at [1], and so has result 0");
}

#[test]
fn indices_out_of_range_are_errors() {
    let table = Tensor::ones([5, 3], DType::F32);
    let wrong =
        |f: &dyn Fn(&Tensor) -> Tensor, indices: &[i32]| error_of(Checks::INDICES, f, Tensor::from(indices.to_vec()));
    let error = wrong(&|ids| table.take(ids, 0), &[0, 4, 5]);
    assert_at(&error, line!() - 1);
    assert!(error.message().starts_with("index 5 is out of range of axis 0 of f32[5,3], at [2"), "{error}");
    let error = wrong(&|ids| table.index((ids, 1)), &[-6]);
    assert!(error.message().starts_with("index -1 (from the end -6) is out of range of axis 0"), "{error}");
    wrong(&|ids| table.take_along_axis(&ids.reshape([1, 3]), 0), &[0, 1, 7]);
    wrong(&|ids| table.at((ids,)).set(0.0), &[5]);
    wrong(&|ids| table.at((ids,)).add(1.0), &[-6]);
    wrong(&|ids| value_and_grad(|table: &Tensor| table.take(ids, 0).sum(..))(&table).unwrap().0, &[9]);
    let error = wrong(&|ids| nn::cross_entropy(&table, ids), &[0, 1, 2, 3, 0]);
    assert_at(&error, line!() - 1);
    // In range, from the end, clipped, of no elements, and in a batch.
    let fine = |f: &dyn Fn(&Tensor) -> Tensor, indices: &[i32]| {
        jit_with(&options(Checks::ALL), f).call(Tensor::from(indices.to_vec())).unwrap().wait().unwrap();
    };
    fine(&|ids| table.take(ids, 0), &[0, 4, -5]);
    fine(&|ids| table.take_clipped(ids, 0), &[17, -17]);
    fine(&|ids| table.take(ids, 0), &[]);
    fine(&|ids| vmap(|id: &Tensor| table.take(id, 0))(ids).unwrap(), &[1, 2]);
    fine(&|ids| nn::cross_entropy(&table, &(ids % 3)), &[0, 1, 2, 3, 4]);
    // The gradient of a maximum over windows of padding has indices out of range on purpose.
    let windows = PoolConfig::new([2, 2]);
    let pooled = grad(|x: &Tensor| x.max_pool(&windows).sum(..));
    jit_with(&options(Checks::ALL), |x: &Tensor| pooled(x).unwrap())
        .call(Tensor::ones([1, 1, 4, 4], DType::F32))
        .unwrap();
}

#[test]
fn integers_divided_by_zero_are_errors() {
    for f in [|x: &Tensor| 7 / x, |x: &Tensor| 7 % x] {
        let error = error_of(Checks::INDICES, f, Tensor::new([[1, 2], [0, 3]]));
        assert_eq!(error.message(), "the divisor i32[2,2] is 0 at [1, 0]");
        assert_at(&error, line!() - 3);
    }
    // Floats have infinities for that.
    let quotient = jit_with(&options(Checks::INDICES), |x: &Tensor| 1.0 / x).call(Tensor::from(0.0f32)).unwrap();
    assert_eq!(quotient.item::<f32>().unwrap(), f32::INFINITY);
}

/// A program with all kinds of equations gives with checks what it gives without, up to the order of additions.
#[test]
fn checked_programs_give_the_same_values() {
    let block = |x: &Tensor| {
        let x = checkpoint(Policy::Dots, |x: &Tensor| x.matmul(&x.transpose([1, 0])).tanh())(x);
        let (carry, ys) = scan(|c: &Tensor, row: &Tensor| ((c + row).sin(), row.cos() * c), &x.index(0), &x).unwrap();
        let top = cond(&carry.sum(..).gt(0.0), |x: &Tensor| x.cumsum(0), |x: &Tensor| x * 2.0, &ys).unwrap();
        vmap(|row: &Tensor| row.softmax(-1))(&top).unwrap().square().sum(..)
    };
    let step = grad(block);
    let x = Tensor::arange(0..12).to_dtype(DType::F32).reshape([4, 3]) * 0.1;
    let run = |checks| {
        jit_with(&options(checks), |x: &Tensor| step(x).unwrap()).call(x.clone()).unwrap().to_vec::<f32>().unwrap()
    };
    for (one, other) in run(Checks::ALL).into_iter().zip(run(Checks::NONE)) {
        assert!((one - other).abs() <= 1e-5 * (1.0 + other.abs()), "{one} and {other}");
    }
}

/// On XLA each operation runs there too.
#[test]
fn checks_run_on_the_device_of_the_program() {
    let Some(device) = installed("checks on XLA", Device::xla_cpu(0)) else { return };
    let options = JitOptions { device: Some(device), ..options(Checks::ALL) };
    let f = |x: &Tensor| scan(|c: &Tensor, x: &Tensor| (c + x, (c + x).sqrt()), &Tensor::from(0.0f32), x).unwrap().1;
    let f = jit_with(&options, f);
    let roots = f.call(Tensor::new([1.0f32, 3.0])).unwrap();
    assert_eq!(roots.device().unwrap().name(), "xla-cpu:0");
    assert_eq!(roots.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let error = f.call(Tensor::new([1.0f32, -3.0])).unwrap_err();
    assert!(error.kind() == ErrorKind::Value && error.message().ends_with("in iteration 1 of 2"), "{error}");
}

/// The environment sets the checks of all functions and of operations outside of them, in a process of its own.
#[test]
fn the_environment_sets_checks() {
    let this = env::current_exe().unwrap();
    let run = |variable: &str, value: &str| {
        let test = "in_a_process_with_checks";
        let child = Command::new(&this).args(["--exact", test, "--nocapture"]).env(variable, value).output().unwrap();
        let output = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
    };
    run("REMAT_DEBUG_NANS", "1");
    run("REMAT_CHECKED", "1");
    run("REMAT_CHECKED", "yes");
}

/// What [`the_environment_sets_checks`] runs; without its variables there is nothing to see.
#[test]
fn in_a_process_with_checks() {
    let of = |variable: &str| env::var(variable).unwrap_or_default();
    let log = || with_zero().log().to_vec::<f32>();
    let eager_grad = || grad(|x: &Tensor| x.sqrt().sum(..))(&with_zero()).and_then(|x| x.to_vec::<f32>());
    let quotient = || (Tensor::new([1, 0]) / Tensor::new([1, 0])).to_vec::<i32>();
    match (&*of("REMAT_DEBUG_NANS"), &*of("REMAT_CHECKED")) {
        ("1", _) => {
            assert_at(&log().unwrap_err(), line!() - 5);
            assert!(eager_grad().unwrap_err().message().ends_with("in the derivative"));
            assert!(quotient().is_ok());
            // An option of one function comes before the environment.
            let plain = jit_with(&options(Checks::NONE), |x: &Tensor| x.log()).call(with_zero());
            assert!(plain.is_ok());
        }
        (_, "1") => {
            assert!(log().is_ok() && eager_grad().is_ok());
            assert_eq!(quotient().unwrap_err().message(), "the divisor i32[2] is 0 at [1]");
        }
        (_, "yes") => assert_eq!(log().unwrap_err().message(), "REMAT_CHECKED is 'yes' and must be 0 or 1"),
        _ => assert!(log().is_ok() && eager_grad().is_ok() && quotient().is_ok()),
    }
}
