//! Costs of operations whose numbers can be counted by hand.

use remat_ir::{Aval, Class, Jaxpr, Op};
use remat_opt::cost::{COMPARISON_FLOPS, Cost, TRANSCENDENTAL_FLOPS, cost, is_cheap, is_fusible, program};
use remat_testkit::all_samples;

/// The cost of the only equation of a program.
fn of(text: &str) -> Cost {
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let [eqn] = &jaxpr.eqns[..] else { panic!("{text} is not one equation") };
    let ins: Vec<Aval> = eqn.ins.iter().map(|&a| jaxpr.atom_aval(a)).collect();
    let cost = cost(&eqn.op, &ins, &jaxpr.out_avals());
    let whole = program(&jaxpr);
    assert_eq!((whole.flops, whole.bytes_read, whole.bytes_written), (cost.flops, cost.bytes_read, cost.bytes_written));
    assert_eq!(whole.class, Class::Call);
    cost
}

#[track_caller]
fn gives(text: &str, class: Class, flops: u64, bytes: [u64; 2]) {
    let cost = of(text);
    assert_eq!((cost.class, cost.flops, cost.bytes_read, cost.bytes_written), (class, flops, bytes[0], bytes[1]));
}

#[test]
fn costs_are_those_counted_by_hand() {
    gives("{ lambda ; a:f32[10]. let b:f32[10] = neg a in (b,) }", Class::Elementwise, 10, [40, 40]);
    let tanh = "{ lambda ; a:bf16[10]. let b:bf16[10] = tanh a in (b,) }";
    gives(tanh, Class::Transcendental, 10 * TRANSCENDENTAL_FLOPS, [20, 20]);
    gives("{ lambda ; a:f32[2,5]. let b:f32[5,2] = transpose[permutation=(1, 0)] a in (b,) }", Class::View, 0, [0, 0]);
    gives("{ lambda ; a:f32[2,5]. let b:f32[2,5] = name[name=x] a in (b,) }", Class::Marker, 0, [0, 0]);
    gives("{ lambda ; a:f32[2,5]. let b:f32[2] = reduce_sum[axes=(1,)] a in (b,) }", Class::Reduction, 10, [40, 8]);
    let sort = "{ lambda ; a:f32[2,8]. let b:f32[2,8] = sort[dimension=1 is_stable=True num_keys=1] a in (b,) }";
    gives(sort, Class::Sort, 16 * 3 * COMPARISON_FLOPS, [64, 64]);
    let update = "{ lambda ; a:f32[100] b:f32[4] c:i32[]. let d:f32[100] = dynamic_update_slice a b c in (d,) }";
    gives(update, Class::Movement, 0, [20, 16]);
    let slice = "{ lambda ; a:f32[100] c:i32[]. let d:f32[4] = dynamic_slice[slice_sizes=(4,)] a c in (d,) }";
    gives(slice, Class::Movement, 0, [20, 16]);
    // Nothing costs nothing.
    gives("{ lambda ; a:f32[0]. let b:f32[0] = neg a in (b,) }", Class::Elementwise, 0, [0, 0]);
}

#[test]
fn a_call_costs_what_its_programs_do() {
    let body = "{ lambda ; a:f32[10]. let b:f32[10] = neg a in (b,) }";
    let scan = "{ lambda ; a:f32[10]. let b:f32[10] = scan[jaxpr=BODY length=7 num_carry=1 num_consts=0 reverse=False \
                unroll=1] a in (b,) }";
    gives(&scan.replace("BODY", body), Class::Call, 70, [280, 280]);
    let jit = "{ lambda ; a:f32[10]. let b:f32[10] = jit[name=f jaxpr=BODY] a in (b,) }";
    gives(&jit.replace("BODY", body), Class::Call, 10, [40, 40]);
    let twice = "{ lambda ; a:f32[10]. let b:f32[10] = neg a; c:f32[10] = neg b in (c,) }";
    let cond = format!("{{ lambda ; i:i32[] a:f32[10]. let b:f32[10] = cond[branches=({body} {twice})] i a in (b,) }}");
    gives(&cond, Class::Call, 20, [80, 80]);
}

#[test]
fn sizes_that_no_memory_has_do_not_overflow() {
    // Arrays of more elements are refused by the parser.
    let n = 1usize << 31;
    let text = format!(
        "{{ lambda ; a:u8[{n},{n}] b:u8[{n},{n}]. let c:u8[{n},{n}] = dot_general[dimension_numbers=(([1], [0]), ([], [])) \
         preferred_element_type=uint8] a b in (c,) }}"
    );
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(program(&jaxpr).flops, u64::MAX);
}

#[test]
fn each_operation_has_a_cost() {
    for sample in all_samples() {
        let op: Op = sample.op;
        // One with programs in it has the cost of these.
        if op.call().is_some() {
            continue;
        }
        let ins: Vec<Aval> = sample.inputs.iter().map(|x| x.aval().clone()).collect();
        let Ok(outs) = op.infer(&ins) else { continue };
        let cost = cost(&op, &ins, &outs);
        assert_eq!(cost.class, op.class());
        let is_free = matches!(cost.class, Class::View | Class::Marker);
        let is_empty = ins.iter().chain(&outs).any(|aval| aval.size() == 0);
        assert!(is_free == (cost.bytes() == 0) || is_empty, "{} moves {} bytes", op.name(), cost.bytes());
        assert!(!is_cheap(&op) || is_fusible(&op) || op.name() == "stop_gradient", "{}", op.name());
    }
}
