//! Arrays: `PJRT_Buffer`.

#![allow(unsafe_code, reason = "elements and objects of the caller, behind pointers; each use says why it is sound")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use remat_ir::{Array, Aval, Shape};

use crate::event::Event;
use crate::failure::{Code, Failure, Result};
use crate::layout;
use crate::place::discard;
use crate::sys::{
    BufferCopy, BufferDimensions, BufferFromHost, BufferLayout, BufferPointer, CopyRaw, Layout, ToHost, dtype_of,
};

/// An array of the caller, which may have been deleted.
pub(crate) struct Buffer {
    pub(crate) aval: Aval,
    dims: Vec<i64>,
    /// The dimensions from the last to the first.
    order: Vec<i64>,
    state: Mutex<State>,
}

struct State {
    /// `None` once it is deleted or donated.
    array: Option<Array>,
    /// References of the caller to the elements, for which they stay where they are.
    held: Vec<Array>,
}

impl Buffer {
    /// A buffer that the caller owns.
    pub(crate) fn give(array: Array) -> *mut Buffer {
        let aval = array.aval().clone();
        let dims = aval.shape.iter().map(|&size| size as i64).collect();
        let order = (0..aval.rank() as i64).rev().collect();
        let state = Mutex::new(State { array: Some(array), held: Vec::new() });
        Box::into_raw(Box::new(Buffer { aval, dims, order, state }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of another thread leaves the state as it was before or after a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array; a reference to its elements.
    pub(crate) fn array(&self) -> Result<Array> {
        self.state().array.clone().ok_or_else(|| self.deleted())
    }

    /// The array, which the buffer gives up.
    pub(crate) fn take(&self) -> Result<Array> {
        self.state().array.take().ok_or_else(|| self.deleted())
    }

    fn deleted(&self) -> Failure {
        let message = format!("an array {} is used after it was deleted or donated", self.aval);
        Failure::new(Code::FailedPrecondition, message)
    }

    pub(crate) fn delete(&self) {
        let array = self.state().array.take();
        array.into_iter().for_each(discard);
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.state().array.is_none()
    }

    pub(crate) fn hold(&self) -> Result {
        let array = self.array()?;
        self.state().held.push(array);
        Ok(())
    }

    pub(crate) fn release(&self) -> Result {
        let released = self.state().held.pop();
        released.map(drop).ok_or_else(|| Failure::new(Code::FailedPrecondition, "a reference is given back twice"))
    }

    /// Where the elements lie.
    pub(crate) fn pointer(&self, args: &mut BufferPointer) -> Result {
        args.pointer = layout::pointer(&self.array()?).addr();
        Ok(())
    }

    pub(crate) fn dimensions(&self, args: &mut BufferDimensions) {
        (args.dims, args.count) = (self.dims.as_ptr(), self.dims.len());
    }

    pub(crate) fn layout(&self, args: &mut BufferLayout) {
        args.layout = Layout::of(&self.order);
    }

    pub(crate) fn copy(&self, args: &mut BufferCopy) -> Result {
        // Elements that nobody changes may be shared.
        args.copy = Buffer::give(self.array()?);
        Ok(())
    }

    pub(crate) fn to_host(&self, args: &mut ToHost) -> Result {
        let array = self.array()?;
        if args.data.is_null() {
            args.size = self.aval.bytes();
            return Ok(());
        }
        if args.size < self.aval.bytes() {
            let message = format!("{} bytes of room for the {} of {}", args.size, self.aval.bytes(), self.aval);
            return Err(Failure::argument(message));
        }
        // SAFETY: the layout is null or one of the header.
        let strides = unsafe { layout::strides_of(args.layout.as_ref(), &self.aval) }?;
        // The bytes up to the end of the last element; strides come from the caller, and their products may overflow.
        let mut last = usize::try_from(strides.iter().copied().min().unwrap_or(0)).ok().map(|_| self.aval.dtype.size());
        for (&stride, &size) in strides.iter().zip(&self.aval.shape) {
            let reach = usize::try_from(stride).ok().and_then(|stride| stride.checked_mul(size.max(1) - 1));
            last = last.zip(reach).and_then(|(last, reach)| last.checked_add(reach));
        }
        if last.is_none_or(|last| last > args.size && self.aval.size() > 0) {
            return Err(Failure::argument("a layout that reaches beyond the room for it"));
        }
        // SAFETY: the largest offset is within the room of the caller.
        unsafe { layout::write(&array, args.data, &strides) };
        args.event = Event::ready();
        Ok(())
    }

    /// Copies a part of the bytes.
    pub(crate) fn copy_raw(&self, args: &mut CopyRaw) -> Result {
        let array = self.array()?;
        let (offset, size) = (usize::try_from(args.offset), usize::try_from(args.size));
        let (Ok(offset), Ok(size)) = (offset, size) else { return Err(Failure::argument("a negative offset or size")) };
        if offset.checked_add(size).is_none_or(|end| end > self.aval.bytes()) {
            return Err(Failure::argument(format!("{size} bytes from {offset} on are not in {}", self.aval)));
        }
        // SAFETY: the bytes are those of the array, and the caller has room for them.
        unsafe { std::ptr::copy_nonoverlapping(layout::pointer(&array).add(offset), args.data, size) };
        args.event = Event::ready();
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Copies an array of the host. JAX allows it to be shared as long as the buffer lives (`ImmutableZeroCopy`), even for `jnp.array`, which promises a
/// copy: what the caller writes to its array afterwards would change the buffer.
///
/// # Safety
/// The lists and the elements are those that the caller says.
pub(crate) unsafe fn from_host(args: &mut BufferFromHost) -> Result {
    // SAFETY: the caller's lists, with their lengths.
    let (dims, strides) =
        unsafe { (layout::list(args.dims, args.num_dims), layout::list(args.byte_strides, args.num_byte_strides)) };
    let dtype = dtype_of(args.kind).ok_or_else(|| {
        Failure::new(
            Code::Unimplemented,
            format!("not supported: an array of the type of number {}, such as complex numbers", args.kind),
        )
    })?;
    let shape = dims.iter().map(|&size| usize::try_from(size).map_err(|_| Failure::argument("a size is negative")));
    let aval = Aval::new(dtype, shape.collect::<Result<Shape>>()?);
    if let Some(excess) = aval.excess() {
        return Err(Failure::argument(format!("an array {aval} {excess}")));
    }
    let strides = match strides.len() {
        0 => layout::row_major(&aval.shape, dtype.size()),
        n if n == aval.rank() => strides.to_vec(),
        n => return Err(Failure::argument(format!("{n} strides for {aval}"))),
    };
    // SAFETY: the caller says that its elements lie there.
    let array = unsafe { layout::read(args.data, aval, &strides) }?;
    args.buffer = Buffer::give(array);
    args.done = Event::ready();
    Ok(())
}
