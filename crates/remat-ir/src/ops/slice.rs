//! Slices with static and with dynamic starts.

use super::geometry::{alike, one_per_dimension, operands, positive_steps};
use super::op::op;
use super::{Operation, dtype_error, shape_error};
use crate::{Aval, Error, ErrorKind, Result, Shape};

/// Elements `start, start + stride, .. < limit` of each dimension; strides are at least 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Slice {
    pub start: Shape,
    pub limit: Shape,
    pub strides: Shape,
}

/// `dynamic_slice x start_0 start_1 ..`: a block of these sizes at integer scalar starts, which are clamped so that the
/// block fits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct DynamicSlice {
    pub sizes: Shape,
}

/// `dynamic_update_slice x update start_0 start_1 ..`: `x` with a block replaced; starts are clamped so that it fits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DynamicUpdateSlice;

impl Operation for Slice {
    op! { "slice" class View { limit: limit_indices, start: start_indices, strides } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        one_per_dimension(name, "start_indices", self.start.len(), x)?;
        one_per_dimension(name, "limit_indices", self.limit.len(), x)?;
        one_per_dimension(name, "strides", self.strides.len(), x)?;
        positive_steps(name, "strides", &self.strides)?;
        let mut out = x.clone();
        for (d, &size) in x.shape.iter().enumerate() {
            let (start, limit, stride) = (self.start[d], self.limit[d], self.strides[d]);
            if start > limit || limit > size {
                return shape_error(name, format!("{start}..{limit} is not a range of dimension {d} of {x}"));
            }
            out.shape[d] = (limit - start).div_ceil(stride);
        }
        Ok(vec![out])
    }
}

impl Operation for DynamicSlice {
    op! { "dynamic_slice" class Movement { sizes: slice_sizes } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let Some((x, starts)) = ins.split_first() else {
            return Err(Error::new(ErrorKind::Argument, name, "takes an operand and its starts and got nothing"));
        };
        one_per_dimension(name, "slice_sizes", self.sizes.len(), x)?;
        check_starts(name, x, starts)?;
        if let Some(d) = (0..x.rank()).find(|&d| self.sizes[d] > x.shape[d]) {
            return shape_error(name, format!("slice size {} is more than dimension {d} of {x}", self.sizes[d]));
        }
        Ok(vec![x.with_shape(self.sizes.iter().copied())])
    }
}

impl Operation for DynamicUpdateSlice {
    op! { "dynamic_update_slice" class Movement }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x, update, starts @ ..] = ins else {
            let message = format!("takes an operand, an update and starts and got {} operands", ins.len());
            return Err(Error::new(ErrorKind::Argument, name, message));
        };
        alike(name, x, update)?;
        if x.rank() != update.rank() {
            return shape_error(name, format!("ranks of {x} and of the update {update} differ"));
        }
        check_starts(name, x, starts)?;
        if let Some(d) = (0..x.rank()).find(|&d| update.shape[d] > x.shape[d]) {
            return shape_error(name, format!("the update {update} is larger than {x} in dimension {d}"));
        }
        Ok(vec![x.clone()])
    }
}

/// Fails unless there is one integer scalar per dimension, all of one dtype. They may be in any memory: the start of a block in host memory
/// may be computed on the device.
fn check_starts(name: &str, x: &Aval, starts: &[Aval]) -> Result<()> {
    if starts.len() != x.rank() {
        let message = format!("{x} has {} dimensions and {} starts were given", x.rank(), starts.len());
        return Err(Error::new(ErrorKind::Argument, name, message));
    }
    for start in starts {
        if !start.dtype.is_integer() {
            return dtype_error(
                name,
                format!("a start is an integer, not {start}; convert it with .to_dtype(DType::I32)"),
            );
        }
        if start.dtype != starts[0].dtype {
            return dtype_error(name, format!("starts {} and {start} have different dtypes", starts[0]));
        }
        if start.rank() != 0 {
            return shape_error(name, format!("a start is a scalar, not {start}"));
        }
    }
    Ok(())
}
