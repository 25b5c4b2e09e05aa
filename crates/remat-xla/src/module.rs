//! Writes a program as a module.

use std::sync::Arc;

use remat_ir::{Aval, Jaxpr, MemorySpace, Result, Sharding};
use remat_opt::pipeline;

use crate::Options;
use crate::control::program;
use crate::ops::memory_kind;
use crate::sharding::Placement;
use crate::value::{Name, Type, Value, comma_separated};
use crate::writer::Writer;

/// The text of a StableHLO module with one function, `main`, for a program after the passes of [`remat_opt::pipeline::XLA`].
///
/// Arguments and results are those of the program, in order. A scalar is an array of rank 0.
///
/// - `scan` is a `stablehlo.while` with dynamic slices, or several iterations in a row as its `unroll` says; `cond` is a
///   `stablehlo.case`. Calls are inlined, and custom rules are their functions.
/// - A checkpointed region of a backward pass is behind a `stablehlo.optimization_barrier` of everything that it uses. What follows a
///   barrier reads its results in place of its operands. XLA:CPU drops barriers unless it is compiled with
///   `xla_disable_hlo_passes=cse_barrier_expander`.
/// - Values in host memory are annotated as JAX annotates them, if the platform has separate host memory.
/// - Attention is replaced by its definition, and random bits are integer operations.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_xla::{Options, stablehlo};
/// let program: Jaxpr = "{ lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul 2.0:f32[] b in (c,) }".parse()?;
/// assert_eq!(stablehlo(&program, &Options::default())?, "\
/// module @main attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
///   func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32>) {
///     %0 = stablehlo.sine %arg0 : tensor<3xf32>
///     %1 = stablehlo.constant dense<2.0> : tensor<3xf32>
///     %2 = stablehlo.multiply %1, %0 : tensor<3xf32>
///     return %2 : tensor<3xf32>
///   }
/// }
/// ");
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the program is not well formed, or has a linear map of which only the transpose is known.
pub fn stablehlo(jaxpr: &Jaxpr, options: &Options) -> Result<String> {
    let jaxpr = &pipeline::run(pipeline::XLA, jaxpr)?;
    let mut w = Writer::new(options.clone());
    w.placement = Placement::of(jaxpr)?.map(Arc::new);
    let devices = w.placement.as_ref().map_or(1, |placement| placement.devices());
    let name: String =
        options.name.chars().map(|c| if c.is_ascii_alphanumeric() || "_.$".contains(c) { c } else { '_' }).collect();
    let name = if name.is_empty() { "main" } else { &name };
    let symbol = symbol(name);
    let begin =
        format!("module {symbol} attributes {{mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1 : i32}} {{");
    w.block(begin, "}", |w| {
        let definitions = w.placement.as_ref().map(|placement| placement.definitions()).unwrap_or_default();
        definitions.into_iter().for_each(|line| w.line(line));
        main(w, jaxpr)
    })?;
    Ok(w.finish())
}

/// A name after an `@`, which needs quotes if it begins with a digit.
fn symbol(name: &str) -> String {
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("@\"{name}\"") } else { format!("@{name}") }
}

fn main(w: &mut Writer, jaxpr: &Jaxpr) -> Result<()> {
    let args: Vec<Value> = jaxpr
        .ins
        .iter()
        .enumerate()
        .map(|(i, &var)| Value { name: Name::Argument(i), aval: jaxpr.aval(var).clone() })
        .collect();
    let outs = jaxpr.out_avals();
    let placement = w.placement.clone();
    let cut = |of: fn(&Placement) -> &[Sharding], i: usize| placement.as_ref().and_then(|p| of(p).get(i));
    let (of_ins, of_outs) = (|i| cut(|p| &p.ins, i), |k| cut(|p| &p.outs, k));
    let aliased = if w.options.donates {
        aliased(jaxpr, placement.as_deref(), |i| w.options.kept.contains(&i))
    } else {
        vec![None; args.len()]
    };
    let attributes = |aval: &Aval, sharding: Option<&Sharding>, aliased: Option<usize>| {
        let memory = memory_of(w, aval).map(|memory| format!("mhlo.memory_kind = \"{memory}\""));
        let sharding = placement.as_ref().zip(sharding).map(|(placement, sharding)| {
            format!("sdy.sharding = #sdy.sharding{}", placement.text(sharding, aval.rank()))
        });
        let alias = aliased.map(|k| format!("tf.aliasing_output = {k} : i32"));
        let all: Vec<String> = memory.into_iter().chain(sharding).chain(alias).collect();
        if all.is_empty() { Type(aval).to_string() } else { format!("{} {{{}}}", Type(aval), all.join(", ")) }
    };
    let takes = args.iter().zip(aliased).enumerate();
    let takes = comma_separated(
        takes.map(|(i, (arg, aliased))| format!("{arg}: {}", attributes(&arg.aval, of_ins(i), aliased))),
    );
    let gives = comma_separated(outs.iter().enumerate().map(|(k, aval)| attributes(aval, of_outs(k), None)));
    w.block(format!("func.func public @main({takes}) -> ({gives}) {{"), "}", |w| {
        let outs = program(w, jaxpr, &args, false)?;
        let outs: Vec<Value> = outs.iter().map(|value| w.versions.newest(value)).collect();
        w.give("return", &outs);
        Ok(())
    })
}

/// For each argument the result that takes its memory: the first with the same aval and sharding that no other argument has.
pub(crate) fn aliased(
    jaxpr: &Jaxpr,
    placement: Option<&Placement>,
    is_kept: impl Fn(usize) -> bool,
) -> Vec<Option<usize>> {
    let (ins, outs) = (jaxpr.in_avals(), jaxpr.out_avals());
    let is_cut_alike = |i: usize, k: usize| placement.is_none_or(|p| p.ins.get(i) == p.outs.get(k));
    let mut is_taken = vec![false; outs.len()];
    let result = |(i, aval): (usize, &Aval)| {
        let fits = |k: usize| !is_taken[k] && outs[k] == *aval && is_cut_alike(i, k);
        let k = (0..outs.len()).filter(|_| aval.size() > 0 && !is_kept(i)).find(|&k| fits(k))?;
        is_taken[k] = true;
        Some(k)
    };
    ins.iter().enumerate().map(result).collect()
}

/// The memory of an argument or result, if it is not that of the device.
fn memory_of(w: &Writer, aval: &Aval) -> Option<&'static str> {
    let is_elsewhere = aval.memory != MemorySpace::Device && w.options.platform.has_host_memory();
    is_elsewhere.then(|| memory_kind(aval.memory))
}
