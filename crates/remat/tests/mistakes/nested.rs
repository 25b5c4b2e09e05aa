//! Errors inside several transformations are reported once, at the innermost line of the user, and are never nested.

use remat::{
    DType, Policy, Result, ScanOptions, Tensor, checkpoint, cond, custom_jvp, custom_vjp, grad, jit, jvp, scan,
    scan_with, vjp, vmap, while_loop,
};

fn bad(x: &Tensor) -> Tensor {
    x.matmul(&Tensor::zeros([7, 7], DType::F32))
}

fn matrix() -> Tensor {
    Tensor::zeros([2, 3], DType::F32)
}

#[test]
fn transformations_of_one_function() {
    let x = matrix();
    let loss = |x: &Tensor| bad(x).sum(..);
    mistake!(jit(loss).call(x.clone()), "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7", -11, 7);
    mistake!(grad(loss)(&x), "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7", -12, 7);
    mistake!(jvp(loss, &x, &x), "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7", -13, 7);
    mistake!(vjp(loss, &x), "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7", -14, 7);
    mistake!(
        checkpoint(Policy::Nothing, loss)(&x),
        "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7",
        -15,
        7
    );
    mistake!(
        vmap(loss)(&Tensor::zeros([5, 2, 3], DType::F32)),
        "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7",
        -21,
        7
    );
    mistake!(
        scan(|c: &Tensor, x: &Tensor| (c + loss(x), ()), &Tensor::from(0.0f32), &Tensor::zeros([5, 2, 3], DType::F32)),
        "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7",
        -27,
        7
    );
    mistake!(
        cond(&Tensor::from(true), loss, loss, &x),
        "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7",
        -33,
        7
    );
    mistake!(
        while_loop(|x: &Tensor| x.sum(..).gt(1), bad, &x),
        "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7",
        -39,
        7
    );
    mistake!(
        custom_jvp(loss, |x: &Tensor, t: &Tensor| (loss(x), t.sum(..)))(&x),
        "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7",
        -45,
        7
    );
}

#[test]
fn transformations_of_transformations() {
    let x = matrix();
    let inner = jit(|x: &Tensor| grad(|x: &Tensor| checkpoint(Policy::Nothing, bad)(x).sum(..))(x));
    mistake!(inner.call(x.clone()), "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7", -57, 7);
    let outer = jit(|x: &Tensor| inner.call(x.clone()));
    mistake!(outer.call(x.clone()), "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7", -59, 7);
    let looped = |x: &Tensor| -> Result<Tensor> {
        let (y, ()) = scan(|c: &Tensor, _: &Tensor| Ok((inner.call(c.clone())?, ())), x, &Tensor::arange(0..3))?;
        Ok(y.sum(..))
    };
    mistake!(grad(looped)(&x), "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7", -64, 7);
    mistake!(
        vmap(|x: &Tensor| grad(looped)(x))(&Tensor::zeros([5, 2, 3], DType::F32)),
        "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7",
        -65,
        7
    );
}

#[test]
fn deferred_in_a_loop() {
    let mut x = matrix();
    for _ in 0..3 {
        x = bad(&x) + 1;
    }
    mistake!(x.sum(..), "matmul: the inner sizes of f32[2,3] and f32[7,7] differ: 3 and 7", -79, 7);
}

fn endless(x: &Tensor) -> Result<Tensor> {
    jit(endless).call(x.clone())
}

fn endless_scan(x: &Tensor, (): &()) -> Result<(Tensor, ())> {
    scan_with(&ScanOptions { length: Some(1), ..ScanOptions::default() }, endless_scan, x, &())
}

fn endless_region(x: &Tensor) -> Tensor {
    checkpoint(Policy::Nothing, endless_region)(x)
}

fn endless_jvp(x: &Tensor) -> Tensor {
    custom_jvp(endless_jvp, |x: &Tensor, t: &Tensor| (x.clone(), t.clone()))(x)
}

fn endless_vjp(x: &Tensor) -> Result<Tensor> {
    custom_vjp(endless_vjp, |x: &Tensor| Ok((x.clone(), ())), |(): &(), t: &Tensor| t.clone())(x)
}

#[test]
fn functions_that_call_themselves_without_an_end() {
    never_ends(&endless(&matrix()).unwrap_err().to_string(), -21);
    never_ends(&grad(endless)(&matrix()).unwrap_err().to_string(), -22);
    never_ends(&endless_scan(&matrix(), &()).unwrap_err().to_string(), -19);
    never_ends(&grad(|x: &Tensor| endless_region(x).sum(..))(&matrix()).unwrap_err().to_string(), -16);
    never_ends(&jit(endless_jvp).call(matrix()).unwrap_err().to_string(), -13);
    never_ends(&endless_vjp(&matrix()).unwrap_err().to_string(), -10);
}

/// Outside of any trace there is neither a `Result` nor a trace that could fail.
#[test]
fn a_plain_tree_without_an_end_is_a_panic() {
    let panic = std::panic::catch_unwind(|| endless_region(&matrix())).unwrap_err();
    never_ends(panic.downcast_ref::<String>().unwrap(), -25);
    // An argument that failed is not traced.
    let panic = std::panic::catch_unwind(|| endless_region(&matrix().reshape([7]))).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.starts_with("trace: 0 functions are being traced"), "{text}");
}

/// The error says how many functions were traced, which depends on the stack and on how the tests were compiled.
#[track_caller]
fn never_ends(text: &str, lines: i32) {
    let (depth, text) = text.trim_start_matches("trace: ").split_once(' ').unwrap();
    assert!(depth.parse::<usize>().unwrap() > 50, "{depth}");
    let line = std::panic::Location::caller().line().strict_add_signed(lines);
    let expected = "functions are being traced inside one another, and the stack of the thread is used up; does a \
                    function call itself forever? Functions nested this deeply need a thread with a larger \
                    stack";
    assert_eq!(text, format!("{expected}\n  at {}:{line}:5", file!()));
}
