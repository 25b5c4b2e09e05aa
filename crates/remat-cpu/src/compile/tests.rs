//! Which values loops compute again, by the memory that is left.

use remat_ir::Jaxpr;
use remat_kernels::Threads;
use remat_opt::pipeline;

use super::*;

/// A program whose value `c` is read at once and many steps later, where the engine computes it again from `b` and `x`, which are in memory then. The prefix sums of an
/// array thirty times as large are computed before all others, or between those two.
fn program(is_between: bool) -> String {
    let large = |of: &str| {
        format!(
            "q:f32[64,128,30] = broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(64, 128, 30)] {of}
            r:f32[64,128,30] = mul q y
            l:f32[64,128,30] = cumsum[axis=0 reverse=False] r
            m:f32[64,128] = reduce_max[axes=(2,)] l"
        )
    };
    let (before, between, of) = if is_between { ("".into(), large("f"), "m") } else { (large("x"), "".into(), "f") };
    format!(
        "{{ lambda ; x:f32[64,128] y:f32[64,128,30]. let
            {before}
            b:f32[64,128] = cumsum[axis=0 reverse=False] x
            c:f32[64,128] = add b x
            d:f32[64,128] = cumsum[axis=0 reverse=False] c
            e:f32[64,128] = cumsum[axis=1 reverse=False] d
            f:f32[64,128] = cumsum[axis=0 reverse=False] e
            {between}
            g:f32[64,128] = cumsum[axis=1 reverse=False] {of}
            h:f32[64,128] = cumsum[axis=0 reverse=False] g
            i:f32[64,128] = cumsum[axis=1 reverse=False] h
            j:f32[64,128] = cumsum[axis=0 reverse=False] i
            k:f32[64,128] = cumsum[axis=1 reverse=False] j
            n:f32[64,128] = mul k c
            o:f32[64,128] = cumsum[axis=0 reverse=False] b
            p:f32[64,128] = cumsum[axis=1 reverse=False] x
          in (n, o, p, m) }}"
    )
}

/// The equations that are `add`, and the bytes of the arena: of the steps as they are lowered, and as they are compiled.
fn lowered_and_compiled(text: &str) -> [(usize, usize); 2] {
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let threads = Threads::new(1).expect("one thread");
    let counts = |planned: &Planned<'_>| {
        let text = planned.text(&threads, 0)?;
        Ok((text.matches("= add ").count(), planned.keeping.plan.arena))
    };
    let steps = Steps::of(pipeline::run(pipeline::CPU, &jaxpr).expect("it is lowered")).expect("it has steps");
    let lowered = Planned::new(&steps, Caller::User, &threads).and_then(|planned| counts(&planned));
    [lowered, plan_with(&jaxpr, Caller::User, &threads, counts)].map(|counts| counts.expect("it is planned"))
}

#[test]
fn values_are_kept_where_there_is_memory_and_computed_again_where_there_is_none() {
    let [lowered, compiled] = lowered_and_compiled(&program(false));
    assert_eq!((lowered.0, compiled.0), (2, 1));
    assert!(compiled.1 <= lowered.1, "{compiled:?} {lowered:?}");
    let [lowered, compiled] = lowered_and_compiled(&program(true));
    assert_eq!(lowered, compiled);
    assert_eq!(lowered.0, 2);
}
