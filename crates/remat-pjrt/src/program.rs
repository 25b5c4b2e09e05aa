//! Compiled programs: `PJRT_LoadedExecutable` and `PJRT_Executable`.

#![allow(unsafe_code, reason = "programs and arrays of the caller, behind pointers; each use says why it is sound")]

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use remat_ir::{Array, Aval, CompileOptions, Device as _, MemoryStats, expect_arguments, parse_bytes, readable_bytes};
use remat_opt::pipeline;
use remat_stablehlo::{Donation, ImportOptions, Imported, Module, import};

use crate::buffer::Buffer;
use crate::event::Event;
use crate::failure::{Code, Failure, Result, whole};
use crate::layout::list;
use crate::place::{ENGINE, MEMORY, limited};
use crate::sys::{
    Compile, CompiledMemory, DeviceAssignment, Execute, ExecuteOptions, LoadedExecutable, OutputDimensions,
    OutputMemories, OutputTypes, Program, number_of,
};

/// The most bytes that a program may need: it computes values again until it fits, or is refused.
const LIMIT: &str = "REMAT_MEMORY_LIMIT";

/// A program that JAX compiled.
pub(crate) struct Compiled {
    executable: Arc<dyn remat_ir::Executable>,
    /// The array constants, which are the first arguments.
    constants: Vec<Array>,
    /// The avals of the constants and the arguments.
    avals: Vec<Aval>,
    /// Whether the caller gives up each argument.
    donated: Vec<bool>,
    /// The need of a run whose caller gives these arguments up.
    memory: MemoryStats,
    /// The bytes of the outputs that take the memory of an argument.
    aliases: usize,
    pub(crate) fingerprint: String,
    types: Vec<c_int>,
    dims: Vec<i64>,
    ranks: Vec<usize>,
    memories: Vec<Kind>,
    memory_sizes: Vec<usize>,
}

/// A pointer to the name of a kind of memory, which lives as long as the process. The caller reads it.
#[repr(transparent)]
struct Kind {
    _name: *const c_char,
}

// SAFETY: the text never changes.
unsafe impl Send for Kind {}
// SAFETY: as above.
unsafe impl Sync for Kind {}

/// `PJRT_Executable`: a program without its place.
pub(crate) struct Executable(pub(crate) Arc<Compiled>);

/// `PJRT_LoadedExecutable`: a program on its device.
pub(crate) struct Loaded {
    compiled: Arc<Compiled>,
    is_deleted: AtomicBool,
}

/// Compiles a program.
///
/// # Safety
/// The program's code and format have the lengths that the caller says.
pub(crate) unsafe fn compile(args: &mut Compile) -> Result {
    // SAFETY: a pointer to a program of the header, or null.
    let program: &Program = unsafe { args.program.as_ref() }.ok_or_else(|| Failure::argument("there is no program"))?;
    whole::<Program>("the program and its format", program.struct_size)?;
    // SAFETY: the caller's texts, with their lengths.
    let (code, format) = unsafe { (list(program.code, program.code_size), list(program.format, program.format_size)) };
    if format != b"mlir" {
        let format = String::from_utf8_lossy(format);
        return Err(Failure::new(Code::Unimplemented, format!("not supported: a program in the format `{format}`")));
    }
    let compiled = Arc::new(Compiled::of(code)?);
    args.executable = Box::into_raw(Box::new(Loaded { compiled, is_deleted: AtomicBool::new(false) }));
    Ok(())
}

impl Compiled {
    fn of(code: &[u8]) -> Result<Compiled> {
        let Imported { jaxpr, constants, donations } = import(&Module::read(code)?, ImportOptions::default())?;
        // JAX writes loops with carries that nobody reads, equal equations, and attention.
        let jaxpr = pipeline::run(pipeline::IMPORTED, &jaxpr)?;
        let memory_limit = limit()?;
        limited(memory_limit.is_some());
        let donated: Vec<bool> = donations.iter().map(|&donation| donation != Donation::No).collect();
        let of_engine = constants.iter().map(|_| false).chain(donated.iter().copied()).collect();
        let ins = jaxpr.in_avals();
        let outs = jaxpr.out_avals();
        let fingerprint = fingerprint(code);
        let options = CompileOptions { donated: of_engine, memory_limit, ..CompileOptions::default() };
        let executable = ENGINE.compile_with(&Arc::new(jaxpr), &options)?;
        let memory = executable.memory_where_donated(&options.donated);
        let aliases = executable.memory().outputs.saturating_sub(memory.outputs);
        if let Some(limit) = memory_limit.filter(|&limit| memory.peak > limit) {
            let message = format!(
                "a call of this program needs {} and {LIMIT} is {}:\n{}",
                readable_bytes(memory.peak),
                readable_bytes(limit),
                executable.memory_report()
            );
            return Err(Failure::new(Code::ResourceExhausted, message));
        }
        Ok(Compiled {
            executable,
            constants,
            avals: ins,
            donated,
            memory,
            aliases,
            fingerprint,
            types: outs.iter().map(|aval| number_of(aval.dtype)).collect(),
            dims: outs.iter().flat_map(|aval| &aval.shape).map(|&size| size as i64).collect(),
            ranks: outs.iter().map(|aval| aval.rank()).collect(),
            memories: outs.iter().map(|_| Kind { _name: MEMORY.as_ptr().cast() }).collect(),
            memory_sizes: outs.iter().map(|_| MEMORY.len()).collect(),
        })
    }

    pub(crate) fn outputs(&self) -> usize {
        self.types.len()
    }

    pub(crate) fn output_types(&self, args: &mut OutputTypes) {
        (args.types, args.count) = (self.types.as_ptr(), self.types.len());
    }

    pub(crate) fn output_dimensions(&self, args: &mut OutputDimensions) {
        (args.dims, args.ranks, args.count) = (self.dims.as_ptr(), self.ranks.as_ptr(), self.ranks.len());
    }

    pub(crate) fn output_memories(&self, args: &mut OutputMemories) {
        args.kinds = self.memories.as_ptr().cast();
        (args.sizes, args.count) = (self.memory_sizes.as_ptr(), self.memories.len());
    }

    /// The engine's plan, in the words of the header.
    pub(crate) fn memory(&self, args: &mut CompiledMemory) {
        let MemoryStats { arguments, outputs, temporaries, .. } = self.memory;
        args.code = 0;
        args.arguments = arguments as i64;
        // The header counts every output here, and those that take a donated argument's memory once more below.
        args.outputs = (outputs + self.aliases) as i64;
        args.temporaries = temporaries as i64;
        args.aliases = self.aliases as i64;
        args.host = [0; 5];
    }
}

/// The limit of the environment.
fn limit() -> Result<Option<usize>> {
    match std::env::var(LIMIT) {
        Ok(text) if !text.trim().is_empty() => {
            let bytes = parse_bytes(text.trim());
            bytes.map(Some).ok_or_else(|| {
                Failure::argument(format!("{LIMIT} is `{text}`, which is no number of bytes such as 512MiB"))
            })
        }
        _ => Ok(None),
    }
}

/// A name of the program by its bytes. Source: Fowler, Noll, Vo, the hash FNV-1a.
fn fingerprint(code: &[u8]) -> String {
    let hash = code
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

impl Loaded {
    pub(crate) fn executable(&self, args: &mut LoadedExecutable) {
        args.executable = Box::into_raw(Box::new(Executable(self.compiled.clone())));
    }

    pub(crate) fn delete(&self) {
        self.is_deleted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Relaxed)
    }

    /// One replica and one computation, on device 0, as `xla.DeviceAssignmentProto`.
    pub(crate) fn assignment(args: &mut DeviceAssignment) {
        static ONE: [u8; 9] = [0x08, 1, 0x10, 1, 0x1a, 3, 0x0a, 1, 0];
        unsafe extern "C" fn keep(_: *mut std::ffi::c_void) {}
        (args.bytes, args.size) = (ONE.as_ptr(), ONE.len());
        args.owner = ONE.as_ptr().cast_mut().cast();
        args.deleter = Some(keep);
    }

    /// Runs the program.
    ///
    /// # Safety
    /// The arguments are buffers, and there is room for the results, as many as the caller says.
    pub(crate) unsafe fn execute(&self, args: &mut Execute) -> Result {
        let program = &*self.compiled;
        if self.is_deleted() {
            return Err(Failure::new(Code::FailedPrecondition, "a program is run after it was deleted"));
        }
        if args.num_devices != 1 {
            return Err(Failure::argument(format!("there is one device, and the run is on {}", args.num_devices)));
        }
        if args.num_args != program.donated.len() {
            let message = format!("the program takes {} arguments and got {}", program.donated.len(), args.num_args);
            return Err(Failure::argument(message));
        }
        // SAFETY: the options are null or of the header.
        let options = unsafe { args.options.as_ref() };
        if let Some(options) = options {
            whole::<ExecuteOptions>("the options of a run", options.struct_size)?;
        }
        // SAFETY: the options have all of these fields, and one list of arguments is there for the device.
        let (kept, buffers) = unsafe {
            let kept = options.map_or(&[][..], |options| list(options.kept, options.num_kept));
            (kept, if args.num_args == 0 { &[][..] } else { list(*args.arguments, args.num_args) })
        };
        let is_donated = |i: usize| program.donated[i] && !kept.contains(&(i as i64));
        let mut arguments = program.constants.clone();
        let mut given: Vec<&Buffer> = Vec::with_capacity(buffers.len());
        for &buffer in buffers {
            // SAFETY: a buffer of this plugin, or null.
            let buffer = unsafe { buffer.as_ref() }.ok_or_else(|| Failure::argument("an argument is missing"))?;
            arguments.push(buffer.array()?);
            given.push(buffer);
        }
        // What is wrong with any argument is an error before one of them is taken from the caller.
        expect_arguments("run", program.avals.iter(), arguments.iter().map(Array::aval))?;
        // Sorted, since a training step has hundreds of arguments, and each call comes through here.
        let mut numbers: Vec<usize> = (0..given.len()).collect();
        numbers.sort_by_key(|&i| std::ptr::from_ref(given[i]));
        for same in numbers.chunk_by(|&i, &j| std::ptr::eq(given[i], given[j])).filter(|same| same.len() > 1) {
            if let Some(i) = same.iter().find(|&&i| is_donated(i)) {
                return Err(Failure::argument(format!("argument {i} is donated and given twice")));
            }
        }
        for (i, buffer) in given.iter().enumerate().filter(|&(i, _)| is_donated(i)) {
            let argument = &mut arguments[program.constants.len() + i];
            // The first reference goes, so that the run has the only one.
            *argument = Array::scalar(0u8);
            *argument = buffer.take()?;
        }
        let results = program.executable.run(arguments)?;
        if !results.is_empty() {
            // SAFETY: there is room for one result each, for the device.
            let places = unsafe { *args.outputs };
            for (i, result) in results.into_iter().enumerate() {
                // SAFETY: as above; the number of results is the program's.
                unsafe { *places.add(i) = Buffer::give(result) };
            }
        }
        if !args.events.is_null() {
            // SAFETY: there is room for one event, for the device.
            unsafe { *args.events = Event::ready() };
        }
        Ok(())
    }
}
