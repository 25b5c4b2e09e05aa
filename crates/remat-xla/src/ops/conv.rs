//! Convolution.

use remat_ir::{Aval, Conv, ConvDims, DType};

use super::convert::convert_element_type;
use super::dot::accumulator;
use super::window::negative_padding;
use crate::Platform;
use crate::value::{Value, comma_separated};
use crate::writer::Writer;

/// The bits of the parts of integers, and the most products of two parts whose sum f64 holds exactly.
const PART: usize = 16;
const EXACT: usize = 1 << (53 - 2 * PART);

pub(super) fn conv(w: &mut Writer, op: &Conv, [input, kernel]: &[Value; 2], out: &Aval) -> Value {
    // A sum of no products. XLA rejects it if the kernel is empty.
    if input.aval.size() == 0 || kernel.aval.size() == 0 {
        return w.empty(out);
    }
    let products = kernel.aval.size() / kernel.shape()[op.rhs_dims.first];
    if out.dtype.is_integer() && w.options.platform == Platform::Gpu && products <= EXACT {
        return of_integers(w, op, [input, kernel], out);
    }
    direct(w, op, [input, kernel], out)
}

/// cuDNN has no convolution of integers but one of 8 bits for some layouts. Those of parts of 16 bits are exact in f64, and their sum,
/// each shifted to its place, wraps around like that of the integers. Each is rounded first: an algorithm that multiplies transforms
/// is off by a fraction.
fn of_integers(w: &mut Writer, op: &Conv, [input, kernel]: [&Value; 2], out: &Aval) -> Value {
    let (inputs, kernels) = (parts(w, input, out.dtype), parts(w, kernel, out.dtype));
    let mut sum = w.empty(&out.with_dtype(DType::I64));
    for (i, input) in inputs.iter().enumerate() {
        for (j, kernel) in kernels.iter().enumerate() {
            let shift = PART * (i + j);
            if shift >= out.dtype.bits() {
                continue;
            }
            let part = direct(w, op, [input, kernel], &out.with_dtype(DType::F64));
            let part = w.unary("round_nearest_even", &part);
            let part = w.convert(&part, DType::I64);
            let place = w.splat_integer(&part, 1 << shift);
            let part = w.binary("multiply", &part, &place);
            sum = w.binary("add", &sum, &part);
        }
    }
    convert_element_type(w, &sum, out.dtype)
}

/// The parts of an operand as f64, the lowest first, as far as they count in a result of this dtype. All but the highest are not negative.
fn parts(w: &mut Writer, x: &Value, out: DType) -> Vec<Value> {
    let is_narrow = x.dtype().is_integer() && x.dtype().size() <= out.size();
    let x = &if is_narrow { x.clone() } else { convert_element_type(w, x, out) };
    let count = x.dtype().bits().div_ceil(PART);
    let part = |w: &mut Writer, at: usize| {
        let bits = w.splat_integer(x, (at * PART) as i128);
        let shifted = match (at, x.dtype().is_signed()) {
            (0, _) => x.clone(),
            (_, true) => w.binary("shift_right_arithmetic", x, &bits),
            (_, false) => w.binary("shift_right_logical", x, &bits),
        };
        let mask = w.splat_integer(x, (1 << PART) - 1);
        let part = if at + 1 == count { shifted } else { w.binary("and", &shifted, &mask) };
        w.convert(&part, DType::F64)
    };
    (0..count).map(|at| part(w, at)).collect()
}

fn direct(w: &mut Writer, op: &Conv, [input, kernel]: [&Value; 2], out: &Aval) -> Value {
    let (operand, sum) = accumulator(input.dtype(), out.dtype);
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
