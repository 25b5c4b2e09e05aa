//! The plugin under JAX: `tests/programs.py`, in a Python that has JAX.
//!
//! `REMAT_JAX_PYTHON` names the interpreter, or several with `:` between them, and each of them has to have JAX. Without it `python3` is tried,
//! and where that has no JAX, this says so and tests nothing.

use remat_testkit::not_tested;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// The library that was built with this test.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    let name = format!("{}remat_pjrt{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found = [deps, deps.parent().unwrap()].map(|folder| folder.join(&name)).into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not in {}", deps.display()))
}

#[test]
fn programs_of_jax_run_on_the_plugin() {
    let named = std::env::var("REMAT_JAX_PYTHON").ok();
    for python in named.as_deref().unwrap_or("python3").split(':') {
        let has_jax =
            Command::new(python).args(["-c", "import jax"]).output().is_ok_and(|output| output.status.success());
        if !has_jax {
            assert!(named.is_none(), "`{python}` of REMAT_JAX_PYTHON has no JAX");
            not_tested("programs of JAX on the plugin", &format!("`{python}` has no JAX"));
            continue;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs.py");
        let output = Command::new(python)
            .arg(script)
            .env("JAX_PLATFORMS", "cpu,remat")
            .env("REMAT_PJRT_LIBRARY", library())
            .env_remove("REMAT_MEMORY_LIMIT")
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{python}: {out}\n{err}");
        write!(std::io::stderr(), "{python}: {out}").unwrap();
    }
}
