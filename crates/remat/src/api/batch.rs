//! Batching of functions.

use std::sync::Arc;

use remat_ir::{Aval, Error, ErrorKind, Loc, Result, counted};

use crate::trace::{
    Output, Tensor, Tree, bind1, current_loc, leaf_paths, pinned_at, rebuild, run, structure, trace, with_axes,
};
use crate::transform;

/// The batch axis of each leaf. Negative axes count from the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BatchAxes {
    /// The same axis in every leaf.
    All(i64),
    /// One entry per leaf, in order; `None` for a leaf that all examples share.
    PerLeaf(Vec<Option<i64>>),
}

impl BatchAxes {
    fn of(&self, leaf: usize) -> Option<i64> {
        match self {
            BatchAxes::All(axis) => Some(*axis),
            BatchAxes::PerLeaf(axes) => axes.get(leaf).copied().flatten(),
        }
    }

    fn expect_leaves(&self, what: &str, leaves: usize, loc: Loc) -> Result<()> {
        match self {
            BatchAxes::PerLeaf(axes) if axes.len() != leaves => {
                let message = format!("{} for the {} of the {what}", given(axes.len()), counted(leaves, "leaf"));
                Err(Error::new(ErrorKind::Axis, "vmap", message).at(loc))
            }
            BatchAxes::All(_) | BatchAxes::PerLeaf(_) => Ok(()),
        }
    }
}

/// Options of [`vmap_with`].
#[derive(Clone, Debug)]
pub struct VmapOptions {
    /// The batch axes of the argument.
    pub in_axes: BatchAxes,
    /// The batch axes of the result. A leaf with `None` must be the same for all examples.
    pub out_axes: BatchAxes,
    /// The number of examples; needed only if no leaf of the argument is batched.
    pub size: Option<usize>,
    /// The name of the axis of examples, along which collectives such as [`Tensor::psum`] communicate inside the function.
    pub axis_name: Option<String>,
}

impl Default for VmapOptions {
    fn default() -> VmapOptions {
        VmapOptions { in_axes: BatchAxes::All(0), out_axes: BatchAxes::All(0), size: None, axis_name: None }
    }
}

/// Applies a function to all examples of a batch at once, along the first axis of every leaf of its argument. Values that the closure
/// captures are shared by all examples.
///
/// ```
/// use remat::{Tensor, vmap};
/// let x = Tensor::from(vec![1.0f32, 2.0, 3.0]);
/// let y = vmap(|x: &Tensor| x * x)(&x)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0, 9.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if a leaf has no dimensions, or the sizes differ.
#[track_caller]
pub fn vmap<A: Tree, R: Output>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<R::Tree> {
    vmap_with(&VmapOptions::default(), f)
}

/// As [`vmap`] with other batch axes.
///
/// ```
/// use remat::{BatchAxes, Tensor, VmapOptions, vmap_with};
/// let columns = VmapOptions { in_axes: BatchAxes::All(1), ..VmapOptions::default() };
/// let sums = vmap_with(&columns, |x: &Tensor| x.sum(..))(&Tensor::new([[1, 2, 3], [4, 5, 6]]))?;
/// assert_eq!(sums.to_vec::<i32>()?, [5, 7, 9]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`vmap`]; if an axis is out of range.
#[track_caller]
pub fn vmap_with<A: Tree, R: Output, F: Fn(&A) -> R>(
    options: &VmapOptions,
    f: F,
) -> impl Fn(&A) -> Result<R::Tree> + use<A, R, F> {
    let options = options.clone();
    let loc = current_loc();
    move |x| batch(&options, &f, x, loc)
}

fn batch<A: Tree, R: Output>(options: &VmapOptions, f: &impl Fn(&A) -> R, x: &A, loc: Loc) -> Result<R::Tree> {
    let leaves = structure(x).0;
    options.in_axes.expect_leaves("argument", leaves.len(), loc)?;
    let mut size = options.size;
    let mut giver = "the options".to_string();
    let mut axes = Vec::with_capacity(leaves.len());
    let mut example_avals = Vec::with_capacity(leaves.len());
    for ((i, leaf), path) in leaves.iter().enumerate().zip(leaf_paths(x)) {
        let aval = leaf.aval()?;
        let axis = match options.in_axes.of(i) {
            Some(axis) => Some(resolve(axis, aval, loc, || {
                let place = path.place();
                let advice = "to share it among all examples, capture it in the closure";
                format!("the argument{place} is {aval} and has no axis {axis} of examples; {advice}")
            })?),
            None => None,
        };
        let mut example = aval.clone();
        if let Some(axis) = axis {
            let n = example.shape.remove(axis);
            let own = format!("{aval}{}", path.place());
            match size {
                Some(size) if size != n => {
                    let message = format!("the numbers of examples differ: {size} of {giver} and {n} of {own}");
                    return Err(Error::new(ErrorKind::Shape, "vmap", message).at(loc));
                }
                Some(_) => {}
                None => (size, giver) = (Some(n), own),
            }
        }
        axes.push(axis);
        example_avals.push(example);
    }
    let Some(size) = size else {
        let message = "no leaf of the argument is batched, so the number of examples is not known; give it in `size`";
        return Err(Error::new(ErrorKind::Argument, "vmap", message).at(loc));
    };
    let name: Option<Arc<str>> = options.axis_name.as_deref().map(Arc::from);
    let axes_here: Vec<(Arc<str>, usize)> = name.iter().map(|name| (name.clone(), size)).collect();
    let (program, like) = with_axes("vmap", &axes_here, None, || {
        trace(example_avals, loc, |args| {
            let out = f(&rebuild(x, args.to_vec())?).into_result()?;
            Ok((structure(&out).0, out))
        })
    })
    .map_err(|e| e.at(loc))?;
    let num_outs = program.jaxpr.outs.len();
    options.out_axes.expect_leaves("result", num_outs, loc)?;
    let batched_ins: Vec<bool> =
        program.captured.iter().map(|_| false).chain(axes.iter().map(Option::is_some)).collect();
    let force: Vec<bool> = (0..num_outs).map(|i| options.out_axes.of(i).is_some()).collect();
    let batch = transform::Batch { size, name: name.as_ref() };
    let vmapped = transform::vmap_batch(&program.jaxpr, batch, &batched_ins, &force).map_err(|e| e.at(loc))?;
    if let Some(i) = (0..num_outs).find(|&i| vmapped.batched_outs[i] && !force[i]) {
        let path = leaf_paths(&like).into_iter().nth(i).unwrap_or_default();
        let message = format!("the result{} differs between examples, so it needs an axis in `out_axes`", path.place());
        return Err(Error::new(ErrorKind::Axis, "vmap", message).at(loc));
    }
    let mut args = program.captured.clone();
    for (leaf, axis) in leaves.iter().zip(&axes) {
        args.push(match axis {
            Some(axis) => pinned_at(loc, || move_axis(leaf, *axis, 0))?,
            None => leaf.clone(),
        });
    }
    let mut outs = run("vmap", &vmapped.jaxpr, &args, loc)?;
    for (i, out) in outs.iter_mut().enumerate() {
        if let Some(axis) = options.out_axes.of(i) {
            let aval = out.aval()?.clone();
            let place = resolve(axis, &aval, loc, || {
                format!("the result, {aval} with the axis of examples, has no axis {axis}")
            })?;
            *out = pinned_at(loc, || move_axis(out, 0, place))?;
        }
    }
    rebuild(&like, outs)
}

/// The position of a possibly negative axis.
fn resolve(axis: i64, aval: &Aval, loc: Loc, message: impl FnOnce() -> String) -> Result<usize> {
    let rank = aval.rank() as i64;
    if !(-rank..rank).contains(&axis) {
        return Err(Error::new(ErrorKind::Axis, "vmap", message()).at(loc));
    }
    Ok(axis.rem_euclid(rank) as usize)
}

/// `1 axis is given`, `2 axes are given`.
fn given(axes: usize) -> String {
    if axes == 1 { "1 axis is given".to_string() } else { format!("{axes} axes are given") }
}

fn move_axis(x: &Tensor, from: usize, to: usize) -> Result<Tensor> {
    if from == to {
        return Ok(x.clone());
    }
    let mut permutation: Vec<usize> = (0..x.aval()?.rank()).collect();
    let axis = permutation.remove(from);
    permutation.insert(to, axis);
    Ok(bind1(remat_ir::Transpose { permutation: permutation.into() }, &[x]))
}
