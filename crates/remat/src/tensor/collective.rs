//! Collectives, which communicate between the shards along a named axis, and constraints on how tensors are cut over devices.
//!
//! The operations of reductions have several axes, since one exchange is cheaper than two; others have one, and methods apply them in a row.

use std::sync::Arc;

use remat_ir::{
    AllGather, AllReduce, AllReduceKind, AllToAll, AxisIndex, Error, ErrorKind, Ppermute, ReduceScatter, Result,
    Sharding, ShardingConstraint,
};

use super::argument::{Int, axis};
use crate::Tensor;
use crate::trace::{bind1, bound_size, deferred};

/// The names of one or several axes: `"data"`, `["data", "model"]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisNames(Vec<Arc<str>>);

impl From<&str> for AxisNames {
    fn from(name: &str) -> AxisNames {
        AxisNames(vec![name.into()])
    }
}

impl From<&String> for AxisNames {
    fn from(name: &String) -> AxisNames {
        name.as_str().into()
    }
}

impl From<&[&str]> for AxisNames {
    fn from(names: &[&str]) -> AxisNames {
        AxisNames(names.iter().map(|&name| name.into()).collect())
    }
}

impl<const N: usize> From<[&str; N]> for AxisNames {
    fn from(names: [&str; N]) -> AxisNames {
        names.as_slice().into()
    }
}

impl Tensor {
    /// The sum over the shards along these axes, on every shard. The axes are those of the mesh inside [`shard_map`](crate::shard_map), and
    /// the axis of examples inside [`vmap_with`](crate::vmap_with) with the option `axis_name`.
    ///
    /// A gradient that is taken inside the mapped function, with respect to a shard's own value, is the gradient of the sum of the results
    /// of all shards.
    ///
    /// # Errors
    /// If there is no axis of such a name here, an axis is given twice, or the dtype is bool.
    ///
    /// ```
    /// use remat::{Tensor, VmapOptions, vmap_with};
    /// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
    /// let share = vmap_with(&options, |x: &Tensor| x / x.psum("i"));
    /// assert_eq!(share(&Tensor::new([1.0f32, 3.0]))?.to_vec::<f32>()?, [0.25, 0.75]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn psum(&self, axes: impl Into<AxisNames>) -> Tensor {
        self.all_reduce(AllReduceKind::Sum, &axes.into())
    }

    /// The mean over the shards along these axes, on every shard: [`Tensor::psum`] divided by their number.
    ///
    /// # Errors
    /// As [`Tensor::psum`]; if the dtype is not a float.
    ///
    /// ```
    /// use remat::{Tensor, VmapOptions, vmap_with};
    /// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
    /// let centre = vmap_with(&options, |x: &Tensor| x - x.pmean("i"));
    /// assert_eq!(centre(&Tensor::new([1.0f32, 3.0]))?.to_vec::<f32>()?, [-1.0, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn pmean(&self, axes: impl Into<AxisNames>) -> Tensor {
        let axes = axes.into();
        deferred(|| {
            let mut shards = 1;
            for name in &axes.0 {
                shards *= bound_size("pmean", name)?;
            }
            let dtype = self.aval()?.dtype;
            if !dtype.is_float() {
                let message =
                    format!("takes floats, and the tensor holds {dtype}; convert it with .to_dtype(DType::F32)");
                return Err(Error::new(ErrorKind::DType, "pmean", message));
            }
            Ok(self.all_reduce(AllReduceKind::Sum, &axes) / shards as f64)
        })
    }

    /// The elementwise maximum over the shards along these axes, on every shard; NaN if one is NaN.
    ///
    /// # Errors
    /// If there is no axis of such a name here, or an axis is given twice.
    ///
    /// ```
    /// use remat::{Tensor, VmapOptions, vmap_with};
    /// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
    /// let scaled = vmap_with(&options, |x: &Tensor| x / x.pmax("i"));
    /// assert_eq!(scaled(&Tensor::new([1.0f32, 4.0]))?.to_vec::<f32>()?, [0.25, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn pmax(&self, axes: impl Into<AxisNames>) -> Tensor {
        self.all_reduce(AllReduceKind::Max, &axes.into())
    }

    /// The elementwise minimum over the shards along these axes, on every shard; NaN if one is NaN.
    ///
    /// # Errors
    /// As [`Tensor::pmax`].
    ///
    /// ```
    /// use remat::{Tensor, VmapOptions, vmap_with};
    /// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
    /// let least = vmap_with(&options, |x: &Tensor| x.pmin("i"));
    /// assert_eq!(least(&Tensor::new([1.0f32, 4.0]))?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn pmin(&self, axes: impl Into<AxisNames>) -> Tensor {
        self.all_reduce(AllReduceKind::Min, &axes.into())
    }

    #[track_caller]
    fn all_reduce(&self, kind: AllReduceKind, axes: &AxisNames) -> Tensor {
        deferred(|| {
            for name in &axes.0 {
                bound_size(kind.name(), name)?;
            }
            Ok(bind1(AllReduce { kind, axes: axes.0.clone().into() }, &[self]))
        })
    }

    /// The tensors of all shards along these axes, joined along an axis in row-major order of the named axes, the last of which varies
    /// fastest. Every shard gets the result. To join along a new axis, expand first: `x.expand_dims(0).all_gather("data", 0)`.
    ///
    /// # Errors
    /// If there is no axis of such a name here, or `axis` is out of range.
    ///
    /// ```
    /// use remat::{Tensor, VmapOptions, vmap_with};
    /// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
    /// let all = vmap_with(&options, |x: &Tensor| x.all_gather("i", 0));
    /// assert_eq!(all(&Tensor::new([[1, 2], [3, 4]]))?.to_vec::<i32>()?, [1, 2, 3, 4, 1, 2, 3, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn all_gather(&self, axes: impl Into<AxisNames>, axis: impl Int) -> Tensor {
        let AxisNames(names) = axes.into();
        deferred(|| {
            let dimension = self::axis("all_gather", self.aval()?, axis.get())?;
            let mut x = self.clone();
            for name in names.iter().rev() {
                let axis_size = bound_size("all_gather", name)?;
                x = bind1(AllGather { axis_name: name.clone(), axis_size, dimension }, &[&x]);
            }
            Ok(x)
        })
    }

    /// The sum over the shards along these axes, of which each shard gets one part, cut along `axis`. It sends half as many bytes as
    /// [`Tensor::psum`].
    ///
    /// # Errors
    /// If there is no axis of such a name here, `axis` is out of range or its size is not a multiple of the number of shards, or the dtype
    /// is bool.
    ///
    /// ```
    /// use remat::{Tensor, VmapOptions, vmap_with};
    /// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
    /// let parts = vmap_with(&options, |x: &Tensor| x.psum_scatter("i", 0));
    /// assert_eq!(parts(&Tensor::new([[1, 2], [3, 4]]))?.to_vec::<i32>()?, [4, 6]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[doc(alias = "reduce_scatter")]
    #[track_caller]
    pub fn psum_scatter(&self, axes: impl Into<AxisNames>, axis: impl Int) -> Tensor {
        let AxisNames(names) = axes.into();
        deferred(|| {
            let dimension = self::axis("psum_scatter", self.aval()?, axis.get())?;
            let mut x = self.clone();
            for name in &names {
                let axis_size = bound_size("psum_scatter", name)?;
                x = bind1(ReduceScatter { axis_name: name.clone(), axis_size, dimension }, &[&x]);
            }
            Ok(x)
        })
    }

    /// Each shard cuts its tensor along `split` and sends part `i` to shard `i` of the named axis. It joins the parts that it gets, in the
    /// order of the shards, along `concat`. So the whole tensor, which was cut along `concat`, is then cut along `split`.
    ///
    /// # Errors
    /// If there is no axis of this name here, `split` or `concat` is out of range, or the size of `split` is not a multiple of the number
    /// of shards.
    ///
    /// ```
    /// use remat::{Tensor, VmapOptions, vmap_with};
    /// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
    /// let exchanged = vmap_with(&options, |x: &Tensor| x.all_to_all("i", 0, 0));
    /// assert_eq!(exchanged(&Tensor::new([[1, 2], [3, 4]]))?.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn all_to_all(&self, axis_name: &str, split: impl Int, concat: impl Int) -> Tensor {
        deferred(|| {
            let aval = self.aval()?;
            let [split, concat] = [axis("all_to_all", aval, split.get())?, axis("all_to_all", aval, concat.get())?];
            let axis_size = bound_size("all_to_all", axis_name)?;
            Ok(bind1(AllToAll { axis_name: axis_name.into(), axis_size, split, concat }, &[self]))
        })
    }

    /// For each pair `(from, to)`, shard `to` of the axis gets the tensor of shard `from`. A shard to which none sends gets zeros.
    ///
    /// # Errors
    /// If there is no axis of this name here, a number is not that of a shard, or a shard sends or receives twice.
    ///
    /// ```
    /// use remat::{Tensor, VmapOptions, vmap_with};
    /// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
    /// let moved = vmap_with(&options, |x: &Tensor| x.ppermute("i", &[(0, 1), (1, 2)]));
    /// assert_eq!(moved(&Tensor::new([1, 2, 3]))?.to_vec::<i32>()?, [0, 1, 2]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn ppermute(&self, axis_name: &str, pairs: &[(usize, usize)]) -> Tensor {
        deferred(|| {
            let axis_size = bound_size("ppermute", axis_name)?;
            Ok(bind1(Ppermute { axis_name: axis_name.into(), axis_size, pairs: pairs.into() }, &[self]))
        })
    }

    /// The same tensor. An engine with several devices is asked to cut it over them in this way, which may move its elements. On one device
    /// it has no effect.
    ///
    /// # Errors
    /// If the tensor cannot be cut in this way.
    ///
    /// ```
    /// use remat::{DType, Mesh, Sharding, Tensor, spec};
    /// let sharding = Sharding::new(&Mesh::new([("data", 2)])?, spec!["data"]);
    /// let x = Tensor::ones([4, 3], DType::F32).with_sharding_constraint(&sharding);
    /// assert_eq!(x.shape()?, [4, 3]);
    /// let error = Tensor::ones([3], DType::F32).with_sharding_constraint(&sharding).shape().unwrap_err();
    /// assert_eq!(error.message(), "dimension 0 of f32[3] cannot be cut into 2 shards by P(data)");
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn with_sharding_constraint(&self, sharding: &Sharding) -> Tensor {
        bind1(ShardingConstraint { sharding: Arc::new(sharding.clone()) }, &[self])
    }
}

/// The position of the shard along a named axis, an i32 scalar.
///
/// # Errors
/// If there is no axis of this name here.
///
/// ```
/// use remat::{Tensor, VmapOptions, axis_index, vmap_with};
/// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
/// let numbered = vmap_with(&options, |x: &Tensor| x + axis_index("i"));
/// assert_eq!(numbered(&Tensor::new([10, 10, 10]))?.to_vec::<i32>()?, [10, 11, 12]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn axis_index(axis_name: &str) -> Tensor {
    deferred(|| {
        let axis_size = bound_size("axis_index", axis_name)?;
        Ok(bind1(AxisIndex { axis_name: axis_name.into(), axis_size }, &[]))
    })
}

/// The number of shards along a named axis.
///
/// # Errors
/// If there is no axis of this name here.
///
/// ```
/// use remat::{Tensor, VmapOptions, axis_size, vmap_with};
/// let options = VmapOptions { axis_name: Some("i".into()), ..VmapOptions::default() };
/// let counted = vmap_with(&options, |x: &Tensor| Ok::<_, remat::Error>(x * axis_size("i")? as f64));
/// assert_eq!(counted(&Tensor::new([1.0f32, 2.0]))?.to_vec::<f32>()?, [2.0, 4.0]);
/// assert!(axis_size("i").is_err());
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn axis_size(axis_name: &str) -> Result<usize> {
    let loc = crate::trace::current_loc();
    bound_size("axis_size", axis_name).map_err(|error| error.at(loc))
}
