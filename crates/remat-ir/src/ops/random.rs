//! Random bits.

use super::op::op;
use super::rules::common_shape;
use super::{Operation, dtype_error, expect_operands};
use crate::{Aval, DType, Result};

/// `threefry2x32 k0 k1 x0 x1`: the 20-round Threefry block function on u32 operands of one shape (keys may be scalars);
/// two results. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Threefry2x32;

impl Operation for Threefry2x32 {
    op! { "threefry2x32" class Random }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 4)?;
        if let Some(other) = ins.iter().find(|a| a.dtype != DType::U32) {
            return dtype_error(self.name(), format!("takes u32, not {other}; convert it with .to_dtype(DType::U32)"));
        }
        let out = common_shape(self.name(), ins)?;
        Ok(vec![out.clone(), out])
    }
}
