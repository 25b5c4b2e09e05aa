//! The cache of a decoder: keys and values of the positions so far.

use remat_ir::{Error, ErrorKind, Result};

use super::{AttentionConfig, dot_product_attention};
use crate::trace::{current_loc, pinned};
use crate::{DType, Tensor, Tree};

/// The keys and values of the positions that a decoder has seen, with room for a fixed number of them. So its shape is the same in every
/// call, first for a whole prompt, then for one position at a time, and a jitted function that takes one position is compiled once.
///
/// A model takes a cache and returns the next one: [`Gpt2::apply_cached`](super::Gpt2::apply_cached). If the cache is donated to a jitted
/// function, the new positions are written in place.
///
/// Positions past the end, and a layer that does not exist, are errors if `length` and the number of the layer are known. Inside a trace
/// these are unknown, and the results are NaN.
#[derive(Clone, Debug, Tree)]
pub struct KvCache {
    /// `[layers, batch, positions, key heads, features]`
    pub keys: Tensor,
    /// `[layers, batch, positions, key heads, features]`
    pub values: Tensor,
    /// The number of positions so far, an i32 scalar.
    pub length: Tensor,
    /// The first position with a token for each sequence of the batch, `i32[batch]`, if sequences of different lengths end at the same
    /// position. `None` means that all begin at the first position.
    pub first: Option<Tensor>,
}

const NAME: &str = "nn::KvCache";

impl KvCache {
    /// An empty cache. The shape is `[layers, batch, positions, key heads, features]`.
    ///
    /// ```
    /// use remat::nn::KvCache;
    /// let cache = KvCache::new([2, 1, 16, 4, 8]);
    /// assert_eq!((cache.length.item::<i32>()?, cache.keys.shape()?), (0, &[2, 1, 16, 4, 8][..]));
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn init(shape: [usize; 5], dtype: DType) -> KvCache {
        pinned(|| KvCache {
            keys: Tensor::zeros(shape, dtype),
            values: Tensor::zeros(shape, dtype),
            length: Tensor::from(0i32),
            first: None,
        })
    }

    /// The positions of the next `count` tokens, `i32[count]`, or `i32[batch, count]`, counted from the first token of each sequence, if
    /// sequences begin at different positions. Entries before a first token have position 0.
    ///
    /// # Errors
    /// If so many tokens do not fit in the cache.
    ///
    /// ```
    /// use remat::nn::KvCache;
    /// let cache = KvCache::new([1, 2, 8, 4, 16]);
    /// assert_eq!(cache.positions(3)?.to_vec::<i32>()?, [0, 1, 2]);
    /// let full = cache.advanced(6);
    /// let message = "6 of 8 positions are taken, and 3 more do not fit";
    /// assert_eq!(full.positions(3).unwrap_err().message(), message);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn positions(&self, count: usize) -> Result<Tensor> {
        let loc = current_loc();
        pinned(|| {
            let slots = self.slots(count)?;
            Ok(match &self.first {
                None => slots,
                Some(first) => (slots - first.expand_dims(-1)).maximum(0),
            })
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// The slots of the next `count` tokens, `i32[count]`.
    fn slots(&self, count: usize) -> Result<Tensor> {
        self.expect_room(count)?;
        // At most the room, which is the size of an axis with i32 positions.
        Ok(Tensor::arange(0..i32::try_from(count).unwrap_or(i32::MAX)) + &self.length)
    }

    fn room(&self) -> Result<usize> {
        let aval = self.keys.aval()?;
        match aval.shape[..] {
            [_, _, positions, _, _] if i32::try_from(positions).is_ok() => Ok(positions),
            _ => {
                let message = format!("the keys must be [layers, batch, positions, key heads, features], not {aval}");
                Err(Error::new(ErrorKind::Shape, NAME, message))
            }
        }
    }

    fn expect_room(&self, count: usize) -> Result<()> {
        let room = self.room()?;
        // The length is read if it is known, which it is not inside a trace.
        let taken = if self.length.is_traced() { 0 } else { usize::try_from(self.length.item::<i32>()?).unwrap_or(0) };
        if taken.saturating_add(count) > room {
            let message = format!("{taken} of {room} positions are taken, and {count} more do not fit");
            return Err(Error::new(ErrorKind::Argument, NAME, message));
        }
        Ok(())
    }

    /// The attention of new queries to all positions up to their own, and the cache with the new keys and values added for `layer`, an i32
    /// scalar. Queries are `[batch, positions, heads, features]`, keys and values `[batch, positions, key heads, features]`. Call
    /// [`KvCache::advanced`] after the last layer.
    ///
    /// # Errors
    /// If the positions do not fit, the cache has no such layer, or shapes or dtypes differ from those of the cache.
    ///
    /// ```
    /// use remat::{DType, Tensor, nn::KvCache};
    /// let cache = KvCache::new([2, 1, 8, 1, 4]);
    /// let x = Tensor::ones([1, 3, 1, 4], DType::F32);
    /// let (y, cache) = cache.attend(&Tensor::from(1), &x, &x, &x, None)?;
    /// assert_eq!((y.shape()?, cache.advanced(3).length.item::<i32>()?), (&[1, 3, 1, 4][..], 3));
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn attend(
        &self,
        layer: &Tensor,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        scale: Option<f64>,
    ) -> Result<(Tensor, KvCache)> {
        let loc = current_loc();
        pinned(|| {
            let count = query.aval()?.shape.get(1).copied().unwrap_or(0);
            let slots = self.slots(count)?;
            self.expect_layer(layer)?;
            let write = |held: &Tensor, new: &Tensor| {
                let (expected, given) = (held.aval()?, new.aval()?);
                // Written as a slice, fewer heads or features than in the cache would leave zeros beside them.
                let fits = match expected.shape[..] {
                    [_, batch, _, heads, features] => given.shape[..] == [batch, count, heads, features],
                    _ => false,
                };
                if !fits || given.dtype != expected.dtype {
                    let positions = remat_ir::counted(count, "position");
                    let message = format!("{given} is not {positions} of the cache {expected}");
                    let kind = if fits { ErrorKind::DType } else { ErrorKind::Shape };
                    return Err(Error::new(kind, NAME, message));
                }
                Ok(held.dynamic_update_slice(&new.expand_dims(0), (layer, 0, &self.length, 0, 0)))
            };
            let (keys, values) = (write(&self.keys, key)?, write(&self.values, value)?);
            let room = self.room()?;
            let all = Tensor::iota([1, room], 1, DType::I32);
            let mut seen = all.le(slots.expand_dims(-1));
            if let Some(first) = &self.first {
                // For each sequence, all heads and all queries.
                seen &= all.ge(first.reshape([first.dim(0)?, 1, 1, 1]));
            }
            let config = AttentionConfig { mask: Some(seen), scale, ..AttentionConfig::default() };
            let [own_keys, own_values] = [&keys, &values].map(|all| all.dynamic_index(layer, 0));
            let mut out = dot_product_attention(query, &own_keys, &own_values, &config);
            if self.length.is_traced() || layer.is_traced() {
                let (own, layers) = (layer, self.keys.dim(0)? as i32);
                let fits = (&self.length + count as i32).le(room as i32) & own.ge(0) & own.lt(layers);
                out = fits.select(out, f64::NAN);
            }
            out.aval()?;
            Ok((out, KvCache { keys, values, length: self.length.clone(), first: self.first.clone() }))
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// Fails if the number of a layer is known and the cache has no such layer.
    fn expect_layer(&self, layer: &Tensor) -> Result<()> {
        if layer.is_traced() {
            return Ok(());
        }
        let (number, layers) = (layer.item::<i32>()?, self.keys.dim(0)?);
        if usize::try_from(number).is_ok_and(|number| number < layers) {
            return Ok(());
        }
        let message = format!("there is no layer {number} in a cache of {}", remat_ir::counted(layers, "layer"));
        Err(Error::new(ErrorKind::Argument, NAME, message))
    }

    /// Fails unless the cache has this number of layers. The index of a missing layer would be clamped to the last one.
    pub(super) fn expect_layers(&self, operation: &str, layers: usize) -> Result<()> {
        for held in [&self.keys, &self.values] {
            let aval = held.aval()?;
            if aval.shape.first() != Some(&layers) {
                let layers = remat_ir::counted(layers, "layer");
                let message = format!("the cache {aval} does not have the {layers} of the model");
                return Err(Error::new(ErrorKind::Shape, operation, message));
            }
        }
        Ok(())
    }

    /// The cache with `count` more positions in its length, after all layers have added their keys and values.
    #[must_use]
    #[track_caller]
    pub fn advanced(self, count: usize) -> KvCache {
        pinned(|| KvCache { length: &self.length + i32::try_from(count).unwrap_or(i32::MAX), ..self })
    }
}
