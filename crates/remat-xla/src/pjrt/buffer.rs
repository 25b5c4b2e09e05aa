//! Arrays on a device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use remat_ir::{Array, Aval, DType, Data, Element, Error, ErrorKind, Result, bf16, f16};

use super::client::Client;
use super::sys::{self, Arguments, Handle};

/// An array on a device. It may be pending: reading it waits.
pub(crate) struct Buffer {
    client: Arc<Client>,
    pub(super) handle: Handle,
    pub(super) aval: Aval,
}

// SAFETY: as for `Client`.
unsafe impl Send for Buffer {}
// SAFETY: as for `Client`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The buffer of a handle, which only this buffer frees.
    pub(super) fn new(client: Arc<Client>, handle: Handle, aval: Aval) -> Buffer {
        client.buffers.fetch_add(1, Ordering::Relaxed);
        Buffer { client, handle, aval }
    }

    /// Dtype, shape and memory.
    pub(crate) fn aval(&self) -> &Aval {
        &self.aval
    }

    /// Waits until it is computed.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut args = sys::BufferReadyEvent { buffer: self.handle, ..sys::BufferReadyEvent::new() };
        // SAFETY: the buffer is there, and the event is ours.
        unsafe {
            self.client.library.call(&mut args)?;
            self.client.library.wait(args.event)
        }
    }

    /// Copies the elements to the host.
    pub(crate) fn download(&self) -> Result<Array> {
        let data = match self.aval.dtype {
            // A bool that is neither 0 nor 1 would be undefined behaviour, so bools are read as bytes.
            DType::Bool => Data::Bool(self.elements::<u8>()?.into_iter().map(|byte| byte != 0).collect()),
            DType::I8 => Data::I8(self.elements()?),
            DType::I16 => Data::I16(self.elements()?),
            DType::I32 => Data::I32(self.elements()?),
            DType::I64 => Data::I64(self.elements()?),
            DType::U8 => Data::U8(self.elements()?),
            DType::U16 => Data::U16(self.elements()?),
            DType::U32 => Data::U32(self.elements()?),
            DType::U64 => Data::U64(self.elements()?),
            DType::F16 => Data::F16(self.elements()?),
            DType::Bf16 => Data::Bf16(self.elements()?),
            DType::F32 => Data::F32(self.elements()?),
            DType::F64 => Data::F64(self.elements()?),
        };
        Array::new(self.aval.clone(), data)
    }

    fn elements<T: Plain>(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); self.aval.size()];
        let library = self.client.library;
        // Without a layout the elements come in the device's order, which need not be row-major on GPUs and TPUs. The plugin for CPUs
        // ignores the layout; its arrays are row-major, since no module specifies another layout.
        let minor_to_major: Vec<i64> = (0..self.aval.rank() as i64).rev().collect();
        let layout = sys::MemoryLayout::untiled(&minor_to_major);
        let query =
            || sys::BufferToHostBuffer { src: self.handle, host_layout: &layout, ..sys::BufferToHostBuffer::new() };
        let mut size = query();
        // SAFETY: the buffer exists, the layout and its list live until this function returns, and without a destination the call returns
        // the size. It should return no event then; if it does, the event is ours.
        unsafe {
            library.call(&mut size)?;
            library.wait(size.event)?;
        }
        if size.dst_size != std::mem::size_of_val(&elements[..]) {
            let message = format!("a result has {} bytes and is to be {}", size.dst_size, self.aval);
            return Err(Error::new(ErrorKind::Internal, "xla", message));
        }
        if !elements.is_empty() {
            let dst = elements.as_mut_ptr().cast();
            let mut args = sys::BufferToHostBuffer { dst, dst_size: size.dst_size, ..query() };
            // SAFETY: as above; the destination has this many bytes, of a type for which every bit pattern is a value. It is written until
            // the event occurs, with or without an error, and lives until then.
            unsafe {
                library.call(&mut args)?;
                library.wait(args.event)?;
            }
        }
        Ok(elements)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.client.buffers.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the handle belongs to this buffer alone. Runs that read it keep its target alive.
        unsafe { self.client.library.free(sys::BufferDestroy { buffer: self.handle, ..sys::BufferDestroy::new() }) };
    }
}

/// Types for which every bit pattern is a value.
///
/// # Safety
/// Any bits are a value of the type.
unsafe trait Plain: Element {}

macro_rules! plain {
    ($($type:ty)*) => { $(
        // SAFETY: an integer, or a float, which consists of the bits of one.
        unsafe impl Plain for $type {}
    )* };
}

plain!(i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64);

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;
    use crate::pjrt::sys::arguments;
    use crate::pjrt::sys::tests::TABLE;

    arguments! {
        BufferUnsafePointer PJRT_Buffer_UnsafePointer 73 { buffer: Handle, buffer_pointer: usize, }
    }

    impl Buffer {
        /// The address of its elements on the device.
        pub(crate) fn address(&self) -> usize {
            let mut args = BufferUnsafePointer { buffer: self.handle, ..BufferUnsafePointer::new() };
            // SAFETY: the buffer is there.
            unsafe { self.client.library.call(&mut args) }.unwrap();
            args.buffer_pointer
        }
    }

    #[test]
    fn the_function_is_that_of_the_table() {
        assert_eq!(FUNCTIONS[0].0.strip_prefix("PJRT_"), TABLE.split_whitespace().nth(FUNCTIONS[0].1));
        assert_eq!(SIZES, [32]);
    }
}
