//! Small programs that meet every kind of memory that a run has: arguments that are kept and donated, results in place,
//! parts of buffers, constants, tables of many operands, the carries and slices of loops; and the kernels that address their
//! operands by pointers. They are small enough for an interpreter that watches each access.

use std::sync::Arc;

use remat_cpu::Cpu;
use remat_ir::{Array, Aval, DType, Device, Jaxpr, Literal, Reference, Result, with_dtype};

const PROGRAMS: &[(&str, &str)] = &[
    (
        "a scalar beside reductions of as many rows as columns, and of one row",
        "{ lambda ; a:f32[4,4] b:f32[6] t:f32[]. let s:f32[] = exp t c:f32[4,4] = abs a d:f32[4] = reduce_max[axes=(1,)] c \
         u:f32[4] = broadcast_in_dim[broadcast_dimensions=() shape=(4,)] s e:f32[4] = mul d u f:f32[6] = abs b \
         g:f32[] = reduce_max[axes=(0,)] f h:f32[] = mul g s i:f32[] = add t s in (e, h, i, s) }",
    ),
    (
        "one loop with a constant and a result in place",
        "{ lambda ; a:f32[3,5]. let b:f32[3,5] = sin a c:f32[3,5] = mul b 2.0:f32[] d:f32[3,5] = add c a in (d,) }",
    ),
    (
        "results of several dtypes and reductions of both axes",
        "{ lambda ; a:f64[3,5]. let b:f64[5] = reduce_sum[axes=(0,)] a c:f64[3] = reduce_max[axes=(1,)] a \
         d:bool[3,5] = gt a 0.25:f64[] e:bf16[3,5] = convert_element_type[new_dtype=bfloat16] a in (b, c, d, e) }",
    ),
    (
        "an argument as a result, twice and reshaped",
        "{ lambda ; a:f32[2,3]. let b:f32[6] = reshape[new_sizes=(6,)] a c:f32[2,3] = neg a in (a, b, c, a) }",
    ),
    (
        "views of a temporary, joined",
        "{ lambda ; a:f32[4,3]. let b:f32[4,3] = exp a c:f32[3,4] = transpose[permutation=(1, 0)] b \
         d:f32[4,3] = rev[dimensions=(0,)] b e:f32[3,4] = reshape[new_sizes=(3, 4)] d \
         f:f32[6,4] = concatenate[dimension=0] c e in (f,) }",
    ),
    (
        "a product of a transpose, and what follows",
        "{ lambda ; a:f32[7,5] b:f32[7,9]. let c:f32[5,9] = dot_general[dimension_numbers=(([0], [0]), ([], [])) \
         preferred_element_type=float32] a b d:f32[5,9] = tanh c in (d,) }",
    ),
    (
        "products of several rows, of a matrix as it lies and transposed",
        "{ lambda ; a:f32[17,40] b:f32[40,33] d:f32[40,17]. let c:f32[17,33] = dot_general[dimension_numbers=(([1], [0]), ([], [])) \
         preferred_element_type=float32] a b e:f32[17,33] = dot_general[dimension_numbers=(([0], [0]), ([], [])) \
         preferred_element_type=float32] d b in (c, e) }",
    ),
    (
        "products of few rows, of a matrix as it lies and transposed",
        "{ lambda ; a:f32[3,70] b:f32[70,9] d:f32[9,70]. let c:f32[3,9] = dot_general[dimension_numbers=(([1], [0]), ([], [])) \
         preferred_element_type=float32] a b e:f32[3,9] = dot_general[dimension_numbers=(([1], [1]), ([], [])) \
         preferred_element_type=float32] a d in (c, e) }",
    ),
    (
        "products of integers, along a short axis and a longer one",
        "{ lambda ; a:i32[3,20] b:i32[20,9] d:i32[3,70] e:i32[70,9]. let c:i32[3,9] = dot_general[dimension_numbers=(([1], [0]), \
         ([], [])) preferred_element_type=int32] a b f:i32[3,9] = dot_general[dimension_numbers=(([1], [0]), ([], [])) \
         preferred_element_type=int32] d e in (c, f) }",
    ),
    (
        "a product of bf16 with results in f32",
        "{ lambda ; a:bf16[17,40] b:bf16[40,33]. let c:f32[17,33] = dot_general[dimension_numbers=(([1], [0]), ([], [])) \
         preferred_element_type=float32] a b in (c,) }",
    ),
    ("nothing at all", "{ lambda ; a:f32[0,5]. let b:f32[0,5] = sin a c:f32[5] = reduce_sum[axes=(0,)] b in (b, c) }"),
    (
        "many operands",
        "{ lambda ; a:f32[2]. let b:f32[2] = sin a c:f32[2] = cos b \
         d:f32[30] = concatenate[dimension=0] a b c a b c a b c a b c a b c in (d,) }",
    ),
    (
        "a loop whose carries change places, with slices in and out",
        "{ lambda ; a:f32[3] b:f32[3] c:f32[4,3]. let d:f32[3] e:f32[3] f:f32[4,3] = scan[jaxpr={ lambda ; g:f32[3] \
         h:f32[3] i:f32[3]. let j:f32[3] = sin g k:f32[3] = add h i l:f32[3] = mul j k in (k, j, l) } length=4 \
         num_carry=2 num_consts=0 reverse=True unroll=1] a b c in (d, e, f) }",
    ),
    (
        "a loop whose carry stays in place, with a constant",
        "{ lambda ; a:f64[6] b:f64[6]. let c:f64[6] = scan[jaxpr={ lambda ; d:f64[6] e:f64[6]. let f:f64[6] = mul d e \
         in (f,) } length=3 num_carry=1 num_consts=1 reverse=False unroll=1] a b in (c,) }",
    ),
    (
        "a loop of unknown length",
        "{ lambda ; a:i32[] x:f32[5]. let n:i32[] y:f32[5] = while[cond_jaxpr={ lambda ; k:i32[] n:i32[] y:f32[5]. let \
         c:bool[] = lt n k in (c,) } cond_nconsts=1 body_jaxpr={ lambda ; n:i32[] y:f32[5]. let m:i32[] = add n 1:i32[] \
         z:f32[5] = sin y in (m, z) } body_nconsts=0] a 0:i32[] x in (n, y) }",
    ),
    (
        "a loop whose condition and body compute the same product, and whose carries change their places",
        "{ lambda ; w:f32[3,3] x:f32[3] y:f32[3]. let n:i32[] u:f32[3] v:f32[3] = while[cond_jaxpr={ lambda ; w:f32[3,3] n:i32[] \
         x:f32[3] y:f32[3]. let p:f32[3] = dot_general[dimension_numbers=(([0], [0]), ([], [])) \
         preferred_element_type=float32] x w q:f32[] = reduce_max[axes=(0,)] p c:bool[] = lt q 99.0:f32[] \
         d:bool[] = lt n 3:i32[] e:bool[] = and c d in (e,) } cond_nconsts=1 body_jaxpr={ lambda ; w:f32[3,3] n:i32[] x:f32[3] \
         y:f32[3]. let p:f32[3] = dot_general[dimension_numbers=(([0], [0]), ([], [])) preferred_element_type=float32] x w \
         m:i32[] = add n 1:i32[] z:f32[3] = sin p in (m, y, z) } body_nconsts=1] w w 0:i32[] x y in (n, u, v) }",
    ),
    (
        "a loop whose condition has a loop",
        "{ lambda ; x:f32[3] y:f32[3]. let n:f32[] u:f32[3] v:f32[3] = while[cond_jaxpr={ lambda ; n:f32[] x:f32[3] y:f32[3]. let \
         m:f32[] = scan[jaxpr={ lambda ; n:f32[]. let m:f32[] = add n 1.0:f32[] in (m,) } length=3 num_carry=1 num_consts=0 \
         reverse=False unroll=1] n c:bool[] = lt m 6.0:f32[] in (c,) } cond_nconsts=0 body_jaxpr={ lambda ; n:f32[] x:f32[3] \
         y:f32[3]. let m:f32[] = add n 1.0:f32[] z:f32[3] = sin x in (m, y, z) } body_nconsts=0] 0.0:f32[] x y in (n, u, v) }",
    ),
    (
        "branches",
        "{ lambda ; a:i32[] x:f32[5]. let y:f32[5] = cond[branches=({ lambda ; x:f32[5]. let y:f32[5] = sin x in (y,) } \
         { lambda ; x:f32[5]. let in (x,) })] a x in (y,) }",
    ),
    (
        "attention and its cotangents",
        "{ lambda ; q:f32[1,5,4,3] k:f32[1,6,2,3] v:f32[1,6,2,4] b:f32[1,4,1,6] t:f32[1,5,4,4]. let \
         o:f32[1,5,4,4] l:f32[1,4,5] = dot_product_attention[bias=True causal=True mask=False scale=0.7:f64[]] q k v b \
         x:f32[1,5,4,3] y:f32[1,6,2,3] z:f32[1,6,2,4] w:f32[1,4,1,6] = dot_product_attention_cotangent[bias=True \
         causal=True cotangents=(query, key, value, bias) logsumexp=False mask=False scale=0.7:f64[]] q k v b o l t \
         in (o, x, y, z, w) }",
    ),
    (
        "attention of bf16",
        "{ lambda ; q:bf16[1,4,2,3] k:bf16[1,4,2,3] v:bf16[1,4,2,3]. let o:bf16[1,4,2,3] l:f32[1,2,4] = \
         dot_product_attention[bias=False causal=False mask=False scale=0.5:f64[]] q k v in (o, l) }",
    ),
    (
        "a convolution with a stride, and a padded one of one channel each",
        "{ lambda ; a:f32[1,2,7,6] b:f32[3,2,3,3] c:f32[3,1,2,2]. let d:f32[1,3,3,3] = conv_general_dilated[\
         batch_group_count=1 dimension_numbers=((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)) feature_group_count=1 \
         lhs_dilation=(1, 1) padding=((0, 0), (1, 0)) preferred_element_type=float32 rhs_dilation=(1, 1) \
         window_strides=(2, 2)] a b e:f32[1,3,4,4] = conv_general_dilated[batch_group_count=1 \
         dimension_numbers=((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)) feature_group_count=3 lhs_dilation=(1, 1) \
         padding=((1, 1), (1, 1)) preferred_element_type=float32 rhs_dilation=(1, 1) window_strides=(1, 1)] d c in (d, e) }",
    ),
    (
        "sorted rows and columns, with their places",
        "{ lambda ; a:f32[3,7]. let b:i32[3,7] = iota[dimension=1 dtype=int32 shape=(3, 7)] c:f32[3,7] d:i32[3,7] = \
         sort[dimension=1 is_stable=True num_keys=1] a b e:f32[3,7] = sort[dimension=0 is_stable=True num_keys=1] c \
         f:f32[3,2] g:i32[3,2] = top_k[k=2] a in (c, d, e, f, g) }",
    ),
    (
        "rows gathered and scattered",
        "{ lambda ; a:f32[5,3] u:f32[4,3]. let h:i32[4,1] = iota[dimension=0 dtype=int32 shape=(4, 1)] \
         i:i32[4,1] = mul h 2:i32[] b:f32[4,3] = gather[collapsed_slice_dims=(0,) fill_value=0.0:f32[] mode=clip \
         offset_dims=(1,) operand_batching_dims=() slice_sizes=(1, 3) start_index_map=(0,) start_indices_batching_dims=()] a i \
         c:f32[4,3] = add b u d:f32[5,3] = scatter_add[inserted_window_dims=(0,) mode=fill_or_drop \
         operand_batching_dims=() scatter_dims_to_operand_dims=(0,) scatter_indices_batching_dims=() \
         unique_indices=False update_window_dims=(1,)] a i c e:f32[5,3] = scatter[inserted_window_dims=(0,) mode=clip \
         operand_batching_dims=() scatter_dims_to_operand_dims=(0,) scatter_indices_batching_dims=() \
         unique_indices=False update_window_dims=(1,)] a i u in (d, e) }",
    ),
];

/// Numbers between -1 and 1, or the number 1.
fn argument(aval: &Aval) -> Array {
    let value = |i: usize| match aval.dtype.is_float() {
        true => Literal::from_f64(aval.dtype, ((i * 7 + 3) % 17) as f64 / 8.0 - 0.9375),
        false => Literal::from_f64(aval.dtype, 1.0),
    };
    with_dtype!(aval.dtype, T => {
        let elements = (0..aval.size()).filter_map(|i| remat_ir::Element::from_literal(value(i)));
        Array::from_vec(elements.collect::<Vec<T>>(), aval.shape.iter().copied()).expect("as many elements as the shape has")
    })
}

fn numbers(x: &Array) -> Vec<f64> {
    (0..x.data().len()).filter_map(|i| x.data().get(i)).map(Literal::as_f64).collect()
}

fn expect_close(name: &str, got: &[Array], expected: &[Array]) {
    assert_eq!(got.len(), expected.len(), "{name}");
    for (got, expected) in got.iter().zip(expected) {
        assert_eq!(got.aval(), expected.aval(), "{name}");
        let allowed = match got.dtype() {
            DType::F64 => 1e-14,
            // A unit for bf16 rounds the weights of attention, and results are rounded: all are at most 1.
            DType::Bf16 => 2.0 * 2f64.powi(-9),
            _ => 1e-5,
        };
        let (x, y) = (numbers(got), numbers(expected));
        assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= allowed), "{name}: {x:?} and not {y:?}");
    }
}

/// Runs all programs on this number of threads, and compares with the evaluator.
fn check(threads: usize) -> Result<()> {
    let cpu = Cpu::with_threads(threads)?;
    for (name, text) in PROGRAMS {
        let jaxpr = Arc::new(Jaxpr::parse(text)?);
        let arguments = || jaxpr.in_avals().iter().map(argument).collect::<Vec<Array>>();
        let expected = Reference.compile(&jaxpr)?.run(arguments())?;
        let executable = cpu.compile(&jaxpr)?;
        let held = arguments();
        expect_close(name, &executable.run(held.clone())?, &expected);
        // The second run has the memory of the first, and may take that of its arguments.
        expect_close(name, &executable.run(arguments())?, &expected);
        let are_kept = held.iter().zip(arguments()).all(|(a, b)| numbers(a) == numbers(&b));
        assert!(are_kept, "{name}: an argument changed");
    }
    Ok(())
}

#[test]
fn every_kind_of_memory_on_one_thread() -> Result<()> {
    check(1)
}

#[test]
fn every_kind_of_memory_on_two_threads() -> Result<()> {
    check(2)
}
