//! Meshes in a module: their symbols, and the shardings of arguments and results.

use std::sync::Arc;

use remat_ir::{Atom, Call, Error, ErrorKind, Jaxpr, Mesh, Op, PartitionSpec, Prim, Result, Sharding, Var};

use crate::value::comma_separated;

/// The meshes of a program, and the shardings of its arguments and results.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    pub(crate) meshes: Vec<Arc<Mesh>>,
    pub(crate) ins: Vec<Sharding>,
    pub(crate) outs: Vec<Sharding>,
}

impl Placement {
    /// The placement of a program; `None` if it has no meshes.
    ///
    /// # Errors
    /// If two meshes have different numbers of devices.
    pub(crate) fn of(jaxpr: &Jaxpr) -> Result<Option<Placement>> {
        let mut meshes = Vec::new();
        collect(jaxpr, &mut meshes);
        let Some(first) = meshes.first() else { return Ok(None) };
        if let Some(other) = meshes.iter().find(|mesh| mesh.devices() != first.devices()) {
            let message = format!("one program has meshes of different numbers of devices: {first} and {other}");
            return Err(Error::new(ErrorKind::Argument, "stablehlo", message));
        }
        let whole = Sharding { mesh: first.clone(), spec: PartitionSpec::default() };
        // XLA leaves arrays without elements whole.
        let is_empty = |atom: Atom| jaxpr.atom_aval(atom).size() == 0;
        let input = |&var: &Var| read_as(jaxpr, var).filter(|_| !is_empty(var.into())).unwrap_or(whole.clone());
        let ins: Vec<Sharding> = jaxpr.ins.iter().map(input).collect();
        let out = |&atom: &Atom| match given_as(jaxpr, atom) {
            _ if is_empty(atom) => whole.clone(),
            Origin::Sharded(sharding) => sharding,
            Origin::Input(i) => ins[i].clone(),
            Origin::Other => whole.clone(),
        };
        let outs = jaxpr.outs.iter().map(out).collect();
        Ok(Some(Placement { meshes, ins, outs }))
    }

    /// The number of devices.
    pub(crate) fn devices(&self) -> usize {
        self.meshes.first().map_or(1, |mesh| mesh.devices())
    }

    /// The lines that define the meshes.
    pub(crate) fn definitions(&self) -> Vec<String> {
        let axis = |(name, size): &(Arc<str>, usize)| format!("{name:?}={size}");
        let define = |mesh: &Arc<Mesh>| {
            format!("sdy.mesh {} = <[{}]>", self.symbol(mesh), comma_separated(mesh.axes().iter().map(axis)))
        };
        self.meshes.iter().map(define).collect()
    }

    fn symbol(&self, mesh: &Mesh) -> String {
        match self.meshes.iter().position(|known| **known == *mesh) {
            None | Some(0) => "@mesh".to_string(),
            Some(i) => format!("@mesh_{i}"),
        }
    }

    /// `<@mesh, [{"x"}, {}]>` for an array of this rank.
    pub(crate) fn text(&self, sharding: &Sharding, rank: usize) -> String {
        self.text_with(sharding, rank, None)
    }

    /// The same, allowing XLA to cut over further axes, such as those that a `shard_map` leaves to it.
    pub(crate) fn open_text(&self, sharding: &Sharding, rank: usize) -> String {
        self.text_with(sharding, rank, Some("?"))
    }

    fn text_with(&self, sharding: &Sharding, rank: usize, more: Option<&str>) -> String {
        let dims = (0..rank).map(|d| {
            let axes = sharding.spec.axes_of(d).iter().map(|name| format!("{name:?}"));
            format!("{{{}}}", comma_separated(axes.chain(more.map(str::to_string))))
        });
        format!("<{}, [{}]>", self.symbol(&sharding.mesh), comma_separated(dims))
    }
}

/// Adds the meshes of a program and its bodies in order, each once.
fn collect(jaxpr: &Jaxpr, meshes: &mut Vec<Arc<Mesh>>) {
    for eqn in &jaxpr.eqns {
        let mesh = match &eqn.op {
            Op::Call(Call::ShardMap(op)) => Some(op.devices()),
            Op::Prim(Prim::ShardingConstraint(op)) => Some(&op.sharding.mesh),
            _ => None,
        };
        meshes.extend(mesh.filter(|mesh| !meshes.contains(mesh)).cloned());
        eqn.op.bodies().into_iter().for_each(|body| collect(body, meshes));
    }
}

/// The sharding of an input according to the first equation that specifies one.
fn read_as(jaxpr: &Jaxpr, var: Var) -> Option<Sharding> {
    jaxpr.eqns.iter().find_map(|eqn| {
        let at = eqn.ins.iter().position(|&atom| atom == Atom::Var(var))?;
        match &eqn.op {
            Op::Prim(Prim::ShardingConstraint(op)) => Some((*op.sharding).clone()),
            Op::Call(Call::ShardMap(op)) => {
                Some(Sharding { mesh: op.devices().clone(), spec: op.in_specs.get(at)?.clone() })
            }
            Op::Call(Call::Jit(op)) => read_as(&op.jaxpr, *op.jaxpr.ins.get(at)?),
            Op::Call(Call::Checkpoint(op)) => read_as(&op.jaxpr, *op.jaxpr.ins.get(at)?),
            _ => None,
        }
    })
}

/// The origin of a result.
enum Origin {
    Sharded(Sharding),
    Input(usize),
    Other,
}

fn given_as(jaxpr: &Jaxpr, atom: Atom) -> Origin {
    let Atom::Var(var) = atom else { return Origin::Other };
    if let Some(i) = jaxpr.ins.iter().position(|&input| input == var) {
        return Origin::Input(i);
    }
    let defines = |outs: &[Var]| outs.iter().position(|&out| out == var);
    let Some((eqn, at)) = jaxpr.eqns.iter().find_map(|eqn| Some((eqn, defines(&eqn.outs)?))) else {
        return Origin::Other;
    };
    let in_body = |body: &Jaxpr| match given_as(body, body.outs[at]) {
        Origin::Input(i) => given_as(jaxpr, eqn.ins[i]),
        origin => origin,
    };
    match &eqn.op {
        Op::Prim(Prim::ShardingConstraint(op)) => Origin::Sharded((*op.sharding).clone()),
        Op::Call(Call::ShardMap(op)) => {
            Origin::Sharded(Sharding { mesh: op.devices().clone(), spec: op.out_specs[at].clone() })
        }
        Op::Call(Call::Jit(op)) => in_body(&op.jaxpr),
        Op::Call(Call::Checkpoint(op)) => in_body(&op.jaxpr),
        Op::Prim(Prim::Name(_)) => given_as(jaxpr, eqn.ins[0]),
        _ => Origin::Other,
    }
}
