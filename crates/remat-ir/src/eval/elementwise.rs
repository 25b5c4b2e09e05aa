//! Elementwise operations: for each dtype one loop over slices, which calls the operation's function for each element. A loop for each pair
//! of an operation and a dtype would be faster, but took more than half of the crate's compile time.
//!
//! The result takes the buffer of an operand with the same shape and dtype and no other references.

use num_traits::Float;

use super::number::{FloatElement, Integer, Ordered, Real, with_float, with_integer};
use super::{elements, internal, operands};
use crate::special;
use crate::{Array, Binary, Compare, DType, Element, IntegerPow, Result, Unary, with_dtype};

/// Applies a function to each element.
pub(super) fn unary(op: &Unary, ins: Vec<Array>) -> Result<Array> {
    let [x] = operands("unary", ins)?;
    with_float!(x.dtype(), T => unary_float::<T>(*op, x), else {
        with_integer!(x.dtype(), T => unary_integer::<T>(*op, x), else unary_bool(*op, x))
    })
}

/// Raises each element to a small integer power, by repeated squaring.
pub(super) fn integer_pow(op: &IntegerPow, ins: Vec<Array>) -> Result<Array> {
    let [x] = operands("integer_pow", ins)?;
    let n = op.y.unsigned_abs();
    with_float!(x.dtype(), T => match op.y {
        2 => float::<T>(x, |x| x * x),
        3 => float::<T>(x, |x| x * (x * x)),
        0.. => float::<T>(x, |x| power(x, n)),
        _ => float::<T>(x, |x| power(x, n).recip()),
    }, else {
        with_integer!(x.dtype(), T => map(x, |x: T| Integer::pow(x, n)), else internal("integer_pow", &x))
    })
}

/// Applies a function to each pair of elements.
pub(super) fn binary(op: &Binary, ins: Vec<Array>) -> Result<Array> {
    let [a, b] = operands("binary", ins)?;
    with_float!(a.dtype(), T => binary_float::<T>(*op, a, b), else {
        with_integer!(a.dtype(), T => binary_integer::<T>(*op, a, b), else binary_bool(*op, a, b))
    })
}

/// Compares each pair of elements; a NaN is unequal to everything and neither smaller nor larger.
pub(super) fn compare(op: &Compare, ins: Vec<Array>) -> Result<Array> {
    let [a, b] = operands("compare", ins)?;
    with_dtype!(a.dtype(), T => match op {
        Compare::Eq => test(&a, &b, T::eq),
        Compare::Ne => test(&a, &b, T::ne),
        Compare::Lt => test(&a, &b, T::lt),
        Compare::Le => test(&a, &b, T::le),
        Compare::Gt => test(&a, &b, T::gt),
        Compare::Ge => test(&a, &b, T::ge),
    })
}

/// For each element, selects the case whose number the selector has.
pub(super) fn select_n(mut ins: Vec<Array>) -> Result<Array> {
    let widest = ins.iter().find(|x| x.aval().rank() > 0).unwrap_or(&ins[0]).aval().clone();
    let cases = ins.split_off(1);
    let [which] = operands("select_n", ins)?;
    let out = widest.with_dtype(cases[0].dtype());
    let which: Box<dyn Fn(usize) -> usize> = if which.dtype() == DType::Bool {
        let which = Lanes::<bool>::of(&which)?;
        Box::new(move |i| usize::from(which.at(i)))
    } else {
        let which = Lanes::<i32>::of(&which)?;
        Box::new(move |i| which.at(i).max(0) as usize)
    };
    with_dtype!(out.dtype, T => {
        let cases = cases.iter().map(Lanes::<T>::of).collect::<Result<Vec<_>>>()?;
        let last = cases.len() - 1;
        let data = (0..out.size()).map(|i| cases[which(i).min(last)].at(i)).collect();
        Array::new(out, T::wrap(data))
    })
}

/// The smaller of the upper bound and the larger of the lower bound and the element; a NaN wins.
pub(super) fn clamp(ins: Vec<Array>) -> Result<Array> {
    let [low, x, high] = operands("clamp", ins)?;
    with_dtype!(x.dtype(), T => {
        let x = zip(x, low, |x: T, low: T| x.largest(low))?;
        zip(x, high, |x: T, high: T| x.smallest(high))
    })
}

fn unary_float<T: FloatElement>(op: Unary, x: Array) -> Result<Array> {
    match op {
        Unary::Neg => float::<T>(x, |x| -x),
        Unary::Sign => float::<T>(x, |x| if x == T::Wide::ZERO || x.is_nan() { x } else { x.signum() }),
        Unary::Abs => float::<T>(x, Float::abs),
        Unary::Floor => float::<T>(x, Float::floor),
        Unary::Ceil => float::<T>(x, Float::ceil),
        Unary::Round => float::<T>(x, Real::round_half_even),
        Unary::Exp => float::<T>(x, Float::exp),
        Unary::Exp2 => float::<T>(x, Float::exp2),
        Unary::Expm1 => float::<T>(x, Float::exp_m1),
        Unary::Log => float::<T>(x, Float::ln),
        Unary::Log1p => float::<T>(x, Float::ln_1p),
        Unary::Sqrt => float::<T>(x, Float::sqrt),
        Unary::Rsqrt => float::<T>(x, |x| x.sqrt().recip()),
        Unary::Cbrt => float::<T>(x, Float::cbrt),
        Unary::Logistic => float::<T>(x, |x| (T::Wide::ONE + (-x).exp()).recip()),
        Unary::Sin => float::<T>(x, Float::sin),
        Unary::Cos => float::<T>(x, Float::cos),
        Unary::Tan => float::<T>(x, Float::tan),
        Unary::Asin => float::<T>(x, Float::asin),
        Unary::Acos => float::<T>(x, Float::acos),
        Unary::Atan => float::<T>(x, Float::atan),
        Unary::Sinh => float::<T>(x, Float::sinh),
        Unary::Cosh => float::<T>(x, Float::cosh),
        Unary::Tanh => float::<T>(x, Float::tanh),
        Unary::Asinh => float::<T>(x, |x| x.through_f64(libm::asinh)),
        Unary::Acosh => float::<T>(x, |x| x.through_f64(special::acosh)),
        Unary::Atanh => float::<T>(x, |x| x.through_f64(libm::atanh)),
        Unary::Erf => float::<T>(x, |x| x.through_f64(libm::erf)),
        Unary::Erfc => float::<T>(x, |x| x.through_f64(libm::erfc)),
        Unary::Erfcx => float::<T>(x, |x| x.through_f64(special::erfcx)),
        Unary::ErfInv => float::<T>(x, |x| x.through_f64(special::erf_inv)),
        Unary::Lgamma => float::<T>(x, |x| x.through_f64(libm::lgamma)),
        Unary::Digamma => float::<T>(x, |x| x.through_f64(special::digamma)),
        Unary::IsFinite => {
            let finite = elements::<T>(&x)?.iter().map(|x| x.widen().is_finite()).collect();
            Array::new(x.aval().with_dtype(DType::Bool), bool::wrap(finite))
        }
        Unary::Not | Unary::PopulationCount => internal(op.name(), &x),
    }
}

fn unary_integer<T: Integer>(op: Unary, x: Array) -> Result<Array> {
    match op {
        Unary::Neg => map(x, T::neg),
        Unary::Sign => map(x, T::sign),
        Unary::Abs => map(x, T::abs),
        Unary::Not => map(x, T::not),
        Unary::PopulationCount => map(x, T::count_ones),
        // The shape rule takes these of floats only.
        _ => internal(op.name(), &x),
    }
}

fn unary_bool(op: Unary, x: Array) -> Result<Array> {
    if op == Unary::Not { map(x, |x: bool| !x) } else { internal(op.name(), &x) }
}

fn binary_float<T: FloatElement>(op: Binary, a: Array, b: Array) -> Result<Array> {
    let wide = |f: fn(T::Wide, T::Wide) -> T::Wide| move |a: T, b: T| T::narrow(f(a.widen(), b.widen()));
    match op {
        Binary::Add | Binary::AddAny => zip(a, b, |a: T, b: T| T::narrow(a.widen() + b.widen())),
        Binary::Sub => zip(a, b, |a: T, b: T| T::narrow(a.widen() - b.widen())),
        Binary::Mul => zip(a, b, |a: T, b: T| T::narrow(a.widen() * b.widen())),
        Binary::Div => zip(a, b, |a: T, b: T| T::narrow(a.widen() / b.widen())),
        Binary::Rem => zip(a, b, wide(|a, b| a % b)),
        Binary::Pow => zip(a, b, wide(Float::powf)),
        Binary::Atan2 => zip(a, b, wide(Float::atan2)),
        Binary::Max => zip(a, b, T::largest),
        Binary::Min => zip(a, b, T::smallest),
        Binary::And | Binary::Or | Binary::Xor => internal(op.name(), &a),
        Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => internal(op.name(), &a),
    }
}

fn binary_integer<T: Integer>(op: Binary, a: Array, b: Array) -> Result<Array> {
    match op {
        Binary::Add | Binary::AddAny => zip(a, b, T::add),
        Binary::Sub => zip(a, b, T::sub),
        Binary::Mul => zip(a, b, T::mul),
        Binary::Div => zip(a, b, T::div),
        Binary::Rem => zip(a, b, T::rem),
        Binary::Max => zip(a, b, T::largest),
        Binary::Min => zip(a, b, T::smallest),
        Binary::And => zip(a, b, T::and),
        Binary::Or => zip(a, b, T::or),
        Binary::Xor => zip(a, b, T::xor),
        Binary::ShiftLeft => zip(a, b, T::shift_left),
        Binary::ShiftRightLogical => zip(a, b, T::shift_right_logical),
        Binary::ShiftRightArithmetic => zip(a, b, T::shift_right_arithmetic),
        Binary::Pow | Binary::Atan2 => internal(op.name(), &a),
    }
}

fn binary_bool(op: Binary, a: Array, b: Array) -> Result<Array> {
    match op {
        Binary::Max | Binary::Or => zip(a, b, |a: bool, b: bool| a | b),
        Binary::Min | Binary::And => zip(a, b, |a: bool, b: bool| a & b),
        Binary::Xor => zip(a, b, |a: bool, b: bool| a ^ b),
        Binary::Add | Binary::AddAny | Binary::Sub | Binary::Mul | Binary::Div | Binary::Rem => internal(op.name(), &a),
        Binary::Pow | Binary::Atan2 => internal(op.name(), &a),
        Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => internal(op.name(), &a),
    }
}

/// The power by repeated squaring; `x` to the zero is one, also for NaN.
fn power<F: Float>(x: F, mut exponent: u32) -> F {
    let (mut result, mut square) = (F::one(), x);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * square;
        }
        exponent >>= 1;
        square = square * square;
    }
    result
}

/// Elements by position: a scalar for all positions, or an element for each.
enum Lanes<'a, T> {
    One(T),
    All(&'a [T]),
}

impl<'a, T: Element> Lanes<'a, T> {
    fn of(array: &'a Array) -> Result<Lanes<'a, T>> {
        let all = elements::<T>(array)?;
        match (array.shape(), all) {
            ([], &[one]) => Ok(Lanes::One(one)),
            _ => Ok(Lanes::All(all)),
        }
    }

    fn at(&self, i: usize) -> T {
        match self {
            Lanes::One(one) => *one,
            Lanes::All(all) => all[i],
        }
    }
}

/// Applies a function of wide floats to each element.
fn float<T: FloatElement>(x: Array, f: impl Fn(T::Wide) -> T::Wide) -> Result<Array> {
    map(x, |x: T| T::narrow(f(x.widen())))
}

/// Applies a function to each element.
fn map<T: Element>(x: Array, f: impl Fn(T) -> T) -> Result<Array> {
    map_dyn(x, &f)
}

/// [`map`] through a function pointer, so that it is compiled once for each dtype and not for each operation. It works in place if there
/// are no other references.
fn map_dyn<T: Element>(x: Array, f: &dyn Fn(T) -> T) -> Result<Array> {
    let aval = x.aval().clone();
    let data = match x.try_into_data() {
        Ok(mut data) => {
            T::slice_mut(&mut data).unwrap_or_default().iter_mut().for_each(|x| *x = f(*x));
            data
        }
        Err(x) => T::wrap(elements::<T>(&x)?.iter().map(|&x| f(x)).collect()),
    };
    Array::new(aval, data)
}

/// Applies a function to each pair of elements.
fn zip<T: Element>(a: Array, b: Array, f: impl Fn(T, T) -> T) -> Result<Array> {
    zip_dyn(a, b, &f)
}

/// [`zip`] through a function pointer, as [`map_dyn`]. It works in place if one operand has no other references.
fn zip_dyn<T: Element>(a: Array, b: Array, f: &dyn Fn(T, T) -> T) -> Result<Array> {
    match (Lanes::of(&a)?, Lanes::of(&b)?) {
        (Lanes::One(a), Lanes::All(_)) => return map(b, |b| f(a, b)),
        (_, Lanes::One(b)) => return map(a, |a| f(a, b)),
        (Lanes::All(_), Lanes::All(_)) => {}
    }
    let aval = a.aval().clone();
    let a = match a.try_into_data() {
        Ok(mut data) => {
            let pairs = T::slice_mut(&mut data).unwrap_or_default().iter_mut().zip(elements::<T>(&b)?);
            pairs.for_each(|(a, &b)| *a = f(*a, b));
            return Array::new(aval, data);
        }
        Err(a) => a,
    };
    let data = match b.try_into_data() {
        Ok(mut data) => {
            let pairs = T::slice_mut(&mut data).unwrap_or_default().iter_mut().zip(elements::<T>(&a)?);
            pairs.for_each(|(b, &a)| *b = f(a, *b));
            data
        }
        Err(b) => {
            let pairs = elements::<T>(&a)?.iter().zip(elements::<T>(&b)?);
            T::wrap(pairs.map(|(&a, &b)| f(a, b)).collect())
        }
    };
    Array::new(aval, data)
}

/// Applies a predicate to each pair of elements.
fn test<T: Element>(a: &Array, b: &Array, f: fn(&T, &T) -> bool) -> Result<Array> {
    let (aval, data) = match (Lanes::of(a)?, Lanes::of(b)?) {
        (Lanes::One(x), Lanes::One(y)) => (a.aval(), vec![f(&x, &y)]),
        (Lanes::One(x), Lanes::All(ys)) => (b.aval(), ys.iter().map(|y| f(&x, y)).collect()),
        (Lanes::All(xs), Lanes::One(y)) => (a.aval(), xs.iter().map(|x| f(x, &y)).collect()),
        (Lanes::All(xs), Lanes::All(ys)) => (a.aval(), xs.iter().zip(ys).map(|(x, y)| f(x, y)).collect()),
    };
    Array::new(aval.with_dtype(DType::Bool), bool::wrap(data))
}
