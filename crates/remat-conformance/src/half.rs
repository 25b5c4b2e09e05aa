//! By how many units in the last place of half precision the results of a program may differ.
//!
//! Engine and evaluator compute every operation on f16 and bf16 in f32, by sums in another order or by other functions, and round its result
//! once. Close numbers are rounded to the same number or to neighbours, which adds at most one unit. If an operand differs already, so does
//! the result, and is rounded again. So differences grow by at most one unit for each rounding between an argument and a result, as long as
//! operations do not magnify them beyond the scale of the largest number. An operation that computes the same bits everywhere adds nothing
//! if its operands have the same bits.
//!
//! Attention adds two units: on a unit for bf16 products, its weights and the cotangents of its scores are rounded as well, each by half a
//! unit (docs/DESIGN.md, "Bits depend on the CPU").
//!
//! Roundings of a long program go up as often as down, so `n` of them add up to about the square root of `n` units, and seldom to twice as
//! many. Source: Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM Journal on Scientific Computing, 2019.

use remat_ir::{Atom, Call, Class, DType, Eqn, Jaxpr, Op, Prim, VarMap};

use crate::closeness::{Closeness, of_operation};

/// The most iterations of a scan that are counted: more roundings allow no difference that a test would notice.
const ITERATIONS: usize = 64;

/// The iterations of a `while` that are counted: the programs of the suite have no more.
const WHILE_ITERATIONS: usize = 4;

/// The most units by which a result may differ.
pub(crate) fn units(jaxpr: &Jaxpr) -> f64 {
    let roundings = f64::from(of_results(jaxpr, None).unwrap_or(0));
    roundings.min(2.0 * roundings.sqrt())
}

/// The most roundings on the way to a value; none if the value has the same bits everywhere.
type Roundings = Option<u32>;

/// The most of the results, if the arguments have these.
fn of_results(jaxpr: &Jaxpr, args: Roundings) -> Roundings {
    let mut vars = VarMap::filled(jaxpr.avals.len(), None);
    jaxpr.ins.iter().for_each(|&var| vars[var] = args);
    for eqn in &jaxpr.eqns {
        let outs = of_equation(jaxpr, eqn, most(&eqn.ins, &vars));
        eqn.outs.iter().for_each(|&var| vars[var] = outs);
    }
    most(&jaxpr.outs, &vars)
}

fn most(atoms: &[Atom], vars: &VarMap<Roundings>) -> Roundings {
    atoms.iter().filter_map(|atom| atom.var()).map(|var| vars[var]).max().flatten()
}

/// The most of the results of an equation whose operands have these.
fn of_equation(jaxpr: &Jaxpr, eqn: &Eqn, ins: Roundings) -> Roundings {
    if let Op::Call(call) = &eqn.op {
        let once = |ins| call.bodies().into_iter().map(|body| of_results(body, ins)).fold(ins, Roundings::max);
        let times = match call {
            Call::Scan(scan) => scan.length.min(ITERATIONS),
            Call::While(_) => WHILE_ITERATIONS,
            _ => 1,
        };
        return (0..times).fold(ins, |ins, _| once(ins));
    }
    let is_exact = of_operation(&eqn.op) == Closeness::Exact;
    let rounds = !is_exact || !matches!(eqn.op.class(), Class::Marker | Class::View | Class::Movement);
    let own = match &eqn.op {
        _ if is_exact && ins.is_none() => return None,
        _ if !eqn.outs.iter().any(|&var| is_half(jaxpr.avals[var].dtype)) => 0,
        Op::Prim(
            Prim::DotProductAttention(_) | Prim::DotProductAttentionTangent(_) | Prim::DotProductAttentionCotangent(_),
        ) => 2,
        _ => u32::from(rounds),
    };
    Some(ins.unwrap_or(0) + own)
}

pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16)
}

#[cfg(test)]
mod tests {
    use remat::nn::{AttentionConfig, dot_product_attention};
    use remat::{DType, Result, Tensor, make_jaxpr, scan};

    use super::units;

    /// Units of the results of a function of one argument of this dtype and of two axes.
    fn of(dtype: DType, f: impl Fn(&Tensor) -> Tensor) -> f64 {
        let traced = make_jaxpr(|x: &Tensor| Ok::<_, remat::Error>(f(x)))(&Tensor::ones([4, 4], dtype));
        units(&traced.expect("it is traced").jaxpr)
    }

    #[test]
    fn each_rounding_after_the_first_inexact_operation_adds_one() {
        for dtype in [DType::Bf16, DType::F16] {
            assert_eq!(of(dtype, |x| x * 3.0 + x), 0.0);
            assert_eq!(of(dtype, |x| x.matmul(x)), 1.0);
            assert_eq!(of(dtype, |x| x.matmul(x).transpose([1, 0])), 1.0);
            assert_eq!(of(dtype, |x| (x * 3.0).matmul(x) + x.exp()), 2.0);
            assert_eq!(of(dtype, |x| x.to_dtype(DType::F32).exp().sin().to_dtype(dtype)), 1.0);
        }
        assert_eq!(of(DType::F32, |x| x.matmul(x).exp()), 0.0);
    }

    #[test]
    fn attention_adds_two_and_loops_add_in_each_iteration() -> Result<()> {
        let attention = |x: &Tensor| {
            let x = x.reshape([4, 2, 2]);
            dot_product_attention(&x, &x, &x, &AttentionConfig::default())
        };
        assert_eq!(of(DType::Bf16, attention), 2.0);
        let powers = |x: &Tensor| {
            let step = |h: &Tensor, x: &Tensor| (h.matmul(x), h.clone());
            scan(step, x, &x.broadcast_to([9, 4, 4])).expect("it is traced").0
        };
        assert_eq!(of(DType::Bf16, powers), 6.0);
        Ok(())
    }
}
