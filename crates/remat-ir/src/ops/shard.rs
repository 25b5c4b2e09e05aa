//! Programs on meshes: a `shard_map`, whose body computes on one shard, and a constraint on how a value is cut.

use std::sync::Arc;

use super::control::expect_avals;
use super::{Operation, Param, ParamMap, Params, expect_operands};
use crate::{Aval, Class, Cut, Error, ErrorKind, Jaxpr, Mesh, PartitionSpec, Result, Sharding};

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
    fn name(&self) -> &'static str {
        "shard_map"
    }

    fn class(&self) -> Class {
        Class::Call
    }

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

    fn params(&self) -> Params {
        let mut params = vec![
            ("in_specs", Param::Tuple(self.in_specs.iter().map(of_spec).collect())),
            ("jaxpr", Param::Jaxpr(self.jaxpr.clone())),
            ("mesh", of_mesh(&self.mesh)),
            ("out_specs", Param::Tuple(self.out_specs.iter().map(of_spec).collect())),
        ];
        params.extend(self.within.as_ref().map(|within| ("within", of_mesh(within))));
        params
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "shard_map").then(|| {
            let specs = |name| {
                let malformed = || params.error(name, "is not a tuple of partition specs");
                let Param::Tuple(items) = params.take(name)? else { return Err(malformed()) };
                items.into_iter().map(|item| to_spec(item).ok_or_else(malformed)).collect::<Result<Vec<_>>>()
            };
            Ok(ShardMap {
                jaxpr: params.jaxpr("jaxpr")?,
                mesh: Arc::new(to_mesh(params, "mesh")?),
                in_specs: specs("in_specs")?,
                out_specs: specs("out_specs")?,
                within: if params.has("within") { Some(Arc::new(to_mesh(params, "within")?)) } else { None },
            })
        })
    }
}

impl Operation for ShardingConstraint {
    fn name(&self) -> &'static str {
        "sharding_constraint"
    }

    fn class(&self) -> Class {
        Class::Marker
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, 1)?;
        self.sharding.spec.shard_aval(self.name(), &ins[0], &self.sharding.mesh)?;
        Ok(ins.to_vec())
    }

    fn params(&self) -> Params {
        vec![("mesh", of_mesh(&self.sharding.mesh)), ("spec", of_spec(&self.sharding.spec))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "sharding_constraint").then(|| {
            let spec = to_spec(params.take("spec")?).ok_or_else(|| params.error("spec", "is not a partition spec"))?;
            Ok(ShardingConstraint { sharding: Arc::new(Sharding { mesh: Arc::new(to_mesh(params, "mesh")?), spec }) })
        })
    }
}

/// `((data, 4), (model, 2))`
fn of_mesh(mesh: &Mesh) -> Param {
    let axis =
        |(name, size): &(Arc<str>, usize)| Param::Tuple(vec![Param::Word(name.clone()), Param::Int(*size as i64)]);
    Param::Tuple(mesh.axes().iter().map(axis).collect())
}

fn to_mesh(params: &ParamMap<'_>, name: &str) -> Result<Mesh> {
    let malformed = || params.error(name, "is not a tuple of names and sizes");
    let Param::Tuple(items) = params.take(name)? else { return Err(malformed()) };
    let axis = |item| match item {
        Param::Tuple(pair) => match &pair[..] {
            [Param::Word(name), Param::Int(size)] => {
                Ok((name.clone(), usize::try_from(*size).map_err(|_| malformed())?))
            }
            _ => Err(malformed()),
        },
        _ => Err(malformed()),
    };
    Mesh::new(items.into_iter().map(axis).collect::<Result<Vec<_>>>()?)
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
