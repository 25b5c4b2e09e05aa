//! A table of chips: the makers' published figures, and the descriptions that compilers need for chips that are not in the machine.

use std::fmt;

use remat_ir::{DType, Error, ErrorKind, Result, did_you_mean};
use remat_opt::cost::Machine;

use crate::Platform;

/// A chip for which programs are compiled, even if it is not in the machine.
///
/// Memory and rates are those that the maker publishes for one chip, dense and without sparsity; [`Chip::source`] is the reference.
///
/// ```
/// use remat_xla::Chip;
/// let chip = Chip::named("tpu-v5e")?;
/// assert_eq!(chip.memory >> 30, 15);
/// assert_eq!(chip.bandwidth, 819e9);
/// assert_eq!(Chip::named("tpu-v4e").unwrap_err().message(), "unknown chip `tpu-v4e`; did you mean `tpu-v4`?");
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chip {
    /// The name on the command line.
    pub name: &'static str,
    /// Its kind.
    pub platform: Platform,
    /// The bytes of its memory available to a program.
    pub memory: u64,
    /// Bytes per second to and from its memory.
    pub bandwidth: f64,
    /// Bytes per second that it can send to other chips over all of its links; it receives at the same rate.
    pub links: f64,
    /// Bytes per second from its memory to that of its host; the same rate applies in the other direction.
    pub host: f64,
    /// Multiplications and additions per second, in matrix products of each dtype.
    rates: Rates,
    /// The reference for the figures.
    pub source: &'static str,
    /// The chip's description for a compiler.
    facts: Facts,
}

/// Operations per second of matrix products.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Rates {
    int8: f64,
    /// bf16 and f16.
    half: f64,
    /// f32, multiplied as f32: see [`Precision::Highest`](crate::Precision::Highest).
    single: f64,
    double: f64,
}

/// A chip's description for a compiler.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Facts {
    /// The generation in names of topologies, and the number of axes of its torus.
    Tpu {
        generation: &'static str,
        axes: usize,
    },
    Gpu(Gpu),
}

/// A GPU by CUDA's device properties. Limits that all GPUs of the table share are in the text of [`Gpu::config`].
#[derive(Clone, Copy, PartialEq, Debug)]
struct Gpu {
    model: &'static str,
    compute_capability: u32,
    multiprocessors: u32,
    clock_ghz: f64,
    memory: u64,
    bandwidth: u64,
    l2_cache: u64,
}

/// The chips of the table.
const CHIPS: [Chip; 7] = [
    tpu("tpu-v4", "v4", 3, 33_014_414_848, [275e12, 275e12], 1228e9, [300e9, 16e9], "cloud.google.com/tpu/docs/v4"),
    tpu("tpu-v5e", "v5e", 2, 16_909_336_064, [393e12, 197e12], 819e9, [200e9, 16e9], "cloud.google.com/tpu/docs/v5e"),
    tpu("tpu-v5p", "v5p", 3, 102_786_661_888, [918e12, 459e12], 2765e9, [600e9, 16e9], "cloud.google.com/tpu/docs/v5p"),
    tpu("tpu-v6e", "v6e", 2, 33_546_042_880, [1836e12, 918e12], 1638e9, [448e9, 32e9], "cloud.google.com/tpu/docs/v6e"),
    gpu(
        "h100",
        Gpu {
            model: "NVIDIA H100 80GB HBM3",
            compute_capability: 9,
            multiprocessors: 132,
            clock_ghz: 1.98,
            memory: 84_942_979_072,
            bandwidth: 3_352_320_000_000,
            l2_cache: 52_428_800,
        },
        HOPPER,
        450e9,
        "NVIDIA H100 Tensor Core GPU datasheet, SXM",
    ),
    gpu(
        "h200",
        Gpu {
            model: "NVIDIA H200",
            compute_capability: 9,
            multiprocessors: 132,
            clock_ghz: 1.98,
            memory: 151_397_597_184,
            bandwidth: 4_800_000_000_000,
            l2_cache: 52_428_800,
        },
        HOPPER,
        450e9,
        "NVIDIA H200 Tensor Core GPU datasheet, SXM",
    ),
    gpu(
        "b200",
        Gpu {
            model: "NVIDIA B200",
            compute_capability: 10,
            multiprocessors: 148,
            clock_ghz: 1.965,
            memory: 191_514_411_008,
            bandwidth: 7_672_320_000_000,
            l2_cache: 132_644_864,
        },
        Rates { int8: 4500e12, half: 2250e12, single: 75e12, double: 37e12 },
        900e9,
        "NVIDIA HGX B200 datasheet, per GPU",
    ),
];

const HOPPER: Rates = Rates { int8: 1979e12, half: 989.5e12, single: 67e12, double: 67e12 };

/// The bytes of a GPU's memory for its driver, libraries and the code of programs, which arrays cannot use.
const RESERVED: u64 = 1 << 30;

const fn tpu(
    name: &'static str,
    generation: &'static str,
    axes: usize,
    memory: u64,
    [int8, half]: [f64; 2],
    bandwidth: f64,
    [links, host]: [f64; 2],
    source: &'static str,
) -> Chip {
    // Matrix units multiply bf16. A product of f32 takes six such products, and f64 is emulated even more slowly.
    let rates = Rates { int8, half, single: half / 6.0, double: half / 64.0 };
    let facts = Facts::Tpu { generation, axes };
    Chip { name, platform: Platform::Tpu, memory, bandwidth, links, host, rates, source, facts }
}

const fn gpu(name: &'static str, gpu: Gpu, rates: Rates, links: f64, source: &'static str) -> Chip {
    // PCIe 5 with 16 lanes.
    let host = 64e9;
    let (memory, bandwidth) = (gpu.memory - RESERVED, gpu.bandwidth as f64);
    Chip { name, platform: Platform::Gpu, memory, bandwidth, links, host, rates, source, facts: Facts::Gpu(gpu) }
}

impl Chip {
    /// All chips of the table.
    pub const fn all() -> &'static [Chip] {
        &CHIPS
    }

    /// The chip with this name.
    ///
    /// # Errors
    /// If the table has no such chip; the error suggests a similar name or lists all.
    pub fn named(name: &str) -> Result<&'static Chip> {
        CHIPS.iter().find(|chip| chip.name == name).ok_or_else(|| {
            let names: Vec<&str> = CHIPS.iter().map(|chip| chip.name).collect();
            let known = names.join(", ");
            let hint = did_you_mean(name, names, || format!("; the chips are {known}"));
            Error::new(ErrorKind::Argument, "target", format!("unknown chip `{name}`{hint}"))
        })
    }

    /// The rates of the chip for matrix products of this dtype, for a roofline.
    ///
    /// ```
    /// use remat_ir::DType;
    /// use remat_xla::Chip;
    /// assert_eq!(Chip::named("h100")?.machine(DType::Bf16).flops, 989.5e12);
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    pub fn machine(&self, dtype: DType) -> Machine {
        let Rates { int8, half, single, double } = self.rates;
        let flops = match dtype {
            DType::I8 | DType::U8 => int8,
            DType::F16 | DType::Bf16 => half,
            DType::F64 => double,
            _ => single,
        };
        Machine { flops, bytes: self.bandwidth }
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A plugin's description of chips that are not in the machine: the name of a topology, and options.
pub(crate) struct Topology {
    pub(crate) name: String,
    pub(crate) options: Vec<(&'static str, String)>,
}

impl Chip {
    /// The sizes of a slice with this many chips, as it is rented; for a TPU the sizes of its torus.
    pub(crate) fn slice(&self, chips: usize) -> Result<Vec<usize>> {
        let axes = match self.facts {
            Facts::Gpu(_) => return Ok(vec![chips]),
            Facts::Tpu { axes, .. } => axes,
        };
        // The most cubic slice whose sizes are powers of two, the first no larger than the last.
        let bits = chips.trailing_zeros() as usize;
        if !chips.is_power_of_two() {
            let message = format!("{self} has no slice of {chips} chips; give its sizes, such as `{self}:2x4`");
            return Err(Error::new(ErrorKind::Argument, "target", message));
        }
        let mut sizes: Vec<usize> = (0..axes).map(|axis| 1 << ((bits + axis) / axes)).collect();
        if axes == 3 && chips == 4 {
            sizes = vec![2, 2, 1];
        }
        Ok(sizes)
    }

    /// The topology of chips in this mesh.
    pub(crate) fn topology(&self, mesh: &[usize]) -> Result<Topology> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Argument, "target", message));
        let text = |mesh: &[usize]| mesh.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        match self.facts {
            Facts::Tpu { axes, .. } if mesh.len() != axes => wrong(format!(
                "the chips of {self} are linked along {axes} axes, and `{}` has {}",
                text(mesh),
                mesh.len()
            )),
            Facts::Tpu { axes, .. } if !is_slice(mesh) => {
                let sizes = if axes == 2 { "powers of two up to 16" } else { "1, 2 or multiples of 4" };
                wrong(format!("{self} has no slice of {}; the sizes of slices are {sizes}", text(mesh)))
            }
            Facts::Tpu { generation, .. } => {
                // A chip of v4 has two cores, which programs see as one.
                let options =
                    if generation == "v4" { vec![("chip_config_name", "megacore".to_string())] } else { vec![] };
                Ok(Topology { name: format!("{generation}:{}", text(mesh)), options })
            }
            Facts::Gpu(gpu) => {
                let chips: usize = mesh.iter().product();
                let hosts = if chips <= PER_HOST { [1, chips] } else { [chips / PER_HOST, PER_HOST] };
                if hosts[0] * hosts[1] != chips {
                    return wrong(format!("{chips} GPUs do not fill hosts of {PER_HOST} GPUs"));
                }
                let topology = format!("1x{}", text(&hosts));
                let options = vec![("topology", topology), ("target_config", gpu.config())];
                Ok(Topology { name: self.name.to_string(), options })
            }
        }
    }
}

/// Whether there are slices of TPUs of these sizes: a square of hosts, or a block of cubes of four chips along each axis. Other sizes end the
/// process of the compiler.
fn is_slice(mesh: &[usize]) -> bool {
    match mesh.len() {
        2 => mesh.iter().all(|&size| size.is_power_of_two() && size <= 16),
        _ => mesh.iter().all(|&size| matches!(size, 1 | 2) || size.is_multiple_of(4)),
    }
}

/// GPUs of one host: those of a DGX or HGX board.
const PER_HOST: usize = 8;

impl Gpu {
    /// The chip as `GpuTargetConfigProto` in protocol buffers' text format, from which XLA takes limits, sizes and rates.
    fn config(&self) -> String {
        let Gpu { model, compute_capability, multiprocessors, clock_ghz, memory, bandwidth, l2_cache } = self;
        format!(
            "gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 \
             shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448 threads_per_core_limit: 2048 \
             core_count: {multiprocessors} fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 \
             block_dim_limit_z: 65535 memory_bandwidth: {bandwidth} l2_cache_size: {l2_cache} clock_rate_ghz: {clock_ghz} \
             device_memory_size: {memory} cuda_compute_capability {{ major: {compute_capability} }} \
             registers_per_core_limit: 65536 registers_per_block_limit: 65536 }} platform_name: \"CUDA\" \
             dnn_version_info {{ major: 9 minor: 10 patch: 0 }} device_description_str: \"{model}\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_those_that_are_rented() {
        let slice = |name, chips| Chip::named(name).unwrap().slice(chips).unwrap();
        assert_eq!([1, 4, 8, 16, 256].map(|n| slice("tpu-v5e", n)), [[1, 1], [2, 2], [2, 4], [4, 4], [16, 16]]);
        let cubes = [[1, 1, 1], [2, 2, 1], [2, 2, 2], [2, 2, 4], [2, 4, 4], [4, 4, 4]];
        assert_eq!([1, 4, 8, 16, 32, 64].map(|n| slice("tpu-v5p", n)), cubes);
        assert_eq!(slice("h100", 6), [6]);
        let error = Chip::named("tpu-v6e").unwrap().slice(6).unwrap_err();
        assert_eq!(error.message(), "tpu-v6e has no slice of 6 chips; give its sizes, such as `tpu-v6e:2x4`");
    }

    #[test]
    fn gpus_fill_hosts() {
        let h200 = Chip::named("h200").unwrap();
        let topology = |mesh: &[usize]| h200.topology(mesh).unwrap().options[0].1.clone();
        assert_eq!([&[1][..], &[8], &[2, 8], &[32]].map(topology), ["1x1x1", "1x1x8", "1x2x8", "1x4x8"]);
        assert_eq!(h200.topology(&[12]).map(|_| ()).unwrap_err().message(), "12 GPUs do not fill hosts of 8 GPUs");
        assert!(h200.topology(&[1]).unwrap().options[1].1.contains("device_memory_size: 151397597184"));
    }

    #[test]
    fn tpus_are_linked_along_as_many_axes_as_they_have() {
        let error = Chip::named("tpu-v5p").unwrap().topology(&[2, 4]).map(|_| ()).unwrap_err();
        assert_eq!(error.message(), "the chips of tpu-v5p are linked along 3 axes, and `2x4` has 2");
        let of = |name: &str, mesh: &[usize]| {
            let topology = Chip::named(name).unwrap().topology(mesh);
            topology.map(|topology| topology.name).map_err(|error| error.message().to_string())
        };
        for mesh in [[3, 3], [2, 3], [16, 32]] {
            let sizes = format!("{}x{}", mesh[0], mesh[1]);
            let expected = format!("tpu-v5e has no slice of {sizes}; the sizes of slices are powers of two up to 16");
            assert_eq!(of("tpu-v5e", &mesh), Err(expected));
        }
        assert!(of("tpu-v5p", &[2, 2, 3]).unwrap_err().ends_with("are 1, 2 or multiples of 4"));
        assert_eq!(of("tpu-v5p", &[4, 4, 12]), Ok("v5p:4x4x12".to_string()));
    }
}
