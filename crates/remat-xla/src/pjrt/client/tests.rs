use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;

use super::*;

/// The only client and the only device of the test double of a plugin.
fn one() -> Handle {
    NonNull::<u8>::dangling().as_ptr().cast()
}

/// The list of devices, which lives as long as the process.
struct Devices([Handle; 1]);

// SAFETY: the handle is no address of anything.
unsafe impl Sync for Devices {}

static DEVICES: Devices = Devices([NonNull::<u8>::dangling().as_ptr().cast()]);

/// The float options that clients were created with.
static SEEN: Mutex<Vec<(String, f32)>> = Mutex::new(Vec::new());

unsafe extern "C" fn create(args: *mut sys::ClientCreate) -> Handle {
    // SAFETY: the library calls this with its arguments, as it does the functions below; the only option is a float.
    unsafe {
        let args = &mut *args;
        for option in slice(args.create_options, args.num_options) {
            SEEN.lock().unwrap().push((text(option.name, option.name_size), option.value.float));
        }
        args.client = one();
    }
    null_mut()
}

unsafe extern "C" fn devices(args: *mut sys::ClientAddressableDevices) -> Handle {
    // SAFETY: as above.
    unsafe { ((*args).devices, (*args).num_devices) = (DEVICES.0.as_ptr(), 1) };
    null_mut()
}

unsafe extern "C" fn nothing(_: *mut c_void) -> Handle {
    null_mut()
}

/// An allocator that counts its peak, and has no limit.
unsafe extern "C" fn memory(args: *mut optional::DeviceMemoryStats) -> Handle {
    // SAFETY: as above.
    let args = unsafe { &mut *args };
    (args.bytes_in_use, args.peak_bytes_in_use, args.peak_bytes_in_use_is_set) = (5, 7, 1);
    args.bytes_limit = 9;
    null_mut()
}

fn functions() -> Vec<(usize, *mut c_void)> {
    vec![
        (sys::ClientCreate::INDEX, create as *mut c_void),
        (sys::ClientDestroy::INDEX, nothing as *mut c_void),
        (sys::ClientAddressableDevices::INDEX, devices as *mut c_void),
        (sys::DeviceGetDescription::INDEX, nothing as *mut c_void),
        (sys::DeviceDescriptionId::INDEX, nothing as *mut c_void),
    ]
}

/// A plugin that does not count is no error.
#[test]
fn the_memory_of_a_device_is_what_its_allocator_counts() {
    let client = Client::of_gpus(Library::of_functions(&functions()), 0.95).unwrap();
    assert_eq!(*SEEN.lock().unwrap(), [("memory_fraction".to_string(), 0.95)]);
    assert_eq!(client.device_memory(0).unwrap(), None);
    let counting = [functions(), vec![(optional::DeviceMemoryStats::INDEX, memory as *mut c_void)]].concat();
    let client = Client::new(Library::of_functions(&counting), &[]).unwrap();
    let expected = DeviceMemory { in_use: 5, peak: Some(7), limit: None, allocations: None };
    assert_eq!(client.device_memory(0).unwrap(), Some(expected));
    assert_eq!(client.device_memory(1).unwrap_err().message(), "there is no device 1");
}
