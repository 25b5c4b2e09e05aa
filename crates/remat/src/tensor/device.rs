//! Where tensors live.

use remat_ir::{Result, Value};

use crate::Tensor;
use crate::trace::{Device, current_loc, deferred};

impl Tensor {
    /// The tensor on this device: itself if it lives there, else a copy. On [`Device::cpu`] it is in the host's memory and bound to no
    /// device: operations on it run where the other operands live. (A tensor that is read keeps its copy on the host; this one does not.)
    ///
    /// # Errors
    /// If the tensor is traced: programs run on one device; if the device has no memory for it.
    ///
    /// ```
    /// use remat::{Device, Tensor, Tree, tree};
    /// #[derive(Clone, Tree)]
    /// struct Linear {
    ///     weight: Tensor,
    ///     bias: Tensor,
    /// }
    /// let layer = Linear { weight: Tensor::new([[1.0f32, 2.0]]), bias: Tensor::new([0.5f32, 0.0]) };
    /// if let Ok(device) = Device::xla_cpu(0) {
    ///     let layer = tree::map(&layer, |_, leaf| leaf.to_device(&device));
    ///     // The operands on the host follow.
    ///     let y = Tensor::new([[3.0f32]]).matmul(&layer.weight) + &layer.bias;
    ///     assert_eq!(y.device()?.name(), "xla-cpu:0");
    ///     assert_eq!(y.to_vec::<f32>()?, [3.5, 6.0]);
    /// }
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Tensor {
        deferred(|| {
            let value = self.value("to_device")?;
            if value.device_name() == Some(device.name()) {
                return Ok(self.clone());
            }
            Ok(Tensor::from_value(device.engine().put(&value.copy_to_host()?)?.called_at(current_loc())))
        })
    }

    /// The device that it lives on: [`Device::cpu`] in the host's memory.
    ///
    /// # Errors
    /// The error of a failed tensor; if it is traced or has no elements.
    #[track_caller]
    pub fn device(&self) -> Result<Device> {
        Ok(match self.value("device")? {
            Value::Host(_) => Device::cpu(),
            Value::Device(array) => array.device().into(),
        })
    }

    /// Waits until it is computed, on a device that computes asynchronously. Whatever reads it waits too.
    ///
    /// # Errors
    /// The error of a failed tensor, also of the run that computes it, at the line of its call; if it is traced or has no elements.
    ///
    /// ```
    /// use remat::Tensor;
    /// let y = Tensor::new([1.0f32, 2.0]).exp();
    /// y.wait()?;
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[doc(alias = "block_until_ready")]
    #[track_caller]
    pub fn wait(&self) -> Result<()> {
        self.value("wait")?.wait()
    }
}
