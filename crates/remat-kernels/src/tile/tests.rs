//! Every function on every dtype and at every level of the CPU, compared with the evaluator.

use half::{bf16, f16};
use remat_ir::{
    Array, Aval, Binary, BitcastConvertType, Clamp, Class, Compare, ConvertElementType, DType, Data, Element,
    IntegerPow, Literal, Operation, Prim, Reduce, ReduceKind, ReducePrecision, SelectN, Unary, eval_op, with_dtype,
};

use super::*;
use remat_testkit::arrays::{Stream, assert_same, filled};

/// Lengths: zero, one, less than a block, a block, blocks and a remainder.
const LENGTHS: [usize; 7] = [0, 1, 3, 63, 64, 65, 517];

/// Memory for elements of any type, aligned to 8 bytes.
pub(super) struct Register {
    words: Vec<u64>,
}

impl Register {
    /// `n` elements of 8 bytes, whose bits are 1.
    fn new(n: usize) -> Register {
        Register { words: vec![u64::MAX; n + 1] }
    }

    fn fill<T: Copy>(elements: impl ExactSizeIterator<Item = T>) -> Register {
        let mut register = Register::new(elements.len());
        for (i, x) in elements.enumerate() {
            // SAFETY: there are 8 bytes for each element, aligned to 8 bytes.
            unsafe { register.as_mut_ptr().cast::<T>().add(i).write(x) };
        }
        register
    }

    /// The elements of an array in register format.
    pub(super) fn of(x: &Array) -> Register {
        match x.data() {
            Data::F16(v) => Register::fill(v.iter().map(|x| x.to_f32())),
            Data::Bf16(v) => Register::fill(v.iter().map(|x| x.to_f32())),
            _ => Register::memory(x),
        }
    }

    /// The elements of an array in memory format.
    fn memory(x: &Array) -> Register {
        with_dtype!(x.dtype(), T => Register::fill(T::slice(x.data()).expect("the dtype").iter().copied()))
    }

    pub(super) fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }

    fn read<T: Copy>(&self, n: usize) -> Vec<T> {
        assert!(n < self.words.len());
        // SAFETY: there are 8 bytes for each element, and the caller knows that they are of this type.
        (0..n).map(|i| unsafe { self.as_ptr().cast::<T>().add(i).read() }).collect()
    }

    /// The array in the register. Elements are already rounded if the dtype needs it.
    pub(super) fn array(&self, dtype: DType, shape: &[usize]) -> Array {
        let aval = Aval::new(dtype, shape.iter().copied());
        let n = aval.size();
        let data = match dtype {
            DType::Bool => Data::Bool(self.read::<u8>(n).into_iter().map(|x| [false, true][usize::from(x)]).collect()),
            DType::F16 => Data::F16(self.read::<f32>(n).into_iter().map(|x| exactly(x, f16::from_f32(x))).collect()),
            DType::Bf16 => Data::Bf16(self.read::<f32>(n).into_iter().map(|x| exactly(x, bf16::from_f32(x))).collect()),
            _ => with_dtype!(dtype, T => T::wrap(self.read::<T>(n))),
        };
        Array::new(aval, data).expect("the size")
    }
}

fn exactly<T: Into<f32> + Copy>(register: f32, x: T) -> T {
    assert!(register.is_nan() || x.into().to_bits() == register.to_bits(), "{register} is not rounded");
    x
}

/// Values that are likely to be handled wrongly, and random ones of all magnitudes.
pub(super) fn values(dtype: DType, n: usize, seed: u64) -> Array {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -3.5,
        7.0,
        64.0,
        -64.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN_POSITIVE,
        65504.0,
        65519.0,
        65520.0,
        6e-8,
        2e-8,
        1e-40,
        -6e-5,
        3e38,
        2147483648.0,
        9.3e18,
        1.9e19,
        255.5,
        -128.5,
    ];
    filled(dtype, &[n], seed, |stream| match stream.below(4) {
        0 => Literal::from_f64(dtype, special[stream.below(special.len())]),
        1 => Literal::from_f64(dtype, (stream.bits() as i64 as f64) / 2f64.powi(60)),
        2 => Literal::from_f64(dtype, stream.below(256) as f64 - 128.0),
        _ if dtype == DType::Bool => Literal::from_bool(stream.bits() & 1 == 1),
        _ => Literal::from_bits(dtype, stream.bits() & (u64::MAX >> (64 - dtype.bits()))),
    })
}

/// Runs the function of an operation, into a register of its own and in place of each operand of the output's size.
pub(super) fn run(level: Level, op: &Prim, ins: &[Array]) -> Option<Vec<Array>> {
    let dtypes: Vec<DType> = ins.iter().map(Array::dtype).collect();
    let avals: Vec<Aval> = ins.iter().map(|x| x.aval().clone()).collect();
    let out = op.infer(&avals).expect("valid operands").remove(0);
    let f = elementwise_at(level, op, &dtypes)?;
    let size = |dtype| register_type(dtype).size();
    let places = (0..ins.len()).filter(|&i| size(ins[i].dtype()) == size(out.dtype)).map(Some);
    let results = std::iter::once(None).chain(places).map(|place| {
        let mut registers: Vec<Register> = ins.iter().map(Register::of).collect();
        let mut result = Register::new(out.size());
        let to = place.map_or(result.as_mut_ptr(), |i: usize| registers[i].as_mut_ptr());
        let immediate = immediate(op);
        let mut pointers: Vec<*const u8> = registers.iter().map(Register::as_ptr).collect();
        if let Some(i) = place {
            pointers[i] = to;
        }
        pointers.extend(immediate.as_ref().map(|immediate| immediate.as_ptr().cast::<u8>()));
        // SAFETY: the registers hold `out.size()` elements of the dtypes that the function was made for.
        unsafe { f(out.size(), to, &pointers) };
        let result = place.map_or(&result, |i| &registers[i]);
        result.array(out.dtype, &out.shape)
    });
    Some(results.collect())
}

/// Compares with the evaluator, bit for bit, wherever the operation takes operands of these dtypes.
fn check(op: impl Into<Prim>, ins: &[DType]) {
    let op = op.into();
    let empty: Vec<Aval> = ins.iter().map(|&dtype| Aval::new(dtype, [0])).collect();
    if op.infer(&empty).is_err() {
        return;
    }
    for (seed, n) in LENGTHS.into_iter().enumerate() {
        let ins: Vec<Array> = (0..).zip(ins).map(|(i, &dtype)| values(dtype, n, 100 * seed as u64 + i)).collect();
        let expected = eval_op(&op.clone().into(), &ins).expect("valid operands").remove(0);
        for level in Level::all() {
            let what =
                format!("{op:?} on {ins:?} at {level:?}", ins = ins.iter().map(Array::dtype).collect::<Vec<_>>());
            let results = run(level, &op, &ins).unwrap_or_else(|| panic!("there is no function: {what}"));
            for result in results {
                assert_same(&result, &expected, &what);
            }
        }
    }
}

/// Whether results may differ from the evaluator's in the last place.
pub(super) fn is_approximate(op: Unary) -> bool {
    op.class() == Class::Transcendental && !matches!(op, Unary::Sqrt | Unary::Rsqrt)
}

/// Functions that are left out at compile time are missing at run time, so every operation needs a function for each of its dtypes.
#[test]
fn every_kind_has_a_function_in_every_dtype() {
    for dtype in DType::ALL {
        let unary = Unary::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| (Prim::from(op), 1));
        let binary = Binary::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| (Prim::from(op), 2));
        let compare = Compare::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| (Prim::from(op), 2));
        for (op, operands) in unary.chain(binary).chain(compare) {
            let function = elementwise(&op, &vec![dtype; operands]);
            assert!(function.is_some(), "there is no function for {} of {dtype}", op.name());
        }
        for kind in ReduceKind::ALL.into_iter().filter(|kind| kind.takes(dtype)) {
            assert!(reduce_rows(kind, register_type(dtype)).is_some(), "{} of {dtype}", kind.name());
            assert!(accumulate(kind, dtype).is_some(), "{} of {dtype}", kind.name());
        }
    }
}

#[test]
fn unary() {
    for op in Unary::ALL.into_iter().filter(|&op| !is_approximate(op)) {
        DType::ALL.into_iter().for_each(|dtype| check(op, &[dtype]));
    }
}

#[test]
fn binary() {
    for op in Binary::ALL.into_iter().filter(|op| !matches!(op, Binary::Pow | Binary::Atan2)) {
        DType::ALL.into_iter().for_each(|dtype| check(op, &[dtype, dtype]));
    }
}

#[test]
fn binary_with_one_element() {
    let known = [Binary::Add, Binary::AddAny, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min];
    for op in Binary::ALL {
        for (dtype, one) in DType::ALL.into_iter().flat_map(|dtype| [(dtype, 0), (dtype, 1)]) {
            assert_eq!(with_one(&op.into(), dtype, one).is_some(), known.contains(&op) && dtype.is_float());
            for (seed, n) in LENGTHS.into_iter().enumerate() {
                let (x, element) = (values(dtype, n, seed as u64), values(dtype, 1, 77 + seed as u64));
                let repeated = filled(dtype, &[n], 0, |_| element.data().get(0).expect("one element"));
                for level in Level::all() {
                    let Some(f) = with_one_at(level, &op.into(), dtype, one) else { continue };
                    let ins = if one == 0 { [repeated.clone(), x.clone()] } else { [x.clone(), repeated.clone()] };
                    let expected = eval_op(&op.into(), &ins).expect("valid operands").remove(0);
                    let (mut register, element) = (Register::of(&x), Register::of(&element));
                    // SAFETY: the registers hold `n` elements and one, of the dtype that the function was made for.
                    let to = register.as_mut_ptr();
                    unsafe { f(n, to, &[to.cast_const(), element.as_ptr()]) };
                    assert_same(&register.array(dtype, &[n]), &expected, &format!("{op:?} {dtype} {one} at {level:?}"));
                }
            }
        }
    }
}

#[test]
fn compare() {
    for op in Compare::ALL {
        DType::ALL.into_iter().for_each(|dtype| check(op, &[dtype, dtype]));
    }
}

#[test]
fn integer_pow() {
    for y in [0, 1, 2, 3, 4, 5, 7, 8, 31, 1_000_003, i32::MAX, -1, -2, -3, -7, -8, i32::MIN] {
        DType::ALL.into_iter().for_each(|dtype| check(IntegerPow { y }, &[dtype]));
    }
}

#[test]
fn clamp() {
    DType::ALL.into_iter().for_each(|dtype| check(Clamp, &[dtype; 3]));
}

#[test]
fn select_n() {
    for dtype in DType::ALL {
        check(SelectN, &[DType::Bool, dtype]);
        check(SelectN, &[DType::Bool, dtype, dtype]);
        check(SelectN, &[DType::I32, dtype]);
        check(SelectN, &[DType::I32, dtype, dtype]);
        check(SelectN, &[DType::I32, dtype, dtype, dtype, dtype]);
    }
}

#[test]
fn convert_element_type() {
    for from in DType::ALL {
        DType::ALL.into_iter().for_each(|dtype| check(ConvertElementType { dtype }, &[from]));
    }
}

#[test]
fn bitcast_convert_type() {
    for from in DType::ALL {
        for dtype in DType::ALL.into_iter().filter(|to| to.size() == from.size()) {
            check(BitcastConvertType { dtype }, &[from]);
        }
        for dtype in DType::ALL.into_iter().filter(|to| to.size() != from.size()) {
            assert!(elementwise(&BitcastConvertType { dtype }.into(), &[from]).is_none());
        }
    }
}

#[test]
fn reduce_precision() {
    for dtype in DType::ALL {
        for exponent_bits in [1, 2, 4, 5, 8, 11, 20] {
            for mantissa_bits in [0, 1, 3, 7, 10, 23, 30, 52, 60] {
                check(ReducePrecision { exponent_bits, mantissa_bits }, &[dtype]);
            }
        }
    }
}

#[test]
fn load_and_store() {
    for dtype in [DType::F16, DType::Bf16] {
        let n = 1 << 16;
        let x = filled(dtype, &[n], 1, {
            let next = std::cell::Cell::new(0);
            move |_: &mut Stream| Literal::from_bits(dtype, next.replace(next.get() + 1))
        });
        for level in Level::all() {
            let (load, store) = (moves::load_at(level, dtype).unwrap(), moves::store_at(level, dtype).unwrap());
            let (memory, mut register, mut back) = (Register::memory(&x), Register::new(n), Register::new(n));
            // SAFETY: each holds `n` elements of the type that is read or written.
            unsafe {
                load(n, register.as_mut_ptr(), &[memory.as_ptr()]);
                store(n, back.as_mut_ptr(), &[register.as_ptr()]);
            }
            assert_same(&register.array(dtype, &[n]), &x, "loaded");
            let stored = back.read::<u16>(n).into_iter().map(|bits| Literal::from_bits(dtype, bits.into()));
            for (stored, x) in stored.zip(memory.read::<u16>(n)) {
                let x = Literal::from_bits(dtype, x.into());
                assert!(stored == x || (stored.as_f64().is_nan() && x.as_f64().is_nan()), "{stored} {x}");
            }
        }
    }
    assert!(load(DType::F32).is_none() && store(DType::I8).is_none());
}

#[test]
fn rounding_to_half_types() {
    let check = |bits: u32| {
        let x = f32::from_bits(bits);
        let same = |got: f32, expected: f32| got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
        assert!(same(crate::number::rounding::round_to_f16(x), f16::from_f32(x).to_f32()), "{x}");
        assert!(same(crate::number::rounding::round_to_bf16(x), bf16::from_f32(x).to_f32()), "{x}");
    };
    (0..u32::MAX).step_by(997).for_each(check);
    // Around every tie of f16.
    for bits in 0..=u16::MAX {
        let tie = f16::from_bits(bits).to_f32().to_bits().wrapping_add(0x1000);
        (-2..3).for_each(|offset| check(tie.wrapping_add_signed(offset)));
    }
}

const KINDS: [ReduceKind; 6] =
    [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min, ReduceKind::And, ReduceKind::Or];

/// Operands of a reduction: floats from a small set, of which all sums and products are exact in any order.
fn terms(kind: ReduceKind, dtype: DType, shape: &[usize], seed: u64) -> Array {
    match kind {
        ReduceKind::Sum if dtype.is_float() => {
            filled(dtype, shape, seed, |stream| Literal::from_f64(dtype, stream.below(3) as f64 - 1.0))
        }
        ReduceKind::Prod if dtype.is_float() => {
            filled(dtype, shape, seed, |stream| Literal::from_f64(dtype, [1.0, -1.0, 1.0][stream.below(3)]))
        }
        _ => {
            let n = shape.iter().product();
            Array::new(Aval::new(dtype, shape.iter().copied()), values(dtype, n, seed).data().clone())
                .expect("the size")
        }
    }
}

#[test]
fn reductions_of_rows() {
    for kind in KINDS {
        for dtype in DType::ALL {
            let op = Prim::from(Reduce { kind, axes: [1].into_iter().collect() });
            if op.infer(&[Aval::new(dtype, [1, 1])]).is_err() {
                assert!(reduce_rows(kind, dtype).is_none() && accumulate(kind, dtype).is_none());
                continue;
            }
            for (rows, columns) in [(0, 3), (3, 0), (1, 1), (5, 3), (4, 8), (3, 13), (2, 64), (3, 131), (1, 1000)] {
                let x = terms(kind, dtype, &[rows, columns], (rows * columns) as u64);
                let expected = eval_op(&op.clone().into(), std::slice::from_ref(&x)).expect("valid operands").remove(0);
                for level in Level::all() {
                    let what = format!("{kind:?} of {rows} rows of {columns} {dtype} at {level:?}");
                    let mut out = Register::new(rows);
                    let f = reduce::reduce_rows_at(level, kind, dtype).expect("a function");
                    // SAFETY: the registers hold that many elements.
                    unsafe { f(rows, columns, out.as_mut_ptr(), Register::of(&x).as_ptr()) };
                    assert_same(&out.array(dtype, &[rows]), &expected, &what);
                }
            }
        }
    }
}

#[test]
fn accumulations() {
    for kind in KINDS {
        for dtype in DType::ALL {
            let op = Prim::from(Reduce { kind, axes: [0].into_iter().collect() });
            if op.infer(&[Aval::new(dtype, [1, 1])]).is_err() {
                continue;
            }
            for (rows, columns) in [(0, 5), (1, 1), (7, 70), (300, 3)] {
                let x = terms(kind, dtype, &[rows, columns], (rows * columns) as u64);
                let expected = eval_op(&op.clone().into(), std::slice::from_ref(&x)).expect("valid operands").remove(0);
                let size = register_type(dtype).size();
                for level in Level::all() {
                    let f = reduce::accumulate_at(level, kind, dtype).expect("a function");
                    let start = identity(kind, dtype).expect("an identity");
                    let (x, mut sums) = (Register::of(&x), Register::new(columns));
                    // SAFETY: the registers hold that many elements.
                    unsafe {
                        spread(dtype)(1, columns, sums.as_mut_ptr(), start.as_ptr());
                        for row in 0..rows {
                            let input = x.as_ptr().add(row * columns * size);
                            f(columns, sums.as_mut_ptr(), &[sums.as_ptr(), input]);
                        }
                        if let Some(finish) = finish(dtype) {
                            finish(columns, sums.as_mut_ptr(), &[sums.as_ptr()]);
                        }
                    }
                    let what = format!("{kind:?} of {rows} times {columns} {dtype} at {level:?}");
                    assert_same(&sums.array(dtype, &[columns]), &expected, &what);
                }
            }
        }
    }
}

/// A sum of half floats is rounded once, at the end.
#[test]
fn half_floats_accumulate_in_f32() {
    for dtype in [DType::F16, DType::Bf16] {
        let (x, mut out) = (vec![1.0f32; 3000], [0.0f32]);
        let sum = reduce_rows(ReduceKind::Sum, dtype).expect("a function");
        // SAFETY: there are 3000 elements to read and one to write.
        unsafe { sum(1, 3000, out.as_mut_ptr().cast(), x.as_ptr().cast()) };
        assert_eq!(out, if dtype == DType::F16 { [3000.0] } else { [3008.0] });
    }
}

/// The error of a long sum does not grow like that of adding elements one after the other.
#[test]
fn long_sums_are_accurate() {
    let x = vec![0.1f32; 1 << 20];
    let mut out = [0.0f32];
    let sum = reduce_rows(ReduceKind::Sum, DType::F32).expect("a function");
    // SAFETY: there are as many elements to read and one to write.
    unsafe { sum(1, x.len(), out.as_mut_ptr().cast(), x.as_ptr().cast()) };
    let expected = f64::from(0.1f32) * x.len() as f64;
    assert!((f64::from(out[0]) / expected - 1.0).abs() < 1e-5, "{out:?} {expected}");
}

#[test]
fn spreading() {
    for dtype in DType::ALL {
        for (rows, columns) in [(0, 3), (3, 0), (1, 1), (5, 3), (3, 70)] {
            let x = values(dtype, rows, 3);
            let mut out = Register::new(rows * columns);
            // SAFETY: the registers hold that many elements.
            unsafe { spread(dtype)(rows, columns, out.as_mut_ptr(), Register::of(&x).as_ptr()) };
            let indices = (0..rows).flat_map(|r| std::iter::repeat_n(r, columns));
            let expected: Vec<Literal> = indices.map(|r| x.data().get(r).expect("a row")).collect();
            let got = out.array(dtype, &[rows * columns]);
            for (i, expected) in expected.iter().enumerate() {
                let got = got.data().get(i).expect("the size");
                assert!(got == *expected || got.as_f64().is_nan(), "{dtype} {rows} {columns}");
            }
        }
    }
}

#[test]
fn strides() {
    fn check<T: Element>(x: Vec<T>) {
        for stride in [0isize, 1, 2, 3, 7, -1, -2, -5] {
            for n in [0, 1, 5, 70] {
                let start = if stride < 0 { (n.max(1) - 1) * stride.unsigned_abs() } else { 0 };
                let mut out = vec![T::default(); n];
                // SAFETY: with this start, all elements that are read are in the vector, which is long enough for each case.
                unsafe {
                    strided(size_of::<T>())(n, out.as_mut_ptr().cast(), x.as_ptr().add(start).cast(), stride);
                }
                let expected: Vec<T> = (0..n).map(|i| x[start.wrapping_add_signed(i as isize * stride)]).collect();
                assert_eq!(out, expected);
            }
        }
    }
    check((0..600).map(|i| i as u8).collect());
    check((0..600).map(|i| i as u16).collect());
    check((0..600).map(|i| i as f32).collect());
    check((0..600).map(f64::from).collect());
}
