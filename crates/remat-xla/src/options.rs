//! Options that determine a program's text, besides the program.

use std::fmt;

use remat_ir::{Error, ErrorKind, Result};

/// The kind of chip for which a program is written. It determines how values in host memory are treated.
///
/// ```
/// use remat_xla::Platform;
/// assert!(Platform::Gpu.has_host_memory() && !Platform::Cpu.has_host_memory());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[allow(missing_docs, reason = "variants are what their names say")]
pub enum Platform {
    #[default]
    Cpu,
    Gpu,
    Tpu,
}

impl Platform {
    /// All kinds.
    pub const ALL: [Platform; 3] = [Platform::Cpu, Platform::Gpu, Platform::Tpu];

    /// The name on the command line.
    ///
    /// ```
    /// assert_eq!(remat_xla::Platform::Gpu.name(), "cuda");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Platform::Cpu => "cpu",
            Platform::Gpu => "cuda",
            Platform::Tpu => "tpu",
        }
    }

    /// The name of its devices, before the ordinal.
    pub(crate) const fn device_name(self) -> &'static str {
        match self {
            Platform::Cpu => "xla-cpu",
            Platform::Gpu => "cuda",
            Platform::Tpu => "tpu",
        }
    }

    /// The platform with this name.
    ///
    /// ```
    /// use remat_xla::Platform;
    /// assert_eq!(Platform::named("tpu")?, Platform::Tpu);
    /// assert_eq!(Platform::named("npu").unwrap_err().message(), "unknown platform `npu`; the platforms are cpu, cuda, tpu");
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such platform.
    pub fn named(name: &str) -> Result<Platform> {
        Platform::ALL.into_iter().find(|platform| platform.name() == name).ok_or_else(|| {
            let names = Platform::ALL.map(Platform::name).join(", ");
            let message = format!("unknown platform `{name}`; the platforms are {names}");
            Error::new(ErrorKind::Argument, "platform", message)
        })
    }

    /// The platform of a device with this name: `xla-cpu:0`, `cuda:1`.
    ///
    /// ```
    /// use remat_xla::Platform;
    /// assert_eq!((Platform::of_device("cuda:1"), Platform::of_device("cpu")), (Some(Platform::Gpu), None));
    /// ```
    pub fn of_device(name: &str) -> Option<Platform> {
        let kind = name.split_once(':').map_or(name, |(kind, _)| kind);
        Platform::ALL.into_iter().find(|platform| platform.device_name() == kind)
    }

    /// Whether host memory is separate from device memory. If not, moving a value there takes no work.
    pub const fn has_host_memory(self) -> bool {
        match self {
            Platform::Cpu => false,
            Platform::Gpu | Platform::Tpu => true,
        }
    }
}

/// The name for readers: `CPUs`, `CUDA`, `TPUs`.
impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Platform::Cpu => "CPUs",
            Platform::Gpu => "CUDA",
            Platform::Tpu => "TPUs",
        })
    }
}

/// The precision of f32 matrix products and convolutions on chips that have units for narrower floats. On CPUs, and for f16, bf16 and f64,
/// all are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// The fastest: TF32 on GPUs, bf16 on TPUs. It is the default of JAX.
    Default,
    /// Between the other two.
    High,
    /// f32, as the operations are defined.
    #[default]
    Highest,
}

impl Precision {
    /// The word in StableHLO.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Precision::Default => "DEFAULT",
            Precision::High => "HIGH",
            Precision::Highest => "HIGHEST",
        }
    }
}

/// How attention is computed on NVIDIA GPUs. Elsewhere it is its definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Attention {
    /// By its definition, which stores the scores in memory.
    #[default]
    Definition,
    /// By cuDNN's kernels, which store no scores, where it has one: attention in f16 and bf16 without bias and mask, with heads of up to
    /// 128 features, a multiple of 8, on one device or inside a `shard_map` along all axes of its mesh. Forward-mode derivatives, and those
    /// of the logarithms of sums, use the definition. A compiler for a card that is not in the machine does not know the workspace of such
    /// a kernel.
    Cudnn,
}

impl Attention {
    /// The environment variable that selects it for programs that are run or compiled ahead of time.
    pub(crate) const VARIABLE: &str = "REMAT_CUDA_ATTENTION";

    /// The choice in the environment variable `REMAT_CUDA_ATTENTION`: `cudnn`, or `definition`, which is the default.
    ///
    /// # Errors
    /// If the variable has another value.
    pub fn of_environment() -> Result<Attention> {
        Attention::read(std::env::var(Attention::VARIABLE).ok().as_deref().unwrap_or_default())
    }

    fn read(text: &str) -> Result<Attention> {
        match text {
            "" | "definition" => Ok(Attention::Definition),
            "cudnn" => Ok(Attention::Cudnn),
            _ => {
                let message = format!("{} is `{text}` and must be `definition` or `cudnn`", Attention::VARIABLE);
                Err(Error::new(ErrorKind::Argument, "attention", message))
            }
        }
    }
}

/// The options that determine a program's text, besides the program.
///
/// ```
/// use remat_xla::{Options, Precision};
/// assert_eq!(Options::default().precision, Precision::Highest);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// The name of the module in profiles and dumps: letters, digits, `_`, `.` and `$`; other characters become `_`.
    pub name: String,
    /// The kind of chip.
    pub platform: Platform,
    /// The precision of f32 products.
    pub precision: Precision,
    /// Whether each argument gives its memory to the first result with the same aval that has none yet, like `donate_argnums` in JAX.
    pub donates: bool,
    /// The indices of arguments that keep their memory even if `donates` is true.
    pub kept: Vec<usize>,
    /// How attention is computed on NVIDIA GPUs.
    pub attention: Attention,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "main".to_string(),
            platform: Platform::default(),
            precision: Precision::default(),
            donates: false,
            kept: Vec::new(),
            attention: Attention::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_two_values() {
        assert_eq!(Attention::read("").unwrap(), Attention::Definition);
        assert_eq!(Attention::read("cudnn").unwrap(), Attention::Cudnn);
        let error = Attention::read("flash").unwrap_err();
        assert_eq!(error.message(), "REMAT_CUDA_ATTENTION is `flash` and must be `definition` or `cudnn`");
    }
}
