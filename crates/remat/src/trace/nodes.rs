//! Replaces parts of trees that have a given type.

use std::any::Any;

use super::tree::{Path, Tree, Walk};

/// The tree with parts of type `N` replaced by the results of `f`; a part stays if `f` returns `None`. Use it to add adapters to linear
/// maps, or to exchange layers. Parts inside a replaced part are not visited; those inside a part that stays are.
///
/// ```
/// use remat::{Tensor, Tree, nn, random, tree};
/// #[derive(Clone, Tree)]
/// struct Model { layers: Vec<nn::Linear>, norm: nn::LayerNorm }
/// let layers = random::key(0).split_vec(2).into_iter().map(|key| nn::Linear::new(key, 4, 4)).collect();
/// let model = Model { layers, norm: nn::LayerNorm::new(4) };
/// let mut paths = Vec::new();
/// let without = tree::map_nodes(&model, |path, map: &nn::Linear| {
///     paths.push(path.to_string());
///     Some(nn::Linear { bias: None, ..map.clone() })
/// });
/// assert_eq!(paths, ["layers.0", "layers.1"]);
/// assert_eq!((tree::leaves(&model).len(), tree::leaves(&without).len()), (6, 4));
/// ```
pub fn map_nodes<N: Tree, T: Tree>(tree: &T, mut f: impl FnMut(&Path, &N) -> Option<N>) -> T {
    let mut replace = |path: &Path, node: &dyn Any| -> Option<Box<dyn Any>> {
        let new = f(path, node.downcast_ref()?)?;
        Some(Box::new(new))
    };
    // The whole tree counts as a part.
    if let Some(new) = replace(&Path::default(), tree).and_then(|new| new.downcast().ok()) {
        return *new;
    }
    tree.map_leaves(&mut Walk::replacing(&mut |_, leaf| leaf.clone(), &mut replace))
}
