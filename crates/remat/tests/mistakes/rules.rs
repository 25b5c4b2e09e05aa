//! Batching that does not fit, and functions with rules of their own.

use remat::{
    BatchAxes, DType, Tensor, VmapOptions, custom_jvp, custom_vjp, grad, jit, jvp, transform, vjp, vmap, vmap_with,
};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32)
}

#[test]
fn batches() {
    let add = |(x, y): &(Tensor, Tensor)| x + y;
    mistake!(
        vmap(add)(&(zeros(&[3]), zeros(&[4]))),
        "vmap: the numbers of examples differ: 3 of f32[3] at `0` and 4 of f32[4] at `1`",
        1,
        9
    );
    mistake!(
        vmap(add)(&(zeros(&[3]), zeros(&[]))),
        "vmap: the argument at `1` is f32[] and has no axis 0 of examples; to share it among all examples, \
         capture it in the closure",
        1,
        9
    );
    let axes = |in_axes| VmapOptions { in_axes, ..VmapOptions::default() };
    mistake!(
        vmap_with(&axes(BatchAxes::All(1)), add)(&(zeros(&[3]), zeros(&[3]))),
        "vmap: the argument at `0` is f32[3] and has no axis 1 of examples; to share it among all examples, \
         capture it in the closure",
        1,
        9
    );
    mistake!(
        vmap_with(&axes(BatchAxes::All(-2)), add)(&(zeros(&[3]), zeros(&[3]))),
        "vmap: the argument at `0` is f32[3] and has no axis -2 of examples; to share it among all examples, \
         capture it in the closure",
        1,
        9
    );
    mistake!(
        vmap_with(&axes(BatchAxes::PerLeaf(vec![Some(0)])), add)(&(zeros(&[3]), zeros(&[3]))),
        "vmap: 1 axis is given for the 2 leaves of the argument",
        1,
        9
    );
    mistake!(
        vmap_with(&axes(BatchAxes::PerLeaf(vec![None, None])), add)(&(zeros(&[3]), zeros(&[3]))),
        "vmap: no leaf of the argument is batched, so the number of examples is not known; give it in `size`",
        1,
        9
    );
    let size = VmapOptions { size: Some(7), ..VmapOptions::default() };
    mistake!(
        vmap_with(&size, add)(&(zeros(&[3]), zeros(&[3]))),
        "vmap: the numbers of examples differ: 7 of the options and 3 of f32[3] at `0`",
        1,
        9
    );
    mistake!(
        vmap(|x: &Tensor| x.sum(0))(&zeros(&[3])),
        "sum: axis 0 is out of range for f32[], which has 0 dimensions",
        1,
        29
    );
}

#[test]
fn batches_of_results() {
    let out = |out_axes| VmapOptions { out_axes, ..VmapOptions::default() };
    let double = |x: &Tensor| x * 2;
    mistake!(
        vmap_with(&out(BatchAxes::All(2)), double)(&zeros(&[3, 2])),
        "vmap: the result, f32[3,2] with the axis of examples, has no axis 2",
        1,
        9
    );
    mistake!(
        vmap_with(&out(BatchAxes::PerLeaf(vec![None])), double)(&zeros(&[3, 2])),
        "vmap: the result differs between examples, so it needs an axis in `out_axes`",
        1,
        9
    );
    mistake!(
        vmap_with(&out(BatchAxes::PerLeaf(vec![])), double)(&zeros(&[3, 2])),
        "vmap: 0 axes are given for the 1 leaf of the result",
        1,
        9
    );
}

#[test]
fn forward_rules() {
    let x = zeros(&[3]);
    let f = custom_jvp(|x: &Tensor| x.sin(), |x: &Tensor, t: &Tensor| (x.sin(), t.sum(..)));
    mistake!(vjp(|x: &Tensor| f(x), &x), "custom_jvp: the tangent of the rule is f32[] and must be f32[3]", -1, 13);
    let f = custom_jvp(|x: &Tensor| x.sin(), |x: &Tensor, t: &Tensor| (x.sum(..), t * x.cos()));
    mistake!(vjp(|x: &Tensor| f(x), &x), "custom_jvp: the result of the rule is f32[] and must be f32[3]", -1, 13);
    let f = custom_jvp(|x: &Tensor| vec![x.sin()], |x: &Tensor, t: &Tensor| (vec![x.sin()], vec![t * 2, t * 2]));
    mistake!(vjp(|x: &Tensor| f(x), &x), "custom_jvp: the tangent of the rule has 2 leaves and must have 1", -1, 13);
    let f = custom_jvp(|x: &Tensor| x.sin(), |x: &Tensor, t: &Tensor| (x.sin(), t + zeros(&[2])));
    mistake!(
        vjp(|x: &Tensor| f(x), &x),
        "add: f32[3] and f32[2] do not broadcast: dimension -1 has size 3 and 2",
        -1,
        81
    );
}

#[test]
fn reverse_rules() {
    let x = zeros(&[3]);
    let keep = |x: &Tensor| (x.sin(), x.clone());
    let f = custom_vjp(|x: &Tensor| x.sin(), keep, |_: &Tensor, ct: &Tensor| ct.sum(..));
    mistake!(
        vjp(|x: &Tensor| f(x), &x),
        "custom_vjp: the cotangent of the backward rule is f32[] and must be f32[3]",
        -1,
        13
    );
    let sum = |x: &Tensor| (x.sum(..), x.clone());
    let f = custom_vjp(|x: &Tensor| x.sin(), sum, |x: &Tensor, ct: &Tensor| x * ct);
    mistake!(
        vjp(|x: &Tensor| f(x), &x),
        "custom_vjp: the result of the forward rule is f32[] and must be f32[3]",
        -1,
        13
    );
    let pair = |x: &Vec<Tensor>| (x.clone(), ());
    let f = custom_vjp(|x: &Vec<Tensor>| x.clone(), pair, |_: &(), ct: &Vec<Tensor>| ct[1..].to_vec());
    mistake!(
        vjp(|x: &Vec<Tensor>| f(x), &vec![x.clone(), x.clone()]),
        "custom_vjp: the cotangent of the backward rule has 1 leaf and must have 2",
        -1,
        13
    );
}

#[test]
fn captures_that_are_differentiated() {
    let x = zeros(&[3]);
    let outer = |x: &Tensor| {
        let scaled = custom_jvp(|y: &Tensor| y * x, |y: &Tensor, t: &Tensor| (y * x, t * x));
        scaled(&x.stop_gradient()).sum(..)
    };
    mistake!(
        grad(outer)(&x),
        "custom_jvp: `captures_that_are_differentiated::{closure}::{closure}` captures a tensor (f32[3]) that is \
         differentiated, and its rule gives no derivative for it; pass it as a part of the argument, or capture it \
         through .stop_gradient()",
        -3,
        22
    );
    mistake!(
        jvp(outer, &x, &x),
        "custom_jvp: `captures_that_are_differentiated::{closure}::{closure}` captures a tensor (f32[3]) that is \
         differentiated, and its rule gives no derivative for it; pass it as a part of the argument, or capture it \
         through .stop_gradient()",
        -11,
        22
    );
}

#[test]
fn rules_that_were_not_traced() {
    let cube = custom_jvp(|x: &Tensor| x * x * x, |x: &Tensor, t: &Tensor| (x * x * x, x * x * t * 3));
    let program = jit(|x: &Tensor| cube(x)).jaxpr(&zeros(&[3])).unwrap();
    mistake!(
        transform::jvp(&program, &[true], &[true]),
        "custom_jvp: the rule of `rules_that_were_not_traced::{closure}` is not in this program, which was traced for \
         fewer derivatives than are taken of it: rules are traced where `grad`, `vjp` or `jvp` calls the function; \
         differentiate the function instead of its program",
        -2,
        16
    );
}
