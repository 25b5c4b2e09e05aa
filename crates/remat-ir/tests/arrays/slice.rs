use std::sync::Arc;

use remat_ir::{
    Array, Builder, DType, Device, DynamicSlice, DynamicUpdateSlice, MemorySpace, Reference, Shape, Slice, Unary, eval,
    eval_op,
};

use crate::support::{array, aval, fails, floats, indices, of_dtype, position, run, values};

fn slice(start: &[usize], limit: &[usize], strides: &[usize]) -> Slice {
    Slice { start: start.into(), limit: limit.into(), strides: strides.into() }
}

#[test]
fn slice_takes_every_strideth_element() {
    let x = array(0..10, &[10]);
    let take = |start, limit, stride| values::<i32>(slice(&[start], &[limit], &[stride]), std::slice::from_ref(&x));
    assert_eq!(take(2, 5, 1), [2, 3, 4]);
    assert_eq!(take(1, 8, 3), [1, 4, 7]);
    assert_eq!(take(1, 7, 3), [1, 4]);
    assert_eq!(take(0, 10, i64::MAX as usize), [0]);
    assert!(take(10, 10, 1).is_empty());
    assert!(take(3, 3, 7).is_empty());
    for dtype in DType::ALL {
        let x = of_dtype(dtype, [1, 0, 1, 1, 0, 1], &[2, 3]);
        assert_eq!(floats(&run(slice(&[1, 0], &[2, 3], &[1, 2]), &[x])), [1., 1.], "{dtype}");
    }
    assert_eq!(values::<f64>(slice(&[], &[], &[]), &[Array::scalar(0.5f64)]), [0.5]);
    assert!(values::<f64>(slice(&[0, 1], &[0, 2], &[1, 1]), &[array::<f64>([], &[0, 3])]).is_empty());

    let shape = [3, 2, 4, 1, 3, 2, 1, 2];
    let (start, limit, strides) = ([1, 0, 1, 0, 0, 1, 0, 0], [3, 2, 4, 1, 3, 2, 1, 2], [1, 1, 2, 1, 2, 1, 3, 1]);
    let y = run(slice(&start, &limit, &strides), &[array(0..288i64, &shape)]);
    assert_eq!(y.shape(), [2, 2, 2, 1, 2, 1, 1, 2]);
    for (index, &value) in indices(y.shape()).iter().zip(y.as_slice::<i64>().unwrap()) {
        let source: Vec<usize> = (0..8).map(|d| start[d] + index[d] * strides[d]).collect();
        assert_eq!(value, position(&shape, &source) as i64);
    }
}

#[test]
fn slice_checks_its_ranges() {
    let x = [aval("f32[4]")];
    assert_eq!(fails(slice(&[3], &[5], &[1]), &x), "slice: 3..5 is not a range of dimension 0 of f32[4]");
    assert!(fails(slice(&[3], &[2], &[1]), &x).contains("3..2 is not a range"));
    assert!(fails(slice(&[0], &[2], &[0]), &x).contains("strides has a 0"));
    assert!(fails(slice(&[], &[2], &[1]), &x).contains("start_indices has 0 entries"));
    assert!(fails(slice(&[0], &[2, 2], &[1]), &x).contains("limit_indices has 2 entries"));
    assert!(fails(slice(&[0], &[2], &[]), &x).contains("strides has 0 entries"));
}

#[test]
fn dynamic_slice_clamps_its_starts() {
    let x = array(0..12, &[3, 4]);
    let op = DynamicSlice { sizes: [2, 2].as_slice().into() };
    let take = |i: i32, j: i32| values::<i32>(op.clone(), &[x.clone(), Array::scalar(i), Array::scalar(j)]);
    assert_eq!(take(1, 1), [5, 6, 9, 10]);
    assert_eq!(take(2, 3), [6, 7, 10, 11]);
    assert_eq!(take(-1, i32::MIN), [0, 1, 4, 5]);
    let unsigned = [x.clone(), Array::scalar(u64::MAX), Array::scalar(0u64)];
    assert_eq!(values::<i32>(op.clone(), &unsigned), [4, 5, 8, 9]);
    assert_eq!(values::<f32>(DynamicSlice { sizes: Shape::new() }, &[Array::scalar(3.0f32)]), [3.0]);
    let none = DynamicSlice { sizes: [0].as_slice().into() };
    assert!(values::<bool>(none, &[array::<bool>([], &[0]), Array::scalar(5i8)]).is_empty());

    let avals = |start: &str| [aval("i32[3,4]"), aval(start), aval("i32[]")];
    assert!(
        fails(op.clone(), &avals("f32[]"))
            .contains("a start is an integer, not f32[]; convert it with .to_dtype(DType::I32)")
    );
    assert!(fails(op.clone(), &avals("i64[]")).contains("i64[] and i32[]"));
    assert!(fails(op.clone(), &avals("i32[1]")).contains("i32[1]"));
    assert!(fails(op.clone(), &[aval("i32[3,4]"), aval("i32[]")]).contains("has 2 dimensions and 1 starts were given"));
    let large = DynamicSlice { sizes: [4, 1].as_slice().into() };
    assert_eq!(fails(large, &avals("i32[]")), "dynamic_slice: slice size 4 is more than dimension 0 of i32[3,4]");
    assert!(fails(op, &[]).contains("got nothing"));
}

#[test]
fn dynamic_update_slice_replaces_a_block() {
    let x = array(0..6, &[2, 3]);
    let put = |update: &Array, i: i64, j: i64| {
        values::<i32>(DynamicUpdateSlice, &[x.clone(), update.clone(), Array::scalar(i), Array::scalar(j)])
    };
    let column = array([70, 80], &[2, 1]);
    assert_eq!(put(&column, 0, 1), [0, 70, 2, 3, 80, 5]);
    assert_eq!(put(&column, 1, 9), [0, 1, 70, 3, 4, 80]);
    assert_eq!(put(&column, -4, -4), [70, 1, 2, 80, 4, 5]);
    assert_eq!(put(&array::<i32>([], &[0, 2]), 1, 1), [0, 1, 2, 3, 4, 5]);
    assert_eq!(x.as_slice::<i32>().unwrap(), [0, 1, 2, 3, 4, 5], "a shared operand is left alone");
    assert_eq!(values::<f32>(DynamicUpdateSlice, &[Array::scalar(1.0f32), Array::scalar(f32::MAX)]), [f32::MAX]);
    for dtype in DType::ALL {
        let x = of_dtype(dtype, [1, 1, 1], &[3]);
        let out = run(DynamicUpdateSlice, &[x, of_dtype(dtype, [0], &[1]), Array::scalar(1u8)]);
        assert_eq!(floats(&out), [1., 0., 1.], "{dtype}");
    }
    // An array in host memory is updated at an index that the device has computed.
    let host = |a: Array| a.in_memory(MemorySpace::Host);
    let ins = [host(array([1, 2], &[2])), host(array([5], &[1])), Array::scalar(1)];
    assert_eq!(eval_op(&DynamicUpdateSlice.into(), &ins).unwrap()[0].aval().to_string(), "i32<host>[2]");

    let op = DynamicUpdateSlice;
    let message = fails(op, &[aval("f32[2]"), aval("f32[3]"), aval("i32[]")]);
    assert_eq!(message, "dynamic_update_slice: the update f32[3] is larger than f32[2] in dimension 0");
    assert!(fails(op, &[aval("f32[2]"), aval("f32[1,1]"), aval("i32[]")]).contains("ranks of f32[2]"));
    assert!(fails(op, &[aval("f32[2]"), aval("bf16[1]"), aval("i32[]")]).contains("different dtypes"));
    assert!(fails(op, &[aval("f32[2]")]).contains("got 1 operands"));
    let mixed = [aval("f32[2]"), aval("f32[1]").in_memory(MemorySpace::Host), aval("i32[]")];
    assert!(fails(op, &mixed).contains("different memory spaces"));
}

#[test]
fn a_block_is_written_in_place() {
    let mut b = Builder::new();
    let ins = b.inputs([aval("f32[1000]"), aval("f32[10]"), aval("i32[]")]);
    let x = b.emit1(Unary::Exp.into(), &ins[..1]).unwrap();
    let y = b.emit1(DynamicUpdateSlice.into(), &[x, ins[1], ins[2]]).unwrap();
    let jaxpr = b.finish(vec![y]);
    assert_eq!(Reference.compile(&Arc::new(jaxpr)).unwrap().memory().temporaries, 0);

    let jaxpr = {
        let mut b = Builder::new();
        let ins = b.inputs([aval("f32[1000]"), aval("f32[10]"), aval("i32[]")]);
        let y = b.emit1(DynamicUpdateSlice.into(), &ins).unwrap();
        b.finish(vec![y])
    };
    let zeros = array(vec![0.0f32; 1000], &[1000]);
    let address = zeros.as_slice::<f32>().unwrap().as_ptr();
    let out = eval(&jaxpr, vec![zeros, array(vec![1.0f32; 10], &[10]), Array::scalar(5)]).unwrap();
    let data = out[0].as_slice::<f32>().unwrap();
    assert_eq!(data.as_ptr(), address);
    assert_eq!(data[4..16], [0., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 0.]);
}
