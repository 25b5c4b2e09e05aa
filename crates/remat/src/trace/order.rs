//! How often the function being traced will be differentiated.

use super::tracer::Tracer;

/// The number of derivatives that may still be taken of the function being traced.
///
/// A custom function traces its rule only where this is not zero, and the rule itself for one derivative fewer. So a rule
/// may call its own function: the calls inside are traced for fewer and fewer derivatives, and in the end without a rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Order(usize);

impl Order {
    /// That of the innermost open trace; none where no trace is open.
    pub(crate) fn current() -> Order {
        Tracer::with_innermost(|tracer, _| tracer.order).unwrap_or_default()
    }

    /// For this many derivatives more.
    pub(crate) fn plus(self, derivatives: usize) -> Order {
        Order(self.0 + derivatives)
    }

    /// For one derivative fewer, if there is one.
    pub(crate) fn below(self) -> Option<Order> {
        self.0.checked_sub(1).map(Order)
    }
}
