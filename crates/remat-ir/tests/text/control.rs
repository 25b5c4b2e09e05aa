//! The shape rules of operations with programs in them.

use remat_ir::{Aval, Jaxpr, Op};

use crate::program;

/// The operation of the program's only equation.
fn op(equation: &str) -> Op {
    let text = format!("{{ lambda ; a:f32[]. let {equation} in () }}");
    Jaxpr::parse_unchecked(&text).unwrap_or_else(|e| panic!("{e}")).eqns[0].op.clone()
}

/// The avals of the inputs of a program with these inputs.
fn avals(inputs: &str) -> Vec<Aval> {
    program(&format!("{{ lambda ; {inputs}. let in () }}")).in_avals()
}

#[track_caller]
fn gives(op: &Op, inputs: &str, outs: &str) {
    assert_eq!(op.infer(&avals(inputs)).unwrap(), avals(outs));
}

#[track_caller]
fn fails(op: &Op, inputs: &str, message: &str) {
    assert_eq!(op.infer(&avals(inputs)).unwrap_err().to_string(), message);
}

#[test]
fn calls() {
    for name in ["jit[name=f", "checkpoint[differentiated=False policy=Dots"] {
        let op = op(&format!("= {name} jaxpr={{ lambda ; a:f32[2] b:i32[]. let in (b, a, 1:u8[]) }}]"));
        let name = op.name();
        gives(&op, "a:f32[2] b:i32[]", "a:i32[] b:f32[2] c:u8[]");
        let message = format!("{name}: operand count is 1 (f32[2]) and the body takes 2 (f32[2], i32[])");
        fails(&op, "a:f32[2]", &message);
        fails(&op, "a:f32[3] b:i32[]", &format!("{name}: operand 0 is f32[3] and the body takes f32[2]"));
        fails(&op, "a:f32[2] b:f32[]", &format!("{name}: operand 1 is f32[] and the body takes i32[]"));
        fails(&op, "a:f32<host>[2] b:i32[]", &format!("{name}: operand 0 is f32<host>[2] and the body takes f32[2]"));
    }
}

#[test]
fn scans() {
    let scan = |consts, carry, unroll| {
        op(&format!(
            "= scan[
              jaxpr={{ lambda ; a:f32[2] b:f32[] c:i32[3]. let in (b, a, c) }}
              length=0 num_carry={carry} num_consts={consts} reverse=True unroll={unroll}
            ]"
        ))
    };
    gives(&scan(1, 1, 1), "a:f32[2] b:f32[] c:i32[0,3]", "a:f32[] b:f32[0,2] c:i32[0,3]");
    let ins = "a:f32[2] b:f32[] c:i32[0,3]";
    fails(&scan(1, 1, 1), "a:f32[2] b:f32[] c:i32[4,3]", "scan: operand 2 is i32[4,3] and the loop takes i32[0,3]");
    let count = "scan: operand count is 0 () and the loop takes 3 (f32[2], f32[], i32[0,3])";
    fails(&scan(1, 1, 1), "", count);
    fails(&scan(0, 1, 1), ins, "scan: carry 0 is f32[] and the body takes f32[2]");
    fails(&scan(1, 2, 1), ins, "scan: carry 1 is f32[2] and the body takes i32[3]");
    fails(&scan(3, 1, 1), ins, "scan: 3 constants and 1 carries are more than the 3 inputs of the body");
    fails(&scan(1, 1, 0), ins, "scan: unroll is 0");
    let short =
        op("= scan[jaxpr={ lambda ; a:f32[]. let in () } length=1 num_carry=1 num_consts=0 reverse=False unroll=1]");
    fails(&short, "a:f32[]", "scan: the body gives 0 results for 1 carries");
}

#[test]
fn whiles() {
    let cond = "{ lambda ; a:i32[] b:f32[2]. let in (True:bool[],) }";
    let body = "{ lambda ; a:f32[2] b:f32[2]. let in (b,) }";
    let op_of = |cond: &str, body: &str, nconsts: usize| {
        op(&format!("= while[cond_jaxpr={cond} cond_nconsts={nconsts} body_jaxpr={body} body_nconsts=1]"))
    };
    let ins = "a:i32[] b:f32[2] c:f32[2]";
    gives(&op_of(cond, body, 1), ins, "a:f32[2]");
    fails(&op_of(cond, body, 3), ins, "while: 3 and 1 constants are more than the 3 operands");
    let ints = "a:f32[] b:f32[2] c:f32[2]";
    fails(&op_of(cond, body, 1), ints, "while: operand of the condition 0 is f32[] and it takes i32[]");
    let long = "a:i32[] b:f32[3] c:f32[2]";
    fails(&op_of(cond, body, 1), long, "while: operand of the body 0 is f32[3] and it takes f32[2]");
    let number = "{ lambda ; a:i32[] b:f32[2]. let in (1:i32[],) }";
    fails(&op_of(number, body, 1), ins, "while: result of the condition 0 is i32[] and the loop takes bool[]");
    let shrinks = "{ lambda ; a:f32[2] b:f32[2]. let in (1.0:f32[],) }";
    fails(&op_of(cond, shrinks, 1), ins, "while: carry 0 is f32[] and the body takes f32[2]");
}

#[test]
fn conds() {
    let one = "{ lambda ; a:f32[2]. let in (a,) }";
    let op_of = |branches: &str| op(&format!("= cond[branches=({branches})]"));
    gives(&op_of(&format!("{one} {one} {one}")), "a:i32[] b:f32[2]", "a:f32[2]");
    fails(&op_of(""), "a:i32[]", "cond: there is no branch");
    fails(&op_of(one), "", "cond: there is no index");
    fails(&op_of(one), "a:bool[] b:f32[2]", "cond: the index is bool[] and has to be i32[]");
    fails(&op_of(one), "a:i32[1] b:f32[2]", "cond: the index is i32[1] and has to be i32[]");
    fails(&op_of(one), "a:i32[] b:f32[3]", "cond: operand 0 is f32[3] and branch 0 takes f32[2]");
    let other = op_of(&format!("{one} {{ lambda ; a:f32[2]. let in (1:i32[],) }}"));
    fails(&other, "a:i32[] b:f32[2]", "cond: branch 1: result 0 is i32[] and branch 0 gives f32[2]");
}

#[test]
fn custom_derivatives() {
    let call = "{ lambda ; a:f32[2] n:i32[]. let in (a, n) }";
    let jvp = |outs: &str| {
        op(&format!(
            "= custom_jvp[name=f call_jaxpr={call} jvp_jaxpr={{ lambda ; a:f32[2] n:i32[] t:f32[2]. let in ({outs}) }} num_consts=0]"
        ))
    };
    let ins = "a:f32[2] n:i32[]";
    gives(&jvp("a, n, t"), ins, ins);
    let message =
        "custom_jvp: result of the jvp count is 2 (f32[2], i32[]) and the function wants 3 (f32[2], i32[], f32[2])";
    fails(&jvp("a, n"), ins, message);
    fails(&jvp("a, n, n"), ins, "custom_jvp: result of the jvp 2 is i32[] and the function wants f32[2]");
    let vjp = |fwd: &str, bwd: &str| {
        op(&format!(
            "= custom_vjp[
              name=f
              call_jaxpr={call}
              fwd_jaxpr={{ lambda ; a:f32[2] n:i32[]. let in ({fwd}) }}
              bwd_jaxpr={{ lambda ; r:i32[] ct:f32[2]. let in ({bwd}) }}
              num_consts=0
            ]"
        ))
    };
    gives(&vjp("a, n, n", "ct"), ins, ins);
    // A function whose rule was not traced.
    gives(&op(&format!("= custom_jvp[name=f call_jaxpr={call} jvp_jaxpr=None num_consts=0]")), ins, ins);
    let no_rule = format!("= custom_vjp[name=f call_jaxpr={call} fwd_jaxpr=None bwd_jaxpr=None num_consts=0]");
    gives(&op(&no_rule), ins, ins);
    fails(
        &op(&no_rule.replace("num_consts=0", "num_consts=3")),
        ins,
        "custom_vjp: takes 3 constants and got 2 operands",
    );
    fails(&vjp("a", "ct"), ins, "custom_vjp: fwd gives 1 results and the function 2");
    fails(&vjp("n, n", "ct"), ins, "custom_vjp: result of fwd 0 is i32[] and the function gives f32[2]");
    fails(&vjp("a, n, a", "ct"), ins, "custom_vjp: input of bwd 0 is i32[] and fwd wants f32[2]");
    fails(&vjp("a, n, n", "r"), ins, "custom_vjp: result of bwd 0 is i32[] and the function wants f32[2]");
    let lin = |residuals: usize| {
        op(&format!(
            "= custom_lin[name=f bwd_jaxpr={{ lambda ; r:i32[] ct:f32[3]. let in (1.0:f32[],) }} num_res={residuals}]"
        ))
    };
    gives(&lin(1), "r:i32[] t:f32[]", "a:f32[3]");
    fails(&lin(1), "r:f32[] t:f32[]", "custom_lin: residual 0 is f32[] and bwd takes i32[]");
    fails(&lin(1), "r:i32[] t:f32[2]", "custom_lin: tangent 0 is f32[2] and bwd gives f32[]");
    fails(&lin(1), "r:i32[]", "custom_lin: takes 2 operands and got 1");
    fails(&lin(3), "r:i32[]", "custom_lin: bwd takes 2 inputs for 3 residuals");
}

#[test]
fn markers() {
    gives(&op("= name[name=x]"), "a:i32[2]", "a:i32[2]");
    gives(&op("= name[keep=planner name=x]"), "a:i32[2]", "a:i32[2]");
    gives(&op("= name[keep=everyone name=\"\"]"), "a:i32[2]", "a:i32[2]");
    gives(&op("= stop_gradient"), "a:f32[2]", "a:f32[2]");
    gives(&op("= optimization_barrier"), "a:i32[2] b:f32[]", "a:i32[2] b:f32[]");
    gives(&op("= device_put[memory=host]"), "a:f32[2]", "a:f32<host>[2]");
    gives(&op("= device_put[memory=device]"), "a:f32<host>[2]", "a:f32[2]");
    gives(&op("= debug_print[template=\"{} {:?}\"]"), "a:f32[2] b:i32[]", "");
    gives(
        &op("= debug_print[axes=((0, 1), (1,), ()) batch=(2, 3) template=\"{}{}{}\"]"),
        "a:f32[2,3] b:i32[3,4] c:bool[]",
        "",
    );
    let batched = op("= debug_print[axes=((1,),) batch=(2, 3) template=\"{}\"]");
    fails(&batched, "a:f32[2]", "debug_print: operand 0, f32[2], is not batched along [1] of [2, 3]");
    let unsorted = op("= debug_print[axes=((1, 0),) batch=(2, 3) template=\"{}\"]");
    fails(&unsorted, "a:f32[3,2]", "debug_print: operand 0, f32[3,2], is not batched along [1, 0] of [2, 3]");
    let unknown = op("= debug_print[axes=((2,),) batch=(2, 3) template=\"{}\"]");
    fails(&unknown, "a:f32[3]", "debug_print: operand 0, f32[3], is not batched along [2] of [2, 3]");
    fails(&op("= debug_print[template=\"{}\"]"), "", "debug_print: the text \"{}\" has 1 placeholder and got 0 values");
    for marker in ["name[name=x]", "stop_gradient", "device_put[memory=host]"] {
        let op = op(&format!("= {marker}"));
        fails(&op, "a:f32[] b:f32[]", &format!("{}: takes 1 operands and got 2", op.name()));
    }
}

#[test]
fn malformed_parameters() {
    let error = |equation: &str| {
        Jaxpr::parse_unchecked(&format!("{{ lambda ; . let = {equation} in () }}")).unwrap_err().message().to_string()
    };
    assert_eq!(error("device_put[memory=disk]"), "line 1, column 20: parameter `memory` is not a memory space");
    assert_eq!(error("jit[name=f]"), "line 1, column 20: parameter `jaxpr` is missing");
    assert_eq!(error("cond[branches=3]"), "line 1, column 34: expected `(`, found `3`");
    let none = "{ lambda ; . let in () }";
    let vjp = |fwd, bwd| format!("custom_vjp[name=f call_jaxpr={none} fwd_jaxpr={fwd} bwd_jaxpr={bwd} num_consts=0]");
    assert_eq!(error(&vjp("None", none)), "line 1, column 20: parameter `fwd_jaxpr` is None, and bwd_jaxpr is not");
    assert_eq!(error(&vjp(none, "None")), "line 1, column 20: parameter `bwd_jaxpr` is None, and fwd_jaxpr is not");
    assert_eq!(error("jit[name=f jaxpr=None]"), "line 1, column 20: parameter `jaxpr` is not a jaxpr");
    let scan = "scan[jaxpr={ lambda ; . let in () } length=-1 num_carry=0 num_consts=0 reverse=False unroll=1]";
    assert_eq!(error(scan), "line 1, column 20: parameter `length` is negative");
    let scan = scan.replace("length=-1", "length=3").replace("False", "0");
    assert_eq!(error(&scan), "line 1, column 20: parameter `reverse` is neither True nor False");
}
