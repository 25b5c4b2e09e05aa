//! Functions on meshes of devices.

use std::sync::Arc;

use remat_ir::{Aval, Error, ErrorKind, Loc, Mesh, PartitionSpec, Result, ShardMap, Sharding, counted};

use crate::tensor::AxisNames;
use crate::trace::{
    Output, Path, Segment, Structure, Tensor, Tree, avals, bind_at, current_loc, free_axes, leaf_paths, map, operands,
    pinned_at, rebuild, structure, trace, with_axes,
};
use crate::transform::expect_invariant;

/// How the leaves of a tree are cut over a mesh.
#[derive(Clone)]
pub enum Specs {
    /// Every leaf in the same way.
    All(PartitionSpec),
    /// One spec for each leaf, in order.
    PerLeaf(Vec<PartitionSpec>),
    /// One entry for each element of a tuple or sequence, including elements without leaves.
    Parts(Vec<Specs>),
    /// A function from the path and aval of a leaf to its spec.
    By(Arc<dyn Fn(&Path, &Aval) -> PartitionSpec + Send + Sync>),
}

impl Specs {
    /// The specs that `f` returns for each leaf.
    ///
    /// ```
    /// use remat::{DType, Mesh, Specs, Tensor, shard_map, spec};
    /// // Matrices are cut by rows, and vectors are copied.
    /// let by_rank = Specs::by(|_, aval| if aval.rank() == 2 { spec!["model"] } else { spec![] });
    /// let mesh = Mesh::new([("model", 2)])?;
    /// let product = shard_map(&mesh, by_rank, spec!["model"], |(w, x): &(Tensor, Tensor)| w.matmul(x));
    /// let y = product(&(Tensor::ones([4, 3], DType::F32), Tensor::ones([3], DType::F32)))?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0; 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn by(f: impl Fn(&Path, &Aval) -> PartitionSpec + Send + Sync + 'static) -> Specs {
        Specs::By(Arc::new(f))
    }

    /// The spec of each leaf of a tree with this structure.
    ///
    /// # Errors
    /// If their number does not match the leaves, or there are more parts than the tree has elements.
    fn of_leaves(
        &self,
        operation: &str,
        what: &str,
        leaves: &[(Path, Aval)],
        structure: &Structure,
    ) -> Result<Vec<PartitionSpec>> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Structure, operation, message));
        match self {
            Specs::All(spec) => Ok(vec![spec.clone(); leaves.len()]),
            Specs::By(f) => Ok(leaves.iter().map(|(path, aval)| f(path, aval)).collect()),
            Specs::PerLeaf(specs) if specs.len() == leaves.len() => Ok(specs.clone()),
            Specs::PerLeaf(specs) => {
                let (specs, leaves) = (counted(specs.len(), "spec"), counted(leaves.len(), "leaf"));
                wrong(format!("{specs} for the {leaves} of the {what}; give one for each leaf"))
            }
            // Without leaves, as in an absent option, there is nothing to cut.
            Specs::Parts(_) if leaves.is_empty() => Ok(Vec::new()),
            Specs::Parts(parts) => {
                let elements = structure.elements();
                let mut specs = vec![None; leaves.len()];
                for (i, part) in parts.iter().enumerate() {
                    let own: Vec<usize> =
                        (0..leaves.len()).filter(|&k| leaves[k].0.0.first() == Some(&Segment::Index(i))).collect();
                    let inside: Vec<(Path, Aval)> =
                        own.iter().map(|&k| (Path(leaves[k].0.0[1..].to_vec()), leaves[k].1.clone())).collect();
                    let element = elements.get(i).cloned().unwrap_or_default();
                    let what = format!("element {i} of the {what}");
                    for (k, spec) in own.into_iter().zip(part.of_leaves(operation, &what, &inside, &element)?) {
                        specs[k] = Some(spec);
                    }
                }
                match specs.iter().position(Option::is_none) {
                    None if parts.len() > elements.len() => {
                        let (parts, elements) = (counted(parts.len(), "element"), elements.len());
                        wrong(format!("the specs are a tuple of {parts}, and the {what} has {elements}"))
                    }
                    None => Ok(specs.into_iter().flatten().collect()),
                    Some(k) => {
                        let place = leaves[k].0.place();
                        let parts = counted(parts.len(), "element");
                        wrong(format!(
                            "the specs are a tuple of {parts}, in which there is none for the leaf{place} of the {what}"
                        ))
                    }
                }
            }
        }
    }
}

impl From<PartitionSpec> for Specs {
    fn from(spec: PartitionSpec) -> Specs {
        Specs::All(spec)
    }
}

impl From<Vec<PartitionSpec>> for Specs {
    fn from(specs: Vec<PartitionSpec>) -> Specs {
        Specs::PerLeaf(specs)
    }
}

macro_rules! parts {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Into<Specs>),*> From<($($name,)*)> for Specs {
            fn from(parts: ($($name,)*)) -> Specs {
                Specs::Parts(vec![$(parts.$index.into()),*])
            }
        }
    };
}

crate::trace::for_tuples!(parts);

/// A mesh, and how the leaves of a tree are cut over it: the shardings of `jit`'s arguments and results.
#[derive(Clone)]
pub struct Shardings {
    /// The devices.
    pub mesh: Mesh,
    /// How each leaf is cut.
    pub specs: Specs,
}

impl Shardings {
    /// Leaves that are cut over `mesh` as `specs` say.
    pub fn new(mesh: &Mesh, specs: impl Into<Specs>) -> Shardings {
        Shardings { mesh: mesh.clone(), specs: specs.into() }
    }

    /// The tree with a sharding constraint on each leaf, at this location.
    ///
    /// # Errors
    /// If there is not one spec per leaf. A leaf that its spec cannot cut becomes a failed tensor.
    pub(super) fn constrain<T: Tree>(&self, what: &str, tree: &T, loc: Loc) -> Result<T> {
        let (leaves, structure) = leaves_of(tree)?;
        let mut specs = self.specs.of_leaves("jit", what, &leaves, &structure)?.into_iter();
        Ok(map(tree, |x| match specs.next() {
            Some(spec) => pinned_at(loc, || x.with_sharding_constraint(&Sharding::new(&self.mesh, spec))),
            None => x.clone(),
        }))
    }
}

fn leaves_of<T: Tree>(tree: &T) -> Result<(Vec<(Path, Aval)>, Structure)> {
    let (leaves, structure) = structure(tree);
    Ok((leaf_paths(tree).into_iter().zip(avals(&leaves)?).collect(), structure))
}

/// Runs a function on every device of a mesh, each with its shards of the argument. The leaves are cut as `in_specs` say, and the shards of
/// the result are joined as `out_specs` say. In the function the axes of the mesh have names, along which collectives ([`Tensor::psum`] and
/// others) communicate. Values that the closure captures are copied to every device.
///
/// The engine of [`jit`](crate::jit) decides where it runs. On one device all shards are computed there, with the same result, so a program
/// for many devices can be tried on a laptop.
///
/// Data parallel training is one line: parameters are copied, the batch is cut, and gradients are averaged.
///
/// ```
/// use remat::{DType, Mesh, Tensor, pmean, shard_map, spec, value_and_grad};
/// let mesh = Mesh::new([("data", 4)])?;
/// let step = shard_map(&mesh, (spec![], spec!["data"]), spec![], |(w, x): &(Tensor, Tensor)| {
///     let loss = |w: &Tensor| x.matmul(w).square().mean(..);
///     Ok::<_, remat::Error>(pmean(&value_and_grad(loss)(w)?, "data"))
/// });
/// let (loss, gradient) = step(&(Tensor::ones([3], DType::F32), Tensor::ones([8, 3], DType::F32)))?;
/// assert_eq!((loss.item::<f32>()?, gradient.to_vec::<f32>()?), (9.0, vec![6.0; 3]));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// A derivative that is taken inside the function is that of the sum of all shards' results. In the example each shard's loss covers its
/// own part of the batch, so this is right. If the loss inside the derivative is the same on all shards, as after a [`Tensor::psum`] in the
/// forward pass of a tensor parallel model, it counts once per shard: gradients are multiplied by the size of the axis. Divide the loss by
/// this size inside the derivative, or take the derivative outside, where this is not needed:
///
/// ```
/// # use remat::{DType, Mesh, Tensor, grad, shard_map, spec};
/// let mesh = Mesh::new([("model", 4)])?;
/// let loss = |w: &Tensor| w.sum(..).psum("model");
/// let w = Tensor::ones([8], DType::F32);
/// let inside = shard_map(&mesh, spec!["model"], spec!["model"], |w: &Tensor| grad(loss)(w))(&w)?;
/// let divided = shard_map(&mesh, spec!["model"], spec!["model"], |w: &Tensor| grad(|w: &Tensor| loss(w) / 4.0)(w))(&w)?;
/// let outside = grad(|w: &Tensor| shard_map(&mesh, spec!["model"], spec![], loss)(w))(&w)?;
/// assert_eq!(inside.to_vec::<f32>()?, [4.0; 8]);
/// assert_eq!((divided.to_vec::<f32>()?, outside.to_vec::<f32>()?), (vec![1.0; 8], vec![1.0; 8]));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// A derivative may also be taken outside. The gradient of a copied operand is then the sum over its copies:
///
/// ```
/// # use remat::{DType, Mesh, Tensor, grad, shard_map, spec};
/// # let mesh = Mesh::new([("data", 4)])?;
/// let loss = shard_map(&mesh, (spec![], spec!["data"]), spec![], |(w, x): &(Tensor, Tensor)| {
///     x.matmul(w).square().mean(..).pmean("data")
/// });
/// let x = Tensor::ones([8, 3], DType::F32);
/// let gradient = grad(|w: &Tensor| loss(&(w.clone(), x.clone())))(&Tensor::ones([3], DType::F32))?;
/// assert_eq!(gradient.to_vec::<f32>()?, [6.0; 3]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if a leaf cannot be cut as its spec says; if a result differs between shards along an axis that its
/// spec does not name; if the function is inside another `shard_map`, except as [`shard_map_with`] allows.
#[track_caller]
pub fn shard_map<A: Tree, R: Output, F: Fn(&A) -> R, I: Into<Specs>, O: Into<Specs>>(
    mesh: &Mesh,
    in_specs: I,
    out_specs: O,
    f: F,
) -> impl Fn(&A) -> Result<R::Tree> + use<A, R, F, I, O> {
    shard_map_with(&ShardMapOptions::default(), mesh, in_specs, out_specs, f)
}

/// Options of [`shard_map_with`].
#[derive(Clone, Debug, Default)]
pub struct ShardMapOptions {
    /// The axes of the mesh that have names in the function and over which its specs cut. Along the other axes values stay whole in the
    /// function, and the engine cuts them as it does outside of a `shard_map`: by the shardings of their operands, and by
    /// [`Tensor::with_sharding_constraint`] in the function. With `None`, these are all axes that no enclosing `shard_map` has named.
    pub axis_names: Option<Vec<String>>,
}

/// As [`shard_map`] with options: along some axes of the mesh only, or inside the function of another `shard_map` over the same mesh, along
/// axes that the outer one leaves. The inner function can then use the names of both.
///
/// ```
/// use remat::{DType, Mesh, ShardMapOptions, Tensor, shard_map, shard_map_with, spec};
/// let mesh = Mesh::new([("data", 2), ("model", 4)])?;
/// let over_data = ShardMapOptions { axis_names: Some(vec!["data".into()]) };
/// let f = shard_map_with(&over_data, &mesh, spec!["data"], spec![], |x: &Tensor| {
///     // One half of the rows, and all columns, which are cut over `model` as the engine likes; here they are cut by hand.
///     let sum = shard_map(&mesh, spec![None, "model"], spec![], |x: &Tensor| x.sum(..).psum(["data", "model"]))(x)?;
///     Ok::<_, remat::Error>(sum)
/// });
/// assert_eq!(f(&Tensor::ones([6, 8], DType::F32))?.item::<f32>()?, 48.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`shard_map`]; if the mesh has no axis of such a name; if the function is inside another `shard_map` over another mesh, or over all
/// axes of this one.
#[track_caller]
pub fn shard_map_with<A: Tree, R: Output, F: Fn(&A) -> R, I: Into<Specs>, O: Into<Specs>>(
    options: &ShardMapOptions,
    mesh: &Mesh,
    in_specs: I,
    out_specs: O,
    f: F,
) -> impl Fn(&A) -> Result<R::Tree> + use<A, R, F, I, O> {
    let (options, mesh) = (options.clone(), Arc::new(mesh.clone()));
    let (in_specs, out_specs) = (in_specs.into(), out_specs.into());
    let loc = current_loc();
    move |x| run((&options, &mesh), &in_specs, &out_specs, &f, x, loc).map_err(|error| error.at(loc))
}

fn run<A: Tree, R: Output>(
    (options, devices): (&ShardMapOptions, &Arc<Mesh>),
    in_specs: &Specs,
    out_specs: &Specs,
    f: &impl Fn(&A) -> R,
    x: &A,
    loc: Loc,
) -> Result<R::Tree> {
    let mesh = &free_axes("shard_map", devices, options.axis_names.as_deref())?;
    let (leaves, of_argument) = leaves_of(x)?;
    let specs = in_specs.of_leaves("shard_map", "argument", &leaves, &of_argument)?;
    let mut shards = Vec::with_capacity(leaves.len());
    for ((path, aval), spec) in leaves.iter().zip(&specs) {
        shards.push(spec.shard_aval("shard_map", aval, mesh).map_err(|error| {
            let message = format!("the argument{}: {}", path.place(), error.message());
            Error::new(error.kind(), "shard_map", message)
        })?);
    }
    let (program, like) = with_axes("shard_map", mesh.axes(), Some(devices), || {
        trace(shards, loc, |args| {
            let out = f(&rebuild(x, args.to_vec())?).into_result()?;
            Ok((structure(&out).0, out))
        })
    })?;
    let paths = leaf_paths(&like);
    let results: Vec<(Path, Aval)> = paths.iter().cloned().zip(program.jaxpr.out_avals()).collect();
    let captured = program.captured.iter().map(|_| PartitionSpec::default());
    let op = ShardMap {
        in_specs: captured.chain(specs).collect(),
        out_specs: out_specs.of_leaves("shard_map", "result", &results, &structure(&like).1)?,
        jaxpr: program.jaxpr,
        mesh: Arc::new(mesh.clone()),
        within: (*mesh != **devices).then(|| devices.clone()),
    };
    expect_invariant(&op, |i| paths.get(i).map(Path::place).unwrap_or_default())?;
    let operands = operands(&program.captured, structure(x).0);
    let operands: Vec<&Tensor> = operands.iter().collect();
    rebuild(&like, bind_at(op, &operands, loc)?)
}

/// The tree with [`Tensor::psum`] of each leaf.
///
/// ```
/// use remat::{Tensor, VmapOptions, psum, vmap_with};
/// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
/// let sums = vmap_with(&options, |pair: &(Tensor, Tensor)| psum(pair, "i"));
/// let (a, b) = sums(&(Tensor::new([1, 2]), Tensor::new([3, 4])))?;
/// assert_eq!((a.to_vec::<i32>()?, b.to_vec::<i32>()?), (vec![3, 3], vec![7, 7]));
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn psum<T: Tree>(tree: &T, axes: impl Into<AxisNames>) -> T {
    let axes = axes.into();
    crate::trace::pinned(|| map(tree, |x| x.psum(axes.clone())))
}

/// The tree with [`Tensor::pmean`] of each leaf, for example to average gradients.
///
/// ```
/// use remat::{Tensor, VmapOptions, pmean, vmap_with};
/// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
/// let means = vmap_with(&options, |pair: &(Tensor, Tensor)| pmean(pair, "i"));
/// let (a, b) = means(&(Tensor::new([1.0f32, 2.0]), Tensor::new([3.0f32, 4.0])))?;
/// assert_eq!((a.to_vec::<f32>()?, b.to_vec::<f32>()?), (vec![1.5, 1.5], vec![3.5, 3.5]));
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn pmean<T: Tree>(tree: &T, axes: impl Into<AxisNames>) -> T {
    let axes = axes.into();
    crate::trace::pinned(|| map(tree, |x| x.pmean(axes.clone())))
}
