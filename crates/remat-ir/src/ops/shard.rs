//! Programs on meshes: a `shard_map`, whose body computes on one shard, and a constraint on how a value is cut.

use std::sync::Arc;

use super::control::expect_avals;
use super::op::op;
use super::values::{ParamGroup, ParamValue, named};
use super::{Operation, Param, ParamMap, Params, expect_operands};
use crate::{Aval, Cut, Error, ErrorKind, Jaxpr, Mesh, PartitionSpec, Result, Sharding};

/// A program on every device of a mesh. Operands are cut into shards, one for each device. The body computes on them, and its collectives
/// communicate along the axes of the mesh. The shards of the results are joined. Along an axis that the spec of a result does not name, all
/// shards must be equal, and the first is taken.
///
/// The mesh may be some axes of a larger one, `within`. Along the other axes an engine may cut the values of the body in any way, as it
/// does outside of a `shard_map`: the meaning of the program does not depend on them. A `shard_map` in the body may use these axes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ShardMap {
    pub jaxpr: Arc<Jaxpr>,
    pub mesh: Arc<Mesh>,
    /// How each operand is cut.
    pub in_specs: Vec<PartitionSpec>,
    /// How the shards of each result are joined.
    pub out_specs: Vec<PartitionSpec>,
    /// The mesh of all devices, if this mesh has only some of its axes.
    pub within: Option<Arc<Mesh>>,
}

/// The operand, to be cut over devices in this way. It is an identity; only engines with several devices cut the value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the parameters that programs print")]
pub struct ShardingConstraint {
    pub sharding: Arc<Sharding>,
}

impl ShardMap {
    /// The mesh of all devices; [`ShardMap::mesh`] has all or some of its axes.
    pub fn devices(&self) -> &Arc<Mesh> {
        self.within.as_ref().unwrap_or(&self.mesh)
    }

    /// The avals of the shards of operands.
    ///
    /// # Errors
    /// If an operand cannot be cut by its spec.
    pub fn shard_avals(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        if ins.len() != self.in_specs.len() {
            let message = format!("{} specs are given for {} operands", self.in_specs.len(), ins.len());
            return Err(Error::new(ErrorKind::Argument, "shard_map", message));
        }
        self.in_specs.iter().zip(ins).map(|(spec, aval)| spec.shard_aval("shard_map", aval, &self.mesh)).collect()
    }
}

impl Operation for ShardMap {
    op! { "shard_map" class Call { in_specs, jaxpr, mesh, out_specs, within } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        if let Some(within) = &self.within
            && !self.mesh.is_part_of(within)
        {
            let message = format!("the axes of {} are not axes of {within}, in the same order", self.mesh);
            return Err(Error::new(ErrorKind::Axis, self.name(), message));
        }
        let shards = self.shard_avals(ins)?;
        expect_avals(self.name(), "shard of operand", &shards, "the body takes", &self.jaxpr.in_avals())?;
        let outs = self.jaxpr.out_avals();
        if outs.len() != self.out_specs.len() {
            let message = format!("{} specs are given for {} results", self.out_specs.len(), outs.len());
            return Err(Error::new(ErrorKind::Argument, self.name(), message));
        }
        self.out_specs.iter().zip(&outs).map(|(spec, aval)| spec.whole_aval(self.name(), aval, &self.mesh)).collect()
    }
}

impl Operation for ShardingConstraint {
    op! { "sharding_constraint" class Marker { ..sharding } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        self.sharding.spec.shard_aval(self.name(), &ins[0], &self.sharding.mesh)?;
        Ok(ins.to_vec())
    }
}

/// `((data, 4), (model, 2))`
impl ParamValue for Arc<Mesh> {
    fn to_param(&self) -> Option<Param> {
        let axis = |(name, size): &(Arc<str>, usize)| vec![Param::Word(name.clone()), Param::Int(*size as i64)];
        Some(Param::Tuple(self.axes().iter().map(axis).map(Param::Tuple).collect()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let axis = |item| match item {
            Param::Tuple(pair) => match &pair[..] {
                [Param::Word(name), Param::Int(size)] => Some((name.clone(), usize::try_from(*size).ok()?)),
                _ => None,
            },
            _ => None,
        };
        let axes: Vec<_> = params.tuple(name, "is not a tuple of names and sizes", axis)?;
        Ok(Arc::new(Mesh::new(axes)?))
    }
}

/// It prints only if there is one.
impl ParamValue for Option<Arc<Mesh>> {
    fn to_param(&self) -> Option<Param> {
        self.as_ref()?.to_param()
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        params.has(name).then(|| params.read(name)).transpose()
    }
}

impl ParamValue for Vec<PartitionSpec> {
    fn to_param(&self) -> Option<Param> {
        Some(Param::Tuple(self.iter().map(of_spec).collect()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        params.tuple(name, "is not a tuple of partition specs", to_spec)
    }
}

impl ParamGroup for Arc<Sharding> {
    fn to_params(&self) -> Params {
        named("mesh", &self.mesh).chain([("spec", of_spec(&self.spec))]).collect()
    }

    fn take(params: &ParamMap<'_>) -> Result<Self> {
        let spec = to_spec(params.take("spec")?).ok_or_else(|| params.error("spec", "is not a partition spec"))?;
        Ok(Arc::new(Sharding { mesh: params.read("mesh")?, spec }))
    }
}

/// `(data, None, (x, y))`
fn of_spec(spec: &PartitionSpec) -> Param {
    let word = |name: &Arc<str>| Param::Word(name.clone());
    let cut = |cut: &Cut| match &cut.0[..] {
        [] => Param::None,
        [name] => word(name),
        names => Param::Tuple(names.iter().map(word).collect()),
    };
    Param::Tuple(spec.dims().iter().map(cut).collect())
}

/// Reads back [`of_spec`].
fn to_spec(param: Param) -> Option<PartitionSpec> {
    let Param::Tuple(items) = param else { return None };
    let word = |item| if let Param::Word(name) = item { Some(name) } else { None };
    let cut = |item| match item {
        Param::None => Some(Cut::default()),
        Param::Word(name) => Some(Cut(vec![name])),
        Param::Tuple(names) => Some(Cut(names.into_iter().map(word).collect::<Option<_>>()?)),
        _ => None,
    };
    Some(PartitionSpec::new(items.into_iter().map(cut).collect::<Option<Vec<_>>>()?))
}
