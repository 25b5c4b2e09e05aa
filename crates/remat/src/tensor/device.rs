//! The devices of tensors.

use remat_ir::{Result, Sharding, Value};
use remat_xla::XlaDevices;

use crate::Tensor;
use crate::trace::{Device, current_loc, deferred};

impl Tensor {
    /// The tensor on this device: itself if it is there already, otherwise a copy. On [`Device::cpu`] it is in the host's memory and not
    /// bound to a device: operations on it run where the other operands are. (A tensor that is read, for example by [`Tensor::to_vec`],
    /// keeps the copy on the host; one that is moved by `to_device` does not.)
    ///
    /// # Errors
    /// If the tensor is traced, since a program runs on one device; if the device does not have enough memory.
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
    ///     let layer = tree::map(&layer, |leaf| leaf.to_device(&device));
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

    /// The tensor on the device of `other`, a tensor of the same shape. If `other` is cut over several devices, so is the result, and each
    /// device gets only its shard; otherwise this is [`Tensor::to_device`].
    ///
    /// # Errors
    /// If one of the two is traced, or the other has no elements; if the tensor cannot be cut in this way, or a device does not have enough
    /// memory.
    ///
    /// ```
    /// use remat::{Device, Mesh, Shardings, Tensor, jit, spec};
    /// let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0]);
    /// // Without the plugin there is an error that names the command that installs it.
    /// if let Ok(devices) = Device::xla_cpus(4) {
    ///     let rows = Shardings::new(&Mesh::new([("data", 4)])?, spec!["data"]);
    ///     let cut = jit(|x: &Tensor| x * 2.0).on(devices).out_shardings(rows).call(x.clone())?;
    ///     let next = x.to_device_of(&cut);
    ///     assert_eq!(next.sharding()?.unwrap().to_string(), "P(data) over Mesh(data=4)");
    ///     assert_eq!(next.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// }
    /// assert_eq!(x.sharding()?, None);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn to_device_of(&self, other: &Tensor) -> Tensor {
        deferred(|| {
            let (value, like) = (self.value("to_device_of")?, other.value("to_device_of")?);
            let Value::Device(like) = like else { return Ok(self.to_device(&Device::cpu())) };
            let Some(sharding) = XlaDevices::sharding_of(like) else {
                return Ok(self.to_device(&like.device().into()));
            };
            let is_there = match value {
                Value::Device(array) if array.device_name() == like.device_name() => {
                    XlaDevices::sharding_of(array) == Some(sharding)
                }
                _ => false,
            };
            if is_there {
                return Ok(self.clone());
            }
            let put = XlaDevices::put_like(&value.copy_to_host()?, like)?;
            Ok(put.map_or_else(|| self.clone(), |put| Tensor::from_value(put.called_at(current_loc()))))
        })
    }

    /// How the tensor is cut over several devices; `None` on one device and in the host's memory.
    ///
    /// # Errors
    /// As [`Tensor::device`].
    #[track_caller]
    pub fn sharding(&self) -> Result<Option<Sharding>> {
        Ok(match self.value("sharding")? {
            Value::Host(_) => None,
            Value::Device(array) => XlaDevices::sharding_of(array).cloned(),
        })
    }

    /// The device on which the tensor is: [`Device::cpu`] in the host's memory.
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

    /// Waits until the tensor is computed, on a device that computes asynchronously. Reading it waits too.
    ///
    /// # Errors
    /// The error of a failed tensor, or of the run that computes it, located at the line that called it; if the tensor is traced or has no
    /// elements.
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
