//! Requests to the system's allocator.

/// Gives memory that was freed back to the system, where that is Linux with glibc, which keeps much of it for what is
/// allocated next. From then on resident memory grows by what is allocated.
pub fn give_back_free() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: `malloc_trim(3)` may be called at any time, with any number.
        unsafe { malloc_trim(0) };
    }
}
