//! The exact message, and the user's own line, of mistakes with tensors.

use std::panic::Location;

use remat::index::{Ellipsis, span, step};
use remat::{ConvConfig, DType, ErrorKind, Padding, PoolConfig, Result, Tensor, einsum, optimization_barrier};

/// Checks the message of the error of a failed tensor, or of a `Result`, and that its location is in the calling statement.
#[track_caller]
fn fails(made: impl Fails, message: &str) {
    let error = made.error_of().expect("an error");
    let (site, here) = (error.loc().expect("a location").site.expect("a location"), Location::caller());
    assert_eq!(error.to_string(), format!("{message}\n  at {site}"));
    assert_eq!(site.file(), here.file());
    assert!((here.line()..here.line() + 8).contains(&site.line()), "{site} is not at {here}");
}

trait Fails {
    fn error_of(&self) -> Option<remat::Error>;
}

impl Fails for Tensor {
    fn error_of(&self) -> Option<remat::Error> {
        self.error().cloned()
    }
}

impl<T> Fails for Result<T> {
    fn error_of(&self) -> Option<remat::Error> {
        self.as_ref().err().cloned()
    }
}

fn floats(dims: &[usize]) -> Tensor {
    Tensor::zeros(dims, DType::F32)
}

fn ints(dims: &[usize]) -> Tensor {
    Tensor::zeros(dims, DType::I32)
}

#[test]
fn the_line_is_that_of_the_call() {
    let line = line!() + 1;
    let failed = floats(&[2]).add(floats(&[3]));
    let expected =
        format!("add: f32[2] and f32[3] do not broadcast: dimension -1 has size 2 and 3\n  at {}:{line}:31", file!());
    assert_eq!(failed.error().unwrap().to_string(), expected);
    let line = line!() + 2;
    // An operator, and a method of several operations.
    let failed = [floats(&[2]) * floats(&[3]), floats(&[]).softmax(0), -ints(&[2]).to_dtype(DType::U8)];
    for tensor in failed {
        let site = tensor.error().unwrap().loc().unwrap().site.unwrap();
        assert_eq!((site.file(), site.line()), (file!(), line));
    }
}

#[test]
fn an_error_goes_through_later_operations_unchanged() {
    let first = floats(&[2]).add(floats(&[3]));
    let last = (&first * 2.0).softmax(0).matmul(&floats(&[2])).index(0).sum(..).at(0).set(1);
    assert_eq!(last.error().unwrap().to_string(), first.error().unwrap().to_string());
    assert_eq!(last.to_vec::<f32>().unwrap_err().to_string(), first.error().unwrap().to_string());
    assert_eq!(first.split(2, 0)[1].error().unwrap().to_string(), first.error().unwrap().to_string());
}

#[test]
fn operands_that_do_not_fit() {
    let (x, y) = (floats(&[2, 3]), ints(&[3]));
    fails(&x + &y, "add: f32[2,3] and i32[3] have different dtypes; convert one with .to_dtype(DType::F32)");
    fails(
        x.maximum(ints(&[])),
        "max: f32[2,3] and i32[] have different dtypes; convert one with .to_dtype(DType::F32)",
    );
    fails(&x - floats(&[2]), "sub: f32[2,3] and f32[2] do not broadcast: dimension -1 has size 3 and 2");
    fails(
        floats(&[4, 1, 3]) / floats(&[5, 2, 1]),
        "div: f32[4,1,3] and f32[5,2,1] do not broadcast: dimension -3 has size 4 and 5",
    );
    fails(&y * 2.5, "mul: the scalar 2.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)");
    fails(&y + 2.0, "add: the scalar 2.0 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)");
    fails(&x + true, "add: the scalar true is a bool and the tensor holds f32; convert it with .to_dtype(DType::Bool)");
    fails(
        x.gt(0) + 1,
        "add: the scalar 1 is a number and the tensor holds bool; convert it with .to_dtype(DType::I32)",
    );
    fails(y.to_dtype(DType::U8) - 300, "sub: the scalar 300 is out of range for u8");
    fails(y.to_dtype(DType::U32) * -1, "mul: the scalar -1 is out of range for u32");
    fails(x.to_dtype(DType::F16) * 1e9, "mul: the scalar 1000000000.0 is out of range for f16");
    fails(1 - x.to_dtype(DType::F16) * 70000, "mul: the scalar 70000 is out of range for f16");
    fails(y.sin(), "sin: takes floats, not i32[3]; convert it with .to_dtype(DType::F32)");
    fails(
        -y.to_dtype(DType::U8),
        "neg: takes signed integers and floats, not u8[3]; convert it with .to_dtype(DType::I32)",
    );
    fails(!&x, "not: takes bools and integers, not f32[2,3]; convert it with .to_dtype(DType::I32)");
    fails(&x & &x, "and: takes bools and integers, not f32[2,3]; convert it with .to_dtype(DType::I32)");
    fails(&x << 1, "shift_left: takes integers, not f32[2,3]; convert it with .to_dtype(DType::I32)");
    fails(y.pow(0.5), "pow: the scalar 0.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)");
    fails(y.pow(-1), "integer_pow: takes floats, not i32[3]; convert it with .to_dtype(DType::F32)");
    fails(y.select(&x, &x), "select: the mask must be bool, not i32[3]; compare it first, as in `x.ne(0)`");
    fails(y.gt(0).select(1, 2), "select: both cases are numbers: make one a tensor, which gives the dtype");
    fails(
        y.gt(0).select(&x, &y),
        "select: f32[2,3] and i32[3] have different dtypes; convert one with .to_dtype(DType::F32)",
    );
    fails(
        x.gt(0).select(&x, floats(&[4])),
        "select: bool[2,3] and f32[4] do not broadcast: dimension -1 has size 3 and 4",
    );
    fails(x.clamp(0, &y), "clamp: f32[2,3] and i32[3] have different dtypes; convert one with .to_dtype(DType::F32)");
    fails(
        y.clamp(0, 0.5),
        "clamp: the scalar 0.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
    );
    fails(
        x.gt(0).bitcast(DType::U8),
        "bitcast_convert_type: bool[2,3] and u8 do not have the same bits: a bool has no defined ones",
    );
    assert_eq!((&x + &y).error().unwrap().kind(), ErrorKind::DType);
    assert_eq!((&x + floats(&[2])).error().unwrap().kind(), ErrorKind::Shape);
}

#[test]
fn tensors_that_cannot_be_made() {
    fails(Tensor::new(vec![vec![1, 2], vec![3]]), "new: element 0 has shape [2] and element 1 has shape [1]");
    fails(Tensor::from(vec![vec![1], vec![]]), "new: element 0 has shape [1] and element 1 has shape [0]");
    fails(Tensor::from_slice(&[1, 2, 3], [2, 2]), "from_slice: 3 elements cannot fill i32[2,2]");
    fails(Tensor::from_vec(vec![1.0f32], [1, -1]), "from_vec: the size -1 is negative");
    fails(Tensor::zeros([2, -3], DType::F32), "zeros: the size -3 is negative");
    fails(
        Tensor::shape_only([2, 1usize << 62], DType::F32),
        "shape_only: f32[2,4611686018427387904] has more than 2^63 elements",
    );
    fails(
        Tensor::zeros([1usize << 62, 9], DType::F32),
        "broadcast_in_dim: the result f32[4611686018427387904,9] has more than 2^63 elements",
    );
    fails(
        Tensor::full([2], 0.5, DType::I32),
        "full: the scalar 0.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
    );
    fails(
        Tensor::full([2], floats(&[]), DType::I32),
        "full: the value is f32[]; convert it with .to_dtype(DType::I32)",
    );
    fails(Tensor::full([2], floats(&[3]), DType::F32), "broadcast_to: f32[3] does not broadcast to f32[2]");
    fails(Tensor::iota([2], 1, DType::I32), "iota: axis 1 is out of range for i32[2], which has 1 dimension");
    fails(Tensor::iota([2], 0, DType::Bool), "iota: takes a numeric dtype and got bool");
    fails(Tensor::arange_step(0, 5, 0), "arange_step: the step is 0");
    fails(Tensor::arange_step(0.0, 5.0, f32::NAN), "arange_step: start, end and step must be finite");
    fails(Tensor::arange(0.0..f32::INFINITY), "arange: start, end and step must be finite");
    fails(Tensor::linspace(0.0, 1.0, 3, DType::I32), "linspace: takes a float dtype and got i32");
    fails(floats(&[3]).tril(0), "tril: takes at least two dimensions and got f32[3]");
    fails(floats(&[1, 2, 3]).diag(0), "diag: takes a vector or a matrix and got f32[1,2,3]");
}

#[test]
fn axes_and_shapes_that_do_not_fit() {
    let x = floats(&[2, 3]);
    fails(x.sum(2), "sum: axis 2 is out of range for f32[2,3], which has 2 dimensions");
    fails(x.mean([0, -3]), "mean: axis -3 is out of range for f32[2,3], which has 2 dimensions");
    fails(x.max([1, -1]), "max: axis -1 of f32[2,3] is given twice");
    fails(floats(&[]).sum(0), "sum: axis 0 is out of range for f32[], which has 0 dimensions");
    fails(floats(&[2, 0]).max(1), "max: dimension 1 of f32[2,0] is empty: it has no element to choose");
    fails(floats(&[0]).argmin(0), "argmin: dimension 0 of f32[0] is empty");
    fails(x.argmax(()), "argmax: takes one axis of f32[2,3], or `..` for all, and got 0");
    fails(ints(&[3]).mean(0), "mean: takes floats, not i32[3]; convert it with .to_dtype(DType::F32)");
    fails(
        x.gt(0).sum(0),
        "reduce_sum: takes integers and floats, not bool[2,3]; convert it with .to_dtype(DType::I32)",
    );
    fails(ints(&[3]).softmax(0), "softmax: takes floats, not i32[3]; convert it with .to_dtype(DType::F32)");
    fails(x.log_softmax(5), "log_softmax: axis 5 is out of range for f32[2,3], which has 2 dimensions");
    fails(x.cumsum(2), "cumsum: axis 2 is out of range for f32[2,3], which has 2 dimensions");
    fails(x.sort(-3), "sort: axis -3 is out of range for f32[2,3], which has 2 dimensions");
    fails(x.top_k(4).0, "top_k: k is 4, and the last dimension of f32[2,3] has size 3");
    fails(x.reshape([4, 2]), "reshape: f32[2,3] has 6 elements and f32[4,2] has 8");
    fails(x.reshape([4, -1]), "reshape: f32[2,3] has 6 elements, which [4, -1] does not divide");
    fails(x.reshape([-1, -1]), "reshape: only one size of [-1, -1] can be -1, for f32[2,3]");
    fails(x.reshape([-2, 3]), "reshape: the size -2 is negative, for f32[2,3]");
    fails(floats(&[0]).reshape([0, -1]), "reshape: f32[0] has 0 elements, which [0, -1] does not divide");
    fails(x.transpose([0]), "transpose: takes one axis for each dimension of f32[2,3] and got 1");
    fails(floats(&[3]).t(), "t: takes at least two dimensions and got f32[3]");
    fails(x.swap_axes(0, 2), "swap_axes: axis 2 is out of range for f32[2,3], which has 2 dimensions");
    fails(x.move_axis([0, 1], 0), "move_axis: the axes [0, 1] of f32[2,3] cannot be moved to the positions [0]");
    fails(x.squeeze(0), "squeeze: dimension 0 of f32[2,3] has size 2 and not 1");
    fails(x.expand_dims(3), "expand_dims: axis 3 is out of range: f32[2,3] becomes a tensor of 3 dimensions");
    fails(x.expand_dims([0, -4]), "expand_dims: axis -4 of the result is given twice for f32[2,3]");
    fails(x.broadcast_to([3]), "broadcast_to: f32[2,3] does not broadcast to f32[3]");
    fails(x.broadcast_to([2, 4]), "broadcast_to: f32[2,3] does not broadcast to f32[2,4]");
    fails(
        Tensor::concatenate(&[&x, &floats(&[3, 2])], 0),
        "concatenate: sizes of f32[2,3] and f32[3,2] differ in dimension 1",
    );
    fails(Tensor::concatenate(&[] as &[Tensor], 0), "concatenate: takes at least one tensor");
    fails(Tensor::stack(&[&x, &floats(&[3])], 0), "stack: f32[2,3] and f32[3] have different shapes");
    fails(Tensor::stack(&[&x, &x], 3), "stack: axis 3 is out of range: f32[2,3] becomes a tensor of 3 dimensions");
    fails(
        x.split(2, 1)[0].clone(),
        "split: dimension 1 of f32[2,3] does not split into 2 equal parts; `chunk` and `split_at` make unequal ones",
    );
    fails(x.split_at(&[2, 1], 1)[2].clone(), "split_at: 2..1 is not a range of dimension 1 of f32[2,3]");
    fails(x.chunk(0, 1)[0].clone(), "chunk: f32[2,3] cannot be cut into 0 parts");
    fails(x.pad([(1, 1)], 0), "pad: padding_config has 1 entries and f32[2,3] has 2 dimensions");
    fails(x.pad([(-1, -2), (0, 0)], 0), "pad: padding (-1, -2, 0) leaves dimension 0 of f32[2,3] with size -1");
    fails(x.diagonal(0, 1, 1), "diagonal: axis 1 of f32[2,3] is given twice");
    fails(x.dim(2), "dim: axis 2 is out of range for f32[2,3], which has 2 dimensions");
    fails(
        x.layer_norm(-1, 1e-5, Some(&floats(&[2])), None),
        "mul: f32[2,3] and f32[2] do not broadcast: dimension -1 has size 3 and 2",
    );
    fails(x.normalize(0, -1.0), "normalize: eps is -1 and must be at least 0");
}

#[test]
fn indices_out_of_range() {
    let x = floats(&[2, 3]);
    fails(x.index((0, 3)), "index: index 3 is out of range for dimension 1 of f32[2,3], of size 3");
    fails(x.index((-3, 0)), "index: index -3 is out of range for dimension 0 of f32[2,3], of size 2");
    fails(x.index((0, 0, 0)), "index: 3 indices are given for f32[2,3], which has 2 dimensions");
    fails(x.index((.., 1..4)), "index: range 1..4 is out of range for dimension 1 of f32[2,3], of size 3");
    fails(x.index((.., 4..)), "index: range 4.. is out of range for dimension 1 of f32[2,3], of size 3");
    fails(x.index((.., span(2, -2))), "index: range 2..-2 of dimension 1 of f32[2,3] ends before it starts");
    fails(x.index(step(.., 0)), "index: the step of dimension 0 of f32[2,3] is 0");
    fails(x.index((Ellipsis, Ellipsis)), "index: an index of f32[2,3] has 2 ellipses");
    fails(x.index(&x), "index: an index tensor holds integers, not f32[2,3]; convert it with .to_dtype(DType::I32)");
    fails(
        x.index(x.gt(0)),
        "index: an index tensor holds integers, not bool[2,3]; choose elements by a mask with `mask.select(x, other)`",
    );
    fails(
        x.index((ints(&[2]), ints(&[3]))),
        "index: i32[2] and i32[3] do not broadcast: dimension -1 has size 2 and 3",
    );
    fails(x.at(2).set(0), "at: index 2 is out of range for dimension 0 of f32[2,3], of size 2");
    fails(x.at(0).set(floats(&[2])), "at: the values f32[2] do not broadcast to the indexed f32[3]");
    fails(
        x.at(0).add(ints(&[3])),
        "at: f32[2,3] and i32[3] have different dtypes; convert one with .to_dtype(DType::F32)",
    );
    fails(
        ints(&[2]).at(0).set(0.5),
        "at: the scalar 0.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
    );
    fails(x.take(&ints(&[]), 2), "take: axis 2 is out of range for f32[2,3], which has 2 dimensions");
    fails(
        x.take(&floats(&[]), 0),
        "take: the indices must be integers, not f32[]; convert them with .to_dtype(DType::I32)",
    );
    fails(x.take_along_axis(&ints(&[2]), 0), "take_along_axis: the ranks of f32[2,3] and of the indices i32[2] differ");
    fails(
        x.take_along_axis(&ints(&[3, 1]), 1),
        "take_along_axis: f32[2,3] and the indices i32[3,1] do not broadcast: dimension 0 has size 2 and 3",
    );
    fails(x.dynamic_slice(0, [1, 1]), "dynamic_slice: takes one start for each dimension of f32[2,3] and got 1");
    fails(x.dynamic_slice((0, 0), [1, 4]), "dynamic_slice: slice size 4 is more than dimension 1 of f32[2,3]");
    fails(
        x.dynamic_slice((0, 0.5), [1, 1]),
        "dynamic_slice: the scalar 0.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
    );
    fails(
        x.dynamic_update_slice(&floats(&[3, 1]), (0, 0)),
        "dynamic_update_slice: the update f32[3,1] is larger than f32[2,3] in dimension 0",
    );
    fails(x.dynamic_index(0, 2), "dynamic_index: axis 2 is out of range for f32[2,3], which has 2 dimensions");
    fails(x.one_hot(3, DType::F32), "one_hot: takes integers, not f32[2,3]; convert it with .to_dtype(DType::I32)");
}

#[test]
fn products_that_do_not_fit() {
    let (x, y) = (floats(&[2, 3]), floats(&[2, 4]));
    let f = |dims: &[usize]| floats(dims);
    fails(x.matmul(&y), "matmul: the inner sizes of f32[2,3] and f32[2,4] differ: 3 and 2");
    fails(x.matmul(&f(&[])), "matmul: takes vectors and matrices, not the scalar f32[]; multiply by it with `*`");
    fails(
        x.matmul(&ints(&[3])),
        "matmul: f32[2,3] and i32[3] have different dtypes; convert one with .to_dtype(DType::F32)",
    );
    fails(f(&[2, 1, 3]).matmul(&f(&[5, 3, 1])), "matmul: f32[2,1,3] and f32[5,3,1] do not broadcast: 2 and 5 matrices");
    fails(x.dot(&f(&[2])), "dot: the inner sizes of f32[2,3] and f32[2] differ: 3 and 2");
    fails(
        x.dot_general(&y, (1, 0), ((), ())),
        "dot_general: contracting dimensions differ: 3 of f32[2,3] and 2 of f32[2,4]",
    );
    fails(x.dot_general_in(&x, (1, 1), (0, 0), DType::I32), "dot_general: products of f32 cannot be summed in i32");
    fails(einsum("ij,jk->ik", &[&x]), "einsum: takes 2 operands and got 1, in \"ij,jk->ik\"");
    fails(einsum("ij,jk->ik", &[&x, &y]), "einsum: 'j' has size 3 in f32[2,3] and 2 in f32[2,4], in \"ij,jk->ik\"");
    fails(einsum("ijk->k", &[&x]), "einsum: \"ijk\" has 3 letters and its operand is f32[2,3], in \"ijk->k\"");
    fails(einsum("ij->k", &[&x]), "einsum: 'k' of the result is in no operand, in \"ij->k\"");
    fails(einsum("ij->ii", &[&x]), "einsum: 'i' occurs twice in the result, in \"ij->ii\"");
    fails(einsum("i1->i", &[&x]), "einsum: '1' is not a letter, in \"i1->i\"");
    fails(einsum("i.j->i", &[&x]), "einsum: '.' is not a letter, in \"i.j->i\"");
    fails(einsum("...j->j", &[&x]), "einsum: the result lacks the \"...\" of the operands, in \"...j->j\"");
    fails(
        einsum("ij,jk", &[&x, &ints(&[3, 1])]),
        "einsum: f32[2,3] and i32[3,1] have different dtypes; convert one with .to_dtype(DType::F32)",
    );
    fails(
        f(&[1, 2, 4]).conv(&f(&[3, 1, 2]), &ConvConfig::default()),
        "conv_general_dilated: input features differ: 2 of f32[1,2,4] and 1 of f32[3,1,2] in 1 groups",
    );
    fails(
        f(&[1, 2, 4]).conv(&x, &ConvConfig::default()),
        "conv: f32[1,2,4] and the kernel f32[2,3] must have the same rank, at least 2",
    );
    fails(
        f(&[1, 1, 4]).conv(&f(&[1, 1, 2]), &ConvConfig { strides: vec![1, 1], ..ConvConfig::default() }),
        "conv: strides is [1, 1] and not 1 positive number",
    );
    fails(
        f(&[1, 1, 4])
            .conv(&f(&[1, 1, 2]), &ConvConfig { layout: Some(["NCH", "OIW", "NCH"]), ..ConvConfig::default() }),
        "conv: the layout \"NCH\" does not have the spatial letters of \"OIW\", each once",
    );
    fails(f(&[1, 4]).max_pool(&PoolConfig::new([2, 2, 2])), "max_pool: a window of 3 dimensions does not fit f32[1,4]");
    fails(
        f(&[1, 4]).avg_pool(&PoolConfig { padding: Padding::Explicit(vec![]), ..PoolConfig::new([2]) }),
        "avg_pool: 0 pairs of padding for 1 spatial dimension",
    );
    fails(
        ints(&[1, 4]).avg_pool(&PoolConfig::new([2])),
        "avg_pool: takes floats, not i32[1,4]; convert it with .to_dtype(DType::F32)",
    );
}

#[test]
fn elements_that_cannot_be_read() {
    let x = Tensor::new([1.5f32, 2.5]);
    fails(x.to_vec::<f64>(), "to_vec: f32[2] cannot be read as f64; convert it first with .to_dtype(DType::F64)");
    fails(x.item::<f32>(), "item: takes a tensor of one element and got f32[2]; `to_vec` reads several");
    fails(x.allclose(&ints(&[2]), 0.0, 0.0), "allclose: f32[2] and i32[2] cannot be compared");
}

#[test]
fn every_result_of_a_failed_operation_fails() {
    let (x, failed) = (floats(&[2]), floats(&[2]) + floats(&[3]));
    let held = optimization_barrier(&[&x, &failed]);
    assert!(held.iter().all(|t| t.error().is_some()));
    let sorted = Tensor::sort_together(&[&x, &floats(&[3])], 0, 1);
    let expected = "sort: f32[2] and f32[3] have different shapes";
    assert!(sorted.iter().all(|t| t.error().unwrap().to_string().starts_with(expected)));
}
