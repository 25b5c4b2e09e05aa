//! Elements of arrays as bytes, little-endian as they are in memory.

use std::io;

use remat::DType;
use remat::ir::{Array, Data};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The bytes of the elements, in row-major order.
pub(crate) fn bytes(array: &Array) -> &[u8] {
    match array.data() {
        Data::Bool(v) => v.as_bytes(),
        Data::I8(v) => v.as_bytes(),
        Data::I16(v) => v.as_bytes(),
        Data::I32(v) => v.as_bytes(),
        Data::I64(v) => v.as_bytes(),
        Data::U8(v) => v.as_bytes(),
        Data::U16(v) => v.as_bytes(),
        Data::U32(v) => v.as_bytes(),
        Data::U64(v) => v.as_bytes(),
        Data::F16(v) => v.as_bytes(),
        Data::Bf16(v) => v.as_bytes(),
        Data::F32(v) => v.as_bytes(),
        Data::F64(v) => v.as_bytes(),
    }
}

/// Reads `len` elements whose bytes a function fills in, without a copy.
///
/// # Errors
/// Those of the function; if there is no memory for the elements; if a byte of bools is not 0 or 1.
pub(crate) fn read(dtype: DType, len: usize, fill: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Data> {
    Ok(match dtype {
        DType::Bool => Data::Bool(bools(&filled(len, fill)?)?),
        DType::I8 => Data::I8(filled(len, fill)?),
        DType::I16 => Data::I16(filled(len, fill)?),
        DType::I32 => Data::I32(filled(len, fill)?),
        DType::I64 => Data::I64(filled(len, fill)?),
        DType::U8 => Data::U8(filled(len, fill)?),
        DType::U16 => Data::U16(filled(len, fill)?),
        DType::U32 => Data::U32(filled(len, fill)?),
        DType::U64 => Data::U64(filled(len, fill)?),
        DType::F16 => Data::F16(filled(len, fill)?),
        DType::Bf16 => Data::Bf16(filled(len, fill)?),
        DType::F32 => Data::F32(filled(len, fill)?),
        DType::F64 => Data::F64(filled(len, fill)?),
    })
}

fn filled<T: FromBytes + IntoBytes>(len: usize, fill: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Vec<T>> {
    let mut elements = <T as FromZeros>::new_vec_zeroed(len).map_err(|_| {
        let message = format!("there is no memory for its {} bytes", len.saturating_mul(size_of::<T>()));
        io::Error::new(io::ErrorKind::OutOfMemory, message)
    })?;
    fill(elements.as_mut_slice().as_mut_bytes())?;
    Ok(elements)
}

fn bools(bytes: &[u8]) -> io::Result<Vec<bool>> {
    let read = |(at, &byte): (usize, &u8)| match byte {
        0 | 1 => Ok(byte == 1),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("element {at} is the byte {byte} and not a bool"))),
    };
    bytes.iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat::ir::Literal;

    #[test]
    fn elements_of_every_dtype_come_back() {
        for dtype in DType::ALL {
            let array = Array::full(Literal::from_f64(dtype, 1.0), [3]);
            let written = bytes(&array).to_vec();
            assert_eq!(written.len(), 3 * dtype.size(), "{dtype}");
            let data = read(dtype, 3, |bytes| {
                bytes.copy_from_slice(&written);
                Ok(())
            });
            let again = Array::new(array.aval().clone(), data.unwrap()).unwrap();
            assert_eq!((0..3).map(|i| again.data().get(i)).collect::<Vec<_>>(), vec![array.data().get(0); 3]);
            assert!(read(dtype, 0, |_| Ok(())).unwrap().is_empty());
            let error = read(dtype, usize::MAX, |_| Ok(())).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{dtype}");
        }
        let error = read(DType::Bool, 3, |bytes| {
            bytes.copy_from_slice(&[0, 1, 7]);
            Ok(())
        });
        assert_eq!(error.unwrap_err().to_string(), "element 2 is the byte 7 and not a bool");
    }
}
