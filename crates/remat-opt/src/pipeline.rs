//! The pipelines: the passes of each engine, in order, with reasons.
//!
//! ```text
//! pass : jaxpr → jaxpr, which computes the same
//! ```
//!
//! [`JIT`] is for every engine. It is followed by the pipeline of the engine, which then lowers the program to steps over buffers. In debug
//! builds the checker checks the program after each pass. The module of a pass has its name; `drop_unused` is in `dce`.

use std::borrow::Cow;
use std::fmt;

use remat_ir::{Jaxpr, Pass, Result};

use crate::{
    algebra, attention, cse, dce, dot_transpose, extrema, fold, inline, negated_sums, one_memory, outer_products,
    padded_sums, rotate, scan_residuals, sink, slice_pushdown, stacks,
};

/// The passes of `jit`, which run before those of any engine. They treat each body separately, so that nothing is merged across the
/// boundary of a checkpointed region: a recomputed equation stays apart from its twin in the forward pass.
pub const JIT: &[Pass] = &SIMPLIFY;

const SIMPLIFY: [Pass; 3] = [
    Pass { name: "fold", why: "equations whose operands are all literals are computed", run: fold::pass },
    Pass { name: "cse", why: "equal equations of one body become one", run: cse::pass },
    Pass { name: "dce", why: "equations that no output needs are dropped, also in bodies", run: dce::pass },
];

/// The passes of programs that others wrote, those of [`JIT`] first: what the functions of `remat` trace as one operation becomes one here.
pub const IMPORTED: &[Pass] = &{
    let [fold, cse, dce] = SIMPLIFY;
    let attention = Pass {
        name: "attention",
        why: "attention that is written out becomes one operation, which stores no scores",
        run: attention::pass,
    };
    [fold, cse, dce, attention]
};

/// The passes of the native engine.
pub const CPU: &[Pass] = &[
    Pass { name: "one_memory", why: "the engine has one memory, so transfers are dropped", run: one_memory::pass },
    Pass {
        name: "inline",
        why: "calls and regions become one list of equations, names become labels, scans are unrolled as asked for",
        run: inline::pass,
    },
    Pass {
        name: "rotate",
        why: "the condition of a loop is computed at the end of its body, and what both compute once",
        run: rotate::pass,
    },
    Pass {
        name: "algebra",
        why: "equations that return an operand bit for bit are dropped, and dynamic slices at known positions become plain slices",
        run: algebra::pass,
    },
    Pass {
        name: "stacks",
        why: "stacked outputs of unrolled loops exist once: parts are read where they are, and returned stacks are written in place",
        run: stacks::pass,
    },
    Pass { name: "drop_unused", why: "equations whose results nothing reads are dropped", run: dce::drop_unused },
    Pass {
        name: "slice_pushdown",
        why: "slices and zero padding move through matrix products, so that the largest arrays exist once",
        run: slice_pushdown::pass,
    },
    Pass {
        name: "dot_transpose",
        why: "the transpose of a product becomes a product of the exchanged operands",
        run: dot_transpose::pass,
    },
    Pass {
        name: "negated_sums",
        why: "sums of negated values are negated sums, so that the negated values need no memory",
        run: negated_sums::pass,
    },
    Pass {
        name: "outer_products",
        why: "products that sum nothing are multiplications, which loops compute with what reads them",
        run: outer_products::pass,
    },
    Pass {
        name: "padded_sums",
        why: "terms that are zero but for one part are added only there, so that the cotangent of an array read in T parts takes one array",
        run: padded_sums::pass,
    },
    Pass {
        name: "scan_residuals",
        why: "stacked outputs are dropped where the scans that read them can compute them",
        run: scan_residuals::pass,
    },
    Pass {
        name: "sink",
        why: "fusible equations go just before their first reader, so that live ranges are short",
        run: sink::pass,
    },
];

/// The passes of XLA, which inlines, folds, merges, simplifies and schedules by itself. Passes that work on one list of equations would
/// remove the boundaries of regions, which become barriers in its text.
pub const XLA: &[Pass] = &[
    Pass {
        name: "scan_residuals",
        why: "XLA keeps stacked outputs even where the loops that read them can compute them",
        run: scan_residuals::pass,
    },
    Pass {
        name: "extrema",
        why: "XLA may compute the operand of an extremum twice, with other roundings, and derivatives compare it with the result",
        run: extrema::pass,
    },
];

/// The program after all passes of a pipeline.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::pipeline::{CPU, run};
/// let text = "{ lambda ; a:f32[2,3] b:f32[3,4]. let
///     c:f32[2,4] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] a b
///     d:f32[4,2] = transpose[permutation=(1, 0)] c
///   in (d,) }";
/// let program = run(CPU, &text.parse::<Jaxpr>()?)?;
/// assert_eq!(program.eqns.len(), 1);
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// As [`Pass::apply`].
pub fn run(pipeline: &[Pass], jaxpr: &Jaxpr) -> Result<Jaxpr> {
    let program = pipeline.iter().try_fold(Cow::Borrowed(jaxpr), |program, pass| pass.apply(program))?;
    Ok(program.into_owned())
}

/// A program after a pass of a pipeline.
#[derive(Clone)]
pub struct Stage {
    /// The pass.
    pub pass: Pass,
    /// The program after it, or `None` if the pass changed nothing.
    pub program: Option<Jaxpr>,
}

/// The program after each pass of a pipeline, as `remat show --passes` prints it.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::pipeline::{JIT, stages};
/// let program: Jaxpr = "{ lambda ; a:f32[]. let b:f32[] = add 1.0:f32[] 2.0:f32[]; c:f32[] = mul a b in (c,) }".parse()?;
/// let changed: Vec<&str> = stages(JIT, &program)?.iter().filter(|s| s.program.is_some()).map(|s| s.pass.name).collect();
/// assert_eq!(changed, ["fold"]);
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// As [`Pass::apply`].
pub fn stages(pipeline: &[Pass], jaxpr: &Jaxpr) -> Result<Vec<Stage>> {
    let mut last = Cow::Borrowed(jaxpr);
    let mut stages = Vec::new();
    for &pass in pipeline {
        let program = pass.apply(Cow::Borrowed(&last))?;
        // Passes may renumber variables, which the text does not show.
        let program = (program.to_string() != last.to_string()).then(|| program.into_owned());
        if let Some(program) = &program {
            last = Cow::Owned(program.clone());
        }
        stages.push(Stage { pass, program });
    }
    Ok(stages)
}

/// The stages of a program: `Display` prints the traced program, then the program after each pass.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::Stages;
/// use remat_opt::pipeline::JIT;
/// let text = "{ lambda ; a:f32[]. let b:f32[] = add 1.0:f32[] 2.0:f32[]; c:f32[] = mul a b in (c,) }";
/// let stages = Stages::of(&text.parse::<Jaxpr>()?, &[JIT])?;
/// assert!(stages.to_string().ends_with("
/// == after fold: equations whose operands are all literals are computed
/// { lambda ; a:f32[]. let b:f32[] = mul a 3.0:f32[] in (b,) }
///
/// == after cse: equal equations of one body become one
/// no change
///
/// == after dce: equations that no output needs are dropped, also in bodies
/// no change
/// "));
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone)]
pub struct Stages {
    /// The program before the first pass.
    pub traced: Jaxpr,
    /// The program after each pass.
    pub stages: Vec<Stage>,
}

impl Stages {
    /// The stages of a program in several pipelines, one after the other.
    ///
    /// # Errors
    /// As [`Pass::apply`].
    pub fn of(jaxpr: &Jaxpr, pipelines: &[&[Pass]]) -> Result<Stages> {
        let stages = stages(&pipelines.concat(), jaxpr)?;
        Ok(Stages { traced: jaxpr.clone(), stages })
    }

    /// The program after the last pass.
    pub fn last(&self) -> &Jaxpr {
        self.stages.iter().rev().find_map(|stage| stage.program.as_ref()).unwrap_or(&self.traced)
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "== traced\n{}", self.traced)?;
        for Stage { pass, program } in &self.stages {
            writeln!(f, "\n== after {}: {}", pass.name, pass.why)?;
            match program {
                Some(program) => writeln!(f, "{program}")?,
                None => writeln!(f, "no change")?,
            }
        }
        Ok(())
    }
}
