//! Nothing spins while a program is idle. The test is alone in its process, whose CPU time it measures.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use remat_cpu::Cpu;
use remat_ir::{Device, Jaxpr};
use remat_testkit::arrays::plain;

/// CPU time of all threads of this process, in ticks of the clock, of which there are a hundred in a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has this file");
    // The name of the program, in parentheses, may contain spaces. After it, user and system time are the twelfth and thirteenth field.
    let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
    fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("it is a number")).sum()
}

#[test]
fn threads_that_have_run_a_program_sleep() {
    let text = "{ lambda ; a:f32[512,512]. let
        b:f32[512,512] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] a a
        c:f32[512,512] = exp b
      in (c,) }";
    let jaxpr: Arc<Jaxpr> = Arc::new(text.parse().unwrap_or_else(|e| panic!("{e}")));
    let args: Vec<_> = jaxpr.in_avals().iter().map(|aval| plain(aval.dtype, &aval.shape, 3)).collect();
    let program = Cpu::with_threads(3).and_then(|cpu| cpu.compile(&jaxpr)).unwrap_or_else(|e| panic!("{e}"));
    let before = cpu_ticks();
    for _ in 0..1000 {
        program.run(args.clone()).unwrap_or_else(|e| panic!("{e}"));
        if cpu_ticks() >= before + 5 {
            break;
        }
    }
    assert!(cpu_ticks() > before, "the system counts no CPU time");
    let idle = cpu_ticks();
    sleep(Duration::from_secs(1));
    // A thread that spun would take a hundred ticks on an idle machine, and a share of them on a busy one.
    assert!(cpu_ticks() <= idle + 3, "{} ticks of CPU time in an idle second", cpu_ticks() - idle);
}
