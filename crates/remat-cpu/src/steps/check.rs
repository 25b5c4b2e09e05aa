//! The checker of steps. Kernels rely on it when they address elements through layouts.
//!
//! Every operand is an argument or was written by an earlier step, and all its elements are inside of the buffer. A loop reads its own
//! values after computing them, and its values have its number of elements. Every buffer is written once, and so are the outputs of the
//! program. A step whose equation reads a barrier's result comes after the barrier. The checker looks at each operand once, so every
//! program is checked in every build.

use remat_ir::{Error, ErrorKind, Result, Var, VarMap};
use remat_kernels::{Extent, Layout};

use super::ir::{Blocks, FusedLoop, Member, Step, Steps, Value};
use super::moves::blocks::fits;

/// The steps that can read a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Available {
    /// None: it is not computed yet.
    No,
    /// Only the loop of this step, which does not store it or has not finished.
    InLoop(usize),
    /// None any more: the loop that computed it has finished without storing it.
    Nowhere,
    /// Every later step.
    Stored,
}

/// Checks the steps of a program.
///
/// # Errors
/// The first fault, which is a defect of lowering.
pub(super) fn check(steps: &Steps) -> Result<()> {
    let mut checker = Checker { steps, at: 0, available: VarMap::filled(steps.jaxpr.avals.len(), Available::No) };
    for &var in &steps.jaxpr.ins {
        checker.available[var] = Available::Stored;
    }
    for (at, step) in steps.steps.iter().enumerate() {
        checker.at = at;
        checker.step(step)?;
    }
    for base in steps.jaxpr.outs.iter().filter_map(|out| steps.value(*out).base()) {
        if checker.available[base] != Available::Stored {
            return Err(internal(format!("no step stores variable {}, which is returned", base.0)));
        }
    }
    Ok(())
}

struct Checker<'a> {
    steps: &'a Steps,
    /// The step that is checked.
    at: usize,
    available: VarMap<Available>,
}

impl Checker<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        for token in step.tokens(&self.steps.tokens) {
            if self.available[token] != Available::Stored {
                return Err(self.fault(format!("is ahead of the barrier that writes variable {}", token.0)));
            }
        }
        match step {
            Step::Loop(fused_loop) => return self.fused_loop(fused_loop),
            Step::Blocks(blocks) => return self.blocks(blocks),
            _ => {}
        }
        step.operands().try_for_each(|x| self.read(x))?;
        match step {
            Step::Equation { outs, .. } => outs.iter().try_for_each(|&out| self.write(out, Available::Stored)),
            Step::Copy { out, .. } | Step::Iota { out, .. } | Step::Barrier { token: out, .. } => {
                self.write(*out, Available::Stored)
            }
            Step::Loop(_) | Step::Blocks(_) => Ok(()),
        }
    }

    fn fused_loop(&mut self, fused_loop: &FusedLoop) -> Result<()> {
        for member in &fused_loop.members {
            member.operands.iter().try_for_each(|x| self.read(x))?;
            self.extent(fused_loop, member)?;
            self.write(member.out, Available::InLoop(self.at))?;
        }
        for &out in &fused_loop.outs {
            if self.available[out] != Available::InLoop(self.at) {
                return Err(self.fault(format!("stores variable {}, which it does not compute", out.0)));
            }
            self.available[out] = Available::Stored;
        }
        Ok(())
    }

    /// Checks that a loop reads results of the loops before it only at the positions that it computes, and that other steps read only what
    /// is stored.
    fn blocks(&mut self, blocks: &Blocks) -> Result<()> {
        let mut inside = Vec::new();
        for fused_loop in &blocks.fused_loops {
            if !fits(&self.steps.jaxpr, fused_loop, blocks.space, &inside) {
                return Err(self.fault(format!("has a loop that is not one over {:?}", blocks.space)));
            }
            self.fused_loop(fused_loop)?;
            inside.extend(&fused_loop.outs);
            // The next loop is another phase, which cannot read what this one does not store.
            for member in fused_loop.members.iter().filter(|member| !fused_loop.outs.contains(&member.out)) {
                self.available[member.out] = Available::Nowhere;
            }
        }
        if let Some(out) = blocks.outs.iter().find(|out| !inside.contains(out)) {
            return Err(self.fault(format!("stores variable {}, which it does not compute", out.0)));
        }
        for out in inside.into_iter().filter(|out| !blocks.outs.contains(out)) {
            self.available[out] = Available::InLoop(self.at);
        }
        Ok(())
    }

    /// Checks that a member has one element per element of the loop, per row, or per result of its reduction.
    fn extent(&self, fused_loop: &FusedLoop, member: &Member) -> Result<()> {
        let size = self.steps.jaxpr.avals[member.out].size();
        let expected = match (member.extent, &fused_loop.reduction) {
            (Extent::Full, _) => fused_loop.size(),
            (Extent::Row, None) => fused_loop.rows,
            (Extent::Row, Some((shape, axes))) => {
                shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, n)| n).product()
            }
        };
        if size == expected {
            return Ok(());
        }
        let of = member.out.0;
        Err(self.fault(format!("is a loop of {expected} elements for variable {of}, which has {size}")))
    }

    fn read(&self, value: &Value) -> Result<()> {
        let Value::View { base, layout } = value else { return Ok(()) };
        let is_there = match self.available.get(*base) {
            Some(Available::Stored) => true,
            Some(Available::InLoop(at)) => *at == self.at,
            Some(Available::No | Available::Nowhere) | None => false,
        };
        if !is_there {
            return Err(self.fault(format!("reads variable {}, which is not available", base.0)));
        }
        let size = self.steps.jaxpr.avals[*base].size();
        if is_inside(layout, size) {
            return Ok(());
        }
        Err(self.fault(format!("reads outside of variable {}, which has {size} elements: {layout:?}", base.0)))
    }

    fn write(&mut self, var: Var, available: Available) -> Result<()> {
        if self.available[var] != Available::No {
            return Err(self.fault(format!("writes variable {}, which is written already", var.0)));
        }
        self.available[var] = available;
        Ok(())
    }

    fn fault(&self, what: String) -> Error {
        internal(format!("step {} {what}", self.at))
    }
}

/// Whether all elements of a layout are among the first `size`.
fn is_inside(layout: &Layout, size: usize) -> bool {
    if layout.shape.len() != layout.strides.len() {
        return false;
    }
    if layout.shape.contains(&0) {
        return true;
    }
    let (mut first, mut last) = (layout.offset as i128, layout.offset as i128);
    for (&n, &stride) in layout.shape.iter().zip(&layout.strides) {
        let reach = (n as i128 - 1) * stride as i128;
        if reach < 0 { first += reach } else { last += reach }
    }
    0 <= first && last < size as i128
}

fn internal(fault: String) -> Error {
    Error::new(ErrorKind::Internal, "compile", format!("the steps are wrong: {fault}"))
}

#[cfg(test)]
mod tests {
    use remat_ir::Jaxpr;
    use remat_opt::pipeline::{CPU, run};

    use super::super::ir::FusedLoop;
    use super::super::moves::{blocks, proposed};
    use super::*;

    /// A loop that stores two of its three values, a step that reads one of them transposed, and a copy.
    fn steps() -> Steps {
        let text = "{ lambda ; a:f32[4,4]. let
            b:f32[4,4] = exp a
            c:f32[4,4] = sin b
            d:f32[4,4] = neg c
            e:f32[4,4] = transpose[permutation=(1, 0)] b
            f:f32[4,4] = cumsum[axis=0 reverse=False] e
          in (d, f) }";
        let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
        run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"))
    }

    fn in_blocks(steps: &Steps) -> Steps {
        let steps = proposed(blocks::propose, steps, &|_, _| true).unwrap_or_else(|e| panic!("{e}"));
        steps.expect("loops in blocks")
    }

    fn fault(change: impl FnOnce(&mut Steps)) -> String {
        let mut steps = steps();
        change(&mut steps);
        let error = check(&steps).expect_err("the steps are wrong");
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Internal, "compile"));
        error.message().strip_prefix("the steps are wrong: ").unwrap_or(error.message()).to_string()
    }

    fn fused_loop(steps: &mut Steps) -> &mut FusedLoop {
        let fused_loop =
            steps.steps.iter_mut().find_map(|s| if let Step::Loop(fused_loop) = s { Some(fused_loop) } else { None });
        fused_loop.expect("a loop")
    }

    #[test]
    fn every_kind_of_fault_is_found() {
        assert!(check(&steps()).is_ok());
        let a = steps().jaxpr.ins[0].0;
        let [b, d] = [0, 2].map(|i| fused_loop(&mut steps()).members[i].out.0);
        assert_eq!(fault(|s| s.steps.swap(0, 1)), format!("step 0 reads variable {b}, which is not available"));
        assert_eq!(fault(|s| s.steps.truncate(0)), format!("no step stores variable {d}, which is returned"));
        let twice = |s: &mut Steps| {
            let member = Member { operands: Vec::new(), ..*fused_loop(s).members.last().expect("three") };
            fused_loop(s).members.push(member);
        };
        assert_eq!(fault(twice), format!("step 0 writes variable {d}, which is written already"));
        let argument = |s: &mut Steps| fused_loop(s).members[0].out = Var(a);
        assert_eq!(fault(argument), format!("step 0 writes variable {a}, which is written already"));
        let early = |s: &mut Steps| fused_loop(s).members.swap(0, 1);
        assert_eq!(fault(early), format!("step 0 reads variable {b}, which is not available"));
        let unstored = |s: &mut Steps| fused_loop(s).outs.retain(|out| out.0 != b);
        assert_eq!(fault(unstored), format!("step 1 reads variable {b}, which is not available"));
        let foreign = |s: &mut Steps| fused_loop(s).outs.push(Var(a));
        assert_eq!(fault(foreign), format!("step 0 stores variable {a}, which it does not compute"));
        let rows = |s: &mut Steps| fused_loop(s).rows = 17;
        assert_eq!(fault(rows), format!("step 0 is a loop of 17 elements for variable {b}, which has 16"));
    }

    #[test]
    fn loops_in_blocks_that_read_other_positions_are_found() {
        let text = "{ lambda ; a:f32[2,64,32,32]. let
            b:f32[2,64,32,32] = exp a
            c:f32[64] = reduce_sum[axes=(0, 2, 3)] b
            d:f32[2,64,32,32] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(2, 64, 32, 32)] c
            e:f32[2,64,32,32] = mul b d
          in (e, c) }";
        let fault = |change: fn(&mut Blocks)| {
            let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
            let steps = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
            let mut steps = in_blocks(&steps);
            let blocks = steps.steps.iter_mut().find_map(|s| if let Step::Blocks(b) = s { Some(b) } else { None });
            change(blocks.expect("loops in blocks"));
            check(&steps).expect_err("the steps are wrong").message().to_string()
        };
        let read = |blocks: &mut Blocks, change: fn(&mut Layout)| {
            let last =
                blocks.fused_loops.last_mut().and_then(|fused_loop| fused_loop.members.last_mut()).expect("a product");
            for operand in &mut last.operands {
                if let Value::View { layout, .. } = operand
                    && !layout.is_contiguous()
                {
                    change(layout);
                }
            }
        };
        let message = "has a loop that is not one over [2, 64, 1024]";
        let found = fault(|blocks| blocks.fused_loops[0].rows = 64 * 32);
        assert!(found.contains(message), "{found}");
        let found = [
            fault(|blocks| blocks.space = [64, 2, 1024]),
            fault(|blocks| blocks.outs.push(Var(0))),
            fault(|blocks| blocks.outs.clear()),
        ];
        let expected = ["is not one over [64, 2, 1024]", "which it does not compute", "no step stores variable"];
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
        // A value that the loop of the sum does not store.
        let found = fault(|blocks| {
            let (hidden, product) = (blocks.fused_loops[0].outs[0], blocks.fused_loops.len() - 1);
            assert!(
                product > 0 && blocks.fused_loops[product].members[0].operands.iter().any(|x| x.base() == Some(hidden))
            );
            blocks.fused_loops[0].outs.retain(|&out| out != hidden);
            blocks.outs.retain(|&out| out != hidden);
        });
        assert!(found.contains("which is not available"), "{found}");
        // The sum of the next channel.
        let mut steps: Steps =
            text.parse::<Jaxpr>().and_then(|jaxpr| run(CPU, &jaxpr)).and_then(Steps::of).expect("steps");
        steps = in_blocks(&steps);
        let blocks = steps.steps.iter_mut().find_map(|s| if let Step::Blocks(b) = s { Some(b) } else { None });
        read(blocks.expect("loops in blocks"), |layout| {
            layout.strides[1] = -1;
            layout.offset = 63;
        });
        let found = check(&steps).expect_err("the steps are wrong").message().to_string();
        assert!(found.contains(message), "{found}");
    }

    #[test]
    fn steps_ahead_of_their_barrier_are_found() {
        let text = "{ lambda ; a:f32[4] b:f32[4]. let
            c:f32[4] = exp a
            d:f32[4] e:f32[4] = optimization_barrier b c
            f:f32[4] = sin d
          in (f,) }";
        let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
        let mut steps = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
        assert!(check(&steps).is_ok());
        let token =
            steps.steps.iter().find_map(|s| if let Step::Barrier { token, .. } = s { Some(token.0) } else { None });
        let token = token.expect("a barrier");
        steps.steps.swap(1, 2);
        let error = check(&steps).expect_err("the loop reads a result of the barrier");
        let message = format!("the steps are wrong: step 1 is ahead of the barrier that writes variable {token}");
        assert_eq!(error.message(), message);
    }

    #[test]
    fn views_outside_of_their_buffer_are_found() {
        let b = fused_loop(&mut steps()).members[0].out.0;
        let view = |change: fn(&mut Layout)| {
            fault(|s| {
                let last = s.steps.last_mut().expect("a step");
                let operand = match last {
                    Step::Equation { operands, .. } => operands.first_mut(),
                    Step::Copy { operand, .. } => Some(operand),
                    _ => None,
                };
                if let Some(Value::View { base, layout }) = operand {
                    *base = Var(b);
                    change(layout);
                }
            })
        };
        let message = format!("reads outside of variable {b}, which has 16 elements");
        for change in [
            (|layout| layout.offset += 1) as fn(&mut Layout),
            |layout| layout.strides[0] = -1,
            |layout| layout.strides[1] = isize::MAX,
            |layout| layout.shape[0] = 5,
            |layout| layout.shape.push(1),
        ] {
            let found = view(change);
            assert!(found.contains(&message), "{found}");
        }
    }

    #[test]
    fn layouts_of_nothing_are_inside_of_anything() {
        assert!(is_inside(&Layout::contiguous(&[0, 3]), 0));
        assert!(!is_inside(&Layout::contiguous(&[]), 0));
        assert!(is_inside(&Layout::contiguous(&[2, 3]).reversed(&[0, 1]), 6));
    }
}
