//! Temporaries in the memory of results that are not yet written: where they lie, and that a run has the evaluator's bits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use remat_cpu::Cpu;
use remat_ir::{Array, CompileOptions, Device, Jaxpr, Place, Reference};
use remat_testkit::arrays::{assert_same, plain};

/// Running maxima of `x`, of which the first is read last; a number of their product `d`, and results that are computed from that number.
fn program(dtype: &str, end: &str, results: &str) -> Arc<Jaxpr> {
    let text = format!(
        "{{ lambda ; x:DTYPE[32,32] y:DTYPE[32,32]. let
            a:DTYPE[32,32] = cummax[axis=0 reverse=False] x
            b:DTYPE[32,32] = cummax[axis=1 reverse=False] a
            c:DTYPE[32,32] = cummax[axis=0 reverse=True] b
            d:DTYPE[32,32] = mul c a
            e:DTYPE[32,32] = cummax[axis=1 reverse=True] d
            s:DTYPE[] = reduce_max[axes=(0, 1)] e
            {end}
          in ({results}) }}"
    );
    Arc::new(text.replace("DTYPE", dtype).parse().unwrap_or_else(|e| panic!("{e}: {text}")))
}

/// An array of 64 x 32 times the number.
const LARGE: &str = "f:DTYPE[64,32] = broadcast_in_dim[broadcast_dimensions=() shape=(64, 32)] s";

/// The ends of programs, their results, and whether an output holds temporaries.
const ENDS: [(&str, &str, bool); 9] = [
    (LARGE, "f,", true),
    // A result twice, an argument, a part of a result, and one of no bytes.
    (LARGE, "f, y, f, s, x", true),
    (
        "f:DTYPE[64,32] = broadcast_in_dim[broadcast_dimensions=() shape=(64, 32)] s
        g:DTYPE[32,64] = reshape[new_sizes=(32, 64)] f
        h:DTYPE[0,32] = slice[limit_indices=(0, 32) start_indices=(0, 0) strides=(1, 1)] f",
        "g, f, h",
        true,
    ),
    // A later step reads the result, and another is computed in its own memory from the first step on.
    (
        "f:DTYPE[64,32] = broadcast_in_dim[broadcast_dimensions=() shape=(64, 32)] s
        g:DTYPE[64,32] = cummax[axis=0 reverse=False] f
        h:DTYPE[64,32] = cummax[axis=1 reverse=False] g
        i:DTYPE[64,32] = cummax[axis=0 reverse=True] h
        j:DTYPE[64,32] = add i f",
        "f, j, g",
        true,
    ),
    // The result may take the memory of `y`.
    (
        "f:DTYPE[32,32] = broadcast_in_dim[broadcast_dimensions=() shape=(32, 32)] s
        g:DTYPE[32,32] = mul y f",
        "g,",
        false,
    ),
    // The result does not depend on the temporaries, and is written last.
    ("f:DTYPE[64,32] = concatenate[dimension=0] x x", "f, s", true),
    // Bools are no numbers.
    (
        "f:DTYPE[128,32] = broadcast_in_dim[broadcast_dimensions=() shape=(128, 32)] s g:bool[128,32] = gt f 0.0:DTYPE[]",
        "g,",
        false,
    ),
    // A loop with carries, and a branch.
    (
        "t:i32[] = convert_element_type[new_dtype=int32] s
        l:DTYPE[32,32] = scan[jaxpr={ lambda ; p:DTYPE[32,32]. let
            q:DTYPE[32,32] = cummax[axis=0 reverse=True] p
            r:DTYPE[32,32] = cummax[axis=1 reverse=False] q
            v:DTYPE[32,32] = mul r p
          in (v,) } length=3 num_carry=1 num_consts=0 reverse=False unroll=1] e
        m:DTYPE[32,32] = cond[branches=(
            { lambda ; p:DTYPE[32,32]. let q:DTYPE[32,32] = cummax[axis=0 reverse=True] p in (q,) }
            { lambda ; p:DTYPE[32,32]. let q:DTYPE[32,32] = cummax[axis=1 reverse=True] p in (q,) }
          )] t l
        n:DTYPE[] = reduce_max[axes=(0, 1)] m
        f:DTYPE[128,32] = broadcast_in_dim[broadcast_dimensions=() shape=(128, 32)] n",
        "f, n",
        true,
    ),
    // Smaller elements in the memory of larger ones.
    (
        "t:f64[] = convert_element_type[new_dtype=float64] s
        f:f64[32,32] = broadcast_in_dim[broadcast_dimensions=() shape=(32, 32)] t",
        "f,",
        true,
    ),
];

/// The places of the temporaries that lie in outputs which are not yet written.
fn held(program: &Arc<Jaxpr>, threads: usize) -> BTreeSet<String> {
    let text = Cpu::with_threads(threads).and_then(|cpu| cpu.steps(program)).unwrap_or_else(|e| panic!("{e}"));
    let places = text.split('@').skip(1).map(|rest| rest.split_whitespace().next().unwrap_or_default());
    places.filter(|place| place.starts_with("out") && place.contains('+')).map(String::from).collect()
}

fn has_held(program: &Arc<Jaxpr>, threads: usize) -> bool {
    !held(program, threads).is_empty()
}

fn arguments(program: &Jaxpr) -> Vec<Array> {
    let avals = program.ins.iter().map(|&var| &program.avals[var]);
    (1..).zip(avals).map(|(seed, aval)| plain(aval.dtype, &aval.shape, seed)).collect()
}

fn assert_all_same(got: &[Array], expected: &[Array], context: &str) {
    assert_eq!(got.len(), expected.len(), "{context}");
    got.iter().zip(expected).for_each(|(got, expected)| assert_same(got, expected, context));
}

/// Runs a program of two arguments on one and on several threads, with arguments that are kept, given, and one of them given.
fn runs(program: &Arc<Jaxpr>, context: &str) {
    let expected = Reference.compile(program).and_then(|reference| reference.run(arguments(program)));
    let expected = expected.unwrap_or_else(|e| panic!("{context}: {e}"));
    for threads in [1, 3] {
        let compiled = Cpu::with_threads(threads).and_then(|cpu| cpu.compile(program));
        let compiled = compiled.unwrap_or_else(|e| panic!("{context}: {e}"));
        let run = |args: Vec<Array>| compiled.run(args).unwrap_or_else(|e| panic!("{context}: {e}"));
        let kept = arguments(program);
        assert_all_same(&run(kept.clone()), &expected, context);
        assert_all_same(&kept, &arguments(program), context);
        // The second run may take the memory of its arguments, the others only that of one.
        assert_all_same(&run(arguments(program)), &expected, context);
        for given in 0..2 {
            let mut mixed = kept.clone();
            mixed[given] = arguments(program).remove(given);
            assert_all_same(&run(mixed), &expected, context);
        }
    }
}

#[test]
fn results_have_the_bits_of_the_evaluator() {
    for (number, (end, results, is_held)) in ENDS.into_iter().enumerate() {
        for dtype in ["f32", "bf16", "f64"] {
            let program = program(dtype, end, results);
            let context = format!("{number} in {dtype}");
            assert_eq!(has_held(&program, 1), is_held, "{context}");
            runs(&program, &context);
        }
    }
}

/// Temporaries of 36 bytes, the last of which ends where its result does, beside a result that may take the memory of an argument and holds
/// nothing.
#[test]
fn small_temporaries_end_where_results_do() {
    for (elements, count) in [(8, 0), (9, 1), (24, 1), (25, 2)] {
        let text = format!(
            "{{ lambda ; x:f32[3,3] y:f32[5,5]. let
                a:f32[3,3] = cummax[axis=0 reverse=False] x
                b:f32[3,3] = cummax[axis=1 reverse=False] a
                c:f32[3,3] = cummax[axis=0 reverse=True] b
                d:f32[3,3] = cummax[axis=1 reverse=True] c
                e:f32[9,3] = concatenate[dimension=0] d a b
                s:f32[] = reduce_max[axes=(0, 1)] e
                f:f32[{elements}] = broadcast_in_dim[broadcast_dimensions=() shape=({elements},)] s
                h:f32[5,5] = broadcast_in_dim[broadcast_dimensions=() shape=(5, 5)] s
                g:f32[5,5] = mul y h
              in (f, g) }}"
        );
        let program: Arc<Jaxpr> = Arc::new(text.parse().unwrap_or_else(|e| panic!("{e}: {text}")));
        assert_eq!(held(&program, 1).len(), count, "{elements}");
        runs(&program, &format!("{elements} elements"));
    }
}

#[test]
fn larger_elements_do_not_lie_in_the_memory_of_smaller_ones() {
    let end = "t:bf16[] = convert_element_type[new_dtype=bfloat16] s
        f:bf16[128,32] = broadcast_in_dim[broadcast_dimensions=() shape=(128, 32)] t";
    for (dtype, is_held) in [("f32", false), ("bf16", true)] {
        assert_eq!(has_held(&program(dtype, end, "f,"), 1), is_held, "{dtype}");
    }
}

#[test]
fn the_arena_has_no_memory_for_what_lies_in_a_result() {
    let temporaries = |results| {
        let program = program("f32", LARGE, results);
        let compiled = Cpu::with_threads(1).and_then(|cpu| cpu.compile(&program)).unwrap_or_else(|e| panic!("{e}"));
        let ranges = compiled.live_ranges(&[]).expect("the engine reports them");
        let held = ranges.ranges.iter().filter(|range| range.place == Place::Shared && range.reserved == 0);
        (compiled.memory().temporaries, held.count())
    };
    let [without, within] = ["s,", "f,"].map(temporaries);
    assert!(without.0 >= 2 * 32 * 32 * 4 && without.1 == 0, "{without:?}");
    assert!(within.0 + 32 * 32 * 4 <= without.0 && within.1 > 0, "{within:?} {without:?}");
}

#[test]
fn threads_may_run_one_program_at_a_time() {
    let program = program("f32", LARGE, "f, s");
    let expected = Reference.compile(&program).and_then(|reference| reference.run(arguments(&program)));
    let expected = expected.unwrap_or_else(|e| panic!("{e}"));
    let compiled = Cpu::with_threads(2).and_then(|cpu| cpu.compile(&program)).unwrap_or_else(|e| panic!("{e}"));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let got = compiled.run(arguments(&program)).unwrap_or_else(|e| panic!("{e}"));
                    assert_all_same(&got, &expected, "at one time");
                }
            });
        }
    });
}

#[test]
fn a_limit_is_kept_with_temporaries_in_results() {
    let program = program("f32", LARGE, "f, s");
    let expected = Reference.compile(&program).and_then(|reference| reference.run(arguments(&program)));
    let expected = expected.unwrap_or_else(|e| panic!("{e}"));
    let cpu = Cpu::with_threads(2).unwrap_or_else(|e| panic!("{e}"));
    let most = cpu.compile(&program).unwrap_or_else(|e| panic!("{e}")).memory().donated_peak;
    for memory_limit in (0..=8).map(|part| most - part * 1024) {
        let options = CompileOptions { memory_limit: Some(memory_limit), ..CompileOptions::default() };
        let limited = cpu.compile_with(&program, &options).unwrap_or_else(|e| panic!("{e}"));
        assert!(memory_limit < most || limited.rematerialization().is_none());
        assert!(limited.memory().donated_peak <= most);
        let got = limited.run(arguments(&program)).unwrap_or_else(|e| panic!("{e}"));
        assert_all_same(&got, &expected, "within a limit");
    }
}
