//! What the methods of Jacobi have in common: rotations of pairs of rows, in sweeps over all pairs.
//!
//! A round rotates rows `i` and `k + i` of `2k` rows, for all `i < k` at once, and then moves all rows but the first one on by one place, so that
//! after `2k - 1` rounds, a sweep, each has met each other one, and all are where they were. Source: Brent and Luk, "The solution of singular-value and
//! symmetric eigenvalue problems on multiprocessor arrays", SIAM J. Sci. Stat. Comput. 6 (1985).

use remat_ir::{
    Atom, Aval, Binary, BitcastConvertType, Builder, Compare, DType, Iota, Literal, Loc, ReduceKind, Result, Shape,
    Sort, Unary, While,
};

use super::build::{along, binary, compare, concatenated, float, folded, part, repeated, select, unary};

/// The most sweeps, after which the result is taken as it is. Convergence is quadratic: ten suffice for most matrices, some twenty for those with
/// many equal eigenvalues or very different ones, and up to thirty in f64.
const SWEEPS: i128 = 40;

/// The distance from 1 to the next number.
pub(super) fn epsilon(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

/// Rotations by angles.
pub(super) struct Rotations {
    /// The tangent of each angle.
    pub(super) tangents: Atom,
    /// The sine of each angle.
    sines: Atom,
    /// The tangent of half of each angle.
    of_halves: Atom,
}

/// The smaller angles that make `[p r; r q]` diagonal; no rotation where `is_done` is true. Source: Golub and Van Loan, "Matrix Computations",
/// section 8.5.
pub(super) fn rotations(b: &mut Builder, p: Atom, q: Atom, r: Atom, is_done: Atom) -> Result<Rotations> {
    let dtype = b.dtype(p);
    let (zero, one) = (float(dtype, 0.0), float(dtype, 1.0));
    let difference = binary(b, Binary::Sub, q, p)?;
    let twice = binary(b, Binary::Add, r, r)?;
    let twice = select(b, is_done, one, twice)?;
    let cotangent = binary(b, Binary::Div, difference, twice)?;
    let root = hypotenuse(b, cotangent)?;
    let magnitude = unary(b, Unary::Abs, cotangent)?;
    let sum = binary(b, Binary::Add, magnitude, root)?;
    let tangent = binary(b, Binary::Div, one, sum)?;
    let minus = unary(b, Unary::Neg, tangent)?;
    let is_negative = compare(b, Compare::Lt, cotangent, zero)?;
    let tangent = select(b, is_negative, minus, tangent)?;
    let tangents = select(b, is_done, zero, tangent)?;
    let root = hypotenuse(b, tangents)?;
    let sines = binary(b, Binary::Div, tangents, root)?;
    let sum = binary(b, Binary::Add, one, root)?;
    let of_halves = binary(b, Binary::Div, tangents, sum)?;
    Ok(Rotations { tangents, sines, of_halves })
}

/// `sqrt(1 + x²)`.
fn hypotenuse(b: &mut Builder, x: Atom) -> Result<Atom> {
    let square = binary(b, Binary::Mul, x, x)?;
    let one = float(b.dtype(x), 1.0);
    let sum = binary(b, Binary::Add, square, one)?;
    unary(b, Unary::Sqrt, sum)
}

/// Rows (or columns, by `axis`) rotated in pairs, and moved on. Differences are computed, without cosines, so that small angles add small errors.
/// Source: Rutishauser, "The Jacobi method for real symmetric matrices", Numer. Math. 9 (1966).
pub(super) fn turned(b: &mut Builder, x: Atom, axis: usize, by: &Rotations) -> Result<Atom> {
    let half = b.shape(x)[axis] / 2;
    let (first, second) = (part(b, x, axis, 0, half)?, part(b, x, axis, half, 2 * half)?);
    let shape = b.shape(first);
    let (sines, of_halves) = (along(b, by.sines, axis, &shape)?, along(b, by.of_halves, axis, &shape)?);
    let mut change = |op, x, y| {
        let small = binary(b, Binary::Mul, of_halves, y)?;
        let sum = binary(b, op, x, small)?;
        binary(b, Binary::Mul, sines, sum)
    };
    let (of_first, of_second) = (change(Binary::Add, second, first)?, change(Binary::Sub, first, second)?);
    let (first, second) = (binary(b, Binary::Sub, first, of_first)?, binary(b, Binary::Add, second, of_second)?);
    moved(b, first, second, axis)
}

/// The first and the second ones of the pairs along an axis, moved on by one place: `0 1 2 | 3 4 5` to `0 3 1 | 4 5 2`.
pub(super) fn moved(b: &mut Builder, first: Atom, second: Atom, axis: usize) -> Result<Atom> {
    let half = b.shape(first)[axis];
    if half < 2 {
        return concatenated(b, axis, &[first, second]);
    }
    let mut parts = vec![part(b, first, axis, 0, 1)?, part(b, second, axis, 0, 1)?];
    if half > 2 {
        parts.push(part(b, first, axis, 1, half - 1)?);
    }
    parts.extend([part(b, second, axis, 1, half)?, part(b, first, axis, half - 1, half)?]);
    concatenated(b, axis, &parts)
}

/// Matrices to work with.
pub(super) struct Scaled {
    /// With elements below 2 in magnitude; zeros instead of a matrix with an element that is not finite.
    pub(super) matrices: Atom,
    /// The power of two of each matrix, by which its elements are divided.
    powers: Atom,
    /// Whether all elements of a matrix are finite.
    is_finite: Atom,
}

impl Scaled {
    /// Divides by a power of two, which is exact, so that squares neither vanish nor are infinite.
    pub(super) fn new(b: &mut Builder, a: Atom) -> Result<Scaled> {
        let (shape, dtype) = (b.shape(a), b.dtype(a));
        let are_finite = unary(b, Unary::IsFinite, a)?;
        let is_finite = folded(b, ReduceKind::And, are_finite, 2)?;
        let which = repeated(b, is_finite, &shape)?;
        let a = select(b, which, a, float(dtype, 0.0))?;
        let magnitudes = unary(b, Unary::Abs, a)?;
        let largest = folded(b, ReduceKind::Max, magnitudes, 2)?;
        // The exponent alone, and the smallest normal number for smaller ones.
        let (bits, mask) = match dtype {
            DType::F64 => (DType::U64, 0x7FF0_0000_0000_0000),
            _ => (DType::U32, 0x7F80_0000),
        };
        let largest = b.emit1(BitcastConvertType { dtype: bits }.into(), &[largest])?;
        let exponents = binary(b, Binary::And, largest, Literal::from_i128(bits, mask).into())?;
        let powers = b.emit1(BitcastConvertType { dtype }.into(), &[exponents])?;
        let smallest = if dtype == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
        let powers = binary(b, Binary::Max, powers, float(dtype, smallest))?;
        let divisors = repeated(b, powers, &shape)?;
        let matrices = binary(b, Binary::Div, a, divisors)?;
        Ok(Scaled { matrices, powers, is_finite })
    }

    /// Eigenvalues or singular values, multiplied by the powers again.
    pub(super) fn restored(&self, b: &mut Builder, values: Atom) -> Result<Atom> {
        let shape = b.shape(values);
        let powers = repeated(b, self.powers, &shape)?;
        binary(b, Binary::Mul, values, powers)
    }

    /// NaN for the matrices that had an element that is not finite.
    pub(super) fn checked(&self, b: &mut Builder, x: Atom) -> Result<Atom> {
        let (shape, nan) = (b.shape(x), float(b.dtype(x), f64::NAN));
        let which = repeated(b, self.is_finite, &shape)?;
        select(b, which, x, nan)
    }
}

/// Runs sweeps as long as one is needed, and returns what they carry. A sweep takes the constants and what is carried, and gives a bool, whether another
/// one is needed, and what is carried.
pub(super) fn sweeps(
    b: &mut Builder,
    is_needed: Atom,
    consts: &[Atom],
    carried: &[Atom],
    sweep: impl FnOnce(&mut Builder, &[Atom], &[Atom]) -> Result<(Atom, Vec<Atom>)>,
) -> Result<Vec<Atom>> {
    let count = Literal::from_i128(DType::I32, 0);
    let avals = |b: &Builder, atoms: &[Atom]| atoms.iter().map(|&atom| b.aval(atom)).collect::<Vec<Aval>>();
    let (of_consts, of_carried) = (avals(b, consts), avals(b, carried));
    let state = [Aval::scalar(DType::I32), Aval::scalar(DType::Bool)];

    let mut cond = like(b.loc);
    let [done, is_wanted] = state.clone().map(|aval| cond.input(aval));
    cond.inputs(of_carried.iter().cloned());
    let is_allowed = compare(&mut cond, Compare::Lt, done, Literal::from_i128(DType::I32, SWEEPS).into())?;
    let goes_on = binary(&mut cond, Binary::And, is_wanted, is_allowed)?;
    let cond = cond.finish(vec![goes_on]);

    let mut body = like(b.loc);
    let inner_consts = body.inputs(of_consts);
    let [done, _] = state.map(|aval| body.input(aval));
    let inner = body.inputs(of_carried);
    let next = binary(&mut body, Binary::Add, done, Literal::from_i128(DType::I32, 1).into())?;
    let (is_wanted, outs) = sweep(&mut body, &inner_consts, &inner)?;
    let body = body.finish([next, is_wanted].into_iter().chain(outs).collect());

    let op = While { cond: cond.into(), body: body.into(), cond_consts: 0, body_consts: consts.len() };
    let start = [count.into(), is_needed];
    let operands = [consts, &start, carried].concat();
    Ok(b.emit(op.into(), &operands)?.into_iter().skip(2).collect())
}

/// A builder for a body at the same location.
pub(super) fn like(loc: Loc) -> Builder {
    let mut b = Builder::new();
    b.loc = loc;
    b
}

/// Numbers sorted from the smallest to the largest, and the order.
pub(super) fn sorted(b: &mut Builder, keys: Atom) -> Result<[Atom; 2]> {
    let shape: Shape = b.shape(keys);
    let axis = shape.len() - 1;
    let index = b.emit1(Iota { dtype: DType::I32, shape, axis }.into(), &[])?;
    let results = b.emit(Sort { axis, num_keys: 1, is_stable: true }.into(), &[keys, index])?;
    Ok([results[0], results[1]])
}

/// The identity for each matrix of a batch.
pub(super) fn identities(b: &mut Builder, dtype: DType, shape: &Shape) -> Result<Atom> {
    let [rows, columns] = super::build::indices(b, shape)?;
    let is_diagonal = compare(b, Compare::Eq, rows, columns)?;
    select(b, is_diagonal, float(dtype, 1.0), float(dtype, 0.0))
}
