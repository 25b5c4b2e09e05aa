//! The stages of a jitted function, as in JAX: traced, lowered, compiled.

use std::borrow::Cow;
use std::sync::Arc;

use remat_ir::{
    Aval, CompileOptions, Error, ErrorKind, Executable, Jaxpr, LiveKind, LiveRanges, LiveValue, Loc, MemoryReport,
    MemoryStats, Moves, Profile, Rematerialization, Result, Value,
};
use remat_opt::cost::{self, Cost};
use remat_opt::pipeline;
use remat_xla::{AheadOptions, Attention, ChipMemory, Options, Platform};

use super::jit::JitOptions;
use super::limit::{OverLimit, memory_limit};
use super::plan::Plan;
use crate::checks::{Checked, Checks};
use crate::trace::{
    Device, Program, Repr, Tensor, Tracer, compute, current_loc, default_device, expect_avals, into_values, operands,
    pinned_at, tensors, two_devices,
};
use crate::transform::on_one_device;

/// The target of compilation.
#[derive(Clone, Default)]
pub(super) struct Target {
    /// The device that the user asked for.
    pub(super) device: Option<Device>,
    /// The limit that the user asked for, or the error of a text that is no number of bytes.
    pub(super) memory_limit: Option<Result<usize>>,
    pub(super) over_limit: OverLimit,
    /// The plan whose steps its program runs.
    pub(super) plan: Option<Plan>,
    /// The checks of its runs; `None` for those of the environment.
    pub(super) checks: Option<Checks>,
}

impl Target {
    /// What the options ask for.
    pub(super) fn of(options: &JitOptions) -> Target {
        Target {
            device: options.device.clone(),
            memory_limit: options.memory_limit.map(Ok),
            over_limit: options.over_limit,
            plan: options.plan.clone(),
            checks: options.checks,
        }
    }

    /// The limit that the user asked for, with the option or with a plan, or else that of the environment.
    ///
    /// # Errors
    /// If one of them is no number of bytes.
    pub(super) fn limit(&self) -> Result<Option<usize>> {
        let asked = self.memory_limit.clone().transpose()?;
        memory_limit(asked.or(self.plan.as_ref().map(Plan::peak)))
    }

    /// The device of a run with these captured constants and leaves: the requested one, or else the one on which any of them is, or else
    /// the default.
    ///
    /// # Errors
    /// If one of them is on another device.
    pub(super) fn device_for(
        &self,
        operation: &str,
        captured: &[Tensor],
        leaves: &[Tensor],
    ) -> Result<Cow<'_, Device>> {
        let mut device = self.device.as_ref().map(Cow::Borrowed);
        let mut first = None;
        for (i, tensor) in captured.iter().chain(leaves).enumerate() {
            let Repr::Concrete(Value::Device(array)) = &tensor.0 else { continue };
            let constant = (i < captured.len()).then(|| array.aval());
            match &device {
                None => (device, first) = (Some(Cow::Owned(array.device().into())), constant),
                Some(device) if device.name() == array.device_name() => {}
                Some(device) => {
                    let (one, other) = (device.name(), array.device_name());
                    if self.device.is_none() && first.is_none() {
                        return Err(two_devices(operation, one, other));
                    }
                    let what = |constant: Option<&Aval>| match constant {
                        Some(aval) => format!("the captured constant {aval}"),
                        None => "an operand".to_string(),
                    };
                    let (first, this) = (what(first), what(constant));
                    let message = match &self.device {
                        None => format!("{first} is on {one} and {this} on {other}; move one of them with `to_device`"),
                        Some(_) => format!(
                            "the function is compiled for {one} and {this} is on {other}; move it with `to_device`"
                        ),
                    };
                    return Err(Error::new(ErrorKind::Argument, operation, message));
                }
            }
        }
        device.map_or_else(|| default_device().map(Cow::Borrowed), Ok)
    }
}

/// A traced function.
pub struct Traced {
    program: Program,
    paths: Arc<[Arc<str>]>,
    target: Target,
}

impl Traced {
    pub(super) fn new(program: Program, paths: Arc<[Arc<str>]>, target: Target) -> Traced {
        Traced { program, paths, target }
    }

    /// The program. Its inputs are the captured constants, then the leaves of the argument.
    pub fn jaxpr(&self) -> &Arc<Jaxpr> {
        &self.program.jaxpr
    }

    /// The outer tensors that the function uses.
    pub(super) fn captured(&self) -> &[Tensor] {
        &self.program.captured
    }

    /// Simplifies the program: folds literals, merges common subexpressions, drops dead code.
    ///
    /// # Errors
    /// If a simplification fails, which is a bug in `remat`.
    #[track_caller]
    pub fn lower(&self) -> Result<Lowered> {
        let loc = current_loc();
        let jaxpr = Arc::new(pipeline::run(pipeline::JIT, &self.program.jaxpr).map_err(|error| error.at(loc))?);
        let Traced { program, paths, target } = self;
        Ok(Lowered { jaxpr, captured: program.captured.clone(), paths: paths.clone(), target: target.clone() })
    }
}

/// A program that is ready to be compiled.
#[derive(Clone)]
pub struct Lowered {
    jaxpr: Arc<Jaxpr>,
    captured: Vec<Tensor>,
    paths: Arc<[Arc<str>]>,
    target: Target,
}

impl Lowered {
    /// A program without captured constants, to be compiled for the device of these options.
    ///
    /// # Errors
    /// As [`Traced::lower`].
    pub(super) fn of(options: &JitOptions, program: &Jaxpr) -> Result<Lowered> {
        let program = Program { jaxpr: program.clone().into(), captured: Vec::new() };
        let target = Target { device: options.device.clone(), ..Target::default() };
        Traced { program, paths: Arc::default(), target }.lower()
    }

    /// The program. Its inputs are the captured constants, then the leaves of the argument.
    pub fn jaxpr(&self) -> &Arc<Jaxpr> {
        &self.jaxpr
    }

    /// The engine's steps of the program, in the order in which they run, with the memory of each value. The text is for people; its form
    /// differs between engines.
    ///
    /// # Errors
    /// If the engine cannot run the program; captured constants on two devices.
    #[track_caller]
    pub fn steps(&self) -> Result<String> {
        let steps = || {
            let device = self.target.device_for("steps", &self.captured, &[])?;
            device.engine().steps(&device.placed(&self.jaxpr)?)
        };
        let loc = current_loc();
        steps().map_err(|error: Error| error.at(loc))
    }

    /// What the engine decides about the steps of the program: each move that it makes or refuses, with its value, its gain and the reason. A
    /// memory limit and a plan are those of the options. None on engines without steps of their own.
    ///
    /// # Errors
    /// If the engine cannot run the program; captured constants on two devices.
    #[track_caller]
    pub fn moves(&self) -> Result<Moves> {
        let moves = || {
            let (device, jaxpr) = self.placed("moves")?;
            let options = self.options(&device, &jaxpr, self.target.limit()?, Vec::new());
            device.engine().moves(&jaxpr, &options)
        };
        let loc = current_loc();
        moves().map_err(|error: Error| error.at(loc))
    }

    /// The work of a run: operations, and the bytes that they would read and write if each were computed on its own. It is counted on this
    /// program, including the iterations of loops, so it is the same for every engine.
    ///
    /// ```
    /// use remat::{DType, Tensor, jit};
    /// let x = Tensor::shape_only([64, 64], DType::F32);
    /// let product = jit(|x: &Tensor| x.matmul(x)).lower(&x)?;
    /// assert_eq!(product.cost().flops, 2 * 64 * 64 * 64);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn cost(&self) -> Cost {
        cost::program(&self.jaxpr)
    }

    /// The program in StableHLO, as a module for XLA on the device that it would be compiled for, or on CPUs if that is not a device of
    /// XLA. Other programs that read StableHLO, such as JAX, can read it too. The function `main` takes the captured constants, then the
    /// leaves of the argument.
    ///
    /// # Errors
    /// If the program has a linear map of which only the transpose is known; captured constants on two devices.
    #[track_caller]
    pub fn stablehlo(&self) -> Result<String> {
        let text = || {
            let device = self.target.device_for("stablehlo", &self.captured, &[])?;
            let platform = Platform::of_device(device.name()).unwrap_or_default();
            remat_xla::stablehlo(
                &self.jaxpr,
                &Options { platform, attention: Attention::of_environment()?, ..Options::default() },
            )
        };
        let loc = current_loc();
        text().map_err(|error: Error| error.at(loc))
    }

    /// Compiles the program ahead of time for chips that need not be in the machine, in a separate process, and returns the memory that it
    /// needs on each chip. Arguments may be abstract, so they need not fit in this machine's memory. A program for several chips uses the
    /// [`in_shardings`](crate::JitOptions::in_shardings) of its arguments; one chip computes all shards of a mesh.
    ///
    /// ```no_run
    /// use remat::ahead::AheadOptions;
    /// use remat::{DType, Tensor, jit};
    /// let x = Tensor::shape_only([1 << 16, 1 << 16], DType::Bf16);
    /// let lowered = jit(|x: &Tensor| x.matmul(x)).lower(&x)?;
    /// let memory = lowered.compile_for(&"tpu-v5e".parse()?, &AheadOptions::default())?;
    /// println!("{} of {} bytes", memory.peak(), memory.capacity);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the program's mesh and a target of several chips differ in the number of devices; if the plugin or the worker is missing; if the
    /// compiler refuses the program, crashes or exceeds its time limit. The kind is [`ErrorKind::Memory`] if the program does not fit.
    #[track_caller]
    pub fn compile_for(&self, target: &remat_xla::Target, options: &AheadOptions) -> Result<ChipMemory> {
        let compile = || {
            let jaxpr = if target.chips() == 1 { on_one_device(&self.jaxpr)? } else { Cow::Borrowed(&*self.jaxpr) };
            remat_xla::compile_ahead(&jaxpr, target, options)
        };
        let loc = current_loc();
        compile().map_err(|error: Error| error.at(loc))
    }

    /// Compiles the program for the requested device, or else for the device of the captured constants, or else for the default.
    ///
    /// # Errors
    /// If the engine cannot run the program; captured constants on two devices; if the program needs more memory than
    /// [`JitOptions::memory_limit`](crate::JitOptions::memory_limit) even with all arguments donated.
    #[track_caller]
    pub fn compile(&self) -> Result<Compiled> {
        let loc = current_loc();
        let device = self.target.device_for("compile", &self.captured, &[]).map_err(|error| error.at(loc))?;
        self.compile_on(&device, Vec::new())
    }

    /// The device on which it would run, and its program there.
    ///
    /// # Errors
    /// Captured constants on two devices.
    pub(super) fn placed(&self, operation: &str) -> Result<(Device, Arc<Jaxpr>)> {
        let device = self.target.device_for(operation, &self.captured, &[])?.into_owned();
        let jaxpr = device.placed(&self.jaxpr)?;
        Ok((device, jaxpr))
    }

    /// The number of outer tensors, which come before the arguments and are never donated.
    pub(super) fn captured(&self) -> usize {
        self.captured.len()
    }

    /// The same program, to be compiled as a plan says.
    pub(super) fn planned(&self, plan: &Plan) -> Lowered {
        Lowered { target: Target { plan: Some(plan.clone()), ..self.target.clone() }, ..self.clone() }
    }

    /// As [`Lowered::compile`], for this device. Within a limit the program is for callers who donate these arguments, of which captured tensors are
    /// the first; if the list is empty, and without a limit, an engine that plans memory compiles it for callers who donate all arguments.
    #[track_caller]
    pub(super) fn compile_on(&self, device: &Device, donated: Vec<bool>) -> Result<Compiled> {
        let loc = current_loc();
        let limit = self.target.limit().map_err(|error| error.at(loc))?;
        let jaxpr = device.placed(&self.jaxpr).map_err(|error| error.at(loc))?;
        let options = self.options(device, &jaxpr, limit, donated);
        let avals = self.jaxpr.in_avals().split_off(self.captured.len());
        let executable = device.engine().compile_with(&jaxpr, &options).map_err(|error| error.at(loc))?;
        // Constants are moved once, not in every run.
        let place = |(i, tensor): (usize, &Tensor)| match &tensor.0 {
            Repr::Concrete(value) => executable.place(i, value.clone()).map(Tensor::from_value),
            _ => Ok(tensor.clone()),
        };
        let captured = self.captured.iter().enumerate().map(place).collect::<Result<Vec<Tensor>>>();
        let captured = captured.map_err(|error| error.at(loc))?;
        let checks = self.target.checks.map_or_else(Checks::of_environment, Ok).map_err(|error| error.at(loc))?;
        let checked = checks.with(compute).map(|checked| (jaxpr, checked));
        let (device, jaxpr, paths) = (device.clone(), self.jaxpr.clone(), self.paths.clone());
        let CompileOptions { mut donated, memory_limit, .. } = options;
        if memory_limit.is_none() {
            donated.clear();
        }
        let compiled = Compiled { device, jaxpr, executable, captured, paths, avals, donated, limit, checked };
        match limit {
            // The memory of a call depends on the donated arguments; this is the least.
            Some(limit) if compiled.memory().donated_peak > limit => {
                let report = compiled.memory_report();
                Err(report.over_limit(report.stats.donated_peak, limit).at(loc))
            }
            _ => Ok(compiled),
        }
    }
}

/// For each of so many inputs, whether it is an argument, and not one of the captured tensors, which are the first and which no caller donates.
fn all_arguments(captured: usize, inputs: usize) -> Vec<bool> {
    (0..inputs).map(|input| input >= captured).collect()
}

impl Lowered {
    /// The options with which the program for a device is compiled.
    fn options(&self, device: &Device, jaxpr: &Arc<Jaxpr>, limit: Option<usize>, donated: Vec<bool>) -> CompileOptions {
        let Target { plan, over_limit, .. } = &self.target;
        let planned = plan.as_ref().and_then(|plan| plan.schedule_of(device, jaxpr, &donated));
        let (schedule, donated) = planned.map_or((None, donated), |(schedule, donated)| (Some(schedule), donated));
        let memory_limit = limit.filter(|_| *over_limit == OverLimit::Rematerialize);
        // Calls differ, and where the engine plans memory a program without a limit is compiled once for all of them. XLA compiles one for each.
        let is_for_all = donated.is_empty() || memory_limit.is_none() && schedule.is_none();
        let donated = if is_for_all && device.engine().plans_memory() {
            all_arguments(self.captured.len(), self.jaxpr.ins.len())
        } else {
            donated
        };
        CompileOptions { donated, memory_limit, schedule }
    }
}

/// A compiled program.
pub struct Compiled {
    device: Device,
    /// The program before the device's own form of it.
    jaxpr: Arc<Jaxpr>,
    executable: Arc<dyn Executable>,
    /// Constants, on the device.
    captured: Vec<Tensor>,
    /// The paths of the leaves.
    paths: Arc<[Arc<str>]>,
    /// The avals of the leaves.
    avals: Vec<Aval>,
    /// Whether each argument is donated by the caller for whom it was made to fit its limit; empty if that was not known, or not done.
    donated: Vec<bool>,
    /// The most bytes that a run may need.
    limit: Option<usize>,
    /// The program as the checks of its runs compute it, and these; `None` if there are none.
    checked: Option<(Arc<Jaxpr>, Checked)>,
}

impl Compiled {
    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The bytes that a run needs, computed before it runs.
    pub fn memory(&self) -> MemoryStats {
        self.executable.memory()
    }

    /// As [`Compiled::memory`], with the values that are live at the peak.
    pub fn memory_report(&self) -> MemoryReport {
        let mut report = self.executable.memory_report();
        for value in report.live.iter_mut().chain(&mut report.donated) {
            self.name_argument(value);
        }
        report
    }

    /// The steps of the program in order, and when each value is in memory, for callers who donate the arguments that those for whom it was
    /// compiled do; if that was not known, for callers who donate all. `None` if its device does not report them.
    ///
    /// ```
    /// use remat::{Tensor, jit};
    /// let program = jit(|x: &Tensor| x.exp().cumsum(0).sum(..)).lower(&Tensor::from(vec![1.0f32, 2.0]))?.compile()?;
    /// let memory = program.live_ranges().expect("the native engine reports them");
    /// assert_eq!(memory.ranges[0].at, 0..memory.steps.len());
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn live_ranges(&self) -> Option<LiveRanges> {
        self.live_ranges_where_donated(&self.donated_or_all())
    }

    /// The number of captured tensors, which are the first inputs of the program.
    pub(crate) fn captured(&self) -> usize {
        self.captured.len()
    }

    /// For each argument, of which captured tensors are the first, whether the callers donate it for whom this was compiled; if that was not
    /// known, all arguments but the captured tensors.
    fn donated_or_all(&self) -> Vec<bool> {
        if !self.donated.is_empty() {
            return self.donated.clone();
        }
        all_arguments(self.captured.len(), self.captured.len() + self.avals.len())
    }

    /// As [`Compiled::live_ranges`], for callers who donate these arguments, of which captured tensors are the first.
    pub(super) fn live_ranges_where_donated(&self, donated: &[bool]) -> Option<LiveRanges> {
        let mut memory = self.executable.live_ranges(donated)?;
        for range in &mut memory.ranges {
            self.name_argument(&mut range.value);
            if let LiveKind::Argument(number) = &mut range.value.kind {
                *number = number.saturating_sub(self.captured.len());
            }
        }
        Some(memory)
    }

    /// Gives an argument the path of its leaf; a captured tensor is a constant.
    fn name_argument(&self, value: &mut LiveValue) {
        if let LiveKind::Argument(i) = value.kind {
            match i.checked_sub(self.captured.len()) {
                Some(leaf) => value.name = self.paths.get(leaf).filter(|path| !path.is_empty()).cloned(),
                None => value.kind = LiveKind::Constant,
            }
        }
    }

    /// How the program was made to fit its limit: the values that it computes several times, and the time of a run by the cost model. `None`
    /// if it computes everything once.
    ///
    /// ```
    /// use remat::{DType, Tensor, grad, jit};
    /// let w = Tensor::eye(64, DType::F32);
    /// let loss = |x: &Tensor| (0..12).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..);
    /// let x = Tensor::ones([256, 64], DType::F32);
    /// let limit = jit(grad(loss)).memory(&x)?.peak * 7 / 10;
    /// let program = jit(grad(loss)).memory_limit(limit).lower(&x)?.compile()?;
    /// let planned = program.rematerialization().expect("less than it needs");
    /// assert_eq!(planned.recomputed[0].value.aval.to_string(), "f32[256,64]");
    /// assert!(planned.overhead() > 0.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn rematerialization(&self) -> Option<Arc<Rematerialization>> {
        self.executable.rematerialization()
    }

    /// The plan as which it runs, from which others of the same program come. It is for callers who donate the arguments that those for whom it
    /// was compiled do; if that was not known, for callers who donate all.
    ///
    /// ```
    /// use remat::{Tensor, jit};
    /// let program = jit(|x: &Tensor| x.sin() * x).lower(&Tensor::from(vec![1.0f32, 2.0]))?.compile()?;
    /// assert_eq!(program.plan()?.peak(), program.memory().donated_peak);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// If its device is not the native engine.
    #[track_caller]
    pub fn plan(&self) -> Result<Plan> {
        let plan = || {
            let donated = self.donated_or_all();
            let target = Target { device: Some(self.device.clone()), ..Target::default() };
            let (jaxpr, captured, paths) = (self.jaxpr.clone(), self.captured.clone(), self.paths.clone());
            let free = Plan::unlimited(Lowered { jaxpr, captured, paths, target }, donated)?;
            let chosen = self.rematerialization();
            let planned = chosen.map(|chosen| free.with_steps(&chosen.schedule)).transpose()?.flatten();
            Ok(planned.unwrap_or(free))
        };
        let loc = current_loc();
        plan().map_err(|error: Error| error.at(loc))
    }

    /// Whether it may be within its limit only where arguments are donated.
    pub(super) fn counts_on_donation(&self) -> bool {
        self.donated.contains(&true)
    }

    /// Whether a caller who donates these arguments stays within the limit.
    pub(super) fn fits(&self, donated: &[bool]) -> bool {
        let is_kept = |(counted, given): (&bool, &bool)| *counted && !given;
        let keeps_less = self.donated.iter().zip(donated).any(is_kept);
        !keeps_less || self.limit.is_none_or(|limit| self.memory().peak <= limit)
    }

    /// The arguments that both this caller and the one for whom it was compiled donate.
    pub(super) fn donated_by_both(&self, donated: &[bool]) -> Vec<bool> {
        self.donated.iter().zip(donated).map(|(one, other)| *one && *other).collect()
    }

    /// Runs the program on the leaves of an argument.
    ///
    /// # Errors
    /// If the number of leaves or an aval does not match the program.
    #[track_caller]
    pub fn call(&self, leaves: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let loc = current_loc();
        self.check_and_run(leaves, loc).map_err(|error| error.at(loc))
    }

    fn check_and_run(&self, leaves: Vec<Tensor>, loc: Loc) -> Result<Vec<Tensor>> {
        self.expect_leaves(&leaves)?;
        self.run("compiled", leaves, loc)
    }

    /// # Errors
    /// If these are no leaves for the program on its device.
    fn expect_leaves(&self, leaves: &[Tensor]) -> Result<()> {
        if Tracer::is_open() {
            let message = "a compiled program cannot be called while a function is traced; call the jitted function";
            return Err(Error::new(ErrorKind::Traced, "compiled", message));
        }
        expect_avals("compiled", "leaf", leaves, self.avals.iter())?;
        let device = Target { device: Some(self.device.clone()), ..Target::default() };
        device.device_for("compiled", &[], leaves).map(drop)
    }

    /// As [`Compiled::call`], and waits; with the time of each step.
    ///
    /// # Errors
    /// As [`Compiled::call`]; if the device is not the native engine.
    #[track_caller]
    pub fn profile(&self, leaves: Vec<Tensor>) -> Result<(Vec<Tensor>, Profile)> {
        let loc = current_loc();
        let run = || {
            self.expect_leaves(&leaves)?;
            self.run_profiled("profile", leaves, loc)
        };
        run().map_err(|error: Error| error.at(loc))
    }

    /// The time of each step of a run on leaves with its avals. Checks do not run.
    pub(super) fn run_profiled(
        &self,
        operation: &str,
        leaves: Vec<Tensor>,
        loc: Loc,
    ) -> Result<(Vec<Tensor>, Profile)> {
        let (outs, profile) = self.executable.profile(self.values(operation, leaves)?)?;
        Ok((tensors(outs, loc), profile))
    }

    /// Runs the program on leaves with its avals, on its device or the host.
    pub(super) fn run(&self, operation: &str, leaves: Vec<Tensor>, loc: Loc) -> Result<Vec<Tensor>> {
        self.run_values(operation, self.values(operation, leaves)?, loc)
    }

    /// As [`Compiled::run`]. An error comes with the leaves if nothing has been written into them: the run had not begun, or it had checks,
    /// and kept them.
    pub(super) fn run_or_return(
        &self,
        operation: &str,
        leaves: Vec<Tensor>,
        loc: Loc,
    ) -> Result<Vec<Tensor>, (Error, Option<Vec<Tensor>>)> {
        let mut given = self.captured.iter().chain(&leaves);
        if let Err(error) = given.try_for_each(|tensor| pinned_at(loc, || tensor.value(operation).map(drop))) {
            return Err((error, Some(leaves)));
        }
        let values = into_values(operation, operands(&self.captured, leaves)).map_err(|error| (error, None))?;
        let leaves =
            |values: Vec<Value>| values.into_iter().skip(self.captured.len()).map(Tensor::from_value).collect();
        if let Err(error) = self.expect_limit(&values) {
            return Err((error, Some(leaves(values))));
        }
        let kept = self.checked.is_some().then(|| leaves(values.clone()));
        self.run_values(operation, values, loc).map_err(|error| (error, kept))
    }

    fn run_values(&self, operation: &str, values: Vec<Value>, loc: Loc) -> Result<Vec<Tensor>> {
        match &self.checked {
            None => Ok(tensors(self.executable.execute(values)?, loc)),
            Some((jaxpr, checked)) => {
                let place = |(number, value)| self.executable.place(number, value);
                let values = values.into_iter().enumerate().map(place).collect::<Result<Vec<Value>>>()?;
                let outs = checked.run(operation, jaxpr, values, |number| self.argument(number))?;
                Ok(tensors(outs, loc))
            }
        }
    }

    /// The arguments of a run on these leaves.
    ///
    /// # Errors
    /// If the run would need more than the limit.
    fn values(&self, operation: &str, leaves: Vec<Tensor>) -> Result<Vec<Value>> {
        let values = into_values(operation, operands(&self.captured, leaves))?;
        self.expect_limit(&values)?;
        Ok(values)
    }

    /// # Errors
    /// If the run would need more than the limit.
    fn expect_limit(&self, values: &[Value]) -> Result<()> {
        if let Some(limit) = self.limit {
            let needed = self.executable.peak_of(values);
            if needed > limit {
                return Err(self.memory_report().over_limit(needed, limit));
            }
        }
        Ok(())
    }

    /// An argument of the program in words.
    fn argument(&self, number: usize) -> String {
        let Some(leaf) = number.checked_sub(self.captured.len()) else { return format!("captured constant {number}") };
        match self.paths.get(leaf).filter(|path| !path.is_empty()) {
            Some(path) => format!("argument {path}"),
            None => format!("argument {leaf}"),
        }
    }
}
