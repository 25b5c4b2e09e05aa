//! A plugin in memory, and calls of its functions.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex, PoisonError};

use remat_ir::{Error, ErrorKind, Result};

use super::sys::{self, Api, Arguments, Handle};

/// The least minor version: the first in which executables tell all that is asked of them here.
const LEAST_MINOR: i32 = 72;

/// A plugin that is in memory, for as long as the process runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    api: NonNull<Api>,
}

// SAFETY: the table of functions is constant, and functions of the API may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Plugins that were opened: each is initialised once.
static OPEN: LazyLock<Mutex<BTreeMap<PathBuf, Library>>> = LazyLock::new(Mutex::default);

impl Library {
    /// Opens a plugin, or finds it among those that are open.
    pub(crate) fn open(path: &Path) -> Result<Library> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = open.get(path) {
            return Ok(*library);
        }
        let library = Library::load(path)?;
        open.insert(path.to_path_buf(), library);
        Ok(library)
    }

    fn load(path: &Path) -> Result<Library> {
        let failed = |what: String| Error::new(ErrorKind::Io, "pjrt", format!("{}: {what}", path.display()));
        // SAFETY: the initialisers of the library run. That a file which the user names as a plugin is one is the user's word, as
        // it is for every library that a program loads.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| failed(e.to_string()))?;
        // SAFETY: every plugin exports this function with this type.
        let get = unsafe { library.get::<unsafe extern "C" fn() -> *mut Api>(b"GetPjrtApi\0") };
        let get = *get.map_err(|_| failed("is no PJRT plugin: it does not export GetPjrtApi".to_string()))?;
        // The library stays in memory: threads of the plugin outlive its clients.
        std::mem::forget(library);
        // SAFETY: the function takes nothing, and gives a pointer to a constant.
        let api = NonNull::new(unsafe { get() }).ok_or_else(|| failed("GetPjrtApi gave no functions".to_string()))?;
        let library = Library { api };
        let (major, minor) = library.version();
        if major != 0 || minor < LEAST_MINOR {
            return Err(failed(format!(
                "has version {major}.{minor} of the PJRT C API, and 0.{LEAST_MINOR} is needed"
            )));
        }
        library.call(&mut sys::PluginInitialize::new())?;
        Ok(library)
    }

    /// Major and minor version of the API that the plugin was built with.
    pub(crate) fn version(self) -> (i32, i32) {
        // SAFETY: the pointer is to a constant that begins with these fields in every version.
        let api = unsafe { self.api.as_ref() };
        (api.major, api.minor)
    }

    /// Calls a function of the API. Pointers in the arguments have to be what the header says of them.
    pub(super) fn call<A: Arguments>(self, arguments: &mut A) -> Result<()> {
        let function = self.function::<A>()?;
        // SAFETY: all functions that are called by this method take a pointer to their argument struct, which `A` is, and give a
        // pointer to an error or null.
        let error = unsafe {
            let function: unsafe extern "C" fn(*mut A) -> Handle = std::mem::transmute(function);
            function(arguments)
        };
        if error.is_null() { Ok(()) } else { Err(self.error(A::NAME, error)) }
    }

    /// Calls a function that frees something: there is nobody to tell of an error.
    pub(super) fn free<A: Arguments>(self, mut arguments: A) {
        self.call(&mut arguments).unwrap_or_default();
    }

    /// Calls one of the functions that give nothing.
    fn call_without_result<A: Arguments>(self, arguments: &mut A) -> Option<()> {
        let function = self.function::<A>().ok()?;
        // SAFETY: `PJRT_Error_Message` and `PJRT_Error_Destroy`, for which alone this is, take their argument struct and give nothing.
        unsafe {
            let function: unsafe extern "C" fn(*mut A) = std::mem::transmute(function);
            function(arguments);
        }
        Some(())
    }

    /// The function that takes these arguments, if the plugin has it.
    fn function<A: Arguments>(self) -> Result<NonNull<c_void>> {
        let missing = || Error::new(ErrorKind::Io, "pjrt", format!("the plugin has no function {}", A::NAME));
        // SAFETY: the pointer is to a constant that begins with its size in bytes.
        let size = unsafe { self.api.as_ref() }.struct_size;
        let offset = size_of::<Api>() + A::INDEX * size_of::<Handle>();
        if offset + size_of::<Handle>() > size {
            return Err(missing());
        }
        // SAFETY: the struct has as many bytes, and from its head on it is a table of pointers to functions, which may be null.
        let function = unsafe { self.api.byte_add(offset).cast::<*mut c_void>().read() };
        NonNull::new(function).ok_or_else(missing)
    }

    /// The error of the API as one of ours; it is freed.
    fn error(self, function: &str, error: Handle) -> Error {
        let mut message = sys::ErrorMessage { error, ..sys::ErrorMessage::new() };
        let text = self.call_without_result(&mut message).map(|()| text(message.message, message.message_size));
        let mut code = sys::ErrorGetCode { error, ..sys::ErrorGetCode::new() };
        let is_memory = self.call(&mut code).is_ok() && code.code == sys::RESOURCE_EXHAUSTED;
        self.call_without_result(&mut sys::ErrorDestroy { error, ..sys::ErrorDestroy::new() });
        let kind = if is_memory { ErrorKind::Memory } else { ErrorKind::Internal };
        Error::new(kind, "xla", format!("{function}: {}", text.unwrap_or_default()))
    }

    /// Waits for an event, and frees it.
    pub(super) fn wait(self, event: Handle) -> Result<()> {
        if event.is_null() {
            return Ok(());
        }
        let outcome = self.call(&mut sys::EventAwait { event, ..sys::EventAwait::new() });
        self.free(sys::EventDestroy { event, ..sys::EventDestroy::new() });
        outcome
    }
}

/// A text of the plugin, copied.
pub(super) fn text(start: *const std::ffi::c_char, size: usize) -> String {
    if start.is_null() || size == 0 {
        return String::new();
    }
    // SAFETY: the plugin gives a pointer to as many bytes, which are there until whatever has them is freed, after this.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size) };
    String::from_utf8_lossy(bytes).into_owned()
}
