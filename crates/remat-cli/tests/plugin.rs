//! `remat plugin` as a user runs it, where there is neither a plugin nor Python.

use std::process::{Command, Output};

use remat_testkit::not_tested;

fn plugin(args: &str) -> Output {
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.arg("plugin").args(args.split(' '));
    command.env("XDG_CACHE_HOME", cache.path()).env("HOME", cache.path()).env("PATH", "").env_remove("VIRTUAL_ENV");
    for name in ["CPU", "CUDA", "TPU"] {
        command.env_remove(format!("REMAT_PJRT_PLUGIN_{name}"));
    }
    command.output().unwrap()
}

#[test]
fn missing_plugins_are_listed_with_the_command_that_installs_them() {
    let output = plugin("list");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for (platform, name) in [("CPUs", "cpu"), ("CUDA", "cuda"), ("TPUs", "tpu")] {
        // One that the administrator installed is found without any variable.
        let expected = format!("the PJRT plugin for {platform} is not installed; run `remat plugin install {name}`");
        assert!(text.contains(&expected) || text.contains(&format!("{name}: /usr/local")), "{text}");
    }
}

#[test]
fn installing_needs_python_and_says_so() {
    let output = plugin("install tpu");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: `python3` is not on the path; "), "{error}");
    assert!(error.contains("libtpu==0.0.51"), "{error}");
}

#[test]
fn an_unknown_platform_is_a_usage_error() {
    let output = plugin("install npu");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("unknown platform `npu`; the platforms are cpu, cuda, tpu"), "{error}");
    let output = plugin("install cpu --libraries");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: --libraries are those of CUDA; the plugin for CPUs needs none\n"
    );
}

/// Modules of the current folder, which may be anybody's, are not those of Python.
#[cfg(unix)]
#[test]
fn no_code_of_the_current_folder_runs() {
    let folder = tempfile::tempdir().unwrap();
    let module = "import os; open(os.environ['FOUND'], 'w')\n";
    for name in ["pip.py", "sitecustomize.py"] {
        std::fs::write(folder.path().join(name), module).unwrap();
    }
    let found = folder.path().join("found");
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.current_dir(folder.path()).args(["plugin", "install", "cpu"]).env("FOUND", &found);
    // Nothing is downloaded.
    command.env("PYTHONPATH", folder.path()).env("PIP_NO_INDEX", "1").env("XDG_CACHE_HOME", folder.path());
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!found.exists(), "{error}");
    if error.contains("is not on the path") {
        not_tested("with Python", &"it is not installed");
    }
}
