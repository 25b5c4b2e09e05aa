//! A pool of threads that allocates nothing after it has started.
//!
//! A job is a function and a number of tasks, on the stack of the thread that submits it. That thread and the idle workers take its tasks
//! one by one, and the thread returns when every worker has left the job. Several threads may submit jobs at the same time, and a task may
//! submit one itself.

// Threads borrow a job without knowing how long it lives.
#![allow(unsafe_code)]

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The most jobs that workers can see at one time. A thread that submits one more does all of it itself.
const MAX_JOBS: usize = 64;

/// How often a thread spins before it sleeps, since waking takes longer than many jobs.
const SPINS: usize = 64;

/// Threads that wait for jobs and end with the pool.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// The state that the threads share.
struct Shared {
    state: Mutex<State>,
    /// The number of jobs submitted so far; it changes under the lock.
    submitted: AtomicUsize,
    /// Notified when a job is submitted, and when the pool ends.
    job: Condvar,
    /// Notified when the last worker leaves a job whose owner waits, and when a worker starts.
    left: Condvar,
}

struct State {
    /// The unfinished jobs; the list never grows beyond its initial capacity.
    jobs: Vec<JobAddress>,
    /// The number of workers that have started.
    begun: usize,
    /// The number of sleeping workers.
    asleep: usize,
    /// The number of threads that sleep until workers have left their jobs.
    waiting: usize,
    is_over: bool,
}

struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    tasks: usize,
    /// The first task that no thread has taken.
    next: AtomicUsize,
    /// The number of workers that run its tasks; it changes under the lock.
    helpers: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The address of a job, which exists as long as it is listed in [`State::jobs`] or has a helper.
#[derive(Clone, Copy, PartialEq, Eq)]
struct JobAddress(NonNull<Job<'static>>);

// SAFETY: every part of a job can be used from several threads, since the function is `Sync`.
unsafe impl Send for JobAddress {}

impl Pool {
    /// A pool of this many workers besides the threads that submit jobs.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn new(workers: usize) -> io::Result<Pool> {
        let state = State { jobs: Vec::with_capacity(MAX_JOBS), begun: 0, asleep: 0, waiting: 0, is_over: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            submitted: AtomicUsize::new(0),
            job: Condvar::new(),
            left: Condvar::new(),
        });
        let mut pool = Pool { shared, workers: Vec::with_capacity(workers) };
        for i in 0..workers {
            let shared = pool.shared.clone();
            let worker = thread::Builder::new().name(format!("remat-{}", i + 1)).spawn(move || shared.work())?;
            pool.workers.push(worker);
        }
        // Allocations of a starting thread are not part of a run.
        let mut state = pool.shared.lock();
        while state.begun < workers {
            state = pool.shared.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        Ok(pool)
    }

    /// The number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Calls `task` for each of `tasks` tasks, on this thread and on workers. If a task panics, this panics when all have ended.
    pub(super) fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let (next, helpers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let job = Job { task, tasks, next, helpers, panic: Mutex::new(None) };
        let is_seen = self.shared.submit(&job);
        job.work();
        if is_seen {
            self.shared.withdraw(&job);
        }
        if let Some(panic) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.job.notify_all();
        for worker in self.workers.drain(..) {
            // Workers do not panic: a job keeps its panics.
            let _ = worker.join();
        }
    }
}

impl Job<'_> {
    /// Runs tasks until none is left.
    fn work(&self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while let Some(task) = Some(self.next.fetch_add(1, Relaxed)).filter(|&task| task < self.tasks) {
                (self.task)(task);
            }
        }));
        if let Err(panic) = outcome {
            self.next.store(self.tasks, Relaxed);
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
    }

    fn has_tasks(&self) -> bool {
        self.next.load(Relaxed) < self.tasks
    }

    fn address(&self) -> JobAddress {
        JobAddress(NonNull::from(self).cast())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a job and wakes workers for it, unless too many are listed. A listed job must be withdrawn before its lifetime ends.
    fn submit(&self, job: &Job<'_>) -> bool {
        let mut state = self.lock();
        if state.jobs.len() == MAX_JOBS {
            return false;
        }
        state.jobs.push(job.address());
        self.submitted.fetch_add(1, Release);
        let asleep = state.asleep;
        drop(state);
        // The caller takes one task.
        if asleep < job.tasks {
            if asleep > 0 {
                self.job.notify_all();
            }
        } else {
            (1..job.tasks).for_each(|_| self.job.notify_one());
        }
        true
    }

    /// Waits until no worker runs tasks of an exhausted job, and removes it from the list.
    fn withdraw(&self, job: &Job<'_>) {
        spin_until(|| job.helpers.load(Relaxed) == 0);
        let mut state = self.lock();
        while job.helpers.load(Relaxed) > 0 {
            state.waiting += 1;
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.jobs.retain(|other| !ptr::addr_eq(other.0.as_ptr(), job));
    }

    /// The loop of a worker.
    fn work(&self) {
        self.lock().begun += 1;
        self.left.notify_all();
        while let Some(address) = self.join() {
            // SAFETY: this worker is a helper of the job until it leaves, so that the job is still there.
            unsafe { address.0.as_ref() }.work();
            self.leave(address);
        }
    }

    /// Makes a worker a helper of a job as soon as there is one; `None` when the pool ends.
    fn join(&self) -> Option<JobAddress> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            for &address in &state.jobs {
                // SAFETY: the job is listed, and withdrawing it needs the lock that is held here.
                let job = unsafe { address.0.as_ref() };
                if job.has_tasks() {
                    job.helpers.fetch_add(1, Relaxed);
                    return Some(address);
                }
            }
            let submitted = self.submitted.load(Relaxed);
            drop(state);
            spin_until(|| self.submitted.load(Acquire) != submitted);
            state = self.lock();
            if self.submitted.load(Relaxed) == submitted && !state.is_over {
                state.asleep += 1;
                state = self.job.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.asleep -= 1;
            }
        }
    }

    /// Ends the work that [`Shared::join`] began. The job's lifetime may end as soon as the lock is released.
    fn leave(&self, address: JobAddress) {
        let state = self.lock();
        // SAFETY: this worker is still a helper.
        let helpers = unsafe { address.0.as_ref() }.helpers.fetch_sub(1, Relaxed) - 1;
        if helpers == 0 && state.waiting > 0 {
            self.left.notify_all();
        }
    }
}

/// Spins for a short while until a condition holds, letting other threads run.
fn spin_until(holds: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if holds() {
            return;
        }
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// How often each task ran, which should be once.
    fn counts(pool: &Pool, tasks: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(tasks, &|i| {
            counts[i].fetch_add(1, Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn each_task_runs_once() -> io::Result<()> {
        for workers in 0..4 {
            let pool = Pool::new(workers)?;
            for tasks in (0..20).chain([1000]) {
                assert_eq!(counts(&pool, tasks), vec![1; tasks], "{workers} workers");
            }
        }
        Ok(())
    }

    #[test]
    fn all_threads_take_part() -> io::Result<()> {
        let pool = Pool::new(2)?;
        let all = Barrier::new(3);
        for _ in 0..20 {
            // No task ends before each of them has a thread.
            pool.run(3, &|_| {
                all.wait();
            });
        }
        Ok(())
    }

    #[test]
    fn a_task_may_bring_a_job() -> io::Result<()> {
        let pool = Pool::new(2)?;
        let sum = AtomicUsize::new(0);
        pool.run(5, &|i| {
            pool.run(7, &|j| {
                sum.fetch_add(10 * i + j, Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 10 * 7 * 10 + 5 * 21);
        Ok(())
    }

    #[test]
    fn several_threads_bring_more_jobs_than_are_seen() -> io::Result<()> {
        let pool = Pool::new(2)?;
        let jobs = if cfg!(miri) { 3 } else { 100 };
        thread::scope(|scope| {
            for _ in 0..MAX_JOBS + 3 {
                scope.spawn(|| (0..jobs).for_each(|n| assert_eq!(counts(&pool, n % 5), vec![1; n % 5])));
            }
        });
        assert!(pool.shared.lock().jobs.is_empty());
        Ok(())
    }

    #[test]
    fn a_panic_is_passed_on_when_all_tasks_have_ended() -> io::Result<()> {
        let pool = Pool::new(2)?;
        for bad in [0, 3, 9] {
            let running = AtomicUsize::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(10, &|i| {
                    running.fetch_add(1, Relaxed);
                    if i == bad {
                        running.fetch_sub(1, Relaxed);
                        panic!("task {i}");
                    }
                    thread::yield_now();
                    running.fetch_sub(1, Relaxed);
                });
            }));
            let panic = outcome.expect_err("a task panics");
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("task {bad}")));
            assert_eq!(running.into_inner(), 0);
            assert_eq!(counts(&pool, 10), vec![1; 10], "the pool still works");
        }
        Ok(())
    }
}
