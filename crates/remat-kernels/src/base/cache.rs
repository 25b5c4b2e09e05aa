//! The sizes of this CPU's caches.

use std::sync::LazyLock;

/// Bytes of the second-level cache if the CPU does not report them: the size in small CPUs of the last ten years.
const USUAL: usize = 256 << 10;

/// Bytes of the second-level cache of a core, as the CPU reports them.
pub(crate) fn second_level() -> usize {
    static BYTES: LazyLock<usize> = LazyLock::new(|| reported().unwrap_or(USUAL));
    *BYTES
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn reported() -> Option<usize> {
    None
}

/// The size in CPUID's "deterministic cache parameters": leaf 4 on Intel, and a leaf of the same form on AMD. Sources: Intel, "Software
/// developer's manual", volume 2, `CPUID`; AMD, "Architecture programmer's manual", volume 3, appendix E.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn reported() -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count, __get_cpuid_max};

    const INTEL: u32 = 4;
    const AMD: u32 = 0x8000_001d;
    /// The bit that AMD CPUs with this leaf set in `ecx` of leaf 0x8000_0001 (topology extensions).
    const HAS_LEAF: u32 = 1 << 22;
    let has_amd = __get_cpuid_max(1 << 31).0 >= AMD && __cpuid(0x8000_0001).ecx & HAS_LEAF != 0;
    let leaf = if has_amd { AMD } else { INTEL };
    if leaf == INTEL && __get_cpuid_max(0).0 < INTEL {
        return None;
    }
    // The list of caches ends with one of no type; no CPU has 16.
    (0..16)
        .map(|i| __cpuid_count(leaf, i))
        .take_while(|cache| cache.eax & 0x1f != 0)
        .find(|cache| cache.eax >> 5 & 7 == 2)
        .map(|cache| {
            let of = |bits: u32, width: u32| (bits & ((1 << width) - 1)) as usize + 1;
            of(cache.ebx, 12) * of(cache.ebx >> 12, 10) * of(cache.ebx >> 22, 10) * (cache.ecx as usize + 1)
        })
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Compares with the caches that Linux lists, if any. Cores may differ in size, the system may know what the CPU hides, and an emulated CPU
    /// has caches of its own.
    #[test]
    #[cfg_attr(miri, ignore = "reads files of the system")]
    fn the_size_is_the_systems() {
        let listed = |cpu: usize, i: usize| -> Option<String> {
            let cache = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{i}");
            let of = |file: &str| std::fs::read_to_string(format!("{cache}/{file}")).ok();
            of("level").filter(|level| level.trim() == "2").and_then(|_| of("size"))
        };
        let sizes: Vec<String> = (0..256).flat_map(|cpu| (0..8).filter_map(move |i| listed(cpu, i))).collect();
        match reported() {
            Some(bytes) if !sizes.is_empty() && !is_emulated() => {
                let size = format!("{}K", bytes >> 10);
                assert!(sizes.iter().any(|listed| listed.trim() == size), "{size} of {sizes:?}");
            }
            Some(bytes) => assert!(bytes >= 64 << 10),
            None => assert_eq!(second_level(), USUAL),
        }
    }

    /// Whether QEMU translates the instructions of this program (`tools/other-cpus`): it says so where a hypervisor gives its name.
    fn is_emulated() -> bool {
        let name = std::arch::x86_64::__cpuid(0x4000_0000);
        [name.ebx, name.ecx, name.edx] == [*b"TCGT", *b"CGTC", *b"GTCG"].map(u32::from_le_bytes)
    }
}
