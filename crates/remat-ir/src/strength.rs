//! Policies with a budget: what it may decide, and what not.

use crate::Policy;

/// A policy with a budget in three parts, which [`Policy::budgeted`] returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budgeted {
    /// The most bytes that a region keeps.
    pub bytes: usize,
    /// What the budget may not change: it leaves all other values open.
    pub must: Policy,
    /// What the budget keeps first: it leaves all other values open.
    pub prefer: Policy,
}

/// A part of a policy that decides for itself, as one with a strength does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strength {
    Must,
    Prefer,
}

impl Policy {
    /// The parts of a policy with a budget; `None` if it has no budget.
    ///
    /// ```
    /// use remat_ir::Policy;
    /// let policy = Policy::prefer(Policy::Dots).or(Policy::budget(1 << 20));
    /// let parts = policy.budgeted().unwrap().unwrap();
    /// assert_eq!((parts.bytes, parts.prefer.to_string().as_str()), (1 << 20, "Prefer(Dots)"));
    /// let message = Policy::Dots.or(Policy::budget(8)).budgeted().unwrap_err();
    /// assert!(message.contains("combines Budget(8) with Dots"), "{message}");
    /// ```
    ///
    /// # Errors
    /// A message if the budget is combined with a policy without a strength, or with another budget, or by something other than `Or` and
    /// `First`.
    pub fn budgeted(&self) -> Result<Option<Budgeted>, String> {
        let Some(budget) = self.find_budget() else { return Ok(None) };
        let mut parts = Vec::new();
        self.alternatives(&mut parts);
        let combined =
            |with: String, advice: &str| Err(format!("the policy {self} combines {budget} with {with}; {advice}"));
        let is_budget = |part: &&&Policy| matches!(part, Policy::Budget(_));
        let around = parts.iter().find(|part| !matches!(part, Policy::Budget(_)) && part.find_budget().is_some());
        if let Some(around) = around {
            let advice = "a budget decides about all values together, and only `Or` and `First` combine it with others";
            return combined(around.to_string(), advice);
        }
        if let Some(second) = parts.iter().filter(is_budget).nth(1) {
            return combined(second.to_string(), "a region has one budget");
        }
        let weak = parts.iter().find(|p| !matches!(p, Policy::Budget(_) | Policy::Must(_) | Policy::Prefer(_)));
        if let Some(weak) = weak {
            let advice = format!(
                "a budget decides about all values together, so say whether it may change what the other decides: \
                 Must({weak}) or Prefer({weak})"
            );
            return combined(weak.to_string(), &advice);
        }
        let Policy::Budget(bytes) = *budget else { return Ok(None) };
        Ok(Some(Budgeted { bytes, must: self.only(Strength::Must), prefer: self.only(Strength::Prefer) }))
    }

    /// What of this policy no planner may change. It leaves all other values open.
    pub fn strict(&self) -> Policy {
        self.only(Strength::Must)
    }

    /// Whether this policy leaves every value open.
    pub fn is_open(&self) -> bool {
        match self {
            Policy::Or(parts) | Policy::First(parts) => parts.iter().all(Policy::is_open),
            Policy::Budget(_) => true,
            _ => false,
        }
    }

    /// Whether a budget is a part of this policy.
    pub fn has_budget(&self) -> bool {
        self.find_budget().is_some()
    }

    /// A budget in this policy.
    fn find_budget(&self) -> Option<&Policy> {
        if let Policy::Budget(_) = self { Some(self) } else { self.parts().iter().find_map(Policy::find_budget) }
    }

    /// The policies that this one chooses from.
    fn alternatives<'a>(&'a self, found: &mut Vec<&'a Policy>) {
        match self {
            Policy::Or(parts) | Policy::First(parts) => parts.iter().for_each(|part| part.alternatives(found)),
            _ => found.push(self),
        }
    }

    /// This policy with the parts of one strength alone; all others leave every value open.
    fn only(&self, strength: Strength) -> Policy {
        let of_parts = |parts: &[Policy], combine: fn(Vec<Policy>) -> Policy| {
            let mut parts: Vec<Policy> = parts.iter().map(|part| part.only(strength)).collect();
            parts.retain(|part| !part.is_open());
            if parts.len() == 1 { parts.remove(0) } else { combine(parts) }
        };
        match self {
            Policy::Or(parts) => of_parts(parts, Policy::Or),
            Policy::First(parts) => of_parts(parts, Policy::First),
            Policy::Must(_) if strength == Strength::Must => self.clone(),
            Policy::Prefer(_) if strength == Strength::Prefer => self.clone(),
            _ => Policy::First(Vec::new()),
        }
    }
}
