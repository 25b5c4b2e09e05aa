//! Abstract values: the dtype, shape and memory space of an array, known before it is computed.

use std::fmt;

use smallvec::SmallVec;

use crate::DType;

/// The sizes of an array's dimensions, outermost first. A scalar has none.
pub type Shape = SmallVec<[usize; 4]>;

/// The memory that holds an array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MemorySpace {
    /// The memory that the engine computes in.
    #[default]
    Device,
    /// Memory beside the device, slower and larger: the target of an offload policy.
    Host,
}

impl MemorySpace {
    /// The name that programs print.
    pub const fn name(self) -> &'static str {
        match self {
            MemorySpace::Device => "device",
            MemorySpace::Host => "host",
        }
    }

    /// The memory space of this name.
    pub fn from_name(name: &str) -> Option<MemorySpace> {
        [MemorySpace::Device, MemorySpace::Host].into_iter().find(|m| m.name() == name)
    }
}

/// The dtype, shape and memory space of an array: all that tracing knows of it.
///
/// ```
/// use remat_ir::{Aval, DType};
/// let aval = Aval::new(DType::F32, [5, 4]);
/// assert_eq!(aval.to_string(), "f32[5,4]");
/// assert_eq!(aval.bytes(), 80);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Aval {
    /// The element type.
    pub dtype: DType,
    /// The memory that holds it.
    pub memory: MemorySpace,
    /// The dimensions.
    pub shape: Shape,
}

impl Aval {
    /// An aval in device memory.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = usize>) -> Aval {
        Aval { dtype, memory: MemorySpace::Device, shape: shape.into_iter().collect() }
    }

    /// A scalar of this dtype.
    pub fn scalar(dtype: DType) -> Aval {
        Aval::new(dtype, [])
    }

    /// The same dtype and memory with another shape.
    pub fn with_shape(&self, shape: impl IntoIterator<Item = usize>) -> Aval {
        Aval { dtype: self.dtype, memory: self.memory, shape: shape.into_iter().collect() }
    }

    /// The same shape and memory with another dtype.
    pub fn with_dtype(&self, dtype: DType) -> Aval {
        Aval { dtype, memory: self.memory, shape: self.shape.clone() }
    }

    /// The same array in another memory space.
    pub fn in_memory(&self, memory: MemorySpace) -> Aval {
        Aval { dtype: self.dtype, memory, shape: self.shape.clone() }
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements: the product of the dimensions, 1 for a scalar. No operation makes an array with more than `usize::MAX`
    /// elements; for such a shape this is `usize::MAX`.
    ///
    /// ```
    /// use remat_ir::{Aval, DType};
    /// assert_eq!(Aval::new(DType::F32, [1 << 40, 1 << 40, 0]).size(), 0);
    /// assert_eq!(Aval::new(DType::F32, [1 << 40, 1 << 40]).size(), usize::MAX);
    /// ```
    pub fn size(&self) -> usize {
        if self.shape.contains(&0) { 0 } else { self.shape.iter().fold(1, |size: usize, &d| size.saturating_mul(d)) }
    }

    /// In words, why arithmetic with the sizes of such an array could overflow, or `None` if it cannot: the array has too many elements or
    /// bytes to count. No operation makes such an array, and no parsed program has one.
    ///
    /// Dimensions of size 0 count as 1 here, so that the product may be taken in any order.
    ///
    /// ```
    /// use remat_ir::{Aval, DType};
    /// assert_eq!(Aval::new(DType::F32, [1 << 40, 1 << 20]).excess(), None);
    /// assert_eq!(Aval::new(DType::F32, [1 << 62]).excess(), Some("takes more than 2^63 bytes"));
    /// assert_eq!(Aval::new(DType::F32, [1 << 62, 2, 0]).excess(), Some("has more than 2^63 elements"));
    /// ```
    pub fn excess(&self) -> Option<&'static str> {
        let is_counted = |n: &u64| i64::try_from(*n).is_ok();
        let elements = self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d.max(1) as u64)).filter(is_counted);
        let Some(elements) = elements else { return Some("has more than 2^63 elements") };
        let bytes = elements.checked_mul(self.dtype.size() as u64).filter(is_counted);
        if bytes.is_none() { Some("takes more than 2^63 bytes") } else { None }
    }

    /// The number of bytes of the elements.
    pub fn bytes(&self) -> usize {
        self.size().saturating_mul(self.dtype.size())
    }
}

impl fmt::Display for Aval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype.name())?;
        if self.memory != MemorySpace::Device {
            write!(f, "<{}>", self.memory.name())?;
        }
        f.write_str("[")?;
        for (i, d) in self.shape.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}
