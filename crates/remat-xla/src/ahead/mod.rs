//! Ahead-of-time compilation for chips that are not in the machine, which tells whether a program fits.
//!
//! The compiler of a chip is in its plugin and does not need the chip. But it may end the process that loads it, it locks the machine, it
//! reads the environment when it is loaded, and it takes minutes. So each compilation runs in a separate process, a *worker*, with a time
//! limit, and any failure is just an error.
//!
//! A worker is a copy of the `remat` command, or of a program that calls [`serve_ahead`]. It ends with its parent, at the time limit, or on
//! its own; without an answer that is an error with the compiler's last line.

mod job;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use remat_ir::{Error, ErrorKind, Jaxpr, Result, counted};

use crate::compile_options::{self, Build};
use crate::sharding::Placement;
use crate::{Attention, Options, Platform, Plugin, Target, stablehlo};

use job::{Answer, Job, Task};
pub use job::{ChipMemory, PluginDescription};
pub use worker::{serve_ahead, stop_ahead};

/// The effort of a compiler to find a better program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Effort {
    /// XLA's level O0, for planning: compiling for TPUs takes about an eighth of the time, and programs need some tenths more temporaries.
    Fast,
    /// The default of the plugin, for programs that will run.
    #[default]
    Full,
}

/// Options of ahead-of-time compilation.
///
/// ```
/// use remat_xla::{AheadOptions, Effort};
/// let options = AheadOptions { effort: Effort::Fast, ..AheadOptions::default() };
/// assert_eq!(options.time_limit.as_secs(), 600);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct AheadOptions {
    /// The effort of the compiler.
    pub effort: Effort,
    /// A compilation that takes longer is ended, which is an error. If Linux reports it, time in which the compiler waited for a processor
    /// does not count; after four times the limit it is ended in any case.
    pub time_limit: Duration,
    /// The program that compiles. If it is `None`: the file in the environment variable `REMAT_WORKER`, this program if it has called
    /// [`serve_ahead`], or the command `remat` on the path.
    pub worker: Option<PathBuf>,
    /// The plugin; `None` means that of [`Plugin::path_of`].
    pub plugin: Option<PathBuf>,
}

impl Default for AheadOptions {
    fn default() -> AheadOptions {
        AheadOptions { effort: Effort::Full, time_limit: Duration::from_secs(600), worker: None, plugin: None }
    }
}

/// The memory of a program on each chip of a target. It is compiled in another process; the chips need not be in the machine.
///
/// ```no_run
/// use remat_ir::Jaxpr;
/// use remat_xla::{AheadOptions, compile_ahead};
/// let program: Jaxpr = "{ lambda ; a:f32[1024]. let b:f32[1024] = sin a in (b,) }".parse()?;
/// let memory = compile_ahead(&program, &"tpu-v5e".parse()?, &AheadOptions::default())?;
/// println!("{} of {} bytes", memory.peak(), memory.capacity);
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the program's mesh and the target differ in the number of devices; if there is no plugin, with the command that installs it, or no
/// worker; if the compiler refuses the program, crashes, or exceeds its time limit. An error of the kind [`ErrorKind::Memory`] means that
/// the program does not fit, according to the compiler.
pub fn compile_ahead(jaxpr: &Jaxpr, target: &Target, options: &AheadOptions) -> Result<ChipMemory> {
    if let Some(placement) = Placement::of(jaxpr)?.filter(|placement| placement.devices() != target.chips()) {
        let devices = counted(placement.devices(), "device");
        let message =
            format!("the program has a mesh of {devices}, and {target} has {}", counted(target.chips(), "chip"));
        return Err(Error::new(ErrorKind::Argument, "ahead", message));
    }
    let platform = target.chip().platform;
    let module =
        stablehlo(jaxpr, &Options { platform, attention: Attention::of_environment()?, ..Options::default() })?;
    compile_module_ahead(&module, target, options)
}

/// As [`compile_ahead`], for the text of a StableHLO module from any source. A module for several chips has the shardings of its arguments.
///
/// # Errors
/// As [`compile_ahead`].
pub fn compile_module_ahead(module: &str, target: &Target, options: &AheadOptions) -> Result<ChipMemory> {
    let chip = target.chip();
    let plugin = plugin(chip.platform, options)?;
    if chip.platform == Platform::Gpu {
        Plugin::expect_assembler(&plugin)?;
    }
    let build = Build { chips: target.chips(), fast: options.effort == Effort::Fast };
    let task = Task::Compile {
        topology: Some(chip.topology(target.mesh())?),
        capacity: chip.memory,
        options: compile_options::ahead(chip.platform, module, &build),
        module: module.to_string(),
    };
    compile(Job { platform: chip.platform, plugin, task }, options)
}

/// As [`compile_module_ahead`], for the CPU of this machine with XLA's plugin for CPUs, as one device with this many bytes of memory. The
/// plugin has no levels of effort.
///
/// ```no_run
/// use remat_ir::Jaxpr;
/// use remat_xla::{AheadOptions, Options, compile_module_here, stablehlo};
/// let program: Jaxpr = "{ lambda ; a:f32[1024]. let b:f32[1024] = sin a in (b,) }".parse()?;
/// let module = stablehlo(&program, &Options::default())?;
/// assert!(compile_module_here(&module, 1 << 30, &AheadOptions::default())?.fits());
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// As [`compile_ahead`].
pub fn compile_module_here(module: &str, capacity: u64, options: &AheadOptions) -> Result<ChipMemory> {
    let platform = Platform::Cpu;
    let plugin = plugin(platform, options)?;
    let encoded = compile_options::encoded(platform, module, 0);
    let task = Task::Compile { topology: None, capacity, options: encoded, module: module.to_string() };
    compile(Job { platform, plugin, task }, options)
}

fn compile(job: Job, options: &AheadOptions) -> Result<ChipMemory> {
    match worker::run(&job, options)? {
        Answer::Memory(memory) => Ok(memory),
        Answer::Description(_) => Err(Error::new(ErrorKind::Internal, "ahead", "the worker answered another question")),
    }
}

/// Asks a plugin, in another process, to describe itself and this machine.
///
/// # Errors
/// If there is no plugin or no worker; if the plugin does not load, or exceeds its time limit.
pub fn describe_plugin(platform: Platform, options: &AheadOptions) -> Result<PluginDescription> {
    let plugin = plugin(platform, options)?;
    match worker::run(&Job { platform, plugin, task: Task::Describe }, options)? {
        Answer::Description(description) => Ok(description),
        Answer::Memory(_) => Err(Error::new(ErrorKind::Internal, "ahead", "the worker answered another question")),
    }
}

fn plugin(platform: Platform, options: &AheadOptions) -> Result<PathBuf> {
    options.plugin.clone().map_or_else(|| Plugin::path_of(platform), Ok)
}
