//! Convolution.

use remat_ir::{Aval, Conv, ConvDims, DType, Error, ErrorKind, Result, Shape, counted};

use super::elementwise::same_dtype;
use crate::Tensor;
use crate::trace::{bind1, deferred};

/// How the spatial dimensions of an array are padded.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Padding {
    /// No padding.
    #[default]
    Valid,
    /// Padding such that the result has the size of the operand divided by the stride, rounded up. If the total is odd, the end gets one
    /// more.
    Same,
    /// As `Same`, but if the total is odd, the start gets one more.
    SameLower,
    /// Padding by these numbers before and after each dimension; negative ones crop.
    Explicit(Vec<(i64, i64)>),
}

/// The parameters of [`Tensor::conv`]; an empty `Vec` means ones.
///
/// ```
/// use remat::{ConvConfig, Padding};
/// let config = ConvConfig { strides: vec![2, 2], padding: Padding::Same, ..ConvConfig::default() };
/// # assert_eq!(config.feature_groups, 1);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConvConfig {
    /// The distance between windows in each spatial dimension.
    pub strides: Vec<usize>,
    /// The padding of the input.
    pub padding: Padding,
    /// The distance between the elements of the input after zeros are inserted, for a transposed convolution.
    pub input_dilation: Vec<usize>,
    /// The distance between the elements of the kernel, `dilation` in PyTorch.
    pub kernel_dilation: Vec<usize>,
    /// The order of the dimensions of input, kernel and output: `N` batch, `C` feature, `O` output feature, `I` input
    /// feature, and a letter for each spatial dimension. `None` is `NC..`, `OI..`, `NC..`.
    pub layout: Option<[&'static str; 3]>,
    /// The number of groups of features, each of which is convolved by itself; `groups` in PyTorch. 1 by default.
    pub feature_groups: usize,
    /// The number of groups of examples, each of which is convolved with its own part of the kernel's output features. 1 by default.
    pub batch_groups: usize,
    /// The dtype of the sums and of the result; `None` means that of the operands.
    pub dtype: Option<DType>,
}

impl Default for ConvConfig {
    fn default() -> ConvConfig {
        ConvConfig {
            strides: Vec::new(),
            padding: Padding::Valid,
            input_dilation: Vec::new(),
            kernel_dilation: Vec::new(),
            layout: None,
            feature_groups: 1,
            batch_groups: 1,
            dtype: None,
        }
    }
}

impl Tensor {
    /// The convolution with a kernel, in any number of spatial dimensions; it is a cross-correlation, as usual in machine learning. By
    /// default the input is `[batch, channels, ..]`, the kernel `[output channels, input channels / groups, ..]`. Parameters per spatial
    /// dimension are in the order of the kernel's dimensions.
    ///
    /// # Errors
    /// If ranks, features, groups or dtypes do not fit, or the layout is malformed.
    ///
    /// ```
    /// use remat::{ConvConfig, Tensor};
    /// let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0]).reshape([1, 1, 4]);
    /// let kernel = Tensor::new([1.0f32, 10.0]).reshape([1, 1, 2]);
    /// let y = x.conv(&kernel, &ConvConfig::default());
    /// assert_eq!(y.to_vec::<f32>()?, [21.0, 32.0, 43.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[doc(alias = "conv_general_dilated")]
    #[track_caller]
    pub fn conv(&self, kernel: &Tensor, config: &ConvConfig) -> Tensor {
        deferred(|| match config.layout {
            None => convolution(self, kernel, config, |rank| {
                Ok(std::array::from_fn(|_| ConvDims { first: 0, second: 1, spatial: (2..rank).collect() }))
            }),
            Some(layout) => convolution(self, kernel, config, |rank| dimension_numbers(rank, layout)),
        })
    }
}

/// [`Tensor::conv`] with dimensions of input, kernel and output that depend on their rank, which is at least 2, and not with those of the
/// configuration.
///
/// # Errors
/// As [`Tensor::conv`].
pub(crate) fn convolution(
    x: &Tensor,
    kernel: &Tensor,
    config: &ConvConfig,
    dims: impl FnOnce(usize) -> Result<[ConvDims; 3]>,
) -> Result<Tensor> {
    let (of_x, of_kernel) = (x.aval()?, kernel.aval()?);
    same_dtype("conv", of_x, of_kernel)?;
    Ok(bind1(operation(of_x, of_kernel, config, dims)?, &[x, kernel]))
}

fn operation(
    x: &Aval,
    kernel: &Aval,
    config: &ConvConfig,
    dims: impl FnOnce(usize) -> Result<[ConvDims; 3]>,
) -> Result<Conv> {
    if x.rank() < 2 || x.rank() != kernel.rank() {
        let message = format!("{x} and the kernel {kernel} must have the same rank, at least 2");
        return Err(Error::new(ErrorKind::Shape, "conv", message));
    }
    let spatial = x.rank() - 2;
    let [lhs_dims, rhs_dims, out_dims] = dims(x.rank())?;
    let strides = spatial_numbers("conv", "strides", &config.strides, spatial)?;
    let lhs_dilation = spatial_numbers("conv", "input_dilation", &config.input_dilation, spatial)?;
    let rhs_dilation = spatial_numbers("conv", "kernel_dilation", &config.kernel_dilation, spatial)?;
    let dilated = |size: usize, dilation: usize| {
        if size == 0 { 0 } else { (size - 1).saturating_mul(dilation).saturating_add(1) }
    };
    let sizes: Shape = (0..spatial).map(|i| dilated(x.shape[lhs_dims.spatial[i]], lhs_dilation[i])).collect();
    let windows: Shape = (0..spatial).map(|i| dilated(kernel.shape[rhs_dims.spatial[i]], rhs_dilation[i])).collect();
    Ok(Conv {
        padding: config.padding.resolve("conv", &sizes, &windows, &strides)?,
        strides,
        lhs_dilation,
        rhs_dilation,
        lhs_dims,
        rhs_dims,
        out_dims,
        feature_group_count: config.feature_groups,
        batch_group_count: config.batch_groups,
        preferred_element_type: config.dtype.unwrap_or(x.dtype),
    })
}

/// One positive number for each spatial axis; an empty list means ones.
///
/// # Errors
/// If their number is wrong, or one is 0.
pub(crate) fn spatial_numbers(operation: &str, what: &str, numbers: &[usize], spatial: usize) -> Result<Shape> {
    if numbers.is_empty() {
        return Ok(Shape::from_elem(1, spatial));
    }
    if numbers.len() != spatial || numbers.contains(&0) {
        let message = format!("{what} is {numbers:?} and not {}", counted(spatial, "positive number"));
        return Err(Error::new(ErrorKind::Argument, operation, message));
    }
    Ok(numbers.into())
}

fn dimension_numbers(rank: usize, layout: [&str; 3]) -> Result<[ConvDims; 3]> {
    let [input, kernel, output] = layout;
    let wrong = |text: &str, why: &str| {
        let message = format!("the layout \"{text}\" {why}");
        Err(Error::new(ErrorKind::Argument, "conv", message))
    };
    let order: Vec<char> = kernel.chars().filter(|c| !"OI".contains(*c)).collect();
    let dims = |text: &str, features: [char; 2]| {
        let letters: Vec<char> = text.chars().collect();
        let position = |c: char| letters.iter().position(|l| *l == c);
        if letters.len() != rank {
            return wrong(text, &format!("must have {rank} letters"));
        }
        let [Some(first), Some(second)] = features.map(position) else {
            return wrong(text, &format!("lacks {} or {}", features[0], features[1]));
        };
        match order.iter().map(|c| position(*c)).collect::<Option<Shape>>() {
            Some(spatial) if (0..rank).all(|d| d == first || d == second || spatial.contains(&d)) => {
                Ok(ConvDims { first, second, spatial })
            }
            _ => wrong(text, &format!("does not have the spatial letters of \"{kernel}\", each once")),
        }
    };
    Ok([dims(input, ['N', 'C'])?, dims(kernel, ['O', 'I'])?, dims(output, ['N', 'C'])?])
}

impl Padding {
    /// The padding before and after each dimension, for operands and windows of these dilated sizes.
    pub(crate) fn resolve(
        &self,
        operation: &str,
        sizes: &[usize],
        windows: &[usize],
        strides: &[usize],
    ) -> Result<Vec<(i64, i64)>> {
        let same = |odd_first: bool| {
            (0..sizes.len()).map(move |i| {
                let last = (sizes[i].div_ceil(strides[i]).max(1) - 1).saturating_mul(strides[i]);
                let total = last.saturating_add(windows[i]).saturating_sub(sizes[i]);
                let total = i64::try_from(total).unwrap_or(i64::MAX);
                let (less, more) = (total / 2, total - total / 2);
                if odd_first { (more, less) } else { (less, more) }
            })
        };
        match self {
            Padding::Valid => Ok(vec![(0, 0); sizes.len()]),
            Padding::Same => Ok(same(false).collect()),
            Padding::SameLower => Ok(same(true).collect()),
            Padding::Explicit(pairs) if pairs.len() == sizes.len() => Ok(pairs.clone()),
            Padding::Explicit(pairs) => {
                let (pairs, spatial) = (counted(pairs.len(), "pair"), counted(sizes.len(), "spatial dimension"));
                let message = format!("{pairs} of padding for {spatial}");
                Err(Error::new(ErrorKind::Argument, operation, message))
            }
        }
    }
}
