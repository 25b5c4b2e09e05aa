//! Operations that move elements without changing them.

use super::geometry::{
    alike, distinct_axes, increasing_axes, one_per_dimension, operands, padded_size, positive_steps, sized, to_size,
    without_axes,
};
use super::op::op;
use super::rules::{same_dtype, same_memory};
use super::{Operation, dtype_error, shape_error};
use crate::{Aval, DType, Error, ErrorKind, Result, Shape};

/// Result dimension `dims[i]` is operand dimension `i`, repeated where its size is 1; the other dimensions are new.
/// `dims` is strictly increasing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct BroadcastInDim {
    pub shape: Shape,
    pub dims: Shape,
}

/// The same elements in row-major order with another shape of the same size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Reshape {
    pub shape: Shape,
}

/// Result dimension `i` is operand dimension `permutation[i]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Transpose {
    pub permutation: Shape,
}

/// Removes these dimensions of size 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Squeeze {
    pub axes: Shape,
}

/// Adds dimensions of size 1 at these positions of the result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ExpandDims {
    pub axes: Shape,
}

/// Reverses the order along these axes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Rev {
    pub axes: Shape,
}

/// Joins one or more operands along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Concatenate {
    pub axis: usize,
}

/// `pad x value`: for each dimension low and high padding, which may be negative (they crop), and interior padding
/// between elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pad {
    /// Low, high and interior padding of each dimension.
    pub config: Vec<(i64, i64, usize)>,
}

/// The index along one axis, in a numeric dtype. No operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Iota {
    pub dtype: DType,
    pub shape: Shape,
    pub axis: usize,
}

impl Operation for BroadcastInDim {
    op! { "broadcast_in_dim" class View { dims: broadcast_dimensions, shape } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        one_per_dimension(name, "broadcast_dimensions", self.dims.len(), x)?;
        increasing_axes(name, "broadcast_dimensions", &self.dims, self.shape.len())?;
        let out = sized(name, x.with_shape(self.shape.iter().copied()))?;
        for (i, &d) in self.dims.iter().enumerate() {
            if x.shape[i] != 1 && x.shape[i] != out.shape[d] {
                let message = format!(
                    "dimension {i} of {x} is neither 1 nor {}, the size of dimension {d} of {out}",
                    out.shape[d]
                );
                return shape_error(name, message);
            }
        }
        Ok(vec![out])
    }
}

impl Operation for Reshape {
    op! { "reshape" class View { shape: new_sizes } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        let out = sized(name, x.with_shape(self.shape.iter().copied()))?;
        if x.size() != out.size() {
            return shape_error(name, format!("{x} has {} elements and {out} has {}", x.size(), out.size()));
        }
        Ok(vec![out])
    }
}

impl Operation for Transpose {
    op! { "transpose" class View { permutation } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        one_per_dimension(name, "permutation", self.permutation.len(), x)?;
        distinct_axes(name, "permutation", &self.permutation, x.rank())?;
        Ok(vec![x.with_shape(self.permutation.iter().map(|&d| x.shape[d]))])
    }
}

impl Operation for Squeeze {
    op! { "squeeze" class View { axes: dimensions } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        distinct_axes(name, "dimensions", &self.axes, x.rank())?;
        if let Some(&axis) = self.axes.iter().find(|&&a| x.shape[a] != 1) {
            return shape_error(name, format!("dimension {axis} of {x} has size {} and not 1", x.shape[axis]));
        }
        Ok(vec![x.with_shape(without_axes(&x.shape, &self.axes))])
    }
}

impl Operation for ExpandDims {
    op! { "expand_dims" class View { axes: dimensions } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        let rank = x.rank() + self.axes.len();
        distinct_axes(name, "dimensions", &self.axes, rank)?;
        let mut old = x.shape.iter().copied();
        let shape: Shape =
            (0..rank).filter_map(|d| if self.axes.contains(&d) { Some(1) } else { old.next() }).collect();
        Ok(vec![x.with_shape(shape)])
    }
}

impl Operation for Rev {
    op! { "rev" class View { axes: dimensions } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let [x] = operands(self.name(), ins)?;
        distinct_axes(self.name(), "dimensions", &self.axes, x.rank())?;
        Ok(vec![x.clone()])
    }
}

impl Operation for Concatenate {
    op! { "concatenate" class Movement { axis: dimension } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let Some(first) = ins.first() else {
            return Err(Error::new(ErrorKind::Argument, name, "takes at least one operand"));
        };
        distinct_axes(name, "dimension", &[self.axis], first.rank())?;
        same_dtype(name, ins)?;
        same_memory(name, ins)?;
        let mut total = 0i128;
        for other in ins {
            if other.rank() != first.rank() {
                return shape_error(name, format!("ranks of {first} and {other} differ"));
            }
            if let Some(d) = (0..first.rank()).find(|&d| d != self.axis && first.shape[d] != other.shape[d]) {
                let message = format!("sizes of {first} and {other} differ in dimension {d}");
                return shape_error(name, message);
            }
            total += other.shape[self.axis] as i128;
        }
        let mut out = first.clone();
        out.shape[self.axis] = to_size(name, total)?;
        Ok(vec![sized(name, out)?])
    }
}

impl Operation for Pad {
    op! { "pad" class Movement { config: padding_config } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x, value] = operands(name, ins)?;
        alike(name, x, value)?;
        if value.rank() != 0 {
            return shape_error(name, format!("the padding value {value} is not a scalar"));
        }
        one_per_dimension(name, "padding_config", self.config.len(), x)?;
        let mut out = x.clone();
        for (d, &(low, high, interior)) in self.config.iter().enumerate() {
            // One more, because an interior padding of 0 is allowed.
            positive_steps(name, "padding_config", &[interior.saturating_add(1)])?;
            let size = padded_size(x.shape[d], low, high, interior);
            if size < 0 {
                let message =
                    format!("padding ({low}, {high}, {interior}) leaves dimension {d} of {x} with size {size}");
                return shape_error(name, message);
            }
            out.shape[d] = to_size(name, size)?;
        }
        Ok(vec![sized(name, out)?])
    }
}

impl Operation for Iota {
    op! { "iota" class View { axis: dimension, dtype, shape } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [] = operands(name, ins)?;
        if self.dtype == DType::Bool {
            return dtype_error(name, "takes a numeric dtype and got bool");
        }
        distinct_axes(name, "dimension", &[self.axis], self.shape.len())?;
        Ok(vec![sized(name, Aval::new(self.dtype, self.shape.iter().copied()))?])
    }
}
