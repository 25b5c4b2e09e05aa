//! Recurrent layers.

use remat_ir::{Error, ErrorKind, Result};

use super::Linear;
use super::linear::expect_float_weights;
use crate::layer::{deferred, pinned};
use crate::random::{self, Key};
use crate::trace::{current_loc, deferred_array, setters};
use crate::{DType, ScanOptions, Tensor, Tree, named_scope, scan_with};

/// The state of an [`Lstm`] between two positions: hidden values and memory cells, `[batch, features]` each.
#[derive(Clone, Debug, Tree)]
pub struct LstmState {
    /// The result of the position before.
    pub hidden: Tensor,
    /// The memory cells.
    pub cell: Tensor,
}

/// A long short-term memory (LSTM): a loop over positions with an input, a forget and an output gate.
///
/// To stack layers, pass the results of one to the next; for both directions run two, one with `reverse`. One product before the loop
/// covers the inputs of all positions. Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997. The equations are those of
/// `torch.nn.LSTM`, with one bias in place of the sum of two.
///
/// ```
/// use remat::{DType, Tensor, nn::Lstm, random};
/// let lstm = Lstm::new(random::key(0), 3, 8);
/// let (y, last) = lstm.apply(&Tensor::ones([2, 5, 3], DType::F32), None)?;
/// assert_eq!((y.shape()?, last.cell.shape()?), (&[2, 5, 8][..], &[2, 8][..]));
/// // One position more, from where the sequence ended:
/// let next = lstm.step(&Tensor::ones([2, 3], DType::F32), &last);
/// assert_eq!(next.hidden.shape()?, [2, 8]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Lstm {
    /// From the inputs to the input, forget, candidate and output gates, in this order: `[inputs, 4 * features]`.
    pub input: Linear,
    /// From the hidden values to the gates, without a bias: `[features, 4 * features]`.
    pub hidden: Linear,
    /// Whether to run from the last position to the first.
    pub reverse: bool,
}

setters! { Lstm:
    reverse(bool) => reverse;
}

impl Lstm {
    /// Weights that are uniform between minus and plus one over the square root of the number of features, as in PyTorch, and biases of
    /// zeros.
    ///
    /// # Errors
    /// If the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, inputs: usize, features: usize, dtype: DType) -> Lstm {
        pinned(|| {
            let [input, hidden] = key.split();
            let input = uniform(input, inputs, 4, features, dtype);
            Lstm {
                input,
                hidden: Linear { bias: None, ..uniform(hidden, features, 4, features, dtype) },
                reverse: false,
            }
        })
    }

    /// The results `dtype[batch, positions, features]` for all positions of `x`, of type `dtype[batch, positions, inputs]`, and the state
    /// after the last one. The initial state is zeros, or the given one.
    ///
    /// # Errors
    /// If shapes or dtypes do not fit.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, state: Option<&LstmState>) -> Result<(Tensor, LstmState)> {
        let loc = current_loc();
        pinned(|| {
            named_scope("lstm", || {
                let (inputs, zeros) = prepare("nn::Lstm::apply", x, &self.input, &self.hidden)?;
                let begin = state.cloned().unwrap_or_else(|| LstmState { hidden: zeros.clone(), cell: zeros });
                let body = |state: &LstmState, input: &Tensor| {
                    let next = self.next(input, state)?;
                    Ok::<_, Error>((next.clone(), next.hidden))
                };
                let options = ScanOptions { reverse: self.reverse, ..ScanOptions::default() };
                let (last, y) = scan_with(&options, body, &begin, &inputs)?;
                Ok((y.swap_axes(0, 1), last))
            })
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// The state after one more position, whose input is `dtype[batch, inputs]`.
    ///
    /// # Errors
    /// If shapes or dtypes do not fit: failed tensors in both fields.
    #[track_caller]
    pub fn step(&self, x: &Tensor, state: &LstmState) -> LstmState {
        let next = || {
            let LstmState { hidden, cell } = self.next(&self.input.apply(x), state)?;
            Ok([hidden, cell])
        };
        let [hidden, cell] = deferred_array(|| named_scope("lstm", next));
        LstmState { hidden, cell }
    }

    fn next(&self, input: &Tensor, state: &LstmState) -> Result<LstmState> {
        let [taken, forgotten, candidate, given] = gates(&(input + self.hidden.apply(&state.hidden)))?;
        let cell = forgotten.sigmoid() * &state.cell + taken.sigmoid() * candidate.tanh();
        let hidden = given.sigmoid() * cell.tanh();
        hidden.aval()?;
        Ok(LstmState { hidden, cell })
    }
}

/// A gated recurrent unit (GRU): a loop over positions with a reset and an update gate.
///
/// Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014; the equations are those of `torch.nn.GRU`, whose
/// reset gate multiplies the product with the hidden values, bias included.
///
/// ```
/// use remat::{DType, Tensor, nn::Gru, random};
/// let gru = Gru::new(random::key(0), 3, 8);
/// let (y, last) = gru.apply(&Tensor::ones([2, 5, 3], DType::F32), None)?;
/// assert_eq!((y.shape()?, last.shape()?), (&[2, 5, 8][..], &[2, 8][..]));
/// assert!(y.index((.., -1)).allclose(&last, 0.0, 0.0)?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Gru {
    /// From the inputs to the reset and update gates and the candidate, in this order: `[inputs, 3 * features]`.
    pub input: Linear,
    /// From the hidden values to the same: `[features, 3 * features]`.
    pub hidden: Linear,
    /// Whether to run from the last position to the first.
    pub reverse: bool,
}

setters! { Gru:
    reverse(bool) => reverse;
}

impl Gru {
    /// Weights as in [`Lstm::init`].
    ///
    /// # Errors
    /// If the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn init(key: Key, inputs: usize, features: usize, dtype: DType) -> Gru {
        pinned(|| {
            let [input, hidden] = key.split();
            let [input, hidden] =
                [(input, inputs), (hidden, features)].map(|(key, inputs)| uniform(key, inputs, 3, features, dtype));
            Gru { input, hidden, reverse: false }
        })
    }

    /// The results `dtype[batch, positions, features]` for all positions of `x`, of type `dtype[batch, positions, inputs]`, and the last
    /// hidden values, `dtype[batch, features]`. The initial hidden values are zeros, or the given ones.
    ///
    /// # Errors
    /// If shapes or dtypes do not fit.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, hidden: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let loc = current_loc();
        pinned(|| {
            named_scope("gru", || {
                let (inputs, zeros) = prepare("nn::Gru::apply", x, &self.input, &self.hidden)?;
                let body = |hidden: &Tensor, input: &Tensor| {
                    let next = self.next(input, hidden)?;
                    Ok::<_, Error>((next.clone(), next))
                };
                let options = ScanOptions { reverse: self.reverse, ..ScanOptions::default() };
                let (last, y) = scan_with(&options, body, hidden.unwrap_or(&zeros), &inputs)?;
                Ok((y.swap_axes(0, 1), last))
            })
        })
        .map_err(|error: Error| error.at(loc))
    }

    /// The hidden values after one more position, whose input is `dtype[batch, inputs]`.
    ///
    /// # Errors
    /// If shapes or dtypes do not fit.
    #[track_caller]
    pub fn step(&self, x: &Tensor, hidden: &Tensor) -> Tensor {
        deferred(|| named_scope("gru", || self.next(&self.input.apply(x), hidden)))
    }

    fn next(&self, input: &Tensor, hidden: &Tensor) -> Result<Tensor> {
        let [own_reset, own_update, own] = gates(input)?;
        let [reset, update, old] = gates(&self.hidden.apply(hidden))?;
        let update = (own_update + update).sigmoid();
        let candidate = (own + (own_reset + reset).sigmoid() * old).tanh();
        // Interpolates between the candidate and the old hidden values.
        let next = &candidate + update * (hidden - &candidate);
        next.aval()?;
        Ok(next)
    }
}

/// A map to several gates.
fn uniform(key: Key, inputs: usize, gates: usize, features: usize, dtype: DType) -> Linear {
    let bound = 1.0 / (features.max(1) as f64).sqrt();
    let outputs = features.saturating_mul(gates);
    let weight = deferred(|| {
        expect_float_weights(dtype)?;
        Ok(random::uniform(key, [inputs, outputs], dtype, -bound..bound))
    });
    Linear { weight, bias: Some(Tensor::zeros([outputs], dtype)), adapter: None }
}

/// The products with the inputs of all positions, with the positions in front, and hidden values of zeros.
fn prepare(operation: &str, x: &Tensor, input: &Linear, hidden: &Linear) -> Result<(Tensor, Tensor)> {
    let aval = x.aval()?;
    let [batch, _, _] = aval.shape[..] else {
        let message = format!("takes an array [batch, positions, inputs], not {aval}");
        return Err(Error::new(ErrorKind::Shape, operation, message));
    };
    let [features, _] = hidden.weight.dims()?;
    let inputs = input.apply(x);
    Ok((inputs.swap_axes(0, 1), Tensor::zeros([batch, features], inputs.dtype()?)))
}

/// The parts of the last dimension.
fn gates<const N: usize>(all: &Tensor) -> Result<[Tensor; N]> {
    let size = all.dim(-1)? / N;
    Ok(std::array::from_fn(|i| all.index((crate::index::Ellipsis, i * size..(i + 1) * size))))
}
