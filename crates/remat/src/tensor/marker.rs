//! Marks that a transformation or an engine reads.

use remat_ir::{DevicePut, MemorySpace, Name, OptimizationBarrier, StopGradient};

use crate::Tensor;
use crate::trace::{bind, bind1};

impl Tensor {
    /// The tensor, with a name: policies can save, recompute or offload it by that name, and reports show it.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([1.0f32, 2.0]).sin().named("hidden");
    /// # y.to_vec::<f32>()?;
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[doc(alias = "checkpoint_name")]
    #[track_caller]
    pub fn named(&self, name: &str) -> Tensor {
        bind1(Name { name: name.into() }, &[self])
    }

    /// The tensor as a constant to every derivative.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0]);
    /// let y = &x - x.max(0).stop_gradient();
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 0.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn stop_gradient(&self) -> Tensor {
        bind1(StopGradient, &[self])
    }

    /// A copy in another memory: the host's beside the device, or back.
    ///
    /// ```
    /// use remat::ir::MemorySpace;
    /// use remat::Tensor;
    /// let y = Tensor::new([1.0f32, 2.0]).to_memory(MemorySpace::Host);
    /// assert_eq!(y.aval()?.to_string(), "f32<host>[2]");
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn to_memory(&self, memory: MemorySpace) -> Tensor {
        bind1(DevicePut { memory }, &[self])
    }
}

/// The tensors, as values of their own: no operation on the results is merged with one on the operands. So what is computed again
/// behind the barrier is computed again.
///
/// In which order the operations around it run is up to the engine, which chooses a low peak of memory; it does not change a bit
/// of the results.
///
/// ```
/// use remat::{Tensor, optimization_barrier};
/// let (x, y) = (Tensor::from(1.0f32), Tensor::from(2.0f32));
/// let held = optimization_barrier(&[&x, &y]);
/// assert_eq!(held[1].item::<f32>()?, 2.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn optimization_barrier(tensors: &[&Tensor]) -> Vec<Tensor> {
    bind(OptimizationBarrier, tensors, tensors.len())
}
