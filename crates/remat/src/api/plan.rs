//! Plans: the fastest way to run a function within a number of bytes.

use std::cmp::Reverse;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use remat_cpu::Cpu;
use remat_ir::{
    CompileOptions, Error, ErrorKind, Executable, Jaxpr, MemoryReport, RecomputedValue, Rematerialization, Result,
    StepSchedule, readable_bytes,
};
use remat_plan::pareto_front;

use super::jit::{JitOptions, jit};
use super::stages::{Compiled, Lowered};
use crate::trace::{Device, Output, Tree, current_loc};

/// How many plans are made between two points of the curve, to find the least memory at a price.
const BETWEEN: usize = 3;

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
/// The first error inside the function; if it is compiled for another device than the native engine, which alone has plans today.
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
    /// The curve with [`POINTS`], once it was asked for.
    curve: OnceLock<()>,
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

    /// Plans from the least memory on, and those that were found before: each faster than those with fewer bytes.
    fn pareto(&self, points: usize) -> Result<Vec<Arc<Rematerialization>>> {
        let plans = self.device.engine().pareto(&self.jaxpr, &self.donated, points)?;
        self.found().extend(plans.into_iter().map(Arc::new));
        let found = self.found().clone();
        Ok(pareto_front(found, |plan| (plan.peak, plan.time)))
    }

    fn find_curve(&self) -> Result<()> {
        if self.curve.get().is_none() {
            self.pareto(POINTS)?;
            self.curve.get_or_init(|| ());
        }
        Ok(())
    }
}

impl Plan {
    /// The plan of a program without a limit, for callers who donate these arguments.
    ///
    /// # Errors
    /// If the program is for another device than the native engine, or cannot be compiled.
    pub(super) fn unlimited(lowered: Lowered, donated: Vec<bool>) -> Result<Plan> {
        let (device, jaxpr) = lowered.placed("plan")?;
        if device.name() != Cpu::NAME {
            let message = format!("the native engine has plans, and the program is for {}", device.name());
            return Err(Error::new(ErrorKind::Argument, "plan", message));
        }
        let peak = device.engine().compile(&jaxpr)?.peak_where_donated(&donated);
        let (found, curve) = (Mutex::default(), OnceLock::new());
        let program = Planned { lowered, device, jaxpr, donated, peak, found, curve };
        Ok(Plan { program: program.into(), chosen: None })
    }

    /// The bytes of a call: arguments, results, temporaries and overhead.
    pub fn peak(&self) -> usize {
        self.chosen.as_ref().map_or(self.program.peak, |chosen| chosen.peak)
    }

    /// The time of a run beyond that without a limit, by the cost model, as a share of it: 0.1 for a tenth more.
    pub fn overhead(&self) -> f64 {
        self.chosen.as_ref().map_or(0.0, |chosen| chosen.overhead())
    }

    /// No plan for these bytes whose steps first run in the same order has less overhead than this.
    pub fn bound(&self) -> f64 {
        self.chosen.as_ref().map_or(0.0, |chosen| chosen.bound as f64 / chosen.unlimited_time.max(1) as f64)
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
                let needed = compiled.peak_where_donated(&program.donated);
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

/// What a plan does. Its text has the figures, the values that are computed several times, and the values in memory at the peak; `{:#}`
/// prints all of them.
#[derive(Clone)]
pub struct Explanation {
    plan: Plan,
    memory: MemoryReport,
}

impl Explanation {
    /// The bytes of the program, and the values that are live at its peak.
    pub fn memory(&self) -> &MemoryReport {
        &self.memory
    }
}

/// How many kinds of values a text shows.
const SHOWN: usize = 8;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { plan, memory } = self;
        let peak = readable_bytes(plan.peak());
        let shown = if f.alternate() { usize::MAX } else { SHOWN };
        match &plan.chosen {
            None => writeln!(f, "a call needs {peak}; nothing is computed several times")?,
            Some(chosen) => {
                writeln!(f, "a call needs {peak} of {}", readable_bytes(plan.program.peak))?;
                let [overhead, bound] = [plan.overhead(), plan.bound()].map(|share| 100.0 * share);
                writeln!(
                    f,
                    "{overhead:.1} % more time by the cost model, and no plan in this order has less than {bound:.1} %"
                )?;
                writeln!(f, "computed again:")?;
                let share = |time: u64| 100.0 * time as f64 / chosen.unlimited_time.max(1) as f64;
                let alike = Alike::of(&chosen.recomputed);
                for Alike { value, count, time } in alike.iter().take(shown) {
                    writeln!(f, "  {:5.2} %  {count:3} x {value}", share(*time))?;
                }
                let rest: &[Alike] = alike.get(shown..).unwrap_or_default();
                if !rest.is_empty() {
                    let (count, time) = rest.iter().fold((0, 0), |(n, t), alike| (n + alike.count, t + alike.time));
                    writeln!(f, "  {:5.2} %  {count:3} others", share(time))?;
                }
            }
        }
        if f.alternate() { write!(f, "{memory:#}") } else { write!(f, "{memory}") }
    }
}

/// Values of one line of the user's program, such as those of all layers: how often they are computed again, and for what time.
struct Alike {
    value: String,
    count: usize,
    time: u64,
}

impl Alike {
    /// Those that take the most time first.
    fn of(recomputed: &[RecomputedValue]) -> Vec<Alike> {
        let mut alike: Vec<Alike> = Vec::new();
        for RecomputedValue { value, times, time } in recomputed {
            let value = value.to_string();
            match alike.iter_mut().find(|alike| alike.value == value) {
                Some(found) => {
                    found.count += times;
                    found.time += time;
                }
                None => alike.push(Alike { value, count: *times, time: *time }),
            }
        }
        alike.sort_by_key(|alike| Reverse(alike.time));
        alike
    }
}
