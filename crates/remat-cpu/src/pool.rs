//! The memory of arrays that nobody needs any more, which later results take.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use remat_ir::{Aval, Data, Result};

use crate::arena;

/// The fewest bytes that are kept. The system's allocator keeps smaller blocks itself.
const LEAST: usize = 256 << 10;
/// The most bytes that are kept, of all arrays together.
const MOST: usize = 512 << 20;

/// Elements of discarded arrays. The system clears new memory page by page, which takes several times as long as an elementwise loop over it.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    /// The oldest first.
    arrays: VecDeque<Data>,
    bytes: usize,
}

impl Pool {
    /// As [`arena::elements`], in the memory of a discarded array of this dtype and size, if there is one. Bools are any, too.
    ///
    /// # Errors
    /// If there is no memory for them, and none is left here.
    pub(crate) fn elements(&self, aval: &Aval) -> Result<Data> {
        let is_alike = |data: &Data| data.dtype() == aval.dtype && data.len() == aval.size();
        if aval.bytes() >= LEAST {
            let mut kept = self.kept();
            if let Some(found) = kept.arrays.iter().rposition(is_alike).and_then(|i| kept.arrays.remove(i)) {
                kept.bytes -= aval.bytes();
                return Ok(found);
            }
        }
        arena::elements(aval).or_else(|_| {
            self.clear();
            arena::elements(aval)
        })
    }

    /// Gives all that is kept back to the system.
    pub(crate) fn clear(&self) {
        *self.kept() = Kept::default();
    }

    /// Keeps the elements of an array in place of the oldest ones.
    pub(crate) fn give(&self, data: Data) {
        let bytes = bytes(&data);
        if !(LEAST..=MOST).contains(&bytes) {
            return;
        }
        let mut kept = self.kept();
        kept.arrays.push_back(data);
        kept.bytes += bytes;
        while kept.bytes > MOST
            && let Some(oldest) = kept.arrays.pop_front()
        {
            kept.bytes -= self::bytes(&oldest);
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(data: &Data) -> usize {
    data.len() * data.dtype().size()
}

#[cfg(test)]
mod tests {
    use remat_ir::DType;

    use super::*;

    #[test]
    fn discarded_memory_is_taken_again_and_the_oldest_is_freed() {
        let pool = Pool::default();
        let large = Aval::new(DType::F32, [LEAST / 4]);
        let data = pool.elements(&large).unwrap();
        let start = arena::start(&data);
        pool.give(data);
        for other in [Aval::new(DType::I32, [LEAST / 4]), Aval::new(DType::F32, [LEAST / 4 + 1])] {
            assert_ne!(arena::start(&pool.elements(&other).unwrap()), start);
        }
        assert_eq!(arena::start(&pool.elements(&large.with_shape([2, LEAST / 8])).unwrap()), start);
        assert_eq!(pool.kept().bytes, 0);
        pool.give(arena::elements(&Aval::new(DType::F32, [1])).unwrap());
        pool.give(arena::elements(&large).unwrap());
        assert_eq!(pool.kept().bytes, LEAST);
        let half = Aval::new(DType::U8, [MOST / 2]);
        pool.give(arena::elements(&half).unwrap());
        pool.give(arena::elements(&half).unwrap());
        let kept = pool.kept();
        assert_eq!((kept.bytes, kept.arrays.len()), (MOST, 2));
    }
}
