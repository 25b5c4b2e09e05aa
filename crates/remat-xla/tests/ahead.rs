//! Programs compiled for chips that are not in the machine.
//!
//! This program is its own worker, so that it has a `main` and calls its tests itself.

use std::path::PathBuf;
use std::time::Duration;

use remat_ir::{Error, ErrorKind, Jaxpr};
use remat_testkit::not_tested;
use remat_xla::{AheadOptions, ChipMemory, Effort, Platform, Plugin, Target, compile_ahead, compile_module_ahead};

fn main() {
    if std::env::var_os("REMAT_TEST_WORKER_SLEEPS").is_some() {
        std::thread::sleep(Duration::from_secs(60));
    }
    remat_xla::serve_ahead();
    a_plugin_that_is_missing_is_an_error_that_names_the_command();
    a_worker_that_gives_no_answer_is_an_error();
    a_compiler_that_takes_too_long_is_ended();
    a_mesh_has_as_many_devices_as_the_target_has_chips();
    for (platform, test) in [(Platform::Tpu, on_tpus as fn()), (Platform::Gpu, on_gpus)] {
        match Plugin::path_of(platform) {
            Ok(_) => test(),
            Err(error) => not_tested(&format!("compiling for {}", platform.name()), &error),
        }
    }
    println!("ahead: all tests passed");
}

fn options() -> AheadOptions {
    AheadOptions { effort: Effort::Fast, time_limit: Duration::from_secs(120), ..AheadOptions::default() }
}

fn program(text: &str) -> Jaxpr {
    text.parse().unwrap()
}

fn compile(text: &str, target: &str) -> Result<ChipMemory, Error> {
    compile_ahead(&program(text), &target.parse::<Target>().unwrap(), &options())
}

const SINE: &str = "{ lambda ; a:f32[1024,1024]. let b:f32[1024,1024] = sin a in (b,) }";

fn a_plugin_that_is_missing_is_an_error_that_names_the_command() {
    let plugin = Some(PathBuf::from("/no/such/plugin.so"));
    let options = AheadOptions { plugin, ..options() };
    let error = compile_ahead(&program(SINE), &"tpu-v5e".parse().unwrap(), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().starts_with("/no/such/plugin.so: "), "{error}");
}

fn a_worker_that_gives_no_answer_is_an_error() {
    let plugin = Some(PathBuf::from("/no/such/plugin.so"));
    for (worker, expected) in
        [("/bin/false", "the compiler ended its process (/bin/false, exit status: 1)"), ("/no/remat", "/no/remat: ")]
    {
        let options = AheadOptions { worker: Some(worker.into()), plugin: plugin.clone(), ..options() };
        let error = compile_ahead(&program(SINE), &"tpu-v5e".parse().unwrap(), &options).unwrap_err();
        assert!(error.message().starts_with(expected), "{error}");
    }
}

fn a_compiler_that_takes_too_long_is_ended() {
    let worker = std::env::temp_dir().join(format!("remat-slow-worker-{}", std::process::id()));
    std::fs::write(&worker, "#!/bin/sh\nexec sleep 60\n").unwrap();
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(&worker, mode).unwrap();
    let plugin = Some(PathBuf::from("/no/such/plugin.so"));
    let time_limit = Duration::from_millis(200);
    let options = AheadOptions { worker: Some(worker.clone()), plugin, time_limit, ..options() };
    let error = compile_ahead(&program(SINE), &"tpu-v5e".parse().unwrap(), &options).unwrap_err();
    std::fs::remove_file(worker).unwrap();
    assert_eq!(error.message(), "the compiler took longer than 0.2 s");
}

fn a_mesh_has_as_many_devices_as_the_target_has_chips() {
    let text = "{ lambda ; a:f32[8]. let b:f32[8] = sharding_constraint[mesh=((x, 4),) spec=(x,)] a in (b,) }";
    let plugin = Some(PathBuf::from("/no/such/plugin.so"));
    let refused = |target: &str| {
        let options = AheadOptions { worker: Some("/bin/false".into()), plugin: plugin.clone(), ..options() };
        compile_ahead(&program(text), &target.parse().unwrap(), &options).unwrap_err()
    };
    for (target, there) in [("tpu-v5e", "tpu-v5e has 1 chip"), ("tpu-v5e:8", "tpu-v5e:2x4 has 8 chips")] {
        let error = refused(target);
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert_eq!(error.message(), format!("the program has a mesh of 4 devices, and {there}"));
    }
    assert!(refused("tpu-v5e:4").message().starts_with("the compiler ended its process"));
}

fn on_tpus() {
    let memory = compile(SINE, "tpu-v5e").unwrap();
    println!("tpu: {memory:?}");
    assert_eq!((memory.arguments, memory.outputs, memory.temporaries), (4 << 20, 4 << 20, 0));
    assert!(memory.fits() && memory.capacity > 15 << 30, "{memory:?}");
    // The table's figures of a chip's memory are the compiler's.
    for chip in remat_xla::Chip::all().iter().filter(|chip| chip.platform == Platform::Tpu) {
        let memory = compile(SINE, chip.name).unwrap();
        assert_eq!(memory.capacity, chip.memory, "{chip}");
    }
    let large = "{ lambda ; a:f32[65536,65536]. let b:f32[65536,65536] = sin a in (b,) }";
    let error = compile(large, "tpu-v5e").unwrap_err();
    println!("tpu: {error}");
    assert_eq!(error.kind(), ErrorKind::Memory);
    // What the compiler does not read is an error with its words.
    let error = compile_module_ahead("module {", &"tpu-v6e".parse().unwrap(), &options()).unwrap_err();
    println!("tpu: {error}");
    assert_eq!(error.kind(), ErrorKind::Argument);
}

fn on_gpus() {
    for chip in ["h100", "h200", "b200"] {
        let memory = compile(SINE, chip).unwrap();
        println!("{chip}: {memory:?}");
        assert_eq!((memory.arguments, memory.outputs, memory.temporaries), (4 << 20, 4 << 20, 0));
        assert!(memory.fits() && memory.capacity > 70 << 30, "{memory:?}");
    }
}
