//! Live ranges add up to the timeline of the memory report.

use std::sync::Arc;

use remat_cpu::Cpu;
use remat_ir::{CompileOptions, Device, Jaxpr, LiveKind, LiveRange, Place};

/// Programs with results in place, results that are arguments, scratch memory, and steps that may run again.
const PROGRAMS: [&str; 5] = [
    "{ lambda ; a:f32[64]. let b:f32[64] = exp a in (b, a) }",
    "{ lambda ; a:f32[64,64] b:f32[64,64]. let
        c:f32[64,64] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] a b
        d:f32[64,64] = sort[dimension=0 is_stable=True num_keys=1] c
        e:f32[64,64] = cumsum[axis=1 reverse=False] d
        f:f32[64,64] = cumsum[axis=0 reverse=False] e
        g:f32[] = reduce_sum[axes=(0, 1)] f
      in (g,) }",
    "{ lambda ; a:f32[64,64]. let
        b:f32[64,64] = cumsum[axis=0 reverse=False] a
        c:f32[64,64] = cumsum[axis=1 reverse=False] b
        d:f32[64,64] = cumsum[axis=0 reverse=True] c
        e:f32[64,64] = cumsum[axis=1 reverse=True] d
        f:f32[64,64] = mul e c
        g:f32[64,64] = cumsum[axis=0 reverse=False] f
        h:f32[64,64] = mul g b
      in (h,) }",
    "{ lambda ; a:f32[0]. let b:f32[0] = exp a in (b,) }",
    LOOP,
];

/// A loop of which each iteration sorts what it has added up.
const LOOP: &str = "{ lambda ; a:f32[64,64]. let
    b:f32[64,64] = scan[jaxpr={ lambda ; c:f32[64,64]. let
        d:f32[64,64] = cumsum[axis=0 reverse=False] c
        e:f32[64,64] = sort[dimension=0 is_stable=True num_keys=1] d
        f:f32[64,64] = cumsum[axis=1 reverse=False] e
      in (f,) } length=50 num_carry=1 num_consts=0 reverse=False unroll=1] a
  in (b,) }";

#[test]
fn bytes_at_each_step_are_those_of_the_timeline() {
    let mut scratch = 0;
    for text in PROGRAMS {
        let program: Arc<Jaxpr> = Arc::new(text.parse().unwrap_or_else(|e| panic!("{e}")));
        let device = Cpu::with_threads(2).unwrap_or_else(|e| panic!("{e}"));
        let peak = device.compile(&program).unwrap_or_else(|e| panic!("{e}")).memory().donated_peak;
        for memory_limit in [None, Some(peak - peak / 8)] {
            let options = CompileOptions { memory_limit, ..CompileOptions::default() };
            let executable = device.compile_with(&program, &options).unwrap_or_else(|e| panic!("{e}"));
            let memory = executable.live_ranges(&[]).expect("the engine reports them");
            let arena = memory.live_bytes(|range| matches!(range.place, Place::Arena(_)));
            assert_eq!(arena, executable.memory_report().timeline, "{text}");
            // Without donations nothing of the caller is shared.
            let kept = vec![false; program.ins.len()];
            let memory = executable.live_ranges(&kept).expect("the engine reports them");
            let own: usize =
                memory.ranges.iter().filter(|range| range.place == Place::Own).map(|range| range.reserved).sum();
            let stats = executable.memory();
            assert_eq!(own, stats.arguments + stats.outputs, "{text}");
            for range in memory.ranges.iter().filter(|range| range.value.kind == LiveKind::Scratch) {
                assert_eq!(range.at.len(), 1, "{text}");
                scratch += 1;
            }
        }
    }
    assert!(scratch > 0);
}

#[test]
fn values_inside_a_loop_are_there_while_it_runs() {
    let program: Arc<Jaxpr> = Arc::new(LOOP.parse().unwrap_or_else(|e| panic!("{e}")));
    let device = Cpu::with_threads(2).unwrap_or_else(|e| panic!("{e}"));
    let executable = device.compile(&program).unwrap_or_else(|e| panic!("{e}"));
    let memory = executable.live_ranges(&[]).expect("the engine reports them");
    let inside = |operation: &str| {
        let is_inside = |range: &&LiveRange| {
            range.value.kind == LiveKind::Temporary && range.value.operation == Some(operation) && range.at.len() == 1
        };
        memory.ranges.iter().filter(is_inside).map(|range| range.reserved).collect::<Vec<usize>>()
    };
    assert_eq!(memory.steps.iter().filter(|step| step.operation == "scan").count(), 1);
    let all: Vec<usize> = ["cumsum", "sort"].into_iter().flat_map(inside).collect();
    assert!(!all.is_empty() && all.iter().all(|&bytes| bytes >= 64 * 64 * 4), "{:?}", memory.ranges);
}
