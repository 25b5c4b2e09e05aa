//! The order that `optimization_barrier` asks for: steps that read a result come after those that compute the operands.

use std::sync::Arc;

use remat_cpu::Cpu;
use remat_ir::{Array, Device, Jaxpr, Reference};
use remat_testkit::arrays::{assert_close, plain};

const DOT: &str = "dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32]";

fn program(text: &str) -> Arc<Jaxpr> {
    Arc::new(text.parse().unwrap_or_else(|e| panic!("{e}")))
}

fn steps(text: &str) -> String {
    Cpu::with_threads(1).and_then(|cpu| cpu.steps(&program(text))).unwrap_or_else(|e| panic!("{e}"))
}

/// The results on the engine, which are close to the evaluator's.
fn run(text: &str) -> Vec<Array> {
    let jaxpr = program(text);
    let args: Vec<Array> = jaxpr.in_avals().iter().map(|aval| plain(aval.dtype, &aval.shape, 3)).collect();
    let on = |device: &dyn Device| device.compile(&jaxpr).and_then(|program| program.run(args.clone()));
    let native = Cpu::with_threads(2).and_then(|cpu| on(&cpu)).unwrap_or_else(|e| panic!("{e}"));
    let expected = on(&Reference).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(native.len(), expected.len(), "{text}");
    for (got, expected) in native.iter().zip(&expected) {
        assert_close(got, expected, 1e-5, 1.0, text);
    }
    native
}

/// The positions in a text at which these begin.
fn positions<const N: usize>(text: &str, parts: [&str; N]) -> [usize; N] {
    parts.map(|part| text.find(part).unwrap_or_else(|| panic!("{part} is not in {text}")))
}

#[test]
fn an_operand_is_computed_ahead_of_the_readers_of_other_results() {
    // `b` is read at the end only, and is an elementwise value, which is computed late otherwise.
    let text = |barrier: &str| {
        format!(
            "{{ lambda ; a:f32[64] x:f32[64,64]. let
                b:f32[64] = mul a 2.0:f32[]
                {barrier}
                e:f32[64,64] = {DOT} d d
                f:f32[64,64] = {DOT} e e
                g:f32[64,64] = add f c
              in (g,) }}"
        )
    };
    let row = "broadcast_in_dim[broadcast_dimensions=(1,) shape=(64, 64)]";
    let barred = text(&format!("h:f32[64] d:f32[64,64] = optimization_barrier b x\nc:f32[64,64] = {row} h"));
    let [doubled, barrier, product, sum] =
        positions(&steps(&barred), [" = mul", " = optimization_barrier", " = dot_general", " = add"]);
    assert!(doubled < barrier && barrier < product && product < sum, "{}", steps(&barred));
    run(&barred);
    // With a barrier for each, there is no order to keep.
    let plain = text(&format!(
        "h:f32[64] = optimization_barrier b\nd:f32[64,64] = optimization_barrier x\nc:f32[64,64] = {row} h"
    ));
    let [product, doubled] = positions(&steps(&plain), [" = dot_general", " = mul"]);
    assert!(product < doubled, "{}", steps(&plain));
    run(&plain);
}

#[test]
fn a_barrier_is_a_line_of_the_steps_and_takes_no_memory() {
    let text = "{ lambda ; a:f32[8] b:f32[8]. let
        c:f32[8] = cumsum[axis=0 reverse=False] a
        d:f32[8] e:f32[8] = optimization_barrier c b
        f:f32[8] = cumsum[axis=0 reverse=False] e
      in (d, f) }";
    let expected = "\
{ steps[arena=0] ; arg0:f32[8] arg1:f32[8]. let
    out0:f32[8] = cumsum[axis=0 reverse=False] arg0
    b4 = optimization_barrier out0 arg1
    out1:f32[8] = cumsum[axis=0 reverse=False] arg1  # after b4
    # out0 is in the memory of arg0 where the caller donates it
    # out1 is in the memory of arg1 where the caller donates it
  in (out0, out1) }";
    assert_eq!(steps(text), expected);
    run(text);
}

#[test]
fn results_of_arguments_of_constants_and_of_nothing() {
    // Arguments and literals need no step; a value of no elements is computed by none.
    let outs = run("{ lambda ; a:f32[0,3] b:f32[3] n:f32[]. let
        c:f32[0,3] = exp a
        d:f32[0,3] e:f32[3] f:f32[] g:f32[] = optimization_barrier c b 2.0:f32[] n
        h:f32[3] = mul e f
        i:f32[3] = add h g
        j:f32[3] = reduce_sum[axes=(0,)] d
      in (d, e, f, i, j) }");
    assert_eq!(outs[2].as_slice::<f32>(), Some(&[2.0][..]));
    // The same value twice, and a barrier without readers.
    run("{ lambda ; a:f32[3]. let
        b:f32[3] = neg a
        c:f32[3] d:f32[3] = optimization_barrier b b
        e:f32[3] f:f32[3] = optimization_barrier c d
        g:f32[3] = add c d
      in (g,) }");
}

#[test]
fn a_name_of_a_result_is_reported() {
    let text = format!(
        "{{ lambda ; a:f32[8,8] x:f32[8,8]. let
            b:f32[8,8] = {DOT} a x
            c:f32[8,8] d:f32[8,8] = optimization_barrier b x
            e:f32[8,8] = name[name=hidden] c
            f:f32[8,8] = {DOT} e d
          in (f,) }}"
    );
    let compiled = Cpu::default().compile(&program(&text)).unwrap_or_else(|e| panic!("{e}"));
    assert!(compiled.memory_report().to_string().contains("hidden"), "{}", compiled.memory_report());
}

#[test]
fn bodies_of_loops_and_branches_keep_the_order() {
    let scan = "{ lambda ; a:f32[3] b:f32[3] c:f32[4,3]. let d:f32[3] e:f32[3] f:f32[4,3] = scan[jaxpr={ lambda ; g:f32[3] \
        h:f32[3] i:f32[3]. let j:f32[3] = neg g k:f32[3] l:f32[3] m:f32[3] = optimization_barrier j h i \
        n:f32[3] = add l m o:f32[3] = mul k n in (k, l, o) } length=4 num_carry=2 num_consts=0 reverse=False unroll=1] \
        a b c in (d, e, f) }";
    run(scan);
    let text = steps(scan);
    let [negated, barrier, sum] = positions(&text, [" = neg", " = optimization_barrier", " = add"]);
    assert!(negated < barrier && barrier < sum, "{text}");
    run("{ lambda ; n:i32[] x:f32[5]. let m:i32[] y:f32[5] = while[cond_jaxpr={ lambda ; m:i32[] y:f32[5]. let \
        k:i32[] z:f32[5] = optimization_barrier m y c:bool[] = lt k 3:i32[] in (c,) } cond_nconsts=0 \
        body_jaxpr={ lambda ; m:i32[] y:f32[5]. let k:i32[] = add m 1:i32[] z:f32[5] = neg y \
        l:i32[] w:f32[5] = optimization_barrier k z in (l, w) } body_nconsts=0] 0:i32[] x in (m, y) }");
    run("{ lambda ; a:i32[] x:f32[5]. let y:f32[5] = cond[branches=({ lambda ; x:f32[5]. let y:f32[5] = neg x \
        z:f32[5] w:f32[5] = optimization_barrier y x v:f32[5] = add z w in (v,) } { lambda ; x:f32[5]. let in (x,) })] a x \
        in (y,) }");
}
