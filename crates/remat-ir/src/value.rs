//! Arrays in the host's memory or on a device.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::{Array, Aval, Device, Loc, Result};

/// An array on a device, as its engine holds it. It is freed when dropped, whether computed or not.
pub trait DeviceBuffer: Any + Send + Sync {
    /// Dtype, shape and memory.
    fn aval(&self) -> &Aval;

    /// The name of its device.
    fn device_name(&self) -> &str;

    /// Its device.
    fn device(&self) -> Arc<dyn Device>;

    /// Waits until it is computed.
    ///
    /// # Errors
    /// The error of the run that computes it.
    fn wait(&self) -> Result<()>;

    /// Waits, and copies the elements to the host.
    ///
    /// # Errors
    /// The error of the run that computes it; or if there is no memory on the host.
    fn to_host(&self) -> Result<Array>;
}

/// An array on a device, with a copy on the host that is made when the elements are first read. The engine's buffer is a part of it, so
/// that the result of a call takes one allocation.
pub struct DeviceArray<B: ?Sized = dyn DeviceBuffer> {
    host: OnceLock<Result<Array>>,
    /// The location of the call that computes it.
    loc: Loc,
    buffer: B,
}

impl DeviceArray {
    /// Wraps an engine's buffer.
    pub fn new(buffer: impl DeviceBuffer) -> Arc<DeviceArray> {
        Arc::new(DeviceArray { host: OnceLock::new(), loc: Loc::UNKNOWN, buffer })
    }

    /// Dtype, shape and memory.
    pub fn aval(&self) -> &Aval {
        self.buffer.aval()
    }

    /// The name of its device.
    pub fn device_name(&self) -> &str {
        self.buffer.device_name()
    }

    /// Its device.
    pub fn device(&self) -> Arc<dyn Device> {
        self.buffer.device()
    }

    /// The engine's own buffer, if it is of this type.
    pub fn buffer<B: DeviceBuffer>(&self) -> Option<&B> {
        let buffer: &dyn Any = &self.buffer;
        buffer.downcast_ref()
    }

    /// Waits until it is computed.
    ///
    /// # Errors
    /// The error of the run that computes it, with the location of the call.
    pub fn wait(&self) -> Result<()> {
        self.buffer.wait().map_err(|error| error.at(self.loc))
    }

    /// Waits, and returns the copy on the host, which is made once.
    ///
    /// # Errors
    /// The error of the run that computes it, with the location of the call; or if there is no memory for the copy.
    pub fn host(&self) -> Result<&Array> {
        let host = self.host.get_or_init(|| self.buffer.to_host().map_err(|error| error.at(self.loc)));
        host.as_ref().map_err(Clone::clone)
    }

    /// Waits, and returns a copy on the host that is not kept here: the copy of [`DeviceArray::host`] if there is one, or a new one.
    ///
    /// # Errors
    /// As [`DeviceArray::host`].
    pub fn copy_to_host(&self) -> Result<Array> {
        match self.host.get() {
            Some(host) => host.clone(),
            None => self.buffer.to_host().map_err(|error| error.at(self.loc)),
        }
    }
}

impl fmt::Debug for DeviceArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.aval(), self.device_name())
    }
}

/// An array on the host or on a device. Cloning shares it.
///
/// Engines take and return values. An array in the host's memory is not bound to a device: it is copied to where it is needed. An array on
/// a device stays there, and may be pending: the first read reports an error of the run that computes it.
///
/// ```
/// use remat_ir::{Array, Value};
/// let value = Value::from(Array::scalar(2.5f32));
/// assert_eq!((value.aval().to_string().as_str(), value.device_name()), ("f32[]", None));
/// assert_eq!(value.host()?.as_slice::<f32>(), Some(&[2.5][..]));
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Value {
    /// In the host's memory.
    Host(Array),
    /// On a device.
    Device(Arc<DeviceArray>),
}

impl From<Array> for Value {
    fn from(array: Array) -> Value {
        Value::Host(array)
    }
}

impl Value {
    /// An array on a device.
    pub fn on_device(buffer: impl DeviceBuffer) -> Value {
        Value::Device(DeviceArray::new(buffer))
    }

    /// The same value as the result of a call at this location, which is named in errors when the value is read. A value with other
    /// references keeps its own location.
    #[must_use]
    pub fn called_at(mut self, loc: Loc) -> Value {
        if let Value::Device(array) = &mut self
            && let Some(array) = Arc::get_mut(array)
        {
            array.loc = loc;
        }
        self
    }

    /// Dtype, shape and memory.
    pub fn aval(&self) -> &Aval {
        match self {
            Value::Host(array) => array.aval(),
            Value::Device(array) => array.aval(),
        }
    }

    /// The name of the device to which it is bound; `None` in the host's memory.
    pub fn device_name(&self) -> Option<&str> {
        match self {
            Value::Host(_) => None,
            Value::Device(array) => Some(array.device_name()),
        }
    }

    /// The array in the host's memory: itself, or a copy that is made at the first request.
    ///
    /// # Errors
    /// The error of the run that computes it, with the location of the call; or if there is no memory for the copy.
    pub fn host(&self) -> Result<&Array> {
        match self {
            Value::Host(array) => Ok(array),
            Value::Device(array) => array.host(),
        }
    }

    /// As [`Value::host`], but the value does not keep the copy, so that an array that is read once stays out of the host's memory.
    ///
    /// # Errors
    /// As [`Value::host`].
    pub fn copy_to_host(&self) -> Result<Array> {
        match self {
            Value::Host(array) => Ok(array.clone()),
            Value::Device(array) => array.copy_to_host(),
        }
    }

    /// As [`Value::host`], for callers who want to own the elements: if the value has no other reference, neither has the array.
    ///
    /// # Errors
    /// As [`Value::host`].
    pub fn into_host(self) -> Result<Array> {
        match self {
            Value::Host(array) => Ok(array),
            Value::Device(mut array) => {
                array.host()?;
                match Arc::get_mut(&mut array).and_then(|array| array.host.take()) {
                    Some(host) => host,
                    None => array.host().cloned(),
                }
            }
        }
    }

    /// Waits until it is computed.
    ///
    /// # Errors
    /// The error of the run that computes it, with the location of the call.
    pub fn wait(&self) -> Result<()> {
        match self {
            Value::Host(_) => Ok(()),
            Value::Device(array) => array.wait(),
        }
    }

    /// Whether it is on a device and has no other reference, so that a run may take its memory.
    pub fn is_donated(&self) -> bool {
        matches!(self, Value::Device(array) if Arc::strong_count(array) == 1)
    }

    /// An address that identifies the shared elements while the value lives.
    pub fn id(&self) -> usize {
        match self {
            Value::Host(array) => array.data_id(),
            Value::Device(array) => Arc::as_ptr(array).addr(),
        }
    }
}
