//! Meshes of devices with named axes, and how arrays are cut over them.

use std::fmt;
use std::sync::Arc;

use crate::{Aval, Error, ErrorKind, Result, Shape, did_you_mean};

/// Devices in a grid whose axes have names: `data` of 4 by `model` of 2 are 8 devices. Devices are numbered in row-major order.
///
/// ```
/// use remat_ir::Mesh;
/// let mesh = Mesh::new([("data", 4), ("model", 2)])?;
/// assert_eq!(mesh.to_string(), "Mesh(data=4, model=2)");
/// assert_eq!((mesh.devices(), mesh.size("model")), (8, Some(2)));
/// let error = Mesh::new([("data", 4), ("data", 2)]).unwrap_err();
/// assert_eq!(error.to_string(), "mesh: two axes are called `data`");
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mesh {
    axes: Vec<(Arc<str>, usize)>,
}

impl Mesh {
    /// A mesh of these axes, slowest first.
    ///
    /// # Errors
    /// If a size is 0, two axes have the same name, or there are too many devices to count.
    pub fn new<N: Into<Arc<str>>>(axes: impl IntoIterator<Item = (N, usize)>) -> Result<Mesh> {
        let axes: Vec<(Arc<str>, usize)> = axes.into_iter().map(|(name, size)| (name.into(), size)).collect();
        let wrong = |message: String| Err(Error::new(ErrorKind::Axis, "mesh", message));
        for (i, (name, size)) in axes.iter().enumerate() {
            if *size == 0 {
                return wrong(format!("the axis `{name}` has no devices"));
            }
            if axes[..i].iter().any(|(other, _)| other == name) {
                return wrong(format!("two axes are called `{name}`"));
            }
        }
        if axes.iter().try_fold(1usize, |n, (_, size)| n.checked_mul(*size)).is_none_or(|n| i32::try_from(n).is_err()) {
            return wrong("there are more than 2^31 devices".to_string());
        }
        Ok(Mesh { axes })
    }

    /// The names and sizes of the axes, the slowest first.
    pub fn axes(&self) -> &[(Arc<str>, usize)] {
        &self.axes
    }

    /// The size of an axis, if there is one of this name.
    pub fn size(&self, name: &str) -> Option<usize> {
        self.axes.iter().find(|(axis, _)| **axis == *name).map(|(_, size)| *size)
    }

    /// The mesh of some of the axes, in the order of this mesh.
    ///
    /// ```
    /// use remat_ir::Mesh;
    /// let mesh = Mesh::new([("data", 4), ("expert", 1), ("model", 2)])?;
    /// let part = mesh.part(|axis| axis != "expert");
    /// assert_eq!(part.to_string(), "Mesh(data=4, model=2)");
    /// assert!(part.is_part_of(&mesh) && !mesh.is_part_of(&part));
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    #[must_use]
    pub fn part(&self, has: impl Fn(&str) -> bool) -> Mesh {
        Mesh { axes: self.axes.iter().filter(|(name, _)| has(name)).cloned().collect() }
    }

    /// Whether the axes of this mesh are some or all axes of another, in the same order.
    pub fn is_part_of(&self, other: &Mesh) -> bool {
        other.part(|name| self.size(name).is_some()) == *self
    }

    /// The number of devices: the product of the sizes.
    pub fn devices(&self) -> usize {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// The number of shards that cutting over these axes gives: the product of their sizes.
    pub fn shards(&self, axes: &[Arc<str>]) -> usize {
        axes.iter().filter_map(|name| self.size(name)).product()
    }

    /// The position of a device along an axis, if the mesh has an axis of this name.
    pub fn position(&self, device: usize, name: &str) -> Option<usize> {
        let at = self.axes.iter().position(|(axis, _)| **axis == *name)?;
        let stride: usize = self.axes[at + 1..].iter().map(|(_, size)| size).product();
        Some(device / stride % self.axes[at].1)
    }

    /// The index of a device's shard in a cut over these axes, the first of which is the slowest.
    pub fn shard(&self, device: usize, axes: &[Arc<str>]) -> usize {
        axes.iter().fold(0, |n, name| n * self.size(name).unwrap_or(1) + self.position(device, name).unwrap_or(0))
    }

    /// Fails unless the mesh has an axis of this name.
    ///
    /// # Errors
    /// An error of `operation` that lists the axes.
    pub fn expect_axis(&self, operation: &str, name: &str) -> Result<()> {
        match self.size(name) {
            Some(_) => Ok(()),
            None => Err(unknown_axis(operation, name, self.axes.iter().map(|(name, _)| &**name))),
        }
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        write!(f, "Mesh({})", axes.join(", "))
    }
}

/// The error for an axis name that is not bound.
///
/// ```
/// let error = remat_ir::unknown_axis("psum", "dta", ["data"].into_iter());
/// assert_eq!(error.to_string(), "psum: unknown axis `dta`; did you mean `data`?");
/// ```
pub fn unknown_axis<'a>(operation: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let listed = || match &known[..] {
        [] => "; no axis has a name here: `shard_map` and the option `axis_name` of `vmap` give names".to_string(),
        known => format!("; the axes here are `{}`", known.join("`, `")),
    };
    let advice = did_you_mean(name, known.iter().copied(), listed);
    Error::new(ErrorKind::Axis, operation, format!("unknown axis `{name}`{advice}"))
}

/// The axes of a mesh over which one dimension of an array is cut, slowest first; none for a dimension that is not cut.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cut(pub Vec<Arc<str>>);

impl From<&str> for Cut {
    fn from(axis: &str) -> Cut {
        Cut(vec![axis.into()])
    }
}

impl From<Option<&str>> for Cut {
    fn from(axis: Option<&str>) -> Cut {
        Cut(axis.into_iter().map(Arc::from).collect())
    }
}

impl<const N: usize> From<[&str; N]> for Cut {
    fn from(axes: [&str; N]) -> Cut {
        Cut(axes.into_iter().map(Arc::from).collect())
    }
}

/// How an array is cut over a mesh: for each dimension the axes over which it is cut. Dimensions that are not listed are whole, and along
/// axes that are not listed the array is replicated. [`spec!`](crate::spec) writes one.
///
/// ```
/// use remat_ir::{Aval, DType, Mesh, PartitionSpec, spec};
/// let spec = spec!["data", None, ["x", "y"]];
/// assert_eq!(spec.to_string(), "P(data, None, (x, y))");
/// assert_eq!(spec![None], PartitionSpec::default());
/// let mesh = Mesh::new([("data", 4), ("x", 1), ("y", 2)])?;
/// let shard = spec.shard_aval("f", &Aval::new(DType::F32, [8, 3, 6]), &mesh)?;
/// assert_eq!(shard.to_string(), "f32[2,3,3]");
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PartitionSpec {
    dims: Vec<Cut>,
}

impl PartitionSpec {
    /// The cuts of the dimensions.
    pub fn new<C: Into<Cut>>(dims: impl IntoIterator<Item = C>) -> PartitionSpec {
        let mut dims: Vec<Cut> = dims.into_iter().map(Into::into).collect();
        while dims.last().is_some_and(|cut| cut.0.is_empty()) {
            dims.pop();
        }
        PartitionSpec { dims }
    }

    /// The cuts of the dimensions up to the last one that is cut.
    pub fn dims(&self) -> &[Cut] {
        &self.dims
    }

    /// The axes over which a dimension is cut.
    pub fn axes_of(&self, dim: usize) -> &[Arc<str>] {
        self.dims.get(dim).map_or(&[], |cut| &cut.0)
    }

    /// All axes over which the array is cut.
    pub fn axes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.dims.iter().flat_map(|cut| &cut.0)
    }

    /// The spec of an array with one more dimension at this position, which is not cut.
    #[must_use]
    pub fn with_dim(&self, at: usize) -> PartitionSpec {
        let mut dims = self.dims.clone();
        if at < dims.len() {
            dims.insert(at, Cut::default());
        }
        PartitionSpec { dims }
    }

    /// The spec without these axes: nothing is cut over them.
    #[must_use]
    pub fn without(&self, axes: &[Arc<str>]) -> PartitionSpec {
        let cut = |cut: &Cut| Cut(cut.0.iter().filter(|axis| !axes.contains(axis)).cloned().collect());
        PartitionSpec::new(self.dims.iter().map(cut))
    }

    /// The aval of one shard of an array.
    ///
    /// # Errors
    /// An error of `operation` if an axis is not in the mesh or is used twice, if the spec has more dimensions than the array, or if a size
    /// is not a multiple of the number of shards.
    pub fn shard_aval(&self, operation: &str, aval: &Aval, mesh: &Mesh) -> Result<Aval> {
        let mut seen: Vec<&Arc<str>> = Vec::new();
        for axis in self.axes() {
            mesh.expect_axis(operation, axis)?;
            if seen.contains(&axis) {
                let message = format!("the axis `{axis}` is used twice in {self}");
                return Err(Error::new(ErrorKind::Axis, operation, message));
            }
            seen.push(axis);
        }
        let wrong = |message| Err(Error::new(ErrorKind::Shape, operation, message));
        if self.dims.len() > aval.rank() {
            return wrong(format!(
                "{self} cuts dimension {} of {aval}, which has {}",
                self.dims.len() - 1,
                aval.rank()
            ));
        }
        let mut shape = Shape::new();
        for (d, &size) in aval.shape.iter().enumerate() {
            let shards = mesh.shards(self.axes_of(d));
            if !size.is_multiple_of(shards) {
                return wrong(format!("dimension {d} of {aval} cannot be cut into {shards} shards by {self}"));
            }
            shape.push(size / shards);
        }
        Ok(aval.with_shape(shape))
    }

    /// The aval of an array whose shards have the aval `shard`.
    ///
    /// # Errors
    /// An error of `operation` as [`PartitionSpec::shard_aval`], or if the array has too many elements to count.
    pub fn whole_aval(&self, operation: &str, shard: &Aval, mesh: &Mesh) -> Result<Aval> {
        let sizes = shard.shape.iter().enumerate().map(|(d, &size)| size.checked_mul(mesh.shards(self.axes_of(d))));
        let Some(shape) = sizes.collect::<Option<Shape>>() else {
            let message = format!("shards {shard}, joined by {self}, have more elements than can be counted");
            return Err(Error::new(ErrorKind::Shape, operation, message));
        };
        let whole = shard.with_shape(shape);
        self.shard_aval(operation, &whole, mesh)?;
        Ok(whole)
    }
}

impl fmt::Display for PartitionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self
            .dims
            .iter()
            .map(|cut| match &cut.0[..] {
                [] => "None".to_string(),
                [axis] => axis.to_string(),
                axes => format!("({})", axes.join(", ")),
            })
            .collect();
        write!(f, "P({})", dims.join(", "))
    }
}

/// A [`PartitionSpec`], written as JAX's `P`: for each dimension the name of an axis, several in brackets, or `None`.
///
/// ```
/// use remat_ir::spec;
/// assert_eq!(spec!["data"].to_string(), "P(data)");
/// assert_eq!(spec![None, ["x", "y"]].to_string(), "P(None, (x, y))");
/// assert_eq!(spec![].to_string(), "P()");
/// ```
#[macro_export]
macro_rules! spec {
    ($($dim:expr),* $(,)?) => {
        $crate::PartitionSpec::new::<$crate::Cut>([$($crate::Cut::from($dim)),*])
    };
}

/// How an array is distributed over devices: a mesh and a partition spec.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sharding {
    /// The devices.
    pub mesh: Arc<Mesh>,
    /// How the array is cut over them.
    pub spec: PartitionSpec,
}

impl Sharding {
    /// An array cut over a mesh.
    ///
    /// ```
    /// use remat_ir::{Mesh, Sharding, spec};
    /// let sharding = Sharding::new(&Mesh::new([("data", 4)])?, spec!["data"]);
    /// assert_eq!(sharding.to_string(), "P(data) over Mesh(data=4)");
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    pub fn new(mesh: &Mesh, spec: PartitionSpec) -> Sharding {
        Sharding { mesh: Arc::new(mesh.clone()), spec }
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {}", self.spec, self.mesh)
    }
}
