//! Scans that are unrolled give what they gave, in every bit.

use remat_ir::{Array, Call, Jaxpr, Op, eval};
use remat_opt::pipeline::{CPU, run};

fn numbers(n: usize, from: f32) -> Vec<f32> {
    (0..n).map(|i| from + 0.3 * i as f32).collect()
}

fn bits(arrays: &[Array]) -> Vec<Vec<u32>> {
    let of = |x: &Array| x.as_slice::<f32>().expect("floats").iter().map(|x| x.to_bits()).collect();
    arrays.iter().map(of).collect()
}

fn loops(jaxpr: &Jaxpr) -> usize {
    jaxpr.eqns.iter().filter(|eqn| matches!(eqn.op, Op::Call(Call::Scan(_)))).count()
}

#[test]
fn unrolled_scans_give_the_same_bits() {
    let text = "{ lambda ; k:f32[2] a:f32[2] b:f32[LENGTH,2] c:f32[LENGTH]. let
        d:f32[2] e:f32[LENGTH,2] f:f32[LENGTH] = scan[
          jaxpr={ lambda ; k:f32[2] a:f32[2] b:f32[2] c:f32[]. let
              l:f32[2] = mul a k
              m:f32[2] = jit[name=add jaxpr={ lambda ; a:f32[2] b:f32[2]. let c:f32[2] = add a b in (c,) }] l b
              n:f32[2] = mul m c
              o:f32[] = reduce_sum[axes=(0,)] n
            in (n, m, o) }
          length=LENGTH num_carry=1 num_consts=1 reverse=REVERSE unroll=UNROLL
        ] k a b c
      in (d, e, f) }";
    for length in 0..8 {
        for reverse in ["False", "True"] {
            for unroll in 1..10 {
                let text = text.replace("LENGTH", &length.to_string());
                let text = text.replace("REVERSE", reverse).replace("UNROLL", &unroll.to_string());
                let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
                let array = |values: Vec<f32>, shape: &[usize]| {
                    Array::from_vec(values, shape.iter().copied()).unwrap_or_else(|e| panic!("{e}"))
                };
                let args = [
                    array(numbers(2, 0.7), &[2]),
                    array(numbers(2, 1.1), &[2]),
                    array(numbers(2 * length, -1.0), &[length, 2]),
                    array(numbers(length, 0.2), &[length]),
                ];
                let expected = eval(&jaxpr, args.to_vec()).unwrap_or_else(|e| panic!("{e}"));
                let program = run(CPU, &jaxpr).unwrap_or_else(|e| panic!("{e}"));
                let got = eval(&program, args.to_vec()).unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(bits(&got), bits(&expected), "{length} {reverse} {unroll}");
                let is_loop = length == 0 || unroll < length.max(2);
                assert_eq!(loops(&program), usize::from(is_loop), "{length} {reverse} {unroll}: {program}");
            }
        }
    }
}
