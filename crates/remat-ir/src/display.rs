//! Prints arrays as NumPy does: aligned columns, the fewest fractional digits (up to 8) that distinguish the numbers, and only the edges of
//! large arrays. Source: NumPy's `array2string` with its default options.

use std::fmt;

use crate::{Array, DType, Element, Literal};

/// More elements than this are elided.
const THRESHOLD: usize = 1000;
/// The number of elements shown at each edge of an elided dimension.
const EDGE: usize = 3;
/// The most digits of a fraction.
const PRECISION: usize = 8;
const LINE_WIDTH: usize = 75;

impl fmt::Display for Array {
    /// The elements as NumPy prints them.
    ///
    /// ```
    /// use remat_ir::Array;
    /// let x = Array::from_vec(vec![1.0f32, 2.5, -10.0, 0.125], [2, 2])?;
    /// assert_eq!(x.to_string(), "[[  1.      2.5  ]\n [-10.      0.125]]");
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = |index| self.data().get(index);
        f.write_str(&Elements { shape: self.shape(), dtype: self.dtype(), element: &element }.text(None))
    }
}

/// The elements of an array, wherever they are.
pub(crate) struct Elements<'a> {
    pub(crate) shape: &'a [usize],
    pub(crate) dtype: DType,
    /// The element at a row-major position.
    pub(crate) element: &'a dyn Fn(usize) -> Option<Literal>,
}

impl Elements<'_> {
    /// The elements as NumPy prints them, floats with this number of digits after the point if it is given.
    pub(crate) fn text(&self, digits: Option<usize>) -> String {
        Printer::new(self, digits).print()
    }
}

struct Printer<'a> {
    array: &'a Elements<'a>,
    elide: bool,
    /// The digits after the point of a float, if they are asked for.
    digits: Option<usize>,
    style: Style,
}

/// The format of all elements, chosen from those that are shown.
enum Style {
    Bool,
    Integer {
        width: usize,
    },
    /// Floats with as many digits after the point as were asked for.
    Fixed {
        width: usize,
        digits: usize,
    },
    Positional {
        left: usize,
        right: usize,
    },
    Scientific {
        left: usize,
        digits: usize,
        exponent: usize,
    },
}

impl<'a> Printer<'a> {
    fn new(array: &'a Elements<'a>, digits: Option<usize>) -> Printer<'a> {
        let elide = array.shape.iter().product::<usize>() > THRESHOLD;
        let mut shown = Vec::new();
        visit(array.shape, elide, 0, &mut |i| shown.extend((array.element)(i)));
        let style = match (array.dtype, digits) {
            (DType::Bool, _) => Style::Bool,
            (d, _) if d.is_integer() => {
                Style::Integer { width: shown.iter().map(|x| integer(*x).len()).max().unwrap_or(0) }
            }
            (_, Some(digits)) => {
                Style::Fixed { width: shown.iter().map(|x| fixed(*x, digits).len()).max().unwrap_or(0), digits }
            }
            _ => float_style(&shown),
        };
        Printer { array, elide, digits, style }
    }

    fn print(&self) -> String {
        let shape = self.array.shape;
        match (self.array.element)(0).filter(|_| shape.is_empty()) {
            Some(scalar) => match self.digits {
                Some(digits) if scalar.dtype().is_float() => fixed(scalar, digits),
                _ => print_scalar(scalar),
            },
            _ if shape.contains(&0) => "[]".to_string(),
            _ => self.print_axis(0, 0, " ", LINE_WIDTH),
        }
    }

    /// The part from row-major position `offset` on, whose first dimension is `axis`. Lines after the first begin with `indent`.
    fn print_axis(&self, axis: usize, offset: usize, indent: &str, width: usize) -> String {
        let shape = self.array.shape;
        if axis == shape.len() {
            return (self.array.element)(offset).map_or(String::new(), |x| self.element(x));
        }
        let stride: usize = shape[axis + 1..].iter().product();
        let deeper = format!("{indent} ");
        let indices = shown_indices(shape[axis], self.elide);
        let words = indices
            .into_iter()
            .map(|index| match index {
                Some(i) => self.print_axis(axis + 1, offset + i * stride, &deeper, width - 1),
                None => "...".to_string(),
            })
            .collect::<Vec<_>>();
        let text = if axis + 1 == shape.len() {
            wrap(&words, indent, width - 1)
        } else {
            words.join(&format!("{}{indent}", "\n".repeat(shape.len() - axis - 1)))
        };
        format!("[{text}]")
    }

    fn element(&self, x: Literal) -> String {
        match self.style {
            Style::Bool => (if x.is_zero() { "False" } else { " True" }).to_string(),
            Style::Integer { width } => format!("{:>width$}", integer(x)),
            Style::Fixed { width, digits } => format!("{:>width$}", fixed(x, digits)),
            Style::Positional { left, right } => match non_finite(x) {
                Some(word) => format!("{word:>0$}", left + right + 1),
                None => {
                    let (whole, fraction) = positional(x, PRECISION);
                    format!("{whole:>left$}.{fraction:<right$}")
                }
            },
            Style::Scientific { left, digits, exponent } => match non_finite(x) {
                Some(word) => format!("{word:>0$}", left + digits + exponent + 3),
                None => {
                    let (whole, fraction, power) = scientific(x, digits, digits);
                    let sign = if power < 0 { '-' } else { '+' };
                    format!("{whole:>left$}.{fraction}e{sign}{:0>exponent$}", power.unsigned_abs())
                }
            },
        }
    }
}

/// Calls `f` with the row-major position of every element that is shown.
fn visit(shape: &[usize], elide: bool, offset: usize, f: &mut impl FnMut(usize)) {
    let Some((&size, inner)) = shape.split_first() else { return f(offset) };
    let stride: usize = inner.iter().product();
    for i in shown_indices(size, elide).into_iter().flatten() {
        visit(inner, elide, offset + i * stride, f);
    }
}

/// The indices of a dimension that are shown; `None` marks the omitted ones.
fn shown_indices(size: usize, elide: bool) -> Vec<Option<usize>> {
    if elide && size > 2 * EDGE {
        (0..EDGE).map(Some).chain([None]).chain((size - EDGE..size).map(Some)).collect()
    } else {
        (0..size).map(Some).collect()
    }
}

/// Words with a space between, on lines of this width.
fn wrap(words: &[String], indent: &str, width: usize) -> String {
    let mut text = String::new();
    let mut line = indent.len();
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            text.push(' ');
            line += 1;
        }
        if line + word.len() > width && line > indent.len() {
            text.truncate(text.trim_end().len());
            text.push('\n');
            text.push_str(indent);
            line = indent.len();
        }
        text.push_str(word);
        line += word.len();
    }
    text
}

fn integer(x: Literal) -> String {
    x.as_i128().unwrap_or(0).to_string()
}

/// A float with this number of digits after the point.
fn fixed(x: Literal, digits: usize) -> String {
    non_finite(x).map_or_else(|| format!("{:.digits$}", x.as_f64()), str::to_string)
}

fn non_finite(x: Literal) -> Option<&'static str> {
    let value = x.as_f64();
    match value {
        _ if value.is_nan() => Some("nan"),
        f64::INFINITY => Some("inf"),
        f64::NEG_INFINITY => Some("-inf"),
        _ => None,
    }
}

fn float_style(shown: &[Literal]) -> Style {
    let finite: Vec<Literal> = shown.iter().copied().filter(|x| non_finite(*x).is_none()).collect();
    let sizes = finite.iter().map(|x| x.as_f64().abs()).filter(|x| *x != 0.0);
    let (smallest, largest) = sizes.fold((f64::INFINITY, 0.0f64), |(s, l), x| (s.min(x), l.max(x)));
    // NumPy compares and divides in the tensor's dtype.
    let rounded = |x: f64| shown.first().map_or(x, |like| Literal::from_f64(like.dtype(), x).as_f64());
    let most_digits = shown.first().map_or(0, |x| sure_digits(x.dtype()).min(8));
    let many = largest > 0.0
        && (largest >= 10f64.powi(most_digits) || smallest < rounded(1e-4) || rounded(largest / smallest) > 1000.0);
    let (style, offset) = if finite.is_empty() {
        (Style::Positional { left: 0, right: 0 }, 1)
    } else if many {
        let parts: Vec<_> = finite.iter().map(|x| scientific(*x, PRECISION, 0)).collect();
        let left = parts.iter().map(|p| p.0.len()).max().unwrap_or(0);
        let digits = parts.iter().map(|p| p.1.len()).max().unwrap_or(0);
        let exponent = parts.iter().map(|p| p.2.unsigned_abs().to_string().len().max(2)).max().unwrap_or(2);
        (Style::Scientific { left, digits, exponent }, digits + exponent + 3)
    } else {
        let parts: Vec<_> = finite.iter().map(|x| positional(*x, PRECISION)).collect();
        let left = parts.iter().map(|p| p.0.len()).max().unwrap_or(0);
        let right = parts.iter().map(|p| p.1.len()).max().unwrap_or(0);
        (Style::Positional { left, right }, right + 1)
    };
    // `nan` and `inf` may need more room than the numbers.
    let room = shown.iter().filter_map(|x| non_finite(*x)).map(|word| word.len().saturating_sub(offset)).max();
    match style {
        Style::Positional { left, right } => Style::Positional { left: left.max(room.unwrap_or(0)), right },
        Style::Scientific { left, digits, exponent } => {
            Style::Scientific { left: left.max(room.unwrap_or(0)), digits, exponent }
        }
        style => style,
    }
}

/// The number of decimal digits that every number of a float dtype can represent. f64 counts one more, as Python's floats do.
fn sure_digits(dtype: DType) -> i32 {
    match dtype {
        DType::Bf16 => 2,
        DType::F16 => 3,
        DType::F32 => 6,
        _ => 16,
    }
}

/// A scalar as NumPy prints it, which is how Python prints a float.
fn print_scalar(x: Literal) -> String {
    match x.dtype() {
        DType::Bool => (if x.is_zero() { "False" } else { "True" }).to_string(),
        d if d.is_integer() => integer(x),
        _ => {
            let value = x.as_f64().abs();
            if let Some(word) = non_finite(x) {
                return word.to_string();
            }
            let limit = 10f64.powi(sure_digits(x.dtype()));
            if value == 0.0 || (1e-4..limit).contains(&value) {
                let (whole, fraction) = positional(x, usize::MAX);
                return format!("{whole}.{}", if fraction.is_empty() { "0" } else { &fraction });
            }
            let (whole, fraction, power) = scientific(x, usize::MAX, 0);
            let point = if fraction.is_empty() { "" } else { "." };
            let sign = if power < 0 { '-' } else { '+' };
            format!("{whole}{point}{fraction}e{sign}{:0>2}", power.unsigned_abs())
        }
    }
}

/// The fewest digits that read back as this number in its dtype, and the power of ten of the first.
fn shortest(x: Literal) -> (String, i32) {
    let value = x.as_f64().abs();
    let reads_back = |text: &str| {
        let read = match x.dtype() {
            // By way of f64, a number could be rounded twice.
            DType::F32 => text.parse().map(|v: f32| v.literal()),
            d => text.parse().map(|v: f64| Literal::from_f64(d, v)),
        };
        read.is_ok_and(|read| read.as_f64() == value)
    };
    let text = match x.dtype() {
        DType::F32 => format!("{:e}", value as f32),
        DType::F16 | DType::Bf16 => {
            let mut texts = (0..17).map(|digits| format!("{value:.digits$e}"));
            texts.find(|t| reads_back(t)).unwrap_or_else(|| format!("{value:e}"))
        }
        _ => format!("{value:e}"),
    };
    // Among equally near numbers with the same number of digits, NumPy takes the even one, and Rust the larger.
    let digits = text.bytes().take_while(|b| *b != b'e').filter(u8::is_ascii_digit).count().max(1) - 1;
    let even = format!("{value:.digits$e}");
    let text = if reads_back(&even) { even } else { text };
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.replace('.', ""), power.parse().unwrap_or(0))
}

fn sign(x: Literal) -> &'static str {
    if x.as_f64().is_sign_negative() { "-" } else { "" }
}

/// The parts before and after the point, the latter with at most `precision` digits and no zeros at its end.
fn positional(x: Literal, precision: usize) -> (String, String) {
    let (digits, power) = shortest(x);
    let text = if digits.len() as i64 - 1 - i64::from(power) > precision as i64 && precision < usize::MAX {
        format!("{:.precision$}", x.as_f64().abs())
    } else if power < 0 {
        format!("0.{}{digits}", "0".repeat(power.unsigned_abs() as usize - 1))
    } else {
        let whole = power as usize + 1;
        let digits = format!("{digits:0<whole$}");
        format!("{}.{}", &digits[..whole], &digits[whole..])
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    (format!("{}{whole}", sign(x)), fraction.trim_end_matches('0').to_string())
}

/// The parts before and after the point and the power of ten, with at least `least` and at most `most` digits after the
/// point.
fn scientific(x: Literal, most: usize, least: usize) -> (String, String, i32) {
    let (mut digits, mut power) = shortest(x);
    let count = digits.len() - 1;
    if count > most || count < least {
        let precision = if count > most { most } else { least };
        let text = format!("{:.precision$e}", x.as_f64().abs());
        if let Some((rounded, exponent)) = text.split_once('e') {
            (digits, power) = (rounded.replace('.', ""), exponent.parse().unwrap_or(power));
        }
    }
    let fraction = if least == 0 { digits[1..].trim_end_matches('0') } else { &digits[1..] };
    (format!("{}{}", sign(x), &digits[..1]), fraction.to_string(), power)
}
