//! How fast convolutions are, beside what the CPU can do: `cargo bench -p remat-kernels --bench conv`.
//!
//! The layers of ResNet-50 with a batch of 8, and some of few features, in f32 and bf16 and in both orders of dimensions: forward, the gradient of the image and that of the
//! weights. Operations are those of use: padding and the zeros of a dilated image do not count. The columns are those of the
//! bench `matmul`.

#![allow(unsafe_code)]

mod support;

use remat_ir::{Aval, Conv, ConvDims, DType, Shape};
use support::Bench;

const BATCH: usize = 8;

fn main() {
    let bench = Bench::new();
    let orders = [("NCHW", false), ("NHWC", true)];
    for (dtype, (name, features_last)) in [DType::F32, DType::Bf16].into_iter().flat_map(|x| orders.map(|y| (x, y))) {
        println!("\n{name}, {dtype}");
        // Features in and out, size of the image, size and stride of the window.
        for (c, o, size, window, stride) in [
            (3, 64, 224, 7, 2),
            (64, 64, 56, 1, 1),
            (64, 64, 56, 3, 1),
            (64, 256, 56, 1, 1),
            (256, 128, 56, 1, 1),
            (128, 128, 56, 3, 2),
            (128, 128, 28, 3, 1),
            (256, 512, 56, 1, 2),
            (256, 256, 14, 3, 1),
            (1024, 256, 14, 1, 1),
            (512, 512, 7, 3, 1),
            (512, 2048, 7, 1, 1),
            // Few features of images, or of results.
            (3, 64, 224, 3, 1),
            (3, 768, 224, 16, 16),
            (1, 32, 224, 3, 1),
            (64, 3, 128, 3, 1),
        ] {
            layer(&bench, &format!("{name} {dtype}"), dtype, features_last, [c, o, size, window, stride]);
        }
    }
}

fn dims(order: [usize; 4]) -> ConvDims {
    ConvDims { first: order[0], second: order[1], spatial: order[2..].into() }
}

fn swapped(dims: &ConvDims) -> ConvDims {
    ConvDims { first: dims.second, second: dims.first, spatial: dims.spatial.clone() }
}

/// An array with these sizes of its dimensions in the order that `dims` has them.
fn array(dtype: DType, dims: &ConvDims, sizes: [usize; 4]) -> Aval {
    let mut shape = [0; 4];
    for (&d, size) in [dims.first, dims.second].iter().chain(&dims.spatial).zip(sizes) {
        shape[d] = size;
    }
    Aval::new(dtype, shape)
}

fn layer(bench: &Bench, name: &str, dtype: DType, features_last: bool, [c, o, size, window, stride]: [usize; 5]) {
    let image = dims(if features_last { [0, 3, 1, 2] } else { [0, 1, 2, 3] });
    let weights = dims(if features_last { [3, 2, 0, 1] } else { [0, 1, 2, 3] });
    let both = |x: usize| -> Shape { [x, x].as_slice().into() };
    let pad = if window == stride { 0 } else { (window / 2) as i64 };
    let out = size.div_ceil(stride);
    let x = array(dtype, &image, [BATCH, c, size, size]);
    let w = array(dtype, &weights, [o, c, window, window]);
    let y = array(dtype, &image, [BATCH, o, out, out]);
    let forward = Conv {
        strides: both(stride),
        padding: vec![(pad, pad); 2],
        lhs_dilation: both(1),
        rhs_dilation: both(1),
        lhs_dims: image.clone(),
        rhs_dims: weights.clone(),
        out_dims: image.clone(),
        feature_group_count: 1,
        batch_group_count: 1,
        preferred_element_type: dtype,
    };
    // What a window at the last position leaves over.
    let dilated = ((out - 1) * stride + 1) as i64;
    let low = window as i64 - 1 - pad;
    let input = Conv {
        strides: both(1),
        padding: vec![(low, size as i64 + window as i64 - 1 - dilated - low); 2],
        lhs_dilation: both(stride),
        rhs_dims: swapped(&weights),
        ..forward.clone()
    };
    let kernel = Conv {
        strides: both(1),
        padding: vec![(pad, dilated - size as i64 + window as i64 - 1 - pad); 2],
        rhs_dilation: both(stride),
        lhs_dims: swapped(&image),
        rhs_dims: swapped(&image),
        out_dims: swapped(&weights),
        ..forward.clone()
    };
    let operations = 2.0 * (BATCH * out * out * window * window) as f64 * (c * o) as f64;
    for (what, op, ins) in [
        ("forward", forward, [x.clone(), w.clone()]),
        ("gradient of the image", input, [y.clone(), w]),
        ("gradient of the weights", kernel, [x, y]),
    ] {
        let name = format!("{name} {c} to {o}, {size}x{size}, {window}x{window} by {stride}, {what}");
        bench.operation(&name, operations, &op.into(), &ins);
    }
}
