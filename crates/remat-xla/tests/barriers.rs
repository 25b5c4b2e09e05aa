//! What went through a barrier and is read again, in another order.
//!
//! XLA:CPU gives operand and result of a barrier one buffer, over which a fused loop may write while it reads the operand.

mod support;

use std::sync::Arc;

use remat_ir::{Array, Device, Executable, Jaxpr, Value, eval};
use remat_xla::Xla;

/// The size of matrices: large enough that a loop is not unrolled.
const N: usize = 64;

/// A program of a matrix `x` and its square `y`, which is no argument. `M` is the type of a matrix.
fn program(equations: &str, outs: &str) -> Jaxpr {
    let text = format!(
        "{{ lambda ; x:M. let y:M = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] x x
           {equations} in ({outs}) }}"
    );
    let text = text.replace(":M", &format!(":f32[{N},{N}]")).replace("TRANSPOSE", "transpose[permutation=(1, 0)]");
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn matrix() -> Array {
    let element = |i: usize| ((i * 7919) % 1013) as f32 / 4052.0 - 0.125;
    Array::from_vec((0..N * N).map(element).collect(), [N, N]).unwrap()
}

/// The elements that are not those of the evaluator, with the argument kept and donated.
fn wrong(xla: &Xla, jaxpr: Jaxpr) -> [usize; 2] {
    let expected = eval(&jaxpr, vec![matrix()]).unwrap();
    let executable = xla.compile(&Arc::new(jaxpr)).unwrap();
    let kept = xla.put(&matrix()).unwrap();
    let runs = [vec![kept.clone()], vec![xla.put(&matrix()).unwrap()]];
    runs.map(|args| differences(&*executable, args, &expected))
}

fn differences(executable: &dyn Executable, args: Vec<Value>, expected: &[Array]) -> usize {
    let got = executable.execute(args).unwrap();
    let pairs = got.into_iter().map(|value| value.into_host().unwrap()).zip(expected);
    pairs
        .map(|(got, expected)| {
            let (got, expected) = (got.as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap());
            got.iter().zip(expected).filter(|(a, b)| (**a - **b).abs() > 1e-4 * b.abs().max(1.0)).count()
        })
        .sum()
}

#[test]
fn operands_of_barriers_are_read_again() {
    let Some(xla) = support::xla() else { return };
    let region = |name: &str, operands: &str| {
        format!(
            "{name}:M = checkpoint[differentiated=True jaxpr={{ lambda ; a:M b:M. let c:M = sin a; d:M = mul c b in (d,) }} policy=Nothing] {operands}"
        )
    };
    let (twice, again) = (region("r", "y x"), region("q", "y r"));
    let cases = [
        ("the operand itself", "z:M = optimization_barrier y; c:M = cos z; t:M = TRANSPOSE y; o:M = add c t", "o"),
        ("an argument", "z:M = optimization_barrier x; c:M = cos z; t:M = TRANSPOSE x; o:M = add c t", "o"),
        ("flipped", "z:M = optimization_barrier y; c:M = cos z; t:M = rev[dimensions=(0, 1)] y; o:M = add c t", "o"),
        ("a view before", "t:M = TRANSPOSE y; z:M = optimization_barrier y; c:M = cos z; o:M = add c t", "o"),
        (
            "views of views before",
            "s:M = rev[dimensions=(0,)] y; t:M = TRANSPOSE s; z:M = optimization_barrier y; c:M = cos z; o:M = add c t",
            "o",
        ),
        (
            "a view of what was computed before",
            "u:M = mul y 2.0:f32[]; t:M = TRANSPOSE u; z:M = optimization_barrier y; c:M = cos z; o:M = add c t",
            "o",
        ),
        (
            "what was computed from a view before",
            "t:M = TRANSPOSE y; u:M = mul t 2.0:f32[]; z:M = optimization_barrier y; c:M = cos z; o:M = add c u",
            "o",
        ),
        (
            "both of what was computed before and its view",
            "u:M = mul y 2.0:f32[]; t:M = TRANSPOSE u; z:M = optimization_barrier y; c:M = cos z; o:M = add c u; p:M = mul o t",
            "p",
        ),
        ("a barrier of the view", "t:M = TRANSPOSE y; z:M = optimization_barrier t; c:M = cos z; o:M = add c y", "o"),
        (
            "a barrier of both",
            "t:M = TRANSPOSE y; z:M w:M = optimization_barrier y t; c:M = cos z; o:M = add c w",
            "o",
        ),
        (
            "a barrier of the same value twice",
            "z:M w:M = optimization_barrier y y; c:M = cos z; t:M = TRANSPOSE w; o:M = add c t",
            "o",
        ),
        (
            "two barriers",
            "z:M = optimization_barrier y; w:M = optimization_barrier y; c:M = cos z; t:M = TRANSPOSE w; o:M = add c t",
            "o",
        ),
        (
            "reduced",
            "z:M = optimization_barrier y; c:M = cos z; s:f32[64] = reduce_sum[axes=(0,)] y
             b:M = broadcast_in_dim[broadcast_dimensions=(0,) shape=(64, 64)] s; o:M = add c b",
            "o",
        ),
        (
            "rolled",
            "z:M = optimization_barrier y; c:M = cos z; a:f32[60,64] = slice[limit_indices=(64, 64) start_indices=(4, 0) strides=(1, 1)] y
             b:f32[4,64] = slice[limit_indices=(4, 64) start_indices=(0, 0) strides=(1, 1)] y
             t:M = concatenate[dimension=0] a b; o:M = add c t",
            "o",
        ),
        ("a region", &format!("{twice}; t:M = TRANSPOSE y; o:M = add r t"), "o"),
        ("regions", &format!("{twice}; {again}; t:M = TRANSPOSE y; o:M = add q t; p:M = TRANSPOSE x; s:M = mul o p"), "s"),
        (
            "in a loop, of a carry",
            "o:M = scan[jaxpr={ lambda ; a:M. let z:M = optimization_barrier a; c:M = cos z; t:M = TRANSPOSE a; e:M = add c t
               f:M = mul e 0.25:f32[] in (f,) } length=3 num_carry=1 num_consts=0 reverse=False unroll=1] y",
            "o",
        ),
        (
            "in a loop, of a constant",
            "o:M = scan[jaxpr={ lambda ; k:M a:M. let z:M = optimization_barrier k; c:M = cos z; t:M = TRANSPOSE k; e:M = add c t
               f:M = mul e a in (f,) } length=3 num_carry=1 num_consts=1 reverse=False unroll=1] y x; p:M = TRANSPOSE y; s:M = add o p",
            "s",
        ),
        (
            "in a branch",
            "i:i32[] = convert_element_type[new_dtype=int32] 0.0:f32[]
             o:M = cond[branches=({ lambda ; a:M b:M. let z:M = optimization_barrier a; c:M = cos z; t:M = TRANSPOSE b; e:M = add c t in (e,) }
               { lambda ; a:M b:M. let  in (a,) })] i y y; p:M = TRANSPOSE y; s:M = add o p",
            "s",
        ),
        ("as a result", "z:M = optimization_barrier y; c:M = cos z; t:M = TRANSPOSE y; o:M = add c t", "o, y, z"),
    ];
    let mut failures = Vec::new();
    for (name, equations, outs) in cases {
        let found = wrong(&xla, program(equations, outs));
        if found != [0, 0] {
            failures
                .push(format!("{name}: {found:?} of {} elements are wrong with a kept and a donated argument", N * N));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// XLA computes the operand of an extremum in each loop that reads it, with and without a fused multiplication and addition.
#[test]
fn extrema_are_elements_of_their_operands() {
    let Some(xla) = support::xla() else { return };
    let operand = "i:f32[4096] = iota[dimension=0 dtype=float32 shape=(4096,)]; j:M = reshape[new_sizes=(64, 64)] i; k:M = mul j 0.00137:f32[]
         l:M = mul x 1.29:f32[]; m:M = add l 0.14:f32[]; n:M = add m k";
    let masks = |equations: &str| {
        let jaxpr = program(&format!("{operand}; {equations}"), "o, p");
        let executable = xla.compile(&Arc::new(jaxpr)).unwrap();
        let mut results = executable.run(vec![matrix()]).unwrap();
        let mask = results.pop().unwrap().as_slice::<bool>().unwrap().to_vec();
        (results.pop().unwrap().as_slice::<f32>().unwrap().to_vec(), mask)
    };
    for (kind, axis) in [("cummin", 1), ("cummax", 1), ("cummin", 0)] {
        let (extrema, mask) = masks(&format!("o:M = {kind}[axis={axis} reverse=False] n; p:bool[64,64] = eq n o"));
        let step = if axis == 1 { 1 } else { N };
        let is_new = |at: usize| (at / step).is_multiple_of(N) || extrema[at] != extrema[at - step];
        let missed = (0..N * N).filter(|&at| is_new(at) && !mask[at]).count();
        assert_eq!(missed, 0, "{kind} along axis {axis}");
    }
    for kind in ["reduce_max", "reduce_min"] {
        let order = if kind == "reduce_max" { "lt" } else { "gt" };
        let (_, loses) = masks(&format!(
            "q:f32[64] = {kind}[axes=(1,)] n; o:M = broadcast_in_dim[broadcast_dimensions=(0,) shape=(64, 64)] q; p:bool[64,64] = {order} n o"
        ));
        let missed = loses.chunks(N).filter(|row| row.iter().all(|loses| *loses)).count();
        assert_eq!(missed, 0, "{kind}");
    }
}
