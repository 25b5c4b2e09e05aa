//! Random bits.

use super::{Operation, ParamMap, Params};
use crate::{Aval, Result};

/// `threefry2x32 k0 k1 x0 x1`: the 20-round Threefry block function on u32 operands of one shape (keys may be scalars);
/// two results. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Threefry2x32;

impl Operation for Threefry2x32 {
    fn name(&self) -> &'static str {
        "threefry2x32"
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}
