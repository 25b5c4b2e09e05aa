//! `remat plugin`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write, stderr};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat_cli::table::table;
use remat_xla::{AheadOptions, Platform, Plugin, PluginDescription, describe_plugin};

/// Commands of `remat plugin`.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Download the plugin of a platform into ~/.cache/remat/plugins, with Python's pip, which is not needed afterwards.
    Install(Install),
    /// List plugins, with their paths, their versions, and what each can do on this machine.
    List,
}

/// Arguments of `remat plugin install`.
#[derive(clap::Args)]
pub(crate) struct Install {
    /// cpu, cuda (NVIDIA GPUs) or tpu
    #[arg(value_parser = platform)]
    platform: Platform,
    /// Also download the libraries of CUDA (cuBLAS, cuDNN, NCCL, ...), about 3 GB: needed to run on a GPU if they are not installed, not
    /// needed to compile for one
    #[arg(long)]
    libraries: bool,
}

/// The libraries of CUDA that the plugin for GPUs loads when it runs a program.
const LIBRARIES: [&str; 10] = [
    "nvidia-cublas<14",
    "nvidia-cuda-cupti<14",
    "nvidia-cuda-nvrtc<14",
    "nvidia-cuda-runtime<14",
    "nvidia-cudnn-cu13",
    "nvidia-cufft<13",
    "nvidia-cusolver<13",
    "nvidia-cusparse<13",
    "nvidia-nccl-cu13",
    "nvidia-nvjitlink<14",
];

fn platform(name: &str) -> Result<Platform, String> {
    Platform::named(name).map_err(|error| error.message().to_string())
}

/// Runs a command.
///
/// # Errors
/// If a plugin cannot be installed; if the output cannot be written.
pub(crate) fn run(command: &Command, out: &mut impl Write) -> Result<()> {
    match command {
        Command::Install(args) => install(args, out),
        Command::List => list(out),
    }
}

fn install(args: &Install, out: &mut impl Write) -> Result<()> {
    let folder = Plugin::folder()?;
    let mut wheels = Plugin::wheels(args.platform).to_vec();
    if args.libraries {
        if args.platform != Platform::Gpu {
            bail!("--libraries are those of CUDA; the plugin for {} needs none", args.platform);
        }
        wheels.extend(LIBRARIES);
    }
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    pip(&wheels, &folder)?;
    let description = describe_plugin(args.platform, &AheadOptions::default())?;
    writeln!(out, "installed {} in {}", wheels.join(", "), folder.display())?;
    if !description.path.starts_with(&folder) {
        writeln!(out, "note: {} is found before it, and used", description.path.display())?;
    }
    Ok(())
}

/// Installs wheels into a folder with pip, without their dependencies, which are Python code, or libraries that are listed here.
fn pip(wheels: &[&str], folder: &Path) -> Result<()> {
    let fixed = ["-m", "pip", "install", "--no-deps", "--upgrade", "--no-input", "--progress-bar", "off", "--target"];
    let mut pip = Process::new("python3");
    pip.args(fixed).arg(folder).args(wheels).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    pip.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let command = || {
        let words = std::iter::once(pip.get_program()).chain(pip.get_args()).map(OsStr::to_string_lossy);
        words.collect::<Vec<_>>().join(" ")
    };
    let shown = command();
    let mut child = pip.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow!(
            "`python3` is not on the path; its pip downloads plugins, which then need no Python. Install it, or copy the files of {} to {}",
            wheels.join(", "),
            folder.display()
        ),
        _ => anyhow!("{shown}: {error}"),
    })?;
    let bar = progress(wheels);
    let errors = child.stderr.take().map(|mut stream| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // If it cannot be read, it is only missing in the message.
            let _ = stream.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    for line in child.stdout.take().into_iter().flat_map(|stream| BufReader::new(stream).lines()).map_while(Result::ok)
    {
        if let Some(file) = line.trim().strip_prefix("Downloading ") {
            bar.set_message(format!("downloading {file}"));
        } else if line.starts_with("Installing") {
            bar.set_message("unpacking");
        }
    }
    let status = child.wait().with_context(|| shown.clone())?;
    bar.finish_and_clear();
    if status.success() {
        return Ok(());
    }
    let errors = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    bail!("{}", failure(&errors, &shown, &status.to_string()))
}

/// The cause of a failure, from pip's output.
fn failure(errors: &str, command: &str, status: &str) -> String {
    let lines = || errors.lines().map(str::trim).filter(|line| !line.is_empty());
    if errors.contains("No module named pip") {
        return "`python3` has no pip; install it (Debian: `apt install python3-pip`; elsewhere `python3 -m ensurepip`)".to_string();
    }
    let offline =
        ["NewConnectionError", "NameResolutionError", "Temporary failure in name resolution", "ConnectTimeout"];
    let why = lines().rev().find(|line| line.starts_with("ERROR")).or_else(|| lines().next_back()).unwrap_or(status);
    let network = if offline.iter().any(|sign| errors.contains(sign)) {
        "; there is no connection to the package index"
    } else {
        ""
    };
    format!("`{command}` failed{network}: {why}")
}

/// A line about the download; in a terminal with the elapsed time.
fn progress(wheels: &[&str]) -> ProgressBar {
    if !stderr().is_terminal() {
        eprintln!("downloading {}", wheels.join(", "));
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_message(format!("looking for {}", wheels.join(", ")));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn list(out: &mut impl Write) -> Result<()> {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for platform in Platform::ALL {
        let name = platform.name().to_string();
        if let Err(error) = Plugin::path_of(platform) {
            rows.push(vec![name, "-".into(), "-".into(), "no".into(), "no".into()]);
            notes.push(error.message().to_string());
            continue;
        }
        match describe_plugin(platform, &AheadOptions::default()) {
            Ok(description) => {
                rows.push(row(name, &description));
                notes.push(format!("{}: {}{}", platform.name(), description.path.display(), reasons(&description)));
            }
            Err(error) => {
                rows.push(vec![name, "?".into(), "?".into(), "no".into(), "no".into()]);
                notes.push(format!("{}: {}", platform.name(), error.message()));
            }
        }
    }
    writeln!(out, "{}\n", table(&["plugin", "PJRT", "StableHLO", "runs here", "compiles ahead"], &rows))?;
    for note in notes {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

fn row(name: String, description: &PluginDescription) -> Vec<String> {
    let runs = match description.devices {
        Ok(1) => "1 device".to_string(),
        Ok(count) => format!("{count} devices"),
        Err(_) => "no".to_string(),
    };
    let ahead = if description.ahead.is_ok() { "yes" } else { "no" }.to_string();
    vec![name, description.api.clone(), description.stablehlo.clone(), runs, ahead]
}

/// The platform, and what the plugin cannot do here, with the reasons.
fn reasons(description: &PluginDescription) -> String {
    let platform = (!description.platform.is_empty()).then(|| format!("\n  {}", description.platform));
    let runs = description.devices.as_ref().err().map(|why| format!("\n  does not run here: {why}"));
    let ahead = description.ahead.as_ref().err().map(|why| format!("\n  does not compile ahead: {why}"));
    [platform, runs, ahead].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_pip_are_one_line() {
        let of = |errors| failure(errors, "python3 -m pip install libtpu", "exit status: 1");
        assert!(of("/usr/bin/python3: No module named pip\n").starts_with("`python3` has no pip; install it"));
        let offline = "WARNING: Retrying after NewConnectionError('<pip..>: Failed')\nERROR: No matching distribution found for libtpu\n";
        assert_eq!(
            of(offline),
            "`python3 -m pip install libtpu` failed; there is no connection to the package index: ERROR: No matching distribution found for libtpu"
        );
        assert_eq!(of(""), "`python3 -m pip install libtpu` failed: exit status: 1");
    }
}
