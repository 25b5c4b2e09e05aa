//! Where plugins are.

use std::env;
use std::path::{Path, PathBuf};

use remat_ir::{Error, ErrorKind, Result};

use crate::Platform;
use crate::pjrt::Library;

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

/// What is known of the plugin of a platform.
struct Known {
    /// The variable that names its file.
    variable: &'static str,
    /// Where a wheel has it below `site-packages`.
    files: &'static [&'static str],
    /// The wheel, for pip.
    wheel: &'static str,
}

impl Known {
    fn of(platform: Platform) -> Known {
        match platform {
            Platform::Cpu => Known {
                variable: "REMAT_PJRT_PLUGIN_CPU",
                files: &["xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"],
                wheel: "xla-cpu-pjrt==0.0.1",
            },
            // The newer wheel loads its drivers when they are used; `xla-cuda13-pjrt` does not load without all of them.
            Platform::Gpu => Known {
                variable: "REMAT_PJRT_PLUGIN_CUDA",
                files: &["jax_plugins/xla_cuda13/xla_cuda_plugin.so"],
                wheel: "jax-cuda13-pjrt",
            },
            Platform::Tpu => Known { variable: "REMAT_PJRT_PLUGIN_TPU", files: &["libtpu/libtpu.so"], wheel: "libtpu" },
        }
    }
}

impl Plugin {
    /// The plugin of a platform, in the first of these places: the file that the environment variable `REMAT_PJRT_PLUGIN_CPU`,
    /// `REMAT_PJRT_PLUGIN_CUDA` or `REMAT_PJRT_PLUGIN_TPU` names; the Python environment that is active; that of the first
    /// `python3` on the path; the folder `remat/plugins` of the user's cache.
    ///
    /// # Errors
    /// If there is none, with the command that installs it; if it does not load, or is too old.
    pub fn find(platform: Platform) -> Result<Plugin> {
        let known = Known::of(platform);
        if let Some(path) = env::var_os(known.variable).filter(|path| !path.is_empty()) {
            return Plugin::open(platform, path);
        }
        let files = folders().into_iter().flat_map(|folder| known.files.iter().map(move |file| folder.join(file)));
        match files.into_iter().find(|file| file.is_file()) {
            Some(file) => Plugin::open(platform, file),
            None => Err(missing(platform, &known)),
        }
    }

    /// The plugin in this file.
    ///
    /// # Errors
    /// If it does not load, or is too old.
    pub fn open(platform: Platform, path: impl Into<PathBuf>) -> Result<Plugin> {
        let path = path.into();
        let library = Library::open(&path)?;
        Ok(Plugin { platform, path, library })
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
    let name = match platform {
        Platform::Cpu => "CPUs",
        Platform::Gpu => "CUDA",
        Platform::Tpu => "TPUs",
    };
    let target = cache().map_or_else(|| "~/.cache/remat/plugins".to_string(), |folder| folder.display().to_string());
    let message = format!(
        "the PJRT plugin for {name} is not installed; run `python3 -m pip install --no-deps --target {target} {}`, or set {} to \
         its file",
        known.wheel, known.variable
    );
    Error::new(ErrorKind::Io, "xla", message)
}

/// Folders with the layout of `site-packages`.
fn folders() -> Vec<PathBuf> {
    let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let python = env::split_paths(&path).find(|folder| folder.join("python3").is_file());
    let prefix = python.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    active.into_iter().chain(prefix).flat_map(|prefix| site_packages(&prefix)).chain(cache()).collect()
}

/// The `site-packages` of a Python installation, of each version in it.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let versions = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_python = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python3"))
    };
    let mut versions: Vec<PathBuf> = versions.filter(is_python).collect();
    versions.sort();
    versions.iter().flat_map(|version| ["site-packages", "dist-packages"].map(|name| version.join(name))).collect()
}

/// The folder of plugins in the user's cache.
fn cache() -> Option<PathBuf> {
    let given = env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = given.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(folder.join("remat").join("plugins"))
}
