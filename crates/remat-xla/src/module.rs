//! A program as a module.

use remat_ir::{Aval, Jaxpr, MemorySpace, Result};
use remat_opt::pipeline;

use crate::Options;
use crate::control::program;
use crate::ops::memory_kind;
use crate::value::{Name, Type, Value, comma_separated};
use crate::writer::Writer;

/// A program as the text of a StableHLO module with one function, `main`, after the passes of [`remat_opt::pipeline::XLA`].
///
/// Arguments and results are those of the program, in order; a scalar is an array of rank 0.
///
/// - `scan` is a `stablehlo.while` with dynamic slices, or several iterations in a row as its `unroll` says; `cond` is a
///   `stablehlo.case`. Calls are inlined, and custom rules are their functions.
/// - A checkpointed region of a backward pass is behind a `stablehlo.optimization_barrier` of all that it uses. XLA:CPU drops barriers
///   unless it is compiled with `xla_disable_hlo_passes=cse_barrier_expander`.
/// - Values in host memory are annotated as JAX annotates them, where the platform has a memory of its own.
/// - Attention is its definition, random bits are integer operations.
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
/// If the program is not well formed, or has a linear map that is known by its transpose only.
pub fn stablehlo(jaxpr: &Jaxpr, options: &Options) -> Result<String> {
    let jaxpr = &pipeline::run(pipeline::XLA, jaxpr)?;
    let mut w = Writer::new(options.clone());
    let name: String =
        options.name.chars().map(|c| if c.is_ascii_alphanumeric() || "_.$".contains(c) { c } else { '_' }).collect();
    let name = if name.is_empty() { "main" } else { &name };
    let symbol = symbol(name);
    let begin = format!("module {symbol} attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}} {{");
    w.block(begin, "}", |w| main(w, jaxpr))?;
    Ok(w.finish())
}

/// A name after an at sign, which needs quotes if it begins with a digit.
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
    let aliased = if w.options.donates { aliased(&args, &outs) } else { vec![None; args.len()] };
    let attributes = |aval: &Aval, aliased: Option<usize>| {
        let memory = memory_of(w, aval).map(|memory| format!("mhlo.memory_kind = \"{memory}\""));
        let alias = aliased.map(|k| format!("tf.aliasing_output = {k} : i32"));
        let all: Vec<String> = memory.into_iter().chain(alias).collect();
        if all.is_empty() { Type(aval).to_string() } else { format!("{} {{{}}}", Type(aval), all.join(", ")) }
    };
    let takes = comma_separated(
        args.iter().zip(aliased).map(|(arg, aliased)| format!("{arg}: {}", attributes(&arg.aval, aliased))),
    );
    let gives = comma_separated(outs.iter().map(|aval| attributes(aval, None)));
    w.block(format!("func.func public @main({takes}) -> ({gives}) {{"), "}", |w| {
        let outs = program(w, jaxpr, &args, false)?;
        w.give("return", &outs);
        Ok(())
    })
}

/// For each argument the result that takes its memory: the first of its aval that is no other argument's.
fn aliased(args: &[Value], outs: &[Aval]) -> Vec<Option<usize>> {
    let mut is_taken = vec![false; outs.len()];
    let result = |arg: &Value| {
        let k = (0..outs.len()).find(|&k| !is_taken[k] && outs[k] == arg.aval && arg.aval.size() > 0)?;
        is_taken[k] = true;
        Some(k)
    };
    args.iter().map(result).collect()
}

/// The memory that an argument or result is in, if that is not the device's.
fn memory_of(w: &Writer, aval: &Aval) -> Option<&'static str> {
    let is_elsewhere = aval.memory != MemorySpace::Device && w.options.platform.has_host_memory();
    is_elsewhere.then(|| memory_kind(aval.memory))
}
