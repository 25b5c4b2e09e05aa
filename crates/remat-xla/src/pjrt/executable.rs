//! Executables.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use remat_ir::{Aval, Error, ErrorKind, MemoryStats, Result};

use super::buffer::Buffer;
use super::client::Client;
use super::given::{dims, element_type, given, slice};
use super::library::Library;
use super::memory::Bytes;
use super::sys::{self, Arguments, Handle};
use super::sys_optional as optional;

/// An executable that is loaded on one device.
pub(crate) struct Loaded {
    pub(super) client: Arc<Client>,
    pub(super) handle: Handle,
    pub(super) ins: Vec<Aval>,
    pub(super) outs: Vec<Aval>,
}

// SAFETY: as for `Client`.
unsafe impl Send for Loaded {}
// SAFETY: as for `Client`.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Starts a run on the device for which it was compiled; results may be pending. It takes the memory of the arguments that are aliased
    /// in its module, so that reading them afterwards is an error. The buffers must have the avals of the arguments. This is checked here,
    /// since plugins check at most the number of bytes.
    /// A function converts each result at once, so that there are no two lists.
    pub(crate) fn run<'a, T>(
        &self,
        args: impl ExactSizeIterator<Item = &'a Buffer>,
        result: impl Fn(Buffer) -> T,
    ) -> Result<Vec<T>> {
        let handles = [self.handles(args)?];
        Ok(self.launch(&handles, result)?.pop().unwrap_or_default())
    }

    /// As [`Loaded::run`] on all devices of a program on a mesh, with the arguments and results of each device.
    pub(crate) fn run_on_all<'a>(&self, args: &[impl AsRef<[&'a Buffer]>]) -> Result<Vec<Vec<Buffer>>> {
        let handles =
            args.iter().map(|args| self.handles(args.as_ref().iter().copied())).collect::<Result<Vec<_>>>()?;
        self.launch(&handles, |buffer| buffer)
    }

    /// The handles of arrays, which must have the avals of the arguments.
    fn handles<'a>(&self, args: impl ExactSizeIterator<Item = &'a Buffer>) -> Result<Vec<Handle>> {
        let mut are_its_own = args.len() == self.ins.len();
        let mut handles = Vec::with_capacity(args.len());
        for (buffer, aval) in args.zip(&self.ins) {
            are_its_own &= buffer.aval == *aval;
            handles.push(buffer.handle);
        }
        let message = "the arguments are not those of the program";
        if are_its_own { Ok(handles) } else { Err(Error::new(ErrorKind::Internal, "xla", message)) }
    }

    /// Starts a run. The arguments of each device have the right avals, and live until this returns.
    fn launch<T>(&self, handles: &[Vec<Handle>], result: impl Fn(Buffer) -> T) -> Result<Vec<Vec<T>>> {
        let Some(first) = handles.first() else { return Ok(Vec::new()) };
        let library = self.client.library;
        let argument_lists: Vec<_> = handles.iter().map(|handles| handles.as_ptr()).collect();
        let mut outputs: Vec<Vec<Handle>> = vec![vec![std::ptr::null_mut(); self.outs.len()]; handles.len()];
        let output_lists: Vec<_> = outputs.iter_mut().map(|outputs| outputs.as_mut_ptr()).collect();
        // SAFETY: integers and pointers, which may be zero.
        let options: sys::ExecuteOptions = unsafe { std::mem::zeroed() };
        let (struct_size, launch_id) = (size_of::<sys::ExecuteOptions>(), self.client.launch_id(handles.len()));
        let mut options = sys::ExecuteOptions { struct_size, launch_id, ..options };
        let mut call = sys::LoadedExecutableExecute {
            executable: self.handle,
            options: &mut options,
            argument_lists: argument_lists.as_ptr(),
            num_devices: handles.len(),
            num_args: first.len(),
            output_lists: output_lists.as_ptr(),
            ..sys::LoadedExecutableExecute::new()
        };
        let launches = &self.client.launches;
        let _in_order = (handles.len() > 1).then(|| launches.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: lists live until the call returns, and have as many handles as the executable has arguments and outputs. There is one
        // list for each device for which it was compiled, which the plugin checks.
        unsafe { library.call(&mut call) }?;
        // If one is missing, the others are freed.
        let is_there = |&handle: &Handle| given("PJRT_LoadedExecutable_Execute", handle).map(drop);
        let are_there = outputs.iter().flatten().try_for_each(is_there);
        let waits = handles.len() > 1 && self.client.shares_threads;
        let results = |outputs: Vec<Handle>| {
            let mut results = Vec::with_capacity(outputs.len());
            for (handle, aval) in outputs.into_iter().zip(&self.outs).filter(|(handle, _)| !handle.is_null()) {
                let buffer = Buffer::new(self.client.clone(), handle, aval.clone());
                if waits {
                    // An error is returned when the result is read.
                    let _ = buffer.wait();
                }
                results.push(result(buffer));
            }
            results
        };
        let outputs = outputs.into_iter().map(results).collect();
        are_there.map(|()| outputs)
    }

    /// The seconds of a call with only the plugin's function, including freeing the outputs: the mean of this many calls on one device.
    pub(crate) fn plugin_seconds(&self, args: &[&Buffer], calls: usize) -> Result<f64> {
        // One checked call.
        self.run(args.iter().copied(), drop)?;
        let library = self.client.library;
        let handles: Vec<Handle> = args.iter().map(|buffer| buffer.handle).collect();
        let mut outputs: Vec<Handle> = vec![std::ptr::null_mut(); self.outs.len()];
        // SAFETY: integers and pointers, which may be zero.
        let options: sys::ExecuteOptions = unsafe { std::mem::zeroed() };
        let mut options = sys::ExecuteOptions { struct_size: size_of::<sys::ExecuteOptions>(), ..options };
        let started = Instant::now();
        for _ in 0..calls {
            let mut call = sys::LoadedExecutableExecute {
                executable: self.handle,
                options: &mut options,
                argument_lists: &handles.as_ptr(),
                num_devices: 1,
                num_args: handles.len(),
                output_lists: &outputs.as_mut_ptr(),
                ..sys::LoadedExecutableExecute::new()
            };
            // SAFETY: as in `run_on_all`, for one device. Each output is freed once.
            unsafe {
                library.call(&mut call)?;
                for &buffer in &outputs {
                    library.free(sys::BufferDestroy { buffer, ..sys::BufferDestroy::new() });
                }
            }
        }
        Ok(started.elapsed().as_secs_f64() / calls as f64)
    }

    /// Fails unless the outputs are those of the module.
    pub(super) fn expect_outputs(&self) -> Result<()> {
        let avals = &self.outs;
        self.with_executable(|library, executable| {
            let mut number = sys::ExecutableNumOutputs { executable, ..sys::ExecutableNumOutputs::new() };
            let mut types =
                sys::ExecutableOutputElementTypes { executable, ..sys::ExecutableOutputElementTypes::new() };
            let mut shapes = sys::ExecutableOutputDimensions { executable, ..sys::ExecutableOutputDimensions::new() };
            // SAFETY: the executable is freed after this, and has this many numbers at these addresses until then; the dimensions of all
            // outputs are consecutive.
            let (types, ranks, mut sizes) = unsafe {
                library.call(&mut number)?;
                library.call(&mut types)?;
                library.call(&mut shapes)?;
                let ranks = slice(shapes.dim_sizes, shapes.num_outputs);
                (slice(types.output_types, types.num_output_types), ranks, slice(shapes.dims, ranks.iter().sum()))
            };
            let mut are_equal =
                number.num_outputs == avals.len() && types.len() == avals.len() && ranks.len() == avals.len();
            for ((aval, &kind), &rank) in avals.iter().zip(types).zip(ranks) {
                // A null address means no dimensions, whatever the ranks.
                let (shape, rest) = sizes.split_at_checked(rank).unwrap_or_default();
                are_equal &= kind == element_type(aval.dtype) && shape == dims(aval)?;
                sizes = rest;
            }
            let message = || "the compiled program has other results than the program".to_string();
            if are_equal { Ok(()) } else { Err(Error::new(ErrorKind::Internal, "xla", message())) }
        })
    }

    /// The memory of a run, if the plugin reports it.
    pub(crate) fn memory(&self) -> Result<Option<MemoryStats>> {
        Ok(self.bytes()?.map(|bytes| bytes.of_run()))
    }

    /// The bytes of the program, if the plugin reports them.
    pub(super) fn bytes(&self) -> Result<Option<Bytes>> {
        // SAFETY: the executable is freed after this.
        self.with_executable(|library, executable| unsafe { Bytes::of(library, executable) })
    }

    /// The executable as bytes for [`Client::deserialize`], if the plugin can serialize it. They are for the same plugin on the same
    /// machine.
    pub(crate) fn serialize(&self) -> Result<Option<Vec<u8>>> {
        self.with_executable(|library, executable| {
            let mut args = optional::ExecutableSerialize { executable, ..optional::ExecutableSerialize::new() };
            // SAFETY: the executable is freed after this. The bytes exist until the function that is returned with them is called, once.
            unsafe {
                if !library.call_if_any(&mut args)? {
                    return Ok(None);
                }
                let bytes = slice(args.serialized_bytes, args.serialized_bytes_size).to_vec();
                if let Some(free) = args.serialized_executable_deleter {
                    free(args.serialized_executable);
                }
                Ok(Some(bytes))
            }
        })
    }

    /// Calls a function with the executable, which is then freed.
    fn with_executable<T>(&self, f: impl FnOnce(Library, Handle) -> Result<T>) -> Result<T> {
        let library = self.client.library;
        let mut args = sys::LoadedExecutableGetExecutable {
            loaded_executable: self.handle,
            ..sys::LoadedExecutableGetExecutable::new()
        };
        // SAFETY: the loaded executable is there.
        unsafe { library.call(&mut args) }?;
        let executable = given("PJRT_LoadedExecutable_GetExecutable", args.executable)?;
        let result = f(library, executable);
        // SAFETY: the handle is ours, and the function above has returned and keeps no part of it.
        unsafe { library.free(sys::ExecutableDestroy { executable, ..sys::ExecutableDestroy::new() }) };
        result
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let library = self.client.library;
        // SAFETY: the handle belongs to this executable alone.
        unsafe {
            let executable = self.handle;
            library.free(sys::LoadedExecutableDestroy { executable, ..sys::LoadedExecutableDestroy::new() });
        }
    }
}

#[cfg(test)]
mod tests;
