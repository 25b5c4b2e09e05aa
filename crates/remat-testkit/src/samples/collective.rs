//! Samples of collectives and of constraints. A collective means something where its axis is bound: its samples are `shard_map`s of
//! one equation.

use std::sync::Arc;

use remat_ir::{
    AllGather, AllReduce, AllReduceKind, AllToAll, Array, Aval, AxisIndex, Builder, DType, Mesh, Op, PartitionSpec,
    Ppermute, ReduceScatter, ShardMap, Sharding, ShardingConstraint, spec,
};

use super::{Sample, Samples, sample};

/// The operation on each shard of the operands, which are cut by these specs, as are the results.
fn sharded(
    label: &str,
    mesh: &[(&str, usize)],
    op: impl Into<Op>,
    inputs: Vec<(Array, PartitionSpec)>,
    out: PartitionSpec,
) -> Sample {
    let mesh = Mesh::new(mesh.iter().copied()).expect("a mesh");
    let mut b = Builder::new();
    let shard = |(x, spec): &(Array, PartitionSpec)| {
        spec.shard_aval("sample", x.aval(), &mesh).expect("the operand can be cut")
    };
    let ins = b.inputs(inputs.iter().map(shard).collect::<Vec<Aval>>());
    let outs = b.emit(op.into(), &ins).expect("the operation takes the shards").into_vec();
    let (inputs, in_specs): (Vec<Array>, Vec<PartitionSpec>) = inputs.into_iter().unzip();
    let out_specs = vec![out; outs.len()];
    let op = ShardMap { jaxpr: Arc::new(b.finish(outs)), mesh: Arc::new(mesh), in_specs, out_specs, within: None };
    let is_float = inputs.iter().all(|x| x.dtype().is_float());
    let operands: Vec<usize> = (0..inputs.len()).collect();
    let sample = Sample::new(label, op, inputs).linear_in(&operands);
    if is_float { sample } else { sample.not_smooth() }
}

/// Samples of an operation of one operand: in every dtype that it takes, on an axis of size 1, on shards without elements, along one
/// of two axes. The operand is cut along its first dimension, and `out` is the spec of the result.
fn of_one(takes: impl Fn(DType) -> bool, op: impl Fn(usize) -> Op, out: &PartitionSpec) -> Vec<Sample> {
    let one =
        |label, mesh: &[(&str, usize)], size, x| sharded(label, mesh, op(size), vec![(x, spec!["x"])], out.clone());
    let mut samples: Vec<Sample> = DType::ALL
        .into_iter()
        .filter(|&dtype| takes(dtype))
        .map(|dtype| one("dtypes", &[("x", 3)], 3, sample::any(dtype, &[12, 12])))
        .collect();
    samples.push(one("an axis of size 1", &[("x", 1)], 1, sample::any(DType::F64, &[3, 2])));
    samples.push(one("empty shards", &[("x", 2)], 2, sample::any(DType::F64, &[8, 0])));
    samples.push(one("copies along another axis", &[("y", 2), ("x", 2)], 2, sample::any(DType::F64, &[4, 4])));
    samples
}

impl Samples for AllReduce {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in AllReduceKind::ALL {
            let op = |axes: &[&str]| AllReduce { kind, axes: axes.iter().map(|&name| name.into()).collect() };
            let mut of_kind = of_one(|dtype| kind.takes(dtype), |_| op(&["x"]).into(), &spec![]);
            let mesh = [("x", 2), ("y", 3)];
            for dtype in [DType::F64, DType::Bf16] {
                let x = sample::any(dtype, &[6, 2]);
                of_kind.push(sharded("two axes", &mesh, op(&["y", "x"]), vec![(x, spec!["y", "x"])], spec![]));
            }
            let x = sample::any(DType::F64, &[12]);
            of_kind.push(sharded("one of two axes", &mesh, op(&["x"]), vec![(x, spec![["x", "y"]])], spec!["y"]));
            let scalar =
                sharded("copies of a scalar", &mesh, op(&["x"]), vec![(sample::floats(&[]), spec![])], spec![]);
            of_kind.push(scalar);
            if kind != AllReduceKind::Sum {
                of_kind.iter_mut().for_each(|sample| sample.linear.clear());
            }
            samples.extend(of_kind);
        }
        samples
    }
}

impl Samples for AllGather {
    fn samples() -> Vec<Sample> {
        let op = |dimension| move |axis_size| AllGather { axis_name: "x".into(), axis_size, dimension }.into();
        let any = |_: DType| true;
        [of_one(any, op(0), &spec![]), of_one(any, op(1), &spec![])].concat()
    }
}

impl Samples for ReduceScatter {
    fn samples() -> Vec<Sample> {
        let op = |axis_size| ReduceScatter { axis_name: "x".into(), axis_size, dimension: 1 }.into();
        of_one(|dtype| dtype != DType::Bool, op, &spec![None, "x"])
    }
}

impl Samples for AllToAll {
    fn samples() -> Vec<Sample> {
        let op = |split, concat| move |axis_size| AllToAll { axis_name: "x".into(), axis_size, split, concat }.into();
        let x = sample::any(DType::F64, &[12, 4]);
        let same = sharded("split and concat are one", &[("x", 2)], op(0, 0)(2), vec![(x, spec!["x"])], spec!["x"]);
        [of_one(|_| true, op(1, 0), &spec![None, "x"]), vec![same]].concat()
    }
}

impl Samples for Ppermute {
    fn samples() -> Vec<Sample> {
        let op = |pairs: fn(usize) -> Vec<(usize, usize)>| {
            move |axis_size| Ppermute { axis_name: "x".into(), axis_size, pairs: pairs(axis_size).into() }.into()
        };
        let shift = op(|n| (0..n).map(|i| (i, (i + 1) % n)).collect());
        let some = op(|n| (1..n).map(|i| (i, n - 1 - i)).collect());
        [of_one(|_| true, shift, &spec!["x"]), of_one(|dtype| dtype == DType::F64, some, &spec!["x"])].concat()
    }
}

impl Samples for AxisIndex {
    fn samples() -> Vec<Sample> {
        let op = || AxisIndex { axis_name: "x".into(), axis_size: 3 };
        let mut b = Builder::new();
        let at = b.emit1(op().into(), &[]).expect("it has no operands");
        let at = b.emit1(remat_ir::ExpandDims { axes: [0].into_iter().collect() }.into(), &[at]).expect("a scalar");
        let mesh = Arc::new(Mesh::new([("y", 2), ("x", 3)]).expect("a mesh"));
        let jaxpr = Arc::new(b.finish(vec![at]));
        let map = ShardMap { jaxpr, mesh, in_specs: Vec::new(), out_specs: vec![spec!["x"]], within: None };
        vec![Sample::new("no operands", map, Vec::new()).not_smooth()]
    }
}

impl Samples for ShardingConstraint {
    fn samples() -> Vec<Sample> {
        let mesh = Mesh::new([("x", 2), ("y", 3)]).expect("a mesh");
        let op = |spec| ShardingConstraint { sharding: Arc::new(Sharding::new(&mesh, spec)) };
        let mut samples = Vec::new();
        for dtype in DType::ALL {
            let sample = Sample::new("dtypes", op(spec!["y", "x"]), vec![sample::any(dtype, &[3, 4])]).linear_in(&[0]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        let operands = [(vec![6, 2], spec![["x", "y"]]), (vec![], spec![]), (vec![0, 5], spec!["x"])];
        for (shape, spec) in operands {
            samples.push(Sample::new("specs", op(spec), vec![sample::any(DType::F64, &shape)]).linear_in(&[0]));
        }
        samples
    }
}
