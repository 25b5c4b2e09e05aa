//! Convolution.

use super::dot::check_preferred;
use super::geometry::{alike, distinct_axes, operands, padded_size, positive_steps, sized, to_size, window_count};
use super::op::op;
use super::values::ParamValue;
use super::{Operation, Param, ParamMap, shape_error};
use crate::{Aval, DType, Error, ErrorKind, Result, Shape};

/// Which dimension of an operand is which. For the input and the output `first` is batch and `second` feature; for the
/// kernel `first` is output feature and `second` input feature.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ConvDims {
    pub first: usize,
    pub second: usize,
    pub spatial: Shape,
}

/// `conv_general_dilated input kernel` in any number of spatial dimensions; a cross-correlation, as in machine learning. Padding may be
/// negative. Source: XLA's operation semantics, "Conv", with two differences. A padded input that is smaller than the kernel gives an empty
/// output, however negative its padding. And a kernel may be empty, since the derivative of such a convolution has an empty cotangent as
/// kernel. It is not specified whether kernel elements that are not finite are multiplied by the zeros of a dilated input.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct Conv {
    pub strides: Shape,
    pub padding: Vec<(i64, i64)>,
    /// Dilation of the input: zeros between its elements.
    pub lhs_dilation: Shape,
    /// Dilation of the kernel.
    pub rhs_dilation: Shape,
    pub lhs_dims: ConvDims,
    pub rhs_dims: ConvDims,
    pub out_dims: ConvDims,
    pub feature_group_count: usize,
    pub batch_group_count: usize,
    /// The dtype of the result.
    pub preferred_element_type: DType,
}

impl Operation for Conv {
    op! {
        "conv_general_dilated" class Contraction {
            batch_group_count,
            (lhs_dims, rhs_dims, out_dims): dimension_numbers,
            feature_group_count,
            lhs_dilation,
            padding,
            preferred_element_type,
            rhs_dilation,
            strides: window_strides,
        }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let name = self.name();
        let [input, kernel] = operands(name, ins)?;
        alike(name, input, kernel)?;
        check_preferred(name, input.dtype, self.preferred_element_type)?;
        self.check_parameters(input.rank(), input)?;
        self.check_parameters(kernel.rank(), kernel)?;
        self.check_groups(input, kernel)?;
        let mut shape: Shape = Shape::from_elem(0, input.rank());
        shape[self.out_dims.first] = input.shape[self.lhs_dims.first] / self.batch_group_count;
        shape[self.out_dims.second] = kernel.shape[self.rhs_dims.first];
        for (i, &d) in self.out_dims.spatial.iter().enumerate() {
            let (low, high) = self.padding[i];
            let padded = padded_size(input.shape[self.lhs_dims.spatial[i]], low, high, self.lhs_dilation[i] - 1);
            let size = kernel.shape[self.rhs_dims.spatial[i]];
            shape[d] = to_size(name, window_count(padded, size, self.rhs_dilation[i], self.strides[i]))?;
        }
        Ok(vec![sized(name, input.with_dtype(self.preferred_element_type).with_shape(shape))?])
    }
}

/// The orders of the dimensions of the input, the kernel and the output: `((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))`.
impl ParamValue for (ConvDims, ConvDims, ConvDims) {
    fn to_param(&self) -> Option<Param> {
        let dims = |d: &ConvDims| Param::ints([d.first, d.second].into_iter().chain(d.spatial.iter().copied()));
        Some(Param::Tuple(vec![dims(&self.0), dims(&self.1), dims(&self.2)]))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let dims = |param: &Param| match *param.as_sizes()? {
            [first, second, ref spatial @ ..] => Some(ConvDims { first, second, spatial: spatial.into() }),
            _ => None,
        };
        let numbers = |param: &Param| match param {
            Param::Tuple(specs) if specs.len() == 3 => Some((dims(&specs[0])?, dims(&specs[1])?, dims(&specs[2])?)),
            _ => None,
        };
        numbers(&params.take(name)?)
            .ok_or_else(|| params.error(name, "is not the orders of the input, the kernel and the output"))
    }
}

impl Conv {
    /// Fails unless the parameters fit operands of this rank.
    fn check_parameters(&self, rank: usize, aval: &Aval) -> Result<()> {
        let name = self.name();
        let spatial = self.strides.len();
        if rank != spatial + 2 {
            let message =
                format!("{spatial} window_strides are for operands of rank {} and not for {aval}", spatial + 2);
            return shape_error(name, message);
        }
        let lengths = [
            ("padding", self.padding.len()),
            ("lhs_dilation", self.lhs_dilation.len()),
            ("rhs_dilation", self.rhs_dilation.len()),
            ("the spatial dimensions of the input", self.lhs_dims.spatial.len()),
            ("the spatial dimensions of the kernel", self.rhs_dims.spatial.len()),
            ("the spatial dimensions of the output", self.out_dims.spatial.len()),
        ];
        if let Some((what, len)) = lengths.iter().find(|(_, len)| *len != spatial) {
            return shape_error(name, format!("{what} has {len} entries and window_strides has {spatial}"));
        }
        for (what, dims) in [("input", &self.lhs_dims), ("kernel", &self.rhs_dims), ("output", &self.out_dims)] {
            let order: Shape = [dims.first, dims.second].into_iter().chain(dims.spatial.iter().copied()).collect();
            distinct_axes(name, &format!("dimension_numbers of the {what}"), &order, rank)?;
        }
        positive_steps(name, "window_strides", &self.strides)?;
        positive_steps(name, "lhs_dilation", &self.lhs_dilation)?;
        positive_steps(name, "rhs_dilation", &self.rhs_dilation)?;
        positive_steps(name, "feature_group_count", &[self.feature_group_count])?;
        positive_steps(name, "batch_group_count", &[self.batch_group_count])
    }

    /// Fails unless batch and features divide into the groups.
    fn check_groups(&self, input: &Aval, kernel: &Aval) -> Result<()> {
        let name = self.name();
        let (features, batches) = (self.feature_group_count, self.batch_group_count);
        if features > 1 && batches > 1 {
            let message =
                format!("feature_group_count {features} and batch_group_count {batches} are both more than 1");
            return Err(Error::new(ErrorKind::Argument, name, message));
        }
        let (batch, in_features) = (input.shape[self.lhs_dims.first], input.shape[self.lhs_dims.second]);
        let (out_features, kernel_features) = (kernel.shape[self.rhs_dims.first], kernel.shape[self.rhs_dims.second]);
        if kernel_features.checked_mul(features) != Some(in_features) {
            let message = format!(
                "input features differ: {in_features} of {input} and {kernel_features} of {kernel} in {features} groups"
            );
            return shape_error(name, message);
        }
        if out_features % features != 0 || out_features % batches != 0 {
            let groups = features.max(batches);
            return shape_error(
                name,
                format!("{out_features} output features of {kernel} are not {groups} equal groups"),
            );
        }
        if batch % batches != 0 {
            return shape_error(name, format!("{batch} batch elements of {input} are not {batches} equal groups"));
        }
        Ok(())
    }
}
