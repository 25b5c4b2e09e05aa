use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use remat_ir::DType;

use super::*;

/// Handles of the test double of a plugin, which has one of everything.
fn one() -> Handle {
    NonNull::<u8>::dangling().as_ptr().cast()
}

/// Buffers, events and errors that were returned and not yet freed.
static LIVE: AtomicUsize = AtomicUsize::new(0);

fn give() -> Handle {
    LIVE.fetch_add(1, Ordering::Relaxed);
    one()
}

unsafe extern "C" fn free(_: *mut c_void) -> Handle {
    LIVE.fetch_sub(1, Ordering::Relaxed);
    null_mut()
}

unsafe extern "C" fn nothing(_: *mut c_void) -> Handle {
    null_mut()
}

unsafe extern "C" fn create(args: *mut sys::ClientCreate) -> Handle {
    // SAFETY: the library calls this with its arguments, as it does the functions below.
    unsafe { (*args).client = one() };
    null_mut()
}

/// A run starts, whatever its outcome.
unsafe extern "C" fn execute(args: *mut sys::LoadedExecutableExecute) -> Handle {
    // SAFETY: as above; there is a list of outputs for each device.
    unsafe { **(*args).output_lists = give() };
    null_mut()
}

unsafe extern "C" fn ready(args: *mut sys::BufferReadyEvent) -> Handle {
    // SAFETY: as above.
    unsafe { (*args).event = give() };
    null_mut()
}

unsafe extern "C" fn download(args: *mut sys::BufferToHostBuffer) -> Handle {
    // SAFETY: as above.
    unsafe {
        match (*args).dst.is_null() {
            true => (*args).dst_size = 8,
            false => (*args).event = give(),
        }
    }
    null_mut()
}

/// The run failed.
unsafe extern "C" fn fail(_: *mut sys::EventAwait) -> Handle {
    give()
}

unsafe extern "C" fn message(args: *mut sys::ErrorMessage) {
    let text = "the device fell off the bus";
    // SAFETY: as above.
    unsafe { ((*args).message, (*args).message_size) = (text.as_ptr().cast(), text.len()) };
}

unsafe extern "C" fn code(args: *mut sys::ErrorGetCode) -> Handle {
    // SAFETY: as above.
    unsafe { (*args).code = sys::RESOURCE_EXHAUSTED };
    null_mut()
}

/// The call of a failing run is not an error; every read of its results returns the error, and everything is freed.
#[test]
fn errors_of_runs_that_have_begun_come_with_the_read() {
    let library = Library::of_functions(&[
        (sys::ErrorDestroy::INDEX, free as *mut c_void),
        (sys::ErrorMessage::INDEX, message as *mut c_void),
        (sys::ErrorGetCode::INDEX, code as *mut c_void),
        (sys::EventDestroy::INDEX, free as *mut c_void),
        (sys::EventAwait::INDEX, fail as *mut c_void),
        (sys::ClientCreate::INDEX, create as *mut c_void),
        (sys::ClientDestroy::INDEX, nothing as *mut c_void),
        (sys::ClientAddressableDevices::INDEX, nothing as *mut c_void),
        (sys::LoadedExecutableDestroy::INDEX, nothing as *mut c_void),
        (sys::LoadedExecutableExecute::INDEX, execute as *mut c_void),
        (sys::BufferDestroy::INDEX, free as *mut c_void),
        (sys::BufferToHostBuffer::INDEX, download as *mut c_void),
        (sys::BufferReadyEvent::INDEX, ready as *mut c_void),
    ]);
    let client = Arc::new(Client::new(library, &[]).unwrap());
    let aval = Aval::new(DType::F32, [2]);
    let loaded = Loaded { client: client.clone(), handle: one(), ins: vec![], outs: vec![aval] };
    let results = loaded.run(std::iter::empty(), |buffer| buffer).unwrap();
    assert_eq!((results.len(), client.num_buffers(), LIVE.load(Ordering::Relaxed)), (1, 1, 1));
    for _ in 0..2 {
        for error in [results[0].wait().unwrap_err(), results[0].download().map(drop).unwrap_err()] {
            assert_eq!(error.to_string(), "xla: PJRT_Event_Await: the device fell off the bus");
            assert_eq!(error.kind(), ErrorKind::Memory, "the plugin said that memory was short");
        }
    }
    drop(results);
    assert_eq!((client.num_buffers(), LIVE.load(Ordering::Relaxed)), (0, 0));
}
