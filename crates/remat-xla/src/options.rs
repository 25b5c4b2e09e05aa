//! What a program's text depends on beside the program.

/// The kind of chip that a program is written for. It decides what becomes of values in host memory.
///
/// ```
/// use remat_xla::Platform;
/// assert!(Platform::Gpu.has_host_memory() && !Platform::Cpu.has_host_memory());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "variants are what their names say")]
pub enum Platform {
    #[default]
    Cpu,
    Gpu,
    Tpu,
}

impl Platform {
    /// Whether the host's memory is another than the device's. Where it is not, moving a value there is no work.
    pub const fn has_host_memory(self) -> bool {
        match self {
            Platform::Cpu => false,
            Platform::Gpu | Platform::Tpu => true,
        }
    }
}

/// How precisely matrix products and convolutions of f32 multiply on chips that have units for narrower floats. On CPUs, and for
/// f16, bf16 and f64, all are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// The fastest: TF32 on GPUs, bf16 on TPUs. It is the default of JAX.
    Default,
    /// Between the two.
    High,
    /// f32, which is what the operations of this language say.
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

/// What a program's text depends on beside the program.
///
/// ```
/// use remat_xla::{Options, Precision};
/// assert_eq!(Options::default().precision, Precision::Highest);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// The name of the module, which profiles and dumps show: letters, digits, `_`, `.` and `$`; other characters become `_`.
    pub name: String,
    /// The kind of chip.
    pub platform: Platform,
    /// How precisely products of f32 are computed.
    pub precision: Precision,
}

impl Default for Options {
    fn default() -> Options {
        Options { name: "main".to_string(), platform: Platform::default(), precision: Precision::default() }
    }
}
