//! `shard_map` along some axes of a mesh, and inside of another: on the native engine, and on eight virtual devices of XLA.

use remat::{
    DType, Device, Error, ErrorKind, JitOptions, Mesh, Policy, Result, ShardMapOptions, Sharding, Tensor, axis_index,
    checkpoint, cond, grad, jit_with, shard_map, shard_map_with, spec, value_and_grad, vmap,
};
use remat_testkit::installed;

fn mesh() -> Mesh {
    Mesh::new([("data", 2), ("model", 4)]).unwrap()
}

fn along(axes: &[&str]) -> ShardMapOptions {
    ShardMapOptions { axis_names: Some(axes.iter().map(|axis| axis.to_string()).collect()) }
}

fn counted(shape: &[usize]) -> Tensor {
    let size = shape.iter().product::<usize>();
    Tensor::from((0..size).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>()).reshape(shape)
}

/// The native engine, which computes all shards, and virtual devices of XLA where the plugin is installed.
fn devices() -> Vec<Device> {
    [Device::cpu()].into_iter().chain(installed("meshes on several devices", Device::xla_cpus(8))).collect()
}

/// The value of a function of two tensors and its gradient, jitted on every device, beside those of another on the native engine.
fn assert_same(
    what: &str,
    f: impl Fn(&(Tensor, Tensor)) -> Result<Tensor> + Copy,
    plain: impl Fn(&(Tensor, Tensor)) -> Result<Tensor>,
    args: &(Tensor, Tensor),
) -> Result<()> {
    let (loss, (of_x, of_w)) = value_and_grad(plain)(args)?;
    for device in devices() {
        let options = JitOptions { device: Some(device), ..JitOptions::default() };
        let run = jit_with(&options, move |args: &(Tensor, Tensor)| value_and_grad(f)(args));
        let (got, (got_x, got_w)) = run.call(args.clone())?;
        let what = format!("{what} on {}", options.device.as_ref().map_or("", |device| device.name()));
        for (name, got, expected) in [("loss", &got, &loss), ("x", &got_x, &of_x), ("w", &got_w, &of_w)] {
            assert!(got.allclose(expected, 1e-5, 1e-5)?, "{name}: {what}\n{got}\n{expected}");
        }
    }
    Ok(())
}

fn args() -> (Tensor, Tensor) {
    (counted(&[8, 16]), counted(&[16, 8]))
}

/// By hand along `data`; a layer whose weight XLA cuts over `model`, in a loop of checkpointed layers.
#[test]
fn one_axis_is_manual_and_the_other_is_the_engines() -> Result<()> {
    let layer = |x: &Tensor, w: &Tensor| x.matmul(w).tanh().matmul(&w.transpose([1, 0]));
    let plain = |(x, w): &(Tensor, Tensor)| Ok(layer(&layer(x, w), w).square().mean(..));
    for policy in [None, Some(Policy::Nothing), Some(Policy::Dots)] {
        let policy = &policy;
        let by_hand = |args: &(Tensor, Tensor)| {
            shard_map_with(
                &along(&["data"]),
                &mesh(),
                (spec!["data"], spec![]),
                spec![],
                move |(x, w): &(Tensor, Tensor)| {
                    let w = w.with_sharding_constraint(&Sharding::new(&mesh(), spec![None, "model"]));
                    let step = |x: &Tensor, _: &()| {
                        let apply = |x: &Tensor| layer(x, &w);
                        let x = match policy {
                            Some(policy) => checkpoint(policy.clone(), apply)(x),
                            None => apply(x),
                        };
                        Ok::<_, Error>((x, ()))
                    };
                    let (x, ()) =
                        remat::scan_with(&remat::ScanOptions { length: Some(2), ..Default::default() }, step, x, &())?;
                    Ok::<_, Error>(x.square().mean(..).pmean("data"))
                },
            )(args)
        };
        assert_same(&format!("{policy:?}"), by_hand, plain, &args())?;
    }
    Ok(())
}

/// Every collective, the position, and one that depends on it, along one axis while the other is the engine's; either of them.
#[test]
fn collectives_along_the_manual_axis() -> Result<()> {
    for (axis, size) in [("data", 2), ("model", 4)] {
        type F = fn(&Tensor, &str, usize) -> Tensor;
        let each: [(&str, F); 9] = [
            ("psum", |x, axis, _| x.psum(axis)),
            ("pmax", |x, axis, _| x.pmax(axis)),
            ("pmin of integers", |x, axis, _| (x * 9.0).to_dtype(DType::I32).pmin(axis).to_dtype(DType::F32)),
            ("psum of bf16", |x, axis, _| x.to_dtype(DType::Bf16).psum(axis).to_dtype(DType::F32)),
            ("all_gather", |x, axis, _| x.all_gather(axis, 0).sum(0)),
            ("psum_scatter", |x, axis, _| x.psum_scatter(axis, 1)),
            ("all_to_all", |x, axis, _| x.all_to_all(axis, 1, 0)),
            ("ppermute", |x, axis, size| x.ppermute(axis, &(0..size).map(|i| (i, (i + 1) % size)).collect::<Vec<_>>())),
            ("axis_index", |x, axis, _| x * (axis_index(axis) + 1).to_dtype(DType::F32)),
        ];
        for (name, f) in each {
            let x = counted(&[8, 16]);
            let run = |options: &ShardMapOptions, mesh: &Mesh, x: &Tensor| {
                shard_map_with(options, mesh, spec![axis], spec![axis], |x: &Tensor| f(x, axis, size))(x)
            };
            let expected = run(&ShardMapOptions::default(), &Mesh::new([(axis, size)])?, &x)?;
            for device in devices() {
                let options = JitOptions { device: Some(device), ..JitOptions::default() };
                let got = jit_with(&options, |x: &Tensor| run(&along(&[axis]), &mesh(), x)).call(x.clone())?;
                assert!(got.allclose(&expected, 1e-6, 1e-6)?, "{name} along {axis}\n{got}\n{expected}");
            }
        }
    }
    Ok(())
}

/// A function of a shard, of its axis and of the size of that.
type OfShard = fn(&Tensor, &str, usize) -> Tensor;

/// Along one axis by hand, each collective of a layer whose weight XLA cuts over the other axis: the gradients are those of what the collective means, without a mesh.
#[test]
fn gradients_of_collectives_along_the_manual_axis() -> Result<()> {
    // What each does with all shards, one after the other along the first axis.
    let meant: [(&str, OfShard, OfShard); 8] = [
        ("psum", |x, axis, _| x.psum(axis), |x, _, n| blocks(x, n).sum(0).tile([n, 1])),
        ("pmean", |x, axis, _| x.pmean(axis), |x, _, n| blocks(x, n).mean(0).tile([n, 1])),
        ("pmax", |x, axis, _| x.pmax(axis), |x, _, n| blocks(x, n).max(0).tile([n, 1])),
        ("all_gather", |x, axis, _| x.all_gather(axis, 0).cumsum(0), |x, _, n| x.cumsum(0).tile([n, 1])),
        (
            "psum_scatter",
            |x, axis, _| x.psum_scatter(axis, 1),
            |x, _, n| blocks(x, n).sum(0).reshape([8 / n, n, 16 / n]).transpose([1, 0, 2]).reshape([8, 16 / n]),
        ),
        (
            "all_to_all",
            |x, axis, _| x.all_to_all(axis, 1, 0),
            |x, _, n| x.reshape([8, n, 16 / n]).transpose([1, 0, 2]).reshape([8 * n, 16 / n]),
        ),
        (
            "ppermute",
            |x, axis, n| x.ppermute(axis, &(0..n).map(|i| (i, (i + 1) % n)).collect::<Vec<_>>()),
            |x, _, n| x.roll(8 / n as i64, 0),
        ),
        (
            "axis_index",
            |x, axis, _| x * (axis_index(axis) + 1).to_dtype(DType::F32),
            |x, _, n| {
                (blocks(x, n) * (Tensor::arange(0..n as i32).to_dtype(DType::F32) + 1.0).reshape([n, 1, 1]))
                    .reshape([8, 16])
            },
        ),
    ];
    let loss = |x: &Tensor| {
        let shape = x.shape()?.to_vec();
        Ok::<_, Error>((x.square() * counted(&shape)).mean(..))
    };
    let layer = |x: &Tensor, w: &Tensor| x.matmul(w).tanh().matmul(&w.transpose([1, 0]));
    for (axis, other, size) in [("data", "model", 2), ("model", "data", 4)] {
        for (name, f, plain) in meant {
            for policy in [None, Some(Policy::Nothing)] {
                let policy = &policy;
                let mapped = |args: &(Tensor, Tensor)| {
                    let of_shard = |(x, w): &(Tensor, Tensor)| {
                        let w = w.with_sharding_constraint(&Sharding::new(&mesh(), spec![None, other]));
                        checkpoint(policy.clone(), |x: &Tensor| f(&layer(x, &w), axis, size).sin())(x)
                    };
                    loss(&shard_map_with(&along(&[axis]), &mesh(), (spec![axis], spec![]), spec![axis], of_shard)(
                        args,
                    )?)
                };
                let plain = |(x, w): &(Tensor, Tensor)| loss(&plain(&layer(x, w), axis, size).sin());
                assert_same(&format!("{name} along {axis}, {policy:?}"), mapped, plain, &args())?;
            }
        }
    }
    Ok(())
}

/// The rows of `n` shards: `[n, rows, features]`.
fn blocks(x: &Tensor, n: usize) -> Tensor {
    x.reshape([n, 8 / n, 16])
}

/// A sum over shards in a checkpointed region is computed again, unless the policy saves it by its name; the gradients are the same.
#[test]
fn a_policy_may_save_a_collective_by_its_name() -> Result<()> {
    let layer = |sum: Option<&str>, x: &Tensor, w: &Tensor| {
        let product = x.matmul(w);
        let whole = sum.map_or_else(|| product.clone(), |axis| product.psum(axis).named("summed"));
        whole.tanh().square().mean(..)
    };
    let plain = |(x, w): &(Tensor, Tensor)| Ok(layer(None, x, w));
    let manual = |policy: &Policy, args: &(Tensor, Tensor)| {
        let specs = (spec!["data", "model"], spec!["model"]);
        shard_map(&mesh(), specs, spec![], |(x, w): &(Tensor, Tensor)| {
            checkpoint(policy.clone(), |x: &Tensor| layer(Some("model"), x, w).pmean("data"))(x)
        })(args)
    };
    // Along `model` by hand; the engine cuts the rows over `data`.
    let partly = |policy: &Policy, args: &(Tensor, Tensor)| {
        let specs = (spec![None, "model"], spec!["model"]);
        shard_map_with(&along(&["model"]), &mesh(), specs, spec![], |(x, w): &(Tensor, Tensor)| {
            let x = x.with_sharding_constraint(&Sharding::new(&mesh(), spec!["data"]));
            checkpoint(policy.clone(), |x: &Tensor| layer(Some("model"), x, w))(&x)
        })(args)
    };
    type Loss<'a> = &'a dyn Fn(&Policy, &(Tensor, Tensor)) -> Result<Tensor>;
    for (name, loss) in [("manual", &manual as Loss<'_>), ("partly manual", &partly)] {
        let sums = |policy: Policy| {
            let gradient = remat::jit(|args: &(Tensor, Tensor)| {
                value_and_grad(|args: &(Tensor, Tensor)| loss(&policy, args))(args)
            });
            let sums = gradient.jaxpr(&args())?.to_string().matches("= psum[axes=(model,)]").count();
            assert_same(&format!("{name}, {policy}"), |args| loss(&policy, args), plain, &args())?;
            Ok::<_, Error>(sums)
        };
        let (again, saved) = (sums(Policy::Nothing)?, sums(Policy::names(["summed"]))?);
        assert_eq!((again, saved, sums(Policy::Everything)?), (saved + 1, saved, saved), "{name}");
        let offloaded = Policy::save_and_offload_names([] as [&str; 0], ["summed"]);
        assert_eq!((sums(Policy::Dots)?, sums(offloaded)?), (again, saved), "{name}");
    }
    Ok(())
}

/// The inner function has the names of both axes; its position along the outer one decides what it computes, in a branch and in a loop.
#[test]
fn a_shard_map_in_another_has_the_axes_of_both() -> Result<()> {
    let plain = |(x, w): &(Tensor, Tensor)| Ok(x.matmul(w).tanh().square().mean(..));
    let nested = |args: &(Tensor, Tensor)| {
        shard_map_with(&along(&["data"]), &mesh(), (spec!["data"], spec![]), spec![], |(x, w): &(Tensor, Tensor)| {
            shard_map(&mesh(), (spec![None, "model"], spec!["model"]), spec![], |(x, w): &(Tensor, Tensor)| {
                x.matmul(w).psum("model").tanh().square().mean(..).pmean("data")
            })(&(x.clone(), w.clone()))
        })(args)
    };
    assert_same("nested", nested, plain, &args())?;
    for policy in [Policy::Nothing, Policy::Dots, Policy::DotsWithNoBatchDims] {
        let checkpointed = |args: &(Tensor, Tensor)| checkpoint(policy.clone(), nested)(args);
        assert_same(&format!("nested in a checkpoint, {policy}"), checkpointed, plain, &args())?;
        // The checkpoint may be around the inner one alone.
        let inside = |args: &(Tensor, Tensor)| {
            shard_map_with(&along(&["data"]), &mesh(), (spec!["data"], spec![]), spec![], |args: &(Tensor, Tensor)| {
                let inner =
                    |(x, w): &(Tensor, Tensor)| x.matmul(w).psum("model").tanh().square().mean(..).pmean("data");
                checkpoint(policy.clone(), shard_map(&mesh(), (spec![None, "model"], spec!["model"]), spec![], inner))(
                    args,
                )
            })(args)
        };
        assert_same(&format!("a checkpoint around the inner one, {policy}"), inside, plain, &args())?;
    }

    let positions = |x: &Tensor| {
        shard_map_with(&along(&["data"]), &mesh(), spec!["data"], spec!["data"], |x: &Tensor| {
            let outer = axis_index("data");
            shard_map_with(&along(&["model"]), &mesh(), spec![None, "model"], spec![None, "model"], |x: &Tensor| {
                let here = (&outer * 4 + axis_index("model") + axis_index("data") * 100).to_dtype(DType::F32);
                let twice = |x: &Tensor, _: &()| {
                    let more = axis_index("data").to_dtype(DType::F32);
                    Ok::<_, Error>((
                        cond(&axis_index("model").eq(1), |x: &Tensor| x + more.clone(), |x: &Tensor| x - 1.0, x)?,
                        (),
                    ))
                };
                let options = remat::ScanOptions { length: Some(2), ..Default::default() };
                let (x, ()) = remat::scan_with(&options, twice, &(x * 0.0 + here), &())?;
                Ok::<_, Error>(x)
            })(x)
        })(x)
    };
    let expected: Vec<f32> = [[-2.0, 1.0, 0.0, 1.0], [102.0, 107.0, 104.0, 105.0]].concat();
    for device in devices() {
        let options = JitOptions { device: Some(device), ..JitOptions::default() };
        let got = jit_with(&options, positions).call(counted(&[2, 4]))?;
        assert_eq!(got.to_vec::<f32>()?, expected);
    }
    Ok(())
}

#[test]
fn they_compose_with_other_transformations() -> Result<()> {
    let (x, w) = args();
    let mapped = |x: &Tensor| {
        shard_map_with(&along(&["model"]), &mesh(), spec![None, "model"], spec![], |x: &Tensor| {
            Ok::<_, Error>(
                x.square().sum(..).psum("model") + vmap(|row: &Tensor| row.sin().sum(..))(x)?.sum(..).psum("model"),
            )
        })(x)
    };
    let plain = |x: &Tensor| Ok::<_, Error>(x.square().sum(..) + x.sin().sum(..));
    let rows = x.reshape([2, 4, 16]);
    let expected = vmap(|x: &Tensor| grad(plain)(x))(&rows)?;
    for device in devices() {
        let options = JitOptions { device: Some(device), ..JitOptions::default() };
        let got = jit_with(&options, |rows: &Tensor| vmap(|x: &Tensor| grad(mapped)(x))(rows)).call(rows.clone())?;
        assert!(got.allclose(&expected, 1e-5, 1e-5)?);
    }
    // The evaluator computes nested bodies with collectives along both axes, too.
    let both = |w: &Tensor| {
        shard_map_with(&along(&["data"]), &mesh(), spec!["data"], spec![], |w: &Tensor| {
            shard_map(&mesh(), spec![None, "model"], spec![], |w: &Tensor| w.exp().sum(..).psum(["model", "data"]))(w)
        })(w)
    };
    let program = remat::jit(both).jaxpr(&w)?;
    let text = program.to_string();
    assert_eq!(text.parse::<remat::ir::Jaxpr>()?.to_string(), text, "it is read back");
    let evaluated = remat_ir::eval(&program, vec![w.array()?.clone()])?;
    assert!((evaluated[0].as_slice::<f32>().unwrap()[0] - w.exp().sum(..).item::<f32>()?).abs() < 1e-3);
    Ok(())
}

#[test]
fn mistakes_are_told() {
    let x = counted(&[8, 16]);
    let error = |options: &ShardMapOptions, in_spec, f: fn(&Tensor) -> Result<Tensor>| {
        shard_map_with(options, &mesh(), in_spec, spec![], f)(&x).unwrap_err()
    };
    let message = error(&along(&["dta"]), spec![], |x| Ok(x.clone())).message().to_string();
    assert_eq!(message, "unknown axis `dta`; did you mean `data`?");
    let message = error(&along(&[]), spec![], |x| Ok(x.clone())).message().to_string();
    assert_eq!(message, "the list of axis names is empty");
    let found = error(&along(&["data"]), spec!["model"], |x| Ok(x.clone()));
    assert_eq!((found.kind(), found.message().contains("unknown axis `model`")), (ErrorKind::Axis, true), "{found}");
    let message = error(&along(&["data"]), spec!["data"], |x| Ok(x.psum("model"))).message().to_string();
    assert_eq!(message, "unknown axis `model`; the axes here are `data`");
    let message = error(&along(&["data"]), spec!["data"], |x| Ok(x.sum(..))).message().to_string();
    assert!(message.starts_with("the result differs between shards along `data`"), "{message}");
    // The inner sum is along the other axis alone.
    let inner = |x: &Tensor| shard_map(&mesh(), spec![None, "model"], spec![], |x: &Tensor| x.sum(..).psum("model"))(x);
    let message = error(&along(&["data"]), spec!["data"], inner).message().to_string();
    assert!(message.starts_with("the result differs between shards along `data`"), "{message}");
    let advice =
        "one inside of it must be over the same mesh, along axes that the outer one leaves (the option `axis_names`)";
    let again = |x: &Tensor| shard_map_with(&along(&["data"]), &mesh(), spec![], spec![], Tensor::sin)(x);
    let message = error(&along(&["data"]), spec![], again).message().to_string();
    let expected =
        format!("the function is inside a shard_map over Mesh(data=2, model=4); {advice}: it leaves `model`");
    assert_eq!(message, expected);
    let other = |x: &Tensor| shard_map(&Mesh::new([("model", 4)])?, spec![], spec![], Tensor::sin)(x);
    assert_eq!(error(&along(&["data"]), spec![], other).message(), expected);
    let inside = |x: &Tensor| shard_map(&mesh(), spec![], spec![], Tensor::sin)(x);
    let message = error(&ShardMapOptions::default(), spec![], inside).message().to_string();
    assert!(message.ends_with(&format!("{advice}: it leaves none")), "{message}");
}
