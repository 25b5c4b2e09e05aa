//! What becomes one loop, and what does not.

use remat_ir::{Jaxpr, Op};

use super::{Flat, Step, Steps};

/// The steps of a program, by the names of their operations.
fn steps(text: &str) -> Vec<String> {
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let steps = Flat::of(&jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
    let name = |eqn: usize| steps.flat.eqns[eqn].op.name();
    let describe = |step: &Step| match step {
        Step::Equation { eqn, .. } => name(*eqn).to_string(),
        Step::Copy { .. } => "copy".to_string(),
        Step::Count { .. } => "count".to_string(),
        Step::Loop(group) => {
            let names: Vec<&str> = group.members.iter().map(|m| name(m.eqn)).collect();
            format!("[{}] -> {}", names.join(" "), group.outs.len())
        }
    };
    steps.steps.iter().map(describe).collect()
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
fn what_nobody_needs_is_not_computed() {
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
    assert!(jaxpr.eqns.iter().any(|e| matches!(e.op, Op::Reduce(_))));
}

#[test]
fn the_tangent_of_cross_entropy_is_one_loop() {
    let text = "{ lambda ; x:bf16[4,9] i:i32[4] l:f32[4] t:bf16[4,9]. let
        y:f32[4] = cross_entropy_tangent x i l t
      in (y,) }";
    let found = steps(text);
    let body = "[convert_element_type sub exp eq select_n sub convert_element_type mul reduce_sum] -> 1";
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

/// A program with `count` products of `x` in a row, of which nothing else is fused, between two texts.
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
fn what_is_read_far_away_is_computed_again() {
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
    // Nor where what it is computed from would have to stay for it.
    let before = format!("{}{}{}", product("v", "u"), "c:f32[128,128] = tanh v\n", product("p", "c"));
    let found = steps(&with_products(&before, 20, &last(20), "e"));
    assert_eq!((found[1].as_str(), found[found.len() - 1].as_str()), ("[tanh] -> 1", "[add add] -> 1"));
}

#[test]
fn what_is_left_of_a_normalisation_are_its_row_values() {
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
fn what_is_wider_than_its_operands_is_computed_again() {
    // Of a sum in half precision that is normalised in f32, the difference from the mean is read far away.
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
    // And so is what is computed of it, since the sum is there then.
    let last =
        ["[convert_element_type sub mul] -> 1", "[convert_element_type sub convert_element_type] -> 1", "dot_general"];
    assert_eq!(found[found.len() - 3..], last, "{found:?}");
}

#[test]
fn a_slice_of_a_product_is_a_product_of_slices() {
    let text = "{ lambda ; a:f32[4,5,8] b:f32[8,6]. let
        c:f32[4,5,6] = dot_general[dimension_numbers=(([2], [0]), ([], [])) preferred_element_type=float32] a b
        d:f32[4,4,3] = slice[limit_indices=(4, 4, 6) start_indices=(0, 0, 1) strides=(1, 1, 2)] c
        e:f32[4,4,3] = exp d
      in (e,) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<&str> = flat.eqns.iter().map(|eqn| eqn.op.name()).collect();
    assert_eq!(names, ["slice", "slice", "dot_general", "exp"]);
    assert_eq!(flat.avals[flat.eqns[0].outs[0]].to_string(), "f32[4,4,8]");
    assert_eq!(flat.avals[flat.eqns[1].outs[0]].to_string(), "f32[8,3]");
}

#[test]
fn zeros_are_put_around_the_product_and_not_around_its_operand() {
    let text = "{ lambda ; a:f32[4,4,60] b:f32[60,8] c:f32[4,5,8]. let
        d:f32[4,5,60] = pad[padding_config=((0, 0, 0), (0, 1, 0), (0, 0, 0))] a 0.0:f32[]
        e:f32[4,5,8] = dot_general[dimension_numbers=(([2], [0]), ([], [])) preferred_element_type=float32] d b
        f:f32[60,8] = dot_general[dimension_numbers=(([0, 1], [0, 1]), ([], [])) preferred_element_type=float32] d c
      in (e, f) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<&str> = flat.eqns.iter().map(|eqn| eqn.op.name()).collect();
    assert_eq!(names, ["dot_general", "pad", "slice", "dot_general"]);
    assert_eq!(flat.avals[flat.eqns[2].outs[0]].to_string(), "f32[4,4,8]");
}

#[test]
fn a_product_leaves_out_the_zeros_of_one_operand() {
    let text = "{ lambda ; a:f32[9,60] b:f32[60,9]. let
        c:f32[10,60] = pad[padding_config=((0, 1, 0), (0, 0, 0))] a 0.0:f32[]
        d:f32[60,10] = pad[padding_config=((0, 0, 0), (0, 1, 0))] b 0.0:f32[]
        e:f32[10,10] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] c d
      in (e,) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<&str> = flat.eqns.iter().map(|eqn| eqn.op.name()).collect();
    assert_eq!(names, ["pad", "dot_general", "pad"]);
    assert_eq!(flat.avals[flat.eqns[1].outs[0]].to_string(), "f32[9,10]");
}

#[test]
fn a_product_that_is_only_read_transposed_is_computed_so() {
    let product = |outs: &str| {
        let text = format!(
            "{{ lambda ; a:f32[3,5,7,8] b:f32[3,8,6]. let
            c:f32[3,5,7,6] = dot_general[dimension_numbers=(([3], [1]), ([0], [0])) preferred_element_type=float32] a b
            d:f32[3,6,5,7] = transpose[permutation=(0, 3, 1, 2)] c
          in {outs} }}"
        );
        let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
        let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
        let names: Vec<String> = flat.eqns.iter().map(|eqn| eqn.op.name().to_string()).collect();
        (names, flat)
    };
    let (names, flat) = product("(d,)");
    assert_eq!(names, ["dot_general"]);
    assert_eq!(flat.eqns[0].ins[0].var(), Some(flat.ins[1]));
    assert_eq!(flat.outs[0].var(), Some(flat.eqns[0].outs[0]));
    assert_eq!(flat.avals[flat.eqns[0].outs[0]].to_string(), "f32[3,6,5,7]");
    assert_eq!(product("(c, d)").0, ["dot_general", "transpose"]);
    // Transpositions that undo each other leave the product as it was.
    let text = "{ lambda ; a:f32[5,8] b:f32[8,6]. let
        c:f32[5,6] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] a b
        d:f32[6,5] = transpose[permutation=(1, 0)] c
        e:f32[5,6] = transpose[permutation=(1, 0)] d
      in (e,) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(flat.eqns.len(), 1);
    assert_eq!(flat.eqns[0].ins[0].var(), Some(flat.ins[0]));
    assert_eq!(flat.avals[flat.eqns[0].outs[0]].to_string(), "f32[5,6]");
}

#[test]
fn what_is_stacked_is_narrow() {
    let text = "{ lambda ; a:bf16[64,64]. let
        c:bf16[64,64] d:f32[100,64,64] = scan[
          jaxpr={ lambda ; f:bf16[64,64]. let
              g:f32[64,64] = convert_element_type[new_dtype=float32] f
              h:f32[64] = reduce_sum[axes=(1,)] g
              i:f32[64,64] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(64, 64)] h
              j:f32[64,64] = sub g i
              k:bf16[64,64] = convert_element_type[new_dtype=bfloat16] j
              l:bf16[64,64] = tanh k
            in (l, j) }
          length=100 num_carry=1 num_consts=0 reverse=False unroll=1
        ] a
        m:f32[64,64] = convert_element_type[new_dtype=float32] c
        e:f32[64,64] = scan[
          jaxpr={ lambda ; n:f32[64,64] o:f32[64,64]. let
              p:f32[64,64] = mul n o
            in (p,) }
          length=100 num_carry=1 num_consts=0 reverse=True unroll=1
        ] m d
      in (e,) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
    let stacks: Vec<String> = flat.eqns[0].outs[1..].iter().map(|&v| flat.avals[v].to_string()).collect();
    assert_eq!(stacks, ["f32[100,64]", "bf16[100,64,64]"]);
}

#[test]
fn a_loop_computes_what_another_one_would_have_to_stack() {
    let text = "{ lambda ; a:f32[64] b:f32[100,64]. let
        c:f32[64] d:f32[100,64] e:f32[100,64] = scan[
          jaxpr={ lambda ; f:f32[64] g:f32[64]. let
              h:f32[64] = mul f g
              i:f32[64] = tanh h
              j:f32[64] = add i f
            in (j, h, i) }
          length=100 num_carry=1 num_consts=0 reverse=False unroll=1
        ] a b
        k:f32[64] = scan[
          jaxpr={ lambda ; l:f32[64] m:f32[64] n:f32[64]. let
              o:f32[64] = mul m n
              p:f32[64] = add o l
            in (p,) }
          length=100 num_carry=1 num_consts=0 reverse=True unroll=1
        ] c d e
      in (k,) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
    let bodies: Vec<(usize, String)> = flat
        .eqns
        .iter()
        .filter_map(|eqn| if let Op::Scan(op) = &eqn.op { Some((eqn.outs.len(), op.jaxpr.to_string())) } else { None })
        .collect();
    assert_eq!(bodies[0].0, 2, "the carry and one stack");
    assert!(bodies[1].1.contains("tanh"), "{}", bodies[1].1);
}

#[test]
fn equations_that_change_nothing_are_dropped() {
    // The names of what is left of these equations, of which the last is read by a sine.
    let left = |equations: &str| {
        let text = format!(
            "{{ lambda ; a:f32[3] i:i32[3] h:bf16[3] w:bool[3] s:f32[]. let {equations} z:f32[3] = sin y in (z,) }}"
        );
        let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
        let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
        let names: Vec<&str> = flat.eqns.iter().map(|eqn| eqn.op.name()).collect();
        names.join(" ")
    };
    let same = [
        "y:f32[3] = mul a 1.0:f32[]",
        "y:f32[3] = mul 1.0:f32[] a",
        "b:f32[3] = broadcast_in_dim[broadcast_dimensions=() shape=(3,)] 1.0:f32[] y:f32[3] = mul b a",
        "y:f32[3] = div a 1.0:f32[]",
        "y:f32[3] = pow a 1.0:f32[]",
        "y:f32[3] = integer_pow[y=1] a",
        "y:f32[3] = sub a 0.0:f32[]",
        "y:f32[3] = add_any a -0.0:f32[]",
        "y:f32[3] = add -0.0:f32[] a",
        "b:f32[3] = neg a y:f32[3] = neg b",
        "y:f32[3] = max a a",
        "y:f32[3] = min a a",
        "y:f32[3] = select_n w a a",
        "y:f32[3] = convert_element_type[new_dtype=float32] a",
        "b:f64[3] = convert_element_type[new_dtype=float64] a y:f32[3] = convert_element_type[new_dtype=float32] b",
        "b:f32[3] = mul a 1.0:f32[] c:f32[3] = neg b d:f32[3] = neg c y:f32[3] = div d 1.0:f32[]",
    ];
    for equations in same {
        assert_eq!(left(equations), "sin", "{equations}");
    }
    let other = [
        ("y:f32[3] = add a 0.0:f32[]", "add sin"),
        ("y:f32[3] = sub a -0.0:f32[]", "sub sin"),
        ("y:f32[3] = mul a -1.0:f32[]", "mul sin"),
        ("y:f32[3] = mul a 0.0:f32[]", "mul sin"),
        ("y:f32[3] = div 1.0:f32[] a", "div sin"),
        ("y:f32[3] = sub a a", "sub sin"),
        // A scalar is not the array of which each element is that scalar.
        ("y:f32[3] = select_n w s s", "select_n sin"),
        (
            "b:bf16[3] = convert_element_type[new_dtype=bfloat16] a y:f32[3] = convert_element_type[new_dtype=float32] b",
            "convert_element_type convert_element_type sin",
        ),
        (
            "b:i32[3] = convert_element_type[new_dtype=int32] a y:f32[3] = convert_element_type[new_dtype=float32] b",
            "convert_element_type convert_element_type sin",
        ),
        // Integers have one zero.
        ("j:i32[3] = add i 0:i32[] y:f32[3] = convert_element_type[new_dtype=float32] j", "convert_element_type sin"),
        (
            "g:f32[3] = convert_element_type[new_dtype=float32] h k:bf16[3] = convert_element_type[new_dtype=bfloat16] g \
             y:f32[3] = convert_element_type[new_dtype=float32] k",
            "convert_element_type sin",
        ),
    ];
    for (equations, names) in other {
        assert_eq!(left(equations), names, "{equations}");
    }
}

#[test]
fn a_name_stays_where_its_equation_goes() {
    let text = "{ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = mul b 1.0:f32[] d:f32[3] = name[name=half] c \
                e:f32[3] = cumsum[axis=0 reverse=False] d in (e, d) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let flat = Flat::of(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(flat.eqns.len(), 2);
    assert_eq!(flat.outs[1], flat.eqns[0].outs[0].into());
    assert_eq!(flat.names[flat.eqns[0].outs[0]].as_deref(), Some("half"));
}
