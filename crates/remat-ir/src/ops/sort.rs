//! Sorting.

use super::op::op;
use super::rules::{check_axis, same_memory};
use super::{Operation, expect_operands, shape_error};
use crate::{Aval, DType, Error, ErrorKind, Result, counted};

/// Sorts operands of one shape together along an axis, ascending and lexicographic by the first `num_keys` of them. Floats are in total
/// order, except that zeros are equal, and NaNs are equal and last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Sort {
    pub axis: usize,
    pub num_keys: usize,
    /// Equal keys keep their order.
    pub is_stable: bool,
}

/// The `k` largest along the last axis in descending order, and their i32 indices; the first of equals wins, NaN is
/// largest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct TopK {
    pub k: usize,
}

impl Operation for Sort {
    op! { "sort" class Sort { axis: dimension, is_stable, num_keys } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let Some(first) = ins.first() else {
            return Err(Error::new(ErrorKind::Argument, self.name(), "takes at least one operand"));
        };
        if self.num_keys == 0 || self.num_keys > ins.len() {
            let operands = counted(ins.len(), "operand");
            let message =
                format!("num_keys is {}; with {operands} it has to be from 1 to {}", self.num_keys, ins.len());
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        }
        if let Some(other) = ins.iter().find(|a| a.shape != first.shape) {
            return shape_error(self.name(), format!("{first} and {other} have different shapes"));
        }
        same_memory(self.name(), ins)?;
        check_axis(self.name(), first, self.axis)?;
        Ok(ins.to_vec())
    }
}

impl Operation for TopK {
    op! { "top_k" class Sort { k } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        let x = &ins[0];
        let mut shape = x.shape.clone();
        match shape.last_mut() {
            Some(last) if self.k <= *last => *last = self.k,
            Some(last) => {
                return shape_error(
                    self.name(),
                    format!("k is {}, and the last dimension of {x} has size {last}", self.k),
                );
            }
            None => {
                return shape_error(
                    self.name(),
                    format!("takes the largest along the last dimension, and {x} has none"),
                );
            }
        }
        let values = x.with_shape(shape);
        let indices = values.with_dtype(DType::I32);
        Ok(vec![values, indices])
    }
}
