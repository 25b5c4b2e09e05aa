//! What the rewrites make of small programs.

use remat_ir::{Call, Jaxpr, Op};

use super::Flat;

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
        .filter_map(|eqn| {
            if let Op::Call(Call::Scan(op)) = &eqn.op { Some((eqn.outs.len(), op.jaxpr.to_string())) } else { None }
        })
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
