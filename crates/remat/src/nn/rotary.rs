//! Rotary positions.

use remat_ir::{Error, ErrorKind, Result};

use super::reserved::reserved;
use crate::layer::{deferred, pinned};
use crate::trace::setters;
use crate::{DType, Tensor, Tree};

/// Positions as rotations of pairs of features. The product of a rotated query and a rotated key depends only on the distance of their
/// positions.
///
/// Pair number *i* of *n* is rotated by `position * theta^(-i / n)`. Source: Su et al., "RoFormer", 2021.
///
/// ```
/// use remat::{DType, Tensor, nn::Rotary, random};
/// let rotary = Rotary::new(8);
/// let x = random::normal(random::key(0), [2, 5, 4, 8], DType::F32);
/// let rotation = rotary.at(&Tensor::arange(0..5), DType::F32);
/// let y = rotation.apply(&x);
/// assert_eq!(y.shape()?, [2, 5, 4, 8]);
/// // Position 0 stays as it is, and lengths stay.
/// assert!(y.index((.., 0)).allclose(&x.index((.., 0)), 0.0, 0.0)?);
/// assert!(y.norm(-1).allclose(&x.norm(-1), 1e-5, 1e-6)?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Tree)]
pub struct Rotary {
    /// The number of features of a head that are rotated, which is even. They are the first ones; the others stay as they are.
    pub features: usize,
    /// The base of the frequencies; 10,000 by default.
    pub theta: f64,
    /// The features that form a pair.
    pub pairing: Pairing,
    /// How the frequencies are scaled for longer sequences.
    pub scaling: RopeScaling,
}

/// The features that [`Rotary`] rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Tree)]
pub enum Pairing {
    /// Feature *i* of the first half with feature *i* of the second, as in GPT-NeoX and in Hugging Face's files of Llama.
    #[default]
    Halves,
    /// Neighbours, as in the paper and in GPT-J.
    Neighbours,
}

/// How [`Rotary`] scales its frequencies for sequences longer than those that a model was trained on. The fields are those of
/// `rope_scaling` in Hugging Face's `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Default, Tree)]
pub enum RopeScaling {
    /// No scaling.
    #[default]
    None,
    /// All frequencies are divided by a factor: `linear`. Source: Chen et al., "Extending context window", 2023.
    Linear {
        /// The divisor of the frequencies.
        factor: f64,
    },
    /// Low frequencies are divided by a factor, high ones are not, and those in between are interpolated: `llama3`. Source: Llama 3.1
    /// (`apply_scaling` of its reference implementation).
    Llama3 {
        /// The divisor of low frequencies.
        factor: f64,
        /// Frequencies whose wavelength is more than `original_max_position_embeddings / low_freq_factor` positions are low.
        low_freq_factor: f64,
        /// Frequencies whose wavelength is less than `original_max_position_embeddings / high_freq_factor` positions are high.
        high_freq_factor: f64,
        /// The length of the sequences that the model was first trained on.
        original_max_position_embeddings: usize,
    },
}

impl RopeScaling {
    fn scale(&self, frequency: f64) -> f64 {
        match *self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                let waves = original_max_position_embeddings as f64 * frequency / (2.0 * std::f64::consts::PI);
                if waves > high_freq_factor {
                    frequency
                } else if waves < low_freq_factor {
                    frequency / factor
                } else {
                    let high = (waves - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    frequency * (high + (1.0 - high) / factor)
                }
            }
        }
    }
}

setters! { Rotary:
    theta(f64) => theta;
    pairing(Pairing) => pairing;
    scaling(RopeScaling) => scaling;
}

impl Rotary {
    /// Rotations of this many features, paired by halves, with base 10,000.
    pub fn new(features: usize) -> Rotary {
        Rotary { features, theta: 10_000.0, pairing: Pairing::default(), scaling: RopeScaling::default() }
    }

    /// The angle, in radians, by which each pair turns from one position to the next.
    ///
    /// # Panics
    /// If no memory holds an angle for each pair.
    pub fn frequencies(&self) -> Vec<f64> {
        self.of_pairs().collect()
    }

    fn of_pairs(&self) -> impl Iterator<Item = f64> {
        let pairs = self.features / 2;
        (0..pairs).map(move |i| self.scaling.scale(self.theta.powf(-(i as f64) / pairs as f64)))
    }

    /// The rotation at these positions, integers `[.., positions]`. A model computes it once for all layers. `dtype` is that of the
    /// features; the rotation is f64 for f64, and f32 otherwise.
    ///
    /// # Errors
    /// If the number of features is odd, the positions are not integers, the dtype is not a float, or there is no memory for the
    /// frequencies.
    #[track_caller]
    pub fn at(&self, positions: &Tensor, dtype: DType) -> Rotation {
        pinned(|| {
            let angles = deferred(|| {
                const NAME: &str = "nn::Rotary::at";
                let aval = positions.aval()?;
                if !self.features.is_multiple_of(2) {
                    let message = format!("{} features cannot be paired", self.features);
                    return Err(Error::new(ErrorKind::Shape, NAME, message));
                }
                if !aval.dtype.is_integer() {
                    return Err(Error::new(
                        ErrorKind::DType,
                        NAME,
                        format!("the positions must be integers, not {aval}"),
                    ));
                }
                if !dtype.is_float() {
                    return Err(Error::new(ErrorKind::DType, NAME, format!("rotates floats, not {dtype}")));
                }
                let work = dtype.wide();
                let pairs = self.features / 2;
                let of_features = || format!("the frequencies of {} features", self.features);
                let mut frequencies: Vec<f64> = reserved(NAME, of_features, Some(pairs))?;
                frequencies.extend(self.of_pairs());
                let frequencies = Tensor::from_vec(frequencies, [pairs]).to_dtype(work);
                // For each position, every head and each pair.
                Ok(positions.to_dtype(work).reshape([&aval.shape[..], &[1, 1]].concat()) * frequencies)
            });
            Rotation { cos: angles.cos(), sin: angles.sin(), pairing: self.pairing }
        })
    }
}

/// The cosines and sines of [`Rotary`] at some positions.
#[derive(Clone, Debug, Tree)]
pub struct Rotation {
    /// `[.., positions, 1, pairs]`
    pub cos: Tensor,
    /// `[.., positions, 1, pairs]`
    pub sin: Tensor,
    /// The features that form a pair.
    pub pairing: Pairing,
}

impl Rotation {
    /// `x` rotated, of type `dtype[.., positions, heads, features]`: queries or keys. f16 and bf16 are rotated in f32 and rounded once. The
    /// dimensions of the rotation before the positions broadcast to those of `x`.
    ///
    /// # Errors
    /// If `x` has fewer than three dimensions, fewer features than are rotated, or another number of positions; if its dtype is neither
    /// that of the rotation nor narrower.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        deferred(|| {
            let aval = x.aval()?;
            let pairs = self.cos.aval()?.shape.last().copied().unwrap_or(0);
            let Some(&features) = aval.shape.last().filter(|&&features| aval.rank() >= 3 && features >= 2 * pairs)
            else {
                let message = format!("takes axes of positions, heads and at least {} features, not {aval}", 2 * pairs);
                return Err(Error::new(ErrorKind::Shape, "nn::Rotation::apply", message));
            };
            for part in [&self.cos, &self.sin] {
                let rotation = part.aval()?;
                if !fits(&rotation.shape, &aval.shape, pairs) {
                    let message = format!("{aval} does not have the positions of the rotation {rotation}");
                    return Err(Error::new(ErrorKind::Shape, "nn::Rotation::apply", message));
                }
            }
            x.in_wide("nn::Rotation::apply", |x| self.rotate(x, pairs, features))
        })
    }

    fn rotate(&self, x: &Tensor, pairs: usize, features: usize) -> Result<Tensor> {
        let rotated = x.index((crate::index::Ellipsis, ..2 * pairs));
        let turn = |a: &Tensor, b: &Tensor| (a * &self.cos - b * &self.sin, b * &self.cos + a * &self.sin);
        let turned = match self.pairing {
            Pairing::Halves => {
                let [a, b] = [0, 1].map(|i| rotated.index((crate::index::Ellipsis, i * pairs..(i + 1) * pairs)));
                let (a, b) = turn(&a, &b);
                Tensor::concatenate(&[a, b], -1)
            }
            Pairing::Neighbours => {
                let mut shape = x.shape()?.to_vec();
                shape.splice(shape.len() - 1.., [pairs, 2]);
                let rotated = rotated.reshape(shape);
                let [a, b] = [0, 1].map(|i| rotated.index((crate::index::Ellipsis, i)));
                let (a, b) = turn(&a, &b);
                let turned = Tensor::stack(&[a, b], -1);
                let mut shape = turned.shape()?.to_vec();
                shape.truncate(shape.len() - 2);
                turned.reshape([&shape[..], &[2 * pairs]].concat())
            }
        };
        if features == 2 * pairs {
            return Ok(turned);
        }
        Ok(Tensor::concatenate(&[turned, x.index((crate::index::Ellipsis, 2 * pairs..))], -1))
    }
}

/// Whether a rotation has the positions of `x`. A rotation of a single position would otherwise broadcast to all.
fn fits(rotation: &[usize], x: &[usize], pairs: usize) -> bool {
    let ([leading @ .., positions, 1, own_pairs], [batch @ .., of_x, _, _]) = (rotation, x) else { return false };
    let Some(missing) = batch.len().checked_sub(leading.len()) else { return false };
    let same_batch = leading.iter().zip(&batch[missing..]).all(|(own, size)| own == size || *own == 1);
    same_batch && positions == of_x && *own_pairs == pairs
}
