//! Live ranges add up to the timeline of the memory report.

use std::sync::Arc;

use remat_cpu::Cpu;
use remat_ir::{CompileOptions, Device, Jaxpr, LiveKind, Place};

/// Programs with results in place, results that are arguments, scratch memory, and steps that may run again.
const PROGRAMS: [&str; 4] = [
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
];

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
