//! Samples: applications of operations that the generic test runs.

use remat_ir::{Array, Call, DType, Element, Literal, Op, with_dtype};

/// One application of an operation to concrete operands.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its label, for the message of a failing test.
    pub label: String,
    /// The operation.
    pub op: Op,
    /// The operands.
    pub inputs: Vec<Array>,
    /// Whether the function is differentiable around these operands, so that its jvp can be compared with central
    /// differences. Only samples whose floats are all f64 are compared.
    pub smooth: bool,
    /// Each set of operands in which, taken together and the others fixed, the operation is linear up to a constant.
    pub linear: Vec<Vec<usize>>,
    /// Operands in which the operation has no derivative: asking for it is an error.
    pub without_derivative: Vec<usize>,
    /// The relative error allowed between central differences and the jvp.
    pub tolerance: f64,
}

impl Sample {
    /// A sample that is smooth and not linear.
    pub fn new(label: impl Into<String>, op: impl Into<Op>, inputs: Vec<Array>) -> Sample {
        Sample {
            label: label.into(),
            op: op.into(),
            inputs,
            smooth: true,
            linear: Vec::new(),
            without_derivative: Vec::new(),
            tolerance: 1e-6,
        }
    }

    /// The operation that the sample is of: that in the body, for a collective in a `shard_map` and a print in a `jit`.
    pub fn subject(&self) -> &Op {
        match &self.op {
            Op::Call(Call::Jit(op)) => op.jaxpr.eqns.first().map_or(&self.op, |eqn| &eqn.op),
            Op::Call(Call::ShardMap(op)) => op.jaxpr.eqns.first().map_or(&self.op, |eqn| &eqn.op),
            op => op,
        }
    }

    /// Says that central differences mean nothing here.
    pub fn not_smooth(mut self) -> Sample {
        self.smooth = false;
        self
    }

    /// Says that the operation is linear in these operands together, up to a constant; ignored unless all are floats.
    pub fn linear_in(mut self, operands: &[usize]) -> Sample {
        if operands.iter().all(|&i| self.inputs[i].dtype().is_float()) {
            self.linear.push(operands.to_vec());
        }
        self
    }

    /// Says that a derivative with respect to these operands is an error.
    pub fn without_derivative_in(mut self, operands: &[usize]) -> Sample {
        self.without_derivative.extend(operands);
        self
    }

    /// Allows this relative error, where central differences or a rounding operation cannot do better.
    pub fn within(mut self, tolerance: f64) -> Sample {
        self.tolerance = tolerance;
        self
    }
}

/// An array of these values, converted to `dtype` and repeated in order as often as the shape needs.
pub(super) fn array(dtype: DType, shape: &[usize], values: &[f64]) -> Array {
    let size = shape.iter().product();
    let literals = values.iter().cycle().take(size).map(|&value| Literal::from_f64(dtype, value));
    let shape = shape.iter().copied();
    let array = with_dtype!(dtype, T => {
        Array::from_vec(literals.map(|l| T::from_literal(l).expect("a literal has its dtype")).collect(), shape)
    });
    array.expect("the shape has as many elements as were made for it")
}

/// An array of different values in no order, spread evenly over `low..high`.
pub(super) fn spread(dtype: DType, shape: &[usize], low: f64, high: f64) -> Array {
    // The multiples of the golden ratio modulo 1 stay apart from each other, however many there are.
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let size: usize = shape.iter().product();
    let values: Vec<f64> = (1..=size).map(|i| low + (high - low) * (i as f64 * golden).fract()).collect();
    array(dtype, shape, &values)
}

/// Values in `-2..2` for floats, small integers of both signs where the dtype has them, and both bools.
pub(super) fn any(dtype: DType, shape: &[usize]) -> Array {
    match dtype {
        DType::Bool => array(dtype, shape, &[1.0, 0.0, 0.0, 1.0, 1.0]),
        _ if dtype.is_float() => spread(dtype, shape, -2.0, 2.0),
        _ if dtype.is_signed() => spread(dtype, shape, -9.0, 9.0),
        _ => spread(dtype, shape, 0.0, 17.0),
    }
}

/// An f64 array of different values in `-2..2`.
pub(super) fn floats(shape: &[usize]) -> Array {
    any(DType::F64, shape)
}
