//! Steps that update a state in place.

use remat_ir::{Error, ErrorKind, Loc, Result};

use super::jit::Jitted;
use crate::trace::{Output, Tensor, Tracer, Tree, cloned, current_loc, leaves, map, rebuild};

impl<S: Tree, B: Tree, X: Tree, R: Output<Tree = (S, X)>, F: Fn(&(S, B)) -> R> Jitted<(S, B), R, F> {
    /// Runs a function of a state and a batch that returns the next state and a result, and puts the next state in the place of the old one.
    /// The old state is donated: the new one takes its memory, unless something else refers to it. The batch is kept.
    ///
    /// ```
    /// use remat::{DType, Tensor, jit};
    /// let step = jit(|(sum, x): &(Tensor, Tensor)| (sum + x, x.max(..)));
    /// let mut sum = Tensor::zeros([3], DType::F32);
    /// for x in [Tensor::new([1.0f32, 2.0, 3.0]), Tensor::new([4.0f32, 4.0, 4.0])] {
    ///     let largest = step.update(&mut sum, &x)?;
    ///     println!("the largest is {largest}");
    /// }
    /// assert_eq!(sum.to_vec::<f32>()?, [5.0, 6.0, 7.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// An error before the run leaves the state as it was: an error inside the function, such as that of a batch of the wrong shape, a
    /// program that does not compile or is over its memory limit, tensors on two devices. A run that fails may have overwritten a part of the
    /// state, so the state is lost: its tensors are failed ones, and using it is an error that says so. A run with
    /// [`Checks`](crate::Checks) keeps the state while it runs, and leaves it as it was if it fails.
    ///
    /// On a device with its own memory the next state may still be pending when this returns. If its run fails, reading the state returns the
    /// error.
    ///
    /// # Errors
    /// As [`Jitted::call`].
    #[track_caller]
    pub fn update(&self, state: &mut S, batch: &B) -> Result<X> {
        let loc = current_loc();
        let args = (cloned(state), cloned(batch));
        let (given, entry) = self.found(&args)?;
        drop(args);
        if Tracer::is_open() {
            let (next, result) = rebuild(&entry.like, self.staged(&entry, given, loc)?)?;
            *state = next;
            return Ok(result);
        }
        let count = leaves(state).len();
        // Without references of the state, the run may overwrite its tensors. If it panics, these stand for them.
        *state = lost(state, ErrorKind::Internal, "did not return", loc);
        let outs = match entry.executables.compiled(&self.target, &given) {
            Ok(compiled) => compiled.run_or_return("jit", given, loc),
            Err(error) => Err((error, Some(given))),
        };
        match outs {
            Ok(outs) => {
                let (next, result) = rebuild(&entry.like, outs)?;
                *state = next;
                Ok(result)
            }
            Err((error, Some(mut kept))) => {
                kept.truncate(count);
                *state = rebuild(state, kept)?;
                Err(error.at(loc))
            }
            Err((error, None)) => {
                let failed = format!("failed ({}: {})", error.operation(), error.message());
                *state = lost(state, error.kind(), &failed, loc);
                Err(error.at(loc))
            }
        }
    }
}

/// The state with failed tensors, after a run that may have overwritten them.
fn lost<S: Tree>(state: &S, kind: ErrorKind, what: &str, loc: Loc) -> S {
    let message = format!("the state is lost: a run that {what} may have overwritten it; create it anew, or load it");
    let error = Error::new(kind, "update", message).at(loc);
    map(state, |_| Tensor::failed(error.clone()))
}
