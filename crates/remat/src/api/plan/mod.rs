//! Plans: the fastest way to run a function within a number of bytes.

mod explanation;
mod file;
mod lock;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use remat_ir::{
    CompileOptions, Error, ErrorKind, Executable, Jaxpr, LiveRanges, RecomputedValue, Rematerialization, Result,
    StepSchedule, counted,
};
use remat_plan::pareto_front;

pub use explanation::Explanation;

use super::jit::{JitOptions, jit};
use super::limit::memory_limit;
use super::stages::{Compiled, Lowered};
use crate::files::write_bytes;
use crate::trace::{Device, Output, Tree, current_loc};
use lock::Lock;

/// How many plans are made between two points of the curve, to find the least memory at a price.
const BETWEEN: usize = 3;

/// Into how many parts the bytes between the least memory and a program without a limit are cut, where the engine's curve has few points.
const FILLED: usize = 5;

/// The points of the curve from which the least memory is searched for.
const POINTS: usize = 16;

/// Plans a function for an argument of this structure and avals: how much memory it needs, and what less memory would cost. Nothing runs.
///
/// The plan is that of a program without a limit. Others of the same program come from it: the fastest within a number of bytes
/// ([`Plan::for_bytes`]), the smallest at a price ([`Plan::for_slowdown`], [`Plan::minimum`]), or a curve ([`Plan::pareto`]).
///
/// The argument is moved in. As in a call, a leaf without other references is donated: a result may take its memory. A leaf that has only a
/// shape counts as donated.
///
/// ```
/// use remat::{DType, Tensor, grad, jit_with, plan};
/// // The backward pass of twelve layers reads what the forward pass computes.
/// let w = Tensor::eye(64, DType::F32);
/// let loss = |x: &Tensor| (0..12).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..);
/// let x = || Tensor::ones([256, 64], DType::F32);
/// let free = plan(grad(loss), x())?;
/// let half = free.for_bytes(free.peak() * 7 / 10)?;
/// assert!(half.peak() <= free.peak() * 7 / 10 && half.overhead() > 0.0);
/// println!("{}", half.explain()?);
/// // The same function runs as planned.
/// let step = jit_with(&half.options(), grad(loss));
/// assert_eq!(step.call(x())?.to_vec::<f32>()?, grad(loss)(&x())?.to_vec::<f32>()?);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if the device's engine has no plans; the native one alone has today.
#[track_caller]
pub fn plan<A: Tree, R: Output>(f: impl Fn(&A) -> R, args: A) -> Result<Plan> {
    jit(f).plan(args)
}

/// A way to run a program: which values it computes several times, the bytes that it needs, and its time by the cost model.
///
/// The bytes are those of a call, with arguments, results and overhead, and a run needs exactly as many. The time is that of the cost
/// model: compare it with that of other plans, and measure.
#[derive(Clone)]
pub struct Plan {
    program: Arc<Planned>,
    /// What is computed several times; `None` if nothing is.
    chosen: Option<Arc<Rematerialization>>,
}

/// A program with its plans.
struct Planned {
    lowered: Lowered,
    device: Device,
    /// The program on this device.
    jaxpr: Arc<Jaxpr>,
    /// For each argument of the program, whether it is donated.
    donated: Vec<bool>,
    /// The bytes without a limit.
    peak: usize,
    /// The plans that were found so far, so that more bytes are never slower.
    found: Mutex<Vec<Arc<Rematerialization>>>,
    /// Whether the plans that were found are those of a curve with [`POINTS`].
    has_curve: AtomicBool,
}

impl Planned {
    fn found(&self) -> MutexGuard<'_, Vec<Arc<Rematerialization>>> {
        self.found.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The fastest of the plans that were found and are wanted.
    fn fastest(&self, is_wanted: impl Fn(&Rematerialization) -> bool) -> Option<Arc<Rematerialization>> {
        let found = self.found();
        found.iter().filter(|plan| is_wanted(plan)).min_by_key(|plan| (plan.time, plan.peak)).cloned()
    }

    /// The one of them with the least memory.
    fn smallest(&self, is_wanted: impl Fn(&Rematerialization) -> bool) -> Option<Arc<Rematerialization>> {
        let found = self.found();
        found.iter().filter(|plan| is_wanted(plan)).min_by_key(|plan| (plan.peak, plan.time)).cloned()
    }

    /// Compiles the program for this many bytes, and adds the plan to those that were found.
    fn compile(&self, bytes: usize) -> Result<Arc<dyn Executable>> {
        let options =
            CompileOptions { donated: self.donated.clone(), memory_limit: Some(bytes), ..CompileOptions::default() };
        let executable = self.device.engine().compile_with(&self.jaxpr, &options)?;
        self.found().extend(executable.rematerialization());
        Ok(executable)
    }

    /// The plan with these steps, as the engine judges them without a search, which is added to those that were found. `None` if they are not
    /// steps of this program.
    fn replayed(&self, schedule: &Arc<StepSchedule>) -> Result<Option<Arc<Rematerialization>>> {
        let donated = self.donated.clone();
        let options = CompileOptions { donated, memory_limit: None, schedule: Some(schedule.clone()) };
        let found = self.device.engine().compile_with(&self.jaxpr, &options)?.rematerialization();
        // For other steps the engine looks for its own.
        let found = found.filter(|found| found.schedule == *schedule);
        self.found().extend(found.clone());
        Ok(found)
    }

    /// Plans from the least memory on, and those that were found before: each faster than those with fewer bytes.
    fn pareto(&self, points: usize) -> Result<Vec<Arc<Rematerialization>>> {
        let plans = self.device.engine().pareto(&self.jaxpr, &self.donated, points)?;
        self.found().extend(plans.into_iter().map(Arc::new));
        // Each plan goes on from one for a few more bytes, and the first of them may not be found: then the least memory is searched for, and the
        // fastest plans for some numbers of bytes above it.
        if self.front().len() < points / 2 {
            self.compile(0)?;
            let least = self.found().iter().map(|plan| plan.peak).min().unwrap_or(self.peak);
            let between = (1..FILLED).map(|part| least + self.peak.saturating_sub(least) / FILLED * part);
            for bytes in between.filter(|&bytes| least < bytes) {
                self.compile(bytes)?;
            }
        }
        Ok(self.front())
    }

    /// Those of the plans that were found to which no other is equal or better in both bytes and time, from the least bytes on.
    fn front(&self) -> Vec<Arc<Rematerialization>> {
        let found = self.found().clone();
        pareto_front(found, |plan| (plan.peak, plan.time))
    }

    fn find_curve(&self) -> Result<()> {
        // Two threads may both look for it, and find the same plans.
        if !self.has_curve.load(Ordering::Acquire) {
            self.pareto(POINTS)?;
            self.has_curve.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Plan {
    /// The plan of a program that is not a function of Rust, such as one read from text, without a limit, on the default device.
    ///
    /// `donated` has an element for each input: whether callers donate it, so that a result may take its memory.
    ///
    /// ```
    /// use remat::ir::Jaxpr;
    /// use remat::{Plan, Tensor};
    /// let program: Jaxpr = "{ lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b a in (c,) }".parse()?;
    /// let plan = Plan::of(&program, &[true])?;
    /// println!("{}", plan.explain()?);
    /// assert_eq!(plan.compile()?.call(vec![Tensor::from(vec![0.0f32; 3])])?[0].to_vec::<f32>()?, [0.0; 3]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::of_with`].
    #[track_caller]
    pub fn of(program: &Jaxpr, donated: &[bool]) -> Result<Plan> {
        Plan::of_with(&JitOptions::default(), program, donated)
    }

    /// As [`Plan::of`], on the device of the options, and within their limit if they have one. Other options have no effect.
    ///
    /// # Errors
    /// If the program breaks a rule, or `donated` does not have an element for each input; if the device is not the native engine; if the
    /// program does not fit the limit.
    #[track_caller]
    pub fn of_with(options: &JitOptions, program: &Jaxpr, donated: &[bool]) -> Result<Plan> {
        let plan = || {
            remat_ir::check(program)?;
            if program.ins.len() != donated.len() {
                let (inputs, given) = (counted(program.ins.len(), "input"), donated.len());
                let message = format!("the program has {inputs}, and `donated` has {given}: one for each is expected");
                return Err(Error::new(ErrorKind::Argument, "plan", message));
            }
            let plan = Plan::unlimited(Lowered::of(options, program)?, donated.to_vec())?;
            plan.within(memory_limit(options.memory_limit.or(options.plan.as_ref().map(Plan::peak)))?)
        };
        let loc = current_loc();
        plan().map_err(|error: Error| error.at(loc))
    }

    /// The plan of a program without a limit, for callers who donate these arguments.
    ///
    /// # Errors
    /// If the engine of the program's device plans no memory, or the program cannot be compiled.
    pub(super) fn unlimited(lowered: Lowered, donated: Vec<bool>) -> Result<Plan> {
        let (device, jaxpr) = lowered.placed("plan")?;
        if !device.engine().plans_memory() {
            let message = format!("the engine of {} has no plans; the native engine has", device.name());
            return Err(Error::new(ErrorKind::Argument, "plan", message));
        }
        let options = CompileOptions { donated: donated.clone(), ..CompileOptions::default() };
        let peak = device.engine().compile_with(&jaxpr, &options)?.memory_where_donated(&donated).peak;
        let (found, has_curve) = (Mutex::default(), AtomicBool::new(false));
        let program = Planned { lowered, device, jaxpr, donated, peak, found, has_curve };
        Ok(Plan { program: program.into(), chosen: None })
    }

    /// The plan for a limit, if there is one.
    ///
    /// # Errors
    /// As [`Plan::for_bytes`].
    #[track_caller]
    pub(super) fn within(self, limit: Option<usize>) -> Result<Plan> {
        limit.map_or_else(|| Ok(self.clone()), |bytes| self.for_bytes(bytes))
    }

    /// The plan of the same program with these steps, if they are steps of it.
    ///
    /// # Errors
    /// If a plan is wrong, which is a defect.
    pub(super) fn with_steps(&self, schedule: &Arc<StepSchedule>) -> Result<Option<Plan>> {
        Ok(self.program.replayed(schedule)?.map(|found| self.with(Some(found))))
    }

    /// The bytes of a call: arguments, results, temporaries and overhead.
    pub fn peak(&self) -> usize {
        self.chosen.as_ref().map_or(self.program.peak, |chosen| chosen.peak)
    }

    /// The time of a run beyond that without a limit, by the cost model, as a share of it: 0.1 for a tenth more.
    pub fn overhead(&self) -> f64 {
        self.chosen.as_ref().map_or(0.0, |chosen| chosen.overhead())
    }

    /// A lower bound of [`Plan::repeated`]: no plan of the same steps for these bytes in which they first run in the same order takes less for
    /// those that run again.
    pub fn bound(&self) -> f64 {
        self.chosen.as_ref().map_or(0.0, |chosen| chosen.share(chosen.bound))
    }

    /// The time of the steps that run again, as a share of the time without a limit. The engine then joins loops and computes them in blocks
    /// where that fits, so that [`Plan::overhead`] may be less or more.
    pub fn repeated(&self) -> f64 {
        self.chosen.as_ref().map_or(0.0, |chosen| chosen.share(chosen.repeated()))
    }

    /// The values that are computed several times, those that take the most time first.
    pub fn recomputed(&self) -> &[RecomputedValue] {
        self.chosen.as_ref().map_or(&[], |chosen| &chosen.recomputed)
    }

    /// The fastest plan that is found for a call that needs at most this many bytes.
    ///
    /// # Errors
    /// If none is found: the message has the least bytes that were found, and lists the largest values at the peak.
    #[track_caller]
    pub fn for_bytes(&self, bytes: usize) -> Result<Plan> {
        let loc = current_loc();
        let program = &*self.program;
        if program.peak <= bytes {
            return Ok(self.with(None));
        }
        let compiled = program.compile(bytes).map_err(|error| error.at(loc))?;
        match program.fastest(|plan| plan.peak <= bytes) {
            Some(plan) => Ok(self.with(Some(plan))),
            None => {
                let needed = compiled.memory_where_donated(&program.donated).peak;
                Err(compiled.memory_report().over_limit(needed, bytes).at(loc))
            }
        }
    }

    /// The plan with the least memory that is found whose overhead is at most this: 0.01 for one percent.
    ///
    /// # Errors
    /// If the share is negative or not a number.
    #[track_caller]
    pub fn for_slowdown(&self, share: f64) -> Result<Plan> {
        let loc = current_loc();
        if share.is_nan() || share < 0.0 {
            let message =
                format!("the overhead is {share} and must be a number from 0 on, such as 0.01 for one percent");
            return Err(Error::new(ErrorKind::Argument, "plan", message).at(loc));
        }
        let program = &*self.program;
        let within = |plan: &Rematerialization| plan.overhead() <= share;
        let fits = |program: &Planned| program.smallest(within).map_or(program.peak, |plan| plan.peak);
        program.find_curve().map_err(|error| error.at(loc))?;
        // Between two points of the curve there may be a plan with fewer bytes.
        let mut low = program.found().iter().filter(|plan| !within(plan)).map(|plan| plan.peak).max().unwrap_or(0);
        for _ in 0..BETWEEN {
            let high = fits(program);
            if low >= high {
                break;
            }
            let middle = low + (high - low) / 2;
            program.compile(middle).map_err(|error| error.at(loc))?;
            if fits(program) >= high {
                low = middle;
            }
        }
        Ok(self.with(program.smallest(within)))
    }

    /// The plan with the least memory that is found.
    ///
    /// # Errors
    /// If a plan is wrong, which is a defect.
    #[track_caller]
    pub fn minimum(&self) -> Result<Plan> {
        let loc = current_loc();
        self.program.find_curve().map_err(|error| error.at(loc))?;
        self.program.compile(0).map_err(|error| error.at(loc))?;
        Ok(self.with(self.program.smallest(|_| true)))
    }

    /// About this many plans, from the least memory that is found to a program without a limit. Each is faster than those with fewer bytes.
    ///
    /// # Errors
    /// As [`Plan::minimum`].
    #[track_caller]
    pub fn pareto(&self, points: usize) -> Result<Vec<Plan>> {
        let loc = current_loc();
        let found = self.program.pareto(points).map_err(|error| error.at(loc))?;
        let mut plans: Vec<Plan> = found.into_iter().map(|plan| self.with(Some(plan))).collect();
        // A plan that takes no more time than without a limit makes that one superfluous.
        if plans.last().is_none_or(|last| last.overhead() > 0.0) {
            plans.push(self.with(None));
        }
        Ok(plans)
    }

    /// The program, compiled as planned.
    ///
    /// # Errors
    /// If the plan is wrong, which is a defect.
    #[track_caller]
    pub fn compile(&self) -> Result<Compiled> {
        let Planned { lowered, device, donated, .. } = &*self.program;
        lowered.planned(self).compile_on(device, donated.clone())
    }

    /// The steps of the plan in order, and when each value is in memory, for the callers of whom it is the plan.
    ///
    /// ```
    /// use remat::{Tensor, plan};
    /// let free = plan(|x: &Tensor| x.exp().cumsum(0), Tensor::from(vec![1.0f32, 2.0]))?;
    /// let memory = free.live_ranges()?;
    /// assert!(memory.live_bytes(|_| true).iter().all(|&bytes| bytes <= free.peak()));
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::compile`].
    #[track_caller]
    pub fn live_ranges(&self) -> Result<LiveRanges> {
        let loc = current_loc();
        let none = || Error::new(ErrorKind::Internal, "plan", "the engine reports no live ranges").at(loc);
        self.compile()?.live_ranges_where_donated(&self.program.donated).ok_or_else(none)
    }

    /// Options with which [`jit_with`](crate::jit_with) runs the function that was planned as this plan says. Its program for other
    /// arguments, and any other function, gets the bytes of this plan as its limit.
    pub fn options(&self) -> JitOptions {
        JitOptions { device: Some(self.program.device.clone()), plan: Some(self.clone()), ..JitOptions::default() }
    }

    /// What the plan does: its figures, the values that are computed several times, and those that are in memory at the peak.
    ///
    /// # Errors
    /// As [`Plan::compile`].
    #[track_caller]
    pub fn explain(&self) -> Result<Explanation> {
        let memory = self.compile()?.memory_report();
        Ok(Explanation { plan: self.clone(), memory })
    }

    /// Writes the plan to a file, from which [`Plan::load`] gets it without a search: the steps, and what they are the steps of. The file
    /// appears complete or not at all, and replaces one of this name.
    ///
    /// The text has a line for each of: the version of `remat`, a hash of the program without source lines, the arguments that callers donate, the
    /// device, its threads, the bytes and the overhead (for readers), the steps, and a checksum.
    ///
    /// # Errors
    /// If the file cannot be written, or its name is that of something that is not a file.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let save = || write_bytes("plan", path.as_ref(), Lock::of(self)?.to_string().as_bytes());
        let loc = current_loc();
        save().map_err(|error: Error| error.at(loc))
    }

    /// The plan of this program in a file that [`Plan::save`] has written, in this process or another, on this machine or another. Nothing is
    /// searched for. The engine judges the steps: a machine with other instructions may need other bytes of scratch memory for them.
    ///
    /// ```
    /// use remat::{DType, Tensor, grad, plan};
    /// let w = Tensor::eye(64, DType::F32);
    /// let loss = |x: &Tensor| (0..12).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..);
    /// let free = plan(grad(loss), Tensor::ones([256, 64], DType::F32))?;
    /// let path = std::env::temp_dir().join(format!("remat-{}.plan", std::process::id()));
    /// free.for_bytes(free.peak() * 7 / 10)?.save(&path)?;
    /// assert!(free.load(&path)?.peak() <= free.peak() * 7 / 10);
    /// # std::fs::remove_file(&path).expect("the file is there");
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Io`] if the file cannot be read, of kind [`ErrorKind::Parse`] if it is cut off, damaged or not a plan, and of kind
    /// [`ErrorKind::Argument`] if it is a plan of another version of `remat`, another program, callers who donate other arguments, another
    /// device or another number of threads. The message says which.
    #[track_caller]
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Plan> {
        let path = path.as_ref();
        let load = || {
            Lock::read(&file::read(path)?).and_then(|lock| lock.plan(self)).map_err(|error| file::named(path, &error))
        };
        let loc = current_loc();
        load().map_err(|error: Error| error.at(loc))
    }

    /// The steps of this plan and the arguments that its callers donate, if the program on a device, for callers who donate these arguments or
    /// of whom that is not known, is the one that was planned.
    pub(super) fn schedule_of(
        &self,
        device: &Device,
        jaxpr: &Arc<Jaxpr>,
        donated: &[bool],
    ) -> Option<(Arc<StepSchedule>, Vec<bool>)> {
        let Planned { device: planned, jaxpr: program, donated: counted, .. } = &*self.program;
        let is_caller = donated.is_empty() || counted == donated;
        let is_same = planned.name() == device.name() && is_caller && program == jaxpr;
        self.chosen.as_ref().filter(|_| is_same).map(|chosen| (chosen.schedule.clone(), counted.clone()))
    }

    fn with(&self, chosen: Option<Arc<Rematerialization>>) -> Plan {
        Plan { program: self.program.clone(), chosen }
    }
}
