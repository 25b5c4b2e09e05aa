//! Keys: the state of the generator.

use std::fmt;

use remat_ir::{DType, Error, ErrorKind, Result, Shape, Slice, Threefry2x32};

use super::ops::{integer, size};
use crate::argument::{Operand, Scalar};
use crate::tensor::Argument;
use crate::trace::{bind, bind1, deferred, pinned};
use crate::tree::Walk;
use crate::{Tensor, Tree};

/// The state of the random number generator: two words of 32 bits. It is neither `Copy` nor `Clone`, and samplers take it by value, so each
/// key is used once; `split` and `fold_in` create new ones.
///
/// A key is a [`Tree`] of one tensor, `u32[2]`, so it can be an argument or a result of any transformation; inside `vmap` each example has
/// its own. Only the library copies keys, where it takes trees apart and rebuilds them. A traced function gets its arguments by reference:
/// there, [`Key::fold_in`] a number that differs for each use, or call [`Key::reuse`].
///
/// ```
/// use remat::{DType, random};
/// let [weights, dropout] = random::key(42).split();
/// let x = random::normal(weights, [3], DType::F32);
/// let mask = random::bernoulli(dropout, [3], DType::F32, 0.9);
/// # assert_eq!(x.shape()?, mask.shape()?);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// ```compile_fail,E0382
/// # use remat::random;
/// let key = random::key(42);
/// let [a, b] = key.split();
/// let [c, d] = key.split();
/// ```
///
/// ```compile_fail,E0599
/// # use remat::random;
/// let copy = random::key(42).clone();
/// ```
pub struct Key(Tensor);

/// A key from a seed: JAX's `jax.random.key`. (JAX without `jax_enable_x64` ignores the upper half of the seed.)
///
/// ```
/// use remat::random;
/// assert_eq!(random::key(1701).data().to_vec::<u32>()?, [0, 1701]);
/// # Ok::<(), remat::Error>(())
/// ```
pub fn key(seed: u64) -> Key {
    Key(Tensor::from(vec![(seed >> 32) as u32, seed as u32]))
}

impl Key {
    /// `N` independent keys: JAX's `split`. The pattern on the left determines `N`.
    ///
    /// ```
    /// use remat::random;
    /// let [next, now] = random::key(0).split();
    /// assert_eq!(now.data().to_vec::<u32>()?, [928981903, 3453687069]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn split<const N: usize>(self) -> [Key; N] {
        pinned(|| {
            let keys = self.split_batch(N);
            std::array::from_fn(|i| keys.row(i))
        })
    }

    /// `n` independent keys, where `n` is known only at run time.
    ///
    /// ```
    /// use remat::random;
    /// let layers = random::key(0).split_vec(12);
    /// assert_eq!(layers.len(), 12);
    /// ```
    #[track_caller]
    pub fn split_vec(self, n: usize) -> Vec<Key> {
        pinned(|| {
            let keys = self.split_batch(n);
            // Failed keys all have the same error, and their number may exceed memory.
            let n = if keys.0.error().is_some() { n.min(1 << 16) } else { n };
            (0..n).map(|i| keys.row(i)).collect()
        })
    }

    /// `n` independent keys stacked, `u32[n,2]`, to map or scan over. Samplers do not accept a stack.
    ///
    /// ```
    /// use remat::random;
    /// let keys = random::key(0).split_batch(12);
    /// assert_eq!(keys.data().shape()?, [12, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn split_batch(self, n: usize) -> Key {
        Key(deferred(|| {
            let [first, second] = self.blocks("random::split", &[n])?;
            Ok(Tensor::stack(&[first, second], 1))
        }))
    }

    /// A new key from this one and an integer, which is converted to u32: JAX's `fold_in`. This key stays usable, since the integer
    /// distinguishes the uses: fold in the number of the step, of the layer, or of the use.
    ///
    /// ```
    /// use remat::random;
    /// let key = random::key(0);
    /// let (first, second) = (key.fold_in(1), key.fold_in(2));
    /// assert_eq!(first.data().to_vec::<u32>()?, [928981903, 3453687069]);
    /// assert_ne!(first.data().to_vec::<u32>()?, second.data().to_vec::<u32>()?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn fold_in(&self, data: impl Operand) -> Key {
        Key(deferred(|| {
            let [k0, k1] = self.words("random::fold_in")?;
            let data = index(data.argument())?;
            Ok(Tensor::stack(&block([&k0, &k1], [&integer(DType::U32, 0), &data])?, 0))
        }))
    }

    /// An explicit copy of the key, which draws the same numbers as the key itself: JAX's `jax.random.clone`. A traced function, which gets
    /// its arguments by reference, needs it to use a key in its argument as it is.
    ///
    /// ```
    /// use remat::{DType, random};
    /// let key = random::key(0);
    /// let x = random::uniform(key.reuse(), [2], DType::F32, 0.0..1.0);
    /// let same = random::uniform(key, [2], DType::F32, 0.0..1.0);
    /// assert_eq!(x.to_vec::<f32>()?, same.to_vec::<f32>()?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[doc(alias = "clone")]
    pub fn reuse(&self) -> Key {
        Key(self.0.clone())
    }

    /// The words of the key, `u32[2]`, or of stacked keys, `u32[n,2]`: JAX's `key_data`.
    ///
    /// ```
    /// use remat::random;
    /// assert_eq!(random::key(7).data().to_vec::<u32>()?, [0, 7]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn data(&self) -> &Tensor {
        &self.0
    }

    /// The key with these words, as returned by [`Key::data`], for example to load a key from disk: JAX's `wrap_key_data`. A tensor that is
    /// not a key fails where it is used.
    ///
    /// ```
    /// use remat::{Tensor, random::Key};
    /// let key = Key::from_data(Tensor::from(vec![0u32, 7]));
    /// assert_eq!(key.data().to_vec::<u32>()?, [0, 7]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn from_data(data: Tensor) -> Key {
        Key(data)
    }

    /// Two random words for each element of a shape, in one dimension: the block function applied to the element's index.
    ///
    /// # Errors
    /// If this is not one key.
    pub(super) fn blocks(&self, operation: &str, shape: &[usize]) -> Result<[Tensor; 2]> {
        let [k0, k1] = self.words(operation)?;
        let size = size(shape);
        let (high, low) = if shape.is_empty() {
            (integer(DType::U32, 0), integer(DType::U32, 0))
        } else if u32::try_from(size.saturating_sub(1)).is_ok() {
            (integer(DType::U32, 0), Tensor::iota(size, 0, DType::U32))
        } else {
            let count = Tensor::iota(size, 0, DType::U64);
            (count.shift_right_logical(32).to_dtype(DType::U32), count.to_dtype(DType::U32))
        };
        block([&k0, &k1], [&high, &low])
    }

    /// The two words as scalars.
    ///
    /// # Errors
    /// If this is not one key.
    fn words(&self, operation: &str) -> Result<[Tensor; 2]> {
        let aval = self.0.aval()?;
        if aval.dtype != DType::U32 || aval.shape[..] != [2] {
            let hint =
                if aval.rank() > 1 { "; map over stacked keys with `vmap`, or make them with `split`" } else { "" };
            let message = format!("takes one key, of type u32[2], and got {aval}{hint}");
            return Err(Error::new(ErrorKind::Shape, operation, message));
        }
        Ok([0, 1].map(|i| row(&self.0, i).reshape(())))
    }

    /// One key of a stack.
    fn row(&self, index: usize) -> Key {
        Key(row(&self.0, index).reshape([2]))
    }
}

impl Tree for Key {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        Key(walk.leaf(&self.0))
    }
}

impl fmt::Debug for Key {
    /// Prints the type of the words, not the words, which a trace does not know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.aval() {
            Ok(aval) => write!(f, "Key({aval})"),
            Err(error) => write!(f, "Key({error})"),
        }
    }
}

fn block(key: [&Tensor; 2], counter: [&Tensor; 2]) -> Result<[Tensor; 2]> {
    let words = bind(Threefry2x32, &[key[0], key[1], counter[0], counter[1]], 2);
    <[Tensor; 2]>::try_from(words).map_err(|words| {
        let message = format!("expected 2 results and got {}", words.len());
        Error::new(ErrorKind::Internal, "threefry2x32", message)
    })
}

/// `x[index..index + 1]`
fn row(x: &Tensor, index: usize) -> Tensor {
    let Ok(aval) = x.aval() else { return x.clone() };
    let (mut start, mut limit) = (Shape::from_elem(0, aval.rank()), aval.shape.clone());
    (start[0], limit[0]) = (index, index + 1);
    bind1(Slice { start, limit, strides: Shape::from_elem(1, aval.rank()) }, &[x])
}

/// The number to fold into a key, as a u32 scalar.
///
/// # Errors
/// If it is not an integer scalar.
fn index(data: Argument<'_>) -> Result<Tensor> {
    let got = match data {
        Argument::Scalar(Scalar::Int(value)) => return Ok(integer(DType::U32, value)),
        Argument::Scalar(Scalar::Float(value)) => format!("{value:?}"),
        Argument::Scalar(Scalar::Bool(value)) => value.to_string(),
        Argument::Tensor(data) => {
            let aval = data.aval()?;
            if aval.dtype.is_integer() && aval.rank() == 0 {
                return Ok(data.to_dtype(DType::U32));
            }
            aval.to_string()
        }
    };
    Err(Error::new(ErrorKind::Argument, "random::fold_in", format!("takes an integer and got {got}")))
}
