//! Which equations algebra drops, and which it must not.

use remat_ir::{
    Atom, Aval, Builder, DType, DotGeneral, Jaxpr, Op, Reduce, ReduceKind, Reshape, Result, Shape, Unary, eval,
};
use remat_opt::pipeline::{CPU, run};
use remat_testkit::arrays::wild;

#[test]
fn equations_that_change_nothing_are_dropped() {
    // The names of what is left of these equations, of which the last is read by a sine.
    let left = |equations: &str| {
        let text = format!(
            "{{ lambda ; a:f32[3] i:i32[3] h:bf16[3] w:bool[3] s:f32[]. let {equations} z:f32[3] = sin y in (z,) }}"
        );
        let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
        let flat = run(CPU, &jaxpr).unwrap_or_else(|e| panic!("{e}"));
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
        "y:f32[3] = dynamic_slice[slice_sizes=(3,)] a 0:i32[]",
        "v:bool[3] = and w True:bool[] u:bool[3] = and True:bool[] v y:f32[3] = select_n u a a",
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
        ("v:bool[3] = eq w False:bool[] y:f32[3] = select_n v a 1.0:f32[]", "eq select_n sin"),
        // A bool that is not false is true; a number need not be one.
        (
            "u:bool[3] = ne w False:bool[] v:bool[3] = eq u True:bool[] y:f32[3] = select_n v a 1.0:f32[]",
            "select_n sin",
        ),
        ("v:bool[3] = ne i 0:i32[] y:f32[3] = select_n v a 1.0:f32[]", "ne select_n sin"),
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
fn slices_at_known_positions_are_plain_ones() {
    let after = |position: &str| {
        let text = format!(
            "{{ lambda ; a:f32[5,4] i:i32[]. let y:f32[2,4] = dynamic_slice[slice_sizes=(2, 4)] a {position} 0:i32[] \
             z:f32[2,4] = sin y in (z,) }}"
        );
        let flat = run(CPU, &text.parse::<Jaxpr>().unwrap()).unwrap();
        (flat.eqns[0].op.name().to_string(), flat.to_string())
    };
    for (position, start) in [("2:i32[]", 2), ("-1:i32[]", 0), ("9:i32[]", 3)] {
        let (name, text) = after(position);
        assert_eq!(name, "slice");
        assert!(text.contains(&format!("start_indices=({start}, 0)")), "{text}");
    }
    assert_eq!(after("i").0, "dynamic_slice");
}

#[test]
fn sums_and_products_of_special_numbers_keep_their_bits() {
    let product = |dtype, contract: &[usize], batch: &[usize]| {
        let [lhs_contract, lhs_batch] = [contract, batch].map(Shape::from);
        // The right operand has its axes in the other order where one is summed.
        let rhs_contract = contract.iter().map(|axis| 1 - axis).collect();
        let rhs_batch = lhs_batch.clone();
        Op::from(DotGeneral { lhs_contract, rhs_contract, lhs_batch, rhs_batch, preferred_element_type: dtype })
    };
    let sum = |axis| Op::from(Reduce { kind: ReduceKind::Sum, axes: [axis].into_iter().collect() });
    type Write = fn(&mut Builder, Atom, &[usize]) -> Result<Atom>;
    let reshaped: Write = |b, x, shape| b.emit1(Reshape { shape: shape.into() }.into(), &[x]);
    let negated: Write = |b, x, shape| {
        let x = b.emit1(Reshape { shape: shape.into() }.into(), &[x])?;
        b.emit1(Unary::Neg.into(), &[x])
    };
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::I8] {
        for size in [0, 8] {
            let cases: [(Op, Write, Vec<Vec<usize>>, &str); 6] = [
                (product(dtype, &[], &[]), reshaped, vec![vec![size], vec![size]], "dot_general"),
                (product(dtype, &[1], &[]), reshaped, vec![vec![size, 1], vec![1, size]], "dot_general"),
                (product(dtype, &[], &[0]), reshaped, vec![vec![size], vec![size]], "dot_general"),
                (sum(1), negated, vec![vec![size, 1]], "neg"),
                (sum(0), negated, vec![vec![size, 1]], "neg"),
                (sum(0), negated, vec![vec![size / 4, 4]], "neg"),
            ];
            for (op, write, shapes, gone) in cases {
                let mut b = Builder::new();
                let ins = b.inputs([Aval::new(dtype, [size]), Aval::new(dtype, [size])]);
                let operands: Result<Vec<Atom>> = ins.iter().zip(shapes).map(|(&x, s)| write(&mut b, x, &s)).collect();
                let out = operands.and_then(|operands| b.emit1(op, &operands)).unwrap_or_else(|e| panic!("{e}"));
                let jaxpr = b.finish(vec![out]);
                let flat = run(CPU, &jaxpr).unwrap_or_else(|e| panic!("{e}"));
                assert!(!flat.eqns.iter().any(|eqn| eqn.op.name() == gone), "{flat}");
                for seed in 0..20 {
                    let args = vec![wild(dtype, &[size], seed), wild(dtype, &[size], seed + 100)];
                    // All NaNs are alike.
                    let [expected, got] = [&jaxpr, &flat].map(|program| -> Vec<Option<u64>> {
                        let outs = eval(program, args.clone()).unwrap_or_else(|e| panic!("{e}"));
                        let all = (0..outs[0].data().len()).filter_map(|i| outs[0].data().get(i));
                        all.map(|x| (!x.as_f64().is_nan()).then(|| x.bits())).collect()
                    });
                    assert_eq!(got, expected, "{flat}");
                }
            }
        }
    }
}
