use remat_ir::{
    Array, BroadcastInDim, Builder, Concatenate, DType, ExpandDims, Iota, MemorySpace, Op, Pad, Reshape, Rev, Shape,
    Squeeze, Transpose, bf16, f16,
};

use crate::support::{Stream, array, aval, fails, floats, indices, of_dtype, position, run, values};

fn sh(sizes: &[usize]) -> Shape {
    sizes.into()
}

#[test]
fn broadcast_repeats_sizes_of_one_and_adds_dimensions() {
    let op = |shape: &[usize], dims: &[usize]| BroadcastInDim { shape: sh(shape), dims: sh(dims) };
    let row = array([1.0f32, 2.0, 3.0], &[3]);
    assert_eq!(values::<f32>(op(&[2, 3], &[1]), std::slice::from_ref(&row)), [1., 2., 3., 1., 2., 3.]);
    assert_eq!(values::<f32>(op(&[3, 2], &[0]), &[row]), [1., 1., 2., 2., 3., 3.]);
    let column = array([7i8, 8], &[2, 1]);
    assert_eq!(values::<i8>(op(&[2, 2, 2], &[0, 2]), &[column]), [7, 7, 7, 7, 8, 8, 8, 8]);
    assert_eq!(values::<bool>(op(&[3], &[]), &[Array::scalar(true)]), [true; 3]);
    assert_eq!(values::<f64>(op(&[], &[]), &[Array::scalar(2.5f64)]), [2.5]);
    assert!(values::<u16>(op(&[0, 4], &[]), &[Array::scalar(1u16)]).is_empty());
    // The other dimensions of an empty array may be of any size.
    let x = array::<u16>([], &[0, 1 << 40, 1 << 20]);
    assert_eq!(run(Rev { axes: sh(&[2]) }, &[x]).shape(), [0, 1 << 40, 1 << 20]);
    assert!(values::<u16>(op(&[5, 0], &[0, 1]), &[array::<u16>([], &[1, 0])]).is_empty());
}

#[test]
fn broadcast_checks_its_operand() {
    let op = |shape: &[usize], dims: &[usize]| BroadcastInDim { shape: sh(shape), dims: sh(dims) };
    let x = [aval("f32[2,3]")];
    let message = fails(op(&[2, 4], &[0, 1]), &x);
    assert_eq!(
        message,
        "broadcast_in_dim: dimension 1 of f32[2,3] is neither 1 nor 4, the size of dimension 1 of f32[2,4]"
    );
    assert!(fails(op(&[3, 2], &[1, 0]), &x).contains("broadcast_dimensions [1, 0] is not increasing"));
    assert!(fails(op(&[3, 3], &[1, 1]), &x).contains("has axis 1 twice"));
    assert!(fails(op(&[2, 3], &[0, 2]), &x).contains("has axis 2, which rank 2 does not have"));
    assert!(fails(op(&[2, 3], &[0]), &x).contains("has 1 entries and f32[2,3] has 2 dimensions"));
    assert!(fails(op(&[1 << 40, 1 << 40, 0], &[]), &[aval("f32[]")]).contains("has more than 2^63 elements"));
    assert!(fails(op(&[1 << 62], &[]), &[aval("f32[]")]).contains("takes more than 2^63 bytes"));
    assert!(fails(op(&[2], &[]), &[]).contains("takes 1 operands and got 0"));
}

#[test]
fn shapes_of_one_size_share_their_elements() {
    let x = array(0..6, &[2, 3]);
    let y = run(Reshape { shape: sh(&[3, 1, 2]) }, std::slice::from_ref(&x));
    assert!(y.shares_data(&x));
    assert_eq!(y.shape(), [3, 1, 2]);
    let z = run(Squeeze { axes: sh(&[1]) }, std::slice::from_ref(&y));
    assert_eq!(z.shape(), [3, 2]);
    let z = run(ExpandDims { axes: sh(&[3, 0]) }, &[z]);
    assert_eq!(z.shape(), [1, 3, 2, 1]);
    assert!(z.shares_data(&x));
    let host = Array::scalar(1.0f32).in_memory(MemorySpace::Host);
    assert_eq!(run(Reshape { shape: sh(&[1, 1]) }, &[host]).aval().to_string(), "f32<host>[1,1]");

    assert_eq!(
        fails(Reshape { shape: sh(&[4]) }, &[aval("i32[2,3]")]),
        "reshape: i32[2,3] has 6 elements and i32[4] has 4"
    );
    assert!(fails(Squeeze { axes: sh(&[1]) }, &[aval("i32[1,3]")]).contains("dimension 1 of i32[1,3] has size 3"));
    assert!(fails(Squeeze { axes: sh(&[0, 0]) }, &[aval("i32[1,3]")]).contains("has axis 0 twice"));
    assert!(fails(Squeeze { axes: sh(&[2]) }, &[aval("i32[1,3]")]).contains("rank 2"));
    assert!(fails(ExpandDims { axes: sh(&[3]) }, &[aval("i32[1,3]")]).contains("axis 3, which rank 3 does not have"));
}

#[test]
fn transpose_of_every_dtype_and_of_rank_8() {
    for dtype in DType::ALL {
        let x = of_dtype(dtype, [0, 1, 2, 3, 4, 5], &[2, 3]);
        let expected = of_dtype(dtype, [0, 3, 1, 4, 2, 5], &[3, 2]);
        assert_eq!(floats(&run(Transpose { permutation: sh(&[1, 0]) }, &[x])), floats(&expected), "{dtype}");
    }
    assert_eq!(values::<f32>(Transpose { permutation: sh(&[]) }, &[Array::scalar(f32::INFINITY)]), [f32::INFINITY]);
    assert!(values::<f32>(Transpose { permutation: sh(&[1, 0]) }, &[array::<f32>([], &[0, 3])]).is_empty());

    let mut stream = Stream::new(1);
    let shape = [2, 1, 3, 2, 1, 2, 3, 2];
    for _ in 0..20 {
        let x = array(0..144i64, &shape);
        let p = stream.permutation(8);
        let y = run(Transpose { permutation: sh(&p) }, &[x]);
        for (index, &value) in indices(y.shape()).iter().zip(y.as_slice::<i64>().unwrap()) {
            let mut source = vec![0; 8];
            for (i, &d) in p.iter().enumerate() {
                source[d] = index[i];
            }
            assert_eq!(value, position(&shape, &source) as i64);
        }
    }
    assert!(fails(Transpose { permutation: sh(&[0, 0]) }, &[aval("f32[2,2]")]).contains("permutation [0, 0]"));
    assert!(fails(Transpose { permutation: sh(&[0]) }, &[aval("f32[2,2]")]).contains("f32[2,2] has 2 dimensions"));
}

#[test]
fn rev_reverses_each_axis() {
    let x = array(0..6, &[2, 3]);
    assert_eq!(values::<i32>(Rev { axes: sh(&[0]) }, std::slice::from_ref(&x)), [3, 4, 5, 0, 1, 2]);
    assert_eq!(values::<i32>(Rev { axes: sh(&[1]) }, std::slice::from_ref(&x)), [2, 1, 0, 5, 4, 3]);
    assert_eq!(values::<i32>(Rev { axes: sh(&[1, 0]) }, std::slice::from_ref(&x)), [5, 4, 3, 2, 1, 0]);
    assert_eq!(values::<i32>(Rev { axes: sh(&[]) }, &[x]), [0, 1, 2, 3, 4, 5]);
    assert!(values::<f16>(Rev { axes: sh(&[0]) }, &[array::<f16>([], &[0, 2])]).is_empty());
    assert!(fails(Rev { axes: sh(&[1]) }, &[aval("f32[2]")]).contains("axis 1"));
}

#[test]
fn concatenate_joins_along_any_axis() {
    let (x, y, z) = (array([1u8, 2], &[2, 1]), array([3u8, 4, 5, 6], &[2, 2]), array::<u8>([], &[2, 0]));
    let all = [x.clone(), z, y];
    assert_eq!(values::<u8>(Concatenate { axis: 1 }, &all), [1, 3, 4, 2, 5, 6]);
    assert_eq!(values::<u8>(Concatenate { axis: 0 }, &[x.clone(), x.clone()]), [1, 2, 1, 2]);
    assert_eq!(values::<u8>(Concatenate { axis: 0 }, &[x]), [1, 2]);
    let half = array([bf16::ONE, bf16::NAN], &[2]);
    let joined = values::<bf16>(Concatenate { axis: 0 }, &[half.clone(), half]);
    assert!(joined[0] == bf16::ONE && joined[1].is_nan() && joined[3].is_nan());

    let op = Concatenate { axis: 0 };
    assert_eq!(
        fails(op, &[aval("f32[2,3]"), aval("f32[2,4]")]),
        "concatenate: sizes of f32[2,3] and f32[2,4] differ in dimension 1"
    );
    assert!(fails(op, &[aval("f32[2]"), aval("f32[2,4]")]).contains("ranks of f32[2] and f32[2,4] differ"));
    assert!(fails(op, &[aval("f32[2]"), aval("f64[2]")]).contains("f32[2] and f64[2] have different dtypes"));
    assert!(fails(op, &[aval("f32[2]"), aval("f32[2]").in_memory(MemorySpace::Host)]).contains("different memory"));
    assert!(fails(op, &[]).contains("takes at least one operand"));
    assert!(fails(op, &[aval("f32[]")]).contains("rank 0 does not have"));
    let large = aval("i8[9223372036854775807]");
    assert!(fails(op, &[large.clone(), large]).contains("has more than 2^63 elements"));
}

#[test]
fn pad_adds_crops_and_spreads() {
    let op = |config: &[(i64, i64, usize)]| Pad { config: config.to_vec() };
    let x = array([1.0f32, 2.0, 3.0], &[3]);
    let pad = |config| values::<f32>(op(&[config]), &[x.clone(), Array::scalar(9.0f32)]);
    assert_eq!(pad((1, 2, 0)), [9., 1., 2., 3., 9., 9.]);
    assert_eq!(pad((0, 0, 1)), [1., 9., 2., 9., 3.]);
    assert_eq!(pad((-1, 0, 0)), [2., 3.]);
    assert_eq!(pad((0, -2, 0)), [1.]);
    assert_eq!(pad((-1, 1, 1)), [9., 2., 9., 3., 9.]);
    assert_eq!(pad((-1, -1, 2)), [9., 9., 2., 9., 9.]);
    assert_eq!(pad((-3, 4, 0)), [9., 9., 9., 9.]);
    assert_eq!(pad((-5, 7, 0)), [9.; 5]);
    assert_eq!(pad((5, -7, 0)), [9.]);
    assert_eq!(pad((-3, 0, 0)), [0.0f32; 0]);
    let empty = array::<f32>([], &[0]);
    assert_eq!(values::<f32>(op(&[(1, 1, 5)]), &[empty, Array::scalar(f32::NEG_INFINITY)]), [f32::NEG_INFINITY; 2]);
    assert_eq!(values::<bool>(op(&[]), &[Array::scalar(true), Array::scalar(false)]), [true]);
    // One element has no neighbour, so that any interior padding is none.
    assert_eq!(values::<i32>(op(&[(0, 1, i64::MAX as usize - 1)]), &[array([4], &[1]), Array::scalar(5)]), [4, 5]);

    let mut stream = Stream::new(2);
    for _ in 0..200 {
        let shape: Vec<usize> = (0..3).map(|_| stream.below(4)).collect();
        let config: Vec<_> =
            (0..3).map(|_| (stream.small(), stream.small(), stream.below(3))).collect::<Vec<(i64, i64, usize)>>();
        let dilated = |d: usize| if shape[d] == 0 { 0 } else { (shape[d] - 1) * (config[d].2 + 1) + 1 };
        let sizes: Vec<i64> = (0..3).map(|d| dilated(d) as i64 + config[d].0 + config[d].1).collect();
        let x = stream.array(DType::F64, &shape);
        if sizes.iter().any(|&s| s < 0) {
            assert!(fails(op(&config), &[x.aval().clone(), aval("f64[]")]).contains("with size -"));
            continue;
        }
        let y = run(op(&config), &[x.clone(), Array::scalar(100.0f64)]);
        for (index, value) in indices(y.shape()).iter().zip(floats(&y)) {
            let source: Option<Vec<usize>> = (0..3)
                .map(|d| {
                    let (i, step) = (index[d] as i64 - config[d].0, config[d].2 as i64 + 1);
                    (i >= 0 && i % step == 0 && i / step < shape[d] as i64).then_some((i / step) as usize)
                })
                .collect();
            assert_eq!(value, source.map_or(100.0, |s| floats(&x)[position(&shape, &s)]));
        }
    }
}

#[test]
fn pad_checks_its_operands() {
    let op = |config: &[(i64, i64, usize)]| Pad { config: config.to_vec() };
    let (x, v) = (aval("f32[3]"), aval("f32[]"));
    let message = fails(op(&[(-2, -2, 0)]), &[x.clone(), v.clone()]);
    assert_eq!(message, "pad: padding (-2, -2, 0) leaves dimension 0 of f32[3] with size -1");
    assert!(fails(op(&[]), &[x.clone(), v.clone()]).contains("padding_config has 0 entries"));
    assert!(fails(op(&[(0, 0, 0)]), &[x.clone(), x.clone()]).contains("padding value f32[3] is not a scalar"));
    assert!(fails(op(&[(0, 0, 0)]), &[x.clone(), aval("i32[]")]).contains("f32[3] and i32[] have different dtypes"));
    assert!(fails(op(&[(i64::MAX, i64::MAX, 0)]), &[x.clone(), v.clone()]).contains("more than 2^63 elements"));
    assert!(fails(op(&[(0, 0, usize::MAX)]), &[x.clone(), v.clone()]).contains("past 2^63"));
    assert!(fails(op(&[(0, 0, i64::MAX as usize - 1)]), &[x, v]).contains("more than 2^63 elements"));
}

#[test]
fn iota_counts_in_every_numeric_dtype() {
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
        let iota = |axis| floats(&run(Iota { dtype, shape: sh(&[2, 3]), axis }, &[]));
        assert_eq!(iota(1), [0., 1., 2., 0., 1., 2.], "{dtype}");
        assert_eq!(iota(0), [0., 0., 0., 1., 1., 1.], "{dtype}");
    }
    assert_eq!(values::<u8>(Iota { dtype: DType::U8, shape: sh(&[258]), axis: 0 }, &[])[255..], [255, 0, 1]);
    assert!(values::<i32>(Iota { dtype: DType::I32, shape: sh(&[0]), axis: 0 }, &[]).is_empty());
    let bools = Iota { dtype: DType::Bool, shape: sh(&[2]), axis: 0 };
    assert_eq!(fails(bools, &[]), "iota: takes a numeric dtype and got bool");
    assert!(fails(Iota { dtype: DType::I32, shape: sh(&[2]), axis: 1 }, &[]).contains("axis 1"));
    assert!(fails(Iota { dtype: DType::I32, shape: sh(&[2]), axis: 0 }, &[aval("i32[]")]).contains("takes 0 operands"));
}

#[test]
fn programs_print_as_in_jax() {
    let print = |op: Op, operands: &[&str]| {
        let mut b = Builder::new();
        let ins = b.inputs(operands.iter().map(|text| aval(text)));
        let out = b.emit1(op, &ins).unwrap();
        let text = b.finish(vec![out]).to_string();
        let (_, equation) = text.split_once(" = ").expect("an equation");
        equation.lines().next().unwrap_or_default().split(" in (").next().unwrap_or_default().trim().to_string()
    };
    let op = BroadcastInDim { shape: sh(&[3, 4]), dims: sh(&[0]) };
    assert_eq!(print(op.into(), &["f32[3]"]), "broadcast_in_dim[broadcast_dimensions=(0,) shape=(3, 4)] a");
    assert_eq!(print(Reshape { shape: sh(&[2, 3]) }.into(), &["f32[6]"]), "reshape[new_sizes=(2, 3)] a");
    assert_eq!(print(Transpose { permutation: sh(&[1, 0]) }.into(), &["f32[2,3]"]), "transpose[permutation=(1, 0)] a");
    assert_eq!(print(Squeeze { axes: sh(&[0]) }.into(), &["f32[1]"]), "squeeze[dimensions=(0,)] a");
    assert_eq!(print(ExpandDims { axes: sh(&[0]) }.into(), &["f32[1]"]), "expand_dims[dimensions=(0,)] a");
    assert_eq!(print(Rev { axes: sh(&[0]) }.into(), &["f32[1]"]), "rev[dimensions=(0,)] a");
    assert_eq!(print(Concatenate { axis: 0 }.into(), &["f32[1]", "f32[2]"]), "concatenate[dimension=0] a b");
    let op = Pad { config: vec![(0, -1, 0)] };
    assert_eq!(print(op.into(), &["f32[1]", "f32[]"]), "pad[padding_config=((0, -1, 0),)] a b");
    let op = Iota { dtype: DType::I32, shape: sh(&[3]), axis: 0 };
    assert_eq!(print(op.into(), &[]), "iota[dimension=0 dtype=int32 shape=(3,)]");
}
