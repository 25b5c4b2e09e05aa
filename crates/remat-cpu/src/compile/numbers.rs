//! Value numbering (Alpern, Wegman and Zadeck 1988), for reports: which variables of a program hold the same elements.

use std::collections::HashMap;

use remat_ir::{Atom, Jaxpr, Literal, Op, Prim, Var, VarMap};

use crate::steps::{Step, Steps};

/// An operand: the number of a variable, or a literal.
#[derive(PartialEq, Eq, Hash)]
enum Operand {
    Number(usize),
    Literal(Literal),
}

/// As [`of_program`], also for the variables of steps that run again.
pub(super) fn numbers(steps: &Steps) -> (VarMap<Option<usize>>, usize) {
    let (mut numbers, unused) = of_program(&steps.jaxpr);
    for step in &steps.steps {
        let mut same = |var: Var, result: Option<&Var>| {
            numbers[var] = numbers[var].or_else(|| numbers[*result?]);
        };
        if let Step::Equation { eqn, outs, .. } = step {
            let results = &steps.eqn(*eqn).outs;
            outs.iter().enumerate().for_each(|(i, &out)| same(out, results.get(i)));
        }
        for member in step.fused_loops().iter().flat_map(|fused_loop| &fused_loop.members) {
            same(member.out, steps.eqn(member.eqn).outs.first());
        }
    }
    (numbers, unused)
}

/// The number of each variable that is defined, and the first number that none of them has. Variables with one number are results of equal
/// operations of equal operands. A barrier does not change a value, and what is on both sides of it is merged nowhere else.
fn of_program(jaxpr: &Jaxpr) -> (VarMap<Option<usize>>, usize) {
    let mut numbers: VarMap<Option<usize>> = VarMap::filled(jaxpr.avals.len(), None);
    let mut unused = 0;
    let mut new = || {
        unused += 1;
        unused - 1
    };
    for &input in &jaxpr.ins {
        numbers[input] = Some(new());
    }
    let mut seen: HashMap<(&Op, Vec<Operand>), Vec<usize>> = HashMap::new();
    for eqn in &jaxpr.eqns {
        let operand = |numbers: &VarMap<Option<usize>>, atom: Atom| match atom {
            Atom::Var(var) => numbers[var].map(Operand::Number),
            Atom::Lit(literal) => Some(Operand::Literal(literal)),
        };
        if let Op::Prim(Prim::OptimizationBarrier(_) | Prim::Name(_)) = eqn.op {
            for (&out, &atom) in eqn.outs.iter().zip(&eqn.ins) {
                numbers[out] = match atom {
                    Atom::Var(var) => numbers[var],
                    Atom::Lit(_) => Some(new()),
                };
            }
            continue;
        }
        // A well-formed program defines its operands.
        let Some(operands) = eqn.ins.iter().map(|&atom| operand(&numbers, atom)).collect::<Option<Vec<_>>>() else {
            continue;
        };
        let of = seen.entry((&eqn.op, operands)).or_insert_with(|| eqn.outs.iter().map(|_| new()).collect());
        for (&out, &number) in eqn.outs.iter().zip(&*of) {
            numbers[out] = Some(number);
        }
    }
    (numbers, unused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_behind_a_barrier_have_the_number_of_the_first() {
        let text = "{ lambda ; a:f32[4] b:f32[4]. let
            c:f32[4] = exp a
            d:f32[4] = mul c b
            e:f32[4] f:f32[4] = optimization_barrier a d
            g:f32[4] = exp e
            h:f32[4] = mul g b
            i:f32[4] = mul g f
          in (h, i) }";
        let program: Jaxpr = text.parse().expect("a program");
        let (numbers, unused) = of_program(&program);
        let of = |eqn: usize| program.eqns[eqn].outs.iter().map(|&out| numbers[out]).collect::<Vec<_>>();
        // a 0, b 1, exp 2, mul 3, and the last product 4.
        let expected = [vec![2], vec![3], vec![0, 3], vec![2], vec![3], vec![4]];
        assert_eq!([0, 1, 2, 3, 4, 5].map(of), expected.map(|list| list.into_iter().map(Some).collect::<Vec<_>>()));
        assert_eq!(unused, 5);
    }
}
