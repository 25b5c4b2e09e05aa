//! Measures a step: loss and gradient of a model.

use std::time::Instant;

use remat::report::MemoryStats;
use remat::tree::leaves;
use remat::{DType, Device, JitOptions, Result, Tensor, Tree, jit_with, value_and_grad};
use remat_alloc::give_back_free;
use remat_command::resident;
use remat_command::times::{median, median_profile};
use remat_ir::Profile;

use crate::ALLOCATOR;

/// The measurements of a step that ran alone in its process. Times are seconds, sizes bytes.
pub(crate) struct Measured {
    /// The number of weights.
    pub(crate) parameters: usize,
    /// The time of the first step, for which memory is newly allocated.
    pub(crate) first_s: f64,
    /// The median time of a step after it.
    pub(crate) step_s: f64,
    /// The time to trace the loss and to differentiate it.
    pub(crate) trace_s: f64,
    /// The time to simplify the program and to compile it.
    pub(crate) compile_s: f64,
    /// The engine's plan, before the first run.
    pub(crate) planned: MemoryStats,
    /// The most bytes that were live while steps ran: the arguments, and everything allocated for the run. `None` on devices whose memory
    /// is not from this process's allocator.
    pub(crate) allocator_peak: Option<usize>,
    /// The peak resident memory of the process, as the system reports it; `None` where it does not.
    pub(crate) resident_peak: Option<usize>,
    /// By how much the peak resident memory grew while steps ran.
    pub(crate) resident_growth: Option<usize>,
    /// The loss.
    pub(crate) loss: f64,
}

/// The device of the steps, and their number.
pub(crate) struct Runs {
    pub(crate) device: Device,
    /// How many steps are timed.
    pub(crate) repeat: usize,
}

/// Compiles the step and runs it: once to warm up, then several times.
///
/// # Errors
/// The first error of the loss or of the engine.
pub(crate) fn measure<M: Tree, D: Tree>(
    model: M,
    data: D,
    loss: impl Fn(&M, &D) -> Result<Tensor>,
    Runs { device, repeat }: &Runs,
) -> Result<Measured> {
    let parameters = leaves(&model).iter().map(|(_, leaf)| leaf.size()).sum::<Result<usize>>()?;
    let arguments = (model, data);
    let operands: Vec<Tensor> = leaves(&arguments).into_iter().map(|(_, leaf)| leaf.to_device(device)).collect();
    let options = JitOptions { device: Some(device.clone()), ..JitOptions::default() };
    let step = jit_with(&options, |(model, data): &(M, D)| value_and_grad(|model: &M| loss(model, data))(model));
    let (traced, trace_s) = timed(|| step.trace(&arguments))?;
    let (compiled, compile_s) = timed(|| traced.lower()?.compile())?;
    let planned = compiled.memory();

    let mut times = Vec::with_capacity(*repeat);
    let highest_before = resident::peak();
    // Otherwise the system would count allocations of steps only beyond the memory that was freed before.
    give_back_free();
    resident::reset_peak();
    let resident_before = resident::now();
    ALLOCATOR.reset_peak();
    let live_before = ALLOCATOR.peak();
    // A run ends when its results are ready.
    let run = || {
        let outs = compiled.call(operands.clone())?;
        outs.iter().try_for_each(Tensor::wait)?;
        Ok(outs)
    };
    let (first, first_s) = timed(run)?;
    drop(first);
    let mut loss = None;
    for _ in 0..*repeat {
        drop(loss.take());
        let (mut outs, seconds) = timed(run)?;
        times.push(seconds);
        loss = Some(outs.swap_remove(0));
    }
    let allocated = ALLOCATOR.peak() - live_before;
    let highest = resident::peak();
    let loss = loss.map_or(Ok(f64::NAN), |loss| loss.to_dtype(DType::F64).item::<f64>())?;
    Ok(Measured {
        parameters,
        first_s,
        step_s: median(&mut times),
        trace_s,
        compile_s,
        planned,
        allocator_peak: device.engine().plans_memory().then_some(planned.arguments + allocated),
        resident_peak: highest.max(highest_before),
        resident_growth: highest.zip(resident_before).map(|(after, before)| after.saturating_sub(before)),
        loss,
    })
}

/// Compiles the step and runs it once to warm up, then several times: the profile of the run with the median time.
///
/// # Errors
/// The first error of the loss or of the engine; if the device has no profiles.
pub(crate) fn profiled<M: Tree, D: Tree>(
    model: M,
    data: D,
    loss: impl Fn(&M, &D) -> Result<Tensor>,
    Runs { device, repeat }: &Runs,
) -> Result<Profile> {
    let arguments = (model, data);
    let operands: Vec<Tensor> = leaves(&arguments).into_iter().map(|(_, leaf)| leaf.to_device(device)).collect();
    let options = JitOptions { device: Some(device.clone()), ..JitOptions::default() };
    let step = jit_with(&options, |(model, data): &(M, D)| value_and_grad(|model: &M| loss(model, data))(model));
    let compiled = step.lower(&arguments)?.compile()?;
    compiled.profile(operands.clone())?;
    let run = |_| compiled.profile(operands.clone()).map(|(_, profile)| profile);
    let profiles = (0..(*repeat).max(1)).map(run).collect::<Result<Vec<Profile>>>()?;
    Ok(median_profile(profiles).unwrap_or_default())
}

/// The result of `f`, and the seconds that it took.
///
/// # Errors
/// The error of `f`.
pub(crate) fn timed<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let started = Instant::now();
    let value = f()?;
    Ok((value, started.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_measured() {
        let model = Tensor::arange(0.0..1000.0f64);
        let scale = Tensor::from(2.0f64);
        let runs = Runs { device: Device::cpu(), repeat: 3 };
        let measured = measure(model, scale, |x, scale| Ok((x * scale).square().sum(..)), &runs).unwrap();
        assert_eq!(measured.parameters, 1000);
        assert_eq!(measured.planned.arguments, 8008);
        assert_eq!(measured.loss, (0..1000).map(|n| 4.0 * f64::from(n * n)).sum::<f64>());
        assert!(measured.allocator_peak >= Some(measured.planned.arguments));
        assert!([measured.first_s, measured.step_s, measured.trace_s, measured.compile_s].iter().all(|&s| s > 0.0));
    }
}
