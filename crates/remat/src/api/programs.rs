//! The programs of a compiled function: one for each structure, static fields and avals of its argument.
//!
//! Of the function's types this knows the results at most, so that it is compiled for each type of results and not with each function.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use remat_ir::{Aval, Call, Jaxpr, Loc, Op, Policy, Result, Value};
use remat_opt::lru::Lru;

use super::stages::{Compiled, Target, Traced};
use crate::trace::{
    Binding, Device, Order, Path, Program, Repr, Structure, Tensor, Tracer, Tree, avals, bind_at, bindings,
    is_selecting, leaves_like, operands, region_policy,
};

/// The cache key of a program. `order` is set only for programs that depend on it: those that call custom functions, whose rules are traced
/// once for each derivative, and may see the policy of the region around the call.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    structure: Structure,
    avals: Vec<Aval>,
    order: Option<(Order, Option<Arc<Policy>>)>,
    /// The named axes at the call: collectives in the function may use them, and inside a mesh there is no `shard_map`.
    axes: Vec<Binding>,
}

impl Key {
    /// The leaves of an argument, if it has the structure and the static fields of this key.
    pub(super) fn leaves_like<A: Tree>(&self, args: &A) -> Option<Vec<Tensor>> {
        leaves_like(args, &self.structure, self.avals.len())
    }

    /// Whether this is the key of a call now with these leaves, whose structure it has.
    pub(super) fn is_of(&self, leaves: &[Tensor]) -> bool {
        let has_avals =
            || leaves.iter().zip(&self.avals).all(|(leaf, aval)| leaf.aval().is_ok_and(|given| given == aval));
        let is_of =
            |(order, policy): &(Order, Option<Arc<Policy>>)| *order == Order::current() && *policy == region_policy();
        has_avals() && self.order.as_ref().is_none_or(is_of) && self.axes == bindings()
    }
}

/// A traced function, its executables once they are needed, and a tree with the structure of its results.
pub(super) struct Entry<T> {
    pub(super) key: Key,
    pub(super) executables: Executables,
    pub(super) like: T,
}

/// The programs of a function.
pub(super) struct Programs<T> {
    cache: Mutex<Cache<T>>,
    /// The program of the last call. The next call usually has the same kind of argument, and comparing it with the last one is much faster
    /// than building a key and its hash.
    last: Mutex<Option<Arc<Entry<T>>>>,
    /// Notified when a thread has finished tracing.
    traced: Condvar,
}

struct Cache<T> {
    /// The programs. With a key that is made anew at each call, as by a callable policy, they would gather without end: the last ones stay.
    ready: Lru<Key, Arc<Entry<T>>>,
    /// The keys that threads are tracing.
    tracing: HashSet<Key>,
}

impl<T> Default for Programs<T> {
    fn default() -> Programs<T> {
        let cache = Mutex::new(Cache { ready: Lru::default(), tracing: HashSet::new() });
        Programs { cache, last: Mutex::new(None), traced: Condvar::new() }
    }
}

impl<T> Programs<T> {
    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.cache().ready.len()
    }

    /// The program of the last call, unless the next call wants its own.
    pub(super) fn last(&self) -> Option<Arc<Entry<T>>> {
        if is_selecting() {
            return None;
        }
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The program for an argument of these leaves and this structure. `trace` gives the function's program, the paths of the leaves, and a
    /// tree like its results.
    ///
    /// # Errors
    /// That of `trace`; a leaf that has failed, at the line `loc` of the function.
    pub(super) fn entry(
        &self,
        loc: Loc,
        leaves: &[Tensor],
        structure: Structure,
        trace: &mut dyn FnMut() -> Result<(Program, Vec<Path>, T)>,
    ) -> Result<Arc<Entry<T>>> {
        let avals = avals(leaves).map_err(|e| e.at(loc))?;
        let mut key = Key { structure, avals, order: None, axes: bindings() };
        // One of several threads traces and the others wait, unless they are tracing themselves: then another thread may wait for them, and
        // they trace on their own. A function that calls itself does the same. Under a selection of layers the program has regions that
        // other calls do not want, so it is traced for this call only.
        let mut cache = self.cache();
        let own = loop {
            if is_selecting() {
                break None;
            }
            for order in [None, Some((Order::current(), region_policy()))] {
                key.order = order;
                if let Some(entry) = cache.ready.get(&key) {
                    *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry.clone());
                    return Ok(entry);
                }
            }
            if cache.tracing.insert(key.clone()) {
                break Some(Claim { programs: self, key: &key });
            }
            if Tracer::is_open() {
                break None;
            }
            cache = self.traced.wait(cache).unwrap_or_else(PoisonError::into_inner);
        };
        // Traced without the lock: the function may call this very function again.
        drop(cache);
        let (program, paths, like) = trace()?;
        // Values of a trace that is open now cannot be used in another one.
        let is_cacheable = !is_selecting() && program.captured.iter().all(|t| !t.is_traced());
        let paths = paths.iter().map(|path| path.to_string().into()).collect();
        let order = key.order.clone().filter(|_| calls_custom_functions(&program.jaxpr));
        let executables = Executables { program, paths, compiled: Mutex::default() };
        let entry = Arc::new(Entry { key: Key { order, ..key.clone() }, executables, like });
        if is_cacheable {
            self.cache().ready.insert(entry.key.clone(), entry.clone());
        }
        drop(own);
        Ok(entry)
    }

    fn cache(&self) -> MutexGuard<'_, Cache<T>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claim of a thread to trace a function. Dropping it wakes the waiting threads.
struct Claim<'a, T> {
    programs: &'a Programs<T>,
    key: &'a Key,
}

impl<T> Drop for Claim<'_, T> {
    /// Also runs if the function failed or panicked: the next thread then traces it.
    fn drop(&mut self) {
        self.programs.cache().tracing.remove(self.key);
        self.programs.traced.notify_all();
    }
}

/// A traced function, and its executables once they are needed.
pub(super) struct Executables {
    program: Program,
    /// The path of each leaf of the argument.
    paths: Arc<[Arc<str>]>,
    /// One for each device on which it has run.
    compiled: Mutex<Vec<Arc<Compiled>>>,
}

impl Executables {
    pub(super) fn traced(&self, target: &Target) -> Traced {
        Traced::new(self.program.clone(), self.paths.clone(), target.clone())
    }

    /// The results of a call of a function with this name as an equation of the open trace, at the line `loc` of the function.
    pub(super) fn staged(&self, name: &Arc<str>, leaves: Vec<Tensor>, loc: Loc) -> Result<Vec<Tensor>> {
        let operands = operands(&self.program.captured, leaves);
        let op = remat_ir::Jit { name: name.clone(), jaxpr: self.program.jaxpr.clone() };
        bind_at(op, &operands.iter().collect::<Vec<_>>(), loc)
    }

    /// The executable for a call with these leaves.
    ///
    /// # Errors
    /// If the leaves and captured values are on two devices; if the program does not compile, or not within its limit.
    #[track_caller]
    pub(super) fn compiled(&self, target: &Target, leaves: &[Tensor]) -> Result<Arc<Compiled>> {
        let device = target.device_for("jit", &self.program.captured, leaves)?;
        let mut all = self.all();
        let found = all.iter().position(|compiled| compiled.device().name() == device.name());
        let donated = || {
            let captured = self.program.captured.iter().map(|_| false);
            captured.chain(leaves.iter().map(|leaf| is_donated(&device, leaf))).collect::<Vec<bool>>()
        };
        // An argument that is donated once is usually donated again. If it is not, a program with a limit may have to be another one, and
        // that one replaces the first, which keeps its memory between calls.
        let donated = match found.map(|at| &all[at]) {
            Some(compiled) if !compiled.counts_on_donation() => return Ok(compiled.clone()),
            Some(compiled) => {
                let donated = donated();
                if compiled.fits(&donated) {
                    return Ok(compiled.clone());
                }
                compiled.donated_by_both(&donated)
            }
            None => donated(),
        };
        let compiled = Arc::new(self.traced(target).lower()?.compile_on(&device, donated)?);
        if let Some(at) = found {
            all.swap_remove(at);
        }
        all.push(compiled.clone());
        Ok(compiled)
    }

    /// The executables, locked.
    pub(super) fn all(&self) -> MutexGuard<'_, Vec<Arc<Compiled>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a call donates a leaf: its memory has no other reference, and is the device's.
pub(super) fn is_donated(device: &Device, leaf: &Tensor) -> bool {
    match &leaf.0 {
        Repr::Concrete(Value::Host(array)) => device.engine().plans_memory() && array.is_donated(),
        Repr::Concrete(value) => value.is_donated(),
        _ => false,
    }
}

/// Whether a custom function is called in a program or in one of its bodies.
fn calls_custom_functions(jaxpr: &Jaxpr) -> bool {
    let is_custom = |op: &Op| matches!(op, Op::Call(Call::CustomJvp(_) | Call::CustomVjp(_) | Call::CustomLin(_)));
    jaxpr
        .eqns
        .iter()
        .any(|eqn| is_custom(&eqn.op) || eqn.op.bodies().into_iter().any(|body| calls_custom_functions(body)))
}
