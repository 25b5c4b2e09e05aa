//! Indices out of range, indices of the wrong kind, and updates that do not fit.

use remat::index::{Ellipsis, step};
use remat::{DType, Tensor};

fn matrix() -> Tensor {
    Tensor::arange(0..6).reshape([2, 3])
}

#[test]
fn numbers_and_ranges() {
    let x = matrix();
    mistake!(x.index(2), "index: index 2 is out of range for dimension 0 of i32[2,3], of size 2", 0, 16);
    mistake!(x.index((0, -4)), "index: index -4 is out of range for dimension 1 of i32[2,3], of size 3", 0, 16);
    mistake!(x.index((.., 1..5)), "index: range 1..5 is out of range for dimension 1 of i32[2,3], of size 3", 0, 16);
    let (start, end) = (2, 1);
    mistake!(x.index((.., start..end)), "index: range 2..1 of dimension 1 of i32[2,3] ends before it starts", 0, 16);
    mistake!(x.index(step(.., 0)), "index: the step of dimension 0 of i32[2,3] is 0", 0, 16);
    mistake!(x.index((0, 0, 0)), "index: 3 indices are given for i32[2,3], which has 2 dimensions", 0, 16);
    mistake!(x.index((Ellipsis, 0, Ellipsis)), "index: an index of i32[2,3] has 2 ellipses", 0, 16);
}

#[test]
fn tensors_of_indices() {
    let x = matrix();
    mistake!(
        x.index(Tensor::new([0.0f32])),
        "index: an index tensor holds integers, not f32[1]; convert it with .to_dtype(DType::I32)",
        1,
        11
    );
    mistake!(
        x.index(x.gt(1)),
        "index: an index tensor holds integers, not bool[2,3]; choose elements by a mask with `mask.select(x, other)`",
        1,
        11
    );
    mistake!(
        x.index((&Tensor::new([0, 1]), &Tensor::new([0, 1, 2]))),
        "index: i32[2] and i32[3] do not broadcast: dimension -1 has size 2 and 3",
        1,
        11
    );
    mistake!(
        x.take(&Tensor::new([0.5f32]), 0),
        "take: the indices must be integers, not f32[1]; convert them with .to_dtype(DType::I32)",
        1,
        11
    );
    mistake!(
        x.take_along_axis(&Tensor::new([0]), 0),
        "take_along_axis: the ranks of i32[2,3] and of the indices i32[1] differ",
        1,
        11
    );
    mistake!(
        x.take_along_axis(&Tensor::zeros([3, 2], DType::I32), 1),
        "take_along_axis: i32[2,3] and the indices i32[3,2] do not broadcast: dimension 0 has size 2 and 3",
        1,
        11
    );
}

#[test]
fn dynamic_slices() {
    let x = matrix();
    mistake!(
        x.dynamic_slice(0, [1, 1]),
        "dynamic_slice: takes one start for each dimension of i32[2,3] and got 1",
        1,
        11
    );
    mistake!(
        x.dynamic_slice((0, 0), [1, 4]),
        "dynamic_slice: slice size 4 is more than dimension 1 of i32[2,3]",
        1,
        11
    );
    mistake!(
        x.dynamic_slice((0, 0), [1]),
        "dynamic_slice: slice_sizes has 1 entries and i32[2,3] has 2 dimensions",
        1,
        11
    );
    mistake!(
        x.dynamic_slice((0, &Tensor::new([0, 1])), [1, 1]),
        "dynamic_slice: a start is a scalar, not i32[2]",
        1,
        11
    );
    mistake!(
        x.dynamic_slice((0, &Tensor::from(0.5f32)), [1, 1]),
        "dynamic_slice: a start is an integer, not f32[]; convert it with .to_dtype(DType::I32)",
        1,
        11
    );
    mistake!(
        x.dynamic_update_slice(&Tensor::zeros([3, 3], DType::I32), (0, 0)),
        "dynamic_update_slice: the update i32[3,3] is larger than i32[2,3] in dimension 0",
        1,
        11
    );
    mistake!(
        x.dynamic_update_slice(&Tensor::zeros([3], DType::I32), (0, 0)),
        "dynamic_update_slice: ranks of i32[2,3] and of the update i32[3] differ",
        1,
        11
    );
}

#[test]
fn updates() {
    let x = matrix();
    mistake!(x.at(0).set(Tensor::new([1, 2])), "at: the values i32[2] do not broadcast to the indexed i32[3]", 0, 22);
    mistake!(
        x.at(Tensor::new([0, 1])).add(Tensor::new([1, 2])),
        "at: the values i32[2] do not broadcast to the indexed i32[2,3]",
        1,
        35
    );
    mistake!(x.at(5).set(0), "at: index 5 is out of range for dimension 0 of i32[2,3], of size 2", 0, 22);
    mistake!(
        x.at(0).set(0.5),
        "at: the scalar 0.5 is a float and the tensor holds i32; convert it with .to_dtype(DType::F32)",
        1,
        17
    );
    mistake!(
        Tensor::new([true]).at(0).add(true),
        "add: takes integers and floats, not bool[1]; convert it with .to_dtype(DType::I32)",
        1,
        35
    );
}
