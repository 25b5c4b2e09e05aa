use remat_ir::{ArgKind, ArgReduceWindow, Array, DType, Element, Literal, ReduceWindow, Window, WindowKind, bf16};

use crate::support::{Stream, array, aval, fails, floats, indices, of_dtype, position, run, values};

/// Windows of these sizes, one next to the other.
fn window(dimensions: &[usize]) -> Window {
    let ones = || dimensions.iter().map(|_| 1).collect();
    Window {
        dimensions: dimensions.into(),
        strides: ones(),
        padding: vec![(0, 0); dimensions.len()],
        base_dilation: ones(),
        window_dilation: ones(),
    }
}

fn reduce<T: Element>(kind: WindowKind, window: &Window, x: &Array) -> Vec<T> {
    values::<T>(ReduceWindow { kind, window: window.clone() }, std::slice::from_ref(x))
}

fn arg(kind: ArgKind, window: &Window, x: &Array) -> Vec<i32> {
    let op = ArgReduceWindow { kind, window: window.clone(), index_dtype: DType::I32 };
    values::<i32>(op, std::slice::from_ref(x))
}

#[test]
fn pooling_by_hand() {
    let x = array([1.0f32, 5.0, 2.0, 0.0, 3.0, 4.0, 8.0, 6.0, 7.0], &[3, 3]);
    let w = window(&[2, 2]);
    assert_eq!(reduce::<f32>(WindowKind::Sum, &w, &x), [9., 14., 17., 20.]);
    assert_eq!(reduce::<f32>(WindowKind::Max, &w, &x), [5., 5., 8., 7.]);
    assert_eq!(reduce::<f32>(WindowKind::Min, &w, &x), [0., 2., 0., 3.]);
    assert_eq!(arg(ArgKind::Max, &w, &x), [1, 1, 6, 8]);
    assert_eq!(arg(ArgKind::Min, &w, &x), [3, 2, 3, 4]);

    let x = array([1, 2, 3, 4], &[4]);
    let sum = |w: Window| reduce::<i32>(WindowKind::Sum, &w, &x);
    assert_eq!(sum(Window { padding: vec![(1, 2)], ..window(&[2]) }), [1, 3, 5, 7, 4, 0]);
    assert_eq!(sum(Window { padding: vec![(-1, 0)], ..window(&[2]) }), [5, 7]);
    assert_eq!(sum(Window { strides: [3].as_slice().into(), ..window(&[1]) }), [1, 4]);
    assert_eq!(sum(Window { base_dilation: [2].as_slice().into(), ..window(&[2]) }), [1, 2, 2, 3, 3, 4]);
    assert_eq!(sum(Window { window_dilation: [3].as_slice().into(), ..window(&[2]) }), [5]);
    assert!(sum(window(&[5])).is_empty());
    assert!(sum(Window { padding: vec![(-3, -3)], ..window(&[1]) }).is_empty());
    // The cumulative sum.
    assert_eq!(sum(Window { padding: vec![(3, 0)], ..window(&[4]) }), [1, 3, 6, 10]);
}

#[test]
fn sums_of_large_windows_are_rounded_once() {
    let sum = |dtype| {
        let x = Array::full(Literal::from_f64(dtype, 0.1), [1, 1, 112, 112]);
        run(ReduceWindow { kind: WindowKind::Sum, window: window(&[1, 1, 112, 112]) }, &[x])
    };
    let n = 112.0 * 112.0;
    assert_eq!(sum(DType::F32).as_slice::<f32>(), Some(&[(f64::from(0.1f32) * n) as f32][..]));
    assert_eq!(sum(DType::F64).as_slice::<f64>(), Some(&[0.1 * n][..]));
    let half = bf16::from_f32(0.1);
    assert_eq!(sum(DType::Bf16).as_slice::<bf16>(), Some(&[bf16::from_f32(half.to_f32() * n as f32)][..]));
}

#[test]
fn a_window_of_padding_is_the_identity() {
    let padded = |n: usize| Window { padding: vec![(n as i64, 0)], ..window(&[1]) };
    fn ends<T: Element>(w: &Window, one: T) -> [T; 3] {
        [WindowKind::Sum, WindowKind::Max, WindowKind::Min].map(|kind| reduce::<T>(kind, w, &array([one], &[1]))[0])
    }
    assert_eq!(ends(&padded(1), 1.0f32), [0.0, f32::NEG_INFINITY, f32::INFINITY]);
    assert_eq!(ends(&padded(1), bf16::ONE), [bf16::ZERO, bf16::NEG_INFINITY, bf16::INFINITY]);
    assert_eq!(ends(&padded(1), 1i8), [0, -128, 127]);
    assert_eq!(ends(&padded(1), 1u16), [0, 0, 65535]);
    let bools = |kind| reduce::<bool>(kind, &padded(1), &array([true], &[1]));
    assert_eq!(bools(WindowKind::Max), [false, true]);
    assert_eq!(bools(WindowKind::Min), [true, true]);
    assert_eq!(arg(ArgKind::Max, &padded(2), &array([4.0f64], &[1])), [-1, -1, 0]);
    // The lowest value is still found beside padding.
    let low = array([f32::NEG_INFINITY, f32::NEG_INFINITY], &[2]);
    assert_eq!(arg(ArgKind::Max, &Window { padding: vec![(1, 1)], ..window(&[2]) }, &low), [0, 0, 1]);
}

#[test]
fn every_dtype() {
    for dtype in DType::ALL {
        let x = of_dtype(dtype, [1, 0, 0, 1], &[4]);
        let w = window(&[2]);
        let pool = |kind| floats(&run(ReduceWindow { kind, window: w.clone() }, std::slice::from_ref(&x)));
        assert_eq!(pool(WindowKind::Max), [1., 0., 1.], "{dtype}");
        assert_eq!(pool(WindowKind::Min), [0., 0., 0.], "{dtype}");
        assert_eq!(arg(ArgKind::Max, &w, &x), [0, 1, 3], "{dtype}");
        assert_eq!(arg(ArgKind::Min, &w, &x), [1, 1, 2], "{dtype}");
        if dtype != DType::Bool {
            assert_eq!(pool(WindowKind::Sum), [1., 0., 1.], "{dtype}");
        }
    }
    let sums = reduce::<bf16>(WindowKind::Sum, &window(&[1000]), &array(vec![bf16::ONE; 1000], &[1000]));
    assert_eq!(sums, [bf16::from_f32(1000.0)]);
    assert_eq!(reduce::<u8>(WindowKind::Sum, &window(&[2]), &array([200u8, 100], &[2])), [44]);
}

#[test]
fn nan_is_extreme() {
    let x = array([1.0f32, f32::NAN, 3.0, f32::NAN], &[4]);
    for kind in [WindowKind::Max, WindowKind::Min, WindowKind::Sum] {
        let y = reduce::<f32>(kind, &Window { strides: [2].as_slice().into(), ..window(&[1]) }, &x);
        assert_eq!(y, [1.0, 3.0]);
        assert!(reduce::<f32>(kind, &window(&[2]), &x).iter().all(|v| v.is_nan()), "{kind:?}");
    }
    assert_eq!(arg(ArgKind::Max, &window(&[3]), &x), [1, 1]);
    assert_eq!(arg(ArgKind::Min, &window(&[4]), &x), [1]);
}

#[test]
fn scalars_empty_arrays_and_rank_8() {
    let scalar = Array::scalar(7i64);
    assert_eq!(reduce::<i64>(WindowKind::Sum, &window(&[]), &scalar), [7]);
    assert_eq!(arg(ArgKind::Min, &window(&[]), &scalar), [0]);
    let empty = array::<f32>([], &[0]);
    assert!(reduce::<f32>(WindowKind::Sum, &window(&[1]), &empty).is_empty());
    let padded = Window { padding: vec![(1, 1)], ..window(&[2]) };
    assert_eq!(reduce::<f32>(WindowKind::Max, &padded, &empty), [f32::NEG_INFINITY]);
    assert_eq!(arg(ArgKind::Max, &padded, &empty), [-1]);
    let shape = [2, 1, 2, 1, 2, 1, 2, 3];
    let x = array(0..48, &shape);
    assert_eq!(reduce::<i32>(WindowKind::Sum, &window(&shape), &x), [47 * 48 / 2]);
    assert_eq!(arg(ArgKind::Max, &window(&[1, 1, 1, 1, 2, 1, 2, 3]), &x), [11, 23, 35, 47]);
}

#[test]
fn every_window_follows_its_definition() {
    let mut stream = Stream::new(8);
    for round in 0..400 {
        let rank = stream.below(4);
        let x = {
            let shape: Vec<usize> = (0..rank).map(|_| stream.below(6)).collect();
            stream.array(DType::F64, &shape)
        };
        let w = Window {
            dimensions: (0..rank).map(|_| 1 + stream.below(3)).collect(),
            strides: (0..rank).map(|_| 1 + stream.below(3)).collect(),
            padding: (0..rank).map(|_| (stream.small(), stream.small())).collect(),
            base_dilation: (0..rank).map(|_| 1 + stream.below(3)).collect(),
            window_dilation: (0..rank).map(|_| 1 + stream.below(3)).collect(),
        };
        let kind = [WindowKind::Sum, WindowKind::Max, WindowKind::Min][round % 3];
        let y = run(ReduceWindow { kind, window: w.clone() }, std::slice::from_ref(&x));
        let op = ArgReduceWindow {
            kind: if round % 2 == 0 { ArgKind::Max } else { ArgKind::Min },
            window: w.clone(),
            index_dtype: DType::I64,
        };
        let args = values::<i64>(op.clone(), std::slice::from_ref(&x));
        let data = floats(&x);
        for (n, index) in indices(y.shape()).iter().enumerate() {
            // The positions of the elements under the window.
            let mut under = vec![];
            for k in indices(&w.dimensions) {
                let source: Option<Vec<usize>> = (0..rank)
                    .map(|d| {
                        let at = (index[d] * w.strides[d] + k[d] * w.window_dilation[d]) as i64 - w.padding[d].0;
                        let step = w.base_dilation[d] as i64;
                        let inside = at >= 0 && at % step == 0 && at / step < x.shape()[d] as i64;
                        inside.then_some((at / step) as usize)
                    })
                    .collect();
                under.extend(source.map(|s| position(x.shape(), &s)));
            }
            let found = under.iter().map(|&p| data[p]);
            let expected = match kind {
                WindowKind::Sum => found.clone().sum(),
                WindowKind::Max => found.clone().fold(f64::NEG_INFINITY, f64::max),
                WindowKind::Min => found.clone().fold(f64::INFINITY, f64::min),
            };
            assert_eq!(floats(&y)[n], expected, "{w:?} {x:?}");
            let extreme = match op.kind {
                ArgKind::Max => found.fold(f64::NEG_INFINITY, f64::max),
                ArgKind::Min => found.fold(f64::INFINITY, f64::min),
            };
            let first = under.into_iter().filter(|&p| data[p] == extreme).min();
            assert_eq!(args[n], first.map_or(-1, |p| p as i64), "{op:?} {x:?}");
        }
        for d in 0..rank {
            let n = x.shape()[d];
            let dilated = if n == 0 { 0 } else { (n - 1) * w.base_dilation[d] + 1 };
            let padded = dilated as i64 + w.padding[d].0 + w.padding[d].1;
            let span = ((w.dimensions[d] - 1) * w.window_dilation[d] + 1) as i64;
            let fits = (0..40).filter(|o| o * w.strides[d] as i64 + span <= padded).count();
            assert_eq!(y.shape()[d], fits);
        }
    }
}

#[test]
fn windows_are_checked() {
    let x = [aval("f32[4]")];
    let sum = |w: Window| ReduceWindow { kind: WindowKind::Sum, window: w };
    assert_eq!(
        fails(sum(window(&[2, 2])), &x),
        "reduce_window_sum: window_dimensions has 2 entries and f32[4] has 1 dimensions"
    );
    assert!(fails(sum(window(&[0])), &x).contains("window_dimensions has a 0"));
    let none = || [].as_slice().into();
    assert!(fails(sum(Window { strides: none(), ..window(&[1]) }), &x).contains("window_strides has 0 entries"));
    assert!(fails(sum(Window { padding: vec![], ..window(&[1]) }), &x).contains("padding has 0 entries"));
    let zero = || [0].as_slice().into();
    assert!(fails(sum(Window { base_dilation: zero(), ..window(&[1]) }), &x).contains("base_dilation has a 0"));
    assert!(fails(sum(Window { window_dilation: zero(), ..window(&[1]) }), &x).contains("window_dilation has a 0"));
    let far = Window { padding: vec![(i64::MAX, i64::MAX)], ..window(&[1]) };
    assert!(fails(sum(far), &x).contains("more than 2^63 elements"));
    assert!(fails(sum(window(&[1])), &[aval("bool[4]")]).contains("takes integers and floats, not bool[4]"));
    let arg = |index_dtype| ArgReduceWindow { kind: ArgKind::Max, window: window(&[1]), index_dtype };
    assert!(fails(arg(DType::U32), &x).contains("index_dtype is int32 or int64, not uint32"));
    assert!(
        fails(arg(DType::I32), &[aval("i8[3000000000]")]).contains("positions in i8[3000000000] do not fit in i32")
    );
    assert!(fails(arg(DType::I32), &[]).contains("takes 1 operands and got 0"));
}
