//! The data of a report: plans as columns of numbers, and the texts that they refer to, each once.

use std::borrow::Cow;
use std::collections::HashMap;

use remat::ir::{Loc, Occurrence, Role};
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
    policies: Vec<UnderPolicy>,
}

/// The program under a policy.
#[derive(Serialize)]
struct UnderPolicy {
    name: String,
    /// The bytes of a call.
    peak: usize,
    /// The time beyond that of the plans' program without a limit, as a share of it.
    overhead: f64,
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
    /// The step with which the backward pass begins.
    backward: usize,
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
    /// The value that is computed again: the number of the one that was computed first.
    repeats: Vec<Option<usize>>,
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

/// The paths of the scopes of a program, in which layers have numbers.
struct Scopes(HashMap<Occurrence, String>);

impl Scopes {
    fn of(memory: &LiveRanges) -> Scopes {
        let of_steps = memory.steps.iter().map(|step| step.loc.occurrence);
        let of_values = memory.ranges.iter().map(|range| range.value.loc.occurrence);
        Scopes(Occurrence::paths(of_steps.chain(of_values)))
    }

    /// What was not traced here, as a program of a file, has the path of its scope alone.
    fn path(&self, loc: &Loc) -> Cow<'_, str> {
        let numbered = self.0.get(&loc.occurrence).filter(|_| loc.occurrence != Occurrence::NONE);
        numbered.map_or_else(|| Cow::Owned(loc.scope.path().to_string()), |path| Cow::Borrowed(path.as_str()))
    }
}

impl Report {
    /// The report of some plans, with points for policies.
    ///
    /// # Errors
    /// If one cannot be compiled, which is a defect.
    pub(super) fn of(title: &str, plans: &[Plan], policies: &[(String, Plan)]) -> Result<Report> {
        let mut strings = Strings::default();
        let mut plans: Vec<&Plan> = plans.iter().collect();
        plans.sort_by_key(|plan| plan.peak());
        let plans = plans.into_iter().map(|plan| {
            let memory = plan.live_ranges()?;
            let scopes = Scopes::of(&memory);
            Ok(OnePlan {
                peak: plan.peak(),
                overhead: plan.overhead(),
                repeated: plan.repeated(),
                bound: plan.bound(),
                backward: memory.backward().start,
                steps: Steps::of(&memory, &scopes, &mut strings),
                ranges: Ranges::of(&memory, &scopes, &mut strings),
            })
        });
        let plans = plans.collect::<Result<Vec<OnePlan>>>()?;
        // What the fastest plan takes, and how much more that is than without a limit.
        let free = plans.last().map_or(0.0, |plan| plan.steps.total() / (1.0 + plan.overhead).max(f64::EPSILON));
        let under = |(name, plan): &(String, Plan)| {
            let time: f64 = plan.live_ranges()?.steps.iter().map(|step| step.time.as_nanos() as f64).sum();
            Ok(UnderPolicy { name: name.clone(), peak: plan.peak(), overhead: time / free.max(1.0) - 1.0 })
        };
        let policies = policies.iter().map(under).collect::<Result<Vec<UnderPolicy>>>()?;
        Ok(Report { title: title.to_string(), strings: strings.all, plans, policies })
    }
}

impl Steps {
    /// The time of all of them.
    fn total(&self) -> f64 {
        self.time.iter().map(|&time| time as f64).sum()
    }

    fn of(memory: &LiveRanges, scopes: &Scopes, strings: &mut Strings) -> Steps {
        let mut steps = Steps::default();
        for step in &memory.steps {
            let line = step.loc.site.map_or_else(String::new, |site| site.to_string());
            steps.operation.push(strings.number(step.operation));
            steps.line.push(strings.number(&line));
            steps.scope.push(strings.number(&scopes.path(&step.loc)));
            steps.role.push(step.loc.role as u8);
            steps.time.push(u64::try_from(step.time.as_nanos()).unwrap_or(u64::MAX));
        }
        steps
    }
}

impl Ranges {
    fn of(memory: &LiveRanges, scopes: &Scopes, strings: &mut Strings) -> Ranges {
        let mut ranges = Ranges { repeats: repeats(memory), ..Ranges::default() };
        for LiveRange { value, at, reserved, place, .. } in &memory.ranges {
            let line = value.loc.site.map_or_else(String::new, |site| site.to_string());
            ranges.name.push(strings.number(value.name.as_deref().unwrap_or_default()));
            ranges.operation.push(strings.number(value.operation.unwrap_or_default()));
            ranges.line.push(strings.number(&line));
            ranges.scope.push(strings.number(&scopes.path(&value.loc)));
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

/// For each value that is computed again, the one that was computed first.
fn repeats(memory: &LiveRanges) -> Vec<Option<usize>> {
    let mut firsts: HashMap<usize, usize> = HashMap::new();
    let repeated = |(i, LiveRange { value, first, number, .. }): (usize, &LiveRange)| {
        if value.kind != LiveKind::Temporary {
            return None;
        }
        let before = *firsts.entry(*number).or_insert(i);
        // Equal values of two passes, as zeros, are none.
        let is_again = first.is_some() || value.loc.role == Role::Recomputed;
        (is_again && before < i).then_some(before)
    };
    memory.ranges.iter().enumerate().map(repeated).collect()
}
