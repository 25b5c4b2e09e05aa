//! Work for several threads whose results do not depend on how many there are.

use std::iter::once;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

/// What `run` makes of each job, in the order of the jobs. This thread and at most `threads - 1` others take the next job when they are done
/// with one; if the system starts fewer threads, there are fewer.
///
/// ```
/// use remat_plan::side_by_side;
/// assert_eq!(side_by_side(2, vec![1, 2, 3], |x| x * x), [1, 4, 9]);
/// ```
pub fn side_by_side<J: Send, T: Send>(threads: usize, jobs: Vec<J>, run: impl Fn(J) -> T + Sync) -> Vec<T> {
    let others = threads.min(jobs.len()).saturating_sub(1);
    let jobs = Mutex::new(jobs.into_iter().enumerate());
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Vec<(usize, T)> { std::iter::from_fn(next).map(|(number, job)| (number, run(job))).collect() };
    let mut done = scope(|threads| {
        let started: Vec<_> = (0..others).map_while(|_| Builder::new().spawn_scoped(threads, work).ok()).collect();
        let mine = work();
        let theirs =
            started.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        once(mine).chain(theirs.collect::<Vec<_>>()).flatten().collect::<Vec<_>>()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
