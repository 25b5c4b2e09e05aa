//! Memoization for bodies: a body that occurs again is not transformed again.
//!
//! Transformations of nested control flow ask the same about one body many times. The fixpoint of an outer loop transforms the inner loops
//! in each of its rounds, and each level prunes and checks the levels inside it, which were already pruned and checked when they were made.
//! Without memoization the time grows with a power of the depth.
//!
//! Bodies are immutable and shared, so the address of a body identifies it as long as a reference to it exists. The table holds such a
//! reference. It is open while a transformation runs, and is cleared at the end.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use remat_ir::Jaxpr;

/// The known answers, in one table per type of questions and answers.
#[derive(Default)]
struct Memo {
    /// The number of guards.
    open: usize,
    tables: HashMap<TypeId, Box<dyn Any>>,
}

/// Answers by body and question. The bodies are held so that their addresses stay valid.
type Table<K, V> = HashMap<(*const Jaxpr, K), (Arc<Jaxpr>, V)>;

thread_local! {
    static MEMO: RefCell<Memo> = RefCell::default();
}

/// Keeps the memo of this thread open until it is dropped.
#[must_use]
pub struct Open(PhantomData<*const ()>);

/// Opens the memo of this thread, or keeps it open if it already is.
pub fn open() -> Open {
    MEMO.with_borrow_mut(|memo| memo.open += 1);
    Open(PhantomData)
}

impl Drop for Open {
    fn drop(&mut self) {
        let forgotten = MEMO.with_borrow_mut(|memo| {
            memo.open -= 1;
            if memo.open == 0 { std::mem::take(&mut memo.tables) } else { HashMap::new() }
        });
        drop(forgotten);
    }
}

/// The answer to a question about a body. It is the remembered one, or else the result of `make`, which is remembered if the memo is
/// open. Only one transformation may use a given pair of question and answer types.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
/// use remat_ir::Jaxpr;
/// use remat_opt::memo;
/// let body = Arc::new(Jaxpr::default());
/// let _open = memo::open();
/// let count = || memo::get_or_compute(&body, "equations", || Ok::<_, Infallible>(body.eqns.len()));
/// assert_eq!(count(), Ok(0));
/// assert_eq!(memo::get_or_compute(&body, "equations", || Err::<usize, _>("is not asked")), Ok(0));
/// ```
///
/// # Errors
/// Those of `make`, which are not remembered.
pub fn get_or_compute<K: Hash + Eq + 'static, V: Clone + 'static, E>(
    body: &Arc<Jaxpr>,
    question: K,
    make: impl FnOnce() -> Result<V, E>,
) -> Result<V, E> {
    let key = (Arc::as_ptr(body), question);
    let remembered = MEMO.with_borrow(|memo| {
        let table: &Table<K, V> = memo.tables.get(&TypeId::of::<(K, V)>())?.downcast_ref()?;
        table.get(&key).map(|(_, answer)| answer.clone())
    });
    if let Some(answer) = remembered {
        return Ok(answer);
    }
    let answer = make()?;
    remember(body, key.1, answer.clone());
    Ok(answer)
}

/// Remembers the answer to a question about a body, if the memo is open.
pub fn remember<K: Hash + Eq + 'static, V: 'static>(body: &Arc<Jaxpr>, question: K, answer: V) {
    MEMO.with_borrow_mut(|memo| {
        if memo.open == 0 {
            return;
        }
        let table = memo.tables.entry(TypeId::of::<(K, V)>()).or_insert_with(|| Box::new(Table::<K, V>::new()));
        if let Some(table) = table.downcast_mut::<Table<K, V>>() {
            table.insert((Arc::as_ptr(body), question), (body.clone(), answer));
        }
    });
}
