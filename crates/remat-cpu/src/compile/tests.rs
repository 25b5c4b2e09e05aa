//! Which values loops compute again, by the memory that is left.

use std::rc::Rc;
use std::sync::Arc;

use remat_ir::{Array, CompileOptions, DType, Device, Jaxpr, Reference};
use remat_kernels::Threads;
use remat_opt::pipeline;
use remat_testkit::arrays::{assert_same, plain};

use super::buffers::Buffers;
use super::*;
use crate::{Cpu, arena};

/// A program whose value `c` is read at once and many steps later. The engine computes it again there from `b` and `x`, which are in
/// memory. Running maxima of an array thirty times as large make the peak: before everything else, or between the two reads of `c`. The
/// equations at the end read `k` and `c` and compute `n`.
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
    let counts = |candidate: Candidate<'_>| {
        let text = candidate.text(&threads, 0)?;
        Ok((text.matches("= add ").count(), candidate.keeping.plan.arena))
    };
    let steps = Steps::of(pipeline::run(pipeline::CPU, &jaxpr).expect("it is lowered")).expect("it has steps");
    let subject = Subject {
        jaxpr: &jaxpr,
        caller: Caller::User,
        threads: &threads,
        controls: &Controls::default(),
        constraints: &Constraints::default(),
    };
    let lowered = subject.candidate(steps).and_then(|candidate| subject.within_outputs(candidate)).and_then(counts);
    let compiled = subject.chosen().and_then(|chosen| counts(chosen.candidate));
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

/// The moves of a program: kind, value, bytes and reason.
fn moves_of(text: &str, limit: Option<usize>) -> Vec<(&'static str, String, i64, &'static str)> {
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let options = CompileOptions { memory_limit: limit, ..CompileOptions::default() };
    let moves = Cpu::default().moves(&Arc::new(jaxpr), &options).expect("it is planned").0;
    moves.into_iter().map(|m| (m.kind, m.value.operation.unwrap_or("none").to_string(), m.bytes, m.reason)).collect()
}

/// With less memory, its running sum, which is read early and late, is computed again.
pub(super) const READ_LATE: &str = "{ lambda ; a:f32[64,128]. let
    b:f32[64,128] = cumsum[axis=0 reverse=False] a
    c:f32[64,128] = cummax[axis=1 reverse=False] b
    d:f32[64,128] = cummax[axis=0 reverse=True] c
    e:f32[64,128] = cummax[axis=1 reverse=True] d
    f:f32[64,128] = mul e c
    g:f32[64,128] = cummax[axis=0 reverse=False] f
    h:f32[64,128] = mul g b
  in (h,) }";

#[test]
fn moves_are_listed_with_what_was_refused() {
    const BYTES: i64 = 64 * 128 * 4;
    let lowered =
        ("recompute", "add".to_string(), -BYTES, "its readers are far away, or its operands have fewer bytes");
    let kept = ("keep", "add".to_string(), BYTES, "there is memory for a value that a loop would compute again");
    assert_eq!(moves_of(&program(false, ENDS[0]), None), [lowered.clone(), kept]);
    // Where there is no memory, keeping the value is not even proposed.
    let text = program(true, ENDS[0]);
    assert_eq!(moves_of(&text, None), [lowered]);
    let jaxpr: Arc<Jaxpr> = Arc::new(READ_LATE.parse().unwrap_or_else(|e| panic!("{e}")));
    let peak = Cpu::default().compile(&jaxpr).expect("it compiles").memory().donated_peak;
    let limited = moves_of(READ_LATE, Some(peak - BYTES as usize));
    let repeated = limited.first().map(|(kind, operation, bytes, _)| (*kind, operation.as_str(), *bytes));
    assert_eq!(repeated, Some(("repeat", "cumsum", -BYTES)), "{limited:?}");
}

#[test]
fn loops_that_would_need_memory_in_blocks_are_refused() {
    let moves = moves_of(&one_of_two(false), None);
    let of =
        |reason: &str| moves.iter().filter(|(kind, _, _, why)| *kind == "block" && why.starts_with(reason)).count();
    assert_eq!([of("there is no memory"), of("loops over one space")], [1, 1], "{moves:?}");
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

/// The gradient of a batch norm for images of this dtype and shape. Barriers keep the loops apart if asked to.
fn normalisation(are_apart: bool, dtype: &str, images: [usize; 4]) -> String {
    let equations = equations_of_normalisation(are_apart);
    let text = format!("{{ lambda ; {OPERANDS}. let {equations} in (q, b, v) }}");
    of_images(&text, dtype, images)
}

/// The same as the body of a loop, whose carry is the gradient.
fn repeated(are_apart: bool) -> String {
    let equations = equations_of_normalisation(are_apart);
    let outer = OPERANDS.split(' ').map(|operand| format!("out{operand}")).collect::<Vec<_>>().join(" ");
    let text = format!(
        "{{ lambda ; {outer}. let
          outq:IMAGES = scan[jaxpr={{ lambda ; {OPERANDS}. let {equations} in (q,) }}
            length=3 num_carry=1 num_consts=6 reverse=False unroll=1] outx outy outm outr outw outz outg
        in (outq,) }}"
    );
    of_images(&text, "f32", [2, 64, 37, 37])
}

const OPERANDS: &str = "x:IMAGES y:IMAGES m:CHANNELS r:CHANNELS w:CHANNELS z:NUMBER g:IMAGES";

fn equations_of_normalisation(are_apart: bool) -> String {
    let barrier = |x: &str| barrier(x, are_apart);
    format!(
        "p:BOOLS = gt y 0.0:NUMBER
          no:IMAGES = broadcast_in_dim[broadcast_dimensions=() shape=SHAPE] 0.0:NUMBER
          a0:IMAGES = select_n p no g
          {}
          mm:IMAGES = OF_CHANNEL m
          rr:IMAGES = OF_CHANNEL r
          ww:IMAGES = OF_CHANNEL w
          d:IMAGES = sub x mm
          e:IMAGES = mul d rr
          f0:IMAGES = mul a e
          {}
          b0:CHANNELS = SUM a
          {}
          v0:CHANNELS = SUM f
          {}
          vv:IMAGES = OF_CHANNEL v
          h:IMAGES = mul a ww
          i:IMAGES = mul vv d
          j0:IMAGES = sub h i
          {}
          s0:CHANNELS = SUM j
          {}
          t:CHANNELS = div s 2048.0:NUMBER
          tt:IMAGES = OF_CHANNEL t
          o:IMAGES = sub j tt
          q:IMAGES = cummax[axis=3 reverse=False] o",
        barrier("a:IMAGES"),
        barrier("f:IMAGES"),
        barrier("b:CHANNELS"),
        barrier("v:CHANNELS"),
        barrier("j:IMAGES"),
        barrier("s:CHANNELS")
    )
}

/// The variable of a one-letter name, from that with a 0 after it.
fn barrier(x: &str, is_there: bool) -> String {
    match is_there {
        true => format!("{x} _:NUMBER = optimization_barrier {}0 z", &x[..1]),
        false => format!("{x} = mul {}0 1.0:NUMBER", &x[..1]),
    }
}

/// An exponential that only a sum and a comparison read: no result can be in its memory.
fn without_an_alias(are_apart: bool) -> String {
    let text = format!(
        "{{ lambda ; x:IMAGES z:NUMBER. let
          e0:IMAGES = exp x
          {}
          s0:CHANNELS = SUM e
          {}
          ss:IMAGES = OF_CHANNEL s
          p:BOOLS = gt e ss
        in (p,) }}",
        barrier("e:IMAGES", are_apart),
        barrier("s:CHANNELS", are_apart)
    );
    of_images(&text, "f32", [2, 64, 37, 37])
}

/// Loops that need more memory in blocks, since a sum reads `c` to its end before the memory of `c` is free for `a`, and loops that do not.
fn one_of_two(are_apart: bool) -> String {
    let barrier = |x: &str| barrier(x, are_apart);
    let text = format!(
        "{{ lambda ; x:IMAGES y:IMAGES z:NUMBER. let
          c:IMAGES = cummax[axis=3 reverse=False] x
          s0:CHANNELS = SUM c
          {}
          ss:IMAGES = OF_CHANNEL s
          a0:IMAGES = mul x ss
          {}
          u0:CHANNELS = SUM a
          {}
          uu:IMAGES = OF_CHANNEL u
          o:IMAGES = sub a uu
          k:IMAGES = cummax[axis=3 reverse=False] o
          r:CHANNELS = SUM k
          e0:IMAGES = exp y
          {}
          t0:CHANNELS = SUM e
          {}
          tt:IMAGES = OF_CHANNEL t
          p:BOOLS = gt e tt
        in (r, p) }}",
        barrier("s:CHANNELS"),
        barrier("a:IMAGES"),
        barrier("u:CHANNELS"),
        barrier("e:IMAGES"),
        barrier("t:CHANNELS")
    );
    of_images(&text, "f32", [2, 64, 37, 37])
}

fn of_images(text: &str, dtype: &str, images: [usize; 4]) -> String {
    let [n, channels, height, width] = images;
    let text = text.replace("OF_CHANNEL", "broadcast_in_dim[broadcast_dimensions=(1,) shape=SHAPE]");
    let text = text.replace("SUM", "reduce_sum[axes=(0, 2, 3)]");
    let text = text.replace("SHAPE", &format!("({n}, {channels}, {height}, {width})"));
    let text = text.replace("BOOLS", &format!("bool[{n},{channels},{height},{width}]"));
    let text = text.replace("IMAGES", &format!("{dtype}[{n},{channels},{height},{width}]"));
    text.replace("CHANNELS", &format!("{dtype}[{channels}]")).replace("NUMBER", &format!("{dtype}[]"))
}

#[test]
fn loops_in_blocks_have_the_bits_and_no_more_memory_than_apart() {
    let images = [2, 64, 37, 37];
    together_and_apart(|are_apart| normalisation(are_apart, "f32", images));
    together_and_apart(|are_apart| normalisation(are_apart, "bf16", images));
    // The fewest channels that qualify.
    together_and_apart(|are_apart| normalisation(are_apart, "f32", [4, 32, 37, 37]));
    together_and_apart(repeated);
    together_and_apart(without_an_alias);
    together_and_apart(one_of_two);
}

#[test]
fn one_program_has_loops_in_blocks_and_joined_loops() {
    let equations = equations_of_normalisation(false);
    let text = format!(
        "{{ lambda ; {OPERANDS}. let {equations}
          c0:IMAGES = exp x
          c1:IMAGES = mul x c0
          c2:IMAGES = cummax[axis=3 reverse=False] c1
          c3:IMAGES = cummax[axis=3 reverse=False] y
          c4:IMAGES = mul c3 c0
          c5:IMAGES = add c4 x
        in (q, c2, c5) }}"
    );
    let jaxpr: Jaxpr = of_images(&text, "f32", [2, 64, 37, 37]).parse().unwrap_or_else(|e| panic!("{e}"));
    let threads = Threads::new(2).expect("two threads");
    let text = listing(&jaxpr, Caller::User, &threads, 0).expect("it is planned");
    assert_eq!([text.matches("blocks[").count(), text.matches(" = exp arg0").count()], [1, 1], "{text}");
}

/// Two loops that compute the same quotient of arguments. Joined, they need memory for both results at one time.
const OF_ARGUMENTS: &str = "a0:ARRAY = div a b
    a1:ARRAY = mul a a0
    a2:ARRAY = MAXIMA a1
    a3:ARRAY = MAXIMA y
    a4:ARRAY = mul a3 a0
    a5:ARRAY = add a4 a
    a6:ARRAY = MAXIMA a5
    a7:f32[1,512] = slice[limit_indices=(1, 512) start_indices=(0, 0) strides=(1, 1)] a2
    a8:f32[1,512] = slice[limit_indices=(1, 512) start_indices=(0, 0) strides=(1, 1)] a6";
/// Two loops that share a quotient of temporaries. Joined, both operands are live while the largest array is computed, instead of the
/// quotient.
const OF_TEMPORARIES: &str = "t0:f32[256,512] = concatenate[dimension=0] a b a b
    t1:ARRAY = slice[limit_indices=(64, 512) start_indices=(0, 0) strides=(1, 1)] t0
    t2:ARRAY = slice[limit_indices=(128, 512) start_indices=(64, 0) strides=(1, 1)] t0
    t3:ARRAY = MAXIMA t1
    t4:ARRAY = MAXIMA t2
    t5:ARRAY = div t3 t4
    t6:ARRAY = mul t3 t5
    t7:ARRAY = MAXIMA t6
    t8:f32[320,512] = concatenate[dimension=0] y y y y y
    t9:f32[320,512] = MAXIMA t8
    u0:ARRAY = slice[limit_indices=(64, 512) start_indices=(0, 0) strides=(1, 1)] t9
    u1:ARRAY = mul u0 t5
    u2:ARRAY = add u1 y
    u3:ARRAY = MAXIMA u2
    u4:f32[1,512] = slice[limit_indices=(1, 512) start_indices=(0, 0) strides=(1, 1)] t7
    u5:f32[1,512] = slice[limit_indices=(1, 512) start_indices=(0, 0) strides=(1, 1)] u3";

#[test]
fn only_the_joins_that_need_memory_are_dropped() {
    let loops = |equations: &str, outs: &str| {
        let text = format!("{{ lambda ; a:ARRAY b:ARRAY y:ARRAY. let {equations} in ({outs}) }}");
        let text = text.replace("MAXIMA", "cummax[axis=0 reverse=False]").replace("ARRAY", "f32[64,512]");
        let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
        let threads = Threads::new(2).expect("two threads");
        listing(&jaxpr, Caller::User, &threads, 0).expect("it is planned").matches("loop[").count()
    };
    assert_eq!(loops(OF_TEMPORARIES, "u4, u5"), 2);
    // The results of the other two loops are not live at the peak.
    assert_eq!(loops(&format!("{OF_TEMPORARIES} {OF_ARGUMENTS}"), "u4, u5, a7, a8"), 3);
}

#[test]
fn a_buffer_belongs_to_one_variable() {
    let text = "{ lambda ; a:f32[4]. let b:f32[4] = cumsum[axis=0 reverse=False] a c:f32[4] = cumsum[axis=0 reverse=True] b in (c,) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let steps = Rc::new(Steps::of(jaxpr).expect("it has steps"));
    let [b, c] = [0, 1].map(|i: usize| steps.jaxpr.eqns[i].outs[0]);
    for (alias, target) in [(b, c), (c, b)] {
        let mut buffers = Buffers::new(&steps);
        buffers.share(alias, target);
        let owners: Vec<_> = buffers.owners().map(|(var, _)| var).collect();
        assert!(owners.contains(&target) && !owners.contains(&alias), "{owners:?}");
        assert_eq!(buffers.of_var(alias), buffers.of_var(target));
    }
}

fn together_and_apart(program: impl Fn(bool) -> String) {
    let [apart, together]: [Jaxpr; 2] =
        [true, false].map(|are_apart| program(are_apart).parse().unwrap_or_else(|e| panic!("{e}")));
    let compiled = [&apart, &together].map(|jaxpr| {
        let threads = Threads::new(2).expect("two threads");
        let (controls, constraints) = (Controls::default(), Constraints::default());
        let subject = Subject::for_user(jaxpr, &threads, &controls, &constraints);
        let candidate = subject.chosen().expect("it is planned").candidate;
        let text = candidate.text(&threads, 0).expect("it has a text");
        (text.matches("blocks[").count(), candidate.keeping.plan.arena)
    });
    assert_eq!((compiled[0].0, compiled[1].0), (0, 1), "{together}");
    assert!(compiled[1].1 <= compiled[0].1, "{compiled:?} {together}");
    let avals = || apart.ins.iter().map(|&var| &apart.avals[var]);
    let args = || (1..).zip(avals()).map(|(seed, aval)| plain(aval.dtype, &aval.shape, seed)).collect::<Vec<_>>();
    let results = |jaxpr: &Jaxpr, threads: usize| {
        let jaxpr = Arc::new(jaxpr.clone());
        let program = Cpu::with_threads(threads).and_then(|cpu| cpu.compile(&jaxpr)).expect("it compiles");
        let held = args();
        let first = program.run(held.clone()).expect("it runs");
        // The second run may take the memory of its arguments.
        let again = program.run(args()).expect("it runs");
        for (one, other) in first.iter().zip(&again).chain(held.iter().zip(&args())) {
            assert_same(one, other, "in a second run");
        }
        first
    };
    let expected = results(&apart, 1);
    for threads in [1, 2, 3] {
        for (result, expected) in results(&together, threads).iter().zip(&expected) {
            assert_same(result, expected, &format!("{threads} threads: {together}"));
        }
    }
}

/// A step of AdamW. The gradient `g` is what the loop reads first.
fn adamw(ins: &str) -> String {
    format!(
        "{{ lambda ; {ins}. let
    a:f32[256,256] = mul 0.1:f32[] g
    b:f32[256,256] = mul 0.9:f32[] m
    n:f32[256,256] = add a b
    c:f32[256,256] = mul g g
    d:f32[256,256] = mul 0.001:f32[] c
    e:f32[256,256] = mul v v
    w:f32[256,256] = add d e
    f:f32[256,256] = sqrt w
    h:f32[256,256] = add f 1e-8:f32[]
    i:f32[256,256] = div n h
    j:f32[256,256] = mul 0.0001:f32[] p
    k:f32[256,256] = add i j
    l:f32[256,256] = mul -0.001:f32[] k
    q:f32[256,256] = add p l
  in (q, n, w) }}"
    )
}

/// The moments are written before the parameter is read for the last time. If one of them takes the gradient, which the caller keeps, another array
/// of the state has none to take.
#[test]
fn an_update_in_place_needs_no_memory_of_its_own() {
    const ARRAY: usize = 256 * 256 * 4;
    for names in [["p", "m", "v", "g"], ["g", "v", "m", "p"]] {
        let ins = names.map(|name| format!("{name}:f32[256,256]")).join(" ");
        let jaxpr: Arc<Jaxpr> = Arc::new(adamw(&ins).parse().unwrap_or_else(|e| panic!("{e}")));
        let donated: Vec<bool> = names.iter().map(|&name| name != "g").collect();
        let options = CompileOptions { donated: donated.clone(), ..CompileOptions::default() };
        let program = Cpu::with_threads(2).and_then(|cpu| cpu.compile_with(&jaxpr, &options)).expect("it compiles");
        let memory = program.memory_where_donated(&donated);
        assert_eq!((memory.outputs, memory.arguments), (0, 4 * ARRAY), "{ins}");
        assert_eq!(memory.peak, memory.arguments + memory.temporaries + memory.overhead, "{ins}");
        assert_eq!(program.memory().outputs, 3 * ARRAY);
        let arrays = || names.map(|name| plain(DType::F32, &[256, 256], u64::from(name.as_bytes()[0])));
        let kept = arrays();
        let expected = program.run(kept.to_vec()).expect("it runs");
        let given = arrays();
        let gradient = names.iter().position(|&name| name == "g").map(|at| given[at].clone());
        let before = given.each_ref().map(|x| arena::start(x.data()));
        let results = program.run(given.into()).expect("it runs");
        for result in &results {
            let taken = before.iter().position(|&start| start == arena::start(result.data()));
            assert!(taken.is_some_and(|at| donated[at]), "{ins}");
        }
        expected.iter().zip(&results).for_each(|(expected, got)| assert_same(got, expected, &ins));
        drop(gradient);
    }
}
