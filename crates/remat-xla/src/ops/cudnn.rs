//! Attention by cuDNN's fused kernels, which XLA's plugin for NVIDIA GPUs calls by these names. The configuration is the one that JAX
//! writes for `jax.nn.dot_product_attention(implementation="cudnn")`.

use remat_ir::{
    AttentionOperands, AttentionSizes, Aval, DType, DotProductAttention, DotProductAttentionCotangent, Error,
    ErrorKind, Prim, Result,
};

use crate::options::{Attention, Platform};
use crate::value::{Value, comma_separated, names, types};
use crate::writer::Writer;

/// The results of an attention, or of its cotangent, by cuDNN, if that is requested and cuDNN has a kernel for it.
pub(super) fn attention(w: &mut Writer, op: &Prim, ins: &[Value], outs: &[Aval]) -> Result<Option<Vec<Value>>> {
    let avals: Vec<Aval> = ins.iter().map(|value| value.aval.clone()).collect();
    let takes = |attention: &DotProductAttention| is_asked_for(w) && has_kernel(attention, &avals);
    match op {
        Prim::DotProductAttention(op) if takes(op) => forward(w, op, ins, outs).map(Some),
        Prim::DotProductAttentionCotangent(op) if takes(&op.attention) && !op.logsumexp => {
            backward(w, op, ins, outs).map(Some)
        }
        _ => Ok(None),
    }
}

/// XLA cannot cut a call over devices, so there must be one device, or an enclosing `shard_map` along all axes.
fn is_asked_for(w: &Writer) -> bool {
    let is_on_one = match (&w.placement, &w.manual) {
        (_, Some(manual)) => manual.devices.devices() == 1 || manual.axes.len() == manual.devices.axes().len(),
        (Some(placement), None) => placement.devices() == 1,
        (None, None) => true,
    };
    w.options.platform == Platform::Gpu && w.options.attention == Attention::Cudnn && is_on_one
}

/// The cases that kernels of cuDNN 9 support on all cards since Ampere: f16 and bf16, and up to 128 features, a multiple of 8. With a bias
/// or a mask a query may attend to no key, for which their result differs from remat's.
fn has_kernel(op: &DotProductAttention, ins: &[Aval]) -> bool {
    let AttentionSizes { features, value_features, .. } = op.sizes(ins);
    let is_empty = ins.iter().any(|aval| aval.size() == 0);
    let has_features = features == value_features && features <= 128 && features.is_multiple_of(8);
    matches!(ins[0].dtype, DType::F16 | DType::Bf16) && has_features && !op.bias && !op.mask && !is_empty
}

/// The means, and the logarithms of the sums of exponentials.
fn forward(w: &mut Writer, op: &DotProductAttention, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    let products = [product("bmm1", [3, 3], [0, 2], [0, 2]), product("bmm2", [3, 1], [0, 1], [0, 2])];
    let sizes = op.sizes(&ins.iter().map(|value| value.aval.clone()).collect::<Vec<_>>());
    let config = config(op, sizes, ins[0].dtype(), &products);
    let given = call(w, "__cudnn$fmhaSoftmax", &config, ins, &[by_head(&outs[0]), outs[1].clone()]);
    let [means, sums] = &given[..] else { return Err(wrong_results()) };
    Ok(vec![by_position(w, means, &outs[0]), sums.clone()])
}

/// The cotangents of queries, keys and values, without those that are not needed.
fn backward(w: &mut Writer, op: &DotProductAttentionCotangent, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    let products = [
        product("bmm1_grad_gemm1", [2, 1], [0, 1], [0, 2]),
        product("bmm1_grad_gemm2", [3, 1], [0, 1], [0, 2]),
        product("bmm2_grad_gemm1", [2, 1], [0, 1], [0, 2]),
        product("bmm2_grad_gemm2", [3, 3], [0, 2], [0, 2]),
    ];
    let AttentionOperands { query, key, value, rest, .. } = op.attention.operands(ins);
    let [means, sums, cotangent] = rest else { return Err(wrong_results()) };
    let sizes = op.attention.sizes(&ins.iter().map(|value| value.aval.clone()).collect::<Vec<_>>());
    let config = config(&op.attention, sizes, query.dtype(), &products);
    let operands = [query, key, value, sums, cotangent, means].map(Value::clone);
    let all = [query, key, value].map(|of| by_head(&of.aval));
    let given = call(w, "__cudnn$fmhaSoftmaxBackward", &config, &operands, &all);
    let wanted = given.iter().zip(op.cotangents).filter(|(_, wanted)| *wanted);
    Ok(wanted.zip(outs).map(|((of, _), out)| by_position(w, of, out)).collect())
}

/// `[batch, heads, positions, features]` of `[batch, positions, heads, features]`.
fn by_head(aval: &Aval) -> Aval {
    aval.with_shape([0, 2, 1, 3].map(|dim| aval.shape[dim]))
}

/// A result in remat's order, which is its order in memory, so that nothing is moved.
fn by_position(w: &mut Writer, x: &Value, out: &Aval) -> Value {
    w.apply(format!("stablehlo.transpose {x}, dims = [0, 2, 1, 3]"), &[x], out.clone())
}

/// A call with these results and a workspace, whose size cuDNN determines when it is compiled. Arrays are stored as `[batch, positions,
/// heads, features]`.
fn call(w: &mut Writer, name: &str, config: &str, ins: &[Value], outs: &[Aval]) -> Vec<Value> {
    let ins: Vec<Value> = ins.iter().map(|value| w.operand(value)).collect();
    let outs: Vec<Aval> = outs.iter().cloned().chain([Aval::new(DType::U8, [0])]).collect();
    let layout = |order: &[usize]| format!("dense<{order:?}> : tensor<{}xindex>", order.len());
    let of_operand = |value: &Value| layout(&(0..value.rank()).rev().collect::<Vec<_>>());
    let of_result = |aval: &Aval| match aval.rank() {
        4 => layout(&[3, 1, 2, 0]),
        1 => "dense<0> : tensor<1xindex>".to_string(),
        rank => layout(&(0..rank).rev().collect::<Vec<_>>()),
    };
    let text = format!(
        "stablehlo.custom_call @{name}({}) {{api_version = 2 : i32, backend_config = \"{}\", operand_layouts = [{}], \
         result_layouts = [{}]}} : ({}) -> ({})",
        names(&ins),
        config.replace('"', "\\22"),
        comma_separated(ins.iter().map(of_operand)),
        comma_separated(outs.iter().map(of_result)),
        types(ins.iter().map(|value| &value.aval)),
        types(&outs),
    );
    let mut given = w.define_all(text, outs);
    given.pop();
    given
}

/// The dimension numbers of one of a kernel's products.
fn product(name: &str, contracted: [usize; 2], lhs_batch: [usize; 2], rhs_batch: [usize; 2]) -> String {
    let dims = |side: &str, kind: &str, dims: &[usize]| {
        let dims = comma_separated(dims.iter().map(|dim| format!("\"{dim}\"")));
        format!("\"{side}_{kind}_dimensions\": [{dims}]")
    };
    let all = [
        dims("lhs", "contracting", &contracted[..1]),
        dims("rhs", "contracting", &contracted[1..]),
        dims("lhs", "batch", &lhs_batch),
        dims("rhs", "batch", &rhs_batch),
    ];
    format!("\"{name}_dot_dimension_numbers\": {{{}}}", all.join(", "))
}

/// The configuration of a call, as JSON of XLA's own message.
fn config(op: &DotProductAttention, sizes: AttentionSizes, dtype: DType, products: &[String]) -> String {
    let scores = comma_separated(sizes.scores().map(|size| format!("\"{size}\"")));
    let element = if dtype == DType::F16 { "F16" } else { "BF16" };
    let mask = if op.causal { "CAUSAL" } else { "NO_MASK" };
    let scale = op.scale.as_f64();
    let layout = "{\"dim_level_types\": [], \"dim_unique\": [], \"dim_ordered\": [], \"minor_to_major\": [\"3\", \"2\", \"1\", \"0\"], \
                  \"tiles\": [], \"element_size_in_bits\": \"0\", \"memory_space\": \"0\", \
                  \"index_primitive_type\": \"PRIMITIVE_TYPE_INVALID\", \"pointer_primitive_type\": \"PRIMITIVE_TYPE_INVALID\", \
                  \"dynamic_shape_metadata_prefix_bytes\": \"0\"}";
    format!(
        "{{\"operation_queue_id\": \"0\", \"cudnn_fmha_backend_config\": {{\"algorithm\": {{\"algo_id\": \"0\", \
         \"math_type\": \"TENSOR_OP_MATH\", \"tuning_knobs\": {{\"17\": \"1\", \"24\": \"0\"}}, \"is_cudnn_frontend\": true, \
         \"workspace_size\": \"0\"}}, \"fmha_scale\": {scale:?}, \"intermediate_tensor_shape\": {{\"element_type\": \"{element}\", \
         \"dimensions\": [{scores}], \"tuple_shapes\": [], \"layout\": {layout}, \"is_dynamic_dimension\": [false, false, false, false]}}, \
         \"is_flash_attention\": true, \"mask_type\": \"{mask}\", {}, \"dropout_rate\": 0.0, \"seed\": 42, \"sliding_window_length\": 0, \
         \"max_seg_per_batch\": 1, \"is_paged_attention\": false}}}}",
        products.join(", "),
    )
}

fn wrong_results() -> Error {
    Error::new(ErrorKind::Internal, "dot_product_attention", "has other operands or results than its kernel")
}
