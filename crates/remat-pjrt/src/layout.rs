//! Elements of the caller in any order of dimensions, and those of arrays, in row-major order.

#![allow(unsafe_code, reason = "elements of the caller, behind pointers; each use says why it is sound")]

use remat_ir::{Array, Aval, Data, Element, with_dtype};

use crate::failure::{Code, Failure, Result, whole};
use crate::place::ENGINE;
use crate::sys::Layout;

/// The strides in bytes of the dimensions, in row-major order.
pub(crate) fn row_major(shape: &[usize], size: usize) -> Vec<i64> {
    let mut strides = vec![0; shape.len()];
    let mut stride = size as i64;
    for (place, &size) in strides.iter_mut().zip(shape).rev() {
        *place = stride;
        stride = stride.saturating_mul(size as i64);
    }
    strides
}

/// The strides in bytes that a layout of the caller says.
///
/// # Safety
/// The layout is one of the header, and its list has as many numbers as it says.
pub(crate) unsafe fn strides_of(layout: Option<&Layout>, aval: &Aval) -> Result<Vec<i64>> {
    let (shape, size) = (&aval.shape[..], aval.dtype.size());
    let Some(layout) = layout else { return Ok(row_major(shape, size)) };
    whole::<Layout>("the numbers of a layout", layout.struct_size)?;
    // SAFETY: the caller's list, with its length.
    let numbers = unsafe { list(layout.order.numbers, layout.order.count) };
    if numbers.len() != shape.len() {
        return Err(Failure::argument(format!("a layout of {} dimensions for {aval}", numbers.len())));
    }
    if layout.kind != Layout::TILED {
        return Ok(numbers.to_vec());
    }
    if layout.order.num_tiles != 0 {
        return Err(Failure::argument("a layout with tiles"));
    }
    let mut strides = vec![None; shape.len()];
    let mut stride = size as i64;
    for &dimension in numbers {
        let place = usize::try_from(dimension).ok().filter(|&d| d < shape.len() && strides[d].is_none());
        let d = place.ok_or_else(|| Failure::argument("a layout with a dimension twice, or one that is not there"))?;
        strides[d] = Some(stride);
        stride = stride.saturating_mul(shape[d] as i64);
    }
    Ok(strides.into_iter().flatten().collect())
}

/// A list of the caller.
///
/// # Safety
/// The pointer is to as many values, which live as long as the result, or the count is 0.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if count == 0 || pointer.is_null() {
        return &[];
    }
    // SAFETY: the caller of this function says so.
    unsafe { std::slice::from_raw_parts(pointer, count) }
}

/// Calls a function with the distance in bytes of each element from the first, in row-major order.
fn walk(shape: &[usize], strides: &[i64], mut visit: impl FnMut(isize)) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    let mut offset = 0isize;
    loop {
        visit(offset);
        let mut d = shape.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            offset += strides[d] as isize;
            if index[d] < shape[d] {
                break;
            }
            offset -= strides[d] as isize * shape[d] as isize;
            index[d] = 0;
        }
    }
}

/// An array with the elements of the caller.
///
/// # Safety
/// There is an element of the array's dtype at the place of each index, by the strides from the pointer on.
pub(crate) unsafe fn read(data: *const u8, aval: Aval, strides: &[i64]) -> Result<Array> {
    let mut array = ENGINE.array(&aval)?;
    match array.data_mut() {
        Some(Data::Bool(elements)) => {
            let mut elements = elements.iter_mut();
            walk(&aval.shape, strides, |offset| {
                // SAFETY: there is a byte at this place.
                elements.next().into_iter().for_each(|element| *element = unsafe { *data.offset(offset) } != 0);
            });
        }
        Some(elements) => {
            let size = aval.dtype.size();
            let mut to = with_dtype!(aval.dtype, T => T::slice_mut(elements).map_or(std::ptr::null_mut(), |x| x.as_mut_ptr().cast::<u8>()));
            if strides == row_major(&aval.shape, size) && aval.size() > 0 {
                // SAFETY: both sides have that many bytes, and any bits are a number.
                unsafe { std::ptr::copy_nonoverlapping(data, to, aval.bytes()) };
            } else {
                walk(&aval.shape, strides, |offset| {
                    // SAFETY: there is an element at this place, perhaps not aligned, and any bits are a number; the array has room for each.
                    unsafe {
                        std::ptr::copy_nonoverlapping(data.offset(offset), to, size);
                        to = to.add(size);
                    }
                });
            }
        }
        None => return Err(Failure::new(Code::Internal, "a new array has another reference")),
    }
    Ok(array)
}

/// Where the elements of an array lie.
pub(crate) fn pointer(array: &Array) -> *const u8 {
    let data = array.data();
    with_dtype!(data.dtype(), T => T::slice(data).map_or(std::ptr::null(), |x| x.as_ptr().cast()))
}

/// Writes the elements of an array where the caller wants them.
///
/// # Safety
/// There is room for an element of the array's dtype at the place of each index, by the strides from the pointer on.
pub(crate) unsafe fn write(array: &Array, data: *mut u8, strides: &[i64]) {
    let (aval, mut from) = (array.aval(), pointer(array));
    let size = aval.dtype.size();
    if strides == row_major(&aval.shape, size) {
        // SAFETY: both sides have that many bytes, and the array's are its own.
        unsafe { std::ptr::copy_nonoverlapping(from, data, aval.bytes()) };
        return;
    }
    walk(&aval.shape, strides, |offset| {
        // SAFETY: the array has an element for each index, and there is room for it at this place.
        unsafe {
            std::ptr::copy_nonoverlapping(from, data.offset(offset), size);
            from = from.add(size);
        }
    });
}

#[cfg(test)]
mod tests {
    use remat_ir::DType;

    use super::*;

    #[test]
    fn elements_are_read_and_written_in_any_order() {
        let aval = Aval::new(DType::F32, [2, 3]);
        let columns = [1.0f32, 4.0, 2.0, 5.0, 3.0, 6.0];
        // SAFETY: six elements, by these strides.
        let array = unsafe { read(columns.as_ptr().cast(), aval, &[4, 8]) }.unwrap();
        assert_eq!(array.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]));
        let mut back = [0.0f32; 6];
        // SAFETY: room for six elements, by these strides.
        unsafe { write(&array, back.as_mut_ptr().cast(), &[4, 8]) };
        assert_eq!(back, columns);
        let order = [0, 1];
        // SAFETY: the list has two numbers.
        assert_eq!(unsafe { strides_of(Some(&Layout::of(&order)), array.aval()) }.unwrap(), [4, 8]);
        let twice = [0, 0];
        // SAFETY: the list has two numbers.
        assert!(unsafe { strides_of(Some(&Layout::of(&twice)), array.aval()) }.is_err());
        let mut short = Layout::of(&order);
        short.struct_size = 24;
        // SAFETY: what is after the first bytes is not read.
        let failure = unsafe { strides_of(Some(&short), array.aval()) }.unwrap_err();
        assert_eq!(failure.message, "the numbers of a layout have 24 bytes and 80 are read");
    }

    #[test]
    fn a_bool_is_any_byte_but_zero() {
        let bytes = [0u8, 1, 7];
        // SAFETY: three bytes.
        let array = unsafe { read(bytes.as_ptr(), Aval::new(DType::Bool, [3]), &[1]) }.unwrap();
        assert_eq!(array.as_slice::<bool>(), Some(&[false, true, true][..]));
    }
}
