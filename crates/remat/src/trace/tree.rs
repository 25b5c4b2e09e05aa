//! Trees of tensors: the arguments and results of traced functions.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use remat_ir::{Error, ErrorKind, Result};

use super::Tensor;
use super::structure::{Structure, Token};

/// A value whose leaves are tensors: a tensor, a tuple, an array, a `Vec`, an `Option`, or a struct that derives `Tree`.
///
/// One structural method serves all purposes: [`Tree::map_leaves`] visits the leaves in a fixed order and builds a value of the same
/// structure. So the value describes itself, and there is no separate treedef. Parts that are not tensors (a `usize`, a `String`, the
/// variant of an enum, the length of a `Vec`) are static structure, and part of the key of the `jit` cache.
///
/// ```
/// use remat::tree::leaves;
/// use remat::{Tensor, Tree};
///
/// #[derive(Clone, Tree)]
/// struct Linear { weight: Tensor, bias: Option<Tensor>, features: usize }
///
/// let layer = Linear { weight: Tensor::from(2.0f32), bias: None, features: 1 };
/// let paths: Vec<String> = leaves(&layer).iter().map(|(path, _)| path.to_string()).collect();
/// assert_eq!(paths, ["weight"]);
/// ```
///
/// A field that is not a tree is marked `#[tree(static)]`; it needs `Clone` and `Hash`:
///
/// ```
/// use remat::{Tensor, Tree};
///
/// #[derive(Clone, Hash)]
/// enum Padding { Same, Valid }
///
/// #[derive(Tree)]
/// struct Conv { kernel: Tensor, #[tree(static)] padding: Padding }
/// # let _ = Conv { kernel: Tensor::from(1.0f32), padding: Padding::Same };
/// # let _ = Padding::Valid;
/// ```
///
/// Without the mark it does not compile:
///
/// ```compile_fail,E0277
/// # use remat::{Tensor, Tree};
/// # #[derive(Clone, Hash)]
/// # enum Padding { Same, Valid }
/// #[derive(Tree)]
/// struct Conv { kernel: Tensor, padding: Padding }
/// ```
///
/// Unknown attributes and unions do not compile either:
///
/// ```compile_fail
/// # use remat::{Tensor, Tree};
/// #[derive(Tree)]
/// struct Conv { kernel: Tensor, #[tree(skip)] padding: usize }
/// ```
/// ```compile_fail
/// # use remat::Tree;
/// #[derive(Tree)]
/// union Bits { integer: u32, float: f32 }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree of tensors",
    label = "not a tree of tensors",
    note = "a struct or enum of trees becomes one by `#[derive(Tree)]`",
    note = "a field that is not a tree, such as a function or a `HashMap`, is marked `#[tree(static)]` or is not in the struct; `BTreeMap` is a tree"
)]
pub trait Tree: Sized + 'static {
    /// Visits every leaf in order and returns the value with the leaves that the visitor returned.
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self;
}

/// One step of a path into a tree.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// A field of a struct or of an enum variant.
    Field(&'static str),
    /// A position in a tuple or sequence.
    Index(usize),
    /// A key of a map.
    Key(String),
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Segment::Field(name) => f.write_str(name),
            Segment::Index(index) => write!(f, "{index}"),
            Segment::Key(key) => f.write_str(key),
        }
    }
}

/// The path to a leaf: `blocks.3.attn.qkv.w`. Empty for a tree that is itself a leaf.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Path(pub Vec<Segment>);

impl Path {
    /// The position of a leaf for an error message; empty for a tree that is one leaf.
    pub(crate) fn place(&self) -> String {
        if self.0.is_empty() { String::new() } else { format!(" at `{self}`") }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            write!(f, "{segment}")?;
        }
        Ok(())
    }
}

/// The state of a walk over a tree: the path, the visitor, and the structure so far if it is needed.
pub struct Walk<'a> {
    path: Path,
    /// The number of stacks of layers that enclose the current path.
    layer_axes: usize,
    structure: Tokens<'a>,
    visit: &'a mut dyn FnMut(&Path, &Tensor) -> Tensor,
    replace: Option<&'a mut Replace<'a>>,
}

/// How a walk uses the structure that it meets.
enum Tokens<'a> {
    Ignored,
    Recorded(Vec<Token>),
    /// The expected next tokens; `None` after a mismatch.
    Expected(Option<&'a [Token]>),
}

/// Returns the replacement of a child, of the same type.
pub(super) type Replace<'a> = dyn FnMut(&Path, &dyn Any) -> Option<Box<dyn Any>> + 'a;

impl<'a> Walk<'a> {
    pub(super) fn new(visit: &'a mut dyn FnMut(&Path, &Tensor) -> Tensor) -> Walk<'a> {
        Walk { path: Path::default(), layer_axes: 0, structure: Tokens::Ignored, visit, replace: None }
    }

    /// As [`Walk::new`], with replacements of children.
    pub(super) fn replacing(
        visit: &'a mut dyn FnMut(&Path, &Tensor) -> Tensor,
        replace: &'a mut Replace<'a>,
    ) -> Walk<'a> {
        Walk { replace: Some(replace), ..Walk::new(visit) }
    }

    /// Visits a leaf.
    pub fn leaf(&mut self, tensor: &Tensor) -> Tensor {
        let layer_axes = self.layer_axes;
        self.record(|| Token::Leaf(layer_axes));
        (self.visit)(&self.path, tensor)
    }

    /// Walks into a field.
    pub fn field<T: Tree>(&mut self, name: &'static str, child: &T) -> T {
        self.enter(Segment::Field(name), child)
    }

    /// Walks into an element of a tuple or sequence.
    pub fn index<T: Tree>(&mut self, index: usize, child: &T) -> T {
        self.enter(Segment::Index(index), child)
    }

    /// Walks into an entry of a map.
    pub fn key<T: Tree>(&mut self, key: &str, child: &T) -> T {
        self.enter(Segment::Key(key.to_string()), child)
    }

    /// Walks into a part at the same path as the whole, such as the value of an `Option`.
    pub fn inner<T: Tree>(&mut self, child: &T) -> T {
        let replaced = self.replace.as_mut().and_then(|replace| replace(&self.path, child)?.downcast().ok());
        replaced.map_or_else(|| child.map_leaves(self), |new| *new)
    }

    /// As [`Walk::inner`], for stacked layers, whose leaves have a leading axis of layers, as in [`Stack`](crate::nn::Stack).
    pub fn stacked<T: Tree>(&mut self, layers: &T) -> T {
        self.layer_axes += 1;
        let layers = self.inner(layers);
        self.layer_axes -= 1;
        layers
    }

    /// Records the variant of an enum.
    pub fn variant(&mut self, name: &'static str) {
        self.record(|| Token::Variant(name));
    }

    /// Records the length of a sequence or map.
    pub fn len(&mut self, len: usize) {
        self.record(|| Token::Len(len));
    }

    /// Records a value that is neither a tensor nor a tree.
    pub fn static_value<T: Hash + ?Sized>(&mut self, value: &T) {
        self.record(|| Token::of_static(value));
    }

    /// Records a field, or an element, that is neither a tensor nor a tree.
    pub fn static_at<T: Hash + ?Sized>(&mut self, segment: Segment, value: &T) {
        self.record(|| Token::Enter(segment));
        self.static_value(value);
        self.record(|| Token::Exit);
    }

    fn enter<T: Tree>(&mut self, segment: Segment, child: &T) -> T {
        self.record(|| Token::Enter(segment.clone()));
        self.path.0.push(segment);
        let child = self.inner(child);
        self.path.0.pop();
        self.record(|| Token::Exit);
        child
    }

    fn record(&mut self, token: impl FnOnce() -> Token) {
        match &mut self.structure {
            Tokens::Ignored | Tokens::Expected(None) => {}
            Tokens::Recorded(tokens) => tokens.push(token()),
            Tokens::Expected(expected) => {
                let next = expected.and_then(<[Token]>::split_first);
                *expected = next.filter(|(next, _)| **next == token()).map(|(_, rest)| rest);
            }
        }
    }
}

/// The leaves of a tree with their paths, in order.
///
/// ```
/// use remat::tree::leaves;
/// use remat::Tensor;
/// let pair = (Tensor::from(1.0f32), vec![Tensor::from(2.0f32)]);
/// let paths: Vec<String> = leaves(&pair).iter().map(|(path, _)| path.to_string()).collect();
/// assert_eq!(paths, ["0", "1.0"]);
/// ```
pub fn leaves<T: Tree>(tree: &T) -> Vec<(Path, Tensor)> {
    let mut leaves = Vec::new();
    tree.map_leaves(&mut Walk::new(&mut |path, tensor| {
        leaves.push((path.clone(), tensor.clone()));
        tensor.clone()
    }));
    leaves
}

/// The tree with `f` applied to each leaf, for example to scale, cast or move parameters. With [`Tensor::clone`] it is a clone of any tree,
/// whose leaves share their elements.
///
/// ```
/// use remat::{Tensor, tree};
/// let pair = (Tensor::from(1.0f32), vec![Tensor::from(2.0f32)]);
/// let doubled = tree::map(&pair, |x| x * 2);
/// assert_eq!(doubled.1[0].item::<f32>()?, 4.0);
/// # Ok::<(), remat::Error>(())
/// ```
pub fn map<T: Tree>(tree: &T, mut f: impl FnMut(&Tensor) -> Tensor) -> T {
    tree.map_leaves(&mut Walk::new(&mut |_, leaf| f(leaf)))
}

/// The same tree, whose leaves share their elements.
pub(crate) fn cloned<T: Tree>(tree: &T) -> T {
    map(tree, Tensor::clone)
}

/// As [`map`], for a function that also takes the path of the leaf.
///
/// ```
/// use remat::{Tensor, tree};
/// let pair = (Tensor::from(1.0f32), vec![Tensor::from(2.0f32)]);
/// let second = tree::map_with_path(&pair, |path, x| if path.to_string() == "1.0" { x * 2 } else { x.clone() });
/// assert_eq!((second.0.item::<f32>()?, second.1[0].item::<f32>()?), (1.0, 4.0));
/// # Ok::<(), remat::Error>(())
/// ```
pub fn map_with_path<T: Tree>(tree: &T, mut f: impl FnMut(&Path, &Tensor) -> Tensor) -> T {
    tree.map_leaves(&mut Walk::new(&mut f))
}

/// The tree with `f` applied to each pair of corresponding leaves of two trees, for example to average or add parameters.
///
/// # Errors
/// If the structures of the trees differ.
///
/// ```
/// use remat::{Tensor, tree};
/// let (a, b) = (vec![Tensor::from(1.0f32)], vec![Tensor::from(2.0f32)]);
/// let mean = tree::map2(&a, &b, |a, b| (a + b) / 2)?;
/// assert_eq!(mean[0].item::<f32>()?, 1.5);
/// assert!(tree::map2(&a, &vec![], |a, _| a.clone()).is_err());
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn map2<T: Tree>(a: &T, b: &T, mut f: impl FnMut(&Tensor, &Tensor) -> Tensor) -> Result<T> {
    let (others, other) = structure(b);
    if let Some(difference) = structure(a).1.difference(&other) {
        let message = format!("the trees have different structures: {difference}");
        return Err(Error::new(ErrorKind::Structure, "tree::map2", message).at(super::current_loc()));
    }
    let mut others = others.iter();
    // Equal structures have equally many leaves.
    Ok(map(a, |x| others.next().map_or_else(|| x.clone(), |y| f(x, y))))
}

/// The leaves of a tree, and its structure.
pub(crate) fn structure<T: Tree>(tree: &T) -> (Vec<Tensor>, Structure) {
    let mut leaves = Vec::new();
    let mut visit = |_: &Path, tensor: &Tensor| {
        leaves.push(tensor.clone());
        tensor.clone()
    };
    let mut walk = Walk { structure: Tokens::Recorded(Vec::new()), ..Walk::new(&mut visit) };
    tree.map_leaves(&mut walk);
    let tokens = if let Tokens::Recorded(tokens) = walk.structure { tokens } else { Vec::new() };
    (leaves, Structure(tokens))
}

/// The leaves of a tree if it has this structure, with `count` leaves, and `None` otherwise. It builds no structure for the tree.
pub(crate) fn leaves_like<T: Tree>(tree: &T, structure: &Structure, count: usize) -> Option<Vec<Tensor>> {
    let mut leaves = Vec::with_capacity(count);
    let mut visit = |_: &Path, tensor: &Tensor| {
        leaves.push(tensor.clone());
        tensor.clone()
    };
    let mut walk = Walk { structure: Tokens::Expected(Some(&structure.0)), ..Walk::new(&mut visit) };
    tree.map_leaves(&mut walk);
    matches!(walk.structure, Tokens::Expected(Some([]))).then_some(leaves)
}

/// The paths of the leaves.
pub(crate) fn leaf_paths<T: Tree>(tree: &T) -> Vec<Path> {
    leaves(tree).into_iter().map(|(path, _)| path).collect()
}

/// A tree with the structure of `like` and these leaves.
///
/// # Errors
/// If their number differs from the number of leaves of `like`.
pub(crate) fn rebuild<T: Tree>(like: &T, leaves: Vec<Tensor>) -> Result<T> {
    let given = leaves.len();
    let mut expected = 0;
    let mut leaves = leaves.into_iter();
    let tree = like.map_leaves(&mut Walk::new(&mut |_, old| {
        expected += 1;
        leaves.next().unwrap_or_else(|| old.clone())
    }));
    if expected != given {
        let message = format!("a tree of {expected} leaves cannot be made of {given}");
        return Err(Error::new(ErrorKind::Internal, "tree", message));
    }
    Ok(tree)
}

impl Tree for Tensor {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        walk.leaf(self)
    }
}

impl Tree for () {
    fn map_leaves(&self, _: &mut Walk<'_>) -> Self {}
}

impl<T: Tree> Tree for Vec<T> {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        walk.len(self.len());
        self.iter().enumerate().map(|(i, child)| walk.index(i, child)).collect()
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        std::array::from_fn(|i| walk.index(i, &self[i]))
    }
}

impl<T: Tree> Tree for Box<T> {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        Box::new(walk.inner(&**self))
    }
}

impl<T: ?Sized + 'static> Tree for PhantomData<T> {
    fn map_leaves(&self, _: &mut Walk<'_>) -> Self {
        PhantomData
    }
}

impl<T: Tree> Tree for Option<T> {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        walk.variant(if self.is_some() { "Some" } else { "None" });
        self.as_ref().map(|child| walk.inner(child))
    }
}

impl<K: Clone + Ord + fmt::Display + 'static, T: Tree> Tree for BTreeMap<K, T> {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        walk.len(self.len());
        self.iter().map(|(key, child)| (key.clone(), walk.key(&key.to_string(), child))).collect()
    }
}

/// Calls a macro for tuples of each length from 1 to 8, with a type parameter and an index for each element.
macro_rules! for_tuples {
    ($implement:ident) => {
        $implement!(A 0);
        $implement!(A 0, B 1);
        $implement!(A 0, B 1, C 2);
        $implement!(A 0, B 1, C 2, D 3);
        $implement!(A 0, B 1, C 2, D 3, E 4);
        $implement!(A 0, B 1, C 2, D 3, E 4, F 5);
        $implement!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
        $implement!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
    };
}

pub(crate) use for_tuples;

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Tree),*> Tree for ($($name,)*) {
            fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
                ($(walk.index($index, &self.$index),)*)
            }
        }
    };
}

for_tuples!(tuples);

macro_rules! static_trees {
    ($($type:ty => $hash:expr;)*) => {
        $(impl Tree for $type {
            fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
                let hash: fn(&$type) -> _ = $hash;
                walk.static_value(&hash(self));
                self.clone()
            }
        })*
    };
}

static_trees! {
    bool => |x| *x;
    char => |x| *x;
    i8 => |x| *x;
    i16 => |x| *x;
    i32 => |x| *x;
    i64 => |x| *x;
    isize => |x| *x;
    u8 => |x| *x;
    u16 => |x| *x;
    u32 => |x| *x;
    u64 => |x| *x;
    usize => |x| *x;
    f32 => |x| x.to_bits();
    f64 => |x| x.to_bits();
    String => |x| x.clone();
    &'static str => |x| *x;
    remat_ir::DType => |x| *x;
    remat_ir::Policy => |x| x.clone();
}
