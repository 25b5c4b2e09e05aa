//! Policies as data, which decide the values that a checkpoint keeps.
//!
//! A policy is asked once about each value that a checkpointed region computes from known values. It answers with a [`Decision`] or with
//! `None`, which means recompute. Policies print, compare and hash; a callable is one of the variants.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::ops::Quoted;
use crate::{Aval, MemorySpace, Op, Prim};

/// The decision about a value between the forward and the backward pass.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Decision {
    /// Keep it, if the backward pass needs it.
    Save,
    /// Compute it again.
    Recompute,
    /// Keep it in this memory space.
    Offload(MemorySpace),
}

/// A value that a policy is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The operation that computes it.
    pub op: &'a Op,
    /// The avals of the operands.
    pub ins: &'a [Aval],
    /// The avals of the results.
    pub outs: &'a [Aval],
    /// The name that a later `name` gives to the result. A policy is asked about a value without a label first, and again with the label if
    /// it would save the value: keeping the operand of a `name` keeps the named value.
    pub label: Option<&'a str>,
}

impl Candidate<'_> {
    /// The label, or the name that the operation gives if it is a `name`.
    pub fn name(&self) -> Option<&str> {
        if let Op::Prim(Prim::Name(op)) = self.op { op.label().map(|name| &**name) } else { self.label }
    }
}

/// A callable policy. It equals its clones: another callable of the same name may decide otherwise.
#[derive(Clone)]
pub struct CustomPolicy {
    name: Arc<str>,
    decide: Option<Arc<dyn Fn(&Candidate<'_>) -> Option<Decision> + Send + Sync>>,
}

impl CustomPolicy {
    /// The name that programs print.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is a callable: a policy that was read from text has only a name.
    pub fn is_callable(&self) -> bool {
        self.decide.is_some()
    }
}

impl PartialEq for CustomPolicy {
    fn eq(&self, other: &Self) -> bool {
        let is_same_callable = match (&self.decide, &other.decide) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.name == other.name && is_same_callable
    }
}

impl Eq for CustomPolicy {}

impl Hash for CustomPolicy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for CustomPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Custom({})", self.name)
    }
}

/// The values that a checkpointed region may keep for the backward pass.
///
/// ```
/// use remat_ir::Policy;
/// assert_eq!(Policy::default(), Policy::Nothing);
/// assert_eq!(Policy::names(["b", "a"]).to_string(), "Names(a, b)");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// Recompute everything from the inputs. The default.
    #[default]
    #[doc(alias = "nothing_saveable")]
    Nothing,
    /// Keep everything that the backward pass needs.
    #[doc(alias = "everything_saveable")]
    Everything,
    /// Keep the results of matrix products, of convolutions, and of attention, which consists of products.
    #[doc(alias = "dots_saveable")]
    #[doc(alias = "checkpoint_dots")]
    Dots,
    /// Keep the results of matrix products without batch dimensions: weights times activations.
    #[doc(alias = "dots_with_no_batch_dims_saveable")]
    #[doc(alias = "checkpoint_dots_with_no_batch_dims")]
    DotsWithNoBatchDims,
    /// Keep the values with one of these names.
    #[doc(alias = "save_only_these_names")]
    Names(BTreeSet<Arc<str>>),
    /// Keep the values with a name that is not one of these.
    #[doc(alias = "save_any_names_but_these")]
    AnyNamesBut(BTreeSet<Arc<str>>),
    /// Keep everything except the values with one of these names.
    #[doc(alias = "save_anything_except_these_names")]
    AnythingBut(BTreeSet<Arc<str>>),
    /// Offload the results of matrix products without batch dimensions.
    #[doc(alias = "offload_dot_with_no_batch_dims")]
    OffloadDotsWithNoBatchDims(MemorySpace),
    /// Keep the values with some names, offload the values with others.
    #[doc(alias = "save_and_offload_only_these_names")]
    SaveAndOffloadNames {
        /// Kept in device memory.
        saved: BTreeSet<Arc<str>>,
        /// Kept in `to`.
        offloaded: BTreeSet<Arc<str>>,
        /// Where offloaded values go.
        to: MemorySpace,
    },
    /// Keep at most this many bytes, chosen for the least recomputation: see [`Policy::budget`].
    Budget(usize),
    /// What this decides stays so: see [`Policy::must`].
    Must(Box<Policy>),
    /// A budget may change what this decides: see [`Policy::prefer`].
    Prefer(Box<Policy>),
    /// Keep what any of these keeps; the first that keeps or offloads determines the memory.
    #[doc(alias = "save_from_both_policies")]
    Or(Vec<Policy>),
    /// Keep what all of these keep; the last determines the memory.
    And(Vec<Policy>),
    /// Keep what this recomputes, and recompute what it keeps or offloads.
    Not(Box<Policy>),
    /// The first of these that decides.
    First(Vec<Policy>),
    /// A callable.
    Custom(CustomPolicy),
}

fn set<S: Into<Arc<str>>>(names: impl IntoIterator<Item = S>) -> BTreeSet<Arc<str>> {
    names.into_iter().map(Into::into).collect()
}

impl Policy {
    /// [`Policy::Names`] of these names.
    pub fn names<S: Into<Arc<str>>>(names: impl IntoIterator<Item = S>) -> Policy {
        Policy::Names(set(names))
    }

    /// [`Policy::AnyNamesBut`] of these names.
    pub fn any_names_but<S: Into<Arc<str>>>(names: impl IntoIterator<Item = S>) -> Policy {
        Policy::AnyNamesBut(set(names))
    }

    /// [`Policy::AnythingBut`] of these names.
    pub fn anything_but<S: Into<Arc<str>>>(names: impl IntoIterator<Item = S>) -> Policy {
        Policy::AnythingBut(set(names))
    }

    /// [`Policy::SaveAndOffloadNames`] to host memory.
    pub fn save_and_offload_names<S: Into<Arc<str>>, O: Into<Arc<str>>>(
        saved: impl IntoIterator<Item = S>,
        offloaded: impl IntoIterator<Item = O>,
    ) -> Policy {
        Policy::SaveAndOffloadNames { saved: set(saved), offloaded: set(offloaded), to: MemorySpace::Host }
    }

    /// At most this many bytes of values that the region computes, chosen for the least recomputation.
    ///
    /// What counts is what one execution of the region keeps for its backward pass; its inputs do not count. So inside a loop the budget
    /// is that of one iteration. Nothing fits [`Policy::budget`]`(0)`, which keeps what [`Policy::Nothing`] keeps, and a budget in which all
    /// fits keeps what [`Policy::Everything`] keeps.
    ///
    /// Other policies decide value by value, and a budget about all values together. So it can be combined, by [`Policy::or`] or
    /// [`Policy::First`], only with policies that say whether it may change what they decide: [`Policy::must`] and [`Policy::prefer`]. Any
    /// other combination is an error where it is applied.
    ///
    /// ```
    /// use remat_ir::Policy;
    /// assert_eq!(Policy::budget(3 << 29).to_string(), "Budget(1536MiB)");
    /// assert_eq!("budget(1.5GiB)".parse::<Policy>()?, Policy::budget(3 << 29));
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    pub fn budget(bytes: usize) -> Policy {
        Policy::Budget(bytes)
    }

    /// The text of an optional policy, as tables show it: that of the policy, or `none`.
    ///
    /// ```
    /// use remat_ir::Policy;
    /// assert_eq!(Policy::name_of(Some(&Policy::Dots)), "Dots");
    /// assert_eq!(Policy::name_of(None), "none");
    /// ```
    pub fn name_of(policy: Option<&Policy>) -> String {
        policy.map_or_else(|| "none".into(), Policy::to_string)
    }

    /// A policy whose decisions no planner changes.
    ///
    /// It decides as `policy`. With a budget the values that it saves are kept, and count: if they alone take more, that is an error which
    /// names both. What it offloads or computes again is not for the budget to decide either. And an engine that computes values again to
    /// fit a memory limit does not do so with a value that this policy saves. (Policies without a strength say what a region keeps; an
    /// engine with a limit may still compute it again.)
    ///
    /// It has its effect by itself and in [`Policy::or`] and [`Policy::First`]; in `And` and `Not` it decides like `policy`. Of two
    /// strengths one in the other the outer one counts.
    ///
    /// ```
    /// use remat_ir::Policy;
    /// // The attention is kept, and what else fits into 64 MiB together with it.
    /// let policy = Policy::must(Policy::names(["attn"])).or(Policy::budget(64 << 20));
    /// assert_eq!(policy.to_string(), "Or(Must(Names(attn)), Budget(64MiB))");
    /// assert_eq!("or(must(names(attn)), budget(64MiB))".parse::<Policy>()?, policy);
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    pub fn must(policy: Policy) -> Policy {
        Policy::Must(Box::new(policy))
    }

    /// A policy whose decisions a planner may change.
    ///
    /// It decides as `policy`. With a budget, values that it saves come first: those among them are kept that together fit the budget and
    /// avoid the most recomputation; then, with what is left, any others.
    ///
    /// ```
    /// use remat_ir::Policy;
    /// let policy = Policy::prefer(Policy::Dots).or(Policy::budget(1 << 20));
    /// assert_eq!(policy.to_string(), "Or(Prefer(Dots), Budget(1MiB))");
    /// ```
    pub fn prefer(policy: Policy) -> Policy {
        Policy::Prefer(Box::new(policy))
    }

    /// A callable that sees operation, avals and name, and may leave the decision open.
    ///
    /// `name` is what programs print. The policy equals its clones and no other policy: another callable of this name may decide otherwise. So
    /// make it once, outside of a function that is traced often: what is kept for a policy is found again with a clone.
    pub fn custom(
        name: impl Into<Arc<str>>,
        decide: impl Fn(&Candidate<'_>) -> Option<Decision> + Send + Sync + 'static,
    ) -> Policy {
        Policy::Custom(CustomPolicy { name: name.into(), decide: Some(Arc::new(decide)) })
    }

    /// A callable policy with only a name and no callable, as the parser returns it. Two with the same name are equal.
    pub fn custom_named(name: impl Into<Arc<str>>) -> Policy {
        Policy::Custom(CustomPolicy { name: name.into(), decide: None })
    }

    /// Keep what this or the other keeps.
    pub fn or(self, other: Policy) -> Policy {
        Policy::Or(vec![self, other])
    }

    /// Keep what this and the other keep.
    pub fn and(self, other: Policy) -> Policy {
        Policy::And(vec![self, other])
    }

    /// Keep what this recomputes.
    #[allow(clippy::should_implement_trait)]
    pub fn not(self) -> Policy {
        Policy::Not(Box::new(self))
    }

    /// The decision about a value, or `None` if this policy leaves it open, which finally means recompute. A budget leaves every value open,
    /// since it decides about all values together.
    pub fn decide(&self, candidate: &Candidate<'_>) -> Option<Decision> {
        let keeps = |decision: Option<Decision>| matches!(decision, Some(Decision::Save | Decision::Offload(_)));
        match self {
            Policy::Nothing => Some(Decision::Recompute),
            Policy::Everything => Some(Decision::Save),
            Policy::Dots => is_dot(candidate.op).then_some(Decision::Save),
            Policy::DotsWithNoBatchDims => is_dot_without_batch(candidate.op).then_some(Decision::Save),
            Policy::Names(names) => names.contains(candidate.name()?).then_some(Decision::Save),
            Policy::AnyNamesBut(names) => {
                Some(if names.contains(candidate.name()?) { Decision::Recompute } else { Decision::Save })
            }
            Policy::AnythingBut(names) => match candidate.name() {
                Some(name) if names.contains(name) => Some(Decision::Recompute),
                _ => Some(Decision::Save),
            },
            Policy::OffloadDotsWithNoBatchDims(to) => {
                is_dot_without_batch(candidate.op).then_some(Decision::Offload(*to))
            }
            Policy::SaveAndOffloadNames { saved, offloaded, to } => {
                let name = candidate.name()?;
                if saved.contains(name) {
                    Some(Decision::Save)
                } else {
                    offloaded.contains(name).then_some(Decision::Offload(*to))
                }
            }
            Policy::Or(policies) => {
                let mut decided = None;
                for policy in policies {
                    let decision = policy.decide(candidate);
                    if keeps(decision) {
                        return decision;
                    }
                    decided = decided.or(decision);
                }
                decided
            }
            Policy::And(policies) => {
                let mut last = Some(Decision::Save);
                for policy in policies {
                    last = policy.decide(candidate);
                    if !keeps(last) {
                        return last;
                    }
                }
                last
            }
            Policy::Not(policy) => {
                Some(if keeps(policy.decide(candidate)) { Decision::Recompute } else { Decision::Save })
            }
            Policy::First(policies) => policies.iter().find_map(|p| p.decide(candidate)),
            Policy::Custom(custom) => custom.decide.as_ref().and_then(|f| f(candidate)),
            Policy::Must(policy) | Policy::Prefer(policy) => policy.decide(candidate),
            Policy::Budget(_) => None,
        }
    }

    /// The name of a callable that this policy does not have, since it was read from text.
    pub fn missing_callable(&self) -> Option<&str> {
        match self {
            Policy::Custom(custom) => (!custom.is_callable()).then(|| custom.name()),
            _ => self.parts().iter().find_map(|p| p.missing_callable()),
        }
    }

    /// A name that one part of this policy would both save and offload.
    pub fn contradictory_name(&self) -> Option<Arc<str>> {
        match self {
            Policy::SaveAndOffloadNames { saved, offloaded, .. } => saved.intersection(offloaded).next().cloned(),
            _ => self.parts().iter().find_map(|p| p.contradictory_name()),
        }
    }

    /// Every name that this policy mentions.
    pub fn mentioned_names(&self) -> BTreeSet<Arc<str>> {
        match self {
            Policy::Names(n) | Policy::AnyNamesBut(n) | Policy::AnythingBut(n) => n.clone(),
            Policy::SaveAndOffloadNames { saved, offloaded, .. } => saved.union(offloaded).cloned().collect(),
            _ => self.parts().iter().flat_map(|p| p.mentioned_names()).collect(),
        }
    }

    /// The policies that this policy combines.
    pub(crate) fn parts(&self) -> &[Policy] {
        match self {
            Policy::Or(parts) | Policy::And(parts) | Policy::First(parts) => parts,
            Policy::Not(part) | Policy::Must(part) | Policy::Prefer(part) => std::slice::from_ref(part),
            Policy::Nothing
            | Policy::Everything
            | Policy::Dots
            | Policy::DotsWithNoBatchDims
            | Policy::Names(_)
            | Policy::AnyNamesBut(_)
            | Policy::AnythingBut(_)
            | Policy::OffloadDotsWithNoBatchDims(_)
            | Policy::SaveAndOffloadNames { .. }
            | Policy::Budget(_)
            | Policy::Custom(_) => &[],
        }
    }
}

/// Whether the results are matrix products, or consist of them.
fn is_dot(op: &Op) -> bool {
    matches!(
        op,
        Op::Prim(
            Prim::DotGeneral(_)
                | Prim::Conv(_)
                | Prim::DotProductAttention(_)
                | Prim::DotProductAttentionTangent(_)
                | Prim::DotProductAttentionCotangent(_)
        )
    )
}

fn is_dot_without_batch(op: &Op) -> bool {
    matches!(op, Op::Prim(Prim::DotGeneral(dot)) if dot.lhs_batch.is_empty())
}

/// The form that programs print and the parser reads: `Or(Names(a, "b c"), Dots)`. Names that are not identifiers are
/// quoted.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
            items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
        }
        fn names(names: &BTreeSet<Arc<str>>) -> String {
            list(names.iter().map(|n| Quoted(n)))
        }
        match self {
            Policy::Nothing => f.write_str("Nothing"),
            Policy::Everything => f.write_str("Everything"),
            Policy::Dots => f.write_str("Dots"),
            Policy::DotsWithNoBatchDims => f.write_str("DotsWithNoBatchDims"),
            Policy::Names(n) => write!(f, "Names({})", names(n)),
            Policy::AnyNamesBut(n) => write!(f, "AnyNamesBut({})", names(n)),
            Policy::AnythingBut(n) => write!(f, "AnythingBut({})", names(n)),
            Policy::OffloadDotsWithNoBatchDims(to) => write!(f, "OffloadDotsWithNoBatchDims({})", to.name()),
            Policy::SaveAndOffloadNames { saved, offloaded, to } => {
                write!(f, "SaveAndOffloadNames(({}), ({}), {})", names(saved), names(offloaded), to.name())
            }
            Policy::Budget(bytes) => write!(f, "Budget({})", crate::memory::plain_bytes(*bytes)),
            Policy::Or(p) => write!(f, "Or({})", list(p)),
            Policy::And(p) => write!(f, "And({})", list(p)),
            Policy::Not(p) => write!(f, "Not({p})"),
            Policy::Must(p) => write!(f, "Must({p})"),
            Policy::Prefer(p) => write!(f, "Prefer({p})"),
            Policy::First(p) => write!(f, "First({})", list(p)),
            Policy::Custom(c) => write!(f, "Custom({})", Quoted(&c.name)),
        }
    }
}
