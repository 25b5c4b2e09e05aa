//! Programs for one device or several: their executables, and their memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use remat_ir::{
    Array, Aval, DType, Executable, Jaxpr, LiveKind, LiveValue, Loc, MemoryReport, MemoryStats, Result, Value,
};

use super::compiler::Compiler;
use crate::module::aliased;
use crate::pjrt::Loaded;
use crate::sharding::Placement;
use crate::{Attention, Options, Platform, compile_options, stablehlo};
use twox_hash::XxHash3_128;

/// A program for a device, or for several.
///
/// XLA decides when it compiles which results take the memory of arguments. It copies an aliased argument that is kept, and the plugin for
/// CPUs then also copies all aliased arguments after it. So there is an executable for each set of donated arguments, compiled when it is
/// first needed; those with the same text share one.
pub(super) struct Program {
    compiler: Arc<Compiler>,
    platform: Platform,
    jaxpr: Arc<Jaxpr>,
    placed: Placed,
    /// Arguments and results on one device.
    ins: Vec<Aval>,
    outs: Vec<Aval>,
    /// The most recently used executables, by their donated arguments.
    executables: Mutex<Vec<(Vec<bool>, Slot)>>,
    /// The same executables by the hash of their text.
    texts: Mutex<BTreeMap<u128, Weak<Ready>>>,
    memory: MemoryStats,
    /// The source of the memory figures.
    source: &'static str,
}

/// An executable for a set of donated arguments.
pub(super) struct Ready {
    pub(super) loaded: Loaded,
    /// The memory of its runs. Results that take the memory of arguments are counted once.
    memory: MemoryStats,
    /// Whether the plugin reported it.
    is_told: bool,
}

type Slot = Arc<OnceLock<Result<Arc<Ready>>>>;

/// The most sets of donated arguments whose executables are kept. A caller has one or two.
const MOST: usize = 16;

/// The ids of the devices that run the program.
pub(super) enum Placed {
    On(u64),
    OnAll(Vec<u64>),
}

impl Program {
    pub(super) fn new(
        (compiler, platform): (Arc<Compiler>, Platform),
        jaxpr: Arc<Jaxpr>,
        placed: Placed,
        [ins, outs]: [Vec<Aval>; 2],
        donated: &[bool],
    ) -> Result<Program> {
        let (executables, texts) = (Mutex::default(), Mutex::default());
        let (memory, source) = (MemoryStats::default(), "arguments, outputs and temporaries are XLA's own figures");
        let mut program = Program { compiler, platform, jaxpr, placed, ins, outs, executables, texts, memory, source };
        let ready = program.ready(donated)?;
        program.memory = program.memory_by(&ready)?;
        if !ready.is_told {
            program.source = "arguments and outputs alone: the plugin does not report temporaries";
        }
        Ok(program)
    }

    /// The memory for callers who keep all arguments and for those who donate all, based on the figures of one executable. Others have
    /// about the same temporaries, so they need not be compiled.
    fn memory_by(&self, ready: &Ready) -> Result<MemoryStats> {
        let MemoryStats { arguments, outputs, temporaries, peak: known, .. } = ready.memory;
        let peak = arguments + outputs + temporaries;
        let donated_peak = known.min(peak.saturating_sub(self.shared(|_| false)?));
        Ok(MemoryStats { peak, donated_peak, ..ready.memory })
    }

    /// The bytes that arguments and results share.
    fn shared(&self, is_kept: impl Fn(usize) -> bool) -> Result<usize> {
        let aliased = aliased(&self.jaxpr, Placement::of(&self.jaxpr)?.as_ref(), is_kept);
        let aliased = self.ins.iter().zip(aliased).filter(|(_, aliased)| aliased.is_some());
        Ok(aliased.map(|(aval, _)| aval.bytes()).sum())
    }

    /// The memory that is known without the plugin.
    fn known_memory(&self, is_kept: impl Fn(usize) -> bool) -> Result<MemoryStats> {
        let bytes = |avals: &[Aval]| avals.iter().map(Aval::bytes).sum();
        let (arguments, outputs): (usize, usize) = (bytes(&self.ins), bytes(&self.outs));
        let peak = arguments + outputs - self.shared(is_kept)?;
        Ok(MemoryStats { arguments, outputs, temporaries: 0, overhead: 0, peak, donated_peak: peak })
    }

    /// The executable for runs with these donated arguments; an empty list means none.
    pub(super) fn ready(&self, donated: &[bool]) -> Result<Arc<Ready>> {
        let donated = if donated.contains(&true) { donated } else { &[] };
        let slot = {
            let mut all = self.executables.lock().unwrap_or_else(PoisonError::into_inner);
            match all.iter().position(|(given, _)| given == donated) {
                Some(0) => all[0].1.clone(),
                Some(at) => {
                    all[..=at].rotate_right(1);
                    all[0].1.clone()
                }
                None => {
                    all.truncate(MOST - 1);
                    all.insert(0, (donated.to_vec(), Slot::default()));
                    all[0].1.clone()
                }
            }
        };
        slot.get_or_init(|| self.load(donated)).clone()
    }

    fn load(&self, donated: &[bool]) -> Result<Arc<Ready>> {
        let is_kept = |i: usize| !donated.get(i).is_some_and(|is_donated| *is_donated);
        let kept = (0..self.ins.len()).filter(|&i| is_kept(i)).collect();
        let attention = Attention::of_environment()?;
        let options = Options { platform: self.platform, donates: true, kept, attention, ..Options::default() };
        let module = stablehlo(&self.jaxpr, &options)?;
        // Locked during compilation, since another thread may request the same text.
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let text = XxHash3_128::oneshot(module.as_bytes());
        if let Some(ready) = texts.get(&text).and_then(Weak::upgrade) {
            return Ok(ready);
        }
        let options = match &self.placed {
            Placed::On(id) => compile_options::encoded(self.platform, &module, *id),
            Placed::OnAll(ids) => compile_options::of_devices(self.platform, &module, ids),
        };
        let loaded = self.compiler.compile(&module, &options, [self.ins.clone(), self.outs.clone()])?;
        let told = loaded.memory()?;
        let memory = told.map_or_else(|| self.known_memory(is_kept), Ok)?;
        let ready = Arc::new(Ready { loaded, memory, is_told: told.is_some() });
        texts.retain(|_, ready| ready.strong_count() > 0);
        texts.insert(text, Arc::downgrade(&ready));
        Ok(ready)
    }

    /// The bytes of a run with these arguments. If necessary, it compiles the executable for them, which the run needs next.
    pub(super) fn peak_of(&self, args: &[Value]) -> usize {
        // An error of the compiler is returned by the run.
        self.ready(&donated(args)).map_or(0, |ready| ready.memory.peak)
    }

    pub(super) fn memory(&self) -> MemoryStats {
        self.memory
    }

    /// Plugins do not report which temporaries are live at the peak, so they are one value. Bytes that arguments and outputs share are not
    /// in the peak.
    pub(super) fn memory_report(&self) -> MemoryReport {
        let value = |aval: &Aval, kind| LiveValue {
            bytes: aval.bytes(),
            aval: aval.clone(),
            kind,
            name: None,
            operation: None,
            loc: Loc::UNKNOWN,
            must_be_kept: false,
        };
        let arguments = self.ins.iter().enumerate().map(|(i, aval)| value(aval, LiveKind::Argument(i)));
        let outputs = self.outs.iter().map(|aval| value(aval, LiveKind::Output));
        let temporaries = Aval::new(DType::U8, [self.memory.temporaries]);
        let temporaries = (self.memory.temporaries > 0).then(|| value(&temporaries, LiveKind::Temporary));
        MemoryReport::new(self.memory, arguments.chain(outputs).chain(temporaries).collect()).told_by(self.source)
    }
}

/// A run on arrays of the host, for engines whose arrays are their own.
pub(super) fn run_on_host(executable: &impl Executable, args: Vec<Array>) -> Result<Vec<Array>> {
    let results = executable.execute(args.into_iter().map(Value::Host).collect())?;
    results.into_iter().map(Value::into_host).collect()
}

/// The donated arguments, by the rule for callers of [`Device::compile_with`](remat_ir::Device::compile_with). Arguments of the host are
/// copied to the device, and the copies are kept until the run has ended.
pub(super) fn donated(args: &[Value]) -> Vec<bool> {
    args.iter().map(Value::is_donated).collect()
}
