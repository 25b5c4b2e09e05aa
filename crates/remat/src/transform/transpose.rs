//! Transposition of linear programs: the backward pass.
//!
//! ```text
//! transpose : { lambda ; a b. -> c d }, linear in b  ×  which of (c, d) have a cotangent
//!           → { lambda ; a c^ d^. -> b^ }
//! ```
//!
//! The program is first split by partial evaluation. Everything that does not depend on the linear inputs is computed; then the linear
//! equations are visited backwards, each passing cotangents to its linear operands.

use remat_ir::{Atom, Aval, Builder, Jaxpr, Op, Result, Role};

use super::partial_eval::{Saving, partial_eval};
use super::{Env, checked, control, count, expect_mask, memo, read};
use crate::rules::{Emit, Operand, rules_of};

/// A transposed program.
#[derive(Clone, Debug)]
pub struct Transposed {
    /// The inputs are the known inputs, then the cotangents of the outputs that have one. The outputs are the nonzero cotangents of the
    /// linear inputs.
    pub jaxpr: Jaxpr,
    /// The linear inputs that have a cotangent.
    pub nonzero: Vec<bool>,
}

/// Transposes a program that is linear in the inputs `linear`. `cotangents` selects the outputs that have a cotangent; with `instantiate`
/// all linear inputs get one, of zeros if necessary.
///
/// ```
/// use remat::ir::Jaxpr;
/// use remat::transform::transpose;
/// let scale: Jaxpr = "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = mul a b in (c,) }".parse()?;
/// let back = transpose(&scale, &[false, true], &[true], true)?;
/// assert_eq!(back.jaxpr.to_string(), "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = mul a b in (c,) }");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the program is not linear in these inputs.
pub fn transpose(jaxpr: &Jaxpr, linear: &[bool], cotangents: &[bool], instantiate: bool) -> Result<Transposed> {
    expect_mask("transpose", "input", linear, jaxpr.ins.len())?;
    expect_mask("transpose", "output", cotangents, jaxpr.outs.len())?;
    let _open = memo::open();
    let all_unknown = vec![true; jaxpr.outs.len()];
    let split = partial_eval(jaxpr, linear, &all_unknown, Saving::Linear)?;
    let staged = &split.staged;
    let mut b = Builder::new();
    let known_ins = b.inputs(jaxpr.ins.iter().zip(linear).filter(|(_, l)| !**l).map(|(&v, _)| jaxpr.avals[v].clone()));
    let ct_ins = b.inputs(jaxpr.outs.iter().zip(cotangents).filter(|(_, c)| **c).map(|(&a, _)| jaxpr.atom_aval(a)));
    let known_outs = b.inline(&split.known, &known_ins)?;

    let mut known: Env = staged.var_map(None);
    let mut residuals = split.residual_atoms(&known_ins, &known_outs).into_iter();
    for &var in &staged.ins[..split.residuals.len()] {
        known[var] = residuals.next();
    }
    let mut cts: Env = staged.var_map(None);
    let mut ct_ins = ct_ins.into_iter();
    for (&atom, &has) in staged.outs.iter().zip(cotangents) {
        let ct = if has { ct_ins.next() } else { None };
        // A known output is constant in the linear inputs, so its cotangent contributes nothing.
        if let (Atom::Var(var), Some(ct)) = (atom, ct)
            && known[var].is_none()
        {
            cts[var] = b.add_any(cts[var], Some(ct))?;
        }
    }
    backward(&mut b, staged, &mut known, &mut cts)?;

    let mut outs = Vec::new();
    let mut nonzero = Vec::with_capacity(count(linear));
    for &var in &staged.ins[split.residuals.len()..] {
        let ct = if instantiate { Some(b.instantiate(cts[var], &staged.avals[var])?) } else { cts[var] };
        nonzero.push(ct.is_some());
        outs.extend(ct);
    }
    Ok(Transposed { jaxpr: checked(b.finish(outs))?, nonzero })
}

/// Computes the equations of known variables in order, then visits the linear ones backwards.
fn backward(b: &mut Builder, staged: &Jaxpr, known: &mut Env, cts: &mut Env) -> Result<()> {
    let mut linear_eqns = Vec::new();
    for eqn in &staged.eqns {
        if let Ok(ins) = eqn.ins.iter().map(|&a| read(known, a)).collect::<Result<Vec<Atom>>>() {
            let avals = eqn.outs.iter().map(|&v| staged.avals[v].clone());
            let outs = b.push(eqn.op.clone(), &ins, avals, eqn.loc);
            for (&var, out) in eqn.outs.iter().zip(outs) {
                known[var] = Some(Atom::Var(out));
            }
        } else {
            linear_eqns.push(eqn);
        }
    }
    b.role = Role::Derivative;
    for eqn in linear_eqns.into_iter().rev() {
        let out_cts: Vec<Option<Atom>> = eqn.outs.iter().map(|&v| cts[v]).collect();
        if out_cts.iter().all(Option::is_none) {
            continue;
        }
        b.loc = eqn.loc;
        let ins: Vec<Operand> = eqn
            .ins
            .iter()
            .map(|&a| match read(known, a) {
                Ok(atom) => Operand::Known(atom),
                Err(_) => Operand::Linear(staged.atom_aval(a)),
            })
            .collect();
        let in_cts = match &eqn.op {
            Op::Prim(op) => rules_of(op).write_transpose(b, &out_cts, &ins),
            Op::Call(op) => {
                let out_avals: Vec<Aval> = eqn.outs.iter().map(|&v| staged.avals[v].clone()).collect();
                control::transpose(b, op, &out_cts, &out_avals, &ins)
            }
        }
        .map_err(|e| e.at(eqn.loc))?;
        for ((&atom, operand), ct) in eqn.ins.iter().zip(&ins).zip(in_cts) {
            if let (Atom::Var(var), true) = (atom, operand.is_linear()) {
                cts[var] = b.add_any(cts[var], ct)?;
            }
        }
    }
    b.role = Role::Written;
    Ok(())
}
