//! The largest instruction set that kernels use, which an environment variable may lower.

use std::env;
use std::ffi::OsStr;
use std::sync::OnceLock;

use remat_ir::{Error, ErrorKind, Result};

/// Instruction sets of CPUs, each with those of its architecture before it. A CPU uses the largest of them that it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Isa {
    /// What every CPU of the architecture has: SSE2 on x86-64, NEON on AArch64.
    Baseline,
    /// x86-64 with AVX2 and FMA (x86-64-v3), and with the dot products of bytes of AVX-VNNI where the CPU has them.
    Avx2,
    /// x86-64 with AVX-512 (x86-64-v4), and with its products of bf16 and bytes where the CPU has them.
    Avx512,
    /// x86-64 with the matrix unit AMX.
    Amx,
    /// AArch64 with its dot products of bytes, and with those of bf16 where the CPU has them.
    NeonDot,
}

impl Isa {
    /// All of them by their names, which are those of the variable.
    const NAMES: [(&str, Isa); 5] = [
        ("baseline", Isa::Baseline),
        ("avx2", Isa::Avx2),
        ("avx512", Isa::Avx512),
        ("amx", Isa::Amx),
        ("neon-dot", Isa::NeonDot),
    ];

    /// Its name, which is that of `REMAT_MAX_CPU_ISA`.
    pub fn name(self) -> &'static str {
        Isa::NAMES.into_iter().find(|(_, isa)| *isa == self).map_or("baseline", |(name, _)| name)
    }
}

/// The environment variable that selects it.
const VARIABLE: &str = "REMAT_MAX_CPU_ISA";

/// The largest instruction set that kernels may use: that of `REMAT_MAX_CPU_ISA` (`baseline`, `avx2`, `avx512`, `amx` or `neon-dot`), or
/// else the largest that the CPU has. A larger one than the CPU has changes nothing; on AArch64 those of x86-64 allow only the baseline.
/// The variable is read once. oneDNN has a similar one, `ONEDNN_MAX_CPU_ISA`.
///
/// # Errors
/// If the variable has another value.
///
/// ```
/// assert!(remat_kernels::max_cpu_isa()? >= remat_kernels::Isa::Baseline);
/// # Ok::<(), remat_ir::Error>(())
/// ```
pub fn max_cpu_isa() -> Result<Isa> {
    static ISA: OnceLock<Result<Isa>> = OnceLock::new();
    ISA.get_or_init(|| parsed(env::var_os(VARIABLE).as_deref())).clone()
}

/// Whether kernels may use this instruction set, if the CPU has it. A variable that is wrong forbids nothing: to compile a program is then
/// an error.
pub(crate) fn allows(isa: Isa) -> bool {
    max_cpu_isa().map_or(true, |most| isa <= most)
}

fn parsed(text: Option<&OsStr>) -> Result<Isa> {
    let text = text.unwrap_or_default().to_string_lossy();
    if text.is_empty() {
        // The last one: all are allowed.
        return Ok(Isa::NeonDot);
    }
    let found = Isa::NAMES.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, isa)| isa).ok_or_else(|| {
        let names = "`baseline`, `avx2`, `avx512`, `amx` or `neon-dot`";
        Error::new(ErrorKind::Argument, "compile", format!("{VARIABLE} is '{text}' and must be {names}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_names_are_known() {
        let of = |text: &str| parsed(Some(OsStr::new(text))).map_err(|error| error.to_string());
        assert_eq!(parsed(None).map_err(|error| error.to_string()), Ok(Isa::NeonDot));
        assert_eq!(of(""), Ok(Isa::NeonDot));
        assert!(Isa::NAMES.into_iter().all(|(_, isa)| isa <= Isa::NeonDot));
        for (name, isa) in Isa::NAMES {
            assert_eq!(of(name), Ok(isa));
        }
        let expected =
            "compile: REMAT_MAX_CPU_ISA is 'AVX2' and must be `baseline`, `avx2`, `avx512`, `amx` or `neon-dot`";
        assert_eq!(of("AVX2"), Err(expected.to_string()));
    }
}
