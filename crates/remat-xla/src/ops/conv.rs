//! Convolution.

use remat_ir::{Aval, Conv, ConvDims};

use super::convert::convert_element_type;
use super::dot::accumulator;
use super::window::negative_padding;
use crate::value::{Value, comma_separated};
use crate::writer::Writer;

pub(super) fn conv(w: &mut Writer, op: &Conv, [input, kernel]: &[Value; 2], out: &Aval) -> Value {
    let (operand, sum) = accumulator(input.dtype(), out.dtype);
    // A sum of no products. XLA rejects it if the kernel is empty.
    if input.aval.size() == 0 || kernel.aval.size() == 0 {
        return w.empty(out);
    }
    let (mut input, kernel) = (convert_element_type(w, input, operand), convert_element_type(w, kernel, operand));
    let spatial = op.strides.len();
    let (mut padding, mut dilation) = (op.padding.clone(), op.lhs_dilation.to_vec());
    if padding.iter().any(|&(low, high)| low < 0 || high < 0) {
        let mut config = vec![(0, 0, 0); input.rank()];
        for (i, &d) in op.lhs_dims.spatial.iter().enumerate() {
            config[d] = (padding[i].0, padding[i].1, dilation[i] - 1);
        }
        let zero = w.constant(remat_ir::Literal::from_f64(operand, 0.0), &[]);
        input = negative_padding(w, &input, &zero, &config);
        (padding, dilation) = (vec![(0, 0); spatial], vec![1; spatial]);
    }
    let pads = comma_separated(padding.iter().map(|(low, high)| format!("[{low}, {high}]")));
    let window = match spatial {
        0 => String::new(),
        _ => format!(
            "stride = {:?}, pad = [{pads}], lhs_dilate = {dilation:?}, rhs_dilate = {:?}",
            op.strides, op.rhs_dilation
        ),
    };
    let precision = w.options.precision.word();
    let text = format!(
        "stablehlo.convolution({input}, {kernel}) dim_numbers = {}x{}->{}, window = {{{window}}} \
         {{batch_group_count = {} : i64, feature_group_count = {} : i64, \
         precision_config = [#stablehlo<precision {precision}>, #stablehlo<precision {precision}>]}}",
        order(&op.lhs_dims, "b", "f"),
        order(&op.rhs_dims, "o", "i"),
        order(&op.out_dims, "b", "f"),
        op.batch_group_count,
        op.feature_group_count
    );
    let result = w.apply(text, &[&input, &kernel], out.with_dtype(sum));
    convert_element_type(w, &result, out.dtype)
}

/// The roles of the dimensions: `[b, f, 0, 1]`.
fn order(dims: &ConvDims, first: &str, second: &str) -> String {
    let mut names = vec![String::new(); dims.spatial.len() + 2];
    names[dims.first] = first.to_string();
    names[dims.second] = second.to_string();
    for (i, &d) in dims.spatial.iter().enumerate() {
        names[d] = i.to_string();
    }
    format!("[{}]", names.join(", "))
}
