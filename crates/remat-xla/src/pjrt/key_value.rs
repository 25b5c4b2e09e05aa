//! The key-value store of a cluster, as callbacks for plugins.
//!
//! A plugin calls these functions while it creates a client, and whenever devices of several nodes communicate for the first time. Layouts
//! are those of `PJRT_KeyValueGetCallback_Args` and related structs in the header.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use remat_cluster::KeyValueStore;

use super::given::slice;
use super::sys::{self, Handle};

/// The data of a client's callbacks. Its address stays the same until the client is freed.
pub(super) struct Callbacks(Arc<KeyValueStore>);

impl Callbacks {
    pub(super) fn new(store: Arc<KeyValueStore>) -> Callbacks {
        Callbacks(store)
    }

    /// Sets the functions and their data in the arguments of a new client.
    pub(super) fn give(&self, args: &mut sys::ClientCreate) {
        let user_arg: *mut c_void = Arc::as_ptr(&self.0).cast_mut().cast();
        args.kv_get_callback = get as *const c_void;
        args.kv_try_get_callback = try_get as *const c_void;
        args.kv_put_callback = put as *const c_void;
        (args.kv_get_user_arg, args.kv_try_get_user_arg, args.kv_put_user_arg) = (user_arg, user_arg, user_arg);
    }
}

/// Creates an error of the plugin from a code and a text with its length.
type CallbackError = unsafe extern "C" fn(c_int, *const c_char, usize) -> Handle;

type Deleter = unsafe extern "C" fn(*mut c_char);

#[repr(C)]
struct Get {
    struct_size: usize,
    extension_start: *mut c_void,
    key: *const c_char,
    key_size: usize,
    timeout_in_ms: c_int,
    callback_error: *const CallbackError,
    user_arg: *mut c_void,
    value: *mut c_char,
    value_size: usize,
    value_deleter_callback: Option<Deleter>,
}

#[repr(C)]
struct TryGet {
    struct_size: usize,
    extension_start: *mut c_void,
    key: *const c_char,
    key_size: usize,
    callback_error: *const CallbackError,
    user_arg: *mut c_void,
    value: *mut c_char,
    value_size: usize,
    value_deleter_callback: Option<Deleter>,
}

#[repr(C)]
struct Put {
    struct_size: usize,
    extension_start: *mut c_void,
    key: *const c_char,
    key_size: usize,
    value: *const c_char,
    value_size: usize,
    callback_error: *const CallbackError,
    user_arg: *mut c_void,
}

/// `PJRT_Error_Code_DEADLINE_EXCEEDED`.
const DEADLINE_EXCEEDED: c_int = 4;

/// `PJRT_Error_Code_NOT_FOUND`.
const NOT_FOUND: c_int = 5;

/// `PJRT_Error_Code_INTERNAL`.
const INTERNAL: c_int = 13;

/// `PJRT_Error_Code_UNAVAILABLE`.
const UNAVAILABLE: c_int = 14;

/// The reason for a missing value: a code and a text.
type Missing = (c_int, String);

/// Waits for the value of a key.
///
/// # Safety
/// The arguments are those of the header; `user_arg` comes from [`Callbacks::give`], whose callbacks live.
unsafe extern "C" fn get(args: *mut Get) -> Handle {
    // SAFETY: by the contract of this function, as for the other two.
    unsafe {
        let args = &mut *args;
        let timeout = Duration::from_millis(u64::try_from(args.timeout_in_ms).unwrap_or(0));
        let value = ask(args.user_arg, slice(args.key.cast(), args.key_size), |store, key| {
            let late = || (DEADLINE_EXCEEDED, format!("no node has given the key `{}` a value in time", name(key)));
            store.get(key, timeout).map_err(failed)?.ok_or_else(late)
        });
        let given = value.and_then(|value| given(&value, &mut args.value, &mut args.value_size));
        args.value_deleter_callback = Some(delete);
        answer(args.callback_error, given)
    }
}

/// The value of a key, if it has one.
///
/// # Safety
/// As for [`get`].
unsafe extern "C" fn try_get(args: *mut TryGet) -> Handle {
    // SAFETY: as for `get`.
    unsafe {
        let args = &mut *args;
        let value = ask(args.user_arg, slice(args.key.cast(), args.key_size), |store, key| {
            let missing = || (NOT_FOUND, format!("the key `{}` has no value yet", name(key)));
            store.try_get(key).map_err(failed)?.ok_or_else(missing)
        });
        let given = value.and_then(|value| given(&value, &mut args.value, &mut args.value_size));
        args.value_deleter_callback = Some(delete);
        answer(args.callback_error, given)
    }
}

/// Sets the value of a key.
///
/// # Safety
/// As for [`get`].
unsafe extern "C" fn put(args: *mut Put) -> Handle {
    // SAFETY: as for `get`.
    unsafe {
        let args = &mut *args;
        let value = slice(args.value.cast::<u8>(), args.value_size);
        let outcome = ask(args.user_arg, slice(args.key.cast(), args.key_size), |store, key| {
            store.put(key, value).map_err(failed)
        });
        answer(args.callback_error, outcome)
    }
}

/// Asks the store about a key. A panic must not reach the plugin.
///
/// # Safety
/// `user_arg` comes from [`Callbacks::give`], whose callbacks live.
unsafe fn ask<T>(
    user_arg: *mut c_void,
    key: &[u8],
    question: impl FnOnce(&KeyValueStore, &[u8]) -> Result<T, Missing>,
) -> Result<T, Missing> {
    // SAFETY: by the contract of this function; the store is shared and never modified.
    let store = unsafe { &*user_arg.cast_const().cast::<KeyValueStore>() };
    let answer = catch_unwind(AssertUnwindSafe(|| question(store, key)));
    answer.unwrap_or_else(|_| Err((INTERNAL, "the key-value store has panicked".to_string())))
}

fn failed(error: remat_ir::Error) -> Missing {
    (UNAVAILABLE, error.to_string())
}

/// A key for a message: most keys are text, some end in other bytes.
fn name(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

/// Copies a value into memory that [`delete`] frees.
fn given(from: &[u8], value: &mut *mut c_char, size: &mut usize) -> Result<(), Missing> {
    // SAFETY: `malloc` takes any size; null is checked below. An empty value has an address, too.
    let memory = unsafe { libc::malloc(from.len().max(1)) };
    if memory.is_null() {
        return Err((sys::RESOURCE_EXHAUSTED, format!("no memory for a value of {} bytes", from.len())));
    }
    // SAFETY: the new memory has this many bytes and does not overlap the value.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), memory.cast(), from.len()) };
    (*value, *size) = (memory.cast(), from.len());
    Ok(())
}

/// Frees a value.
///
/// # Safety
/// It comes from [`given`], and is not used again. Null is allowed.
unsafe extern "C" fn delete(value: *mut c_char) {
    // SAFETY: by the contract of this function the memory comes from `malloc`, or is null.
    unsafe { libc::free(value.cast()) };
}

/// Null, or an error that the plugin creates.
///
/// # Safety
/// The address is that of a function that the plugin passed with the arguments.
unsafe fn answer(callback_error: *const CallbackError, outcome: Result<(), Missing>) -> Handle {
    match outcome {
        Ok(()) => std::ptr::null_mut(),
        // SAFETY: by the contract of this function; the plugin copies the text.
        Err((code, message)) => unsafe { (*callback_error)(code, message.as_ptr().cast(), message.len()) },
    }
}

#[cfg(test)]
mod tests;
