//! Elementwise operations, conversions and comparisons.

use remat_ir::{
    Atom, Binary, BitcastConvertType, Clamp, Compare, ConvertElementType, DType, Literal, ReducePrecision, Result,
    SelectN, Unary,
};

use super::Importer;
use super::frame::Known;
use super::properties::Node;
use crate::Enumeration;
use crate::order::total_order;

impl<'a, 'm> Importer<'a, 'm> {
    pub(super) fn elementwise(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let operands = self.scalars_or_arrays(node)?;
        let result = match (node.name, &operands[..]) {
            ("compare", &[x, y]) => self.compare(node, x, y)?,
            ("select", &[which, yes, no]) => self.emit(SelectN, &[which, no, yes])?,
            ("clamp", &[min, x, max]) => self.emit(Clamp, &[min, x, max])?,
            ("convert", &[x]) => {
                let dtype = node.result_dtype()?;
                self.convert(x, dtype)?
            }
            ("bitcast_convert", &[x]) => self.emit(BitcastConvertType { dtype: node.result_dtype()? }, &[x])?,
            ("reduce_precision", &[x]) => {
                let bits =
                    |name| u32::try_from(node.int(name)?).map_err(|_| node.malformed("a number of bits is negative"));
                let (exponent_bits, mantissa_bits) = (bits("exponent_bits")?, bits("mantissa_bits")?);
                self.emit(ReducePrecision { exponent_bits, mantissa_bits }, &[x])?
            }
            ("round_nearest_afz", &[x]) => self.round_away_from_zero(x)?,
            ("count_leading_zeros", &[x]) => self.count_leading_zeros(x)?,
            // The sum and the product of bools.
            ("add", &[x, y]) if self.aval(x).dtype == DType::Bool => self.emit(Binary::Or, &[x, y])?,
            ("multiply", &[x, y]) if self.aval(x).dtype == DType::Bool => self.emit(Binary::And, &[x, y])?,
            ("negate", &[x]) => self.negated(x)?,
            (_, &[x]) => match unary(node.name) {
                Some(op) => self.emit(op, &[x])?,
                None => return Err(node.unsupported("this operation")),
            },
            (_, &[x, y]) => match binary(node.name) {
                Some(op) => self.emit(op, &[x, y])?,
                None => return Err(node.unsupported("this operation")),
            },
            _ => return Err(node.unsupported("this operation")),
        };
        self.define(node, &[result])
    }

    /// The operands, where an array of one value is that scalar if another operand has the shape of the result.
    fn scalars_or_arrays(&mut self, node: Node<'a, 'm>) -> Result<Vec<Atom>> {
        // The bits of these depend on the shape.
        let needs_arrays = node.name == "bitcast_convert";
        let mut knowns = Vec::new();
        for &value in &node.op.operands {
            knowns.push((value, self.known(value, node.name)?));
        }
        let mut has_array = false;
        for (_, known) in &knowns {
            if let Known::Atom(atom) = known {
                has_array |= self.aval(*atom).rank() > 0;
            }
        }
        let mut atoms = Vec::new();
        for (value, known) in knowns {
            atoms.push(match known {
                Known::Atom(atom) => atom,
                Known::Splat(literal, _) if has_array && !needs_arrays => literal.into(),
                Known::Splat(literal, shape) => {
                    has_array = true;
                    self.frames.top().materialize(value, literal, shape)?
                }
            });
        }
        Ok(atoms)
    }

    /// The same value as another dtype.
    pub(super) fn convert(&mut self, x: Atom, dtype: DType) -> Result<Atom> {
        if self.aval(x).dtype == dtype { Ok(x) } else { self.emit(ConvertElementType { dtype }, &[x]) }
    }

    /// The negative, which wraps for unsigned integers.
    pub(super) fn negated(&mut self, x: Atom) -> Result<Atom> {
        let dtype = self.aval(x).dtype;
        if Unary::Neg.takes(dtype) {
            return self.emit(Unary::Neg, &[x]);
        }
        self.emit(Binary::Sub, &[Literal::from_i128(dtype, 0).into(), x])
    }

    fn compare(&mut self, node: Node<'a, 'm>, x: Atom, y: Atom) -> Result<Atom> {
        let op = match node.word("comparison_direction", Enumeration::ComparisonDirection)? {
            0 => Compare::Eq,
            1 => Compare::Ne,
            2 => Compare::Ge,
            3 => Compare::Gt,
            4 => Compare::Le,
            5 => Compare::Lt,
            other => return Err(node.malformed(format_args!("there is no comparison {other}"))),
        };
        // The type of the comparison follows from the dtype, but for the total order of floats.
        match node.word("compare_type", Enumeration::ComparisonType)? {
            2 => {
                let (dtype, builder) = (self.aval(x).dtype, &mut self.frames.top().builder);
                let [x, y] = [total_order(builder, x, dtype)?, total_order(builder, y, dtype)?];
                self.emit(op, &[x, y])
            }
            _ => self.emit(op, &[x, y]),
        }
    }

    /// Rounds half away from zero.
    fn round_away_from_zero(&mut self, x: Atom) -> Result<Atom> {
        let dtype = self.aval(x).dtype;
        let size = self.emit(Unary::Abs, &[x])?;
        let whole = self.emit(Unary::Floor, &[size])?;
        let rest = self.emit(Binary::Sub, &[size, whole])?;
        let is_up = self.emit(Compare::Ge, &[rest, Literal::from_f64(dtype, 0.5).into()])?;
        let up = self.convert(is_up, dtype)?;
        let rounded = self.emit(Binary::Add, &[whole, up])?;
        let sign = self.emit(Unary::Sign, &[x])?;
        self.emit(Binary::Mul, &[sign, rounded])
    }

    /// Sets every bit below the highest one, and counts the others.
    fn count_leading_zeros(&mut self, x: Atom) -> Result<Atom> {
        let dtype = self.aval(x).dtype;
        let mut bits = x;
        let mut shift = 1;
        while shift < dtype.bits() {
            let by = Literal::from_i128(dtype, shift as i128).into();
            let shifted = self.emit(Binary::ShiftRightLogical, &[bits, by])?;
            bits = self.emit(Binary::Or, &[bits, shifted])?;
            shift *= 2;
        }
        let zeros = self.emit(Unary::Not, &[bits])?;
        self.emit(Unary::PopulationCount, &[zeros])
    }
}

/// The function of this name in StableHLO.
fn unary(name: &str) -> Option<Unary> {
    Some(match name {
        "abs" => Unary::Abs,
        "cbrt" => Unary::Cbrt,
        "ceil" => Unary::Ceil,
        "cosine" => Unary::Cos,
        "exponential" => Unary::Exp,
        "exponential_minus_one" => Unary::Expm1,
        "floor" => Unary::Floor,
        "is_finite" => Unary::IsFinite,
        "log" => Unary::Log,
        "log_plus_one" => Unary::Log1p,
        "logistic" => Unary::Logistic,
        "not" => Unary::Not,
        "popcnt" => Unary::PopulationCount,
        "round_nearest_even" => Unary::Round,
        "rsqrt" => Unary::Rsqrt,
        "sign" => Unary::Sign,
        "sine" => Unary::Sin,
        "sqrt" => Unary::Sqrt,
        "tan" => Unary::Tan,
        "tanh" => Unary::Tanh,
        _ => return None,
    })
}

/// The function of this name in StableHLO.
fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        "add" => Binary::Add,
        "and" => Binary::And,
        "atan2" => Binary::Atan2,
        "divide" => Binary::Div,
        "maximum" => Binary::Max,
        "minimum" => Binary::Min,
        "multiply" => Binary::Mul,
        "or" => Binary::Or,
        "power" => Binary::Pow,
        "remainder" => Binary::Rem,
        "shift_left" => Binary::ShiftLeft,
        "shift_right_arithmetic" => Binary::ShiftRightArithmetic,
        "shift_right_logical" => Binary::ShiftRightLogical,
        "subtract" => Binary::Sub,
        "xor" => Binary::Xor,
        _ => return None,
    })
}
