//! Calls through the table, as C makes them.

use std::ffi::c_int;

use remat_alloc::Counting;

use super::*;
use crate::place::Client;
use crate::sys::{ExecuteOptions, Program};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// `w - 0.1 * g` of two matrices of 4 by 4, of which the first is donated, as JAX exports it.
const DONATED: &[u8] = include_bytes!("../../../remat-stablehlo/tests/fixtures/donated.mlirbc");
const REFUSED: &[u8] = include_bytes!("../../../remat-stablehlo/tests/fixtures/refused_fft.mlirbc");

fn index(name: &str) -> usize {
    NAMES.iter().position(|&other| other == name).unwrap()
}

/// Zeros with the size of the struct.
fn zeros<A: Arguments>() -> A {
    // SAFETY: structs of arguments are numbers, pointers that may be null, and bools.
    let mut args: A = unsafe { std::mem::zeroed() };
    // SAFETY: the size is the first field of each.
    unsafe { std::ptr::from_mut(&mut args).cast::<usize>().write(size_of::<A>()) };
    args
}

/// Calls a function; the error is its code and message.
fn call<A: Arguments>(name: &str, args: &mut A) -> std::result::Result<(), (c_int, String)> {
    // SAFETY: the struct is that of the function.
    let error = unsafe { API.functions[index(name)](std::ptr::from_mut(args).cast()) };
    if error.is_null() {
        return Ok(());
    }
    let mut code: ErrorGetCode = zeros();
    code.error = error;
    let mut message: ErrorMessage = zeros();
    message.error = error;
    let mut destroy: ErrorDestroy = zeros();
    destroy.error = error;
    // SAFETY: the structs are those of the functions, and the text is read before the error is freed.
    unsafe {
        assert!(API.functions[index("Error_GetCode")](std::ptr::from_mut(&mut code).cast()).is_null());
        assert!(API.functions[index("Error_Message")](std::ptr::from_mut(&mut message).cast()).is_null());
        let text = crate::layout::list(message.message.cast::<u8>(), message.message_size);
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(API.functions[index("Error_Destroy")](std::ptr::from_mut(&mut destroy).cast()).is_null());
        Err((code.code, text))
    }
}

fn compile(code: &[u8]) -> std::result::Result<*mut Loaded, (c_int, String)> {
    let format = b"mlir";
    // SAFETY: the fields are numbers and pointers.
    let mut program: Program = unsafe { std::mem::zeroed() };
    program.struct_size = size_of::<Program>();
    (program.code, program.code_size) = (code.as_ptr(), code.len());
    (program.format, program.format_size) = (format.as_ptr(), format.len());
    let mut args: Compile = zeros();
    (args.client, args.program) = (Client::get(), &program);
    call("Client_Compile", &mut args)?;
    Ok(args.executable)
}

fn buffer(elements: &[f32], dims: &[i64]) -> *mut Buffer {
    let mut args: BufferFromHost = zeros();
    (args.data, args.kind) = (elements.as_ptr().cast(), number_of(remat_ir::DType::F32));
    (args.dims, args.num_dims) = (dims.as_ptr(), dims.len());
    call("Client_BufferFromHostBuffer", &mut args).unwrap();
    free_event(args.done);
    args.buffer
}

fn free_event(event: *mut Event) {
    let mut args: OfEvent = zeros();
    args.event = event;
    call("Event_Await", &mut args).unwrap();
    call("Event_Destroy", &mut args).unwrap();
}

fn free(buffer: *mut Buffer) {
    let mut args: OfBuffer = zeros();
    args.buffer = buffer;
    call("Buffer_Destroy", &mut args).unwrap();
}

fn free_program(loaded: *mut Loaded) {
    let mut args: OfLoaded = zeros();
    args.loaded = loaded;
    call("LoadedExecutable_Destroy", &mut args).unwrap();
}

fn execute(loaded: *mut Loaded, ins: &[*const Buffer]) -> std::result::Result<*mut Buffer, (c_int, String)> {
    let (mut result, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (outputs, arguments) = ([std::ptr::from_mut(&mut result)], [ins.as_ptr()]);
    let mut args: Execute = zeros();
    (args.loaded, args.num_devices, args.num_args) = (loaded, 1, ins.len());
    (args.arguments, args.outputs, args.events) = (arguments.as_ptr(), outputs.as_ptr(), &mut event);
    call("LoadedExecutable_Execute", &mut args)?;
    free_event(event);
    Ok(result)
}

fn host(buffer: *const Buffer) -> std::result::Result<Vec<f32>, (c_int, String)> {
    let mut args: ToHost = zeros();
    args.buffer = buffer;
    call("Buffer_ToHostBuffer", &mut args)?;
    let mut elements = vec![0.0f32; args.size / 4];
    args.data = elements.as_mut_ptr().cast();
    call("Buffer_ToHostBuffer", &mut args)?;
    free_event(args.event);
    Ok(elements)
}

#[test]
fn the_table_is_that_of_the_header() {
    assert_eq!(NAMES.len(), 118);
    assert_eq!(API.struct_size, 40 + 8 * NAMES.len());
    // Numbers that remat-xla uses from the other side.
    let places = [
        ("Event_Await", 8),
        ("Client_Compile", 20),
        ("LoadedExecutable_Execute", 55),
        ("Buffer_ToHostBuffer", 70),
        ("Executable_OutputDimensions", 91),
        ("LoadedExecutable_GetDeviceAssignment", 117),
    ];
    for (name, place) in places {
        assert_eq!(index(name), place, "{name}");
    }
}

#[test]
fn a_program_takes_a_donated_argument() {
    let loaded = compile(DONATED).unwrap();
    let (w, g) = (buffer(&[1.0; 16], &[4, 4]), buffer(&[2.0; 16], &[4, 4]));
    let result = execute(loaded, &[w, g]).unwrap();
    assert_eq!(host(result).unwrap(), [0.8f32; 16]);
    // The argument is gone, and the other is not.
    let (code, message) = host(w).unwrap_err();
    assert_eq!((code, &*message), (9, "an array f32[4,4] is used after it was deleted or donated"));
    assert_eq!(host(g).unwrap(), [2.0f32; 16]);
    let (code, message) = execute(loaded, &[w, g]).unwrap_err();
    assert!(code == 9 && message.contains("deleted or donated"), "{message}");
    for buffer in [w, g, result] {
        free(buffer);
    }
    free_program(loaded);
}

#[test]
fn memory_is_that_of_the_plan() {
    let loaded = compile(DONATED).unwrap();
    let mut args: LoadedExecutable = zeros();
    args.loaded = loaded;
    call("LoadedExecutable_GetExecutable", &mut args).unwrap();
    let mut memory: CompiledMemory = zeros();
    memory.executable = args.executable;
    call("Executable_GetCompiledMemoryStats", &mut memory).unwrap();
    assert_eq!((memory.arguments, memory.outputs, memory.aliases), (128, 64, 64));
    let mut dims: OutputDimensions = zeros();
    dims.executable = args.executable;
    call("Executable_OutputDimensions", &mut dims).unwrap();
    // SAFETY: the lists live as long as the executable.
    let (dims, ranks) = unsafe { (crate::layout::list(dims.dims, 2), crate::layout::list(dims.ranks, dims.count)) };
    assert_eq!((dims, ranks), (&[4, 4][..], &[2][..]));
    let mut executable: OfExecutable = zeros();
    executable.executable = args.executable;
    call("Executable_Destroy", &mut executable).unwrap();
    free_program(loaded);
}

#[test]
fn wrong_calls_are_errors() {
    let (code, message) = compile(REFUSED).unwrap_err();
    assert!(code == 12 && message.starts_with("convert: not supported: complex numbers\n  at write.py:"), "{message}");
    let (code, message) = compile(&DONATED[..100]).unwrap_err();
    assert!(code == 3 && message.contains(" at byte "), "{message}");
    let (code, message) = call("Client_DmaMap", &mut zeros::<OfClient>()).unwrap_err();
    assert_eq!((code, &*message), (12, "PJRT_Client_DmaMap is not implemented"));
    let mut short: Execute = zeros();
    short.struct_size = 24;
    let (code, message) = call("LoadedExecutable_Execute", &mut short).unwrap_err();
    assert_eq!((code, &*message), (3, "LoadedExecutable_Execute: the arguments have 24 bytes and 80 are read"));
    let (code, message) = call("Buffer_Delete", &mut zeros::<OfBuffer>()).unwrap_err();
    assert_eq!((code, &*message), (3, "an object is missing"));
    let mut lookup: Lookup = zeros();
    lookup.id = 1;
    assert_eq!(call("Client_LookupDevice", &mut lookup).unwrap_err().0, 3);
    let loaded = compile(DONATED).unwrap();
    let (code, message) = execute(loaded, &[]).unwrap_err();
    assert_eq!((code, &*message), (3, "the program takes 2 arguments and got 0"));
    let (w, odd) = (buffer(&[1.0; 16], &[4, 4]), buffer(&[1.0; 4], &[4]));
    let (code, message) = execute(loaded, &[w, odd]).unwrap_err();
    assert!(code == 3 && message.contains("f32[4]"), "{message}");
    // The argument that the program may overwrite is still there.
    assert_eq!(host(w).unwrap(), [1.0; 16]);
    let (code, message) = execute(loaded, &[w, w]).unwrap_err();
    assert!(code == 3 && message.contains("donated and given twice"), "{message}");
    assert_eq!(host(w).unwrap(), [1.0; 16]);
    // SAFETY: the fields are numbers and pointers.
    let mut options: ExecuteOptions = unsafe { std::mem::zeroed() };
    options.struct_size = 56;
    let mut args: Execute = zeros();
    (args.loaded, args.options, args.num_devices, args.num_args) = (loaded, &options, 1, 2);
    let (code, message) = call("LoadedExecutable_Execute", &mut args).unwrap_err();
    assert_eq!((code, &*message), (3, "the options of a run have 56 bytes and 72 are read"));
    free(w);
    free(odd);
    free_program(loaded);
}

#[test]
fn a_panic_is_an_error() {
    let error = guarded("Test", || panic!("a fault"));
    // SAFETY: the error is a box of this plugin.
    let failure = unsafe { Box::from_raw(error) };
    assert_eq!((failure.code, &*failure.message), (Code::Internal, "Test: a defect of remat: a fault"));
}

/// Tests of one process allocate at the same time, so that this one starts a process for itself.
#[test]
fn calls_leak_nothing() {
    const ALONE: &str = "REMAT_TEST_ALONE";
    const ROUNDS: usize = 10_000;
    if std::env::var_os(ALONE).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", "table::tests::calls_leak_nothing"]).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let loaded = compile(DONATED).unwrap();
    let round = || {
        let (w, g) = (buffer(&[1.0; 16], &[4, 4]), buffer(&[2.0; 16], &[4, 4]));
        let result = execute(loaded, &[w, g]).unwrap();
        host(result).unwrap();
        let _ = execute(loaded, &[w]).unwrap_err();
        for buffer in [w, g, result] {
            free(buffer);
        }
    };
    for _ in 0..100 {
        round();
    }
    let before = ALLOCATOR.live();
    (0..ROUNDS).for_each(|_| round());
    // Threads keep some bytes that they first need late; what leaks leaks in each round.
    let kept = ALLOCATOR.live().saturating_sub(before);
    assert!(kept < ROUNDS, "{kept} bytes in {ROUNDS} rounds");
    free_program(loaded);
}
