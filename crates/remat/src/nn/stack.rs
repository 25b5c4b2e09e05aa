//! Layers of one kind, one after the other.

use remat_ir::{Error, ErrorKind, Policy, Result};

use super::Precision;
use crate::loops::equal_blocks;
use crate::random::Key;
use crate::trace::{Output, cloned, current_loc, pinned, structure};
use crate::tree::{Segment, Walk, leaves};
use crate::{DType, LoopScheme, ScanOptions, Tensor, Tree, checkpoint, scan_checkpointed_with, tree};

/// Layers of one kind, one after the other, under a checkpoint policy, like `nn.scan(nn.remat(Block, policy))` in Flax.
///
/// Either the layers are a list, and the program has the equations of each of them. Or they are [`stacked`](Stack::stacked): each weight of
/// all layers is one tensor with a leading axis of layers, and the program is a [`scan`](crate::scan), which is traced once for any number
/// of layers. Values and gradients have the same bits either way, and under every policy.
///
/// With `levels` of 2 or more only some states between layers are kept: [`LoopScheme::Levels`]. Two levels keep about twice the square root
/// of the number of layers.
///
/// Optimizers treat stacked weights layer by layer, as they treat those of a list
/// ([`Structure::layer_axes`](crate::tree::Structure::layer_axes)).
///
/// The path of a weight includes its index in a list (`3.up.weight`), but not if the layers are stacked (`up.weight`).
///
/// ```
/// use remat::nn::{Block, Stack};
/// use remat::{DType, Policy, Tensor, random};
/// let x = Tensor::ones([2, 8, 16], DType::F32);
/// let blocks = Stack::init(random::key(0), 4, |key| Block::new(key, 16, 4));
/// let y = blocks.apply(|block, x| block.apply(x), &x)?;
///
/// let blocks = blocks.stacked()?.with_policy(Policy::Dots).with_levels(2);
/// assert!(blocks.apply(|block, x| block.apply(x), &x)?.allclose(&y, 0.0, 0.0)?);
/// assert_eq!(blocks.to_layers().len(), 4);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stack<L> {
    held: Held<L>,
    /// The policy of a [`checkpoint`] around each layer; `None` by default.
    pub policy: Option<Policy>,
    /// The number of levels of checkpoints; 1 by default. With 0 or 1 there are only the checkpoints of the policy.
    pub levels: usize,
    /// The dtype in which a layer gets its floats, if it is not their own; `None` by default. They are converted inside the layer's checkpoint, as
    /// [`Precision::to_compute`](super::Precision::to_compute) does: converted before, all layers would be in memory a second time.
    pub compute: Option<DType>,
}

#[derive(Clone, Debug)]
enum Held<L> {
    List(Vec<L>),
    /// All leaves have a leading axis of this length, which is not 0.
    Stacked(L, usize),
}

impl<L> From<Vec<L>> for Stack<L> {
    fn from(layers: Vec<L>) -> Stack<L> {
        Stack { held: Held::List(layers), policy: None, levels: 1, compute: None }
    }
}

/// The policy, the levels and the dtype are static structure.
impl<L: Tree> Tree for Stack<L> {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        walk.static_at(Segment::Field("policy"), &self.policy);
        walk.static_at(Segment::Field("levels"), &self.levels);
        walk.static_at(Segment::Field("compute"), &self.compute);
        let held = match &self.held {
            Held::List(layers) => {
                walk.variant("List");
                Held::List(layers.map_leaves(walk))
            }
            Held::Stacked(layer, length) => {
                walk.variant("Stacked");
                walk.len(*length);
                Held::Stacked(walk.stacked(layer), *length)
            }
        };
        Stack { held, policy: self.policy.clone(), levels: self.levels, compute: self.compute }
    }
}

impl<L: Tree> Stack<L> {
    /// A list of this many layers, each created from its own key.
    pub fn init(key: Key, layers: usize, init: impl FnMut(Key) -> L) -> Stack<L> {
        Stack::from(key.split_vec(layers).into_iter().map(init).collect::<Vec<L>>())
    }

    /// The same layers with this [`policy`](Stack::policy).
    #[must_use]
    pub fn with_policy(self, policy: impl Into<Option<Policy>>) -> Stack<L> {
        Stack { policy: policy.into(), ..self }
    }

    /// The same layers with this number of [`levels`](Stack::levels).
    #[must_use]
    pub fn with_levels(self, levels: usize) -> Stack<L> {
        Stack { levels, ..self }
    }

    /// The same layers with this [`dtype`](Stack::compute).
    ///
    /// ```
    /// use remat::{DType, Tensor, nn::{Linear, Stack}, random};
    /// let layers = Stack::init(random::key(0), 3, |key| Linear::new(key, 4, 4)).with_compute(DType::Bf16);
    /// let y = layers.apply(|layer, x| layer.apply(x), &Tensor::ones([2, 4], DType::Bf16))?;
    /// assert_eq!((y.dtype()?, layers.to_layers()[0].weight.dtype()?), (DType::Bf16, DType::F32));
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[must_use]
    pub fn with_compute(self, dtype: impl Into<Option<DType>>) -> Stack<L> {
        Stack { compute: dtype.into(), ..self }
    }

    /// The number of layers.
    pub fn len(&self) -> usize {
        match &self.held {
            Held::List(layers) => layers.len(),
            Held::Stacked(_, length) => *length,
        }
    }

    /// Whether there is no layer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the weights are stacked, so that the layers run as a loop.
    pub fn is_stacked(&self) -> bool {
        matches!(self.held, Held::Stacked(..))
    }

    /// The same layers with stacked weights, which are a copy. Without any layer it stays a list.
    ///
    /// # Errors
    /// If a layer differs from the first in structure or in shapes or dtypes of weights; the error of a failed weight.
    ///
    /// ```
    /// use remat::{nn::{Linear, Stack}, random};
    /// let [a, b] = random::key(0).split();
    /// let layers = vec![Linear::new(a, 4, 4), Linear::new(b, 4, 5)];
    /// let error = Stack::from(layers).stacked().unwrap_err();
    /// assert_eq!(error.message(), "layer 1 differs from layer 0 at `weight`: f32[4,5] and f32[4,4]");
    /// ```
    #[track_caller]
    pub fn stacked(self) -> Result<Stack<L>> {
        let loc = current_loc();
        let held = match self.held {
            Held::List(layers) if !layers.is_empty() => {
                let stacked = pinned(|| stack_trees("layer", &layers)).map_err(|error| error.at(loc))?;
                Held::Stacked(stacked, layers.len())
            }
            held => held,
        };
        Ok(Stack { held, ..self })
    }

    /// The same layers as a list.
    #[must_use]
    #[track_caller]
    pub fn unstacked(self) -> Stack<L> {
        let held = match self.held {
            Held::Stacked(layers, length) => pinned(|| Held::List((0..length).map(|i| slice(&layers, i)).collect())),
            held @ Held::List(_) => held,
        };
        Stack { held, ..self }
    }

    /// The first layer, if the layers are a list, or all of them with a leading axis of layers, if they are stacked. For properties that
    /// are the same for all layers.
    pub(super) fn first(&self) -> Option<&L> {
        match &self.held {
            Held::List(layers) => layers.first(),
            Held::Stacked(layers, _) => Some(layers),
        }
    }

    /// The layers.
    #[track_caller]
    pub fn to_layers(&self) -> Vec<L> {
        match &self.held {
            Held::List(layers) => layers.iter().map(cloned).collect(),
            Held::Stacked(layers, length) => pinned(|| (0..*length).map(|i| slice(layers, i)).collect()),
        }
    }

    /// The value after all layers: each layer in turn maps the previous value by `f(layer, x)`.
    ///
    /// # Errors
    /// The first error of a layer; if the layers are stacked, as [`scan`](crate::scan).
    #[track_caller]
    pub fn apply<C: Tree, R: Output<Tree = C>>(&self, f: impl Fn(&L, &C) -> R, x: &C) -> Result<C> {
        let step = |layer: &L, x: &C, (): &()| Ok((f(layer, x).into_result()?, ()));
        let (x, _) = self.run(step, x, &())?;
        Ok(x)
    }

    /// As [`Stack::apply`] with an input and an output for each layer, along the first axes of `xs` and of the result: `f(layer, carry, x)`
    /// returns the next carry and an output. Use it for dropout keys and layer states.
    ///
    /// ```
    /// use remat::{DType, Tensor, nn::{Linear, Stack}, random};
    /// let layers = Stack::init(random::key(0), 3, |key| Linear::new(key, 4, 4));
    /// let scales = Tensor::new([1.0f32, 0.5, 2.0]);
    /// let step = |layer: &Linear, x: &Tensor, scale: &Tensor| {
    ///     let y = layer.apply(x) * scale;
    ///     (y.clone(), y.mean(..))
    /// };
    /// let (last, means) = layers.scan(step, &Tensor::ones([2, 4], DType::F32), &scales)?;
    /// assert_eq!((last.shape()?, means.shape()?), (&[2, 4][..], &[3][..]));
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of a layer; as [`scan`](crate::scan); if there is no layer, since the type of the outputs is then unknown.
    #[track_caller]
    pub fn scan<C: Tree, X: Tree, Y: Tree, R: Output<Tree = (C, Y)>>(
        &self,
        f: impl Fn(&L, &C, &X) -> R,
        init: &C,
        xs: &X,
    ) -> Result<(C, Y)> {
        let loc = current_loc();
        for (path, x) in leaves(xs) {
            let aval = x.aval()?;
            if aval.shape.first() != Some(&self.len()) {
                let layers = remat_ir::counted(self.len(), "layer");
                let message = format!("the input{} is {aval}, which has no leading axis of {layers}", path.place());
                return Err(Error::new(ErrorKind::Shape, "nn::Stack::scan", message).at(loc));
            }
        }
        let (carry, outs) = self.run(|layer: &L, carry: &C, x: &X| f(layer, carry, x).into_result(), init, xs)?;
        match outs {
            Outs::Stacked(ys) => Ok((carry, ys)),
            Outs::List(ys) => {
                let ys = pinned(|| stack_trees("the output of layer", &ys)).map_err(|error| error.at(loc))?;
                Ok((carry, ys))
            }
        }
    }

    #[track_caller]
    fn run<C: Tree, X: Tree, Y: Tree>(
        &self,
        f: impl Fn(&L, &C, &X) -> Result<(C, Y)>,
        init: &C,
        xs: &X,
    ) -> Result<(C, Outs<Y>)> {
        let levels = self.levels.max(1);
        let f = |layer: &L, carry: &C, x: &X| match self.compute {
            None => f(layer, carry, x),
            Some(compute) => f(&Precision { compute, ..Precision::default() }.to_compute(layer), carry, x),
        };
        // Operations of a layer are located at their own lines, and the loop at that of the caller, so nothing is pinned here.
        match &self.held {
            Held::List(layers) => {
                let list = List { layers, f, xs, policy: self.policy.as_ref() };
                let (carry, ys) = list.nested(0..layers.len(), &equal_blocks(layers.len(), levels), init)?;
                // Fail if a layer failed, as a loop does.
                for leaf in structure(&carry).0 {
                    leaf.aval()?;
                }
                Ok((carry, Outs::List(ys)))
            }
            Held::Stacked(layers, length) => {
                let body = |carry: &C, (layer, x): &(L, X)| {
                    checkpoint(self.policy.clone(), |carry: &C| f(layer, carry, x))(carry)
                };
                let options = ScanOptions { length: Some(*length), ..ScanOptions::default() };
                let xs = (cloned(layers), cloned(xs));
                let (carry, ys) = scan_checkpointed_with(&options, LoopScheme::Levels(levels), body, init, &xs)?;
                Ok((carry, Outs::Stacked(ys)))
            }
        }
    }
}

/// The outputs of all layers.
enum Outs<Y> {
    List(Vec<Y>),
    Stacked(Y),
}

/// Layers in a list, while they run.
struct List<'a, L, X, F> {
    layers: &'a [L],
    f: F,
    xs: &'a X,
    policy: Option<&'a Policy>,
}

impl<L, X: Tree, F> List<'_, L, X, F> {
    /// Runs a range of layers in blocks that are checkpointed regions, as `scan_checkpointed` does with iterations.
    fn nested<C: Tree, Y: Tree>(&self, range: std::ops::Range<usize>, blocks: &[usize], init: &C) -> Result<(C, Vec<Y>)>
    where
        F: Fn(&L, &C, &X) -> Result<(C, Y)>,
    {
        let mut carry = cloned(init);
        let mut ys = Vec::new();
        let Some((&block, inner)) = blocks.split_first() else {
            for i in range {
                let x = slice(self.xs, i);
                let layer = checkpoint(self.policy.cloned(), |carry: &C| (self.f)(&self.layers[i], carry, &x));
                let (next, y) = layer(&carry)?;
                carry = next;
                ys.push(y);
            }
            return Ok((carry, ys));
        };
        if range.len() <= block {
            return self.nested(range, inner, init);
        }
        for start in range.clone().step_by(block) {
            let part = start..range.end.min(start + block);
            let region = checkpoint(Policy::Nothing, |carry: &C| self.nested(part.clone(), inner, carry));
            let (next, more) = region(&carry)?;
            carry = next;
            ys.extend(more);
        }
        Ok((carry, ys))
    }
}

/// The slice of every leaf at an index of its first axis.
fn slice<T: Tree>(stacked: &T, index: usize) -> T {
    tree::map(stacked, |leaf| leaf.index(index))
}

/// One tree whose leaves are those of several trees, along a new first axis.
///
/// # Errors
/// If there is no tree; if one differs from the first.
fn stack_trees<T: Tree>(what: &str, trees: &[T]) -> Result<T> {
    const NAME: &str = "nn::Stack";
    let Some((first, others)) = trees.split_first() else {
        let message = "without layers the type of their outputs is unknown";
        return Err(Error::new(ErrorKind::Argument, NAME, message));
    };
    let own = leaves(first);
    let of_first = structure(first).1;
    let mut columns: Vec<Vec<Tensor>> = own.iter().map(|(_, leaf)| vec![leaf.clone()]).collect();
    for (i, other) in others.iter().enumerate() {
        let (theirs, of_other) = structure(other);
        if let Some(difference) = of_other.difference(&of_first) {
            let message = format!("{what} {} differs from {what} 0: {difference}", i + 1);
            return Err(Error::new(ErrorKind::Structure, NAME, message));
        }
        for (((path, leaf), other), column) in own.iter().zip(theirs).zip(&mut columns) {
            let (expected, given) = (leaf.aval()?, other.aval()?);
            if expected != given {
                let message = format!("{what} {} differs from {what} 0{}: {given} and {expected}", i + 1, path.place());
                return Err(Error::new(ErrorKind::Shape, NAME, message));
            }
            column.push(other);
        }
    }
    let stacked: Vec<Tensor> = columns.iter().map(|column| Tensor::stack(column, 0)).collect();
    // A failed weight is reported here, and not first by a loop over the stack.
    for leaf in &stacked {
        leaf.aval()?;
    }
    crate::trace::rebuild(first, stacked)
}
