//! Marks that a transformation or an engine reads.

use remat_ir::{DebugPrint, DevicePut, MemorySpace, Name, OptimizationBarrier, StopGradient};

use crate::trace::{Tree, apply, bind, bind1, leaves};
use crate::{Result, Tensor};

impl Tensor {
    /// The tensor with a name, by which policies can save, recompute or offload it, and which reports show.
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
        bind1(Name::new(name), &[self])
    }

    /// The same tensor, which every derivative treats as a constant.
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

    /// A copy in the host's memory beside the device, or back in the device's memory.
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

/// The same tensors, behind a barrier: operations on any of the results run after all operands are computed. Nothing is merged across the
/// barrier, so an operation that is repeated behind it is computed again. The bits of the results do not change. The derivatives have a
/// barrier of their own.
///
/// Use it to order operations for memory; otherwise the engine chooses an order with a low peak. Operations that use none of the results
/// are not ordered. A barrier of one tensor only keeps passes from merging: the tensor and its readers may still share one loop, in which
/// the native engine computes equal operations once, where that needs no more memory.
///
/// ```
/// use remat::{Tensor, jit, optimization_barrier};
/// // The second product does not begin before the first is reduced to a sum.
/// let f = jit(|(x, y): &(Tensor, Tensor)| {
///     let sum = x.matmul(x).sum(..);
///     let held = optimization_barrier(&[&sum, y]);
///     &held[0] + held[1].matmul(&held[1]).sum(..)
/// });
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(f.call((x.clone(), x))?.item::<f32>()?, 108.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn optimization_barrier(tensors: &[&Tensor]) -> Vec<Tensor> {
    bind(OptimizationBarrier, tensors, tensors.len())
}

/// Prints tensors whenever the program around it runs, in the order of the program: a line with the text, in which each `{}` is the next
/// tensor of `values`. `{:?}` also prints dtype and shape, `{:.3}` three digits after the point; `{{` and `}}` are braces. Large arrays are
/// shortened, as NumPy does it. The lines go to the standard output, or to [`captured`](crate::captured).
///
/// It changes no bit and no decision of a policy. A loop prints in each iteration, a branch when it runs, and a [`vmap`](crate::vmap) a line
/// for each example (both branches of a `cond` whose condition is batched, and a `while_loop` also for examples that have ended). Derivatives print what the forward pass computes; what a
/// [`checkpoint`](crate::checkpoint) computes again is not printed again. A tangent is printed in forward mode alone, since the backward pass has none. A value that is printed has to be in memory then, so it is not
/// fused with its readers; the texts are not part of a plan of memory. Source: JAX's `debug.print` with `ordered=True`.
///
/// The native engine prints. A program for XLA is an error that says so, since a plugin of PJRT offers no way back into this process.
///
/// # Errors
/// If the text is malformed or has another number of places than there are tensors, and if a tensor has failed: the trace around it fails,
/// or else the error is returned.
///
/// ```
/// use remat::{Tensor, captured, debug_print, jit};
/// let f = jit(|x: &Tensor| {
///     let sum = x.sum(..);
///     debug_print("x {} has the sum {:.2}", &(x.clone(), sum.clone()))?;
///     Ok(sum * x)
/// });
/// let (y, printed) = captured(|| f.call(Tensor::new([1.0f32, 2.5])));
/// assert_eq!(printed, "x [1.  2.5] has the sum 3.50\n");
/// assert_eq!(y?.to_vec::<f32>()?, [3.5, 8.75]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn debug_print(text: &str, values: &impl Tree) -> Result<()> {
    let operands = leaves(values);
    let operands: Vec<&Tensor> = operands.iter().map(|(_, tensor)| tensor).collect();
    apply(DebugPrint::new(text), &operands).map(|_| ())
}
