use remat_ir::{Array, Aval, DType, Gather, IndexMode, Literal, MemorySpace, Scatter, ScatterKind, bf16};

use crate::support::{Stream, array, aval, fails, floats, indices, of_dtype, position, run, values};

const KINDS: [ScatterKind; 5] =
    [ScatterKind::Set, ScatterKind::Add, ScatterKind::Mul, ScatterKind::Min, ScatterKind::Max];

/// `x[i]` for rows `i`: the gather of an embedding of vectors of `width` elements.
fn rows(width: usize, dtype: DType, mode: IndexMode) -> Gather {
    Gather {
        offset_dims: [1].as_slice().into(),
        collapsed_slice_dims: [0].as_slice().into(),
        start_index_map: [0].as_slice().into(),
        operand_batching_dims: [].as_slice().into(),
        start_indices_batching_dims: [].as_slice().into(),
        slice_sizes: [1, width].as_slice().into(),
        mode,
        fill_value: Literal::from_f64(dtype, 99.0),
    }
}

/// `x[i] = update` for rows `i`.
fn set_rows(kind: ScatterKind, mode: IndexMode) -> Scatter {
    Scatter {
        kind,
        update_window_dims: [1].as_slice().into(),
        inserted_window_dims: [0].as_slice().into(),
        scatter_dims_to_operand_dims: [0].as_slice().into(),
        operand_batching_dims: [].as_slice().into(),
        scatter_indices_batching_dims: [].as_slice().into(),
        mode,
        unique_indices: false,
    }
}

/// The dimension numbers of one gather and of the scatter that is its mirror image, and their shapes.
#[derive(Debug)]
struct Case {
    gather: Gather,
    x: Vec<usize>,
    indices: Array,
    out: Vec<usize>,
}

impl Case {
    fn random(stream: &mut Stream, mode: IndexMode) -> Case {
        let rank = 1 + stream.below(4);
        let order = stream.permutation(rank);
        let batching = stream.below(rank.min(2) + 1);
        let collapsed = stream.below(rank - batching + 1);
        let x: Vec<usize> = (0..rank).map(|_| 1 + stream.below(4)).collect();
        let mut operand_batching: Vec<usize> = order[..batching].to_vec();
        operand_batching.sort();
        let mut collapsed_dims: Vec<usize> = order[batching..batching + collapsed].to_vec();
        collapsed_dims.sort();
        // Index vectors address some of the dimensions that do not batch, in any order.
        let mut addressed = order[batching..].to_vec();
        addressed.truncate(stream.below(addressed.len() + 1));
        let addressed: Vec<usize> = stream.permutation(addressed.len()).into_iter().map(|i| addressed[i]).collect();
        let slice_sizes: Vec<usize> = (0..rank)
            .map(|d| if order[..batching + collapsed].contains(&d) { 1 } else { stream.below(x[d] + 1) })
            .collect();
        let others = stream.below(3);
        let index_order = stream.permutation(batching + others);
        let index_batching: Vec<usize> = index_order[..batching].to_vec();
        let mut batch: Vec<usize> = (0..batching + others).map(|_| stream.below(4)).collect();
        for (&d, &i) in operand_batching.iter().zip(&index_batching) {
            batch[i] = x[d];
        }
        let window: Vec<usize> = (0..rank)
            .filter(|d| !operand_batching.contains(d) && !collapsed_dims.contains(d))
            .map(|d| slice_sizes[d])
            .collect();
        let mut offset_dims = stream.permutation(window.len() + batch.len());
        offset_dims.truncate(window.len());
        offset_dims.sort();
        let (mut w, mut b) = (window.iter(), batch.iter());
        let out = (0..window.len() + batch.len())
            .map(|d| if offset_dims.contains(&d) { *w.next().unwrap() } else { *b.next().unwrap() })
            .collect();
        let indices = stream.array(DType::I32, &[&batch[..], &[addressed.len()]].concat());
        let gather = Gather {
            offset_dims: offset_dims.into(),
            collapsed_slice_dims: collapsed_dims.into(),
            start_index_map: addressed.into(),
            operand_batching_dims: operand_batching.into(),
            start_indices_batching_dims: index_batching.into(),
            slice_sizes: slice_sizes.into(),
            mode,
            fill_value: Literal::from_f64(DType::F32, 99.0),
        };
        Case { gather, x, indices, out }
    }

    fn scatter(&self, kind: ScatterKind) -> Scatter {
        let g = self.gather.clone();
        Scatter {
            kind,
            update_window_dims: g.offset_dims,
            inserted_window_dims: g.collapsed_slice_dims,
            scatter_dims_to_operand_dims: g.start_index_map,
            operand_batching_dims: g.operand_batching_dims,
            scatter_indices_batching_dims: g.start_indices_batching_dims,
            mode: g.mode,
            unique_indices: false,
        }
    }

    /// The element of `x` that an element of the result is, by the definition in XLA's documentation.
    fn source(&self, out: &[usize]) -> Option<usize> {
        let g = &self.gather;
        let batch: Vec<usize> = (0..out.len()).filter(|d| !g.offset_dims.contains(d)).map(|d| out[d]).collect();
        let mut offsets = g.offset_dims.iter().map(|&d| out[d]);
        let mut at = vec![0i64; self.x.len()];
        for (k, &d) in g.start_index_map.iter().enumerate() {
            let index = position(self.indices.shape(), &[&batch[..], &[k]].concat());
            let start = i64::from(self.indices.as_slice::<i32>().unwrap()[index]);
            let most = self.x[d] as i64 - g.slice_sizes[d] as i64;
            if g.mode == IndexMode::FillOrDrop && !(0..=most).contains(&start) {
                return None;
            }
            at[d] = start.clamp(0, most);
        }
        for (&d, &i) in g.operand_batching_dims.iter().zip(&g.start_indices_batching_dims) {
            at[d] = batch[i] as i64;
        }
        for (d, at) in at.iter_mut().enumerate() {
            if !g.collapsed_slice_dims.contains(&d) && !g.operand_batching_dims.contains(&d) {
                *at += offsets.next().unwrap() as i64;
            }
        }
        Some(position(&self.x, &at.iter().map(|&i| i as usize).collect::<Vec<_>>()))
    }
}

#[test]
fn gather_of_rows() {
    let x = array([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]);
    let i = array([2, 0, 3, -1], &[4, 1]);
    let clip = values::<f32>(rows(2, DType::F32, IndexMode::Clip), &[x.clone(), i.clone()]);
    assert_eq!(clip, [5., 6., 1., 2., 5., 6., 1., 2.]);
    let fill = values::<f32>(rows(2, DType::F32, IndexMode::FillOrDrop), &[x.clone(), i]);
    assert_eq!(fill, [5., 6., 1., 2., 99., 99., 99., 99.]);
    let far = array([u64::MAX, 1], &[2, 1]);
    assert_eq!(values::<f32>(rows(2, DType::F32, IndexMode::Clip), &[x.clone(), far.clone()]), [5., 6., 3., 4.]);
    let fill = values::<f32>(rows(2, DType::F32, IndexMode::FillOrDrop), &[x.clone(), far]);
    assert_eq!(fill, [99., 99., 3., 4.]);
    let none = array::<i8>([], &[0, 1]);
    assert_eq!(run(rows(2, DType::F32, IndexMode::Clip), &[x, none]).shape(), [0, 2]);
    for dtype in DType::ALL {
        let x = of_dtype(dtype, [1, 0, 0, 1], &[2, 2]);
        let y = run(rows(2, dtype, IndexMode::Clip), &[x, array([1u8, 0], &[2, 1])]);
        assert_eq!(floats(&y), [0., 1., 1., 0.], "{dtype}");
    }
    // Nothing can be taken from an empty dimension, and that is possible.
    let take = Gather { slice_sizes: [0, 2].as_slice().into(), ..rows(2, DType::F32, IndexMode::Clip) };
    let y = run(take, &[array::<f32>([], &[0, 2]), array::<i32>([], &[0, 1])]);
    assert_eq!(y.shape(), [0, 2]);
}

#[test]
fn gather_of_a_scalar_index() {
    // x[1, :, 2] with one index vector and no batch.
    let op = Gather {
        offset_dims: [0].as_slice().into(),
        collapsed_slice_dims: [0, 2].as_slice().into(),
        start_index_map: [2, 0].as_slice().into(),
        operand_batching_dims: [].as_slice().into(),
        start_indices_batching_dims: [].as_slice().into(),
        slice_sizes: [1, 2, 1].as_slice().into(),
        mode: IndexMode::Clip,
        fill_value: Literal::from_f64(DType::I64, 0.0),
    };
    let x = array(0..12i64, &[2, 2, 3]);
    assert_eq!(values::<i64>(op, &[x, array([2, 1], &[2])]), [8, 11]);
}

#[test]
fn every_gather_follows_its_definition() {
    let mut stream = Stream::new(6);
    let mut filled = 0;
    for round in 0..500 {
        let mode = if round % 2 == 0 { IndexMode::Clip } else { IndexMode::FillOrDrop };
        let case = Case::random(&mut stream, mode);
        let x = array((0..case.x.iter().product()).map(|i| i as f32), &case.x);
        let y = run(case.gather.clone(), &[x, case.indices.clone()]);
        assert_eq!(y.shape(), case.out);
        let expected: Vec<f64> = indices(&case.out).iter().map(|i| case.source(i).map_or(99.0, |p| p as f64)).collect();
        filled += expected.iter().filter(|&&v| v == 99.0).count();
        assert_eq!(floats(&y), expected, "{case:?}");
    }
    assert!(filled > 100, "{filled}");
}

#[test]
fn every_scatter_follows_its_definition() {
    let mut stream = Stream::new(7);
    for round in 0..500 {
        let mode = if round % 2 == 0 { IndexMode::Clip } else { IndexMode::FillOrDrop };
        let case = Case::random(&mut stream, mode);
        let kind = KINDS[round % 5];
        let dtype = [DType::F64, DType::I32, DType::Bf16][round % 3];
        let (x, updates) = (stream.array(dtype, &case.x), stream.array(dtype, &case.out));
        // Index vectors in row-major order: the window dimensions run inside the others.
        let g = &case.gather;
        let rest: Vec<usize> = (0..case.out.len()).filter(|d| !g.offset_dims.contains(d)).collect();
        let outer = indices(&rest.iter().map(|&d| case.out[d]).collect::<Vec<_>>());
        let inner = indices(&g.offset_dims.iter().map(|&d| case.out[d]).collect::<Vec<_>>());
        let mut expected = floats(&x);
        for (o, i) in outer.iter().flat_map(|o| inner.iter().map(move |i| (o, i))) {
            let mut index = vec![0; case.out.len()];
            rest.iter().zip(o).for_each(|(&d, &v)| index[d] = v);
            g.offset_dims.iter().zip(i).for_each(|(&d, &v)| index[d] = v);
            let Some(p) = case.source(&index) else { continue };
            let update = floats(&updates)[position(&case.out, &index)];
            expected[p] = match kind {
                ScatterKind::Set => update,
                ScatterKind::Add => expected[p] + update,
                ScatterKind::Mul => expected[p] * update,
                ScatterKind::Min => expected[p].min(update),
                ScatterKind::Max => expected[p].max(update),
            };
        }
        let expected: Vec<f64> = match dtype {
            DType::I32 => expected.iter().map(|&v| f64::from(v as i64 as i32)).collect(),
            DType::Bf16 => expected.iter().map(|&v| bf16::from_f64(v).to_f64()).collect(),
            _ => expected,
        };
        // A product of many factors may leave the range in which these formats agree.
        if expected.iter().any(|v| v.abs() > 1e6) {
            continue;
        }
        let y = run(case.scatter(kind), &[x.clone(), case.indices.clone(), updates.clone()]);
        // -0 and 0 are equal, and which of the two a minimum gives is not defined.
        assert_eq!(floats(&y), expected, "{kind:?} {case:?} {x:?} {updates:?}");
    }
}

#[test]
fn scatter_of_rows() {
    let x = array([1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
    let i = array([1, 5, 1, -1], &[4, 1]);
    let u = array([10.0f32, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0], &[4, 2]);
    let scatter = |kind, mode| values::<f32>(set_rows(kind, mode), &[x.clone(), i.clone(), u.clone()]);
    assert_eq!(scatter(ScatterKind::Set, IndexMode::FillOrDrop), [1., 2., 50., 60.]);
    assert_eq!(scatter(ScatterKind::Add, IndexMode::FillOrDrop), [1., 2., 63., 84.]);
    assert_eq!(scatter(ScatterKind::Mul, IndexMode::FillOrDrop), [1., 2., 1500., 4800.]);
    assert_eq!(scatter(ScatterKind::Min, IndexMode::FillOrDrop), [1., 2., 3., 4.]);
    assert_eq!(scatter(ScatterKind::Max, IndexMode::FillOrDrop), [1., 2., 50., 60.]);
    assert_eq!(scatter(ScatterKind::Set, IndexMode::Clip), [70., 80., 50., 60.]);
    assert_eq!(x.as_slice::<f32>().unwrap(), [1., 2., 3., 4.], "a shared operand is left alone");
}

#[test]
fn scatter_in_every_dtype() {
    for dtype in DType::ALL {
        for kind in KINDS {
            let numeric = !matches!(kind, ScatterKind::Add | ScatterKind::Mul);
            if dtype == DType::Bool && !numeric {
                let avals = [aval("bool[2,2]"), aval("i32[1,1]"), aval("bool[1,2]")];
                assert!(fails(set_rows(kind, IndexMode::Clip), &avals).contains("takes integers and floats, not bool"));
                continue;
            }
            let x = of_dtype(dtype, [1, 0, 1, 0], &[2, 2]);
            let u = of_dtype(dtype, [0, 1], &[1, 2]);
            let y = run(set_rows(kind, IndexMode::Clip), &[x, array([1u16], &[1, 1]), u]);
            let expected = match kind {
                ScatterKind::Set => [1., 0., 0., 1.],
                ScatterKind::Add | ScatterKind::Max => [1., 0., 1., 1.],
                ScatterKind::Mul | ScatterKind::Min => [1., 0., 0., 0.],
            };
            assert_eq!(floats(&y), expected, "{dtype} {kind:?}");
        }
    }
}

#[test]
fn scatter_sums_are_rounded_once_and_nan_wins() {
    let many = array(vec![bf16::ONE; 1000], &[1000, 1]);
    let zeros = array(vec![0; 1000], &[1000, 1]);
    let x = array([bf16::ZERO], &[1, 1]);
    let y = values::<bf16>(set_rows(ScatterKind::Add, IndexMode::Clip), &[x, zeros, many]);
    assert_eq!(y, [bf16::from_f32(1000.0)]);
    for kind in [ScatterKind::Min, ScatterKind::Max] {
        let i = array([0, 0, 1, 1], &[4, 1]);
        let u = array([f32::NAN, 1.0, 2.0, 3.0], &[4, 1]);
        let y = values::<f32>(set_rows(kind, IndexMode::Clip), &[array([1.0f32, f32::NAN], &[2, 1]), i, u]);
        assert!(y[0].is_nan() && y[1].is_nan());
    }
    let u8s = [array([250u8], &[1, 1]), array([0], &[1, 1]), array([10u8], &[1, 1])];
    assert_eq!(values::<u8>(set_rows(ScatterKind::Add, IndexMode::Clip), &u8s), [4]);
    let empty = [array::<f32>([], &[0, 2]), array([0, 1], &[2, 1]), array([1.0f32; 4], &[2, 2])];
    assert!(values::<f32>(set_rows(ScatterKind::Set, IndexMode::Clip), &empty).is_empty());
}

#[test]
fn gather_checks_its_operands() {
    let ins: [Aval; 2] = [aval("f32[3,2]"), aval("i32[4,1]")];
    let op = rows(2, DType::F32, IndexMode::Clip);
    let check = |op: Gather, text: &str| {
        let message = fails(op, &ins);
        assert!(message.contains(text), "{message}");
    };
    let fill_value = Literal::from_f64(DType::F64, 0.0);
    check(Gather { fill_value, ..op.clone() }, "fill_value 0.0:f64[] is not of the dtype of f32[3,2]");
    check(Gather { start_index_map: [].as_slice().into(), ..op.clone() }, "index vectors of i32[4,1] have 1");
    check(Gather { start_index_map: [2].as_slice().into(), ..op.clone() }, "start_index_map [2] has axis 2");
    check(Gather { collapsed_slice_dims: [0, 0].as_slice().into(), ..op.clone() }, "has axis 0 twice");
    check(
        Gather { collapsed_slice_dims: [1].as_slice().into(), ..op.clone() },
        "has slice size 2 and cannot be dropped",
    );
    check(
        Gather { collapsed_slice_dims: [].as_slice().into(), ..op.clone() },
        "offset_dims has 1 entries and a slice has 2",
    );
    check(Gather { offset_dims: [2].as_slice().into(), ..op.clone() }, "offset_dims [2] has axis 2");
    check(Gather { slice_sizes: [1].as_slice().into(), ..op.clone() }, "slice_sizes has 1 entries");
    check(Gather { slice_sizes: [1, 3].as_slice().into(), ..op.clone() }, "slice size 3 is more than dimension 1");
    check(Gather { slice_sizes: [0, 2].as_slice().into(), ..op.clone() }, "have no source in f32[3,2]");
    let batching = |x: &[usize], i: &[usize]| Gather {
        operand_batching_dims: x.into(),
        start_indices_batching_dims: i.into(),
        ..op.clone()
    };
    check(batching(&[0], &[0]), "dimension 0 of f32[3,2] is in operand_batching_dims and in collapsed_slice_dims");
    check(batching(&[1], &[0]), "batching dimensions differ: 2 of f32[3,2] and 4 of i32[4,1]");
    check(batching(&[1], &[1]), "start_indices_batching_dims [1] has axis 1");
    check(batching(&[1], &[]), "operand_batching_dims has 1 entries and start_indices_batching_dims 0");
    let addressed = Gather { collapsed_slice_dims: [].as_slice().into(), ..batching(&[0], &[0]) };
    check(addressed, "is in operand_batching_dims and in start_index_map");
    assert!(fails(op.clone(), &[aval("f32[3,2]"), aval("f32[4,1]")]).contains("indices are integers"));
    assert!(fails(op.clone(), &[aval("f32[3,2]"), aval("i32[]")]).contains("no dimension of index vectors"));
    assert!(fails(op, &[aval("f32[3,2]")]).contains("takes 2 operands"));
    // Rows in host memory can be addressed from the device.
    let host = [aval("f32[3,2]").in_memory(MemorySpace::Host), aval("i32[4,1]")];
    let out = remat_ir::Op::from(rows(2, DType::F32, IndexMode::Clip)).infer(&host).unwrap();
    assert_eq!(out[0].to_string(), "f32<host>[4,2]");
}

#[test]
fn scatter_checks_its_operands() {
    let op = set_rows(ScatterKind::Set, IndexMode::Clip);
    let check = |op: &Scatter, updates: &str, text: &str| {
        let message = fails(op.clone(), &[aval("f32[3,2]"), aval("i32[4,1]"), aval(updates)]);
        assert!(message.contains(text), "{message}");
    };
    check(&op, "f64[4,2]", "different dtypes");
    check(&op, "f32[4,3]", "slices of f32[4,3] have size 3 where f32[3,2] has 2");
    check(&op, "f32[5,2]", "the updates f32[5,2] have [5] slices, which are not those of i32[4,1]");
    check(&op, "f32[4]", "update_window_dims [1] has axis 1");
    let wide = Scatter { inserted_window_dims: [].as_slice().into(), ..op.clone() };
    check(&wide, "f32[4,2]", "update_window_dims has 1 entries and a slice of f32[3,2] has 2");
    let map = Scatter { scatter_dims_to_operand_dims: [0, 1].as_slice().into(), ..op };
    check(&map, "f32[4,2]", "scatter_dims_to_operand_dims has 2 entries and index vectors of i32[4,1] have 1");
}
