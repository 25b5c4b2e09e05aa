//! Tests of which loops are joined, and that results do not change.

use std::sync::Arc;

use remat_ir::{Array, Device, Jaxpr, Reference};
use remat_opt::pipeline::{CPU, run};
use remat_testkit::arrays::{assert_same, plain};

use super::super::proposed;
use super::*;
use crate::Cpu;

/// A program of a loop, a step that reads it, a step that the second loop reads, and the second loop.
fn program(equations: &str, outs: &str) -> String {
    let text = format!("{{ lambda ; a:ARRAY b:ARRAY y:ARRAY. let {equations} in ({outs}) }}");
    text.replace("MAXIMA", "cummax[axis=0 reverse=False]").replace("ARRAY", "f32[64,512]")
}

/// The number of equations and of results of each loop, in the order of the steps, and 0 for a step without a loop.
fn loops(text: &str) -> Option<Vec<(usize, usize)>> {
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let steps = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
    let joined = proposed(propose, &steps, &|_, _| true).unwrap_or_else(|e| panic!("{e}"))?;
    let of_step =
        |step: &Step| step.fused_loop().map_or((0, 0), |fused_loop| (fused_loop.members.len(), fused_loop.outs.len()));
    Some(joined.steps.iter().map(of_step).collect())
}

const FIRST: &str = "s:ARRAY = div a b
    g:ARRAY = mul a s
    p:ARRAY = MAXIMA g
    c:ARRAY = MAXIMA y";
const SECOND: &str = "d:ARRAY = mul c s
    e:ARRAY = add d a";
const OF_ROWS: &str = "m:f32[64] = reduce_max[axes=(1,)] a
    l:f32[64,1] = reshape[new_sizes=(64, 1)] m
    n:ARRAY = broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(64, 512)] l
    s:ARRAY = div a n
    p:ARRAY = MAXIMA s
    c:ARRAY = MAXIMA y
    r:ARRAY = mul c s
    d:ARRAY = sub r n
    e:ARRAY = div d a";

#[test]
fn a_loop_waits_for_one_that_reads_the_same() {
    let equations = format!("{FIRST} {SECOND}");
    assert_eq!(loops(&program(&equations, "p, e")), Some(vec![(0, 0), (4, 2), (0, 0)]));
    assert_eq!(loops(&program(&equations, "p, e, s")), Some(vec![(0, 0), (4, 3), (0, 0)]));
    assert_eq!(loops(&program(OF_ROWS, "p, e")), Some(vec![(0, 0), (5, 2), (0, 0)]));
}

#[test]
fn a_loop_that_the_other_one_waits_for_and_one_that_shares_little_stay_apart() {
    let depends = format!("{FIRST} {SECOND}").replace("MAXIMA y", "MAXIMA p");
    assert_eq!(loops(&program(&depends, "p, e")), None);
    let little = format!("{FIRST} d:ARRAY = div c y h:ARRAY = mul d b e:ARRAY = div h d");
    assert_eq!(loops(&program(&little, "p, e")), None);
    // The second loop reads other positions.
    let reversed = format!("{FIRST} t:ARRAY = rev[dimensions=(1,)] s d:ARRAY = mul c t e:ARRAY = add d y");
    assert_eq!(loops(&program(&reversed, "p, e")), None);
}

#[test]
fn joined_loops_compute_the_same() {
    let texts = [format!("{FIRST} {SECOND}"), OF_ROWS.to_string()];
    for text in texts.iter().flat_map(|text| [program(text, "p, e"), program(text, "e, s, p")]) {
        let jaxpr = Arc::new(text.parse::<Jaxpr>().unwrap_or_else(|e| panic!("{e}")));
        let args = || -> Vec<Array> {
            let avals = jaxpr.ins.iter().map(|&var| &jaxpr.avals[var]);
            (1..).zip(avals).map(|(seed, aval)| plain(aval.dtype, &aval.shape, seed)).collect()
        };
        let results = |device: &dyn Device| {
            device.compile(&jaxpr).and_then(|program| program.run(args())).unwrap_or_else(|e| panic!("{e}"))
        };
        let expected = results(&Reference);
        for threads in [1, 3] {
            let cpu = Cpu::with_threads(threads).expect("threads");
            for (result, expected) in results(&cpu).iter().zip(&expected) {
                assert_same(result, expected, &format!("{threads} threads: {text}"));
            }
        }
    }
}
