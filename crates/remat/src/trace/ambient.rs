//! The policies of the checkpointed regions whose functions are being traced.
//!
//! A forward rule of `custom_remat` sees one of them, so it is part of the key by which `jit` finds programs with custom functions.

use std::cell::RefCell;
use std::sync::Arc;

use remat_ir::Policy;

use super::Order;

thread_local! {
    static REGIONS: RefCell<Vec<(Arc<Policy>, Order)>> = const { RefCell::new(Vec::new()) };
}

/// A region that is being traced, until this is dropped.
pub(crate) struct InRegion(());

impl InRegion {
    /// Enters a region whose function is traced for this many derivatives.
    pub(crate) fn enter(policy: Arc<Policy>, order: Order) -> InRegion {
        REGIONS.with_borrow_mut(|regions| regions.push((policy, order)));
        InRegion(())
    }
}

impl Drop for InRegion {
    fn drop(&mut self) {
        REGIONS.with_borrow_mut(|regions| drop(regions.pop()));
    }
}

/// The policy that decides what the next derivative of the function being traced keeps: that of the outermost region around it. A derivative
/// that is taken inside of a region comes first, and the region's policy does not decide for it.
pub(crate) fn region_policy() -> Option<Arc<Policy>> {
    let now = Order::current();
    REGIONS.with_borrow(|regions| regions.iter().find(|(_, order)| now <= *order).map(|(policy, _)| policy.clone()))
}
