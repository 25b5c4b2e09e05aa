//! The number of derivatives that will be taken of the function being traced.
//!
//! A trace has the order of the enclosing one for a plain call or `jit`; one more for `grad`, `jvp` and the like; two more for `vjp` and
//! `linearize`, whose linear map may be differentiated once itself. The function of a custom rule is never differentiated itself. So
//! recursion ends, and functions nested in one another's rules take linear time.

use super::tracer::Tracer;

/// The number of derivatives that may still be taken of the function being traced.
///
/// A custom function traces its rule only if this is not zero, and the rule itself for one derivative fewer. So a rule may call its own
/// function: nested calls are traced for fewer and fewer derivatives, and finally without a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Order(usize);

impl Order {
    /// The order of the innermost open trace; zero if no trace is open.
    pub(crate) fn current() -> Order {
        Tracer::with_innermost(|tracer, _| tracer.order).unwrap_or_default()
    }

    /// The order for this many more derivatives.
    pub(crate) fn plus(self, derivatives: usize) -> Order {
        Order(self.0 + derivatives)
    }

    /// The order for one derivative fewer, if it is not zero.
    pub(crate) fn below(self) -> Option<Order> {
        self.0.checked_sub(1).map(Order)
    }
}
