//! An engine under test.

use std::sync::Arc;

use remat_ir::Device;

/// An engine under test: devices that have to give the same bits, and facts about them.
///
/// ```
/// use remat_conformance::Engine;
/// use remat_ir::Reference;
///
/// let engine = Engine::new(Reference).variant("again", Reference);
/// assert_eq!(remat_conformance::errors_agree(&engine)?, 8);
/// # Ok::<(), remat_conformance::Failures>(())
/// ```
pub struct Engine {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) variants: Vec<(String, Arc<dyn Device>)>,
    pub(crate) is_exact: bool,
    pub(crate) exclusions: Vec<Exclusion>,
}

/// Cases that are known to fail.
#[derive(Clone, Debug)]
pub(crate) struct Exclusion {
    pub(crate) property: String,
    pub(crate) cases: String,
    pub(crate) reason: String,
}

impl Exclusion {
    /// Whether the case of this name is excluded.
    pub(crate) fn has(&self, case: &str) -> bool {
        self.cases.strip_suffix('*').map_or(case == self.cases, |start| case.starts_with(start))
    }
}

impl Engine {
    /// An engine on this device, which every property runs on. It should run on the calling thread alone, if it can, so that
    /// a run with more threads has something to be compared with.
    pub fn new(device: impl Device + 'static) -> Engine {
        Engine { device: Arc::new(device), variants: Vec::new(), is_exact: false, exclusions: Vec::new() }
    }

    /// The same engine in another way, such as on two threads: its results have to be those of the first device in every bit.
    /// The label is for messages.
    #[must_use]
    pub fn variant(mut self, label: impl Into<String>, device: impl Device + 'static) -> Engine {
        self.variants.push((label.into(), Arc::new(device)));
        self
    }

    /// The engine plans its memory to the byte: in every run the blocks that the calling thread allocates are compared with
    /// [`Executable::memory`](remat_ir::Executable::memory). The test program needs the allocator that records them:
    ///
    /// ```
    /// #[global_allocator]
    /// static ALLOCATOR: remat_conformance::Recording = remat_conformance::Recording;
    /// ```
    #[must_use]
    pub fn exact(mut self) -> Engine {
        self.is_exact = true;
        self
    }

    /// Cases of a property that this engine is known to fail, and why. `cases` is the name of a case as a failure prints it,
    /// or the beginning of names with a `*` behind it.
    ///
    /// Excluded cases run too: it is a failure if one of them passes, or if there is no such case or no such property. So the
    /// list never excludes more than fails.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use remat_ir::{Device, Error, ErrorKind, Executable, Jaxpr, Reference, Result};
    /// use remat_conformance::{Engine, Failures, many_random_numbers_agree};
    ///
    /// struct Unfinished;
    ///
    /// impl Device for Unfinished {
    ///     // ...
    /// #     fn name(&self) -> &str {
    /// #         "unfinished"
    /// #     }
    /// #     fn compile(&self, _: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
    /// #         Err(Error::new(ErrorKind::Internal, "compile", "is not written"))
    /// #     }
    /// }
    ///
    /// let engine = Engine::new(Unfinished).excluding("many_random_numbers_agree", "*", "nothing compiles yet");
    /// many_random_numbers_agree(&engine)?;
    /// # Ok::<(), Failures>(())
    /// ```
    #[must_use]
    pub fn excluding(
        mut self,
        property: impl Into<String>,
        cases: impl Into<String>,
        reason: impl Into<String>,
    ) -> Engine {
        self.exclusions.push(Exclusion { property: property.into(), cases: cases.into(), reason: reason.into() });
        self
    }
}
