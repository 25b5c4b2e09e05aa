//! Where the time of a run goes: the time of each step that an engine ran.

use std::fmt;
use std::time::Duration;

use crate::{Aval, Loc, readable_bytes};

/// A step of a run: one kernel.
#[derive(Clone, Debug)]
pub struct ProfiledStep {
    /// The operation that it computes; of several in one loop, the last.
    pub operation: &'static str,
    /// The algorithm by which it is computed, where the engine chooses one.
    pub algorithm: Option<&'static str>,
    /// Dtype and shape of its largest result.
    pub aval: Aval,
    /// Where the user wrote the operation, and what it is for.
    pub loc: Loc,
    /// How often it ran: more than once in a loop, whose iterations are added up.
    pub runs: usize,
    /// From the start of the run to the start of the step.
    pub start: Duration,
    /// How long it ran, in all. For a loop, what its body does not take.
    pub time: Duration,
    /// How long it would run by the cost model: on a machine that computes and reads memory at its full rates.
    pub modelled: Duration,
    /// The bytes of temporaries and scratch memory that are live while it runs, with those around its loop.
    pub live: usize,
}

impl ProfiledStep {
    /// The operation with the algorithm, if there is one, as `conv_general_dilated[winograd]`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use remat_ir::{Aval, DType, Loc, ProfiledStep};
    /// let step = ProfiledStep {
    ///     operation: "dot_general",
    ///     algorithm: Some("small"),
    ///     aval: Aval::new(DType::F32, [4]),
    ///     loc: Loc::default(),
    ///     runs: 1,
    ///     start: Duration::ZERO,
    ///     time: Duration::ZERO,
    ///     modelled: Duration::ZERO,
    ///     live: 0,
    /// };
    /// assert_eq!(step.name(), "dot_general[small]");
    /// ```
    pub fn name(&self) -> String {
        match self.algorithm {
            Some(algorithm) => format!("{}[{algorithm}]", self.operation),
            None => self.operation.to_string(),
        }
    }
}

/// The steps of a run, in order.
///
/// `Display` prints the time of the run, and the share of forward pass, recomputation and derivative; then the operations and the lines that take
/// the most time.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The steps.
    pub steps: Vec<ProfiledStep>,
    /// The time of the run from the first step to the last.
    pub total: Duration,
}

/// The time of steps that have something in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfiledGroup {
    /// What they have in common.
    pub name: String,
    /// How many steps ran, those of loops in each iteration.
    pub steps: usize,
    /// How long they ran together.
    pub time: Duration,
    /// How long they would run by the cost model.
    pub modelled: Duration,
}

/// How many operations and lines a profile prints.
const SHOWN: usize = 10;

impl Profile {
    /// The time of the steps with equal names, the most expensive first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use remat_ir::{Aval, DType, Loc, Profile, ProfiledStep};
    /// let step = |operation, micros| ProfiledStep {
    ///     operation,
    ///     algorithm: None,
    ///     aval: Aval::new(DType::F32, [4]),
    ///     loc: Loc::default(),
    ///     runs: 1,
    ///     start: Duration::ZERO,
    ///     time: Duration::from_micros(micros),
    ///     modelled: Duration::from_micros(1),
    ///     live: 0,
    /// };
    /// let steps = vec![step("exp", 2), step("sort", 5), step("exp", 4)];
    /// let profile = Profile { steps, total: Duration::from_micros(12) };
    /// let groups = profile.grouped(|step| step.operation.to_string());
    /// assert_eq!((&*groups[0].name, groups[0].steps, groups[0].time), ("exp", 2, Duration::from_micros(6)));
    /// ```
    pub fn grouped(&self, name: impl Fn(&ProfiledStep) -> String) -> Vec<ProfiledGroup> {
        let mut groups: Vec<ProfiledGroup> = Vec::new();
        let mut numbers: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
        for step in &self.steps {
            let name = name(step);
            let number = *numbers.entry(name.clone()).or_insert(groups.len());
            if number == groups.len() {
                groups.push(ProfiledGroup { name, steps: 0, time: Duration::ZERO, modelled: Duration::ZERO });
            }
            let group = &mut groups[number];
            group.steps += step.runs;
            group.time += step.time;
            group.modelled += step.modelled;
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.time));
        groups
    }

    /// The time of each operation, by each algorithm that the engine chose for it ([`ProfiledStep::name`]).
    pub fn by_operation(&self) -> Vec<ProfiledGroup> {
        self.grouped(ProfiledStep::name)
    }

    /// The time of each line of the user, by file and line.
    pub fn by_line(&self) -> Vec<ProfiledGroup> {
        self.grouped(|step| match step.loc.site {
            Some(site) => format!("{}:{}", site.file(), site.line()),
            None => "no line".to_string(),
        })
    }

    /// The time of each named scope, by its whole path.
    pub fn by_scope(&self) -> Vec<ProfiledGroup> {
        self.grouped(|step| step.loc.scope.path().to_string())
    }

    /// The time of the forward pass, of what is computed again, and of the derivative.
    pub fn by_role(&self) -> Vec<ProfiledGroup> {
        self.grouped(|step| step.loc.role.name().to_string())
    }

    /// The share of the run that this time is.
    fn share(&self, time: Duration) -> f64 {
        100.0 * time.as_secs_f64() / self.total.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = self.by_role();
        let roles: Vec<String> =
            roles.iter().map(|role| format!("{} {:.0} %", role.name, self.share(role.time))).collect();
        let most = self.steps.iter().map(|step| step.live).max().unwrap_or(0);
        let (time, steps) = (millis(self.total), self.steps.iter().map(|step| step.runs).sum::<usize>());
        write!(f, "{time} in {steps} steps: {}; temporaries {}", roles.join(", "), readable_bytes(most))?;
        for (title, groups) in [("operation", self.by_operation()), ("line", self.by_line())] {
            write!(f, "\n{:>7} {:>11} {:>6} {:>9}  {title}", "share", "time", "steps", "of model")?;
            for ProfiledGroup { name, steps, time, modelled } in groups.iter().take(SHOWN) {
                let model = time.as_secs_f64() / modelled.as_secs_f64().max(1e-12);
                let model = if modelled.is_zero() { "-".to_string() } else { format!("{model:.1} x") };
                write!(f, "\n{:>5.1} % {:>11} {steps:>6} {model:>9}  {name}", self.share(*time), millis(*time))?;
            }
            if groups.len() > SHOWN {
                let rest: Duration = groups[SHOWN..].iter().map(|group| group.time).sum();
                write!(f, "\n{:>5.1} % {:>11}  {} others", self.share(rest), millis(rest), groups.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Role};

    #[test]
    fn a_profile_prints_shares_of_roles_operations_and_lines() {
        let step = |operation, algorithm, micros: u64, role| ProfiledStep {
            operation,
            algorithm,
            aval: Aval::new(DType::F32, [4]),
            loc: Loc { role, ..Loc::default() },
            runs: 1,
            start: Duration::ZERO,
            time: Duration::from_micros(micros),
            modelled: Duration::from_micros(100),
            live: 2048,
        };
        let steps = vec![
            step("dot_general", Some("small"), 300, Role::Written),
            step("exp", None, 100, Role::Recomputed),
            step("dot_general", Some("small"), 400, Role::Derivative),
            step("dot_general", Some("skinny"), 100, Role::Derivative),
        ];
        let text = Profile { steps, total: Duration::from_millis(1) }.to_string();
        let expected = "\
1.000 ms in 4 steps: derivative 50 %, forward 30 %, recomputed 10 %; temporaries 2.00 KiB
  share        time  steps  of model  operation
 70.0 %    0.700 ms      2     3.5 x  dot_general[small]
 10.0 %    0.100 ms      1     1.0 x  exp
 10.0 %    0.100 ms      1     1.0 x  dot_general[skinny]
  share        time  steps  of model  line
 90.0 %    0.900 ms      4     2.2 x  no line";
        assert_eq!(text, expected);
        assert!(Profile::default().to_string().starts_with("0.000 ms in 0 steps"));
    }
}
