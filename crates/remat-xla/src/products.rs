//! Products that a loop waits for.
//!
//! On several chips XLA orders the operations of a program so that communication is hidden behind computation, and so may put off a product
//! that is read after a loop only until the loop is over. All that the product reads is then kept while the loop runs. The gradient of a
//! language model's head is such a product: it reads the logits and the cotangent of every token, and the loop is the backward pass of the
//! blocks, which needs most memory. So the loop waits for these products if they are smaller than what they read.
//!
//! On one chip XLA does not put them off, and the text has no such barrier. docs/FITTING.md has the bytes.

use remat_ir::{Eqn, Jaxpr, Op, Prim, Scan, Var};

/// The products that are computed before the scan at this index and read after it only, and the largest carry of the scan: behind one
/// barrier with them it waits for them. Empty if nothing has to be waited for.
pub(crate) fn awaited(jaxpr: &Jaxpr, at: usize, scan: &Scan) -> Vec<Var> {
    // The product from which a variable was computed by moving or converting elements.
    let mut product = jaxpr.var_map(None);
    for eqn in &jaxpr.eqns[..at] {
        for &out in &eqn.outs {
            product[out] = match &eqn.op {
                Op::Prim(Prim::DotGeneral(_)) => saves_memory(jaxpr, eqn).then_some(out),
                Op::Prim(Prim::Transpose(_) | Prim::Reshape(_) | Prim::ConvertElementType(_)) => {
                    vars(eqn).next().and_then(|operand| product[operand])
                }
                _ => None,
            };
        }
    }
    let loops = &jaxpr.eqns[at];
    let is_read = |root: Var| vars(loops).any(|operand| operand == root || product[operand] == Some(root));
    let after = jaxpr.eqns[at + 1..].iter().flat_map(vars).chain(jaxpr.outs.iter().filter_map(|atom| atom.var()));
    let mut awaited: Vec<Var> = Vec::new();
    for root in after.filter_map(|var| product[var]) {
        if !awaited.contains(&root) && !is_read(root) {
            awaited.push(root);
        }
    }
    let carries = loops.ins[scan.num_consts..scan.num_consts + scan.num_carry].iter().filter_map(|atom| atom.var());
    match carries.max_by_key(|&carry| jaxpr.aval(carry).bytes()) {
        Some(carry) if !awaited.is_empty() => awaited.push(carry),
        _ => awaited.clear(),
    }
    awaited
}

/// Whether the results take fewer bytes than the operands.
fn saves_memory(jaxpr: &Jaxpr, eqn: &Eqn) -> bool {
    let bytes = |var: Var| jaxpr.aval(var).bytes();
    eqn.outs.iter().copied().map(bytes).sum::<usize>() < vars(eqn).map(bytes).sum::<usize>()
}

fn vars(eqn: &Eqn) -> impl Iterator<Item = Var> {
    eqn.ins.iter().filter_map(|atom| atom.var())
}
