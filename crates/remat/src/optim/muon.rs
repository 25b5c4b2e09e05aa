//! Muon.

use remat_ir::{Aval, Result};

use super::leaves::{self, PerDType, Slot, correction, next_step, no_steps, rate, scoped};
use super::partition::halves;
use super::schedule::of_rate;
use super::{AdamW, Mask, Moments, Momentum, Optimizer, Schedule};
use crate::argument::keep;
use crate::trace::{pinned, rebuild, setters, structure};
use crate::{Tensor, Tree};

/// Momentum that is orthogonalised, for matrices. All other parameters use an [`AdamW`].
///
/// The moving average of the gradient, with bias correction, is divided by its Frobenius norm. The Newton-Schulz polynomial
/// `a x + (b (x x^T) + c (x x^T)^2) x`, applied `iterations` times, brings the singular values of the quotient `x` near 1. For a matrix
/// with `r` rows (inputs) and `c` columns (outputs) the new parameter is `p - rate * (sqrt(max(1, c / r)) * x + weight_decay * p)`. A
/// parameter with more than two dimensions is a batch of matrices in its last two dimensions. The weights of a stacked
/// [`Stack`](crate::nn::Stack) are such batches; its biases and gains are not matrices.
///
/// Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; `rms`: Liu et al., "Muon is scalable for LLM
/// training", 2025. As in the first, use it for the matrices of hidden layers, and leave embeddings and the last layer to AdamW.
///
/// ```
/// use remat::optim::{Mask, Muon, Optimizer};
/// use remat::{DType, Tensor};
/// let muon = Muon::new(1.0).matrices(Mask::paths(["0"]));
/// let model = (Tensor::zeros([2, 2], DType::F32), Tensor::zeros([2, 2], DType::F32));
/// let gradients = (Tensor::new([[0.0f32, -3.0], [2.0, 0.0]]), Tensor::new([[1.0f32, 1.0], [1.0, 1.0]]));
/// let (next, _) = muon.update(&model, &gradients, &muon.init(&model))?;
/// // An orthogonal matrix, nearly, and a step of AdamW.
/// assert!(next.0.allclose(&Tensor::new([[0.0f32, 1.0], [-1.0, 0.0]]), 0.35, 1e-6)?);
/// assert!(next.1.allclose(&Tensor::full([2, 2], -1e-3, DType::F32), 1e-3, 0.0)?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Muon {
    /// The learning rate of matrices; 0.02 by default.
    pub learning_rate: Schedule,
    /// The decay rate of the moving average of the gradient; 0.95 by default.
    pub beta: f64,
    /// Whether momentum is Nesterov momentum; true by default.
    pub nesterov: bool,
    /// `a`, `b` and `c` of the polynomial; 3.4445, -4.775 and 2.0315 by default.
    pub coefficients: [f64; 3],
    /// The number of times that the polynomial is applied; 5 by default.
    pub iterations: usize,
    /// The number added to the Frobenius norm; 1e-8 by default.
    pub eps: f64,
    /// If given, `x` is multiplied by `rms * sqrt(max(r, c))` instead, so that its root mean square is near `rms`. With 0.2, use the
    /// learning rates of AdamW. `None` by default.
    pub rms: Option<f64>,
    /// The weight decay of matrices, multiplied by the rate; 0 by default.
    pub weight_decay: f64,
    /// The matrices with weight decay; all by default.
    pub decay: Mask,
    /// The parameters that are treated as matrices; by default all with two or more dimensions. Selected parameters with fewer dimensions
    /// or no elements are left to AdamW.
    pub matrices: Mask,
    /// The optimizer of all other parameters.
    pub adamw: AdamW,
}

/// The state of [`Muon`].
#[derive(Clone, Debug, Tree)]
pub struct MuonMoments<M> {
    /// The number of steps and the moving averages of matrices.
    pub muon: Momentum<M>,
    /// The state of all other parameters.
    pub adamw: Moments<M>,
}

impl Default for Muon {
    fn default() -> Muon {
        Muon {
            learning_rate: Schedule::Constant(0.02),
            beta: 0.95,
            nesterov: true,
            coefficients: [3.4445, -4.775, 2.0315],
            iterations: 5,
            eps: 1e-8,
            rms: None,
            weight_decay: 0.0,
            decay: Mask::All,
            matrices: Mask::Matrices,
            adamw: AdamW::default(),
        }
    }
}

of_rate!(Muon: learning_rate);

setters! { Muon:
    beta(f64) => beta;
    nesterov(bool) => nesterov;
    coefficients([f64; 3]) => coefficients;
    iterations(usize) => iterations;
    eps(f64) => eps;
    rms(impl Into<Option<f64>>) => rms;
    weight_decay(f64) => weight_decay;
    decay(Mask) => decay;
    matrices(Mask) => matrices;
    adamw(AdamW) => adamw;
}

impl Optimizer for Muon {
    type State<M: Tree> = MuonMoments<M>;

    /// Errors of the masks are reported by the first update.
    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> MuonMoments<M> {
        pinned(|| {
            let (matrices, others) = halves(model, self.takes(model));
            let [mu] = leaves::init(&matrices, slots);
            MuonMoments { muon: Momentum { step: no_steps(), mu }, adamw: self.adamw.init(&others) }
        })
    }

    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &MuonMoments<M>) -> Result<(M, MuonMoments<M>)> {
        const NAME: &str = "optim::Muon::update";
        scoped("muon", || {
            self.matrices.of(model)?;
            leaves::belonging(NAME, model, ("the gradients", gradients))?;
            let decays = self.decay.of(model)?;
            let takes = self.takes(model);
            let (matrices, others) = halves(model, takes.clone());
            let (matrix_gradients, other_gradients) = halves(gradients, takes.clone());

            let before = &state.muon.step;
            let step = next_step(before);
            let mut rate = rate(&self.learning_rate, before);
            let mut corrections = PerDType::new(|dtype| {
                (correction(&step, dtype, self.beta), correction(&next_step(&step), dtype, self.beta))
            });
            let trees = (&matrices, &matrix_gradients, [&state.muon.mu]);
            let (matrices, [mu]) = leaves::update(NAME, trees, slots, |leaf| {
                let (p, g, [mu]) = (leaf.parameter, leaf.gradient, leaf.state);
                let mu = &g * (1.0 - self.beta) + mu * self.beta;
                let (now, next) = corrections.get(leaf.work);
                let momentum =
                    if self.nesterov { &mu / next * self.beta + g / now * (1.0 - self.beta) } else { &mu / now };
                let mut update = self.orthogonal(&momentum)?;
                if self.weight_decay != 0.0 && decays[leaf.index] {
                    update += &p * self.weight_decay;
                }
                Ok((p - update * rate.get(leaf.work), [mu]))
            })?;
            drop(corrections);
            let (others, adamw) = self.adamw.update(&others, &other_gradients, &state.adamw)?;
            let pairs = structure(&matrices).0.into_iter().zip(structure(&others).0);
            let whole = takes.into_iter().zip(pairs).map(|(takes, (a, b))| if takes { a } else { b }).collect();
            Ok((rebuild(model, whole)?, MuonMoments { muon: Momentum { step, mu }, adamw }))
        })
    }
}

impl Muon {
    fn takes<M: Tree>(&self, model: &M) -> Vec<bool> {
        let (leaves, of_model) = structure(model);
        let is_matrix = |leaf: &Tensor, layer_axes: usize| {
            leaf.aval().is_ok_and(|aval| aval.rank() >= 2 + layer_axes && aval.size() > 0)
        };
        let leaves = leaves.iter().zip(of_model.layer_axes());
        let meant = self.matrices.unchecked(model).into_iter();
        meant.zip(leaves).map(|(meant, (leaf, layer_axes))| meant && is_matrix(leaf, layer_axes)).collect()
    }

    /// The matrices with their singular values near 1, scaled by their shape.
    fn orthogonal(&self, momentum: &Tensor) -> Result<Tensor> {
        let (rows, columns) = (momentum.dim(-2)?, momentum.dim(-1)?);
        // The polynomial commutes with the transpose, and is cheaper for wide matrices.
        let is_transposed = rows > columns;
        let mut x = if is_transposed { momentum.t() } else { momentum.clone() };
        x = &x / (x.square().sum(keep([-2, -1])).sqrt() + self.eps);
        let [a, b, c] = self.coefficients;
        for _ in 0..self.iterations {
            let gram = x.matmul(&x.t());
            let polynomial = &gram * b + (&gram * c).matmul(&gram);
            x = &x * a + polynomial.matmul(&x);
        }
        let (rows, columns) = (rows as f64, columns as f64);
        let scale = match self.rms {
            Some(rms) => rms * rows.max(columns).sqrt(),
            None => (columns / rows).max(1.0).sqrt(),
        };
        Ok(if is_transposed { x.t() } else { x } * scale)
    }
}

fn slots(parameter: &Aval, _: usize) -> [Slot; 1] {
    [Slot::like(parameter)]
}
