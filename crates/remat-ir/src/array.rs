//! Concrete arrays: dense, row-major, shared by reference count.

use std::sync::Arc;

use half::{bf16, f16};

use crate::{Aval, DType, Error, ErrorKind, Literal, MemorySpace, Result};

/// The elements of an array, in row-major order.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "variants are what their names say")]
pub enum Data {
    Bool(Vec<bool>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is an element type: `bool`, the integers of 8 to 64 bits, [`half::f16`], [`half::bf16`], `f32`, `f64`.
pub trait Element:
    sealed::Sealed + Copy + Send + Sync + PartialEq + PartialOrd + Default + std::fmt::Debug + 'static
{
    /// The dtype of this type.
    const DTYPE: DType;
    /// The elements, where the data has this dtype.
    fn slice(data: &Data) -> Option<&[Self]>;
    /// The elements for writing, where the data has this dtype.
    fn slice_mut(data: &mut Data) -> Option<&mut [Self]>;
    /// The vector, where the data has this dtype.
    fn into_vec(data: Data) -> Option<Vec<Self>>;
    /// Wraps a vector.
    fn wrap(vec: Vec<Self>) -> Data;
    /// The literal of this value.
    fn literal(self) -> Literal;
    /// The value of a literal of this dtype.
    fn from_literal(literal: Literal) -> Option<Self>;
}

macro_rules! element {
    ($($variant:ident $type:ty, $to_bits:expr, $from_bits:expr;)*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const DTYPE: DType = DType::$variant;
                fn slice(data: &Data) -> Option<&[Self]> {
                    if let Data::$variant(v) = data { Some(v) } else { None }
                }
                fn slice_mut(data: &mut Data) -> Option<&mut [Self]> {
                    if let Data::$variant(v) = data { Some(v) } else { None }
                }
                fn into_vec(data: Data) -> Option<Vec<Self>> {
                    if let Data::$variant(v) = data { Some(v) } else { None }
                }
                fn wrap(vec: Vec<Self>) -> Data {
                    Data::$variant(vec)
                }
                fn literal(self) -> Literal {
                    let to_bits: fn($type) -> u64 = $to_bits;
                    Literal::from_bits(DType::$variant, to_bits(self))
                }
                fn from_literal(literal: Literal) -> Option<Self> {
                    let from_bits: fn(u64) -> $type = $from_bits;
                    (literal.dtype() == DType::$variant).then(|| from_bits(literal.bits()))
                }
            }
        )*

        impl Data {
            /// The dtype of the elements.
            pub fn dtype(&self) -> DType {
                match self { $(Data::$variant(_) => DType::$variant,)* }
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                match self { $(Data::$variant(v) => v.len(),)* }
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// `len` elements, each of this value.
            pub fn full(literal: Literal, len: usize) -> Data {
                match literal.dtype() {
                    $(DType::$variant => Data::$variant(vec![<$type>::from_literal(literal).unwrap_or_default(); len]),)*
                }
            }

            /// The element at this row-major position as a literal, or `None` past the end.
            pub fn get(&self, index: usize) -> Option<Literal> {
                match self { $(Data::$variant(v) => v.get(index).map(|x| x.literal()),)* }
            }
        }
    };
}

element! {
    Bool bool, |x| x as u64, |b| b != 0;
    I8 i8, |x| x as u8 as u64, |b| b as u8 as i8;
    I16 i16, |x| x as u16 as u64, |b| b as u16 as i16;
    I32 i32, |x| x as u32 as u64, |b| b as u32 as i32;
    I64 i64, |x| x as u64, |b| b as i64;
    U8 u8, |x| x as u64, |b| b as u8;
    U16 u16, |x| x as u64, |b| b as u16;
    U32 u32, |x| x as u64, |b| b as u32;
    U64 u64, |x| x, |b| b;
    F16 f16, |x| x.to_bits() as u64, |b| f16::from_bits(b as u16);
    Bf16 bf16, |x| x.to_bits() as u64, |b| bf16::from_bits(b as u16);
    F32 f32, |x| x.to_bits() as u64, |b| f32::from_bits(b as u32);
    F64 f64, |x| x.to_bits(), f64::from_bits;
}

/// Runs a block with `$t` bound to the Rust type of a dtype: `with_dtype!(dtype, T => f::<T>())`.
#[macro_export]
macro_rules! with_dtype {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::DType::Bool => {
                type $t = bool;
                $body
            }
            $crate::DType::I8 => {
                type $t = i8;
                $body
            }
            $crate::DType::I16 => {
                type $t = i16;
                $body
            }
            $crate::DType::I32 => {
                type $t = i32;
                $body
            }
            $crate::DType::I64 => {
                type $t = i64;
                $body
            }
            $crate::DType::U8 => {
                type $t = u8;
                $body
            }
            $crate::DType::U16 => {
                type $t = u16;
                $body
            }
            $crate::DType::U32 => {
                type $t = u32;
                $body
            }
            $crate::DType::U64 => {
                type $t = u64;
                $body
            }
            $crate::DType::F16 => {
                type $t = $crate::f16;
                $body
            }
            $crate::DType::Bf16 => {
                type $t = $crate::bf16;
                $body
            }
            $crate::DType::F32 => {
                type $t = f32;
                $body
            }
            $crate::DType::F64 => {
                type $t = f64;
                $body
            }
        }
    };
}

/// A concrete array. Cloning shares the elements.
///
/// ```
/// use remat_ir::Array;
/// let a = Array::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
/// assert_eq!(a.aval().to_string(), "f32[2,2]");
/// assert_eq!(a.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Array {
    aval: Aval,
    data: Arc<Data>,
}

impl Array {
    /// The bytes of the block that clones of an array share, besides the elements: reference counts, and where the elements lie.
    pub const HEADER: usize = 2 * size_of::<usize>() + size_of::<Data>();

    /// An array of these elements, in row-major order.
    ///
    /// # Errors
    /// If the product of `shape` is not the number of elements.
    pub fn from_vec<T: Element>(vec: Vec<T>, shape: impl IntoIterator<Item = usize>) -> Result<Array> {
        Array::new(Aval::new(T::DTYPE, shape), T::wrap(vec))
    }

    /// An array of this aval.
    ///
    /// # Errors
    /// If dtype or number of elements differ from the aval's.
    pub fn new(aval: Aval, data: Data) -> Result<Array> {
        check(&aval, &data)?;
        Ok(Array { aval, data: Arc::new(data) })
    }

    /// A scalar.
    pub fn scalar<T: Element>(value: T) -> Array {
        Array { aval: Aval::scalar(T::DTYPE), data: Arc::new(T::wrap(vec![value])) }
    }

    /// An array of this shape, each of whose elements is this literal.
    pub fn full(literal: Literal, shape: impl IntoIterator<Item = usize>) -> Array {
        let aval = Aval::new(literal.dtype(), shape);
        let data = Data::full(literal, aval.size());
        Array { aval, data: Arc::new(data) }
    }

    /// Dtype, shape and memory.
    pub fn aval(&self) -> &Aval {
        &self.aval
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.aval.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.aval.shape
    }

    /// The elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The elements, without a copy where there is no other reference to them.
    pub fn into_data(self) -> Data {
        Arc::unwrap_or_clone(self.data)
    }

    /// The elements if there is no other reference to them, and the array itself otherwise.
    ///
    /// # Errors
    /// The array, where its elements are shared.
    pub fn try_into_data(self) -> std::result::Result<Data, Array> {
        let Array { aval, data } = self;
        Arc::try_unwrap(data).map_err(|data| Array { aval, data })
    }

    /// Whether there is no other reference to the elements, so that a run may take their memory.
    pub fn is_donated(&self) -> bool {
        Arc::strong_count(&self.data) == 1
    }

    /// The elements for writing, where there is no other reference to them.
    pub fn data_mut(&mut self) -> Option<&mut Data> {
        Arc::get_mut(&mut self.data)
    }

    /// The elements as a slice of their Rust type, or `None` if `T` is not the dtype.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        T::slice(&self.data)
    }

    /// The same elements as an array of this aval.
    ///
    /// # Errors
    /// If dtype or number of elements differ from the aval's.
    pub fn viewed(&self, aval: Aval) -> Result<Array> {
        check(&aval, &self.data)?;
        Ok(Array { aval, data: self.data.clone() })
    }

    /// The same elements with another shape of the same size.
    ///
    /// # Errors
    /// If the sizes differ.
    pub fn reshaped(&self, shape: impl IntoIterator<Item = usize>) -> Result<Array> {
        let aval = self.aval.with_shape(shape);
        if aval.size() != self.aval.size() {
            let message = format!("{} has {} elements and {aval} has {}", self.aval, self.aval.size(), aval.size());
            return Err(Error::new(ErrorKind::Shape, "reshape", message));
        }
        Ok(Array { aval, data: self.data.clone() })
    }

    /// The same elements with an aval in this memory space; nothing is copied.
    pub fn in_memory(&self, memory: MemorySpace) -> Array {
        Array { aval: self.aval.in_memory(memory), data: self.data.clone() }
    }

    /// The value of an array of one element as a literal.
    pub fn to_literal(&self) -> Option<Literal> {
        if self.data.len() == 1 { self.data.get(0) } else { None }
    }

    /// Whether two arrays share their elements in memory.
    pub fn shares_data(&self, other: &Array) -> bool {
        Arc::ptr_eq(&self.data, &other.data)
    }

    /// An address that identifies the shared elements while the array lives.
    pub fn data_id(&self) -> usize {
        Arc::as_ptr(&self.data) as usize
    }
}

/// Fails unless the data are elements of an array of this aval.
fn check(aval: &Aval, data: &Data) -> Result<()> {
    if aval.dtype == data.dtype() && aval.size() == data.len() {
        return Ok(());
    }
    let message = format!("{aval} cannot hold {} elements of {}", data.len(), data.dtype());
    Err(Error::new(ErrorKind::Shape, "array", message))
}
