//! The data of a report: plans as columns of numbers, and the texts that they refer to, each once.

use std::collections::HashMap;

use remat::report::{LiveKind, LiveRange, LiveRanges, Place};
use remat::{Plan, Result};
use serde::Serialize;

/// The offset of a value that has memory of its own, and of one in memory that counts elsewhere.
const OWN: i64 = -1;
const SHARED: i64 = -2;

/// A report.
#[derive(Serialize, Default)]
pub(super) struct Report {
    title: String,
    /// The texts; columns have their numbers.
    strings: Vec<String>,
    /// From the least bytes on.
    plans: Vec<OnePlan>,
}

/// A plan: its figures, its steps, and its values.
#[derive(Serialize)]
struct OnePlan {
    /// The bytes of a call.
    peak: usize,
    /// Shares of the time without a limit.
    overhead: f64,
    repeated: f64,
    bound: f64,
    steps: Steps,
    ranges: Ranges,
}

/// The columns of the steps. Times are in nanoseconds by the cost model.
#[derive(Serialize, Default)]
struct Steps {
    operation: Vec<usize>,
    line: Vec<usize>,
    scope: Vec<usize>,
    role: Vec<u8>,
    time: Vec<u64>,
}

/// The columns of the values.
#[derive(Serialize, Default)]
struct Ranges {
    name: Vec<usize>,
    operation: Vec<usize>,
    line: Vec<usize>,
    scope: Vec<usize>,
    aval: Vec<usize>,
    kind: Vec<u8>,
    /// The number of an argument, which has no name if it is not part of a tree.
    argument: Vec<usize>,
    role: Vec<u8>,
    /// The step that first computed what is computed again.
    first: Vec<Option<usize>>,
    bytes: Vec<usize>,
    reserved: Vec<usize>,
    born: Vec<usize>,
    end: Vec<usize>,
    /// In the arena, or one of the constants above.
    offset: Vec<i64>,
}

/// Texts, each with its number.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Strings {
    fn number(&mut self, text: &str) -> usize {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        self.all.push(text.to_string());
        self.numbers.insert(text.to_string(), self.all.len() - 1);
        self.all.len() - 1
    }
}

impl Report {
    /// The report of some plans.
    ///
    /// # Errors
    /// If one cannot be compiled, which is a defect.
    pub(super) fn of(title: &str, plans: &[Plan]) -> Result<Report> {
        let mut strings = Strings::default();
        let mut plans: Vec<&Plan> = plans.iter().collect();
        plans.sort_by_key(|plan| plan.peak());
        let plans = plans.into_iter().map(|plan| {
            let memory = plan.live_ranges()?;
            Ok(OnePlan {
                peak: plan.peak(),
                overhead: plan.overhead(),
                repeated: plan.repeated(),
                bound: plan.bound(),
                steps: Steps::of(&memory, &mut strings),
                ranges: Ranges::of(&memory, &mut strings),
            })
        });
        let plans = plans.collect::<Result<Vec<OnePlan>>>()?;
        Ok(Report { title: title.to_string(), strings: strings.all, plans })
    }
}

impl Steps {
    fn of(memory: &LiveRanges, strings: &mut Strings) -> Steps {
        let mut steps = Steps::default();
        for step in &memory.steps {
            let line = step.loc.site.map_or_else(String::new, |site| site.to_string());
            steps.operation.push(strings.number(step.operation));
            steps.line.push(strings.number(&line));
            steps.scope.push(strings.number(&step.loc.scope.path()));
            steps.role.push(step.loc.role as u8);
            steps.time.push(u64::try_from(step.time.as_nanos()).unwrap_or(u64::MAX));
        }
        steps
    }
}

impl Ranges {
    fn of(memory: &LiveRanges, strings: &mut Strings) -> Ranges {
        let mut ranges = Ranges::default();
        for LiveRange { value, at, reserved, place, first } in &memory.ranges {
            let line = value.loc.site.map_or_else(String::new, |site| site.to_string());
            ranges.name.push(strings.number(value.name.as_deref().unwrap_or_default()));
            ranges.operation.push(strings.number(value.operation.unwrap_or_default()));
            ranges.line.push(strings.number(&line));
            ranges.scope.push(strings.number(&value.loc.scope.path()));
            ranges.aval.push(strings.number(&value.aval.to_string()));
            ranges.argument.push(match value.kind {
                LiveKind::Argument(number) => number,
                _ => 0,
            });
            ranges.kind.push(match value.kind {
                LiveKind::Argument(_) => 0,
                LiveKind::Constant => 1,
                LiveKind::Output => 2,
                LiveKind::Temporary => 3,
                LiveKind::Scratch => 4,
            });
            ranges.role.push(value.loc.role as u8);
            ranges.first.push(*first);
            ranges.bytes.push(value.bytes);
            ranges.reserved.push(*reserved);
            ranges.born.push(at.start);
            ranges.end.push(at.end);
            ranges.offset.push(match *place {
                Place::Arena(offset) => i64::try_from(offset).unwrap_or(i64::MAX),
                Place::Own => OWN,
                Place::Shared => SHARED,
            });
        }
        ranges
    }
}
