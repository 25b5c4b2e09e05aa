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
    let takes = comma_separated(args.iter().map(|arg| format!("{arg}: {}", placed(w, &arg.aval))));
    let gives = comma_separated(jaxpr.out_avals().iter().map(|aval| placed(w, aval)));
    w.block(format!("func.func public @main({takes}) -> ({gives}) {{"), "}", |w| {
        let outs = program(w, jaxpr, &args, false)?;
        w.give("return", &outs);
        Ok(())
    })
}

/// The type of an argument or result, and the memory that it is in if that is not the device's.
fn placed(w: &Writer, aval: &Aval) -> String {
    if aval.memory == MemorySpace::Device || !w.options.platform.has_host_memory() {
        return Type(aval).to_string();
    }
    format!("{} {{mhlo.memory_kind = \"{}\"}}", Type(aval), memory_kind(aval.memory))
}
