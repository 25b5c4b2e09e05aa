//! `remat plugin`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write, stderr};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat_command::command;
use remat_command::table::table;
use remat_command::text::{message, printable};
use remat_xla::{AheadOptions, Platform, Plugin, PluginDescription, describe_plugin};
use tempfile::NamedTempFile;

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
    "nvidia-cublas==13.10.0.20",
    "nvidia-cuda-cupti==13.5.25",
    "nvidia-cuda-nvrtc==13.5.37",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cudnn-cu13==9.28.1.4",
    "nvidia-cufft==12.5.0.14",
    "nvidia-cusolver==12.4.1.2",
    "nvidia-cusparse==12.9.4.2",
    "nvidia-nccl-cu13==2.32.3",
    "nvidia-nvjitlink==13.5.37",
];

/// The hashes of all wheels that are installed, for each platform that has one.
const HASHES: &str = include_str!("wheels.txt");

/// The lines of [`HASHES`] for a wheel: its name and version, and the hashes of its files. `None` if it has none.
fn hashes(wheel: &str) -> Option<String> {
    let at = HASHES.lines().position(|line| line.split(' ').next() == Some(wheel))?;
    let mut lines = HASHES.lines().skip(at);
    let first = lines.next().into_iter();
    Some(first.chain(lines.take_while(|line| line.starts_with(' '))).flat_map(|line| [line, "\n"]).collect())
}

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
        command::note(out, &format!("{} is found before it, and used", description.path.display()))?;
    }
    Ok(())
}

/// Installs wheels into a folder with pip, without their dependencies, which are Python code, or libraries that are listed here. No file is
/// used whose hash is not known, and Python is isolated from the current folder and the environment, where anybody's modules may be.
fn pip(wheels: &[&str], folder: &Path) -> Result<()> {
    let known: Option<String> = wheels.iter().map(|wheel| hashes(wheel)).collect();
    let mut requirements = NamedTempFile::new().context("cannot write the list of wheels")?;
    let known = known.context("a wheel has no known hash")?;
    requirements.write_all(known.as_bytes()).context("cannot write the list of wheels")?;
    let fixed = ["-I", "-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--upgrade"];
    let mut pip = Process::new("python3");
    pip.args(fixed).args(["--no-input", "--progress-bar", "off", "--target"]).arg(folder);
    pip.arg("--requirement").arg(requirements.path()).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
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
        // If it cannot be told, the work goes on.
        let _ = writeln!(stderr(), "downloading {}", wheels.join(", "));
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
        writeln!(out, "{}", message(&note))?;
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
    vec![name, printable(&description.api), printable(&description.stablehlo), runs, ahead]
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
    fn every_wheel_has_hashes() {
        for wheel in Platform::ALL.iter().flat_map(|&platform| Plugin::wheels(platform)).chain(&LIBRARIES) {
            let hashes = hashes(wheel).unwrap_or_else(|| panic!("{wheel}"));
            let mut lines = hashes.lines();
            assert_eq!(lines.next().unwrap(), format!("{wheel} \\"));
            let files: Vec<&str> = lines.map(|line| line.trim().trim_end_matches(" \\")).collect();
            let is_hash = |hash: &str| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            let are_hashes = |file: &&str| file.strip_prefix("--hash=sha256:").is_some_and(is_hash);
            assert!(!files.is_empty() && files.iter().all(are_hashes), "{hashes}");
            // Of the last one no line is continued.
            assert!(!hashes.trim_end().ends_with('\\'), "{hashes}");
        }
        assert_eq!(hashes("libtpu==0.0.50"), None);
    }

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
