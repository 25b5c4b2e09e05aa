//! Damaged files: every result is a program that keeps the rules or an error, in memory bounded by the size of the file.
//!
//! `REMAT_MUTATIONS=1000000 cargo test --release -p remat-stablehlo --test mutations` damages each file that often.

mod support;

use remat_alloc::Counting;
use remat_ir::check;
use remat_stablehlo::{ImportOptions, Module, import};
use support::{fixtures, programs};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// How often each file is damaged, in quick and in thorough tests.
const MUTATIONS: [u64; 2] = [250, 1_000];

/// The most memory of an import of these files, by their sizes: a byte may stand for several numbers, and an operation for several equations.
/// The most that was seen is 160. What an operation stands for is counted, so that any file is bounded too, by the limit on equations.
const BYTES_PER_BYTE: usize = 200;

/// Numbers that depend on nothing but where they begin. Source: Sebastiano Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled", 2016.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }
}

/// Changes some bytes, or removes, repeats or moves a piece.
fn damage(file: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        let end = (at + 1 + numbers.below(16)).min(bytes.len());
        match numbers.below(8) {
            0..4 => bytes[at] = numbers.next() as u8,
            4 => bytes[at] ^= 1 << numbers.below(8),
            5 => drop(bytes.drain(at..end)),
            6 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let from = numbers.below(file.len());
                let piece = file[from..(from + end - at).min(file.len())].to_vec();
                bytes.splice(at..end, piece);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn damaged_files_are_errors_or_programs() {
    let [quick, thorough] = MUTATIONS;
    let given = std::env::var("REMAT_MUTATIONS");
    let mutations = given.map_or(remat_testkit::sized(quick, thorough), |count| count.parse().unwrap());
    let (mut accepted, mut refused, mut most) = (0u64, 0u64, 0.0f64);
    for (i, (name, file)) in programs(&fixtures()).into_iter().enumerate() {
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15 ^ (i as u64 + 1));
        for round in 0..mutations {
            let bytes = damage(&file, &mut numbers);
            let before = ALLOCATOR.live();
            ALLOCATOR.reset_peak();
            let options = ImportOptions { locations: false };
            match Module::read(&bytes).and_then(|module| import(&module, options)) {
                Ok(program) => {
                    accepted += 1;
                    if let Err(fault) = check(&program.jaxpr) {
                        panic!("{name}, mutation {round}: {fault}");
                    }
                }
                Err(_) => refused += 1,
            }
            let used = ALLOCATOR.peak().saturating_sub(before);
            most = most.max(used as f64 / bytes.len() as f64);
            assert!(used <= BYTES_PER_BYTE * bytes.len(), "{name}, mutation {round}: {used} bytes for {}", bytes.len());
        }
    }
    eprintln!("{accepted} accepted, {refused} refused, at most {most:.0} bytes for a byte");
    assert!(refused > accepted / 4 && accepted > 0);
}
