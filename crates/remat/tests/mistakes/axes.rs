//! Axes out of range, positive and negative, and given twice.

use remat::ir::CumulativeKind;
use remat::{DType, Tensor};

fn cube() -> Tensor {
    Tensor::zeros([2, 3, 4], DType::F32)
}

#[test]
fn out_of_range() {
    let x = cube();
    mistake!(x.sum(3), "sum: axis 3 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(x.mean(-4), "mean: axis -4 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(x.softmax(3), "softmax: axis 3 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(x.cumsum(7), "cumsum: axis 7 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(
        x.cumulative(CumulativeKind::Max, -5, true),
        "cummax: axis -5 is out of range for f32[2,3,4], which has 3 dimensions",
        1,
        11
    );
    mistake!(x.sort(3), "sort: axis 3 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(x.argsort(-9), "argsort: axis -9 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(x.flip([0, 3]), "flip: axis 3 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(x.swap_axes(0, 3), "swap_axes: axis 3 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(x.take(&Tensor::from(0), 3), "take: axis 3 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(x.dim(3), "dim: axis 3 is out of range for f32[2,3,4], which has 3 dimensions", 0, 16);
    mistake!(Tensor::from(1.0f32).sum(0), "sum: axis 0 is out of range for f32[], which has 0 dimensions", 0, 35);
}

#[test]
fn given_twice() {
    let x = cube();
    mistake!(x.sum([0, 0]), "sum: axis 0 of f32[2,3,4] is given twice", 0, 16);
    mistake!(x.transpose([0, 1, -2]), "transpose: axis -2 of f32[2,3,4] is given twice", 0, 16);
    mistake!(x.expand_dims([1, -4]), "expand_dims: axis -4 of the result is given twice for f32[2,3,4]", 0, 16);
    mistake!(x.diagonal(0, 1, 1), "diagonal: axis 1 of f32[2,3,4] is given twice", 0, 16);
    mistake!(x.dot_general(&x, ([1, 1], [1, 1]), ((), ())), "dot_general: axis 1 of f32[2,3,4] is given twice", 0, 16);
}

#[test]
fn axes_of_new_dimensions() {
    mistake!(
        cube().expand_dims(4),
        "expand_dims: axis 4 is out of range: f32[2,3,4] becomes a tensor of 4 dimensions",
        1,
        16
    );
    mistake!(
        cube().move_axis([0, 1], 0),
        "move_axis: the axes [0, 1] of f32[2,3,4] cannot be moved to the positions [0]",
        1,
        16
    );
    mistake!(
        Tensor::stack(&[cube(), cube()], 4),
        "stack: axis 4 is out of range: f32[2,3,4] becomes a tensor of 4 dimensions",
        1,
        9
    );
    mistake!(
        Tensor::iota([2, 3], 2, DType::I32),
        "iota: axis 2 is out of range for i32[2,3], which has 2 dimensions",
        1,
        9
    );
}
