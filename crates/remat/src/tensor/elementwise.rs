//! Elementwise functions: unary, binary, comparisons, selection. Binary ones broadcast as in NumPy.

use remat_ir::{
    Aval, Binary, BroadcastInDim, Clamp, Compare, DType, Error, ErrorKind, IntegerPow, Op, Result, SelectN, Shape,
    Unary,
};

use super::argument::{Argument, Operand, Scalar};
use crate::Tensor;
use crate::trace::{bind1, deferred};

macro_rules! unary {
    ($($(#[$attribute:meta])? $name:ident $op:ident $doc:literal, $errors:literal, $x:literal => $y:literal;)*) => {
        impl Tensor {
            $(
                $(#[$attribute])?
                #[doc = $doc]
                ///
                /// # Errors
                #[doc = concat!("If the dtype is not a ", $errors, ".")]
                ///
                /// ```
                /// use remat::Tensor;
                #[doc = concat!("let y = Tensor::new(", $x, ").", stringify!($name), "();")]
                #[doc = concat!("assert!(y.allclose(&Tensor::new(", $y, "), 1e-6, 1e-6)?);")]
                /// # Ok::<(), remat::Error>(())
                /// ```
                #[track_caller]
                pub fn $name(&self) -> Tensor {
                    bind1(Unary::$op, &[self])
                }
            )*
        }
    };
}

unary! {
    neg Neg "`-x`.", "signed integer or float", "[1.0f32, -2.0]" => "[-1.0f32, 2.0]";
    sign Sign "-1, 0 or 1 as the element is negative, zero or positive; NaN stays.", "integer or float",
        "[-3, 0, 7]" => "[-1, 0, 1]";
    abs Abs "The absolute value. Its derivative at zero is 1, as in JAX.", "integer or float", "[-3, 0, 7]" => "[3, 0, 7]";
    floor Floor "The largest integer that is not above the element.", "float", "[1.5f32, -1.5]" => "[1.0f32, -2.0]";
    ceil Ceil "The smallest integer that is not below the element.", "float", "[1.5f32, -1.5]" => "[2.0f32, -1.0]";
    round Round "The nearest integer; halves go to the even one.", "float", "[0.5f32, 1.5, 2.6]" => "[0.0f32, 2.0, 3.0]";
    exp Exp "The exponential.", "float", "[0.0f32, 1.0]" => "[1.0f32, 2.7182817]";
    exp2 Exp2 "Two to the power of the element.", "float", "[3.0f32, -1.0]" => "[8.0f32, 0.5]";
    expm1 Expm1 "`exp(x) - 1`, accurate near zero.", "float", "[1e-10f64]" => "[1.00000000005e-10f64]";
    log Log "The natural logarithm; NaN for negative numbers.", "float", "[1.0f32, 10.0]" => "[0.0f32, 2.3025851]";
    log1p Log1p "`log(1 + x)`, accurate near zero.", "float", "[1e-10f64]" => "[9.9999999995e-11f64]";
    sqrt Sqrt "The square root; NaN for negative numbers.", "float", "[4.0f32, 2.0]" => "[2.0f32, 1.4142135]";
    rsqrt Rsqrt "`1 / sqrt(x)`.", "float", "[4.0f32, 0.25]" => "[0.5f32, 2.0]";
    cbrt Cbrt "The cube root, also of negative numbers.", "float", "[27.0f32, -8.0]" => "[3.0f32, -2.0]";
    #[doc(alias = "logistic")]
    sigmoid Logistic "The logistic function `1 / (1 + exp(-x))`.", "float", "[0.0f32, 2.0]" => "[0.5f32, 0.8807971]";
    sin Sin "The sine.", "float", "[0.0f32, 1.0]" => "[0.0f32, 0.84147098]";
    cos Cos "The cosine.", "float", "[0.0f32, 1.0]" => "[1.0f32, 0.5403023]";
    tan Tan "The tangent.", "float", "[0.0f32, 1.0]" => "[0.0f32, 1.5574077]";
    asin Asin "The inverse sine; NaN outside -1 to 1.", "float", "[0.0f32, 1.0]" => "[0.0f32, 1.5707963]";
    acos Acos "The inverse cosine; NaN outside -1 to 1.", "float", "[1.0f32, 0.0]" => "[0.0f32, 1.5707963]";
    atan Atan "The inverse tangent.", "float", "[0.0f32, 1.0]" => "[0.0f32, 0.78539816]";
    sinh Sinh "The hyperbolic sine.", "float", "[0.0f32, 1.0]" => "[0.0f32, 1.1752012]";
    cosh Cosh "The hyperbolic cosine.", "float", "[0.0f32, 1.0]" => "[1.0f32, 1.5430806]";
    tanh Tanh "The hyperbolic tangent.", "float", "[0.0f32, 1.0]" => "[0.0f32, 0.76159416]";
    asinh Asinh "The inverse hyperbolic sine.", "float", "[0.0f32, 1.0]" => "[0.0f32, 0.8813736]";
    acosh Acosh "The inverse hyperbolic cosine; NaN below 1.", "float", "[1.0f32, 2.0]" => "[0.0f32, 1.316958]";
    atanh Atanh "The inverse hyperbolic tangent; NaN outside -1 to 1.", "float", "[0.0f32, 0.5]" => "[0.0f32, 0.54930614]";
    erf Erf "The error function.", "float", "[0.0f32, 1.0]" => "[0.0f32, 0.8427008]";
    erfc Erfc "`1 - erf(x)`, accurate for large elements.", "float", "[0.0f32, 1.0]" => "[1.0f32, 0.15729921]";
    erfcx Erfcx "`exp(x^2) erfc(x)`: `erfc`, scaled so that it does not underflow.", "float", "[1.0f32, 100.0]" => "[0.42758358f32, 0.005641614]";
    erf_inv ErfInv "The inverse of the error function; NaN outside -1 to 1.", "float",
        "[0.0f32, 0.5]" => "[0.0f32, 0.47693628]";
    lgamma Lgamma "The logarithm of the absolute value of the gamma function.", "float",
        "[1.0f32, 5.0]" => "[0.0f32, 3.1780538]";
    digamma Digamma "The derivative of `lgamma`.", "float", "[1.0f32, 2.0]" => "[-0.5772157f32, 0.42278433]";
    not Not "`!x`: the other bool, or the flipped bits of an integer.", "bool or integer",
        "[true, false]" => "[false, true]";
    population_count PopulationCount "The number of ones among the bits.", "integer", "[0, 7, -1]" => "[0, 3, 32]";
}

macro_rules! binary {
    ($($name:ident $op:expr, $doc:literal, $x:literal, $y:literal => $z:literal;)*) => {
        impl Tensor {
            $(
                #[doc = $doc]
                ///
                /// # Errors
                /// If the shapes do not broadcast, the dtypes differ, or the operation does not take the dtype.
                ///
                /// ```
                /// use remat::Tensor;
                #[doc = concat!("let z = Tensor::new(", $x, ").", stringify!($name), "(", $y, ");")]
                #[doc = concat!("assert!(z.allclose(&Tensor::new(", $z, "), 1e-6, 1e-6)?);")]
                /// # Ok::<(), remat::Error>(())
                /// ```
                #[track_caller]
                pub fn $name(&self, other: impl Operand) -> Tensor {
                    binary($op, Argument::Tensor(self), other.argument())
                }
            )*
        }
    };
}

binary! {
    add Binary::Add, "The sum; the `+` operator.", "[1.0f32, 2.0]", "0.5" => "[1.5f32, 2.5]";
    sub Binary::Sub, "The difference; the `-` operator.", "[1.0f32, 2.0]", "0.5" => "[0.5f32, 1.5]";
    mul Binary::Mul, "The elementwise product; the `*` operator.", "[1.0f32, 2.0]", "0.5" => "[0.5f32, 1.0]";
    div Binary::Div, "The quotient; the `/` operator. Integer quotients are truncated.", "[7, -7]", "2" => "[3, -3]";
    rem Binary::Rem, "The remainder with the sign of the dividend; the `%` operator.", "[7, -7]", "4" => "[3, -3]";
    maximum Binary::Max, "The larger element; NaN if one is NaN. Equal elements share the derivative.", "[1.0f32, -2.0]", "0.0" => "[1.0f32, 0.0]";
    minimum Binary::Min, "The smaller element; NaN if one is NaN. Equal elements share the derivative.", "[1.0f32, -2.0]", "0.0" => "[0.0f32, -2.0]";
    atan2 Binary::Atan2, "The angle, in radians, of the point with y-coordinate `self` and x-coordinate `other`.",
        "[1.0f32, -1.0]", "Tensor::new([1.0f32, -1.0])" => "[0.78539816f32, -2.3561945]";
    and Binary::And, "The logical or bitwise `and`; the `&` operator.", "[6, 5]", "3" => "[2, 1]";
    or Binary::Or, "The logical or bitwise `or`; the `|` operator.", "[6, 5]", "3" => "[7, 7]";
    xor Binary::Xor, "The logical or bitwise exclusive `or`; the `^` operator.", "[6, 5]", "3" => "[5, 6]";
    shift_left Binary::ShiftLeft, "The bits shifted to the left; the `<<` operator. 0 if it shifts all bits out.",
        "[1, 3]", "2" => "[4, 12]";
    shift_right_arithmetic Binary::ShiftRightArithmetic, "The bits shifted to the right, filled with the sign bit.",
        "[-8, 8]", "1" => "[-4, 4]";
    shift_right_logical Binary::ShiftRightLogical, "The bits shifted to the right, filled with zeros.",
        "[-8, 8]", "1" => "[2147483644, 4]";
    eq Compare::Eq, "Whether the elements are equal, as a bool.", "[1, 2]", "2" => "[false, true]";
    ne Compare::Ne, "Whether the elements differ, as a bool.", "[1, 2]", "2" => "[true, false]";
    lt Compare::Lt, "Whether the element is less, as a bool.", "[1, 2]", "2" => "[true, false]";
    le Compare::Le, "Whether the element is less or equal, as a bool.", "[1, 3]", "2" => "[true, false]";
    gt Compare::Gt, "Whether the element is greater, as a bool.", "[1, 3]", "2" => "[false, true]";
    ge Compare::Ge, "Whether the element is greater or equal, as a bool.", "[1, 2]", "2" => "[false, true]";
}

impl Tensor {
    /// Whether the element is NaN, as a bool. All `false` for integers and bools.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, f32::NAN]).is_nan().to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn is_nan(&self) -> Tensor {
        // Only NaN differs from itself.
        bind1(Compare::Ne, &[self, self])
    }

    /// Whether the element is neither infinite nor NaN, as a bool. All `true` for integers and bools.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([1.0f32, f32::NAN, f32::INFINITY]);
    /// assert_eq!(x.is_finite().to_vec::<bool>()?, [true, false, false]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn is_finite(&self) -> Tensor {
        deferred(|| match self.aval()? {
            aval if aval.dtype.is_float() => Ok(bind1(Unary::IsFinite, &[self])),
            aval => Ok(Tensor::full(&aval.shape[..], true, DType::Bool)),
        })
    }

    /// Whether the element is infinite, as a bool. All `false` for integers and bools.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, f32::NEG_INFINITY]).is_inf().to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn is_inf(&self) -> Tensor {
        deferred(|| match self.aval()? {
            aval if aval.dtype.is_float() => Ok(self.abs().eq(f64::INFINITY)),
            aval => Ok(Tensor::full(&aval.shape[..], false, DType::Bool)),
        })
    }

    /// An integer power, by repeated multiplication. Negative exponents are for floats only.
    ///
    /// # Errors
    /// If the dtype is bool, or an integer with a negative exponent.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([2.0f32, -3.0]).powi(3).to_vec::<f32>()?, [8.0, -27.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn powi(&self, exponent: i32) -> Tensor {
        bind1(IntegerPow { y: exponent }, &[self])
    }

    /// The tensor to a power. A Rust integer as exponent means [`Tensor::powi`], for any numeric dtype. Any other exponent requires floats,
    /// and gives NaN for a negative element unless the exponent is a whole number.
    ///
    /// # Errors
    /// If the shapes do not broadcast, the dtypes differ, or the operation does not take the dtype.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([4.0f32, 9.0]).pow(0.5).to_vec::<f32>()?, [2.0, 3.0]);
    /// assert_eq!(Tensor::new([4, 9]).pow(2).to_vec::<i32>()?, [16, 81]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn pow(&self, exponent: impl Operand) -> Tensor {
        match exponent.argument() {
            Argument::Scalar(Scalar::Int(n)) if i32::try_from(n).is_ok() => self.powi(n as i32),
            exponent => binary(Binary::Pow, Argument::Tensor(self), exponent),
        }
    }

    /// `x * x`, as one integer power.
    ///
    /// # Errors
    /// If the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([2, -3]).square().to_vec::<i32>()?, [4, 9]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self.powi(2)
    }

    /// `1 / x`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([2.0f32, -4.0]).reciprocal().to_vec::<f32>()?, [0.5, -0.25]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn reciprocal(&self) -> Tensor {
        self.powi(-1)
    }

    /// The elements of `if_true` where this tensor of bools is `true`, and of `if_false` elsewhere. All three broadcast; one case may be a
    /// number. For several cases, selected by an i32, see [`Tensor::select_n`].
    ///
    /// # Errors
    /// If this tensor is not bool, both cases are numbers, their dtypes differ, or the shapes do not broadcast.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([-1.0f32, 2.0]);
    /// assert_eq!(x.gt(0.0).select(&x, 0.0).to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn select(&self, if_true: impl Operand, if_false: impl Operand) -> Tensor {
        deferred(|| {
            let mask = self.aval()?;
            if mask.dtype != DType::Bool {
                let message = format!("the mask must be bool, not {mask}; compare it first, as in `x.ne(0)`");
                return Err(Error::new(ErrorKind::DType, "select", message));
            }
            let (if_true, if_false) = (if_true.argument(), if_false.argument());
            let Some(dtype) = if_true.dtype()?.or(if_false.dtype()?) else {
                let message = "both cases are numbers: make one a tensor, which gives the dtype";
                return Err(Error::new(ErrorKind::Argument, "select", message));
            };
            let (if_true, if_false) = (if_true.of_dtype("select", dtype)?, if_false.of_dtype("select", dtype)?);
            same_dtype("select", if_true.aval()?, if_false.aval()?)?;
            let [mask, if_false, if_true] = broadcast("select", [self.clone(), if_false, if_true])?;
            Ok(bind1(SelectN, &[&mask, &if_false, &if_true]))
        })
    }

    /// For each number in this i32 tensor, the element of the case with this number, from 0. Numbers out of range are clamped. All
    /// broadcast.
    ///
    /// # Errors
    /// If this tensor is not i32 (or bool, for two cases), there is no case, or dtypes or shapes do not fit.
    ///
    /// ```
    /// use remat::Tensor;
    /// let cases = [&Tensor::new([1.0f32, 2.0, 3.0]), &Tensor::from(0.5f32)];
    /// assert_eq!(Tensor::new([0, 1, 0]).select_n(&cases).to_vec::<f32>()?, [1.0, 0.5, 3.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn select_n(&self, cases: &[&Tensor]) -> Tensor {
        deferred(|| {
            for pair in cases.windows(2) {
                same_dtype("select_n", pair[0].aval()?, pair[1].aval()?)?;
            }
            let operands: Vec<Tensor> = std::iter::once(self).chain(cases.iter().copied()).cloned().collect();
            let operands = broadcast_all("select_n", operands)?;
            Ok(bind1(SelectN, &operands.iter().collect::<Vec<_>>()))
        })
    }

    /// The elements clamped to the range from `min` to `max`; where `min` is above `max`, the result is `max`. All broadcast.
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([-1.5f32, 0.5, 7.0]).clamp(-1, 1).to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp(&self, min: impl Operand, max: impl Operand) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let bound = |bound: Argument<'_>| {
                let bound = bound.of_dtype("clamp", aval.dtype)?;
                same_dtype("clamp", aval, bound.aval()?).map(|()| bound)
            };
            let (min, max) = (bound(min.argument())?, bound(max.argument())?);
            let [min, x, max] = broadcast("clamp", [min, self.clone(), max])?;
            Ok(bind1(Clamp, &[&min, &x, &max]))
        })
    }
}

/// A binary operation on operands, at least one of which is a tensor.
#[track_caller]
pub(crate) fn binary(op: impl Into<Op>, x: Argument<'_>, y: Argument<'_>) -> Tensor {
    let op = op.into();
    // Most operands need no conversion, and nothing is copied.
    if let (Argument::Tensor(x), Argument::Tensor(y)) = (x, y)
        && let (Ok(a), Ok(b)) = (x.aval(), y.aval())
    {
        // The shape rule reports different dtypes.
        if a.shape == b.shape || a.rank() == 0 || b.rank() == 0 || a.dtype != b.dtype {
            return bind1(op, &[x, y]);
        }
    }
    deferred(|| {
        let Some(dtype) = x.dtype()?.or(y.dtype()?) else {
            return Err(Error::new(ErrorKind::Argument, op.name(), "takes at least one tensor"));
        };
        let (x, y) = (x.of_dtype(op.name(), dtype)?, y.of_dtype(op.name(), dtype)?);
        let [x, y] = broadcast(op.name(), [x, y])?;
        Ok(bind1(op, &[&x, &y]))
    })
}

/// The operands broadcast to one shape, except for scalars, which stay.
pub(crate) fn broadcast<const N: usize>(operation: &str, operands: [Tensor; N]) -> Result<[Tensor; N]> {
    let shape = common_shape(operation, &operands)?;
    Ok(operands.map(|t| broadcast_unless_scalar(&t, &shape)))
}

/// As [`broadcast`], for any number of operands.
pub(crate) fn broadcast_all(operation: &str, operands: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let shape = common_shape(operation, &operands)?;
    Ok(operands.iter().map(|t| broadcast_unless_scalar(t, &shape)).collect())
}

#[track_caller]
fn broadcast_unless_scalar(tensor: &Tensor, shape: &[usize]) -> Tensor {
    match tensor.aval() {
        Ok(aval) if aval.rank() > 0 => broadcast_trailing(tensor, aval.clone(), shape),
        _ => tensor.clone(),
    }
}

/// The tensor broadcast to a shape, or itself if it has that shape.
#[track_caller]
pub(crate) fn broadcast_trailing(tensor: &Tensor, aval: Aval, shape: &[usize]) -> Tensor {
    if aval.shape[..] == *shape {
        return tensor.clone();
    }
    let dims = (shape.len() - aval.rank()..shape.len()).collect();
    bind1(BroadcastInDim { shape: shape.into(), dims }, &[tensor])
}

/// Whether a shape broadcasts to another, with dimensions added in front.
pub(crate) fn broadcasts(from: &[usize], to: &[usize]) -> bool {
    let trailing = to.len().checked_sub(from.len()).map(|offset| &to[offset..]);
    trailing.is_some_and(|to| from.iter().zip(to).all(|(&from, &to)| from == 1 || from == to))
}

/// The common shape to which all operands broadcast, aligned at the last dimension.
///
/// # Errors
/// If two sizes differ and neither is 1; the message names the two tensors.
pub(crate) fn common_shape(operation: &str, operands: &[Tensor]) -> Result<Shape> {
    let avals = operands.iter().map(|t| t.aval()).collect::<Result<Vec<_>>>()?;
    let rank = avals.iter().map(|a| a.rank()).max().unwrap_or(0);
    let mut shape = Shape::from_elem(1, rank);
    for d in 0..rank {
        // The operand that determines the size of this dimension, for the message.
        let mut giver: Option<&Aval> = None;
        for aval in &avals {
            let Some(own) = (d + aval.rank()).checked_sub(rank) else { continue };
            let size = aval.shape[own];
            match giver {
                Some(first) if size != 1 && size != shape[d] => {
                    let message = format!(
                        "{first} and {aval} do not broadcast: dimension {} has size {} and {size}",
                        d as i64 - rank as i64,
                        shape[d]
                    );
                    return Err(Error::new(ErrorKind::Shape, operation, message));
                }
                None if size != 1 => {
                    shape[d] = size;
                    giver = Some(aval);
                }
                _ => {}
            }
        }
    }
    Ok(shape)
}

/// Fails unless both have the same dtype; the message suggests the conversion.
pub(crate) fn same_dtype(operation: &str, x: &Aval, y: &Aval) -> Result<()> {
    if x.dtype == y.dtype {
        return Ok(());
    }
    // The conversion that loses least: to the float, or else to the wider dtype.
    let order = |d: DType| (d.is_float(), d.is_integer(), d.size(), d.is_signed());
    let wider = if order(y.dtype) > order(x.dtype) { y.dtype } else { x.dtype };
    let message = format!("{x} and {y} have different dtypes; convert one with .to_dtype(DType::{wider:?})");
    Err(Error::new(ErrorKind::DType, operation, message))
}

/// Fails unless the tensor holds floats.
pub(crate) fn require_float(operation: &str, aval: &Aval) -> Result<()> {
    if aval.dtype.is_float() {
        return Ok(());
    }
    let message = format!("takes floats, not {aval}; convert it with .to_dtype(DType::F32)");
    Err(Error::new(ErrorKind::DType, operation, message))
}
