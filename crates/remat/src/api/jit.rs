//! Compiled functions.

use std::marker::PhantomData;
use std::sync::Arc;

use remat_ir::{Error, ErrorKind, Jaxpr, Loc, MemoryReport, MemoryStats, Moves, Profile, Result};
use remat_opt::cost::Cost;
use remat_opt::{Stages, pipeline};

use super::limit::OverLimit;
use super::plan::Plan;
use super::programs::{Entry, Programs, is_donated};
use super::shard::Shardings;
use super::stages::{Lowered, Target, Traced};
use crate::checks::Checks;
use crate::trace::{
    Device, Output, Structure, Tensor, Tracer, Tree, current_loc, leaf_paths, rebuild, short_type_name, structure,
    trace_tree,
};

/// Options of [`jit_with`]. [`Jitted`] has a method for each: `jit(f).on(&device).memory_limit("4GiB")`.
///
/// ```
/// use remat::{JitOptions, Tensor, jit_with};
/// let options = JitOptions { name: Some("double".into()), memory_limit: Some(1 << 20), ..JitOptions::default() };
/// assert_eq!(jit_with(&options, |x: &Tensor| x + x).call(Tensor::from(1.5f32))?.item::<f32>()?, 3.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct JitOptions {
    /// The name in programs and reports; `None` is the function's own name.
    pub name: Option<String>,
    /// The device on which the function runs. Operands must be on it or in the host's memory. If it is `None`, the function runs where its
    /// operands are, or on the default [`Device`] if none of them is bound to a device. Results do not depend on the number of threads.
    ///
    /// ```
    /// use remat::{Cpu, Tensor, jit};
    /// let double = jit(|x: &Tensor| x + x).on(Cpu::with_threads(1)?);
    /// assert_eq!(double.call(Tensor::from(1.5f32))?.item::<f32>()?, 3.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub device: Option<Device>,
    /// The most bytes that a call may need, with its arguments, results and overhead. `None` uses the environment variable
    /// `REMAT_MEMORY_LIMIT`: a number of bytes, such as `500000`, `512MiB` or `1.5GiB`. The native engine computes values again until a
    /// program fits. If it finds no way, the program is not compiled, and the error states the fewest bytes that were found and the largest
    /// values.
    ///
    /// ```
    /// use remat::{DType, Tensor, grad, jit};
    /// // The backward pass of twelve layers reads what the forward pass computes.
    /// let w = Tensor::eye(64, DType::F32);
    /// let loss = |x: &Tensor| (0..12).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..);
    /// let x = Tensor::ones([256, 64], DType::F32);
    /// let free = jit(grad(loss));
    /// let limit = free.memory(&x)?.peak * 7 / 10;
    /// let limited = jit(grad(loss)).memory_limit(limit);
    /// assert!(limited.memory(&x)?.peak <= limit);
    /// assert_eq!(limited.call(x.clone())?.to_vec::<f32>()?, free.call(x)?.to_vec::<f32>()?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub memory_limit: Option<usize>,
    /// What to do with a program that needs more than the limit.
    pub over_limit: OverLimit,
    /// The [`Plan`] that the function's program runs as, if it is the program that was planned. The bytes of the plan are the limit if there
    /// is no other. [`Plan::options`] sets this.
    pub plan: Option<Plan>,
    /// The checks of runs, for NaN and for indices out of range. `None` uses the environment variables `REMAT_DEBUG_NANS` and `REMAT_CHECKED`,
    /// as [`Checks`] describes.
    pub checks: Option<Checks>,
    /// How the leaves of the argument are cut over a mesh. With `None`, each of several devices gets the whole argument. On one device this
    /// has no effect.
    ///
    /// ```
    /// use remat::{DType, Mesh, Shardings, Tensor, jit, spec};
    /// let mesh = Mesh::new([("data", 2)])?;
    /// let double = jit(|x: &Tensor| x + x).in_shardings(Shardings::new(&mesh, spec!["data"]));
    /// assert_eq!(double.call(Tensor::ones([4], DType::F32))?.to_vec::<f32>()?, [2.0; 4]);
    /// let error = double.call(Tensor::ones([3], DType::F32)).unwrap_err();
    /// assert_eq!(error.message(), "dimension 0 of f32[3] cannot be cut into 2 shards by P(data)");
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub in_shardings: Option<Shardings>,
    /// How the leaves of the result are cut over a mesh. With `None`, each device gets the whole result.
    pub out_shardings: Option<Shardings>,
}

/// A function that is traced and compiled once for each structure, static fields and avals of its argument.
///
/// It can be called from several threads if the function's captured values can be shared between threads.
///
/// The native engine keeps the memory of temporaries of each compiled program between calls, as many bytes as [`Jitted::memory`] reports.
/// Dropping the `Jitted` frees it. Programs for one [`Cpu::sharing_memory`](crate::Cpu::sharing_memory) share one such memory.
pub struct Jitted<A, R: Output, F> {
    f: F,
    pub(super) name: Arc<str>,
    pub(super) target: Target,
    pub(super) in_shardings: Option<Shardings>,
    pub(super) out_shardings: Option<Shardings>,
    loc: Loc,
    programs: Programs<R::Tree>,
    marker: PhantomData<fn(&A) -> R>,
}

/// Compiles a function on its first call, and again for an argument with another structure or other avals.
///
/// ```
/// use remat::{Tensor, jit};
/// let step = jit(|x: &Tensor| x * 2.0 + 1.0);
/// assert_eq!(step.call(Tensor::from(3.0f32))?.item::<f32>()?, 7.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn jit<A: Tree, R: Output, F: Fn(&A) -> R>(f: F) -> Jitted<A, R, F> {
    jit_with(&JitOptions::default(), f)
}

/// As [`jit`] with options. For those that are known where the function is made, its methods are shorter: `jit(f).memory_limit("4GiB")`.
#[track_caller]
pub fn jit_with<A: Tree, R: Output, F: Fn(&A) -> R>(options: &JitOptions, f: F) -> Jitted<A, R, F> {
    Jitted {
        f,
        name: options.name.clone().unwrap_or_else(short_type_name::<F>).into(),
        target: Target::of(options),
        in_shardings: options.in_shardings.clone(),
        out_shardings: options.out_shardings.clone(),
        loc: current_loc(),
        programs: Programs::default(),
        marker: PhantomData,
    }
}

impl<A: Tree, R: Output, F: Fn(&A) -> R> Jitted<A, R, F> {
    /// Runs the function. The argument is moved in: a buffer without other references may be overwritten.
    ///
    /// On a device with its own memory, results stay there and may still be pending when this returns. An error of the run is then returned
    /// by the first read, and names the line of the call.
    ///
    /// While a trace is open, the call becomes an equation of that trace.
    ///
    /// # Errors
    /// The first error inside the function; a failed or abstract tensor in the argument; operands on two devices.
    #[track_caller]
    pub fn call(&self, args: A) -> Result<R::Tree> {
        let (leaves, entry) = self.found(&args)?;
        drop(args);
        let loc = current_loc();
        let outs = if Tracer::is_open() {
            self.staged(&entry, leaves, loc)?
        } else {
            let compiled = entry.executables.compiled(&self.target, &leaves).map_err(|e| e.at(loc))?;
            compiled.run("jit", leaves, loc).map_err(|e| e.at(loc))?
        };
        rebuild(&entry.like, outs)
    }

    /// The leaves of an argument, and the program for it.
    pub(super) fn found(&self, args: &A) -> Result<(Vec<Tensor>, Arc<Entry<R::Tree>>)> {
        if let Some(found) = self.like_last(args) {
            return Ok(found);
        }
        let (leaves, structure) = structure(args);
        let entry = self.entry(args, &leaves, structure)?;
        Ok((leaves, entry))
    }

    /// The results of a call as an equation of the open trace.
    pub(super) fn staged(&self, entry: &Entry<R::Tree>, leaves: Vec<Tensor>, loc: Loc) -> Result<Vec<Tensor>> {
        entry.executables.staged(&self.name, leaves, self.loc).map_err(|e| e.at(loc))
    }

    /// As [`Jitted::call`], and waits; with the time of each step that the engine ran: its operation, your line, and whether it belongs to
    /// the forward pass, computes something again, or belongs to the derivative.
    ///
    /// ```
    /// use remat::{DType, Tensor, jit, value_and_grad};
    /// let w = Tensor::eye(64, DType::F32);
    /// let step = jit(value_and_grad(|x: &Tensor| x.matmul(&w).tanh().sum(..)));
    /// let ((loss, _), profile) = step.profile(Tensor::ones([256, 64], DType::F32))?;
    /// assert!(loss.item::<f32>()?.is_finite());
    /// println!("{profile}");
    /// let products = profile.by_operation().into_iter().filter(|group| group.name.starts_with("dot_general["));
    /// assert_eq!(products.map(|group| group.steps).sum::<usize>(), 2);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Jitted::call`]; if it does not run on the native engine, or a trace is open.
    #[track_caller]
    pub fn profile(&self, args: A) -> Result<(R::Tree, Profile)> {
        let loc = current_loc();
        let (leaves, structure) = structure(&args);
        let entry = self.entry(&args, &leaves, structure)?;
        drop(args);
        let run = || {
            if Tracer::is_open() {
                let message = "a function has no profile while another is traced; profile the outermost one";
                return Err(Error::new(ErrorKind::Traced, "profile", message));
            }
            entry.executables.compiled(&self.target, &leaves)?.run_profiled("profile", leaves, loc)
        };
        let (outs, profile) = run().map_err(|error: Error| error.at(loc))?;
        Ok((rebuild(&entry.like, outs)?, profile))
    }

    /// Traces the function for an argument of this structure and avals, whose values are not read.
    ///
    /// # Errors
    /// The first error inside the function.
    #[track_caller]
    pub fn trace(&self, args: &A) -> Result<Traced> {
        let (leaves, structure) = structure(args);
        Ok(self.entry(args, &leaves, structure)?.executables.traced(&self.target))
    }

    /// Traces and simplifies: short for [`Jitted::trace`] and [`Traced::lower`].
    ///
    /// # Errors
    /// The first error inside the function.
    #[track_caller]
    pub fn lower(&self, args: &A) -> Result<Lowered> {
        self.trace(args)?.lower()
    }

    /// The simplified program for an argument of this structure and avals: short for [`Jitted::lower`] and
    /// [`Lowered::jaxpr`].
    ///
    /// # Errors
    /// The first error inside the function.
    #[track_caller]
    pub fn jaxpr(&self, args: &A) -> Result<Arc<Jaxpr>> {
        Ok(self.lower(args)?.jaxpr().clone())
    }

    /// The bytes that a call with an argument of this structure and avals needs, computed before it runs.
    ///
    /// ```
    /// use remat::{Tensor, jit};
    /// let step = jit(|x: &Tensor| x.sin());
    /// let memory = step.memory(&Tensor::from(vec![1.0f32, 2.0]))?;
    /// assert_eq!((memory.arguments, memory.outputs), (8, 8));
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// A training step whose model and optimizer state are moved in needs [`donated_peak`](MemoryStats::donated_peak): new parameters take
    /// the memory of the old ones, and each gradient is freed by its update.
    ///
    /// # Errors
    /// The first error inside the function; if the engine cannot run the program, or if it exceeds the memory limit even with all arguments
    /// donated.
    #[track_caller]
    pub fn memory(&self, args: &A) -> Result<MemoryStats> {
        Ok(self.lower(args)?.compile()?.memory())
    }

    /// As [`Jitted::memory`], with the values that are live at the peak: their bytes, names, operations and your lines.
    ///
    /// ```
    /// use remat::{Tensor, jit};
    /// let step = jit(|x: &Tensor| x.exp().named("hidden").sum(..));
    /// let report = step.memory_report(&Tensor::from(vec![1.0f32, 2.0]))?;
    /// assert_eq!(report.stats.arguments, 8);
    /// assert!(report.live.iter().any(|value| value.to_string() == "8 B  f32[2]  argument 0"));
    /// assert_eq!(report.timeline.iter().max(), Some(&report.stats.temporaries));
    /// println!("{report}");
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Jitted::memory`].
    #[track_caller]
    pub fn memory_report(&self, args: &A) -> Result<MemoryReport> {
        Ok(self.lower(args)?.compile()?.memory_report())
    }

    /// The plan of a call with this argument, which is moved in: what it computes several times to fit its limit, and other plans of the same
    /// program. [`plan`](fn@crate::plan) describes it.
    ///
    /// # Errors
    /// The first error inside the function; if its device is not the native engine; if the program does not fit its limit.
    #[track_caller]
    pub fn plan(&self, args: A) -> Result<Plan> {
        let loc = current_loc();
        let (leaves, structure) = structure(&args);
        let lowered = self.entry(&args, &leaves, structure)?.executables.traced(&self.target).lower()?;
        drop(args);
        let plan = || {
            let (device, _) = lowered.placed("plan")?;
            let captured = (0..lowered.captured()).map(|_| false);
            let is_donated = |leaf: &Tensor| leaf.is_abstract() || is_donated(&device, leaf);
            let donated = captured.chain(leaves.iter().map(is_donated)).collect();
            Plan::unlimited(lowered.clone(), donated)?.within(self.target.limit()?)
        };
        plan().map_err(|error: Error| error.at(loc))
    }

    /// The work of a call with an argument of this structure and avals: short for [`Jitted::lower`] and [`Lowered::cost`].
    ///
    /// # Errors
    /// The first error inside the function.
    #[track_caller]
    pub fn cost(&self, args: &A) -> Result<Cost> {
        Ok(self.lower(args)?.cost())
    }

    /// The program for an argument of this structure and avals after each pass: the passes of [`Jitted::lower`], then those of the engine
    /// that the function is compiled for. The text explains each pass, and prints the whole program where it changed.
    ///
    /// ```
    /// use remat::{Tensor, jit};
    /// let square = jit(|x: &Tensor| x * x * 1.0);
    /// let passes = square.passes(&Tensor::from(3.0f32))?;
    /// assert_eq!(passes.last().eqns.len(), 1);
    /// println!("{passes}");
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error inside the function.
    #[track_caller]
    pub fn passes(&self, args: &A) -> Result<Stages> {
        let traced = self.trace(args)?;
        let passes = || {
            let device = self.target.device_for("passes", traced.captured(), &[])?;
            Stages::of(&*device.placed(traced.jaxpr())?, &[pipeline::JIT, device.engine().passes()])
        };
        let loc = current_loc();
        passes().map_err(|error: Error| error.at(loc))
    }

    /// The engine's steps of the program for an argument of this structure and avals: short for [`Jitted::lower`] and [`Lowered::steps`].
    ///
    /// ```
    /// use remat::{Tensor, jit};
    /// let step = jit(|x: &Tensor| x.exp().sum(..));
    /// println!("{}", step.steps(&Tensor::from(vec![1.0f32, 2.0]))?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error inside the function; if the engine cannot run the program.
    #[track_caller]
    pub fn steps(&self, args: &A) -> Result<String> {
        self.lower(args)?.steps()
    }

    /// The engine's decisions about these steps: short for [`Jitted::lower`] and [`Lowered::moves`].
    ///
    /// ```
    /// use remat::{DType, Tensor, grad, jit};
    /// let w = Tensor::eye(64, DType::F32);
    /// let step = jit(grad(|x: &Tensor| x.matmul(&w).tanh().matmul(&w).sum(..)));
    /// let moves = step.moves(&Tensor::ones([256, 64], DType::F32))?;
    /// println!("{moves}");
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error inside the function; if the engine cannot run the program.
    #[track_caller]
    pub fn moves(&self, args: &A) -> Result<Moves> {
        self.lower(args)?.moves()
    }

    /// The program for an argument of this structure and avals in StableHLO: short for [`Jitted::lower`] and [`Lowered::stablehlo`].
    ///
    /// ```
    /// use remat::{Tensor, jit};
    /// let text = jit(|x: &Tensor| x.exp().sum(..)).stablehlo(&Tensor::from(vec![1.0f32, 2.0]))?;
    /// assert!(text.contains("%0 = stablehlo.exponential %arg0 : tensor<2xf32>"));
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error inside the function; as [`Lowered::stablehlo`].
    #[track_caller]
    pub fn stablehlo(&self, args: &A) -> Result<String> {
        self.lower(args)?.stablehlo()
    }

    /// The number of programs that are kept, at most 2,048: one for each structure and avals of the argument. If the function calls custom functions, it
    /// is traced anew for each number of derivatives that are taken of it.
    pub fn cache_size(&self) -> usize {
        self.programs.len()
    }

    /// Forgets all programs, after an option has changed.
    pub(super) fn forget(&mut self) {
        self.programs = Programs::default();
    }

    fn entry(&self, args: &A, leaves: &[Tensor], structure: Structure) -> Result<Arc<Entry<R::Tree>>> {
        self.programs.entry(self.loc, leaves, structure, &mut || {
            let (program, like) = trace_tree(args, self.loc, |args| self.run(args))?;
            Ok((program, leaf_paths(args), like))
        })
    }

    /// The leaves of the argument and the program of the last call, if that program fits this call.
    fn like_last(&self, args: &A) -> Option<(Vec<Tensor>, Arc<Entry<R::Tree>>)> {
        let entry = self.programs.last()?;
        let leaves = entry.key.leaves_like(args)?;
        entry.key.is_of(&leaves).then_some((leaves, entry))
    }

    /// The function, with sharding constraints on its argument and result if there are any.
    fn run(&self, args: &A) -> Result<R::Tree> {
        let constrained = self.in_shardings.as_ref().map(|s| s.constrain("argument", args, self.loc)).transpose()?;
        let out = (self.f)(constrained.as_ref().unwrap_or(args)).into_result()?;
        match &self.out_shardings {
            Some(shardings) => shardings.constrain("result", &out, self.loc),
            None => Ok(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::DType;

    use super::*;
    use crate::grad;

    #[test]
    fn a_call_that_donates_is_planned_as_one() -> Result<()> {
        let w = Tensor::eye(32, DType::F32);
        let loss = |x: &Tensor| (0..6).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..);
        let step = |x: &Tensor| -> Result<Tensor> { Ok(x - grad(loss)(x)? * 0.01) };
        let x = || Tensor::ones([64, 32], DType::F32);
        let memory = jit(step).memory(&x())?;
        assert!(memory.donated_peak < memory.peak, "{memory}");
        let options = JitOptions { memory_limit: Some(memory.donated_peak), ..JitOptions::default() };
        let limited = jit_with(&options, step);
        let is_repeated = || -> Result<Vec<bool>> {
            let (_, entry) = limited.found(&x())?;
            let compiled = entry.executables.all();
            Ok(compiled.iter().map(|compiled| compiled.rematerialization().is_some()).collect())
        };
        limited.call(x())?;
        assert_eq!(is_repeated()?, [false]);
        // A caller who keeps the argument needs its bytes too.
        let kept = x();
        limited.call(kept.clone())?;
        assert_eq!(is_repeated()?, [true]);
        drop(kept);
        Ok(())
    }
}
