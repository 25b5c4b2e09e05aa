//! Operations that move elements without changing them.

use super::geometry::{
    alike, distinct_axes, increasing_axes, one_per_dimension, operands, padded_size, positive_steps, sized, take_rows,
    to_size, without_axes,
};
use super::rules::{same_dtype, same_memory};
use super::{Operation, Param, ParamMap, Params, dtype_error, shape_error};
use crate::{Aval, Class, DType, Error, ErrorKind, Result, Shape};

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
    fn name(&self) -> &'static str {
        "broadcast_in_dim"
    }

    fn class(&self) -> Class {
        Class::View
    }

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

    fn params(&self) -> Params {
        let (dims, shape) = (self.dims.iter().copied(), self.shape.iter().copied());
        vec![("broadcast_dimensions", Param::ints(dims)), ("shape", Param::ints(shape))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        let read = || Ok(Self { dims: params.sizes("broadcast_dimensions")?, shape: params.sizes("shape")? });
        (name == "broadcast_in_dim").then(read)
    }
}

impl Operation for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        let out = sized(name, x.with_shape(self.shape.iter().copied()))?;
        if x.size() != out.size() {
            return shape_error(name, format!("{x} has {} elements and {out} has {}", x.size(), out.size()));
        }
        Ok(vec![out])
    }

    fn params(&self) -> Params {
        vec![("new_sizes", Param::ints(self.shape.iter().copied()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "reshape").then(|| Ok(Self { shape: params.sizes("new_sizes")? }))
    }
}

impl Operation for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        one_per_dimension(name, "permutation", self.permutation.len(), x)?;
        distinct_axes(name, "permutation", &self.permutation, x.rank())?;
        Ok(vec![x.with_shape(self.permutation.iter().map(|&d| x.shape[d]))])
    }

    fn params(&self) -> Params {
        vec![("permutation", Param::ints(self.permutation.iter().copied()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "transpose").then(|| Ok(Self { permutation: params.sizes("permutation")? }))
    }
}

impl Operation for Squeeze {
    fn name(&self) -> &'static str {
        "squeeze"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [x] = operands(name, ins)?;
        distinct_axes(name, "dimensions", &self.axes, x.rank())?;
        if let Some(&axis) = self.axes.iter().find(|&&a| x.shape[a] != 1) {
            return shape_error(name, format!("dimension {axis} of {x} has size {} and not 1", x.shape[axis]));
        }
        Ok(vec![x.with_shape(without_axes(&x.shape, &self.axes))])
    }

    fn params(&self) -> Params {
        vec![("dimensions", Param::ints(self.axes.iter().copied()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "squeeze").then(|| Ok(Self { axes: params.sizes("dimensions")? }))
    }
}

impl Operation for ExpandDims {
    fn name(&self) -> &'static str {
        "expand_dims"
    }

    fn class(&self) -> Class {
        Class::View
    }

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

    fn params(&self) -> Params {
        vec![("dimensions", Param::ints(self.axes.iter().copied()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "expand_dims").then(|| Ok(Self { axes: params.sizes("dimensions")? }))
    }
}

impl Operation for Rev {
    fn name(&self) -> &'static str {
        "rev"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let [x] = operands(self.name(), ins)?;
        distinct_axes(self.name(), "dimensions", &self.axes, x.rank())?;
        Ok(vec![x.clone()])
    }

    fn params(&self) -> Params {
        vec![("dimensions", Param::ints(self.axes.iter().copied()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "rev").then(|| Ok(Self { axes: params.sizes("dimensions")? }))
    }
}

impl Operation for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn class(&self) -> Class {
        Class::Movement
    }

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

    fn params(&self) -> Params {
        vec![("dimension", Param::Int(self.axis as i64))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "concatenate").then(|| Ok(Self { axis: params.size("dimension")? }))
    }
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn class(&self) -> Class {
        Class::Movement
    }

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

    fn params(&self) -> Params {
        let rows = self.config.iter().map(|&(low, high, interior)| Param::signed([low, high, interior as i64]));
        vec![("padding_config", Param::Tuple(rows.collect()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        let row = |row: &Vec<i64>| match row[..] {
            [low, high, interior] => usize::try_from(interior).ok().map(|interior| (low, high, interior)),
            _ => None,
        };
        let read = || {
            let config = take_rows(params, "padding_config")?.iter().map(row).collect::<Option<_>>();
            let config =
                config.ok_or_else(|| params.error("padding_config", "is not a tuple of (low, high, interior)"))?;
            Ok(Self { config })
        };
        (name == "pad").then(read)
    }
}

impl Operation for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [] = operands(name, ins)?;
        if self.dtype == DType::Bool {
            return dtype_error(name, "takes a numeric dtype and got bool");
        }
        distinct_axes(name, "dimension", &[self.axis], self.shape.len())?;
        Ok(vec![sized(name, Aval::new(self.dtype, self.shape.iter().copied()))?])
    }

    fn params(&self) -> Params {
        vec![
            ("dimension", Param::Int(self.axis as i64)),
            ("dtype", Param::DType(self.dtype)),
            ("shape", Param::ints(self.shape.iter().copied())),
        ]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        let read = || {
            Ok(Self { axis: params.size("dimension")?, dtype: params.dtype("dtype")?, shape: params.sizes("shape")? })
        };
        (name == "iota").then(read)
    }
}
