//! What this library is, for who opens it without JAX.

// A function of C is exported.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use remat_kernels::used_isa;

use crate::place::STABLEHLO;
use crate::sys::VERSION;

static TEXT: LazyLock<CString> = LazyLock::new(|| {
    let ([major, minor, _], [pjrt_major, pjrt_minor]) = (STABLEHLO, VERSION);
    let text = format!(
        "remat {}\ninstructions {}\nstablehlo {major}.{minor}\npjrt {pjrt_major}.{pjrt_minor}",
        env!("CARGO_PKG_VERSION"),
        used_isa().name(),
    );
    // No version has a zero in it.
    CString::new(text).unwrap_or_default()
});

/// A text with a line for each of `remat`, `instructions` (the largest instruction set that the engine uses on this CPU), `stablehlo` and `pjrt`:
/// the word, a space, the version. It ends with a zero and lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn remat_versions() -> *const c_char {
    TEXT.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_version() {
        let text = TEXT.to_str().unwrap();
        let words: Vec<&str> = text.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(words, ["remat", "instructions", "stablehlo", "pjrt"]);
        assert!(text.lines().all(|line| line.split(' ').count() == 2), "{text}");
        assert!(text.contains("\nstablehlo 1.13\npjrt 0.81"), "{text}");
    }
}
