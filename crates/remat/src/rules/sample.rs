//! Samples: applications of operations that the generic test runs.

use remat_ir::{Array, Op};

/// One application of an operation to concrete operands.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What is special about it, for the message of a failing test.
    pub label: String,
    /// The operation.
    pub op: Op,
    /// The operands.
    pub inputs: Vec<Array>,
    /// Whether the function is differentiable around these operands, so that its jvp can be compared with central
    /// differences. Only samples whose floats are all f64 are compared.
    pub smooth: bool,
    /// Each set of operands in which, taken together and the others fixed, the operation is linear.
    pub linear: Vec<Vec<usize>>,
    /// The relative error allowed between central differences and the jvp.
    pub tolerance: f64,
}

impl Sample {
    /// A sample that is smooth and not linear.
    pub fn new(label: impl Into<String>, op: impl Into<Op>, inputs: Vec<Array>) -> Sample {
        Sample { label: label.into(), op: op.into(), inputs, smooth: true, linear: Vec::new(), tolerance: 1e-6 }
    }

    /// Says that central differences mean nothing here.
    pub fn not_smooth(mut self) -> Sample {
        self.smooth = false;
        self
    }

    /// Says that the operation is linear in these operands together.
    pub fn linear_in(mut self, operands: &[usize]) -> Sample {
        self.linear.push(operands.to_vec());
        self
    }
}

/// An f64 array of different values in `-2..2`.
pub(crate) fn floats(shape: &[usize]) -> Array {
    any(DType::F64, shape)
}
