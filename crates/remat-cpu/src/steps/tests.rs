//! Which equations share a loop, and which do not.

use remat_ir::{Jaxpr, Op, Prim};
use remat_opt::pipeline::{CPU, run};

use super::moves::{blocks, proposed};
use super::{FusedLoop, Step, Steps};

/// The steps of a program, by the names of their operations.
fn steps(text: &str) -> Vec<String> {
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let steps = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
    steps.steps.iter().map(|step| describe(&steps, step)).collect()
}

/// The operation of a step. For a loop: its operations and the number of results that it stores; for blocks: those of each loop.
fn describe(steps: &Steps, step: &Step) -> String {
    let name = |eqn| steps.eqn(eqn).op.name();
    let of_loop = |fused_loop: &FusedLoop| {
        let names: Vec<&str> = fused_loop.members.iter().map(|m| name(m.eqn)).collect();
        format!("[{}] -> {}", names.join(" "), fused_loop.outs.len())
    };
    match step {
        Step::Equation { eqn, .. } => name(*eqn).to_string(),
        Step::Copy { .. } => "copy".to_string(),
        Step::Iota { .. } => "count".to_string(),
        Step::Barrier { .. } => "barrier".to_string(),
        Step::Loop(fused_loop) => of_loop(fused_loop),
        Step::Blocks(blocks) => {
            let loops: Vec<String> = blocks.fused_loops.iter().map(of_loop).collect();
            format!("{{{}}} -> {}", loops.join(", "), blocks.outs.len())
        }
    }
}

#[test]
fn a_softmax_is_one_loop() {
    let text = "{ lambda ; a:f32[4,8]. let
        b:f32[4] = reduce_max[axes=(1,)] a
        c:f32[4,1] = reshape[new_sizes=(4, 1)] b
        d:f32[4,8] = broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(4, 8)] c
        e:f32[4,8] = sub a d
        f:f32[4,8] = exp e
        g:f32[4] = reduce_sum[axes=(1,)] f
        h:f32[4,8] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(4, 8)] g
        i:f32[4,8] = div f h
      in (i,) }";
    assert_eq!(steps(text), ["[reduce_max sub exp reduce_sum div] -> 1"]);
}

#[test]
fn reshapes_do_not_end_a_loop_and_transposes_do() {
    let text = "{ lambda ; a:f32[4,8]. let
        b:f32[4,8] = exp a
        c:f32[32] = reshape[new_sizes=(32,)] b
        d:f32[32] = sin c
        e:f32[8,4] = reshape[new_sizes=(8, 4)] d
        f:f32[4,8] = transpose[permutation=(1, 0)] e
        g:f32[4,8] = neg f
      in (g,) }";
    assert_eq!(steps(text), ["[exp sin] -> 1", "[neg] -> 1"]);
}

#[test]
fn a_reduction_over_leading_dimensions_takes_what_only_it_reads() {
    let text = "{ lambda ; a:f32[64,8]. let
        b:f32[64,8] = exp a
        c:f32[8] = reduce_sum[axes=(0,)] b
        d:f32[64,8] = sin a
        e:f32[8] = reduce_sum[axes=(0,)] d
      in (c, d, e) }";
    assert_eq!(steps(text), ["[exp reduce_sum] -> 1", "[sin] -> 1", "[reduce_sum] -> 1"]);
}

/// The steps of a sum of three products, in this order.
fn sum_of_products(first: &str, second: &str, third: &str) -> Vec<String> {
    let product = "dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32]";
    steps(&format!(
        "{{ lambda ; x:f32[64,64] y:f32[64,64]. let
            a:f32[64,64] = {product} x y
            b:f32[64,64] = {product} y x
            c:f32[64,64] = {product} x x
            d:f32[64,64] = add_any {first} {second}
            e:f32[64,64] = add_any d {third}
            f:f32[64,64] = sin e
          in (f,) }}"
    ))
}

#[test]
fn a_sum_does_not_wait_for_its_newest_term() {
    let products = ["dot_general", "dot_general", "dot_general"];
    assert_eq!(sum_of_products("a", "b", "c"), [&products[..], &["[add_any] -> 1", "[add_any sin] -> 1"]].concat());
    // The first sum has to wait for the newest term anyway.
    assert_eq!(sum_of_products("a", "c", "b"), [&products[..], &["[add_any add_any sin] -> 1"]].concat());
}

#[test]
fn no_loop_depends_on_itself() {
    // The last equation reads the first loop and a product of it.
    let text = "{ lambda ; a:f32[4,4]. let
        b:f32[4,4] = exp a
        c:f32[4,4] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] b b
        d:f32[4,4] = add b c
      in (d,) }";
    assert_eq!(steps(text), ["[exp] -> 1", "dot_general", "[add] -> 1"]);
    // `c` could join the loop of `b` and then be read by `d`, which a product of `b` reads.
    let text = "{ lambda ; a:f32[4,4] x:f32[4,4]. let
        b:f32[4,4] = exp a
        p:f32[4,4] = exp x
        d:f32[4,4] = add b p
        m:f32[4,4] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] b b
        q:f32[4,4] = sin m
        r:f32[4,4] = mul q p
      in (d, r) }";
    assert_eq!(steps(text), ["[exp exp add] -> 3", "dot_general", "[sin mul] -> 1"]);
}

#[test]
fn unused_values_are_not_computed() {
    let text = "{ lambda ; a:f32[4]. let
        b:f32[4] = exp a
        c:f32[4] = sin a
      in (c,) }";
    assert_eq!(steps(text), ["[sin] -> 1"]);
}

#[test]
fn an_iota_is_one_count_for_all_its_uses() {
    let text = "{ lambda ; a:i32[4,8]. let
        b:i32[4,8] = iota[dimension=1 dtype=int32 shape=(4, 8)]
        c:i32[8,3] = iota[dimension=0 dtype=int32 shape=(8, 3)]
        d:i32[4,8] = add a b
        e:i32[8,3] = neg c
      in (d, e) }";
    assert_eq!(steps(text), ["count", "[add] -> 1", "[neg] -> 1"]);
}

#[test]
fn a_reduction_of_nothing_is_a_number() {
    let text = "{ lambda ; a:f32[4,0]. let
        b:f32[4] = reduce_sum[axes=(1,)] a
        c:f32[4] = exp b
      in (c,) }";
    assert_eq!(steps(text), ["[exp] -> 1"]);
    let jaxpr: Jaxpr = text.parse().expect("a program");
    assert!(jaxpr.eqns.iter().any(|e| matches!(e.op, Op::Prim(Prim::Reduce(_)))));
}

#[test]
fn the_tangent_of_cross_entropy_is_one_loop() {
    let text = "{ lambda ; x:bf16[4,9] i:i32[4] m:f32[4] l:f32[4] t:bf16[4,9]. let
        y:f32[4] = cross_entropy_tangent x i m l t
      in (y,) }";
    let found = steps(text);
    let body = "[convert_element_type sub sub exp eq select_n sub convert_element_type mul reduce_sum] -> 1";
    assert_eq!(found, ["count", body]);
}

#[test]
fn the_tangent_of_attention_is_its_definition() {
    let text = "{ lambda ; q:f32[1,4,2,8] k:f32[1,4,2,8] v:f32[1,4,2,8] o:f32[1,4,2,8] l:f32[1,2,4] t:f32[1,4,2,8]. let
        y:f32[1,4,2,8] z:f32[1,2,4] = dot_product_attention_tangent[
          bias=False
          causal=False
          mask=False
          scale=0.5:f64[]
          tangents=(query,)
        ] q k v o l t
      in (y, z) }";
    let found = steps(text);
    assert_eq!(found.iter().filter(|name| *name == "dot_general").count(), 3, "{found:?}");
    assert!(found.iter().all(|name| !name.contains("attention")), "{found:?}");
}

/// A program with `count` products of `x` in a row, which no loop fuses, between two texts.
fn with_products(before: &str, count: usize, after: &str, outs: &str) -> String {
    let product = |i: usize| {
        let from = if i == 0 { "x".to_string() } else { format!("x{}", i - 1) };
        format!(
            "x{i}:f32[128,128] = dot_general[
              dimension_numbers=(([1], [0]), ([], []))
              preferred_element_type=float32
            ] {from} x\n"
        )
    };
    let products: String = (0..count).map(product).collect();
    format!("{{ lambda ; u:f32[128,128] x:f32[128,128]. let\n{before}{products}{after} in ({outs},) }}")
}

#[test]
fn values_that_are_read_far_away_are_computed_again() {
    let product = |out: &str, of: &str| {
        format!(
            "{out}:f32[128,128] = dot_general[
              dimension_numbers=(([1], [0]), ([], []))
              preferred_element_type=float32
            ] {of} x\n"
        )
    };
    let chain = "a:f32[128,128] = tanh u
        b:f32[128,128] = mul a a
        c:f32[128,128] = exp b\n";
    let before = format!("{chain}{}", product("p", "c"));
    let last = |count: usize| format!("d:f32[128,128] = add x{} c\ne:f32[128,128] = add d p\n", count - 1);
    let ends = |found: &[String]| (found[0].clone(), found[found.len() - 1].clone());
    // By a loop, in the loop.
    let found = steps(&with_products(&before, 20, &last(20), "e"));
    assert_eq!(ends(&found), ("[tanh mul exp] -> 1".into(), "[tanh mul exp add add] -> 1".into()));
    // Not where it is read soon.
    let found = steps(&with_products(&before, 3, &last(3), "e"));
    assert_eq!(ends(&found), ("[tanh mul exp] -> 1".into(), "[add add] -> 1".into()));
    // By another step, in a loop before it.
    let after = format!("{}e:f32[128,128] = add d x19\nf:f32[128,128] = add e p\n", product("d", "c"));
    let found = steps(&with_products(&before, 20, &after, "f"));
    assert_eq!(found[found.len() - 3..], ["[tanh mul exp] -> 1", "dot_general", "[add add] -> 1"]);
    // Nor if its operands would have to stay for it.
    let before = format!("{}{}{}", product("v", "u"), "c:f32[128,128] = tanh v\n", product("p", "c"));
    let found = steps(&with_products(&before, 20, &last(20), "e"));
    assert_eq!((found[1].as_str(), found[found.len() - 1].as_str()), ("[tanh] -> 1", "[add add] -> 1"));
}

#[test]
fn a_normalisation_keeps_its_row_values() {
    let before = "s:f32[128] = reduce_max[axes=(1,)] u
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(128, 128)] s
        a:f32[128,128] = sub u t
        p:f32[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] a x\n";
    let found = steps(&with_products(before, 20, "d:f32[128,128] = mul x19 a\ne:f32[128,128] = add d p\n", "e"));
    assert_eq!(found[0], "[reduce_max sub] -> 2");
    assert_eq!(found[found.len() - 1], "[sub mul add] -> 1");
}

#[test]
fn an_operand_that_stays_anyway_takes_the_place_of_a_value() {
    let product = |out: &str, a: &str, b: &str| {
        format!(
            "{out}:f32[128,128] = dot_general[
              dimension_numbers=(([1], [0]), ([], []))
              preferred_element_type=float32
            ] {a} {b}\n"
        )
    };
    // The difference `b` of a sum `y` from the mean of its rows is read at the end, after ten products and then ten more.
    let before = format!(
        "{}y:f32[128,128] = add u w
        r:f32[128] = reduce_sum[axes=(1,)] y
        s:f32[128] = mul r 0.0078125:f32[]
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(128, 128)] s
        b:f32[128,128] = sub y t
        c:f32[128,128] = exp b
        {}",
        product("w", "x", "x"),
        product("p", "c", "c"),
    );
    let difference = |before: &str, middle: &str, last: &str| {
        let more: String = (1..10).map(|i| product(&format!("z{i}"), &format!("z{}", i - 1), "x")).collect();
        let after = format!("{middle}\n{more}d:f32[128,128] = mul z9 b\n{last}\n");
        let found = steps(&with_products(before, 10, &after, "e"));
        found.into_iter().filter(|step| step.starts_with('[')).collect::<Vec<String>>()
    };
    let reads_sum = "z0:f32[128,128] = add x9 y";
    // The sum is read far away too. From then on it stays instead of the difference.
    let found = difference(&before, reads_sum, "e:f32[128,128] = add d p");
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", "[sub mul add] -> 1"]);
    // Also if another value is computed again from the difference.
    let found = difference(&before, reads_sum, "f:f32[128,128] = add d p\ne:f32[128,128] = mul f c");
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", "[sub exp mul add mul] -> 1"]);
    // Or if more values are computed again, each from the one before.
    let more = "c:f32[128,128] = exp b\nh:f32[128,128] = tanh c\nk:f32[128,128] = neg h";
    let last = "f:f32[128,128] = add d p\ng:f32[128,128] = mul f c\nl:f32[128,128] = mul g h\ne:f32[128,128] = mul l k";
    let found = difference(&before.replace("c:f32[128,128] = exp b", more), reads_sum, last);
    assert_eq!(
        found,
        ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", "[sub exp tanh neg mul add mul mul mul] -> 1"]
    );
    // Or if a sum of columns reads the difference.
    let of_columns = "m:f32[128,128] = mul z9 b
        n:f32[128] = reduce_sum[axes=(0,)] m
        o:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(128, 128)] n
        f:f32[128,128] = add d p
        e:f32[128,128] = add f o";
    let found = difference(&before, reads_sum, of_columns);
    let last = ["[sub mul reduce_sum] -> 1", "[sub mul add add] -> 1"];
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", last[0], last[1]]);
    // If nothing reads the sum far away, nothing is gained.
    let found = difference(&before, "z0:f32[128,128] = neg x9", "e:f32[128,128] = add d p");
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 2", "[neg] -> 1", "[mul add] -> 1"]);
    // If a product reads the difference, that is in memory anyway.
    let found = difference(&before, reads_sum, &format!("f:f32[128,128] = add d p\n{}", product("e", "f", "b")));
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", "[mul add] -> 1"]);
    // If the sum is read transposed, no loop can write its result over it as over the difference.
    let transposed =
        "v:f32[128,128] = transpose[permutation=(1, 0)] y\nh:f32[128,128] = sub v t\nb:f32[128,128] = exp h";
    let before = before.replace("b:f32[128,128] = sub y t", transposed);
    let found = difference(&before, reads_sum, "e:f32[128,128] = add d p");
    assert_eq!(found, ["[add reduce_sum mul] -> 2", "[sub exp exp] -> 2", "[add] -> 1", "[mul add] -> 1"]);
}

#[test]
fn values_wider_than_their_operands_are_computed_again() {
    // The difference from the mean, of a sum in half precision that is normalised in f32, is read far away.
    let before = "v:bf16[128,128] = convert_element_type[new_dtype=bfloat16] u
        w:bf16[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=bfloat16
        ] v v
        y:bf16[128,128] = add v w
        a:f32[128,128] = convert_element_type[new_dtype=float32] y
        r:f32[128] = reduce_sum[axes=(1,)] a
        s:f32[128] = mul r 0.0078125:f32[]
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(128, 128)] s
        b:f32[128,128] = sub a t
        c:bf16[128,128] = convert_element_type[new_dtype=bfloat16] b
        p:bf16[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=bfloat16
        ] c y\n";
    let after = "d:f32[128,128] = mul x19 b
        e:bf16[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=bfloat16
        ] c p\n";
    let found = steps(&with_products(before, 20, after, "d, e"));
    assert_eq!(found[2], "[add convert_element_type reduce_sum mul sub convert_element_type] -> 3", "{found:?}");
    // And so are its results, since the sum is in memory then.
    let last =
        ["[convert_element_type sub mul] -> 1", "[convert_element_type sub convert_element_type] -> 1", "dot_general"];
    assert_eq!(found[found.len() - 3..], last, "{found:?}");
}

/// A product of 4 x 4 matrices.
fn dot(out: &str, a: &str, b: &str) -> String {
    format!(
        "{out}:f32[4,4] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] {a} {b}\n"
    )
}

/// Values on both sides of a barrier, in a program of an elementwise value `b`, a product `p` and readers of `c`.
fn around(barrier: &str) -> String {
    format!(
        "{{ lambda ; a:f32[4,4] x:f32[4,4]. let
            b:f32[4,4] = exp a
            {}{barrier}
            e:f32[4,4] = sin c
            f:f32[4,4] = neg x
            g:f32[4,4] = add e f
            h:f32[4] = reduce_sum[axes=(1,)] g
          in (h,) }}",
        dot("p", "x", "x")
    )
}

#[test]
fn a_barrier_of_several_values_ends_loops() {
    let found = steps(&around("c:f32[4,4] d:f32[4,4] = optimization_barrier b p"));
    assert_eq!(found, ["dot_general", "[exp] -> 1", "barrier", "[sin neg add reduce_sum] -> 1"]);
    // A value that only the barrier reads is computed, and so is one behind a constant.
    let found = steps(&around(
        "d:f32[4,4] n:f32[] = optimization_barrier b 1.0:f32[]\nc:f32[4,4] = broadcast_in_dim[broadcast_dimensions=() shape=(4, 4)] n",
    ));
    assert_eq!(found, ["[exp] -> 1", "barrier", "[sin neg add reduce_sum] -> 1"]);
    // A barrier of one value only prevents merging.
    let found = steps(&around("c:f32[4,4] = optimization_barrier b"));
    assert_eq!(found, ["[exp sin neg add reduce_sum] -> 1"]);
}

#[test]
fn views_and_further_barriers_wait_for_a_barrier() {
    let text = format!(
        "{{ lambda ; a:f32[4,4] x:f32[4,4]. let
            {}b:f32[4,4] c:f32[4,4] = optimization_barrier a p
            d:f32[16] = reshape[new_sizes=(16,)] b
            e:f32[4] = slice[limit_indices=(8,) start_indices=(4,) strides=(1,)] d
            f:f32[4] = exp e
            g:f32[4,4] h:f32[4,4] = optimization_barrier b x
            i:f32[4,4] = transpose[permutation=(1, 0)] h
            j:f32[4,4] = cumsum[axis=0 reverse=False] i
          in (f, j) }}",
        dot("p", "x", "x")
    );
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let lowered = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
    let waits = lowered.steps.iter().map(|step| (describe(&lowered, step), step.tokens(&lowered.tokens).count()));
    let waits: Vec<(String, usize)> = waits.collect();
    let waits: Vec<(&str, usize)> = waits.iter().map(|(step, count)| (step.as_str(), *count)).collect();
    let expected = [("dot_general", 0), ("barrier", 0), ("[exp] -> 1", 1), ("barrier", 1), ("copy", 1), ("cumsum", 1)];
    assert_eq!(waits, expected);
}

#[test]
fn an_operand_of_a_barrier_is_not_computed_again() {
    // As in `values_that_are_read_far_away_are_computed_again`, but that a barrier reads the value.
    let barrier = "a:f32[128,128] = tanh u
        b:f32[128,128] = mul a a
        c:f32[128,128] = exp b
        d:f32[128,128] e:f32[128,128] = optimization_barrier c x\n";
    let last = "f:f32[128,128] = add x19 d\n";
    let found = steps(&with_products(barrier, 20, last, "f"));
    assert_eq!((found[0].as_str(), found[1].as_str()), ("[tanh mul exp] -> 1", "barrier"));
    assert_eq!(found[found.len() - 1], "[add] -> 1");
}

#[test]
fn equal_equations_of_a_loop_are_one() {
    let text = "{ lambda ; a:f32[4] b:f32[4]. let
        c:f32[4] = add a b
        d:f32[4] = tanh c
        e:f32[4] = add a b
        f:f32[4] = tanh e
        g:f32[4] = add b a
        h:f32[4] = mul d f
        i:f32[4] = mul h g
      in (i,) }";
    assert_eq!(steps(text), ["[add tanh add mul mul] -> 1"]);
    // A result of the program keeps its buffer, and two results both do.
    let with_results = |results: &str| text.replace("in (i,)", results);
    assert_eq!(steps(&with_results("in (f, i)")), ["[add tanh add mul mul] -> 2"]);
    assert_eq!(steps(&with_results("in (f, d, i)")), ["[add tanh tanh add mul mul] -> 3"]);
    // Comparisons with different numbers, or conversions to different dtypes, are not equal.
    let text = "{ lambda ; a:f32[4]. let
        b:bool[4] = gt a 0.0:f32[]
        c:bool[4] = gt a -0.0:f32[]
        d:f32[4] = select_n b a 1.0:f32[]
        e:f32[4] = select_n c d 2.0:f32[]
        f:f16[4] = convert_element_type[new_dtype=float16] a
        g:bf16[4] = convert_element_type[new_dtype=bfloat16] a
        h:f32[4] = convert_element_type[new_dtype=float32] f
        i:f32[4] = convert_element_type[new_dtype=float32] g
        j:f32[4] = add h i
        k:f32[4] = add j e
      in (k,) }";
    assert_eq!(steps(text)[0].split(' ').filter(|name| name.contains("gt") || name.contains("convert")).count(), 6);
}

#[test]
fn values_are_duplicated_into_the_loops_that_read_them() {
    // The statistics of columns, as in a batch norm: neither differences nor their squares are stored.
    let statistics = "s:f32[128] = reduce_sum[axes=(0,)] p
        m:f32[128] = div s 128.0:f32[]
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(128, 128)] m
        d:f32[128,128] = sub p t
        q:f32[128,128] = integer_pow[y=2] d
        v:f32[128] = reduce_sum[axes=(0,)] q
        r:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(128, 128)] v\n";
    let product = "p:f32[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] u x\n";
    let text = |last: &str| format!("{{ lambda ; u:f32[128,128] x:f32[128,128]. let {product}{statistics}{last}");
    let found = steps(&text("o:f32[128,128] = mul d r in (o,) }"));
    let sums = ["dot_general", "[reduce_sum] -> 1", "[div] -> 1", "[sub integer_pow reduce_sum] -> 1"];
    assert_eq!(found, [&sums[..], &["[sub mul] -> 1"]].concat());
    // A step that is not a loop needs the differences in memory; their squares are still duplicated.
    let last = "o:f32[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] d x\nw:f32[128,128] = mul o r in (w,) }";
    let found = steps(&text(last));
    assert!(found.contains(&"[sub] -> 1".to_string()), "{found:?}");
    assert!(found.contains(&"[integer_pow reduce_sum] -> 1".to_string()), "{found:?}");
    // Special functions are not computed twice, and a result of the program is stored.
    let found = steps(&text("o:f32[128,128] = mul d r in (o,) }").replace("integer_pow[y=2] d", "exp d"));
    assert!(found.contains(&"[sub exp] -> 1".to_string()), "{found:?}");
    let found = steps(&text("o:f32[128,128] = mul d r in (o, d, q) }"));
    assert!(found.contains(&"[sub integer_pow] -> 2".to_string()), "{found:?}");
}

#[test]
fn reductions_that_read_the_same_values_are_one_loop() {
    let text = "{ lambda ; a:f32[128,128] b:f32[128,128] c:f32[128,128]. let
        d:f32[128] = reduce_sum[axes=(0,)] a
        e:f32[128,128] = mul a b
        f:f32[128] = reduce_sum[axes=(0,)] e
        g:f32[128] = reduce_max[axes=(0,)] c
        h:f32[128] = reduce_sum[axes=(1,)] a
      in (d, f, g, h) }";
    let found = steps(text);
    assert_eq!(found, ["[reduce_sum mul reduce_sum] -> 2", "[reduce_max] -> 1", "[reduce_sum] -> 1"]);
    // One that needs the result of the other comes after it.
    let text = "{ lambda ; a:f32[128,128]. let
        d:f32[128] = reduce_sum[axes=(0,)] a
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(128, 128)] d
        e:f32[128,128] = mul a t
        f:f32[128] = reduce_sum[axes=(0,)] e
      in (f,) }";
    assert_eq!(steps(text), ["[reduce_sum] -> 1", "[mul reduce_sum] -> 1"]);
    // Reductions whose results are not much smaller than their operands stay where they are.
    let text = |n: usize| {
        let text = "{ lambda ; a:f32[2,N] b:f32[2,N]. let
            d:f32[N] = reduce_sum[axes=(0,)] a
            e:f32[2,N] = mul a b
            f:f32[N] = reduce_sum[axes=(0,)] e
          in (d, f) }";
        text.replace('N', &n.to_string())
    };
    assert_eq!(steps(&text(1 << 12)), ["[reduce_sum mul reduce_sum] -> 2"]);
    assert_eq!(steps(&text(1 << 13)), ["[reduce_sum] -> 1", "[mul reduce_sum] -> 1"]);
}

/// The steps of a program of two images with 64 channels of 48 by 48, with loops grouped into blocks where possible.
fn in_blocks(equations: &str, outs: &str) -> Vec<String> {
    in_blocks_with(equations, outs, |_, _| true)
}

/// As [`in_blocks`], with a limit on the inputs and outputs of steps.
fn in_blocks_with(equations: &str, outs: &str, allowed: fn(usize, usize) -> bool) -> Vec<String> {
    let text = format!("{{ lambda ; x:f32[2,64,48,48] g:f32[64] y:f32[64,48,48]. let {equations} in ({outs}) }}");
    let text = text.replace("IMAGES", "f32[2,64,48,48]").replace("SUM", "reduce_sum[axes=(0, 2, 3)]");
    let text = text.replace("OF_CHANNEL", "broadcast_in_dim[broadcast_dimensions=(1,) shape=(2, 64, 48, 48)]");
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let steps = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
    let blocks = proposed(blocks::propose, &steps, &allowed).unwrap_or_else(|e| panic!("{e}"));
    let steps = blocks.unwrap_or(steps);
    steps.steps.iter().map(|step| describe(&steps, step)).collect()
}

#[test]
fn a_normalisation_of_channels_is_computed_in_blocks() {
    let equations = "s:f32[64] = SUM x
        m:f32[64] = div s 4608.0:f32[]
        mm:IMAGES = OF_CHANNEL m
        d:IMAGES = sub x mm
        q:IMAGES = mul d d
        v:f32[64] = SUM q
        r:f32[64] = rsqrt v
        rr:IMAGES = OF_CHANNEL r
        o:IMAGES = mul d rr";
    let all = "{[reduce_sum] -> 1, [div] -> 1, [sub mul reduce_sum] -> 1, [rsqrt] -> 1, [sub mul] -> 1}";
    assert_eq!(in_blocks(equations, "o,"), [format!("{all} -> 1")]);
    assert_eq!(in_blocks(equations, "o, v"), [format!("{all} -> 2")]);
}

#[test]
fn a_value_that_no_result_can_be_in_place_of_is_computed_in_blocks_too() {
    let equations = "e:IMAGES = exp x
        s:f32[64] = SUM e
        ss:IMAGES = OF_CHANNEL s
        p:BOOLS = gt e ss";
    let equations = equations.replace("BOOLS", "bool[2,64,48,48]");
    let all = "{[exp] -> 1, [reduce_sum] -> 1, [gt] -> 1}";
    assert_eq!(in_blocks(&equations, "p,"), [format!("{all} -> 1")]);
    // It is not an output of the kernel.
    assert_eq!(in_blocks_with(&equations, "p,", |_, outs| outs <= 1), [format!("{all} -> 1")]);
}

#[test]
fn what_reads_other_positions_is_not_computed_in_blocks() {
    // Channels in the other order, and those of another image.
    for other in ["rev[dimensions=(1,)] e", "rev[dimensions=(0,)] e"] {
        let equations = format!(
            "e:IMAGES = exp x
            s:f32[64] = SUM e
            ss:IMAGES = OF_CHANNEL s
            r:IMAGES = {other}
            o:IMAGES = mul r ss"
        );
        assert_eq!(in_blocks(&equations, "o, e").last().map(String::as_str), Some("[mul] -> 1"), "{other}");
    }
    // A sum over the images runs over another space than the sum for each channel.
    let equations = "e:IMAGES = exp x
        s:f32[64] = SUM e
        i:f32[64,48,48] = reduce_sum[axes=(0,)] e";
    assert_eq!(in_blocks(equations, "s, i, e"), ["{[exp] -> 1, [reduce_sum] -> 1} -> 2", "[reduce_sum] -> 1"]);
}

#[test]
fn loops_with_steps_between_them_stay_apart_where_they_depend_on_them() {
    // A step that reads the first loop and is read by the last one.
    let between = |last: &str| {
        format!(
            "e:IMAGES = exp x
            s:f32[64] = SUM e
            c:f32[64] = cumsum[axis=0 reverse=False] s
            d:f32[64] = cumsum[axis=0 reverse=False] g
            a:f32[64] = add s {last}
            aa:IMAGES = OF_CHANNEL a
            o:IMAGES = mul e aa"
        )
    };
    let together = "{[exp] -> 1, [reduce_sum] -> 1, [add] -> 1, [mul] -> 1} -> 2";
    assert_eq!(in_blocks(&between("d"), "o, c"), ["cumsum", together, "cumsum"]);
    let apart = in_blocks(&between("c"), "o, d");
    let first = "{[exp] -> 1, [reduce_sum] -> 1} -> 2".to_string();
    assert!(apart.contains(&first) && !apart.iter().any(|step| step.contains("[mul] -> 1}")), "{apart:?}");
}

#[test]
fn small_arrays_and_few_channels_are_not_computed_in_blocks() {
    let program = |shape: [usize; 3]| {
        let [images, channels, pixels] = shape;
        let text = format!(
            "{{ lambda ; x:f32[{images},{channels},{pixels}]. let
                s:f32[{channels}] = reduce_sum[axes=(0, 2)] x
                b:f32[{images},{channels},{pixels}] = broadcast_in_dim[broadcast_dimensions=(1,) shape=({images}, {channels}, {pixels})] s
                o:f32[{images},{channels},{pixels}] = sub x b
              in (o,) }}"
        );
        let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
        let steps = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
        proposed(blocks::propose, &steps, &|_, _| true).unwrap_or_else(|e| panic!("{e}")).is_some()
    };
    assert!(program([4, 64, 512]));
    assert!(!program([4, 64, 256]));
    assert!(!program([64, 4, 512]));
    // The fewest channels that qualify, and one less.
    assert!(program([8, 32, 529]));
    assert!(!program([8, 31, 600]));
    // Short pieces of many images.
    assert!(!program([4096, 64, 4]));
    // One channel is larger than caches.
    assert!(!program([64, 32, 100_000]));
}

#[test]
fn a_step_of_blocks_has_as_many_inputs_and_outputs_as_are_allowed() {
    let equations = "s:f32[64] = SUM x
        ss:IMAGES = OF_CHANNEL s
        a:IMAGES = sub x ss
        t:f32[64] = SUM a
        u:f32[64] = add t g
        uu:IMAGES = OF_CHANNEL u
        o:IMAGES = mul a uu";
    let first = "[reduce_sum] -> 1, [sub reduce_sum] -> 1";
    let all = [format!("{{{first}, [add] -> 1, [sub mul] -> 1}} -> 1")];
    let some = [format!("{{{first}}} -> 2"), "[add] -> 1".to_string(), "[sub mul] -> 1".to_string()];
    assert_eq!(in_blocks_with(equations, "o,", |ins, outs| ins <= 2 && outs <= 1), all);
    // Without the last loops the step gives the sums to others, and has one input.
    assert_eq!(in_blocks_with(equations, "o,", |ins, outs| ins <= 1 && outs <= 2), some);
    let none = in_blocks_with(equations, "o,", |ins, _| ins == 0);
    assert_eq!(none.len(), 4, "{none:?}");
}
