//! Depthwise convolutions and gradients of their weights.

use super::*;
use crate::kernels::conv::depthwise::{self, Depthwise};

/// A convolution with weights of its own for each channel, or the gradient of such weights. The channels are often the last dimension.
fn of_channels(stream: &mut Stream, to: DType) -> (Conv, Vec<usize>, Vec<usize>) {
    let (mut op, image, weights) = random(stream, to);
    let rank = op.strides.len();
    let (channels, images, is_gradient) = (2 + stream.below(40), 1 + stream.below(3), stream.below(2) == 0);
    let spatial = |dims: &ConvDims, shape: &[usize]| -> Vec<usize> { dims.spatial.iter().map(|&d| shape[d]).collect() };
    let (of_image, of_weights) = (spatial(&op.lhs_dims, &image), spatial(&op.rhs_dims, &weights));
    if stream.below(3) > 0 {
        let last = |first: usize| {
            let spatial = (0..rank).map(|d| (first + 1 + d) % (rank + 1)).collect();
            ConvDims { first, second: rank + 1, spatial }
        };
        [op.lhs_dims, op.out_dims] = [stream.below(rank + 1), stream.below(rank + 1)].map(last);
    }
    let place = |dims: &ConvDims, first: usize, second: usize, spatial: &[usize]| {
        let mut shape = vec![0; rank + 2];
        [shape[dims.first], shape[dims.second]] = [first, second];
        dims.spatial.iter().zip(spatial).for_each(|(&d, &size)| shape[d] = size);
        shape
    };
    let image = place(&op.lhs_dims, images, channels, &of_image);
    let weights = place(&op.rhs_dims, channels, if is_gradient { images } else { 1 }, &of_weights);
    (op.feature_group_count, op.batch_group_count) = if is_gradient { (1, channels) } else { (channels, 1) };
    if is_gradient {
        std::mem::swap(&mut op.lhs_dims.first, &mut op.lhs_dims.second);
    }
    (op, image, weights)
}

#[test]
fn depthwise_convolutions_agree_with_the_evaluator() {
    let depthwise = agree_where_taken(900, &mut Stream::new(17), of_channels, |to| match to {
        DType::F32 => |op, ins, out| Some(Box::new(Depthwise::<f32>::new(depthwise::SMALL, op, ins, out)?)),
        _ => |op, ins, out| Some(Box::new(Depthwise::<f64>::new(depthwise::SMALL, op, ins, out)?)),
    });
    assert!(depthwise > 200, "{depthwise}");
}

#[test]
fn convolutions_that_are_nearly_depthwise_are_not_taken() {
    let taken = |op: &Conv, image: [usize; 4], weights: [usize; 4]| {
        let ins = [Aval::new(DType::F32, image), Aval::new(DType::F32, weights)];
        let (out, layouts) =
            (op.infer(&ins).expect("they fit").remove(0), [Layout::from(&ins[0]), Layout::from(&ins[1])]);
        let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
        agree(op, &plain(DType::F32, &image, 1), &plain(DType::F32, &weights, 2));
        Depthwise::<f32>::applies(depthwise::SMALL, op, operands, &out)
    };
    let forward = |groups: usize| Conv { feature_group_count: groups, ..of_rank(2, DType::F32) };
    assert!(taken(&forward(16), [2, 16, 5, 5], [16, 1, 3, 3]));
    // Two outputs of a group, and two inputs.
    assert!(!taken(&forward(16), [2, 16, 5, 5], [32, 1, 3, 3]));
    assert!(!taken(&forward(8), [2, 16, 5, 5], [8, 2, 3, 3]));
    let of_batches = |groups: usize| Conv { batch_group_count: groups, ..of_rank(2, DType::F32) };
    assert!(taken(&of_batches(16), [16, 3, 5, 5], [16, 3, 3, 3]));
    // Two images of a group, and two outputs.
    assert!(!taken(&of_batches(16), [32, 3, 5, 5], [16, 3, 3, 3]));
    assert!(!taken(&of_batches(16), [16, 3, 5, 5], [32, 3, 3, 3]));
    assert!(!taken(&forward(1), [2, 1, 5, 5], [1, 1, 3, 3]));
}

#[test]
fn depthwise_convolutions_of_sounds_and_wide_images_agree_with_the_evaluator() {
    let last = |rank: usize| {
        let dims: Vec<usize> = [0, rank + 1].into_iter().chain(1..=rank).collect();
        Conv { lhs_dims: order(&dims), out_dims: order(&dims), ..of_rank(rank, DType::F32) }
    };
    let check = |op: &Conv, image: &[usize], weights: &[usize]| {
        let ins = [Aval::new(DType::F32, image.to_vec()), Aval::new(DType::F32, weights.to_vec())];
        let (out, layouts) =
            (op.infer(&ins).expect("they fit").remove(0), [Layout::from(&ins[0]), Layout::from(&ins[1])]);
        let operands = [(DType::F32, &layouts[0]), (DType::F32, &layouts[1])];
        assert!(Depthwise::<f32>::applies(depthwise::SIZES, op, operands, &out), "{image:?}");
        agree(op, &plain(DType::F32, image, 1), &plain(DType::F32, weights, 2));
    };
    // Longer than the memory of a task.
    let sound = Conv { feature_group_count: 40, padding: vec![(3, 0)], ..last(1) };
    check(&sound, &[1, 9000, 40], &[40, 1, 4]);
    check(&Conv { strides: [2].as_slice().into(), ..sound.clone() }, &[2, 3000, 40], &[40, 1, 4]);
    check(&Conv { feature_group_count: 64, ..last(2) }, &[1, 5, 1300, 64], &[64, 1, 3, 3]);
    // An element of the image for each of so many positions that strides wrap.
    let huge =
        Conv { lhs_dilation: [1 << 62].as_slice().into(), padding: vec![(63, 63)], feature_group_count: 64, ..last(1) };
    agree(&huge, &plain(DType::F32, &[1, 1, 64], 1), &plain(DType::F32, &[64, 1, 64], 2));
}

#[test]
fn no_number_and_infinity_go_where_the_evaluator_has_them_in_depthwise_convolutions() {
    let special = |shape: &[usize], seed| {
        filled(DType::F32, shape, seed, |stream| {
            let x = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].get(stream.below(900)).copied();
            Literal::from_f64(DType::F32, x.unwrap_or(1.0))
        })
    };
    for (groups, batches, image, weights) in
        [(24, 1, [2, 24, 9, 9], [24, 1, 3, 3]), (1, 24, [24, 3, 9, 9], [24, 3, 7, 7])]
    {
        let padding = vec![(1, 1); 2];
        let op = Conv { feature_group_count: groups, batch_group_count: batches, padding, ..of_rank(2, DType::F32) };
        agree(&op, &special(&image, 1), &plain(DType::F32, &weights, 2));
        agree(&op, &plain(DType::F32, &image, 1), &special(&weights, 2));
    }
}

/// Forward, the gradient of the image and that of the weights, of the sizes of networks, in every layout and dtype.
#[test]
fn depthwise_convolutions_of_networks_agree_with_the_evaluator() {
    let mut stream = Stream::new(19);
    for (dtype, out) in [
        (DType::F32, DType::F32),
        (DType::Bf16, DType::Bf16),
        (DType::F16, DType::F16),
        (DType::Bf16, DType::F32),
        (DType::F64, DType::F64),
    ] {
        for ([images, size, channels], window, stride) in
            [([2, 23, 33], 3, 1), ([1, 24, 96], 3, 2), ([3, 7, 130], 7, 1), ([2, 14, 24], 5, 2)]
        {
            let swapped = |d: &ConvDims| ConvDims { first: d.second, second: d.first, spatial: d.spatial.clone() };
            // Channels last, with the weights of frameworks, and first.
            for [dims, rhs_dims] in
                [[[0, 3, 1, 2], [3, 2, 0, 1]], [[0, 3, 1, 2], [0, 1, 2, 3]], [[0, 1, 2, 3], [0, 1, 2, 3]]]
            {
                let [dims, rhs_dims] = [order(&dims), order(&rhs_dims)];
                let pad = (window / 2) as i64;
                let forward = Conv {
                    strides: Shape::from_elem(stride, 2),
                    padding: vec![(pad, pad); 2],
                    lhs_dims: dims.clone(),
                    rhs_dims: rhs_dims.clone(),
                    out_dims: dims.clone(),
                    feature_group_count: channels,
                    ..of_rank(2, out)
                };
                let mut of_weights = [0; 4];
                (of_weights[rhs_dims.first], of_weights[rhs_dims.second]) = (channels, 1);
                rhs_dims.spatial.iter().for_each(|&d| of_weights[d] = window);
                let down = (size - 1) / stride + 1;
                // What the stride leaves over at the end.
                let over = (size - 1) as i64 - ((down - 1) * stride) as i64;
                let low = window as i64 - 1 - pad;
                let gradient = Conv {
                    strides: Shape::from_elem(1, 2),
                    padding: vec![(low, low + over); 2],
                    lhs_dilation: Shape::from_elem(stride, 2),
                    ..forward.clone()
                };
                let of_kernel = Conv {
                    strides: Shape::from_elem(1, 2),
                    padding: vec![(pad, pad - over); 2],
                    rhs_dilation: Shape::from_elem(stride, 2),
                    lhs_dims: swapped(&dims),
                    rhs_dims: swapped(&dims),
                    out_dims: swapped(&rhs_dims),
                    feature_group_count: 1,
                    batch_group_count: channels,
                    ..forward.clone()
                };
                let shape = |size: usize| {
                    let mut shape = [images; 4];
                    shape[dims.second] = channels;
                    dims.spatial.iter().for_each(|&d| shape[d] = size);
                    shape
                };
                let (image, small) = (shape(size), shape(down));
                for (op, ins) in
                    [(forward, [image, of_weights]), (gradient, [small, of_weights]), (of_kernel, [image, small])]
                {
                    let ins = ins.map(|shape| Aval::new(dtype, shape));
                    let outs = op.infer(&ins).expect("they fit");
                    let layouts = [Layout::from(&ins[0]), Layout::from(&ins[1])];
                    let operands = [(dtype, &layouts[0]), (dtype, &layouts[1])];
                    let is_taken = match dtype {
                        DType::F64 => Depthwise::<f64>::applies(depthwise::SIZES, &op, operands, &outs[0]),
                        _ => Depthwise::<f32>::applies(depthwise::SIZES, &op, operands, &outs[0]),
                    };
                    assert!(is_taken, "{op:?} of {ins:?}");
                    agree_within(100.0, &op, &plain(dtype, &ins[0].shape, 1), &plain(dtype, &ins[1].shape, 2));
                    check_views_of(&op, ins, &mut stream);
                }
            }
        }
    }
}
