//! The memory of a compiled program: its bytes, and the values that take them.

mod table;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::{Aval, Error, ErrorKind, Loc, Scope};
use table::{Row, Table};

/// Bytes that a compiled program needs.
///
/// These are the bytes of a run. Between runs the native engine keeps the memory of temporaries and the gap in front of them; dropping the
/// executable frees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MemoryStats {
    /// Bytes of the inputs.
    pub arguments: usize,
    /// Bytes of the outputs.
    pub outputs: usize,
    /// Bytes of everything else that is live at the peak.
    pub temporaries: usize,
    /// Bytes that are not elements: the lists of arguments and outputs, the headers of outputs, and the gap in front of temporaries. They
    /// depend on the numbers and ranks of arrays, not on their sizes. The reference evaluator does not count them.
    pub overhead: usize,
    /// The most bytes that are live at one time, if the caller keeps the arguments: the sum of all above.
    pub peak: usize,
    /// The most bytes that are live at one time if all arguments are donated, and results take the memory of arguments that fit: the need
    /// of a training step into which model and optimizer are moved. It equals `peak` if the engine does not know it. On XLA it uses the
    /// temporaries of the executable that was compiled first; a run may use another ([`Executable::peak_of`](crate::Executable::peak_of)).
    pub donated_peak: usize,
}

/// `arguments 8 B, outputs 8 B, temporaries 0 B; peak 16 B`, with the overhead after the temporaries if it is counted, and the peak with
/// donated arguments if it is lower.
impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [arguments, outputs, temporaries, overhead, peak] =
            [self.arguments, self.outputs, self.temporaries, self.overhead, self.peak].map(readable_bytes);
        write!(f, "arguments {arguments}, outputs {outputs}, temporaries {temporaries}")?;
        if self.overhead > 0 {
            write!(f, ", overhead {overhead}")?;
        }
        write!(f, "; peak {peak}")?;
        if self.donated_peak < self.peak {
            write!(f, ", {} where arguments are donated", readable_bytes(self.donated_peak))?;
        }
        Ok(())
    }
}

/// The role of a value in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LiveKind {
    /// The input of this index.
    Argument(usize),
    /// A constant.
    Constant,
    /// An output of the program, even before it is complete.
    Output,
    /// A value that the program computes and does not return.
    Temporary,
    /// Memory that an operation needs while it runs.
    Scratch,
}

/// A value that is live at the peak.
#[derive(Clone, Debug)]
pub struct LiveValue {
    /// The bytes that it takes.
    pub bytes: usize,
    /// Dtype, shape and memory space.
    pub aval: Aval,
    /// Its role in the program.
    pub kind: LiveKind,
    /// The name that the user gave to the value, or the path of a leaf.
    pub name: Option<Arc<str>>,
    /// The operation that computes it; none for arguments and constants.
    pub operation: Option<&'static str>,
    /// Where the user wrote the operation.
    pub loc: Loc,
    /// Whether a policy must keep it, so that no plan computes it again.
    pub must_be_kept: bool,
}

/// `8.00 KiB  f32[64,32]  dot_general 'hidden'  src/main.rs:5:9`.
impl fmt::Display for LiveValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Row { value: self, count: 1 }.write(f, [0; 3])
    }
}

impl LiveValue {
    /// `dot_general 'logits'`, `dot_general (must be kept)`, `output of dot_general`, `scratch of sort`, `argument 2`, `argument up`, `constant`.
    fn what(&self) -> String {
        let operation = self.operation.unwrap_or("the program");
        let named = |text: String| match &self.name {
            Some(name) => format!("{text} '{name}'"),
            None => text,
        };
        match (self.kind, &self.name) {
            (LiveKind::Argument(_), Some(path)) => format!("argument {path}"),
            (LiveKind::Argument(i), None) => format!("argument {i}"),
            (LiveKind::Constant, _) => "constant".to_string(),
            (LiveKind::Output, _) => named(format!("output of {operation}")),
            (LiveKind::Temporary, _) if self.must_be_kept => named(operation.to_string()) + " (must be kept)",
            (LiveKind::Temporary, _) => named(operation.to_string()),
            (LiveKind::Scratch, _) => format!("scratch of {operation}"),
        }
    }
}

/// The bytes that a compiled program needs, and the values that are live at its peak.
///
/// `Display` prints the bytes, then the largest values in a table; the alternate form `{:#}` prints all of them.
///
/// ```
/// use remat_ir::{Aval, Builder, DType, Device, Reference, Unary};
/// let mut b = Builder::new();
/// let x = b.input(Aval::new(DType::F32, [500]));
/// let y = b.emit1(Unary::Exp.into(), &[x])?;
/// let report = Reference.compile(&b.finish(vec![y]).into())?.memory_report();
/// let expected = "\
/// arguments 1.95 KiB, outputs 1.95 KiB, temporaries 0 B; peak 3.91 KiB
/// live at the peak:
///   1.95 KiB  f32[500]  argument 0
///   1.95 KiB  f32[500]  output of exp";
/// assert_eq!(report.to_string(), expected);
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryReport {
    /// The bytes.
    pub stats: MemoryStats,
    /// The values that are live at the peak, largest first.
    pub live: Vec<LiveValue>,
    /// The values that are live at the peak of a caller who donates all arguments, largest first. Empty if the engine does not report them.
    pub donated: Vec<LiveValue>,
    /// The bytes of temporaries and scratch memory that are live during each step, in order, in a run to which all arguments are donated:
    /// they rise in the forward pass and fall in the backward pass. Empty if the engine does not report them.
    pub timeline: Vec<usize>,
    /// The source of these figures, if they are not from the engine's own plan.
    pub source: Option<Arc<str>>,
    /// The operation that runs at the peak of a caller who keeps the arguments, if the engine reports it.
    pub at: Option<PeakOperation>,
    /// The same for a caller who donates all of them.
    pub donated_at: Option<PeakOperation>,
}

/// The operation that runs while the most bytes are live.
#[derive(Clone, Copy, Debug)]
pub struct PeakOperation {
    /// Its name.
    pub name: &'static str,
    /// Where the user wrote it.
    pub loc: Loc,
}

impl fmt::Display for PeakOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeakOperation { name, loc } = self;
        if loc.site.is_some() { write!(f, "{name} at {loc}") } else { f.write_str(name) }
    }
}

/// How many values a report prints.
const SHOWN: usize = 20;

/// How many values an error prints.
const SHOWN_IN_ERROR: usize = 10;

impl MemoryReport {
    /// A report of these bytes and values. It sorts the values.
    pub fn new(stats: MemoryStats, mut live: Vec<LiveValue>) -> MemoryReport {
        live.sort_by_key(|value| Reverse(value.bytes));
        MemoryReport { stats, live, ..MemoryReport::default() }
    }

    /// The same report with the values that are live at the peak of a caller who donates all arguments. It sorts them.
    #[must_use]
    pub fn with_donated(self, mut donated: Vec<LiveValue>) -> MemoryReport {
        donated.sort_by_key(|value| Reverse(value.bytes));
        MemoryReport { donated, ..self }
    }

    /// The same report with the live bytes at each step.
    #[must_use]
    pub fn over_time(self, timeline: Vec<usize>) -> MemoryReport {
        MemoryReport { timeline, ..self }
    }

    /// The same report with the operations that run at the peak of a caller who keeps the arguments, and of one who donates all of them.
    #[must_use]
    pub fn running(self, at: Option<PeakOperation>, donated_at: Option<PeakOperation>) -> MemoryReport {
        MemoryReport { at, donated_at, ..self }
    }

    /// The same report, with the source of its figures.
    #[must_use]
    pub fn told_by(self, source: impl Into<Arc<str>>) -> MemoryReport {
        MemoryReport { source: Some(source.into()), ..self }
    }

    /// The bytes of the temporaries and the scratch memory that are live at the peak by the whole path of the named scope in which they are
    /// computed, those with the most bytes first: which layer holds the memory.
    pub fn by_scope(&self) -> Vec<(Scope, usize)> {
        let mut sums: HashMap<Scope, usize> = HashMap::new();
        let is_temporary = |value: &&LiveValue| matches!(value.kind, LiveKind::Temporary | LiveKind::Scratch);
        for value in self.live.iter().filter(is_temporary) {
            let sum = sums.entry(value.loc.scope).or_default();
            *sum = sum.saturating_add(value.bytes);
        }
        let mut sums: Vec<(Scope, usize)> = sums.into_iter().collect();
        sums.sort_by_key(|&(scope, bytes)| (Reverse(bytes), scope.path()));
        sums
    }

    /// The error of a run that needs `needed` bytes, which are more than `limit`: both numbers, the bytes of arguments and results, which no
    /// recomputation lowers, those of values that a policy must keep, the operation at the peak with its line, what needs less, and the largest
    /// values.
    pub fn over_limit(&self, needed: usize, limit: usize) -> Error {
        let is_donated = needed <= self.stats.donated_peak && !self.donated.is_empty();
        let (live, at) = if is_donated { (&self.donated, self.donated_at) } else { (&self.live, self.at) };
        // A call may fit if its arguments are moved.
        let hint = match self.stats.donated_peak {
            least if least <= limit => format!("; it needs {} where the arguments are donated", exact_bytes(least)),
            _ => String::new(),
        };
        let is_fixed = |value: &&LiveValue| !matches!(value.kind, LiveKind::Temporary | LiveKind::Scratch);
        let fixed = match live.is_empty() {
            true => self.stats.arguments.saturating_add(self.stats.outputs),
            false => live.iter().filter(is_fixed).map(|value| value.bytes).fold(0, usize::saturating_add),
        };
        let less = match fixed >= limit {
            true => "an optimizer with less state, weights of fewer bits or a smaller batch need less",
            false => "a smaller batch needs less",
        };
        let is_kept = |value: &&LiveValue| value.must_be_kept && value.kind == LiveKind::Temporary;
        let kept = match live.iter().filter(is_kept).map(|value| value.bytes).fold(0, usize::saturating_add) {
            0 => String::new(),
            bytes => format!(
                "values that must be kept take {} more: a plan may compute again what a policy saves by `Policy::prefer`, \
                 but nothing that a `custom_remat` passes; ",
                exact_bytes(bytes)
            ),
        };
        let at = at.map_or_else(String::new, |at| format!("the peak is in {at}; "));
        let (needed, limit) = (exact_bytes(needed), exact_bytes(limit));
        let table = Table(live, SHOWN_IN_ERROR);
        let message = format!(
            "the program needs {needed} and the limit is {limit}{hint}\n\
             arguments and results alone take {}; {kept}{at}{less}\n{table}",
            exact_bytes(fixed)
        );
        Error::new(ErrorKind::Memory, "compile", message)
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if f.alternate() { usize::MAX } else { SHOWN };
        write!(f, "{}", self.stats)?;
        if let Some(source) = &self.source {
            write!(f, "\n{source}")?;
        }
        if self.live.is_empty() {
            return Ok(());
        }
        write!(f, "\n{}", Table(&self.live, shown))?;
        let scopes = self.by_scope();
        if scopes.iter().all(|(scope, _)| *scope == Scope::ROOT) {
            return Ok(());
        }
        f.write_str("\ntemporaries by named scope:")?;
        let name = |scope: &Scope| if *scope == Scope::ROOT { "none".into() } else { scope.path() };
        let width = scopes.iter().map(|(_, bytes)| readable_bytes(*bytes).len()).max().unwrap_or(0);
        for (scope, bytes) in scopes.iter().take(shown) {
            write!(f, "\n  {:>width$}  {}", readable_bytes(*bytes), name(scope))?;
        }
        match scopes.len().saturating_sub(shown) {
            0 => Ok(()),
            rest => write!(f, "\n  and {rest} more"),
        }
    }
}

/// A number of bytes for people: exact below 1024, then with two decimals and a binary unit.
///
/// ```
/// use remat_ir::readable_bytes;
/// assert_eq!([0, 1023, 1536, 1 << 30].map(readable_bytes), ["0 B", "1023 B", "1.50 KiB", "1.00 GiB"]);
/// ```
pub fn readable_bytes(n: usize) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.2} {unit}")
}

/// The units of sizes, and the exponents of 2 that they stand for.
const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// Parses a number of bytes: an integer, or a number followed by a binary unit.
///
/// ```
/// use remat_ir::parse_bytes;
/// assert_eq!(["500000", " 2 MiB", "1.5GiB"].map(parse_bytes), [Some(500_000), Some(2 << 20), Some(3 << 29)]);
/// assert_eq!(["", "-1", "1.5", "1e3KiB", "1 GB"].map(parse_bytes), [None; 5]);
/// ```
pub fn parse_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let Some((number, shift)) = UNITS.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift))) else {
        return text.parse().ok();
    };
    let number = number.trim_end();
    // `f64` would also read `inf`, `1e3` and `-1`.
    let bytes = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    number.bytes().all(|b| b.is_ascii_digit() || b == b'.').then_some(bytes as usize)
}

/// A number of bytes as [`parse_bytes`] reads it: in the largest unit of which it is a multiple.
pub(crate) fn plain_bytes(n: usize) -> String {
    // Larger numbers of a unit would be rounded where they are read.
    let fits = |&(_, shift): &(&str, u32)| n > 0 && n.trailing_zeros() >= shift && n >> shift < 1 << 50;
    match UNITS.iter().rev().find(|unit| fits(unit)) {
        Some((unit, shift)) => format!("{}{unit}", n >> shift),
        None => n.to_string(),
    }
}

/// The exact number, in addition to the readable one, where they differ.
fn exact_bytes(n: usize) -> String {
    if n < 1024 { readable_bytes(n) } else { format!("{} ({n} B)", readable_bytes(n)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::Role;

    #[test]
    fn plain_bytes_are_read_as_the_same_number() {
        let sizes = [0, 1, 1000, 1024, 1536, 64 << 20, 3 << 29, 5 << 40, (1 << 62) + 1024, 1 << 63, usize::MAX];
        for bytes in sizes {
            assert_eq!(parse_bytes(&plain_bytes(bytes)), Some(bytes), "{bytes}");
        }
        let texts = [64 << 20, 1536, 1000].map(plain_bytes);
        assert_eq!(texts, ["64MiB", "1536", "1000"]);
    }

    #[test]
    fn bytes_have_a_unit_or_none() {
        let sizes = [("0", 0), ("500000", 500_000), ("1KiB", 1024), (" 2 MiB ", 2 << 20), ("1.5GiB", 3 << 29)];
        for (text, bytes) in sizes {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5", "1e3KiB", "infGiB", "-1KiB", "12 XB", "1 GB", "1kib", "1 000"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    fn report(values: usize) -> MemoryReport {
        let value = |i| LiveValue {
            bytes: 4 * (i + 1),
            aval: Aval::new(DType::F32, [i + 1]),
            kind: LiveKind::Temporary,
            name: None,
            operation: Some("exp"),
            loc: Loc::UNKNOWN,
            must_be_kept: false,
        };
        MemoryReport::new(
            MemoryStats { peak: 5000, donated_peak: 5000, ..MemoryStats::default() },
            (0..values).map(value).collect(),
        )
    }

    #[test]
    fn long_reports_are_cut() {
        let text = report(30).to_string();
        assert_eq!(text.lines().count(), 2 + 20 + 1);
        assert_eq!(text.lines().nth(2), Some("  120 B  f32[30]  exp"));
        assert_eq!(text.lines().last(), Some("  and 10 more of 220 B"));
        assert_eq!(format!("{:#}", report(30)).lines().count(), 2 + 30);
        assert_eq!(report(21).to_string().lines().count(), 2 + 21);
        assert_eq!(report(0).to_string(), report(0).stats.to_string());
    }

    #[test]
    fn kinds_and_locations_are_told() {
        let mut report = report(0);
        let loc = Loc::caller();
        let mut add = |kind, name: Option<&str>, operation| {
            let aval = Aval::new(DType::F32, [2]);
            report.live.push(LiveValue {
                bytes: 8,
                aval,
                kind,
                name: name.map(Arc::from),
                operation,
                loc: Loc::UNKNOWN,
                must_be_kept: false,
            });
        };
        add(LiveKind::Argument(3), None, None);
        add(LiveKind::Argument(3), Some(".up"), None);
        add(LiveKind::Constant, None, None);
        add(LiveKind::Output, Some("loss"), Some("exp"));
        add(LiveKind::Scratch, None, Some("sort"));
        add(LiveKind::Temporary, None, Some("dot_general"));
        report.live[3].loc = loc;
        report.live[5].must_be_kept = true;
        let expected = format!(
            "live at the peak:
  8 B  f32[2]  argument 3
  8 B  f32[2]  argument .up
  8 B  f32[2]  constant
  8 B  f32[2]  output of exp 'loss'        {loc}
  8 B  f32[2]  scratch of sort
  8 B  f32[2]  dot_general (must be kept)"
        );
        assert_eq!(Table(&report.live, 20).to_string(), expected);
    }

    #[test]
    fn equal_values_are_one_line_and_scopes_are_added_up() {
        let mut report = report(4);
        let line = Loc::caller();
        let at = |path: &str, role| Loc { scope: Scope::new(path), role, ..line };
        for (value, path) in report.live.iter_mut().zip(["layers/0", "layers/1", "layers/1", "layers/0"]) {
            (value.bytes, value.aval) = (400, Aval::new(DType::F32, [100]));
            value.loc = at(path, Role::Written);
        }
        report.live.push(LiveValue { loc: at("layers/1", Role::Recomputed), ..report.live[0].clone() });
        report.live.push(LiveValue { bytes: 600, loc: Loc::UNKNOWN, ..report.live[0].clone() });
        let text = report.to_string();
        let (_, text) = text.split_once('\n').unwrap();
        let expected = format!(
            "live at the peak:
  2 x 400 B  f32[100]  exp  {site} (layers/0)
  2 x 400 B  f32[100]  exp  {site} (layers/1)
      600 B  f32[100]  exp
      400 B  f32[100]  exp  {site} (layers/1), recomputed
temporaries by named scope:
  1.17 KiB  layers/1
     800 B  layers/0
     600 B  none",
            site = line.site.unwrap()
        );
        assert_eq!(text, expected);
        assert_eq!(report.by_scope()[1], (Scope::new("layers/0"), 800));
    }

    #[test]
    fn a_report_says_whose_figures_it_has() {
        let text = report(1).told_by("figures of a plugin").to_string();
        assert_eq!(text.lines().nth(1), Some("figures of a plugin"));
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn the_error_tells_both_numbers() {
        let error = report(2).over_limit(report(2).stats.peak, 1000);
        let expected = "compile: the program needs 4.88 KiB (5000 B) and the limit is 1000 B
arguments and results alone take 0 B; a smaller batch needs less
live at the peak:
  8 B  f32[2]  exp
  4 B  f32[1]  exp";
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.kind(), ErrorKind::Memory);
        let stats = MemoryStats { peak: 5000, donated_peak: 900, ..MemoryStats::default() };
        let error = MemoryReport::new(stats, Vec::new()).over_limit(5000, 1000).to_string();
        let hint = "the limit is 1000 B; it needs 900 B where the arguments are donated";
        assert!(error.contains(hint), "{error}");
        let mut kept = report(2);
        kept.live[0].must_be_kept = true;
        let hint = "values that must be kept take 8 B more: a plan may compute again what a policy saves by \
                    `Policy::prefer`, but nothing that a `custom_remat` passes; a smaller";
        let error = kept.over_limit(5000, 1000).to_string();
        assert!(error.contains(hint), "{error}");
    }

    #[test]
    fn the_error_tells_what_cannot_be_recomputed_and_where_the_peak_is() {
        let loc = Loc::caller();
        let mut kept = report(2);
        kept.stats = MemoryStats { peak: 5000, donated_peak: 4000, arguments: 8, outputs: 4, ..MemoryStats::default() };
        (kept.live[0].kind, kept.live[1].kind) = (LiveKind::Argument(0), LiveKind::Output);
        let donated = kept.live.iter().filter(|value| value.kind != LiveKind::Output).cloned().collect();
        let at = |name| Some(PeakOperation { name, loc });
        let report =
            kept.with_donated(donated).running(at("exp"), Some(PeakOperation { name: "sin", loc: Loc::UNKNOWN }));
        let line = |needed, limit| report.over_limit(needed, limit).message().lines().nth(1).map(String::from);
        let expected =
            format!("arguments and results alone take 12 B; the peak is in exp at {loc}; a smaller batch needs less");
        assert_eq!(line(5000, 13), Some(expected));
        let less = "an optimizer with less state, weights of fewer bits or a smaller batch need less";
        let expected = format!("arguments and results alone take 8 B; the peak is in sin; {less}");
        assert_eq!(line(4000, 8), Some(expected));
        // An engine that lists no values.
        let report = MemoryReport::new(report.stats, Vec::new()).over_limit(5000, 12).to_string();
        assert!(report.contains(&format!("take 12 B; {less}\n")), "{report}");
    }
}
