//! Which equations methods stage.

use remat_ir::{Aval, DType, Loc};

use super::{NewAxis, einsum, keep, step};
use crate::Tensor;
use crate::trace::trace;

/// The program that `f` stages for float arguments of these shapes, without captured constants.
fn program(shapes: &[&[usize]], f: impl FnOnce(&[Tensor]) -> Tensor) -> String {
    let avals = shapes.iter().map(|shape| Aval::new(DType::F32, shape.iter().copied()));
    let (program, ()) = trace(avals, Loc::UNKNOWN, |args| Ok((vec![f(args)], ()))).unwrap();
    assert!(program.captured.is_empty(), "constants are captured");
    program.jaxpr.to_string()
}

/// The names of the operations of that program.
fn operations(shapes: &[&[usize]], f: impl FnOnce(&[Tensor]) -> Tensor) -> Vec<&'static str> {
    let avals = shapes.iter().map(|shape| Aval::new(DType::F32, shape.iter().copied()));
    let (program, ()) = trace(avals, Loc::UNKNOWN, |args| Ok((vec![f(args)], ()))).unwrap();
    assert!(program.captured.is_empty(), "constants are captured");
    program.jaxpr.eqns.iter().map(|eqn| eqn.op.name()).collect()
}

#[test]
fn a_matrix_times_a_vector_is_one_product() {
    let text = program(&[&[5, 4], &[4]], |x| x[0].matmul(&x[1]).sin());
    let expected = "{ lambda ; a:f32[5,4] b:f32[4]. let
    c:f32[5] = dot_general[
      dimension_numbers=(([1], [0]), ([], []))
      preferred_element_type=float32
    ] a b
    d:f32[5] = sin c
  in (d,) }";
    assert_eq!(text, expected);
}

#[test]
fn products_transpose_nothing_where_they_need_not() {
    assert_eq!(operations(&[&[2, 3, 4], &[4, 5]], |x| x[0].matmul(&x[1])), ["dot_general"]);
    assert_eq!(operations(&[&[2, 3, 4], &[2, 4, 5]], |x| x[0].matmul(&x[1])), ["dot_general"]);
    assert_eq!(operations(&[&[3, 4], &[2, 4, 5]], |x| x[0].matmul(&x[1])), ["dot_general", "transpose"]);
    assert_eq!(operations(&[&[3, 4], &[5, 4]], |x| einsum("ij,kj->ik", &[&x[0], &x[1]])), ["dot_general"]);
    assert_eq!(operations(&[&[3, 4], &[5, 4]], |x| einsum("ij,kj->ki", &[&x[0], &x[1]])), ["dot_general"]);
    assert_eq!(
        operations(&[&[2, 7, 3, 4], &[2, 7, 3, 5]], |x| einsum("bhqd,bhqe->bhde", &[&x[0], &x[1]])),
        ["dot_general"]
    );
}

#[test]
fn only_what_must_broadcast_does() {
    assert_eq!(operations(&[&[2, 3], &[2, 3]], |x| &x[0] + &x[1]), ["add"]);
    assert_eq!(operations(&[&[2, 3], &[]], |x| &x[0] + &x[1]), ["add"]);
    assert_eq!(operations(&[&[2, 3], &[3]], |x| &x[0] + &x[1]), ["broadcast_in_dim", "add"]);
    assert_eq!(operations(&[&[2, 1], &[3]], |x| &x[0] + &x[1]), ["broadcast_in_dim", "broadcast_in_dim", "add"]);
    let text = program(&[&[3]], |x| 2.0 * (&x[0] - 1));
    let expected = "{ lambda ; a:f32[3]. let
    b:f32[3] = sub a 1.0:f32[]
    c:f32[3] = mul 2.0:f32[] b
  in (c,) }";
    assert_eq!(text, expected);
}

#[test]
fn constants_are_staged() {
    assert_eq!(operations(&[], |_| Tensor::zeros([2, 3], DType::F32)), ["broadcast_in_dim"]);
    assert_eq!(operations(&[], |_| Tensor::arange(0..4)), ["iota"]);
    assert_eq!(operations(&[], |_| Tensor::arange_step(1.0, 2.0f32, 0.25)), ["iota", "mul", "add"]);
    assert_eq!(operations(&[], |_| Tensor::eye(3, DType::F32)), ["iota", "iota", "eq", "convert_element_type"]);
    assert_eq!(
        operations(&[&[3, 3]], |x| x[0].tril(0)),
        ["iota", "iota", "ge", "select_n"],
        "the mask of a triangle is a part of the program"
    );
    assert_eq!(operations(&[&[3]], |x| x[0].zeros_like()), ["broadcast_in_dim"]);
    assert_eq!(operations(&[&[2]], |x| x[0].relu()), ["clamp"]);
}

#[test]
fn softmax_keeps_gradients_out_of_its_maximum() {
    assert_eq!(
        operations(&[&[2, 3]], |x| x[0].softmax(-1)),
        [
            "reduce_max",
            "expand_dims",
            "stop_gradient",
            "broadcast_in_dim",
            "sub",
            "exp",
            "reduce_sum",
            "expand_dims",
            "broadcast_in_dim",
            "div"
        ]
    );
}

#[test]
fn nothing_is_staged_where_nothing_changes() {
    let none: [&str; 0] = [];
    let same = |f: fn(&Tensor) -> Tensor| operations(&[&[2, 3]], |x| f(&x[0]));
    assert_eq!(same(|x| x.reshape([2, -1])), none);
    assert_eq!(same(|x| x.transpose([0, 1])), none);
    assert_eq!(same(|x| x.broadcast_to([2, 3])), none);
    assert_eq!(same(|x| x.to_dtype(DType::F32)), none);
    assert_eq!(same(|x| x.index((.., 0..3))), none);
    assert_eq!(same(|x| x.squeeze(..)), none);
    assert_eq!(same(|x| x.split(1, 0)[0].clone()), none);
    assert_eq!(same(|x| x.roll(3, 1)), none);
    assert_eq!(same(|x| einsum("ij->ij", &[x])), none);
}

#[test]
fn static_indices_are_slices() {
    let of = |f: fn(&Tensor) -> Tensor| operations(&[&[4, 6]], |x| f(&x[0]));
    assert_eq!(of(|x| x.index(1)), ["slice", "squeeze"]);
    assert_eq!(of(|x| x.index((.., 2..4))), ["slice"]);
    assert_eq!(of(|x| x.index(step(.., -1))), ["rev"]);
    assert_eq!(of(|x| x.index((NewAxis, step(.., -2)))), ["slice", "rev", "expand_dims"]);
    assert_eq!(of(|x| x.at((1, 2..4)).set(0.0)), ["broadcast_in_dim", "reshape", "dynamic_update_slice"]);
    assert_eq!(of(|x| x.sum(keep(0))), ["reduce_sum", "expand_dims"]);
}

#[test]
fn a_lookup_is_a_gather() {
    let avals = [Aval::new(DType::F32, [9, 2]), Aval::new(DType::U32, [3])];
    let (program, ()) = trace(avals, Loc::UNKNOWN, |x| Ok((vec![x[0].take(&x[1], 0)], ()))).unwrap();
    let names: Vec<&str> = program.jaxpr.eqns.iter().map(|eqn| eqn.op.name()).collect();
    assert_eq!(names, ["convert_element_type", "expand_dims", "gather"]);
}

#[test]
fn traced_and_failed_tensors_print_what_they_are() {
    let (_, text) =
        trace([Aval::new(DType::F32, [3])], Loc::UNKNOWN, |x| Ok((vec![], format!("{0} {0:?}", x[0])))).unwrap();
    assert_eq!(text, "Traced<f32[3]> Traced<f32[3]>");
}

#[test]
fn the_error_of_a_staged_operation_has_the_users_line() {
    let line = line!() + 2;
    let result =
        trace([Aval::new(DType::F32, [3])], Loc::UNKNOWN, |x| Ok((vec![x[0].layer_norm(1, 1e-5, None, None)], ())));
    let error = result.err().unwrap().to_string();
    let expected = "layer_norm: axis 1 is out of range for f32[3], which has 1 dimension\n  at ";
    assert!(error.starts_with(expected) && error.contains(&format!("{}:{line}:", file!())), "{error}");
}

#[test]
fn every_equation_of_a_method_has_the_users_line() {
    let line = line!() + 2;
    let (program, ()) = trace([Aval::new(DType::F32, [2, 3])], Loc::UNKNOWN, |x| {
        Ok((vec![x[0].layer_norm(1, 1e-5, None, None).softmax(0).gelu()], ()))
    })
    .unwrap();
    for eqn in &program.jaxpr.eqns {
        let site = eqn.loc.site.unwrap();
        assert_eq!((site.file(), site.line()), (file!(), line), "{}", eqn.op.name());
    }
}
