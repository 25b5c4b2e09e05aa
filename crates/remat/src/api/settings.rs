//! Options of compiled functions as methods: `jit(f).on(&device).memory_limit("4GiB")`.

use super::jit::{JitOptions, Jitted};
use super::limit::{Bytes, OverLimit};
use super::plan::Plan;
use super::shard::Shardings;
use crate::checks::Checks;
use crate::trace::{Device, Output, Tree};

/// Options as methods, with the meaning of the fields of [`JitOptions`]. They are set where the function is made: a function that has been
/// called forgets its programs, and is compiled anew.
///
/// An argument that is moved into a call is donated, so there is no option for that; [`Jitted::update`] moves the state of a training step.
impl<A: Tree, R: Output, F: Fn(&A) -> R> Jitted<A, R, F> {
    /// The same function with this name in programs and reports.
    ///
    /// ```
    /// use remat::{Tensor, jit, make_jaxpr};
    /// let double = jit(|x: &Tensor| x + x).name("double");
    /// let program = make_jaxpr(|x: &Tensor| double.call(x.clone()))(&Tensor::from(1.0f32))?;
    /// assert!(program.to_string().contains("name=double"), "{program}");
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Jitted<A, R, F> {
        self.with(|function| function.name = name.into().into())
    }

    /// The same function on this device: [`JitOptions::device`].
    ///
    /// ```
    /// use remat::{Cpu, Device, Tensor, jit};
    /// let double = jit(|x: &Tensor| x + x).on(&Device::cpu());
    /// assert_eq!(double.call(Tensor::from(1.5f32))?.item::<f32>()?, 3.0);
    /// let on_one_thread = jit(|x: &Tensor| x + x).on(Cpu::with_threads(1)?);
    /// assert_eq!(on_one_thread.call(Tensor::from(1.5f32))?.item::<f32>()?, 3.0);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[must_use]
    pub fn on(self, device: impl Into<Device>) -> Jitted<A, R, F> {
        self.with(|function| function.target.device = Some(device.into()))
    }

    /// The same function within this many bytes, a number or a text such as `"1.5GiB"`: [`JitOptions::memory_limit`]. A text that is no
    /// number of bytes is an error of the first call, at the line of this one.
    ///
    /// ```
    /// use remat::{DType, Tensor, grad, jit};
    /// let loss = |x: &Tensor| (0..10).fold(x.clone(), |x, _| x.cumsum(0).sin()).sum(..);
    /// let x = Tensor::ones([64, 64], DType::F32);
    /// let step = jit(grad(loss)).memory_limit("128KiB");
    /// assert!(step.memory(&x)?.donated_peak <= 128 << 10);
    /// assert!(jit(grad(loss)).memory(&x)?.donated_peak > 128 << 10);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn memory_limit(self, limit: impl Into<Bytes>) -> Jitted<A, R, F> {
        let limit = limit.into().of("memory_limit");
        self.with(|function| function.target.memory_limit = Some(limit))
    }

    /// What the same function does with a program that needs more than its limit: [`JitOptions::over_limit`].
    #[must_use]
    pub fn over_limit(self, over_limit: OverLimit) -> Jitted<A, R, F> {
        self.with(|function| function.target.over_limit = over_limit)
    }

    /// The same function as this plan says, on its device: [`Plan::options`].
    ///
    /// ```
    /// use remat::{DType, Tensor, grad, jit};
    /// let loss = |x: &Tensor| (0..10).fold(x.clone(), |x, _| x.cumsum(0).sin()).sum(..);
    /// let x = Tensor::shape_only([64, 64], DType::F32);
    /// let plan = jit(grad(loss)).memory_limit("128KiB").plan(x)?;
    /// let planned = jit(grad(loss)).with_plan(&plan);
    /// assert!(planned.memory(&Tensor::ones([64, 64], DType::F32))?.donated_peak <= plan.peak());
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[must_use]
    pub fn with_plan(self, plan: &Plan) -> Jitted<A, R, F> {
        let JitOptions { device, plan, .. } = plan.options();
        self.with(|function| (function.target.device, function.target.plan) = (device, plan))
    }

    /// The same function with these checks of its runs: [`JitOptions::checks`].
    ///
    /// ```
    /// use remat::{Checks, Tensor, jit};
    /// let log = jit(|x: &Tensor| x.log()).checks(Checks::NANS);
    /// assert!(log.call(Tensor::new([1.0f32, -1.0])).is_err());
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[must_use]
    pub fn checks(self, checks: Checks) -> Jitted<A, R, F> {
        self.with(|function| function.target.checks = Some(checks))
    }

    /// The same function with the leaves of its argument cut over a mesh: [`JitOptions::in_shardings`].
    #[must_use]
    pub fn in_shardings(self, shardings: Shardings) -> Jitted<A, R, F> {
        self.with(|function| function.in_shardings = Some(shardings))
    }

    /// The same function with the leaves of its result cut over a mesh: [`JitOptions::out_shardings`].
    #[must_use]
    pub fn out_shardings(self, shardings: Shardings) -> Jitted<A, R, F> {
        self.with(|function| function.out_shardings = Some(shardings))
    }

    fn with(mut self, set: impl FnOnce(&mut Jitted<A, R, F>)) -> Jitted<A, R, F> {
        set(&mut self);
        self.forget();
        self
    }
}
