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

#[test]
fn programs_that_keep_values_compute_the_same() {
    let numbers = |shape: &[usize]| {
        let bits = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9) >> 8;
        let elements: Vec<f32> = (0..shape.iter().product()).map(|i| bits(i) as f32 / (1 << 24) as f32 - 0.5).collect();
        Array::from_vec(elements, shape.iter().copied()).expect("as many elements")
    };
    for text in ENDS.iter().flat_map(|end| [program(false, end), program(true, end)]) {
        let jaxpr = Arc::new(text.parse::<Jaxpr>().unwrap_or_else(|e| panic!("{e}")));
        let args = || vec![numbers(&[64, 128]), numbers(&[64, 128, 30])];
        let run =
            |device: &dyn Device| device.compile(&jaxpr).and_then(|program| program.run(args())).expect("it runs");
        let expected = run(&Reference);
        for threads in [1, 3] {
            let got = run(&Cpu::with_threads(threads).expect("threads"));
            let bits = |arrays: &[Array]| -> Vec<Vec<u32>> {
                let of = |array: &Array| array.as_slice::<f32>().map(|x| x.iter().map(|x| x.to_bits()).collect());
                arrays.iter().map(|array| of(array).expect("f32")).collect()
            };
            assert!(bits(&got) == bits(&expected), "{threads} threads: {text}");
        }
    }
}
