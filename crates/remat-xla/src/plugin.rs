//! Finds plugins.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use remat_ir::{Error, ErrorKind, Result};

use crate::Platform;
use crate::pjrt::Library;
use crate::{folder, tpu};

/// The plugin of a platform: the library that compiles and runs programs there.
///
/// ```
/// use remat_xla::{Platform, Plugin};
/// match Plugin::find(Platform::Cpu) {
///     Ok(plugin) => println!("{} has version {:?} of the PJRT C API", plugin.path().display(), plugin.version()),
///     // The error names the command that installs it.
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Plugin {
    platform: Platform,
    path: PathBuf,
    pub(crate) library: Library,
}

/// Fails at once if there is no TPU and the user has not named one: libtpu's initialisation would ask the cloud about its machine for ten
/// minutes, and then fail.
fn expect_tpu(platform: Platform, is_there: bool, is_told: bool) -> Result<()> {
    if platform != Platform::Tpu || is_there || is_told {
        return Ok(());
    }
    let kind = tpu::KIND;
    let message = format!(
        "there is no TPU in this machine, neither in /dev (accel*, vfio) nor on the PCI bus; if there is one, set {kind} to its kind, such as v5litepod-4"
    );
    Err(Error::new(ErrorKind::Argument, "xla", message))
}

/// The known facts about the plugin of a platform.
struct Known {
    /// The environment variable with its file.
    variable: &'static str,
    /// Its paths in a wheel, below `site-packages`.
    files: &'static [&'static str],
    /// The wheels, in pip's notation.
    wheels: &'static [&'static str],
}

impl Known {
    fn of(platform: Platform) -> Known {
        match platform {
            Platform::Cpu => Known {
                variable: "REMAT_PJRT_PLUGIN_CPU",
                files: &["xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"],
                wheels: &["xla-cpu-pjrt==0.0.1"],
            },
            // The newer wheel loads its drivers when they are used; `xla-cuda13-pjrt` does not load unless all of them exist.
            Platform::Gpu => Known {
                variable: "REMAT_PJRT_PLUGIN_CUDA",
                files: &["jax_plugins/xla_cuda13/xla_cuda_plugin.so"],
                // XLA runs the assembler and links the library of device functions from the other two wheels.
                wheels: &["jax-cuda13-pjrt==0.12.0.1", "nvidia-cuda-nvcc==13.5.37", "nvidia-nvvm==13.5.37"],
            },
            Platform::Tpu => {
                Known { variable: "REMAT_PJRT_PLUGIN_TPU", files: &["libtpu/libtpu.so"], wheels: &["libtpu==0.0.51"] }
            }
        }
    }
}

impl Plugin {
    /// The plugin of a platform, in the first of these places: the file in the environment variable `REMAT_PJRT_PLUGIN_CPU`,
    /// `REMAT_PJRT_PLUGIN_CUDA` or `REMAT_PJRT_PLUGIN_TPU`; the active Python environment; that of the first `python3` on the path, whose
    /// links are followed; the folder `remat/plugins` of the user's cache. The newest version of Python that has the file is used. A
    /// `python3` that is a script, like that of pyenv, does not lead to its environment: activate the environment (`VIRTUAL_ENV`), or set
    /// the variable.
    ///
    /// A plugin is initialised when it is first opened; other threads that open it wait for the first. If that fails, the process
    /// does not try again.
    ///
    /// # Errors
    /// If there is none, with the command that installs it; if it does not load, is too old, or cannot be initialised.
    pub fn find(platform: Platform) -> Result<Plugin> {
        Plugin::open(platform, Plugin::path_of(platform)?)
    }

    /// The path of the file that [`Plugin::find`] would open.
    ///
    /// # Errors
    /// If there is none, with the command that installs it.
    pub fn path_of(platform: Platform) -> Result<PathBuf> {
        let known = Known::of(platform);
        if let Some(path) = folder::variable(known.variable) {
            return Ok(path.into());
        }
        let files = folders(folder::variable)
            .into_iter()
            .flat_map(|folder| known.files.iter().map(move |file| folder.join(file)));
        files.into_iter().find(|file| file.is_file()).ok_or_else(|| missing(platform, &known))
    }

    /// The wheels of the plugin and of everything that it needs to compile, in pip's notation: names and versions that are known to work.
    ///
    /// ```
    /// use remat_xla::{Platform, Plugin};
    /// assert_eq!(Plugin::wheels(Platform::Cpu), ["xla-cpu-pjrt==0.0.1"]);
    /// ```
    pub fn wheels(platform: Platform) -> &'static [&'static str] {
        Known::of(platform).wheels
    }

    /// The folder in the user's cache that is searched last for plugins, with the layout of `site-packages`: `remat/plugins` in
    /// `$XDG_CACHE_HOME`, or in `~/.cache`.
    ///
    /// # Errors
    /// If neither environment variable is set.
    pub fn folder() -> Result<PathBuf> {
        folder::of_user("plugins")
    }

    /// Fails unless the plugin for GPUs finds the assembler and the library of device functions. Without them it cannot compile, and may
    /// end the process.
    pub(crate) fn expect_assembler(path: &Path) -> Result<()> {
        let flags = env::var("XLA_FLAGS").unwrap_or_default();
        let near = path.ancestors().nth(3).map(|folder| folder.join("nvidia/cu13"));
        let folders = near.into_iter().chain(["/usr/local/cuda".into(), "/opt/cuda".into()]);
        let needed = ["bin/ptxas", "nvvm/libdevice/libdevice.10.bc"];
        let is_complete = |folder: PathBuf| needed.iter().all(|file| folder.join(file).is_file());
        if flags.contains("xla_gpu_cuda_data_dir") || folders.into_iter().any(is_complete) {
            return Ok(());
        }
        let message = "compiling for GPUs needs `ptxas` and `libdevice.10.bc`, which are not beside the plugin and not in /usr/local/cuda; run \
                       `remat plugin install cuda`";
        Err(Error::new(ErrorKind::Io, "xla", message))
    }

    /// The plugin in this file, which is initialised when it is first opened: see [`Plugin::find`].
    ///
    /// # Errors
    /// If it does not load, is too old, or cannot be initialised; if it is for TPUs and there is none.
    pub fn open(platform: Platform, path: impl Into<PathBuf>) -> Result<Plugin> {
        let path = path.into();
        let is_told = env::var_os(tpu::KIND).is_some_and(|kind| !kind.is_empty());
        expect_tpu(platform, tpu::is_there(Path::new("/")), is_told)?;
        let library = Library::open(&path)?;
        Ok(Plugin { platform, path, library })
    }

    /// The identity of this library: the size and the time of its file, and the versions that it reports.
    ///
    /// # Errors
    /// If the file is gone, or the plugin does not report its versions.
    pub(crate) fn identity(&self) -> Result<String> {
        let failed =
            |error: std::io::Error| Error::new(ErrorKind::Io, "xla", format!("{}: {error}", self.path.display()));
        let file = self.path.metadata().map_err(failed)?;
        let time = file.modified().map_err(failed)?;
        let (version, attributes) = (self.version(), self.library.attributes()?);
        Ok(format!("{} {time:?} {version:?} {attributes:?}", file.len()))
    }

    /// The platform.
    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version of the PJRT C API that the plugin was built with.
    pub fn version(&self) -> (i32, i32) {
        self.library.version()
    }
}

fn missing(platform: Platform, known: &Known) -> Error {
    let message = format!(
        "the PJRT plugin for {platform} is not installed; run `remat plugin install {}`, or set {} to its file",
        platform.name(),
        known.variable
    );
    Error::new(ErrorKind::Io, "xla", message)
}

/// Folders with the layout of `site-packages`, from environment variables that are not empty.
fn folders(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let active = variable("VIRTUAL_ENV").map(PathBuf::from);
    let path = variable("PATH").unwrap_or_default();
    // A relative folder would depend on where the program is started.
    let python = env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("python3"))
        .find(|file| file.is_file());
    let real = python.as_deref().and_then(|file| file.canonicalize().ok());
    // The environment of the link comes first: one created by venv has links to the Python that created it.
    let prefixes = python.into_iter().chain(real).filter_map(|file| Some(file.parent()?.parent()?.to_path_buf()));
    // Packages that the user or Debian's administrator installed for the system's Python.
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".local"));
    let prefixes = active.into_iter().chain(prefixes).chain(home).chain([PathBuf::from("/usr/local")]);
    let cached = folder::by(variable).map(|folder| folder.join("plugins"));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in prefixes.flat_map(|prefix| site_packages(&prefix)).chain(cached) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The `site-packages` of each version in a Python installation, the newest first.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let libraries = ["lib", "lib64"].map(|name| prefix.join(name));
    let entries = libraries.iter().flat_map(std::fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let mut versions: Vec<(Vec<u32>, PathBuf)> = entries.filter_map(|path| Some((version(&path)?, path))).collect();
    versions.sort_by(|(a, path_a), (b, path_b)| b.cmp(a).then_with(|| path_a.cmp(path_b)));
    let packages = |path: PathBuf| ["site-packages", "dist-packages"].map(|name| path.join(name));
    versions.into_iter().flat_map(|(_, path)| packages(path)).collect()
}

/// The version in the name of a folder such as `python3.11`; Debian's `python3` has no minor version.
fn version(path: &Path) -> Option<Vec<u32>> {
    let numbers = path.file_name()?.to_str()?.strip_prefix("python")?;
    // Python without its lock has a separate folder, with a letter.
    let numbers = numbers.strip_suffix('t').unwrap_or(numbers);
    let numbers: Vec<u32> = numbers.split('.').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    (numbers.first() == Some(&3)).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_machine_without_a_tpu_is_refused_at_once() {
        let told = expect_tpu(Platform::Tpu, false, false).unwrap_err();
        let expected = "xla: there is no TPU in this machine, neither in /dev (accel*, vfio) nor on the PCI bus; if there is one, set \
                        TPU_ACCELERATOR_TYPE to its kind, such as v5litepod-4";
        assert_eq!(told.to_string(), expected);
        for (platform, is_there, is_told) in
            [(Platform::Tpu, true, false), (Platform::Tpu, false, true), (Platform::Gpu, false, false)]
        {
            assert!(expect_tpu(platform, is_there, is_told).is_ok());
        }
        // Before the library is loaded, which would take those minutes.
        let opened = Plugin::open(Platform::Tpu, "/no/such/plugin.so").unwrap_err().to_string();
        let is_possible = tpu::is_there(Path::new("/")) || env::var_os(tpu::KIND).is_some();
        assert!(is_possible || opened == expected, "{opened}");
    }

    #[cfg(unix)]
    #[test]
    fn folders_are_those_of_the_environment_in_order() {
        let root = env::temp_dir().canonicalize().unwrap().join(format!("remat-plugins-{}", std::process::id()));
        for folder in
            ["venv/bin", "venv/lib/python3.9", "py/bin", "py/lib/python3.9", "py/lib/python3.13", "py/lib/pythonic"]
        {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for folder in ["py/lib64/python3.13t", "home/.local/lib/python3.11"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("py/bin/python3"), "").unwrap();
        std::os::unix::fs::symlink(root.join("py/bin/python3"), root.join("venv/bin/python3")).unwrap();
        let found = folders(|name| match name {
            "PATH" => Some(format!("::bin:{0}/none:{0}/venv/bin:{0}/py/bin", root.display()).into()),
            "HOME" => Some(root.join("home").into()),
            _ => None,
        });
        let found: Vec<&str> = found.iter().filter_map(|folder| folder.strip_prefix(&root).ok()?.to_str()).collect();
        let expected = [
            "venv/lib/python3.9/site-packages",
            "venv/lib/python3.9/dist-packages",
            "py/lib/python3.13/site-packages",
            "py/lib/python3.13/dist-packages",
            "py/lib64/python3.13t/site-packages",
            "py/lib64/python3.13t/dist-packages",
            "py/lib/python3.9/site-packages",
            "py/lib/python3.9/dist-packages",
            "home/.local/lib/python3.11/site-packages",
            "home/.local/lib/python3.11/dist-packages",
            "home/.cache/remat/plugins",
        ];
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_error_of_a_missing_plugin_has_the_command_that_installs_it() {
        let expected = "xla: the PJRT plugin for CUDA is not installed; run `remat plugin install cuda`, or set \
                        REMAT_PJRT_PLUGIN_CUDA to its file";
        assert_eq!(missing(Platform::Gpu, &Known::of(Platform::Gpu)).to_string(), expected);
    }
}
