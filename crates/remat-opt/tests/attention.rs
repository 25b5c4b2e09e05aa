//! Attention that is written out: each form is taken and computes the same, and what is nearly one is left as it is.

use remat_ir::{Array, Aval, DType, Jaxpr, Literal, eval};
use remat_opt::pipeline::{IMPORTED, run};
use remat_testkit::arrays::{assert_close, plain};

/// Queries, keys and values `[batch, positions, heads, features]` of f32, as `jnp.einsum` and `jax.nn.softmax` write them.
const EINSUM: &str = "{ lambda ; a:f32[2,34,3,5] b:f32[2,36,3,5] c:f32[2,36,3,7]. let
    d:f32[2,3,34,36] = dot_general[dimension_numbers=(([3], [3]), ([0, 2], [0, 2])) preferred_element_type=float32] a b
    e:f32[2,3,34,36] = mul d 0.3:f32[]
    f:f32[2,3,34] = reduce_max[axes=(3,)] e
    g:f32[2,3,34] = max -inf:f32[] f
    h:f32[2,3,34,1] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2) shape=(2, 3, 34, 1)] g
    i:f32[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2, 3) shape=(2, 3, 34, 36)] h
    j:f32[2,3,34,36] = sub e i
    k:f32[2,3,34,36] = exp j
    l:f32[2,3,34] = reduce_sum[axes=(3,)] k
    m:f32[2,3,34,1] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2) shape=(2, 3, 34, 1)] l
    n:f32[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2, 3) shape=(2, 3, 34, 36)] m
    o:f32[2,3,34,36] = div k n
    p:f32[2,3,7,34] = dot_general[dimension_numbers=(([1], [3]), ([0, 2], [0, 1])) preferred_element_type=float32] c o
    q:f32[2,34,3,7] = transpose[permutation=(0, 3, 1, 2)] p
  in (q,) }";

/// A text with parts of it replaced, all of which are there.
fn with(text: &str, replaced: &[(&str, &str)]) -> String {
    replaced.iter().fold(text.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in {text}");
        text.replace(from, to)
    })
}

/// The program with scores that are masked or biased: `inputs` are further ones, and `e` becomes `s` by these equations.
fn with_scores(inputs: &str, eqns: &str) -> String {
    let mul = "e:f32[2,3,34,36] = mul d 0.3:f32[]";
    let last = [("c:f32[2,36,3,7].", &*format!("c:f32[2,36,3,7] {inputs}.")), (mul, &*format!("{mul}\n{eqns}"))];
    with(EINSUM, &[last[0], last[1], ("reduce_max[axes=(3,)] e", "reduce_max[axes=(3,)] s"), ("sub e i", "sub s i")])
}

fn parse(text: &str) -> Jaxpr {
    text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn recognised(text: &str) -> Jaxpr {
    run(IMPORTED, &parse(text)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The operations of the program after the pass.
fn names(program: &Jaxpr) -> Vec<&'static str> {
    program.eqns.iter().map(|eqn| eqn.op.name()).collect()
}

fn arguments(program: &Jaxpr) -> Vec<Array> {
    program.in_avals().iter().enumerate().map(|(i, aval)| plain(aval.dtype, &aval.shape, i as u64)).collect()
}

/// Fails unless both programs compute the same.
fn compare(text: &str, program: &Jaxpr, arguments: Vec<Array>) {
    let expected = eval(&parse(text), arguments.clone()).unwrap();
    let got = eval(program, arguments).unwrap();
    for (got, expected) in got.iter().zip(&expected) {
        let tolerance = if got.dtype() == DType::F64 { 1e-13 } else { 4e-6 };
        assert_close(got, expected, tolerance, 1.0, &format!("{text}\nbecame {program}"));
    }
}

/// The program after the pass, which has one attention and no other product.
#[track_caller]
fn taken(text: &str) -> Jaxpr {
    let program = recognised(text);
    let count = |name: &str| names(&program).into_iter().filter(|other| *other == name).count();
    assert_eq!((count("dot_product_attention"), count("dot_general")), (1, 0), "{text}\nbecame {program}");
    compare(text, &program, arguments(&program));
    program
}

#[track_caller]
fn left(text: &str) {
    let program = recognised(text);
    assert!(!program.to_string().contains("dot_product_attention"), "{text}\nbecame {program}");
}

/// The parameters of the attention of a program.
fn attention(program: &Jaxpr) -> String {
    let eqn = program.eqns.iter().find(|eqn| eqn.op.name() == "dot_product_attention").unwrap();
    eqn.op.to_string()
}

#[test]
fn scales() {
    let mul = "mul d 0.3:f32[]";
    for (scale, factor) in [
        ("mul 0.3:f32[] d", "0.30000001192092896"),
        ("div d 4.0:f32[]", "0.25"),
        ("div d 3.0:f32[]", "0.3333333333333333"),
        ("mul d -0.5:f32[]", "-0.5"),
    ] {
        let program = taken(&with(EINSUM, &[(mul, scale)]));
        assert!(attention(&program).contains(&format!("scale={factor}:f64[]")), "{}", attention(&program));
    }
    let broadcast =
        "broadcast_in_dim[broadcast_dimensions=() shape=(2, 3, 34, 36)] 0.3:f32[]; e:f32[2,3,34,36] = mul d z";
    taken(&with(EINSUM, &[("e:f32[2,3,34,36] = mul d 0.3:f32[]", &format!("z:f32[2,3,34,36] = {broadcast}"))]));
    // A constant that is folded first, as `jnp.sqrt(8)` is.
    taken(&with(
        EINSUM,
        &[("e:f32[2,3,34,36] = mul d 0.3:f32[]", "z:f32[] = sqrt 8.0:f32[]; e:f32[2,3,34,36] = div d z")],
    ));
    let program =
        taken(&with(EINSUM, &[("e:f32[2,3,34,36] = mul d 0.3:f32[]\n", ""), ("] e", "] d"), ("sub e", "sub d")]));
    assert!(attention(&program).contains("scale=1.0:f64[]"));
}

#[test]
fn without_the_larger_of_the_maximum_and_infinity() {
    taken(&with(EINSUM, &[("    g:f32[2,3,34] = max -inf:f32[] f\n", ""), ("] g", "] f")]));
}

#[test]
fn f64() {
    taken(&with(EINSUM, &[("f32", "f64"), ("float32", "float64")]));
}

#[test]
fn values_on_the_right() {
    let right = "p:f32[2,3,34,7] = dot_general[dimension_numbers=(([3], [1]), ([0, 1], [0, 2])) preferred_element_type=float32] o c";
    let left = "p:f32[2,3,7,34] = dot_general[dimension_numbers=(([1], [3]), ([0, 2], [0, 1])) preferred_element_type=float32] c o";
    taken(&with(EINSUM, &[(left, right), ("(0, 3, 1, 2)", "(0, 2, 1, 3)")]));
}

/// `jax.nn.softmax(q @ k.T) @ v` with these axes of a batch.
fn matmul(batch: &[usize]) -> String {
    let shape = |last: [usize; 2]| {
        let sizes: Vec<String> = batch.iter().chain(&last).map(usize::to_string).collect();
        sizes.join(",")
    };
    let n = batch.len();
    let list = |dims: std::ops::Range<usize>| dims.map(|d| d.to_string()).collect::<Vec<_>>().join(", ");
    let batches = list(0..n);
    let tuple = |shape: &str| format!("({},)", shape.replace(',', ", "));
    let [q, k, v, kt, s, m, o] = [[34, 5], [36, 5], [36, 7], [5, 36], [34, 36], [34, 1], [34, 7]].map(shape);
    let rows = shape([34, 0]).trim_end_matches(",0").to_string();
    let swapped: Vec<String> = (0..n).chain([n + 1, n]).map(|d| d.to_string()).collect();
    let swapped = swapped.join(", ");
    let (all, most, last) = (list(0..n + 2), list(0..n + 1), n + 1);
    let (ms, ss) = (tuple(&m), tuple(&s));
    format!(
        "{{ lambda ; a:f32[{q}] b:f32[{k}] c:f32[{v}]. let
    d:f32[{kt}] = transpose[permutation=({swapped})] b
    e:f32[{s}] = dot_general[dimension_numbers=(([{last}], [{n}]), ([{batches}], [{batches}])) preferred_element_type=float32] a d
    f:f32[{rows}] = reduce_max[axes=({last},)] e
    h:f32[{m}] = broadcast_in_dim[broadcast_dimensions=({most},) shape={ms}] f
    i:f32[{s}] = broadcast_in_dim[broadcast_dimensions=({all}) shape={ss}] h
    j:f32[{s}] = sub e i
    k:f32[{s}] = exp j
    l:f32[{rows}] = reduce_sum[axes=({last},)] k
    m:f32[{m}] = broadcast_in_dim[broadcast_dimensions=({most},) shape={ms}] l
    n:f32[{s}] = broadcast_in_dim[broadcast_dimensions=({all}) shape={ss}] m
    o:f32[{s}] = div k n
    p:f32[{o}] = dot_general[dimension_numbers=(([{last}], [{n}]), ([{batches}], [{batches}])) preferred_element_type=float32] o c
  in (p,) }}"
    )
}

#[test]
fn any_number_of_axes_of_a_batch() {
    for batch in [&[][..], &[3], &[2, 3], &[2, 3, 2], &[1, 3], &[3, 1, 2]] {
        taken(&matmul(batch));
    }
}

/// The scores of `jax.nn.dot_product_attention`: two queries' heads share one of the keys, and `vmap` has moved the axis of each pair.
const GROUPED: &str = "{ lambda ; a:f32[2,34,6,5] b:f32[2,37,3,5] c:f32[2,37,3,8]. let
    d:f32[2,34,3,2,5] = reshape[new_sizes=(2, 34, 3, 2, 5)] a
    e:f32[2,3,34,2,37] = dot_general[dimension_numbers=(([4], [3]), ([0, 2], [0, 2])) preferred_element_type=float32] d b
    f:f32[2,3,34,2,37] = mul e 0.35355338:f32[]
    g:f32[2,3,34,2] = reduce_max[axes=(4,)] f
    h:f32[2,3,34,2] = max -inf:f32[] g
    i:f32[2,2,3,34] = transpose[permutation=(3, 0, 1, 2)] h
    j:f32[2,2,3,34,1] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2, 3) shape=(2, 2, 3, 34, 1)] i
    k:f32[2,2,3,34,37] = transpose[permutation=(3, 0, 1, 2, 4)] f
    l:f32[2,2,3,34,37] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2, 3, 4) shape=(2, 2, 3, 34, 37)] j
    m:f32[2,2,3,34,37] = sub k l
    n:f32[2,2,3,34,37] = exp m
    o:f32[2,2,3,34] = reduce_sum[axes=(4,)] n
    p:f32[2,2,3,34,1] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2, 3) shape=(2, 2, 3, 34, 1)] o
    q:f32[2,2,3,34,37] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2, 3, 4) shape=(2, 2, 3, 34, 37)] p
    r:f32[2,2,3,34,37] = div n q
    s:f32[2,3,8,2,34] = dot_general[dimension_numbers=(([1], [4]), ([0, 2], [1, 2])) preferred_element_type=float32] c r
    t:f32[2,2,34,3,8] = transpose[permutation=(3, 0, 4, 1, 2)] s
    u:f32[2,34,3,2,8] = transpose[permutation=(1, 2, 3, 0, 4)] t
    v:f32[2,34,6,8] = reshape[new_sizes=(2, 34, 6, 8)] u
  in (v,) }";

#[test]
fn heads_that_share_a_head_of_keys() {
    let program = taken(GROUPED);
    // Queries are read as they are: the heads of a group lie beside each other.
    let eqn = program.eqns.iter().find(|eqn| eqn.op.name() == "dot_product_attention").unwrap();
    assert_eq!(program.atom_aval(eqn.ins[0]), Aval::new(DType::F32, [2, 34, 6, 5]));
    assert_eq!(program.atom_aval(eqn.ins[1]), Aval::new(DType::F32, [2, 37, 3, 5]));
    // Without a group, JAX writes one of size 1.
    let single = [
        ("2,34,3,2,5", "2,34,6,1,5"),
        ("(2, 34, 3, 2, 5)", "(2, 34, 6, 1, 5)"),
        ("2,37,3", "2,37,6"),
        ("2,3,34,2", "2,6,34,1"),
    ];
    let weights = [("2,2,3,34", "1,2,6,34"), ("(2, 2, 3, 34,", "(1, 2, 6, 34,"), ("2,3,8,2,34", "2,6,8,1,34")];
    let result = [("2,2,34,3,8", "1,2,34,6,8"), ("2,34,3,2,8", "2,34,6,1,8")];
    taken(&with(GROUPED, &[&single[..], &weights, &result].concat()));
}

#[test]
fn few_queries_or_keys_stay() {
    let queries = [("2,34,3", "2,31,3"), ("2,3,34", "2,3,31"), ("(2, 3, 34,", "(2, 3, 31,"), ("2,3,7,34", "2,3,7,31")];
    left(&with(EINSUM, &queries));
    left(&with(EINSUM, &[("2,36,3", "2,31,3"), ("34,36]", "34,31]"), ("34, 36)", "34, 31)")]));
    let one = [("2,34,3", "2,1,3"), ("2,3,34", "2,3,1"), ("(2, 3, 34,", "(2, 3, 1,"), ("2,3,7,34", "2,3,7,1")];
    left(&with(EINSUM, &one));
}

/// Scores that are `s` where a condition `y` holds, which these equations compute.
fn masked(inputs: &str, eqns: &str, fill: &str) -> String {
    with_scores(
        inputs,
        &format!(
            "{eqns}\nz:f32[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=() shape=(2, 3, 34, 36)] {fill}:f32[]\ns:f32[2,3,34,36] = select_n y z e"
        ),
    )
}

/// A condition of queries and keys, for all heads.
const POSITIONS: &str = "w:i32[34,36] = iota[dimension=0 dtype=int32 shape=(34, 36)]
    x:i32[34,36] = iota[dimension=1 dtype=int32 shape=(34, 36)]
    v:bool[34,36] = ge w x
    y:bool[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=(2, 3) shape=(2, 3, 34, 36)] v";

/// Fills that hide.
const FILLS: [&str; 3] = ["-inf", "-3.4028235e38", "-1e30"];

#[test]
fn causality() {
    let conditions = [
        POSITIONS.to_string(),
        POSITIONS.replace("ge w x", "le x w"),
        // `jnp.tril` of ones, a call.
        "u:bool[34,36] = broadcast_in_dim[broadcast_dimensions=() shape=(34, 36)] True:bool[]
        v:bool[34,36] = jit[name=tril jaxpr={ lambda ; a:bool[34,36]. let
            b:i32[34,36] = iota[dimension=0 dtype=int32 shape=(34, 36)]
            c:i32[34,36] = add b 0:i32[]
            d:i32[34,36] = iota[dimension=1 dtype=int32 shape=(34, 36)]
            e:bool[34,36] = ge c d
            f:bool[34,36] = select_n e False:bool[] a
          in (f,) }] u
        x:bool[1,1,34,36] = broadcast_in_dim[broadcast_dimensions=(2, 3) shape=(1, 1, 34, 36)] v
        w:bool[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2, 3) shape=(2, 3, 34, 36)] x
        y:bool[2,3,34,36] = and True:bool[] w"
            .to_string(),
        // Positions of one axis each, and a mask of numbers, as flax writes it.
        "r:i32[34] = iota[dimension=0 dtype=int32 shape=(34,)]
        t:i32[36] = iota[dimension=0 dtype=int32 shape=(36,)]
        u:i32[2,34,36] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(2, 34, 36)] r
        v:i32[2,34,36] = broadcast_in_dim[broadcast_dimensions=(2,) shape=(2, 34, 36)] t
        w:bool[2,34,36] = ge u v
        x:bool[2,1,34,36] = broadcast_in_dim[broadcast_dimensions=(0, 2, 3) shape=(2, 1, 34, 36)] w
        aa:f32[2,1,34,36] = convert_element_type[new_dtype=float32] x
        ab:bool[2,1,34,36] = ne aa 0.0:f32[]
        y:bool[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2, 3) shape=(2, 3, 34, 36)] ab"
            .to_string(),
    ];
    for fill in FILLS {
        for condition in &conditions {
            let program = taken(&masked("", condition, fill));
            let op = attention(&program);
            assert!(op.contains("causal=True") && op.contains("mask=False"), "{op}");
            assert!(!names(&program).contains(&"select_n"), "every query has a key: {program}");
        }
        // What is hidden is selected first.
        for hidden in ["lt w x", "gt x w"] {
            let text =
                masked("", &POSITIONS.replace("ge w x", hidden), fill).replace("select_n y z e", "select_n y e z");
            assert!(attention(&taken(&text)).contains("causal=True"));
        }
    }
}

#[test]
fn other_masks() {
    let whole = "y:bool[2,3,34,36] = and u u";
    let keys = "y:bool[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=(0, 3) shape=(2, 3, 34, 36)] u";
    let joined = format!(
        "{}\nx:bool[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=(0, 3) shape=(2, 3, 34, 36)] u\ny:bool[2,3,34,36] = and r x",
        POSITIONS.replace("y:", "r:").replace("x:", "t:").replace("w x", "w t")
    );
    for fill in FILLS {
        for (shape, condition, is_causal) in
            [("2,3,34,36", whole, false), ("2,36", keys, false), ("2,36", &joined, true)]
        {
            let text = masked(&format!("u:bool[{shape}]"), condition, fill);
            let program = taken(&text);
            let op = attention(&program);
            assert!(
                op.contains(if is_causal { "causal=True" } else { "causal=False" }) && op.contains("mask=True"),
                "{op}"
            );
            // Queries without keys, the first ones or all.
            for hidden in [1, 2, 6, 100] {
                let mut arguments = arguments(&program);
                let mask = Array::full(Literal::from_bool(true), arguments[3].shape().to_vec());
                let visible = mask.data().len().saturating_sub(mask.data().len() * hidden / 6);
                let bits = (0..mask.data().len()).map(|i| i >= mask.data().len() - visible).collect::<Vec<bool>>();
                arguments[3] = Array::from_vec(bits, mask.shape().to_vec()).unwrap();
                compare(&text, &program, arguments);
            }
        }
        // The negation of what is hidden.
        let text = masked("u:bool[2,36]", keys, fill).replace("select_n y z e", "select_n y e z");
        taken(&text);
    }
}

#[test]
fn biases() {
    let of = |shape: &str, dims: &str| {
        let broadcast =
            format!("r:f32[2,3,34,36] = broadcast_in_dim[broadcast_dimensions=({dims}) shape=(2, 3, 34, 36)] u\n");
        with_scores(&format!("u:f32[{shape}]"), &format!("{broadcast}s:f32[2,3,34,36] = add e r"))
    };
    for (shape, dims) in
        [("2,3,34,36", "0, 1, 2, 3"), ("3,34,36", "1, 2, 3"), ("36", "3,"), ("2,1", "0, 1"), ("3", "1,")]
    {
        let text = of(shape, dims);
        let program = taken(&text);
        // A query whose scores are all negative infinity is not a number.
        let mut arguments = arguments(&program);
        let numbers = arguments[3].as_slice::<f32>().unwrap().iter().enumerate();
        let numbers = numbers.map(|(i, &x)| if i < 36 { f32::NEG_INFINITY } else { x }).collect();
        arguments[3] = Array::from_vec::<f32>(numbers, arguments[3].shape().to_vec()).unwrap();
        compare(&text, &program, arguments);
        taken(&text.replace("add e r", "add r e"));
        let both = text.replace("s:f32[2,3,34,36] = add e r", "t:f32[2,3,34,36] = add e r\ny:bool[2,3,34,36] = gt r 0.0:f32[]\ns:f32[2,3,34,36] = select_n y -1e38:f32[] t");
        taken(&both);
    }
}

/// A narrow attention, in which all but the operands of products is f32.
fn narrow() -> String {
    let of_bf16 =
        [("a:f32", "a:bf16"), ("b:f32", "b:bf16"), ("c:f32", "c:bf16"), ("p:f32", "p:bf16"), ("q:f32", "q:bf16")];
    let product = "preferred_element_type=float32] c o";
    let rounded = [
        ("div k n\n", "div k n\n r:bf16[2,3,34,36] = convert_element_type[new_dtype=bfloat16] o\n"),
        (product, "preferred_element_type=bfloat16] c r"),
    ];
    with(EINSUM, &[&of_bf16[..], &rounded].concat())
}

#[test]
fn narrow_operands_of_products() {
    let program = recognised(&narrow());
    assert_eq!(names(&program)[0], "dot_product_attention", "{program}");
    let arguments = arguments(&program);
    let expected = eval(&parse(&narrow()), arguments.clone()).unwrap();
    assert_close(&eval(&program, arguments).unwrap()[0], &expected[0], 1.0 / 128.0, 1.0, "bf16");
}

#[test]
fn bodies() {
    let inner = with(EINSUM, &[("c:f32[2,36,3,7].", "c:f32[2,36,3,7] x:f32[]."), ("in (q,)", "in (x, q)")]);
    let scan = format!(
        "{{ lambda ; a:f32[2,34,3,5] b:f32[2,36,3,5] c:f32[2,36,3,7] x:f32[]. let
          d:f32[] e:f32[5,2,34,3,7] = scan[jaxpr={inner} length=5 num_carry=1 num_consts=3 reverse=False unroll=1] a b c x
        in (d, e) }}"
    );
    let program = recognised(&scan);
    assert!(program.to_string().contains("dot_product_attention"), "{program}");
    compare(&scan, &program, arguments(&program));
}

#[test]
fn numbers_that_are_not_finite() {
    let program = taken(EINSUM);
    for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e38] {
        for operand in 0..3 {
            let mut arguments = arguments(&program);
            let mut numbers = arguments[operand].as_slice::<f32>().unwrap().to_vec();
            numbers[7] = number;
            arguments[operand] = Array::from_vec(numbers, arguments[operand].shape().to_vec()).unwrap();
            compare(EINSUM, &program, arguments);
        }
    }
}

#[test]
fn empty_arrays_stay() {
    left(&with(EINSUM, &[("2,36,3", "2,0,3"), ("34,36]", "34,0]"), ("(2, 3, 34, 36)", "(2, 3, 34, 0)")]));
    left(&with(EINSUM, &[("f32[2,", "f32[0,"), ("=(2, ", "=(0, ")]));
}

#[test]
fn several() {
    let twice = format!(
        "{{ lambda ; a:f32[2,34,3,5] b:f32[2,36,3,5] c:f32[2,36,3,7]. let
          d:f32[2,34,3,7] = jit[name=f jaxpr={EINSUM}] a b c
          e:f32[2,34,3,5] = mul a 2.0:f32[]
          f:f32[2,34,3,7] = jit[name=f jaxpr={EINSUM}] e b c
          g:f32[2,34,3,7] = add d f
        in (g,) }}"
    );
    let program = recognised(&twice);
    assert_eq!(names(&program).iter().filter(|name| **name == "dot_product_attention").count(), 2, "{program}");
    compare(&twice, &program, arguments(&program));
}

#[test]
fn near_misses() {
    let sum = "reduce_sum[axes=(3,)] k";
    for replaced in [
        // Something else reads scores, weights, the maximum or the sum.
        &[("in (q,)", "in (q, o)")][..],
        &[("in (q,)", "in (q, e)")],
        &[("in (q,)", "in (q, d)")],
        &[("in (q,)", "in (q, g)")],
        &[("in (q,)", "in (q, h)")],
        &[("in (q,)", "in (q, l)")],
        &[("  in (q,)", "  r:f32[2,3,34,36] = sin o\n in (q, r)")],
        // Another axis, of one or of both reductions.
        &[
            ("reduce_max[axes=(3,)]", "reduce_max[axes=(2,)]"),
            ("f:f32[2,3,34]", "f:f32[2,3,36]"),
            ("g:f32[2,3,34]", "g:f32[2,3,36]"),
            (
                "h:f32[2,3,34,1] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2) shape=(2, 3, 34, 1)]",
                "h:f32[2,3,1,36] = broadcast_in_dim[broadcast_dimensions=(0, 1, 3) shape=(2, 3, 1, 36)]",
            ),
        ],
        &[
            ("reduce_sum[axes=(3,)]", "reduce_sum[axes=(2,)]"),
            ("l:f32[2,3,34]", "l:f32[2,3,36]"),
            (
                "m:f32[2,3,34,1] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2) shape=(2, 3, 34, 1)]",
                "m:f32[2,3,1,36] = broadcast_in_dim[broadcast_dimensions=(0, 1, 3) shape=(2, 3, 1, 36)]",
            ),
        ],
        // Other operations.
        &[("= exp j", "= exp2 j")],
        &[("reduce_max", "reduce_min")],
        &[("reduce_sum", "reduce_prod")],
        &[("sub e i", "sub i e")],
        &[("div k n", "div n k")],
        &[("sub e i", "add e i")],
        &[("div k n", "mul k n")],
        &[("max -inf:f32[] f", "max 0.0:f32[] f")],
        &[("max -inf:f32[] f", "min inf:f32[] f")],
        // No maximum, and that or the sum of something else.
        &[("sub e i", "sub e 1.0:f32[]")],
        &[("reduce_max[axes=(3,)] e", "reduce_max[axes=(3,)] d")],
        &[(sum, "reduce_sum[axes=(3,)] j")],
        &[(sum, "reduce_sum[axes=(3,)] e")],
        // Scores of no product, of a product with a constant, and with a number that is not known.
        &[("mul d 0.3:f32[]", "sin d")],
        &[("mul d 0.3:f32[]", "mul d d")],
        &[("mul d 0.3:f32[]", "div 0.3:f32[] d")],
        &[("mul d 0.3:f32[]", "mul d 0.0:f32[]")],
        &[("mul d 0.3:f32[]", "mul d inf:f32[]")],
        &[("c:f32[2,36,3,7].", "c:f32[2,36,3,7] r:f32[]."), ("mul d 0.3:f32[]", "mul d r")],
        // A barrier, anywhere.
        &[("  in (q,)", "  r:f32[2,34,3,7] = optimization_barrier q\n in (r,)")],
        // Heads that are summed with the keys.
        &[
            ("([1], [3]), ([0, 2], [0, 1])", "([1, 2], [3, 1]), ([0], [0])"),
            ("p:f32[2,3,7,34]", "p:f32[2,7,34]"),
            (
                "q:f32[2,34,3,7] = transpose[permutation=(0, 3, 1, 2)]",
                "q:f32[2,34,7] = transpose[permutation=(0, 2, 1)]",
            ),
        ],
        // Queries alone have heads.
        &[
            ("b:f32[2,36,3,5]", "b:f32[2,36,5]"),
            ("([3], [3]), ([0, 2], [0, 2])", "([3], [2]), ([0], [0])"),
            ("d:f32[2,3,34,36]", "d:f32[2,34,3,36]"),
            (
                "e:f32[2,3,34,36] = mul d 0.3:f32[]",
                "r:f32[2,3,34,36] = transpose[permutation=(0, 2, 1, 3)] d; e:f32[2,3,34,36] = mul r 0.3:f32[]",
            ),
        ],
    ] {
        left(&with(EINSUM, replaced));
    }
    // A group of queries that is not summed up with the keys.
    left(&with(GROUPED, &[("in (v,)", "in (v, r)")]));
}

#[test]
fn near_misses_of_masks() {
    for fill in ["-1e4", "-1e29", "0.0", "inf", "nan", "1e38"] {
        left(&masked("", POSITIONS, fill));
    }
    let mask = "y:bool[2,3,34,36] = and u u";
    left(&masked("u:bool[2,3,34,36]", mask, "-1e4"));
    // Hidden scores that are an array.
    left(&with_scores("u:bool[2,3,34,36] v:f32[2,3,34,36]", "s:f32[2,3,34,36] = select_n u v e"));
    // Masked scores that something else reads.
    left(&masked("u:bool[2,3,34,36]", mask, "-inf").replace("in (q,)", "in (q, s)"));
    // Positions that are nearly causal are another mask.
    for condition in ["gt w x", "ge x w", "eq w x", "lt w x"] {
        let op = attention(&taken(&masked("", &POSITIONS.replace("ge w x", condition), "-1e38")));
        assert!(op.contains("causal=False") && op.contains("mask=True"), "{op}");
    }
    let shifted = POSITIONS.replace("v:bool[34,36] = ge w x", "t:i32[34,36] = add w 1:i32[]\nv:bool[34,36] = ge t x");
    assert!(attention(&taken(&masked("", &shifted, "-1e38"))).contains("causal=False"));
}

#[test]
fn near_misses_of_dtypes() {
    let narrow = narrow();
    // Scores or the result of another width.
    let scores = "d:f32[2,3,34,36] = dot_general[dimension_numbers=(([3], [3]), ([0, 2], [0, 2])) preferred_element_type=float32] a b";
    let rounded = format!(
        "{}\nd:f32[2,3,34,36] = convert_element_type[new_dtype=float32] s",
        scores.replace("d:f32", "s:bf16").replace("float32", "bfloat16")
    );
    left(&with(&narrow, &[(scores, &rounded)]));
    left(&with(
        &narrow,
        &[
            ("preferred_element_type=bfloat16] c r", "preferred_element_type=float32] c r"),
            ("p:bf16", "p:f32"),
            ("q:bf16", "q:f32"),
        ],
    ));
    // A softmax in bf16.
    let all = with(EINSUM, &[("f32", "bf16"), ("float32", "bfloat16")]);
    left(&all);
}
