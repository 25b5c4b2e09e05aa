//! What the tests of all families use.

use std::sync::Arc;

use remat_ir::{Array, Aval, DType, Element, Literal, Op, ParamMap, eval_op, with_dtype};

/// An array of these elements.
pub(crate) fn array<T: Element>(values: impl IntoIterator<Item = T>, shape: &[usize]) -> Array {
    Array::from_vec(values.into_iter().collect(), shape.iter().copied()).unwrap()
}

/// An array of integers in any dtype, converted.
pub(crate) fn of_dtype(dtype: DType, values: impl IntoIterator<Item = i64>, shape: &[usize]) -> Array {
    with_dtype!(dtype, T => {
        let value = |v| T::from_literal(Literal::from_i128(dtype, i128::from(v))).unwrap();
        array::<T>(values.into_iter().map(value), shape)
    })
}

/// The elements as f64.
pub(crate) fn floats(array: &Array) -> Vec<f64> {
    (0..array.aval().size()).map(|i| array.data().get(i).unwrap().as_f64()).collect()
}

/// The one result.
pub(crate) fn run(op: impl Into<Op>, ins: &[Array]) -> Array {
    let op = op.into();
    let avals: Vec<Aval> = ins.iter().map(|a| a.aval().clone()).collect();
    let inferred = op.infer(&avals).unwrap_or_else(|e| panic!("{e} for {op:?}"));
    let outs = eval_op(&op, ins).unwrap_or_else(|e| panic!("{e} for {op:?}"));
    let [out] = &outs[..] else { panic!("{} has {} results", op.name(), outs.len()) };
    assert_eq!(out.aval(), &inferred[0], "{op:?}");
    assert_eq!(out.data().len(), inferred[0].size());
    round_trip(&op);
    out.clone()
}

/// The elements of the one result.
pub(crate) fn values<T: Element>(op: impl Into<Op>, ins: &[Array]) -> Vec<T> {
    run(op, ins).as_slice::<T>().expect("the dtype of the result").to_vec()
}

/// The message of the shape rule.
pub(crate) fn fails(op: impl Into<Op>, avals: &[Aval]) -> String {
    op.into().infer(avals).expect_err("the shape rule must fail").to_string()
}

/// Checks that the operation is what its name and parameters say.
pub(crate) fn round_trip(op: &Op) {
    let params = op.params().into_iter().map(|(name, param)| (Arc::from(name), param)).collect();
    assert_eq!(&Op::parse(op.name(), &ParamMap::new(op.name(), params)).unwrap(), op);
}

/// An aval from its text: `f32[2,3]`.
pub(crate) fn aval(text: &str) -> Aval {
    let (dtype, shape) = text.trim_end_matches(']').split_once('[').expect("an aval");
    let shape = shape.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().expect("a size"));
    Aval::new(DType::from_name(dtype).expect("a dtype"), shape)
}

/// Every index of this shape in row-major order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &size in shape {
        all = all.into_iter().flat_map(|i| (0..size).map(move |k| [&i[..], &[k]].concat())).collect();
    }
    all
}

/// The row-major position of an index.
pub(crate) fn position(shape: &[usize], index: &[usize]) -> usize {
    assert_eq!(shape.len(), index.len());
    shape.iter().zip(index).fold(0, |p, (&size, &i)| {
        assert!(i < size, "{index:?} in {shape:?}");
        p * size + i
    })
}

/// A small deterministic stream of numbers.
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(seed: u64) -> Stream {
        Stream(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    /// An integer from -4 to 4.
    pub(crate) fn small(&mut self) -> i64 {
        self.below(9) as i64 - 4
    }

    /// `0..n` in some order.
    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut p: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            p.swap(i, self.below(i + 1));
        }
        p
    }

    /// Small integers.
    pub(crate) fn array(&mut self, dtype: DType, shape: &[usize]) -> Array {
        let values: Vec<i64> = (0..shape.iter().product()).map(|_| self.small()).collect();
        of_dtype(dtype, values, shape)
    }
}
