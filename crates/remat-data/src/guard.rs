//! Readers of other crates, some of which panic at damaged files.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether this thread reads, so that a panic is an error that is returned, and is not printed.
    static READS: Cell<bool> = const { Cell::new(false) };
}

/// The result of reading.
///
/// # Errors
/// The message of a panic, which is not printed. What was read from is not to be used further.
pub(crate) fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !READS.get() {
                others(panic);
            }
        }));
    });
    let before = READS.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    READS.set(before);
    result.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("its reader has panicked").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_reader_is_an_error() {
        assert_eq!(guarded(|| 7), Ok(7));
        let inside = || guarded(|| panic::panic_any("cut off"));
        assert_eq!(inside(), Err::<(), _>("cut off".into()));
        // One reader in another: the outer one goes on.
        assert_eq!(guarded(|| (inside().unwrap_err(), READS.get())), Ok(("cut off".into(), true)));
        assert_eq!(guarded(|| panic!("at {}", 3)), Err::<(), _>("at 3".into()));
        assert_eq!(guarded(|| panic::panic_any(3)), Err::<(), _>("its reader has panicked".into()));
        // Panics elsewhere are printed.
        assert!(!READS.get());
        assert_eq!(guarded(|| std::thread::spawn(|| READS.get()).join().unwrap()), Ok(false));
    }
}
