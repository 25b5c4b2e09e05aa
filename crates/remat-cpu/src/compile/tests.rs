//! Which values loops compute again, by the memory that is left.

use std::sync::Arc;

use remat_ir::{Array, Device, Jaxpr, Reference};
use remat_kernels::Threads;
use remat_opt::pipeline;

use super::*;
use crate::Cpu;

/// A program whose value `c` is read at once and many steps later, where the engine computes it again from `b` and `x`, which are in memory then. The running maxima of an
/// array thirty times as large are computed before all others, where the peak is then, or between those two. The equations at the end read `k` and `c`
/// and compute `n`.
fn program(is_between: bool, end: &str) -> String {
    let large = |of: &str| {
        format!(
            "q:f32[64,128,30] = broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(64, 128, 30)] {of}
            r:f32[64,128,30] = mul q y
            l:f32[64,128,30] = cummax[axis=0 reverse=False] r
            m:f32[64,128] = reduce_max[axes=(2,)] l"
        )
    };
    let (before, between, of) = if is_between { ("".into(), large("f"), "m") } else { (large("x"), "".into(), "f") };
    format!(
        "{{ lambda ; x:f32[64,128] y:f32[64,128,30]. let
            {before}
            b:f32[64,128] = cummax[axis=0 reverse=False] x
            c:f32[64,128] = add b x
            d:f32[64,128] = cummax[axis=0 reverse=True] c
            e:f32[64,128] = cummax[axis=1 reverse=False] d
            f:f32[64,128] = cummax[axis=0 reverse=False] e
            {between}
            g:f32[64,128] = cummax[axis=1 reverse=True] {of}
            h:f32[64,128] = cummax[axis=0 reverse=False] g
            i:f32[64,128] = cummax[axis=1 reverse=False] h
            j:f32[64,128] = cummax[axis=0 reverse=True] i
            k:f32[64,128] = cummax[axis=1 reverse=False] j
            {end}
            o:f32[64,128] = cummax[axis=0 reverse=False] b
            p:f32[64,128] = cummax[axis=1 reverse=False] x
          in (n, o, p, m) }}"
    )
}

/// Ends of the program: one loop, a loop with a value for each row, a reduction over rows, and a step that is not a loop.
const ENDS: [&str; 4] = [
    "n:f32[64,128] = mul k c",
    "s:f32[64] = reduce_max[axes=(1,)] c
    t:f32[64,1] = reshape[new_sizes=(64, 1)] s
    u:f32[64,128] = broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(64, 128)] t
    v:f32[64,128] = sub c u
    n:f32[64,128] = mul k v",
    "w:f32[64,128] = mul k c
    n:f32[128] = reduce_max[axes=(0,)] w",
    "w:f32[64,128] = cummax[axis=0 reverse=False] c
    n:f32[64,128] = mul k w",
];

/// The equations that are `add`, and the bytes of the arena: of the steps as they are lowered, and as they are compiled.
fn lowered_and_compiled(text: &str) -> [(usize, usize); 2] {
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let threads = Threads::new(1).expect("one thread");
    let counts = |planned: &Planned<'_>| {
        let text = planned.text(&threads, 0)?;
        Ok((text.matches("= add ").count(), planned.keeping.plan.arena))
    };
    let steps = Steps::of(pipeline::run(pipeline::CPU, &jaxpr).expect("it is lowered")).expect("it has steps");
    let controls = Controls::default();
    let lowered = Planned::new(&steps, Caller::User, &threads, &controls).and_then(|planned| counts(&planned));
    let compiled = plan_with(&jaxpr, Caller::User, &threads, |planned, _| counts(planned));
    [lowered, compiled].map(|counts| counts.expect("it is planned"))
}

#[test]
fn values_are_kept_where_there_is_memory_and_computed_again_where_there_is_none() {
    for end in ENDS {
        let [lowered, compiled] = lowered_and_compiled(&program(false, end));
        assert_eq!((lowered.0, compiled.0), (2, 1), "{end}");
        assert!(compiled.1 <= lowered.1, "{compiled:?} {lowered:?}, {end}");
    }
    let [lowered, compiled] = lowered_and_compiled(&program(true, ENDS[0]));
    assert_eq!(lowered, compiled);
    assert_eq!(lowered.0, 2);
}

fn numbers(shape: &[usize]) -> Array {
    let bits = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9) >> 8;
    let elements: Vec<f32> = (0..shape.iter().product()).map(|i| bits(i) as f32 / (1 << 24) as f32 - 0.5).collect();
    Array::from_vec(elements, shape.iter().copied()).expect("as many elements")
}

fn bits(arrays: &[Array]) -> Vec<Vec<u32>> {
    let of = |array: &Array| array.as_slice::<f32>().map(|x| x.iter().map(|x| x.to_bits()).collect());
    arrays.iter().map(|array| of(array).expect("f32")).collect()
}

#[test]
fn programs_that_keep_values_compute_the_same() {
    for text in ENDS.iter().flat_map(|end| [program(false, end), program(true, end)]) {
        let jaxpr = Arc::new(text.parse::<Jaxpr>().unwrap_or_else(|e| panic!("{e}")));
        let args = || vec![numbers(&[64, 128]), numbers(&[64, 128, 30])];
        let run =
            |device: &dyn Device| device.compile(&jaxpr).and_then(|program| program.run(args())).expect("it runs");
        let expected = run(&Reference);
        for threads in [1, 3] {
            let got = run(&Cpu::with_threads(threads).expect("threads"));
            assert!(bits(&got) == bits(&expected), "{threads} threads: {text}");
        }
    }
}

/// The gradient of a normalisation of channels. Where loops are to be apart, barriers are between them.
fn normalisation(are_apart: bool) -> String {
    let barrier = |x: &str| match are_apart {
        true => format!("{x} _:f32[] = optimization_barrier {}0 z", &x[..1]),
        false => format!("{x} = mul {}0 1.0:f32[]", &x[..1]),
    };
    let text = format!(
        "{{ lambda ; g:IMAGES x:IMAGES y:IMAGES m:f32[64] r:f32[64] w:f32[64] z:f32[]. let
          p:BOOLS = gt y 0.0:f32[]
          no:IMAGES = broadcast_in_dim[broadcast_dimensions=() shape=(2, 64, 37, 37)] 0.0:f32[]
          a0:IMAGES = select_n p no g
          {}
          mm:IMAGES = OF_CHANNEL m
          rr:IMAGES = OF_CHANNEL r
          ww:IMAGES = OF_CHANNEL w
          d:IMAGES = sub x mm
          e:IMAGES = mul d rr
          f:IMAGES = mul a e
          b0:f32[64] = SUM a
          {}
          v0:f32[64] = SUM f
          {}
          vv:IMAGES = OF_CHANNEL v
          h:IMAGES = mul a ww
          i:IMAGES = mul vv d
          j0:IMAGES = sub h i
          {}
          s0:f32[64] = SUM j
          {}
          t:f32[64] = div s 2738.0:f32[]
          tt:IMAGES = OF_CHANNEL t
          o:IMAGES = sub j tt
          q:IMAGES = cummax[axis=3 reverse=False] o
        in (q, b, v) }}",
        barrier("a:IMAGES"),
        barrier("b:f32[64]"),
        barrier("v:f32[64]"),
        barrier("j:IMAGES"),
        barrier("s:f32[64]")
    );
    let text = text.replace("IMAGES", "f32[2,64,37,37]").replace("BOOLS", "bool[2,64,37,37]");
    let text = text.replace("OF_CHANNEL", "broadcast_in_dim[broadcast_dimensions=(1,) shape=(2, 64, 37, 37)]");
    text.replace("SUM", "reduce_sum[axes=(0, 2, 3)]")
}

#[test]
fn loops_in_blocks_have_the_bits_and_no_more_memory_than_apart() {
    let compiled = [true, false].map(|are_apart| {
        let jaxpr: Jaxpr = normalisation(are_apart).parse().unwrap_or_else(|e| panic!("{e}"));
        let threads = Threads::new(2).expect("two threads");
        let counts = |planned: &Planned<'_>| {
            Ok((planned.text(&threads, 0)?.matches("blocks[").count(), planned.keeping.plan.arena))
        };
        plan_with(&jaxpr, Caller::User, &threads, |planned, _| counts(planned)).expect("it is planned")
    });
    assert_eq!((compiled[0].0, compiled[1].0), (0, 1));
    assert!(compiled[1].1 <= compiled[0].1, "{compiled:?}");
    let image = || numbers(&[2, 64, 37, 37]);
    let args = || vec![image(), image(), image(), numbers(&[64]), numbers(&[64]), numbers(&[64]), numbers(&[])];
    let results = |are_apart: bool, threads: usize| {
        let jaxpr = Arc::new(normalisation(are_apart).parse::<Jaxpr>().unwrap_or_else(|e| panic!("{e}")));
        let program = Cpu::with_threads(threads).and_then(|cpu| cpu.compile(&jaxpr)).expect("it compiles");
        let held = args();
        let first = bits(&program.run(held.clone()).expect("it runs"));
        // The second run may take the memory of its arguments.
        assert!(first == bits(&program.run(args()).expect("it runs")) && bits(&held) == bits(&args()));
        first
    };
    let expected = results(true, 1);
    for threads in [1, 2, 3] {
        assert!(results(false, threads) == expected, "{threads} threads");
    }
}
