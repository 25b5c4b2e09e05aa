//! Different optimizers for different parameters.

use remat_ir::Result;

use super::leaves::{belonging, scoped};
use super::{Mask, Optimizer};
use crate::trace::{cloned, pinned, rebuild, structure};
use crate::{DType, Tensor, Tree, tree};

/// One optimizer for the parameters that a mask selects, and another for the rest: `optax.partition` of two.
///
/// Each optimizer sees empty tensors in place of the parameters of the other one, so it keeps no state for them.
///
/// ```
/// use remat::optim::{AdamW, Frozen, Mask, Optimizer, Partition};
/// use remat::Tensor;
/// // Train the head only.
/// let head = Partition::new(Mask::paths(["1"]), AdamW::default(), Frozen);
/// let model = (Tensor::new([1.0f32, 2.0]), Tensor::new([3.0f32]));
/// let state = head.init(&model);
/// assert_eq!(state.chosen.mu.0.size()?, 0);
/// let (next, _) = head.update(&model, &model, &state)?;
/// assert_eq!(next.0.to_vec::<f32>()?, [1.0, 2.0]);
/// assert!(next.1.item::<f32>()? < 3.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Partition<A, B> {
    /// The parameters that `chosen` updates.
    pub mask: Mask,
    /// The optimizer of the selected parameters.
    pub chosen: A,
    /// The optimizer of all other parameters.
    pub others: B,
}

impl<A, B> Partition<A, B> {
    /// One optimizer for the parameters that a mask selects, and another for all others.
    #[must_use]
    pub fn new(mask: Mask, chosen: A, others: B) -> Partition<A, B> {
        Partition { mask, chosen, others }
    }
}

/// The state of [`Partition`].
#[derive(Clone, Debug, Tree)]
pub struct Parts<A, B> {
    /// The state of `chosen`.
    pub chosen: A,
    /// The state of `others`.
    pub others: B,
}

impl<A: Optimizer, B: Optimizer> Optimizer for Partition<A, B> {
    type State<M: Tree> = Parts<A::State<M>, B::State<M>>;

    /// Errors of the mask are reported by the first update.
    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Self::State<M> {
        pinned(|| {
            let (chosen, others) = halves(model, self.mask.unchecked(model));
            Parts { chosen: self.chosen.init(&chosen), others: self.others.init(&others) }
        })
    }

    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Self::State<M>) -> Result<(M, Self::State<M>)> {
        scoped("partition", || {
            let takes = self.mask.of(model)?;
            belonging("optim::Partition::update", model, ("the gradients", gradients))?;
            let (model_a, model_b) = halves(model, takes.clone());
            let (gradients_a, gradients_b) = halves(gradients, takes.clone());
            let (model_a, chosen) = self.chosen.update(&model_a, &gradients_a, &state.chosen)?;
            let (model_b, others) = self.others.update(&model_b, &gradients_b, &state.others)?;
            let pairs = structure(&model_a).0.into_iter().zip(structure(&model_b).0);
            let whole = takes.into_iter().zip(pairs).map(|(takes, (a, b))| if takes { a } else { b }).collect();
            Ok((rebuild(model, whole)?, Parts { chosen, others }))
        })
    }
}

/// The tree with only the selected leaves, and with only the others. A leaf that is left out becomes an empty tensor of integers, which no
/// optimizer changes.
pub(super) fn halves<M: Tree>(tree: &M, takes: Vec<bool>) -> (M, M) {
    let empty = Tensor::zeros([0], DType::I32);
    let half = |wanted: bool| {
        let mut takes = takes.iter();
        tree::map(tree, |leaf| if takes.next() == Some(&wanted) { leaf.clone() } else { empty.clone() })
    };
    (half(true), half(false))
}

/// The optimizer that leaves all parameters unchanged and keeps no state, for those that a [`Partition`] does not train.
///
/// Their gradients are then not needed, and inside `jit` they are not computed.
///
/// ```
/// use remat::optim::{Frozen, Optimizer};
/// use remat::Tensor;
/// let model = Tensor::new([1.0f32]);
/// assert_eq!(Frozen.update(&model, &model, &())?.0.item::<f32>()?, 1.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Frozen;

impl Optimizer for Frozen {
    type State<M: Tree> = ();

    fn init<M: Tree>(&self, _: &M) {}

    fn update<M: Tree>(&self, model: &M, _: &M, (): &()) -> Result<(M, ())> {
        Ok((cloned(model), ()))
    }
}
