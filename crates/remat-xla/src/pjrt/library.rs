//! A loaded plugin, and calls of its functions.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use remat_ir::{Error, ErrorKind, Result};

use super::sys::{self, Api, Arguments, Handle};

/// The oldest supported minor version, the first in which executables report everything that is needed here.
const LEAST_MINOR: i32 = 72;

/// A plugin that stays loaded as long as the process runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    api: NonNull<Api>,
}

// SAFETY: the table of functions is constant once the plugin is loaded. The header does not specify threads, but plugins are written to be
// called from any thread, several at a time: their functions forward to classes of XLA that lock shared state, and JAX calls them from
// several threads without its interpreter's lock. A test runs one executable from several threads.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The plugin in a file, or the error of opening it.
type Opened = Arc<OnceLock<Result<Library>>>;

/// The opened plugins by the real paths of their files. Each is initialised once, and a failed one is not retried.
static OPEN: LazyLock<Mutex<BTreeMap<PathBuf, Opened>>> = LazyLock::new(Mutex::default);

impl Library {
    /// Opens a plugin, or finds it among those that are open. Threads that open the same plugin wait for the first of them, but not for
    /// those that open another.
    pub(crate) fn open(path: &Path) -> Result<Library> {
        let failed = |e: std::io::Error| Error::new(ErrorKind::Io, "pjrt", format!("{}: {e}", path.display()));
        let path = path.canonicalize().map_err(failed)?;
        let opened = OPEN.lock().unwrap_or_else(PoisonError::into_inner).entry(path.clone()).or_default().clone();
        opened.get_or_init(|| Library::load(&path)).clone()
    }

    fn load(path: &Path) -> Result<Library> {
        let failed = |what: String| Error::new(ErrorKind::Io, "pjrt", format!("{}: {what}", path.display()));
        // SAFETY: the initialisers of the library run. The user vouches that the named file is a plugin, as for every library that a
        // program loads.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| failed(e.to_string()))?;
        // SAFETY: every plugin exports this function with this type.
        let get = unsafe { library.get::<unsafe extern "C" fn() -> *mut Api>(b"GetPjrtApi\0") };
        let get = *get.map_err(|_| failed("is not a PJRT plugin: it does not export GetPjrtApi".to_string()))?;
        // The library stays loaded, since threads of the plugin outlive its clients.
        std::mem::forget(library);
        // SAFETY: the function takes no arguments and returns a pointer to a constant.
        let api = NonNull::new(unsafe { get() }).ok_or_else(|| failed("GetPjrtApi gave no functions".to_string()))?;
        let library = Library { api };
        let (major, minor) = library.version();
        if major != 0 || minor < LEAST_MINOR {
            return Err(failed(format!(
                "has version {major}.{minor} of the PJRT C API; remat needs at least 0.{LEAST_MINOR}"
            )));
        }
        for &(name, index) in sys::FUNCTIONS {
            library.entry(index).ok_or_else(|| failed(format!("has no function {name}")))?;
        }
        // SAFETY: no field of the struct needs to be set.
        unsafe { library.call_as(ErrorKind::Io, &mut sys::PluginInitialize::new()) }?;
        Ok(library)
    }

    /// Major and minor version of the API that the plugin was built with.
    pub(crate) fn version(self) -> (i32, i32) {
        // SAFETY: the pointer is to a constant that begins with these fields in every version.
        let api = unsafe { self.api.as_ref() };
        (api.major, api.minor)
    }

    /// Calls a function of the API.
    ///
    /// # Safety
    /// Pointers and handles in the arguments satisfy the header.
    pub(super) unsafe fn call<A: Arguments>(self, arguments: &mut A) -> Result<()> {
        // SAFETY: by the contract of this method.
        unsafe { self.call_as(ErrorKind::Internal, arguments) }
    }

    /// Calls a function whose errors are of this kind.
    ///
    /// # Safety
    /// As for [`Library::call`].
    pub(super) unsafe fn call_as<A: Arguments>(self, kind: ErrorKind, arguments: &mut A) -> Result<()> {
        // SAFETY: by the contract of this method.
        let failure = unsafe { self.attempt(arguments) };
        failure.map_or(Ok(()), |failure| Err(failure.into_error::<A>(kind)))
    }

    /// Calls a function that a plugin may lack. Returns whether it has it.
    ///
    /// # Safety
    /// As for [`Library::call`].
    pub(super) unsafe fn call_if_any<A: Arguments>(self, arguments: &mut A) -> Result<bool> {
        // SAFETY: by the contract of this method.
        match unsafe { self.attempt(arguments) } {
            None => Ok(true),
            Some(Failure { code: sys::UNIMPLEMENTED, .. }) => Ok(false),
            Some(failure) => Err(failure.into_error::<A>(ErrorKind::Internal)),
        }
    }

    /// Calls a function that frees something; errors are ignored, since there is no caller to report to.
    ///
    /// # Safety
    /// As for [`Library::call`], and the freed object is not used again.
    pub(super) unsafe fn free<A: Arguments>(self, mut arguments: A) {
        // SAFETY: by the contract of this method.
        unsafe { self.call(&mut arguments) }.unwrap_or_default();
    }

    /// Calls a function, and returns its failure, if any.
    ///
    /// # Safety
    /// As for [`Library::call`].
    unsafe fn attempt<A: Arguments>(self, arguments: &mut A) -> Option<Failure> {
        // SAFETY: by the contract of this method.
        match unsafe { self.call_raw(arguments) } {
            None => Some(Failure { code: sys::UNIMPLEMENTED, message: "the plugin does not have it".to_string() }),
            Some(error) if error.is_null() => None,
            Some(error) => Some(self.failure(error)),
        }
    }

    /// Calls a function, and returns its error or null; `None` if the plugin does not have the function.
    ///
    /// # Safety
    /// As for [`Library::call`].
    unsafe fn call_raw<A: Arguments>(self, arguments: &mut A) -> Option<Handle> {
        let function = self.entry(A::INDEX)?;
        // SAFETY: all functions that are called by this method take a pointer to their argument struct, which is `A`, and return a pointer
        // to an error or null. The arguments are sound by the contract of this method.
        unsafe {
            let function: unsafe extern "C" fn(*mut A) -> Handle = std::mem::transmute(function);
            Some(function(arguments))
        }
    }

    /// Calls one of the functions that return nothing.
    ///
    /// # Safety
    /// The function is `PJRT_Error_Message` or `PJRT_Error_Destroy`, and the handle in its arguments is an error.
    unsafe fn call_without_result<A: Arguments>(self, arguments: &mut A) {
        if let Some(function) = self.entry(A::INDEX) {
            // SAFETY: the two functions take their argument struct and return nothing.
            unsafe {
                let function: unsafe extern "C" fn(*mut A) = std::mem::transmute(function);
                function(arguments);
            }
        }
    }

    /// Whether the plugin has the function at this index of the table.
    pub(super) fn has(self, index: usize) -> bool {
        self.entry(index).is_some()
    }

    /// The function at this index of the table, if the plugin has it.
    fn entry(self, index: usize) -> Option<NonNull<c_void>> {
        // SAFETY: the pointer is to a constant that begins with its size in bytes.
        let size = unsafe { self.api.as_ref() }.struct_size;
        let offset = size_of::<Api>() + index * size_of::<Handle>();
        if offset + size_of::<Handle>() > size {
            return None;
        }
        // SAFETY: the struct has this many bytes, and after its head it is a table of pointers to functions, which may be null.
        NonNull::new(unsafe { self.api.byte_add(offset).cast::<*mut c_void>().read() })
    }

    /// The content of an error, which is freed.
    fn failure(self, error: Handle) -> Failure {
        let mut message = sys::ErrorMessage { error, ..sys::ErrorMessage::new() };
        // SAFETY: the error exists until it is freed below, and so does its message.
        let message = unsafe {
            self.call_without_result(&mut message);
            text(message.message, message.message_size)
        };
        let mut code = sys::ErrorGetCode { error, ..sys::ErrorGetCode::new() };
        // SAFETY: as above. An error of this call is freed and no more: asking for its code would go on without an end.
        unsafe {
            if let Some(second) = self.call_raw(&mut code).filter(|second| !second.is_null()) {
                self.call_without_result(&mut sys::ErrorDestroy { error: second, ..sys::ErrorDestroy::new() });
            }
            self.call_without_result(&mut sys::ErrorDestroy { error, ..sys::ErrorDestroy::new() });
        }
        Failure { code: code.code, message }
    }

    /// Waits for an event, and frees it. A null event needs no waiting.
    ///
    /// # Safety
    /// The event is null, or one of this plugin that is not used again.
    pub(super) unsafe fn wait(self, event: Handle) -> Result<()> {
        if event.is_null() {
            return Ok(());
        }
        // SAFETY: by the contract of this method.
        unsafe {
            let outcome = self.call(&mut sys::EventAwait { event, ..sys::EventAwait::new() });
            self.free(sys::EventDestroy { event, ..sys::EventDestroy::new() });
            outcome
        }
    }
}

#[cfg(test)]
impl Library {
    /// A plugin with only these functions, by their indices in the table.
    pub(super) fn of_functions(functions: &[(usize, *mut c_void)]) -> Library {
        #[repr(C)]
        struct Table {
            head: Api,
            functions: [*mut c_void; 128],
        }
        let head = Api::of_size(size_of::<Table>());
        let mut table = Box::new(Table { head, functions: [std::ptr::null_mut(); 128] });
        functions.iter().for_each(|&(index, function)| table.functions[index] = function);
        // It stays in memory, like that of a plugin.
        Library { api: NonNull::from(Box::leak(table)).cast() }
    }
}

/// An error of the API.
struct Failure {
    code: c_int,
    message: String,
}

impl Failure {
    /// The error of a function, of this kind unless it ran out of memory.
    fn into_error<A: Arguments>(self, kind: ErrorKind) -> Error {
        let kind = if self.code == sys::RESOURCE_EXHAUSTED { ErrorKind::Memory } else { kind };
        Error::new(kind, "xla", format!("{}: {}", A::NAME, self.message))
    }
}

/// A text of the plugin, copied.
///
/// # Safety
/// There are this many bytes at the address, or it is null.
pub(super) unsafe fn text(start: *const c_char, size: usize) -> String {
    if start.is_null() || size == 0 {
        return String::new();
    }
    // SAFETY: by the contract of this function.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size) };
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table in which these are the error functions, and all others are null.
    #[repr(C)]
    struct Table {
        head: Api,
        functions: [*mut c_void; 3],
    }

    extern "C" fn ignore(_: *mut c_void) {}

    extern "C" fn fail(_: *mut c_void) -> Handle {
        NonNull::<u8>::dangling().as_ptr().cast()
    }

    fn failing() -> Table {
        let functions = [ignore as *mut c_void, ignore as *mut c_void, fail as *mut c_void];
        Table { head: Api::of_size(size_of::<Table>()), functions }
    }

    #[test]
    fn an_error_whose_code_is_an_error_ends() {
        let table = failing();
        let library = Library { api: NonNull::from(&table).cast() };
        // SAFETY: the function reads no argument.
        let error = unsafe { library.call(&mut sys::ErrorGetCode::new()) }.unwrap_err();
        assert_eq!(error.to_string(), "xla: PJRT_Error_GetCode: ");
    }

    #[test]
    fn a_function_that_is_missing_is_named() {
        let table = failing();
        let library = Library { api: NonNull::from(&table).cast() };
        // SAFETY: the function does not exist, so it is not called.
        let error = unsafe { library.call_as(ErrorKind::Io, &mut sys::PluginInitialize::new()) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.to_string(), "xla: PJRT_Plugin_Initialize: the plugin does not have it");
        // SAFETY: as above.
        assert!(!unsafe { library.call_if_any(&mut sys::ClientCompile::new()) }.unwrap());
    }

    #[test]
    fn a_file_that_is_no_plugin_stays_so() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let errors = [file, &file.replace("remat-xla/", "remat-xla/./")].map(|path| Library::open(path.as_ref()));
        let [first, second] = errors.map(|opened| opened.unwrap_err().to_string());
        assert!(first.starts_with("pjrt: ") && first.contains("remat-xla/Cargo.toml"), "{first}");
        assert_eq!(first, second);
        let missing = Library::open("/no/such/plugin.so".as_ref()).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Io);
        assert!(missing.to_string().starts_with("pjrt: /no/such/plugin.so: "), "{missing}");
    }
}
