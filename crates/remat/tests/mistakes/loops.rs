//! Loops and branches whose parts do not fit.

use remat::{DType, ScanOptions, Tensor, cond, fori_loop, scan, scan_with, switch, while_loop};

fn zero() -> Tensor {
    Tensor::from(0.0f32)
}

fn vector(n: usize) -> Tensor {
    Tensor::zeros([n], DType::F32)
}

#[test]
fn the_carry_of_a_scan() {
    mistake!(
        scan(|c: &Tensor, x: &Tensor| (c + x, ()), &zero(), &Tensor::zeros([3, 2], DType::F32)),
        "scan: the carry is f32[] at first and f32[2] after an iteration; it must keep its type",
        1,
        9
    );
    mistake!(
        scan(|c: &Tensor, x: &Tensor| (c.gt(x), ()), &zero(), &vector(3)),
        "scan: the carry is f32[] at first and bool[] after an iteration; it must keep its type",
        1,
        9
    );
    let grow = |c: &Vec<Tensor>, x: &Tensor| ([&c[..], std::slice::from_ref(x)].concat(), ());
    mistake!(
        scan(grow, &vec![zero()], &vector(3)),
        "scan: the new carry has another structure than the old one: 2 elements against 1 element",
        1,
        9
    );
    let pair = |c: &(Tensor, Tensor), x: &Tensor| ((c.0.clone(), &c.1 + x.expand_dims(0)), ());
    mistake!(
        scan(pair, &(zero(), zero()), &vector(3)),
        "scan: the carry at `1` is f32[] at first and f32[1] after an iteration; it must keep its type",
        1,
        9
    );
}

#[test]
fn the_length_of_a_scan() {
    let step = |c: &Tensor, _: &()| (c + 1, ());
    mistake!(
        scan(step, &zero(), &()),
        "scan: there is no stacked input, so the length is not known; call `scan_with` with ScanOptions { length: \
         Some(..), .. }",
        1,
        9
    );
    mistake!(
        scan(|c: &Tensor, _: &(Tensor, Tensor)| (c + 1, ()), &zero(), &(vector(3), vector(4))),
        "scan: the lengths of the stacked inputs differ: 3 of f32[3] at `0` and 4 of f32[4] at `1`",
        1,
        9
    );
    let options = ScanOptions { length: Some(5), ..ScanOptions::default() };
    mistake!(
        scan_with(&options, |c: &Tensor, x: &Tensor| (c + x, ()), &zero(), &vector(3)),
        "scan: the lengths of the stacked inputs differ: 5 of the options and 3 of f32[3]",
        1,
        9
    );
    mistake!(
        scan(|c: &Tensor, x: &Tensor| (c + x, ()), &zero(), &zero()),
        "scan: the stacked input is f32[], which has no axis to loop over; capture what all iterations share",
        1,
        9
    );
    let options = ScanOptions { length: Some(5), unroll: 0, ..ScanOptions::default() };
    mistake!(scan_with(&options, step, &zero(), &()), "scan: unroll is 0", 0, 14);
}

#[test]
fn the_parts_of_a_while_loop() {
    let halve = |x: &Tensor| x / 2;
    mistake!(
        while_loop(|x: &Tensor| x.gt(1), |x: &Tensor| x.gt(1), &zero()),
        "while_loop: the carry is f32[] at first and bool[] after an iteration; it must keep its type",
        1,
        9
    );
    mistake!(
        while_loop(|x: &Tensor| x.clone(), halve, &zero()),
        "while_loop: the condition must give bool[] and gives f32[]; compare it, as in `x.gt(0)`",
        1,
        9
    );
    mistake!(
        while_loop(|x: &Tensor| x.gt(1), halve, &vector(3)),
        "while_loop: the condition must give bool[] and gives bool[3]; reduce it with .all(..) or .any(..)",
        1,
        9
    );
    let shrink = |x: &Vec<Tensor>| x[1..].to_vec();
    mistake!(
        while_loop(|x: &Vec<Tensor>| x[0].gt(1), shrink, &vec![zero(), zero()]),
        "while_loop: the new carry has another structure than the old one: 1 element against 2 elements",
        1,
        9
    );
}

#[test]
fn the_parts_of_a_counted_loop() {
    mistake!(
        fori_loop(0, 5, |i: &Tensor, x: &Tensor| x + i, &zero()),
        "add: f32[] and i32[] have different dtypes; convert one with .to_dtype(DType::F32)",
        1,
        50
    );
    mistake!(
        fori_loop(0, 1 << 40, |_: &Tensor, x: &Tensor| x * 2, &zero()),
        "fori_loop: the bounds 0 and 1099511627776 do not fit the index, an i32",
        1,
        9
    );
}

#[test]
fn the_parts_of_a_branch() {
    let x = vector(3);
    let (same, sum) = (|x: &Tensor| x.clone(), |x: &Tensor| x.sum(..));
    mistake!(
        cond(&Tensor::from(true), same, sum, &x).map(|_: Tensor| ()),
        "cond: the false branch returns f32[] where the true branch returns f32[3]",
        1,
        9
    );
    mistake!(
        cond(&x.gt(0), same, same, &x),
        "cond: the predicate must be bool[] and is bool[3]; reduce it with .all(..) or .any(..)",
        1,
        9
    );
    mistake!(
        cond(&Tensor::from(1), same, same, &x),
        "cond: the predicate must be bool[] and is i32[]; compare it, as in `x.gt(0)`",
        1,
        9
    );
    let copies = |n: usize| move |x: &Tensor| vec![x.clone(); n];
    mistake!(
        cond(&Tensor::from(true), copies(1), copies(2), &x),
        "cond: the results of the false branch and of the true branch differ in structure: 2 elements against 1 \
         element",
        1,
        9
    );
    mistake!(
        switch(&Tensor::from(0), &[] as &[&dyn Fn(&Tensor) -> Tensor], &x),
        "switch: there must be at least one branch",
        1,
        9
    );
    mistake!(
        switch(&Tensor::from(0.0f32), &[&same as &dyn Fn(&Tensor) -> Tensor], &x),
        "switch: the index must be i32[] and is f32[]; convert it with .to_dtype(DType::I32)",
        1,
        9
    );
    let branches: [&dyn Fn(&Tensor) -> Tensor; 3] = [&same, &same, &|x| x.to_dtype(DType::F64)];
    mistake!(
        switch(&Tensor::from(0), &branches, &x),
        "switch: branch 0 returns f32[3] where branch 2 returns f64[3]",
        1,
        9
    );
}
