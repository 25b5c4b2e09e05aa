//! The resident memory of a process with [`Aligned`] blocks. One test, since it counts all of the process.
#![cfg(target_os = "linux")]

use remat_alloc::Aligned;

#[global_allocator]
static ALLOCATOR: Aligned = Aligned;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Arrays that take the place of others, with small blocks between them, as results of steps do. Blocks of `posix_memalign` would take three times
/// as much.
#[test]
fn memory_that_is_freed_is_used_again() {
    const ARRAYS: usize = 40;
    let before = resident();
    let bytes = |i: usize| (64 << 10) + (i * 7919 % 32) * (64 << 10);
    let live: usize = (0..ARRAYS).map(bytes).sum();
    let mut arrays: Vec<Vec<u8>> = (0..ARRAYS).map(|i| vec![1; bytes(i)]).collect();
    let mut small: Vec<Vec<u8>> = Vec::new();
    for round in 0..60 {
        for (i, array) in arrays.iter_mut().enumerate() {
            let new = vec![round; bytes(i)];
            small.extend((0..4).map(|k| vec![round; 24 + 20 * k]));
            *array = new;
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(arrays.iter().all(|array| array.iter().all(|&byte| byte == 59)) && small.len() == 60 * 4 * ARRAYS);
    assert!(grown < live + live / 2, "{grown} bytes are resident, and {live} live");
}
