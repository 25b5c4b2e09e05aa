//! What remat survives: faults at every call on a file, damaged files, hostile flags. `tools/faults` builds and runs it; what it tries and
//! what has to hold is in `docs/RELIABILITY.md`.

// Faults are put into the calls of Linux, by the registers of x86-64.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod harness;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    harness::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() -> std::process::ExitCode {
    eprintln!("error: faults are put into the calls of Linux on x86-64, and this is another system");
    std::process::ExitCode::FAILURE
}
