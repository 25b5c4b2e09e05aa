use remat_ir::{Array, Conv, ConvDims, DType, bf16};

use crate::support::{Stream, array, aval, fails, floats, indices, of_dtype, position, run, values};

/// Dimensions in the order first, second, spatial.
fn in_order(rank: usize) -> ConvDims {
    ConvDims { first: 0, second: 1, spatial: (2..rank).collect() }
}

/// A plain convolution of this many spatial dimensions.
fn plain(spatial: usize, dtype: DType) -> Conv {
    Conv {
        strides: (0..spatial).map(|_| 1).collect(),
        padding: vec![(0, 0); spatial],
        lhs_dilation: (0..spatial).map(|_| 1).collect(),
        rhs_dilation: (0..spatial).map(|_| 1).collect(),
        lhs_dims: in_order(spatial + 2),
        rhs_dims: in_order(spatial + 2),
        out_dims: in_order(spatial + 2),
        feature_group_count: 1,
        batch_group_count: 1,
        preferred_element_type: dtype,
    }
}

/// The element of `x` at these first, second and spatial coordinates.
fn at(x: &Array, data: &[f64], dims: &ConvDims, first: usize, second: usize, spatial: &[usize]) -> f64 {
    let mut index = vec![0; x.shape().len()];
    index[dims.first] = first;
    index[dims.second] = second;
    dims.spatial.iter().zip(spatial).for_each(|(&d, &i)| index[d] = i);
    data[position(x.shape(), &index)]
}

/// The definition, one product at a time, for an output of this shape.
fn defined(op: &Conv, x: &Array, w: &Array, out: &[usize]) -> Vec<f64> {
    let (xs, ws) = (floats(x), floats(w));
    let spatial = op.strides.len();
    let kernel: Vec<usize> = op.rhs_dims.spatial.iter().map(|&d| w.shape()[d]).collect();
    let features = w.shape()[op.rhs_dims.second];
    let (out_batch, out_features) = (out[op.out_dims.first], out[op.out_dims.second]);
    let mut sums = vec![];
    for index in indices(out) {
        let (n, o) = (index[op.out_dims.first], index[op.out_dims.second]);
        let batch = n + o * op.batch_group_count / out_features * out_batch;
        let first_feature = o * op.feature_group_count / out_features * features;
        let mut sum = 0.0;
        for k in indices(&kernel) {
            let source: Option<Vec<usize>> = (0..spatial)
                .map(|d| {
                    let at = index[op.out_dims.spatial[d]] * op.strides[d] + k[d] * op.rhs_dilation[d];
                    let at = at as i64 - op.padding[d].0;
                    let dilation = op.lhs_dilation[d] as i64;
                    let inside = at >= 0 && at / dilation < x.shape()[op.lhs_dims.spatial[d]] as i64;
                    (inside && at % dilation == 0).then_some((at / dilation) as usize)
                })
                .collect();
            let Some(source) = source else { continue };
            for i in 0..features {
                sum += at(x, &xs, &op.lhs_dims, batch, first_feature + i, &source) * at(w, &ws, &op.rhs_dims, o, i, &k);
            }
        }
        sums.push(sum);
    }
    sums
}

#[test]
fn a_signal_by_hand_in_every_dtype() {
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
        let x = of_dtype(dtype, [1, 2, 3, 4], &[1, 1, 4]);
        let w = of_dtype(dtype, [1, 0, 2], &[1, 1, 3]);
        let conv = |op: Conv| floats(&run(op, &[x.clone(), w.clone()]));
        let base = plain(1, dtype);
        // The kernel is not reversed: 1 * 1 + 2 * 0 + 3 * 2.
        assert_eq!(conv(base.clone()), [7., 10.], "{dtype}");
        assert_eq!(conv(Conv { padding: vec![(1, 1)], ..base.clone() }), [4., 7., 10., 3.]);
        assert_eq!(conv(Conv { padding: vec![(-1, 1)], ..base.clone() }), [10., 3.]);
        assert_eq!(conv(Conv { padding: vec![(1, 1)], strides: [2].as_slice().into(), ..base.clone() }), [4., 10.]);
        let dilated = Conv { lhs_dilation: [2].as_slice().into(), ..base.clone() };
        // 1 0 2 0 3 0 4
        assert_eq!(conv(dilated), [5., 0., 8., 0., 11.]);
        let dilated = Conv { rhs_dilation: [2].as_slice().into(), padding: vec![(2, 1)], ..base };
        // 0 0 1 2 3 4 0 with the kernel 1 . 0 . 2
        assert_eq!(conv(dilated), [6., 8., 1.]);
    }
    let (x, w) = (array([true, false, true], &[1, 1, 3]), array([true, true], &[1, 1, 2]));
    assert_eq!(values::<bool>(plain(1, DType::Bool), &[x.clone(), w.clone()]), [true, true]);
    assert_eq!(values::<i32>(plain(1, DType::I32), &[x, w]), [1, 1]);
}

#[test]
fn groups_by_hand() {
    // Two features, each with its own kernel.
    let x = array([1.0f32, 2.0, 3.0, 10.0, 20.0, 30.0], &[1, 2, 3]);
    let w = array([1.0f32, 1.0, 1.0, -1.0], &[2, 1, 2]);
    let op = Conv { feature_group_count: 2, ..plain(1, DType::F32) };
    assert_eq!(values::<f32>(op, &[x, w]), [3., 5., -10., -10.]);
    // Two parts of the batch, each for its own output feature.
    let x = array([1.0f32, 2.0, 3.0, 10.0, 20.0, 30.0], &[2, 1, 3]);
    let w = array([1.0f32, 1.0, 1.0, -1.0], &[2, 1, 2]);
    let op = Conv { batch_group_count: 2, ..plain(1, DType::F32) };
    let y = run(op, &[x, w]);
    assert_eq!(y.shape(), [1, 2, 2]);
    assert_eq!(floats(&y), [3., 5., -10., -10.]);
}

#[test]
fn every_geometry() {
    let mut stream = Stream::new(5);
    let mut not_empty = 0;
    for round in 0..600 {
        let spatial = stream.below(4);
        let groups = 1 + stream.below(3);
        let by_batch = stream.below(2) == 1;
        let (feature_groups, batch_groups) = if by_batch { (1, groups) } else { (groups, 1) };
        let kernel_features = if round % 20 == 0 { 0 } else { 1 + stream.below(3) };
        let mut dims = || {
            let p = stream.permutation(spatial + 2);
            ConvDims { first: p[0], second: p[1], spatial: p[2..].into() }
        };
        let (lhs_dims, rhs_dims, out_dims) = (dims(), dims(), dims());
        let mut lhs_shape = vec![0; spatial + 2];
        let mut rhs_shape = vec![0; spatial + 2];
        lhs_shape[lhs_dims.first] = batch_groups * (1 + stream.below(2));
        lhs_shape[lhs_dims.second] = kernel_features * feature_groups;
        rhs_shape[rhs_dims.first] = groups * (1 + stream.below(2));
        rhs_shape[rhs_dims.second] = kernel_features;
        for d in 0..spatial {
            lhs_shape[lhs_dims.spatial[d]] = stream.below(6);
            rhs_shape[rhs_dims.spatial[d]] = if round % 30 == 1 { stream.below(3) } else { 1 + stream.below(3) };
        }
        let dtype = [DType::F32, DType::F64, DType::I8, DType::F16][round % 4];
        let op = Conv {
            strides: (0..spatial).map(|_| 1 + stream.below(3)).collect(),
            padding: (0..spatial).map(|_| (stream.small(), stream.small())).collect(),
            lhs_dilation: (0..spatial).map(|_| 1 + stream.below(3)).collect(),
            rhs_dilation: (0..spatial).map(|_| 1 + stream.below(3)).collect(),
            lhs_dims,
            rhs_dims,
            out_dims,
            feature_group_count: feature_groups,
            batch_group_count: batch_groups,
            preferred_element_type: if dtype == DType::I8 { DType::I32 } else { dtype },
        };
        let (x, w) = (stream.array(dtype, &lhs_shape), stream.array(dtype, &rhs_shape));
        let y = run(op.clone(), &[x.clone(), w.clone()]);
        // The sizes of the output, by counting the windows that fit.
        for d in 0..spatial {
            let (n, k) = (lhs_shape[op.lhs_dims.spatial[d]], rhs_shape[op.rhs_dims.spatial[d]]);
            let dilated = if n == 0 { 0 } else { (n - 1) * op.lhs_dilation[d] + 1 };
            let padded = dilated as i64 + op.padding[d].0 + op.padding[d].1;
            let window = if k == 0 { 0 } else { (k - 1) * op.rhs_dilation[d] + 1 };
            let fits = (0..20).filter(|o| o * op.strides[d] as i64 + window as i64 <= padded).count();
            assert_eq!(y.shape()[op.out_dims.spatial[d]], fits, "{op:?}");
        }
        assert_eq!(floats(&y), defined(&op, &x, &w, y.shape()), "{op:?} {x:?} {w:?}");
        not_empty += usize::from(y.aval().size() > 0);
    }
    assert!(not_empty > 200, "{not_empty}");
}

#[test]
fn empty_operands() {
    let none = [array::<f32>([], &[0, 1, 3]), array([1.0f32], &[1, 1, 1])];
    assert_eq!(run(plain(1, DType::F32), &none).shape(), [0, 1, 3]);
    let smaller = [array([1.0f32, 2.0], &[1, 1, 2]), array([1.0f32; 3], &[1, 1, 3])];
    assert_eq!(run(plain(1, DType::F32), &smaller).shape(), [1, 1, 0]);
    let no_feature = [array::<f32>([], &[1, 0, 3]), array::<f32>([], &[2, 0, 2])];
    assert_eq!(values::<f32>(plain(1, DType::F32), &no_feature), [0.0; 4]);
    let no_window = [array([1.0f32, 2.0], &[1, 1, 2]), array::<f32>([], &[1, 1, 0])];
    assert_eq!(values::<f32>(plain(1, DType::F32), &no_window), [0.0; 3]);
    let points = [array([1.0f64, 2.0], &[1, 2]), array([3.0f64, 4.0], &[1, 2])];
    assert_eq!(values::<f64>(plain(0, DType::F64), &points), [11.0]);
}

#[test]
fn half_floats_are_accumulated_in_f32_and_nan_stays() {
    let ones = |n: usize, shape: &[usize]| array(vec![bf16::ONE; n], shape);
    let ins = [ones(600, &[1, 600, 1]), ones(600, &[1, 600, 1])];
    assert_eq!(values::<f32>(plain(1, DType::F32), &ins), [600.0]);
    assert_eq!(values::<bf16>(plain(1, DType::Bf16), &ins), [bf16::from_f32(600.0)]);
    let ins = [array([1.0f32, f32::NAN, 2.0, 3.0], &[1, 1, 4]), array([1.0f32, 1.0], &[1, 1, 2])];
    let y = values::<f32>(plain(1, DType::F32), &ins);
    assert!(y[0].is_nan() && y[1].is_nan());
    assert_eq!(y[2], 5.0);
}

#[test]
fn conv_checks_its_operands() {
    let op = plain(1, DType::F32);
    let (x, w) = (aval("f32[4,6,10]"), aval("f32[8,6,3]"));
    assert_eq!(
        fails(op.clone(), &[x.clone(), aval("f32[8,5,3]")]),
        "conv_general_dilated: input features differ: 6 of f32[4,6,10] and 5 of f32[8,5,3] in 1 groups"
    );
    let check = |op: Conv, text: &str| {
        let message = fails(op, &[x.clone(), w.clone()]);
        assert!(message.contains(text), "{message}");
    };
    let three = |op: Conv| (op, [aval("f32[4,6,10]"), aval("f32[8,2,3]")]);
    let (grouped, ins) = three(Conv { feature_group_count: 3, ..op.clone() });
    assert!(fails(grouped, &ins).contains("8 output features of f32[8,2,3] are not 3 equal groups"));
    check(Conv { batch_group_count: 8, ..op.clone() }, "4 batch elements of f32[4,6,10] are not 8 equal groups");
    check(Conv { batch_group_count: 3, ..op.clone() }, "8 output features of f32[8,6,3] are not 3 equal groups");
    check(Conv { batch_group_count: 0, ..op.clone() }, "batch_group_count has a 0");
    check(Conv { batch_group_count: 2, feature_group_count: 2, ..op.clone() }, "are both more than 1");
    check(Conv { strides: [0].as_slice().into(), ..op.clone() }, "window_strides has a 0");
    check(Conv { lhs_dilation: [0].as_slice().into(), ..op.clone() }, "lhs_dilation has a 0");
    check(Conv { padding: vec![], ..op.clone() }, "padding has 0 entries and window_strides has 1");
    check(Conv { strides: [1, 1].as_slice().into(), ..op.clone() }, "are for operands of rank 4 and not for");
    let twice = ConvDims { first: 0, second: 0, spatial: [2].as_slice().into() };
    check(Conv { out_dims: twice, ..op.clone() }, "dimension_numbers of the output [0, 0, 2] has axis 0 twice");
    check(Conv { lhs_dims: in_order(4), ..op.clone() }, "the spatial dimensions of the input has 2 entries");
    check(Conv { preferred_element_type: DType::I32, ..op.clone() }, "products of f32 cannot be summed in i32");
    check(Conv { padding: vec![(i64::MAX, i64::MAX)], ..op.clone() }, "more than 2^63 elements");
    check(Conv { rhs_dilation: [usize::MAX].as_slice().into(), ..op.clone() }, "which is past 2^63");
    check(Conv { lhs_dilation: [i64::MAX as usize].as_slice().into(), ..op.clone() }, "more than 2^63 elements");
    assert!(fails(op.clone(), &[x.clone(), aval("f16[8,6,3]")]).contains("different dtypes"));
    assert!(fails(op, &[x]).contains("takes 2 operands and got 1"));
}
