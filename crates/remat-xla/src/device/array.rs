//! Arrays on a device, as values.

use std::sync::Arc;

use remat_ir::{Array, Aval, Device, DeviceBuffer, Result};

use super::Xla;
use crate::pjrt::Buffer;

/// An array on a device. It may be pending.
pub(super) struct OnDevice {
    pub(super) buffer: Buffer,
    pub(super) device: Xla,
}

impl DeviceBuffer for OnDevice {
    fn aval(&self) -> &Aval {
        self.buffer.aval()
    }

    fn device_name(&self) -> &str {
        self.device.name()
    }

    fn device(&self) -> Arc<dyn Device> {
        Arc::new(self.device.clone())
    }

    fn wait(&self) -> Result<()> {
        self.buffer.wait()
    }

    fn to_host(&self) -> Result<Array> {
        self.buffer.download()
    }
}
