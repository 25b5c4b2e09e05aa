//! An engine under test.

use std::sync::Arc;

use remat_ir::{Device, Op};

use crate::closeness::{Closeness, of_operation};

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
    pub(crate) flushes_subnormals: bool,
    pub(crate) together: usize,
    pub(crate) every: usize,
    pub(crate) exclusions: Vec<Exclusion>,
    /// Operations with other bounds than [`closeness`](crate::closeness) has.
    roundings: Vec<(String, u32)>,
}

/// Cases that are known to fail, or that are left out.
#[derive(Clone, Debug)]
pub(crate) struct Exclusion {
    /// Whether they run, and have to fail.
    pub(crate) runs: bool,
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
        Engine {
            device: Arc::new(device),
            variants: Vec::new(),
            is_exact: false,
            flushes_subnormals: false,
            together: 1,
            every: 1,
            exclusions: Vec::new(),
            roundings: Vec::new(),
        }
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

    /// The engine computes subnormal numbers as zeros: no argument has any, and a result may be a zero in place of one.
    #[must_use]
    pub fn flushing_subnormals(mut self) -> Engine {
        self.flushes_subnormals = true;
        self
    }

    /// For engines that take long to compile: up to this many programs run as one, which has the arguments and results of all. A case
    /// that fails there is run again alone, so that failures are what they would be without this.
    #[must_use]
    pub fn together(mut self, programs: usize) -> Engine {
        self.together = programs.max(1);
        self
    }

    /// For engines that take long to compile: of the cases of each property only every `n`-th runs, and those that are excluded.
    #[must_use]
    pub fn every(mut self, n: usize) -> Engine {
        self.every = n.max(1);
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
    pub fn excluding(self, property: impl Into<String>, cases: impl Into<String>, reason: impl Into<String>) -> Engine {
        self.exclude(true, property.into(), cases.into(), reason.into())
    }

    /// Cases of a property that do not run, and why: they ask for what the engine does not promise, and some of them pass, so that
    /// [`Engine::excluding`] would not do. It is a failure if there is no such case or no such property.
    #[must_use]
    pub fn leaving_out(
        self,
        property: impl Into<String>,
        cases: impl Into<String>,
        reason: impl Into<String>,
    ) -> Engine {
        self.exclude(false, property.into(), cases.into(), reason.into())
    }

    fn exclude(mut self, runs: bool, property: String, cases: String, reason: String) -> Engine {
        self.exclusions.push(Exclusion { runs, property, cases, reason });
        self
    }

    /// The results of this operation alone may be this many roundings apart from the evaluator's, at the scale of the largest number
    /// there is: the engine computes it in another way.
    ///
    /// ```
    /// # use remat_conformance::Engine;
    /// # use remat_ir::Reference;
    /// let engine = Engine::new(Reference).within("cholesky", 16);
    /// ```
    #[must_use]
    pub fn within(mut self, operation: impl Into<String>, roundings: u32) -> Engine {
        self.roundings.push((operation.into(), roundings));
        self
    }

    /// How close results of an operation alone have to be.
    pub(crate) fn closeness(&self, op: &Op) -> Closeness {
        let own = self.roundings.iter().find(|(operation, _)| operation == op.name());
        own.map_or_else(|| of_operation(op), |(_, roundings)| Closeness::Sums(*roundings))
    }
}
