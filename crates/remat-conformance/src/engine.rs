//! An engine under test.

use std::sync::Arc;

use remat_ir::{Device, Op};

use crate::closeness::{Closeness, of_operation};

/// An engine under test: devices that must give the same bits, and facts about them.
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
    /// Operations with other bounds than those of [`closeness`](crate::closeness).
    roundings: Vec<(String, u32)>,
}

/// Cases that are known to fail, or that are skipped.
#[derive(Clone, Debug)]
pub(crate) struct Exclusion {
    /// Whether they run, and must fail.
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
    /// An engine on this device, on which every property runs. If possible it should use only the calling thread, so that runs with more
    /// threads can be compared with it.
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

    /// Adds a variant of the engine, for example with two threads: its results must have the same bits as those of the first device. The
    /// label is for messages.
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

    /// The engine replaces subnormal numbers by zeros: no argument is subnormal, and a result may be zero instead of subnormal.
    #[must_use]
    pub fn flushing_subnormals(mut self) -> Engine {
        self.flushes_subnormals = true;
        self
    }

    /// For engines that compile slowly: up to this many programs run as one, with the arguments and results of all. A case that fails there
    /// is run again alone, so that failures are the same as without this.
    #[must_use]
    pub fn together(mut self, programs: usize) -> Engine {
        self.together = programs.max(1);
        self
    }

    /// For engines that compile slowly: only every `n`-th case of each property runs, and the excluded ones.
    #[must_use]
    pub fn every(mut self, n: usize) -> Engine {
        self.every = n.max(1);
        self
    }

    /// Cases of a property that this engine is known to fail, and the reason. `cases` is the name of a case as a failure prints it, or a
    /// prefix of names with a `*` at the end.
    ///
    /// Excluded cases run too. It is a failure if one of them passes, or if there is no such case or property. So the list never excludes
    /// more cases than fail.
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

    /// Cases of a property that do not run, and the reason: the engine does not promise what they test, and some of them pass, so that
    /// [`Engine::excluding`] would fail. It is a failure if there is no such case or property.
    #[must_use]
    pub fn leaving_out(
        self,
        property: impl Into<String>,
        cases: impl Into<String>,
        reason: impl Into<String>,
    ) -> Engine {
        self.exclude(false, property.into(), cases.into(), reason.into())
    }

    /// The excluded cases of a property, each with its reason.
    ///
    /// ```
    /// # use remat_conformance::Engine;
    /// # use remat_ir::Reference;
    /// let engine = Engine::new(Reference).leaving_out("derivatives_agree", "sort *", "they are not promised");
    /// let all: Vec<_> = engine.exclusions("derivatives_agree").collect();
    /// assert_eq!(all, [("sort *", "they are not promised")]);
    /// assert_eq!(engine.exclusions("errors_agree").count(), 0);
    /// ```
    pub fn exclusions(&self, property: &str) -> impl Iterator<Item = (&str, &str)> {
        let of_property = self.exclusions.iter().filter(move |exclusion| exclusion.property == property);
        of_property.map(|exclusion| (exclusion.cases.as_str(), exclusion.reason.as_str()))
    }

    fn exclude(mut self, runs: bool, property: String, cases: String, reason: String) -> Engine {
        self.exclusions.push(Exclusion { runs, property, cases, reason });
        self
    }

    /// Allows results of this operation, run alone, to differ from the evaluator's by this many roundings of the type in which it is computed,
    /// at the scale of the largest number, since the engine computes it in another way. Half precision is computed in f32 and rounded at
    /// last.
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

    /// How close results of a single operation must be.
    pub(crate) fn closeness(&self, op: &Op) -> Closeness {
        let own = self.roundings.iter().find(|(operation, _)| operation == op.name());
        own.map_or_else(|| of_operation(op), |(_, roundings)| Closeness::Sums(*roundings))
    }
}
