//! `shard_map`, named `vmap` and collectives: in compositions with other transformations, and the messages of mistakes.

use remat::{
    DType, Error, ErrorKind, JitOptions, Mesh, Result, Shardings, Specs, Tensor, VmapOptions, axis_index, axis_size,
    checkpoint, cond, grad, jit, jit_with, jvp, scan, shard_map, spec, vmap, vmap_with,
};
use remat::{Policy, while_loop};

fn mesh() -> Mesh {
    Mesh::new([("x", 2), ("y", 3)]).unwrap()
}

fn counted(shape: &[usize]) -> Tensor {
    let size = shape.iter().product::<usize>();
    Tensor::from((0..size).map(|i| i as f32 / 7.0 - 1.0).collect::<Vec<f32>>()).reshape(shape)
}

fn named(name: &str) -> VmapOptions {
    VmapOptions { axis_name: Some(name.into()), ..VmapOptions::default() }
}

/// What is written with collectives, beside what it means.
#[test]
fn collectives_compute_what_they_say_along_one_and_two_axes() -> Result<()> {
    let x = counted(&[4, 6]);
    let run = |out, f: fn(&Tensor) -> Tensor| shard_map(&mesh(), spec!["x", "y"], out, f)(&x);
    let rows = x.reshape([2, 2, 6]);
    assert!(run(spec![None, "y"], |x| x.psum("x"))?.allclose(&rows.sum(0), 1e-6, 1e-6)?);
    let all = x.reshape([2, 2, 3, 2]).sum([0, 2]);
    assert!(run(spec![], |x| x.psum(["x", "y"]))?.allclose(&all, 1e-6, 1e-6)?);
    assert!(run(spec![], |x| x.all_gather("x", 0).all_gather("y", 1))?.allclose(&x, 0.0, 0.0)?);
    let scattered = run(spec![["x", "y"]], |x| x.all_gather(["x", "y"], 0).psum_scatter(["x", "y"], 0))?;
    assert_eq!(scattered.shape()?, [12, 2]);
    let parts = run(spec!["x", "y"], |x| x * 0.0 + (axis_index("x") * 3 + axis_index("y")).to_dtype(DType::F32))?;
    assert_eq!(parts.index((.., 0)).to_vec::<f32>()?, [0.0, 0.0, 3.0, 3.0]);
    assert_eq!(parts.index((0, ..)).to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    Ok(())
}

#[test]
fn shard_maps_compose_with_other_transformations() -> Result<()> {
    let (x, w) = (counted(&[4, 6]), counted(&[6]));
    let plain = |(x, w): &(Tensor, Tensor)| (x * w).tanh().square().sum(..);
    let mapped = shard_map(&mesh(), (spec!["x", "y"], spec!["y"]), spec![], |(x, w): &(Tensor, Tensor)| {
        checkpoint(Policy::Nothing, |x: &Tensor| (x * w).tanh().square().sum(..).psum(["x", "y"]))(x)
    });
    let close = |a: &Tensor, b: &Tensor| a.allclose(b, 1e-5, 1e-5);
    let args = (x.clone(), w.clone());
    assert!(close(&mapped(&args)?, &plain(&args))?);
    let loss = |args: &(Tensor, Tensor)| mapped(args);
    let (got, expected) = (grad(loss)(&args)?, grad(plain)(&args)?);
    assert!(close(&got.0, &expected.0)? && close(&got.1, &expected.1)?);
    let (_, tangent) = jvp(loss, &args, &args)?;
    assert!(close(&tangent, &jvp(plain, &args, &args)?.1)?);
    // Batches of gradients, and gradients of gradients, in a jitted function.
    let batch = counted(&[3, 4, 6]);
    let each = |x: &Tensor| grad(|x: &Tensor| mapped(&(x.clone(), w.clone())))(x);
    let expected = vmap(|x: &Tensor| grad(|x: &Tensor| plain(&(x.clone(), w.clone())))(x))(&batch)?;
    assert!(close(&jit(|batch: &Tensor| vmap(each)(batch)).call(batch.clone())?, &expected)?);
    let twice = grad(|x: &Tensor| Ok::<_, Error>(each(x)?.square().sum(..)))(&x)?;
    let once = |x: &Tensor| grad(|x: &Tensor| plain(&(x.clone(), w.clone())))(x);
    let expected = grad(|x: &Tensor| Ok::<_, Error>(once(x)?.square().sum(..)))(&x)?;
    assert!(close(&twice, &expected)?);
    Ok(())
}

/// A jitted function means another program where its axis has another size.
#[test]
fn jitted_functions_are_traced_for_the_axes_around_them() -> Result<()> {
    let share = jit(|x: &Tensor| x / x.psum("i"));
    for n in [2, 4] {
        let shares = vmap_with(&named("i"), |x: &Tensor| share.call(x.clone()))(&Tensor::ones([n], DType::F32))?;
        assert_eq!(shares.to_vec::<f32>()?, vec![1.0 / n as f32; n]);
    }
    let error = share.call(Tensor::from(1.0f32)).unwrap_err();
    let message =
        "unknown axis `i`; no axis has a name here: `shard_map` and the option `axis_name` of `vmap` give names";
    assert_eq!(error.message(), message);
    Ok(())
}

/// That a mesh is not inside another is said also where the function was traced for a `vmap` of the same name.
#[test]
fn jitted_functions_are_traced_for_a_mesh_around_them() -> Result<()> {
    let inner = jit(|x: &Tensor| shard_map(&Mesh::new([("z", 2)])?, spec!["z"], spec!["z"], |x: &Tensor| x.sin())(x));
    let x = counted(&[2, 4]);
    vmap_with(&named("x"), |x: &Tensor| inner.call(x.clone()))(&x)?;
    let mesh = Mesh::new([("x", 2)])?;
    let error =
        shard_map(&mesh, spec![None, "x"], spec![None, "x"], |x: &Tensor| inner.call(x.clone()))(&x).unwrap_err();
    assert!(error.message().starts_with("the function is inside a shard_map"), "{error}");
    Ok(())
}

/// Shards along one axis take different branches, and number of rounds, with collectives along the other.
#[test]
fn shards_that_differ_along_one_axis_communicate_along_the_other() -> Result<()> {
    let mapped = shard_map(&mesh(), spec!["x", "y"], spec!["x", "y"], |x: &Tensor| {
        let own = axis_index("x");
        let x = cond(&own.eq(0), |x: &Tensor| x.psum("y"), |x: &Tensor| x - x.pmax("y"), x)?;
        let more = |(i, _): &(Tensor, Tensor)| i.le(&own);
        let (_, x) = while_loop(
            more,
            |(i, x): &(Tensor, Tensor)| (i + 1, x.ppermute("y", &[(0, 1), (1, 2), (2, 0)]) + 1.0),
            &(Tensor::from(0i32), x),
        )?;
        Ok::<_, Error>(x)
    });
    let data: Vec<f32> = (0..6).map(|i| (i * i) as f32).collect();
    let x = Tensor::from(data.clone()).reshape([2, 3]);
    // The rows are moved once and twice.
    let expected = [6.0, 6.0, 6.0, -7.0, 2.0, -14.0];
    assert_eq!(mapped(&x)?.to_vec::<f32>()?, expected);
    let program = jit(|x: &Tensor| mapped(x)).jaxpr(&x)?;
    let evaluated = remat_ir::eval(&program, vec![remat_ir::Array::from_vec(data, [2, 3])?])?;
    assert_eq!(evaluated[0].as_slice::<f32>(), Some(&expected[..]));
    Ok(())
}

#[test]
fn mistakes_have_a_message_and_a_line() {
    let x = counted(&[4, 6]);
    let fails = |result: Result<Tensor>, kind: ErrorKind, message: &str| {
        let error = result.and_then(|x| x.aval().cloned()).unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, message));
        assert!(error.loc().is_some_and(|loc| loc.to_string().contains("shard_map.rs")), "{error}");
    };
    use ErrorKind::{Axis, DType as Dtype, Shape, Structure};
    let run = |f: fn(&Tensor) -> Tensor| shard_map(&mesh(), spec!["x", "y"], spec!["x", "y"], f)(&x);
    fails(run(|x| x.psum("z")), Axis, "unknown axis `z`; did you mean `x`?");
    fails(run(|x| x.psum("rows")), Axis, "unknown axis `rows`; the axes here are `x`, `y`");
    fails(run(|x| x.psum(["x", "x"])), Axis, "the axis `x` is given twice");
    fails(run(|x| x.all_gather("x", 2)), Axis, "axis 2 is out of range for f32[2,2], which has 2 dimensions");
    let message = "dimension 1 of f32[2,2] cannot be cut into 3 parts, one for each shard along `y`";
    fails(run(|x| x.psum_scatter("y", 1)), Shape, message);
    fails(run(|x| x.ppermute("x", &[(0, 2)])), Axis, "the pair (0, 2) is out of range: the axis `x` has size 2");
    fails(run(|x| x.ppermute("x", &[(0, 1), (1, 1)])), Axis, "shard 1 gets two operands");
    let message = "takes floats, and the tensor holds i32; convert it with .to_dtype(DType::F32)";
    fails(run(|x| x.to_dtype(DType::I32).pmean("x")), Dtype, message);
    let message = "no axis has a name here: `shard_map` and the option `axis_name` of `vmap` give names";
    fails(Ok(x.psum("x")), Axis, &format!("unknown axis `x`; {message}"));
    assert!(axis_size("x").unwrap_err().loc().is_some());

    let cut = |spec| shard_map(&mesh(), spec, spec![], |x: &Tensor| x.psum(["x", "y"]))(&x);
    fails(cut(spec!["z"]), Axis, "the argument: unknown axis `z`; did you mean `x`?");
    fails(cut(spec!["x", "x"]), Axis, "the argument: the axis `x` is used twice in P(x, x)");
    fails(cut(spec!["y"]), Shape, "the argument: dimension 0 of f32[4,6] cannot be cut into 3 shards by P(y)");
    let message = "the argument: P(None, None, x) cuts dimension 2 of f32[4,6], which has 2";
    fails(cut(spec![None, None, "x"]), Shape, message);
    let message = "the result differs between shards along `x`, which its spec P(None, y) does not name: reduce it with psum or \
                   pmean, gather it with all_gather, or name the axis";
    fails(shard_map(&mesh(), spec!["x", "y"], spec![None, "y"], |x: &Tensor| x.sin())(&x), Axis, message);
    let message = "the specs are a tuple of 1 element, in which there is none for the leaf at `1` of the argument";
    let pair = shard_map(&mesh(), (spec![],), spec![], |(x, y): &(Tensor, Tensor)| x + y);
    fails(pair(&(x.clone(), x.clone())), Structure, message);
    let message = "the specs are a tuple of 3 elements, and the argument has 2";
    let pair = shard_map(&mesh(), (spec![], spec![], spec![]), spec![], |(x, y): &(Tensor, Tensor)| x + y);
    fails(pair(&(x.clone(), x.clone())), Structure, message);
    let nested = shard_map(&mesh(), (spec![], (spec![], spec![])), spec![], |(x, y): &(Tensor, [Tensor; 1])| x + &y[0]);
    let message = "the specs are a tuple of 2 elements, and the element 1 of the argument has 1";
    fails(nested(&(x.clone(), [x.clone()])), Structure, message);
    let pair = shard_map(&mesh(), spec![], (spec![], spec![], spec![]), |x: &Tensor| (x.clone(), ()));
    fails(pair(&x).map(|out| out.0), Structure, "the specs are a tuple of 3 elements, and the result has 2");
    let in_shardings = Some(Shardings::new(&mesh(), (spec![], spec![], spec![])));
    let options = JitOptions { in_shardings, ..JitOptions::default() };
    let message = "the specs are a tuple of 3 elements, and the argument has 2";
    fails(jit_with(&options, |(x, _): &(Tensor, ())| x.sin()).call((x.clone(), ())), Structure, message);
    let message = "2 specs for the 1 leaf of the argument; give one for each leaf";
    fails(shard_map(&mesh(), vec![spec![], spec![]], spec![], |x: &Tensor| x.sin())(&x), Structure, message);
    let nested = shard_map(&mesh(), spec![], spec![], |x: &Tensor| {
        shard_map(&Mesh::new([("z", 2)])?, spec![], spec![], |x: &Tensor| x.sin())(x)
    });
    let message = "the function is inside a shard_map over Mesh(x=2, y=3); one inside of it must be over the same mesh, along axes that the \
                   outer one leaves (the option `axis_names`): it leaves none";
    fails(nested(&x), Axis, message);
    let message = "an enclosing function has an axis `i` already; choose another name";
    fails(vmap_with(&named("i"), |x: &Tensor| vmap_with(&named("i"), |x: &Tensor| x.sin())(x))(&x), Axis, message);

    // A loop that is never run gives what it begins with.
    let message = "the result differs between shards along `x`, which its spec P() does not name: reduce it with psum or pmean, \
                   gather it with all_gather, or name the axis";
    let never = shard_map(&mesh(), spec!["x"], spec![], |x: &Tensor| {
        Ok::<_, Error>(scan(|x: &Tensor, _: &Tensor| (x.psum("x"), ()), x, &Tensor::zeros([0], DType::F32))?.0)
    });
    fails(never(&x), Axis, message);

    // Shards that do not agree on what to run would wait for each other.
    let message = "the index differs between shards along `x`, and what depends on it has a collective along `x`, in which all \
                   shards have to take part";
    let branches = shard_map(&mesh(), spec!["x"], spec!["x"], |x: &Tensor| {
        cond(&axis_index("x").eq(0), |x: &Tensor| x.psum("x"), |x: &Tensor| x.sin(), x)
    });
    fails(branches(&x), Axis, message);
    let loops = shard_map(&mesh(), spec!["x"], spec!["x"], |x: &Tensor| {
        while_loop(|x: &Tensor| x.sum(..).lt(10.0), |x: &Tensor| x + x.pmax("x").abs() + 1.0, x)
    });
    fails(loops(&x), Axis, &message.replace("the index", "the condition"));

    let options = JitOptions {
        out_shardings: Some(Shardings::new(&mesh(), Specs::All(spec![None, "z"]))),
        ..JitOptions::default()
    };
    fails(jit_with(&options, |x: &Tensor| x.sin()).call(x.clone()), Axis, "unknown axis `z`; did you mean `x`?");
}
