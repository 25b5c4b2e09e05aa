//! Draws from finite sets: events, categories, permutations, samples.

use remat_ir::{Error, ErrorKind, Gather, IndexMode, Literal, Result, Shape, Sort, TopK};

use super::Key;
use super::float::{noise, unit};
use super::integer::{randint, raw};
use super::ops::{expect_float, integer, parameter, shape, size};
use crate::argument::{Axes, Dims, Int, Operand};
use crate::trace::{bind, bind1, composed, deferred};
use crate::{DType, Tensor};

/// Bools that are true with probability `p`: JAX's `bernoulli`, with `p` in `dtype`.
///
/// `p` is converted to `dtype`, the dtype of the uniform numbers with which it is compared, and broadcast to the shape. A dtype that is not
/// a float gives a failed tensor.
///
/// ```
/// use remat::{DType, random};
/// let x = random::bernoulli(random::key(0), [4], DType::F32, 0.5);
/// assert_eq!(x.to_vec::<bool>()?, [false, false, true, true]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn bernoulli(key: Key, shape: impl Dims, dtype: DType, p: impl Operand) -> Tensor {
    const NAME: &str = "random::bernoulli";
    deferred(|| {
        let shape = self::shape(NAME, shape)?;
        expect_float(NAME, dtype)?;
        let p = parameter(NAME, p.argument(), dtype, &shape)?;
        composed(NAME, [&p], |[p]| Ok(unit(&key, NAME, &shape, dtype)?.lt(p)))
    })
}

/// Random indices along `axis` with the probabilities `softmax(logits, axis)`: JAX's `categorical`.
///
/// `draws` are leading dimensions of the result, which is i32 with the shape `draws` followed by that of `logits` without `axis`; `()`
/// draws once from each distribution. `logits` are unnormalized floats; a logit of minus infinity is never drawn. An axis that is empty or
/// out of range gives a failed tensor.
///
/// ```
/// use remat::{Tensor, random};
/// let logits = Tensor::from(vec![0.5f32.ln(), f32::NEG_INFINITY, 0.5f32.ln()]);
/// let x = random::categorical(random::key(0), [100], &logits, -1);
/// assert!(x.to_vec::<i32>()?.iter().all(|x| *x == 0 || *x == 2));
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn categorical(key: Key, draws: impl Dims, logits: &Tensor, axis: impl Int) -> Tensor {
    const NAME: &str = "random::categorical";
    deferred(|| {
        let aval = logits.aval()?;
        expect_float(NAME, aval.dtype)?;
        let axis = [axis].resolve(NAME, aval)?[0];
        if aval.shape[axis] == 0 {
            return Err(Error::new(ErrorKind::Shape, NAME, format!("axis {axis} of {aval} has no category")));
        }
        let draws = draws.to_shape(NAME)?;
        let all: Vec<usize> = draws.iter().chain(&aval.shape).copied().collect();
        // The index of the largest logit with added Gumbel noise has the probabilities of the softmax.
        Ok((noise(&key, NAME, &shape(NAME, all)?, aval.dtype)? + logits).argmax(draws.len() + axis))
    })
}

/// The integers `0..n` in random order, as i32: JAX's `permutation` of an integer.
///
/// ```
/// use remat::random;
/// let order = random::permutation(random::key(0), 5);
/// assert_eq!(order.to_vec::<i32>()?, [0, 1, 4, 3, 2]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If `n` does not fit an i32: a failed tensor.
#[track_caller]
pub fn permutation(key: Key, n: usize) -> Tensor {
    const NAME: &str = "random::permutation";
    deferred(|| order(key, NAME, n))
}

/// `x` with its slices along `axis` in random order: JAX's `permutation` of an array.
///
/// ```
/// use remat::{Tensor, random};
/// let x = random::shuffle(random::key(0), &Tensor::from(vec![10, 20, 30]), 0);
/// let mut sorted = x.to_vec::<i32>()?;
/// sorted.sort();
/// assert_eq!(sorted, [10, 20, 30]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the axis is out of range, or its size does not fit an i32: a failed tensor.
#[track_caller]
pub fn shuffle(key: Key, x: &Tensor, axis: impl Int) -> Tensor {
    const NAME: &str = "random::shuffle";
    deferred(|| {
        let aval = x.aval()?;
        let axis = [axis].resolve(NAME, aval)?[0];
        if aval.rank() == 1 {
            sort_rounds(key, NAME, x, 0)
        } else {
            take(x, &order(key, NAME, aval.shape[axis])?, axis)
        }
    })
}

/// `x` with the elements of each vector along `axis` in an independent random order: JAX's `permutation` with `independent`.
///
/// ```
/// use remat::{DType, random};
/// let [a, b] = random::key(0).split();
/// let x = random::permuted(b, &random::randint(a, [3, 4], DType::I32, 0..10), -1);
/// assert_eq!(x.shape()?, [3, 4]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the axis is out of range: a failed tensor.
#[track_caller]
pub fn permuted(key: Key, x: &Tensor, axis: impl Int) -> Tensor {
    const NAME: &str = "random::permuted";
    deferred(|| sort_rounds(key, NAME, x, [axis].resolve(NAME, x.aval()?)?[0]))
}

/// Options of [`choice`]; by default it draws with replacement and equal probabilities.
///
/// ```
/// use remat::random::Choice;
/// let hand = Choice { without_replacement: true, ..Choice::default() };
/// # assert!(hand.p.is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Whether to draw without replacement, so that no integer is drawn twice.
    pub without_replacement: bool,
    /// The probabilities, a float tensor of `n` elements; `None` means equal ones. With replacement they need not add up to 1.
    pub p: Option<Tensor>,
}

/// Random integers of `0..n`, an i32 tensor of this shape: JAX's `choice`. To draw from a tensor, take its elements at these indices.
///
/// Probabilities of f16 and bf16 are computed in f32, unlike JAX's: the cumulative distribution has too few numbers in their own dtype.
///
/// More draws without replacement than `n`, draws from an empty set, or probabilities of another shape give a failed tensor. Without
/// replacement, `p` should have at least as many positive elements as there are draws.
///
/// ```
/// use remat::random::{self, Choice};
/// let hand = Choice { without_replacement: true, ..Choice::default() };
/// let cards = random::choice(random::key(0), [5], 52, &hand);
/// assert_eq!(cards.shape()?, [5]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn choice(key: Key, shape: impl Dims, n: usize, options: &Choice) -> Tensor {
    const NAME: &str = "random::choice";
    deferred(|| {
        expect_i32(NAME, n)?;
        let shape = self::shape(NAME, shape)?;
        let draws = size(&shape);
        if draws == 0 {
            return Ok(Tensor::zeros(shape, DType::I32));
        }
        if n == 0 || (options.without_replacement && draws > n) {
            let how = if options.without_replacement { " without replacement" } else { "" };
            let message = format!("{n} elements do not suffice for {draws} draws{how}");
            return Err(Error::new(ErrorKind::Argument, NAME, message));
        }
        let flat = match (&options.p, options.without_replacement) {
            (None, false) => return Ok(randint(key, shape, DType::I32, 0..n)),
            (None, true) => order(key, NAME, n)?.split_at(&[draws], 0).swap_remove(0),
            (Some(p), false) => search(key, NAME, &probabilities(p, n)?, n, draws)?,
            (Some(p), true) => {
                let p = probabilities(p, n)?;
                let scores = noise(&key, NAME, &[n], p.dtype()?)? + p.log();
                bind(TopK { k: draws }, &[&scores], 2).swap_remove(1)
            }
        };
        Ok(flat.reshape(shape))
    })
}

/// The integers `0..n` in random order.
///
/// # Errors
/// If they do not fit an i32.
fn order(key: Key, operation: &str, n: usize) -> Result<Tensor> {
    expect_i32(operation, n)?;
    sort_rounds(key, operation, &Tensor::iota(n, 0, DType::I32), 0)
}

/// Sorts by random keys of 32 bits, in enough rounds that equal keys in every round are improbable. Source: the shuffle of TensorFlow's XLA
/// bridge, which JAX follows.
fn sort_rounds(mut key: Key, operation: &str, x: &Tensor, axis: usize) -> Result<Tensor> {
    let aval = x.aval()?;
    let rounds = (3.0 * (aval.size().max(1) as f64).ln() / f64::from(u32::MAX).ln()).ceil() as usize;
    let mut x = x.clone();
    for _ in 0..rounds {
        let [next, now] = key.split();
        key = next;
        let words = raw(&now, operation, &aval.shape, DType::U32)?;
        x = bind(Sort { axis, num_keys: 1, is_stable: true }, &[&words, &x], 2).swap_remove(1);
    }
    Ok(x)
}

/// The probabilities of `n` elements, in the dtype in which they are computed.
///
/// # Errors
/// If they have another shape, or are not floats.
fn probabilities(p: &Tensor, n: usize) -> Result<Tensor> {
    let aval = p.aval()?;
    if aval.shape[..] == [n] && aval.dtype.is_float() {
        return Ok(p.to_dtype(aval.dtype.wide()));
    }
    let message = format!("takes the probabilities of {n} elements as floats of shape [{n}], and got {aval}");
    Err(Error::new(ErrorKind::Shape, "random::choice", message))
}

/// Draws with replacement by inverting the cumulative distribution, by bisection.
fn search(key: Key, operation: &str, p: &Tensor, n: usize, draws: usize) -> Result<Tensor> {
    let cumulative = p.cumsum(0);
    let total = cumulative.split_at(&[n - 1], 0).swap_remove(1);
    let target = total * (1 - unit(&key, operation, &[draws], p.dtype()?)?);
    let mut low = Tensor::zeros(draws, DType::I32);
    let mut high = integer(DType::I32, n as i128).broadcast_to(draws);
    for _ in 0..(n + 1).next_power_of_two().ilog2() {
        // Half of the difference, since the sum could overflow.
        let middle = &low + (&high - &low) / 2;
        let below = take(&cumulative, &middle, 0)?.lt(&target);
        (low, high) = (below.select(&middle, &low), below.select(&high, &middle));
    }
    Ok(high)
}

/// The slices of `x` along `axis` at these indices, which are in range.
fn take(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
    let aval = x.aval()?;
    let mut slice_sizes = aval.shape.clone();
    slice_sizes[axis] = slice_sizes[axis].min(1);
    let op = Gather {
        offset_dims: (0..aval.rank()).filter(|&d| d != axis).collect(),
        collapsed_slice_dims: Shape::from_elem(axis, 1),
        start_index_map: Shape::from_elem(axis, 1),
        operand_batching_dims: Shape::new(),
        start_indices_batching_dims: Shape::new(),
        slice_sizes,
        mode: IndexMode::Clip,
        fill_value: Literal::from_f64(aval.dtype, 0.0),
    };
    Ok(bind1(op, &[x, &indices.expand_dims(1)]))
}

/// Fails unless the integers below `n` fit an i32.
fn expect_i32(operation: &str, n: usize) -> Result<()> {
    if i32::try_from(n).is_ok() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Argument, operation, format!("{n} elements are too many for i32 indices")))
}
