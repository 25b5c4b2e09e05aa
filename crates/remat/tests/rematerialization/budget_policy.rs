//! Regions with a budget of bytes: what they keep, what they compute again, and that nothing else changes.

use std::collections::HashSet;

use remat::argument::keep;
use remat::ir::{Call, Jaxpr, Op};
use remat::report::{fwd_bwd, policy_decisions, saved_residuals};
use remat::{
    ConvConfig, DType, Device, Error, Mesh, Padding, Policy, Result, Tensor, checkpoint, cond, custom_vjp, grad, jit,
    make_jaxpr, nn, random, scan, shard_map, spec, vjp, vmap, while_loop,
};
use remat_opt::cost::{Machine, cost_again};
use remat_testkit::installed;

type Args = Vec<Tensor>;
type Block = fn(&Args) -> Result<Tensor>;

/// Numbers from -0.5 to 0.5.
fn data(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let size: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 31 + 3) % 1009) as f64 / 1009.0 - 0.5;
    Tensor::from_vec((0..size).map(number).collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

/// A norm, of parts that are cheap to compute and of parts that are small.
fn norm(x: &Tensor) -> Tensor {
    let centered = x - x.mean(keep(-1));
    &centered * (centered.square().mean(keep(-1)) + 1e-5).rsqrt()
}

fn mlp(args: &Args) -> Result<Tensor> {
    let layer = |x: Tensor, w: &Tensor| norm(&x.matmul(w).named("hidden").gelu());
    Ok(args[1..].iter().fold(args[0].clone(), layer).square().sum(..))
}

fn attention(args: &Args) -> Result<Tensor> {
    let [x, wq, wk, wv, wo] = &args[..] else { panic!("five arguments") };
    let (q, k, v) = (x.matmul(wq), x.matmul(wk).named("k"), x.matmul(wv));
    let scores = (q.matmul(&k.t()) * 0.35).softmax(-1);
    let mask = random::uniform(random::key(3), [12, 12], DType::F32, 0.0..1.0).lt(0.9);
    let scores = Tensor::select(&mask, &scores, scores.zeros_like());
    Ok((scores.matmul(&v).named("attn").matmul(wo) + x).tanh().square().sum(..))
}

fn convs(args: &Args) -> Result<Tensor> {
    let config = || ConvConfig { padding: Padding::Same, ..ConvConfig::default() };
    let y = args[0].conv(&args[1], &config()).relu();
    let z = y.conv(&args[2], &config()).max([2, 3]);
    Ok((y.mean([2, 3]).tanh() * z).square().sum(..))
}

fn scanned(args: &Args) -> Result<Tensor> {
    let step = |c: &Tensor, w: &Tensor| {
        let h = c.matmul(w).named("h").tanh();
        (norm(&(&h * &args[2] + c)), h.sin())
    };
    let (last, all) = scan(step, &args[0], &args[1])?;
    Ok(last.square().sum(..) + all.exp().sum(..))
}

fn branches(args: &Args) -> Result<Tensor> {
    let halved = while_loop(|x: &Tensor| x.square().sum(..).gt(0.5), |x: &Tensor| x * 0.5, &args[1].stop_gradient())?;
    let x = args[0].matmul(&(&args[1] + halved)).sin();
    let deep = |x: &Tensor| Ok::<_, Error>(x.matmul(&args[1]).tanh().matmul(&args[1]).exp());
    let y = cond(&x.sum(..).gt(0.0), deep, |x: &Tensor| Ok(x.cos().exp()), &x)?;
    Ok((y * x).sin().sum(..))
}

fn custom(args: &Args) -> Result<Tensor> {
    let swish = custom_vjp(
        |x: &Tensor| x * x.sigmoid(),
        |x: &Tensor| (x * x.sigmoid(), (x.clone(), x.sigmoid())),
        |(x, s): &(Tensor, Tensor), ct: &Tensor| ct * (s + x * s * (1.0 - s)),
    );
    let x = swish(&args[0].matmul(&args[1]));
    let y = jit(|x: &Tensor| norm(x).cos()).call(x.matmul(&args[1]))?;
    Ok((swish(&y) * x).square().sum(..))
}

/// The blocks, with arguments of different dtypes. Their residuals are floats, booleans and integers.
fn blocks() -> Vec<(&'static str, Block, Args)> {
    let square = |dtype, side, count: usize| (0..count).map(move |i| data(dtype, &[side, side], i + 1));
    let mut all: Vec<(&'static str, Block, Args)> = Vec::new();
    for (name, dtype) in [("mlp in f32", DType::F32), ("mlp in bf16", DType::Bf16)] {
        all.push((name, mlp, [data(dtype, &[5, 16], 0)].into_iter().chain(square(dtype, 16, 3)).collect()));
    }
    let x = data(DType::F64, &[12, 8], 0);
    all.push(("attention in f64", attention, [x].into_iter().chain(square(DType::F64, 8, 4)).collect()));
    let image = data(DType::F32, &[2, 3, 6, 6], 0);
    let kernels = [data(DType::F32, &[4, 3, 3, 3], 1), data(DType::F32, &[4, 4, 3, 3], 2)];
    all.push(("convs", convs, [image].into_iter().chain(kernels).collect()));
    let parts = [data(DType::F32, &[4, 8], 0), data(DType::F32, &[5, 8, 8], 1), data(DType::F32, &[8], 2)];
    all.push(("scan", scanned, parts.into()));
    all.push(("branches", branches, square(DType::F32, 8, 2).collect()));
    all.push(("custom", custom, square(DType::F32, 8, 2).collect()));
    all
}

fn region(policy: impl Into<Option<Policy>>, block: Block) -> impl Fn(&Args) -> Result<Tensor> {
    checkpoint(policy, block)
}

fn kept(f: impl Fn(&Args) -> Result<Tensor>, args: &Args) -> usize {
    saved_residuals(f, args).unwrap().intermediate_bytes()
}

/// Budgets around all that matter: from nothing to more than all.
fn budgets(block: Block, args: &Args) -> Vec<usize> {
    let all = kept(region(Policy::Everything, block), args);
    (0..=12).map(|i| all * i / 12).chain([1, all.saturating_sub(1), all + 1, usize::MAX]).collect()
}

/// The cost of all equations of a program by the model of the budget, in picoseconds.
fn picoseconds(jaxpr: &Jaxpr) -> u64 {
    let of_eqn = |eqn: &remat::ir::Eqn| match &eqn.op {
        Op::Call(Call::Scan(op)) => op.length as u64 * picoseconds(&op.jaxpr),
        Op::Call(Call::Jit(_) | Call::Checkpoint(_) | Call::Cond(_)) => {
            eqn.op.bodies().into_iter().map(|body| picoseconds(body)).sum()
        }
        op => {
            let ins: Vec<_> = eqn.ins.iter().map(|&a| jaxpr.atom_aval(a)).collect();
            let outs: Vec<_> = eqn.outs.iter().map(|&v| jaxpr.avals[v].clone()).collect();
            Machine::CORE.picoseconds(&cost_again(op, &ins, &outs))
        }
    };
    jaxpr.eqns.iter().map(of_eqn).sum()
}

#[test]
fn no_budget_is_exceeded_and_more_bytes_cost_no_more() {
    for (name, block, args) in blocks() {
        let mut budgets = budgets(block, &args);
        budgets.sort_unstable();
        let cost_of = |policy| picoseconds(&fwd_bwd(region(policy, block), &args).unwrap().backward);
        // Where all fits, what is cheap is computed again as without a region. A budget that is just too small may be cheaper.
        let least = cost_of(Policy::Everything);
        let (mut last, mut different) = (u64::MAX, HashSet::new());
        for budget in budgets {
            let f = region(Policy::budget(budget), block);
            let bytes = kept(&f, &args);
            assert!(bytes <= budget, "{name}: {bytes} of {budget} bytes");
            let cost = cost_of(Policy::budget(budget)).max(least);
            assert!(cost <= last, "{name}: with {budget} bytes {cost} ps, and with fewer {last} ps");
            last = cost;
            different.insert(bytes);
        }
        assert!(different.len() >= 4, "{name}: {different:?}");
    }
}

#[test]
fn a_budget_of_nothing_and_one_for_all() {
    for (name, block, args) in blocks() {
        let text = |policy: Policy| {
            let programs = fwd_bwd(region(policy.clone(), block), &args).unwrap();
            programs.to_string().replace(&policy.to_string(), "POLICY")
        };
        assert_eq!(text(Policy::budget(0)), text(Policy::Nothing), "{name}");
        let list = |policy| saved_residuals(region(policy, block), &args).unwrap().to_string();
        assert_eq!(list(Policy::budget(usize::MAX)), list(Policy::Everything), "{name}");
        let all = kept(region(Policy::Everything, block), &args);
        assert_eq!(list(Policy::budget(all)), list(Policy::Everything), "{name}");
        assert!(kept(region(Policy::budget(all - 1), block), &args) < all, "{name}");
    }
}

fn bits(tensors: Args) -> Vec<u64> {
    let numbers = |x: &Tensor| x.to_dtype(DType::F64).to_vec::<f64>().unwrap();
    tensors.iter().flat_map(numbers).map(f64::to_bits).collect()
}

#[test]
fn no_budget_changes_a_bit() {
    for (name, block, args) in blocks() {
        let expected = bits(jit(grad(block)).call(args.clone()).unwrap());
        let one = Tensor::from(1.0f64).to_dtype(args[0].dtype().unwrap());
        for budget in budgets(block, &args).into_iter().step_by(3) {
            let f = region(Policy::budget(budget), block);
            let f = |args: &Args| f(args);
            assert_eq!(bits(jit(grad(f)).call(args.clone()).unwrap()), expected, "{name}, {budget}, in one program");
            assert_eq!(bits(grad(f)(&args).unwrap()), expected, "{name}, {budget}, op by op");
            let (_, pullback) = vjp(f, &args).unwrap();
            assert_eq!(bits(pullback.call(&one).unwrap()), expected, "{name}, {budget}, apart");
        }
    }
}

#[test]
fn gradients_agree_on_xla() {
    let Some(device) = installed("budgets on XLA", Device::xla_cpu(0)) else { return };
    for (name, block, args) in blocks().into_iter().step_by(2) {
        let args: Args = args.iter().map(|x| x.to_device(&device)).collect();
        let expected = jit(grad(block)).call(args.clone()).unwrap();
        let all = kept(region(Policy::Everything, block), &args);
        let f = region(Policy::budget(all / 2), block);
        let found = jit(grad(|args: &Args| f(args))).call(args.clone()).unwrap();
        // XLA fuses what is computed again with other operations, and rounds differently.
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.allclose(expected, 1e-4, 1e-5).unwrap(), "{name}");
        }
    }
}

fn sine_layers() -> (Tensor, Tensor) {
    (data(DType::F64, &[4, 6], 1), data(DType::F64, &[6, 6], 2))
}

#[test]
fn derivatives_and_batches_compose() -> Result<()> {
    let (x, w) = sine_layers();
    let body = |x: &Tensor| x.matmul(&w).sin().matmul(&w).tanh().matmul(&w).cos().sum(..);
    for budget in [0, 48, 200, 400, 1000] {
        let f = checkpoint(Policy::budget(budget), body);
        let f = |x: &Tensor| f(x);
        let twice = |x: &Tensor| Ok::<_, Error>(grad(f)(x)?.square().sum(..));
        let plain_twice = |x: &Tensor| Ok::<_, Error>(grad(body)(x)?.square().sum(..));
        assert!(grad(twice)(&x)?.allclose(&grad(plain_twice)(&x)?, 1e-12, 1e-12)?, "{budget}: second derivative");
        let batch = Tensor::stack(&[x.clone(), &x * 0.5, &x * -0.75], 0);
        let each = vmap(|x: &Tensor| grad(f)(x))(&batch)?;
        assert!(each.allclose(&vmap(|x: &Tensor| grad(body)(x))(&batch)?, 1e-12, 1e-12)?, "{budget}: batch");
        let all = grad(|batch: &Tensor| Ok::<_, Error>(vmap(f)(batch)?.sum(..)))(&batch)?;
        assert!(all.allclose(&each, 1e-12, 1e-12)?, "{budget}: gradient of a batch");
    }
    Ok(())
}

#[test]
fn a_batch_has_one_budget_for_all_examples() -> Result<()> {
    let (x, w) = sine_layers();
    let body = |x: &Tensor| x.matmul(&w).sin().matmul(&w).sin().sum(..);
    let batch = Tensor::stack(&[x.clone(), &x * 0.5], 0);
    let kept = |budget, x: &Tensor| {
        let f = checkpoint(Policy::budget(budget), body);
        saved_residuals(|x: &Tensor| Ok::<_, Error>(vmap(|x: &Tensor| f(x))(x)?.sum(..)), x)
    };
    // One value of an example has 192 bytes.
    assert_eq!(kept(200, &x.expand_dims([0]))?.intermediate_bytes(), 192);
    assert_eq!(kept(200, &batch)?.intermediate_bytes(), 0);
    assert_eq!(kept(400, &batch)?.intermediate_bytes(), 384);
    Ok(())
}

#[test]
fn in_a_loop_the_budget_is_that_of_one_iteration() -> Result<()> {
    let (x, w) = (data(DType::F64, &[4, 6], 1), data(DType::F64, &[5, 6, 6], 2));
    let layer = |(x, w): &(Tensor, Tensor)| x.matmul(w).sin().matmul(w).tanh();
    let loss = |policy: Option<Policy>| {
        let region = checkpoint(policy, layer);
        move |(x, w): &(Tensor, Tensor)| {
            let (last, ()) = scan(|c: &Tensor, w: &Tensor| (region(&(c.clone(), w.clone())), ()), x, w)?;
            Ok::<_, Error>(last.square().sum(..))
        }
    };
    let args = (x, w);
    let nothing = saved_residuals(loss(Some(Policy::Nothing)), &args)?.intermediate_bytes();
    let one = saved_residuals(loss(Some(Policy::budget(192))), &args)?.intermediate_bytes();
    let two = saved_residuals(loss(Some(Policy::budget(2 * 192))), &args)?.intermediate_bytes();
    assert_eq!((one - nothing, two - nothing), (5 * 192, 2 * 5 * 192));
    let expected = grad(loss(None))(&args)?;
    let found = grad(loss(Some(Policy::budget(192))))(&args)?;
    assert_eq!(bits(vec![found.0, found.1]), bits(vec![expected.0, expected.1]));
    Ok(())
}

#[test]
fn on_the_devices_of_a_mesh() -> Result<()> {
    let (x, w) = (data(DType::F32, &[4, 6], 1), data(DType::F32, &[6, 6], 2));
    let mesh = Mesh::new([("x", 2)])?;
    let body = |x: &Tensor, w: &Tensor| x.matmul(w).sin().matmul(w).tanh().square().sum(..);
    let inside = |policy: Policy| {
        let mesh = mesh.clone();
        shard_map(&mesh, (spec!["x"], spec![]), spec![], move |(x, w): &(Tensor, Tensor)| {
            checkpoint(policy.clone(), |x: &Tensor| body(x, w).psum("x"))(x)
        })
    };
    let around = |policy: Policy| {
        let mapped =
            shard_map(&mesh, (spec!["x"], spec![]), spec![], move |(x, w): &(Tensor, Tensor)| body(x, w).psum("x"));
        checkpoint(policy, move |args: &(Tensor, Tensor)| mapped(args))
    };
    let args = (x, w);
    let expected = grad(|args: &(Tensor, Tensor)| around(Policy::Nothing)(args))(&args)?;
    for budget in [0, 48, 100, 200, 1000] {
        let f = inside(Policy::budget(budget));
        let found = grad(|args: &(Tensor, Tensor)| f(args))(&args)?;
        assert!(found.1.allclose(&expected.1, 1e-5, 1e-5)?, "{budget}: inside");
        let g = around(Policy::budget(budget));
        let found = grad(|args: &(Tensor, Tensor)| g(args))(&args)?;
        assert!(found.1.allclose(&expected.1, 1e-5, 1e-5)?, "{budget}: around");
        let bytes = saved_residuals(|args: &(Tensor, Tensor)| g(args), &args)?.intermediate_bytes();
        assert!(bytes <= budget, "{bytes} of {budget}");
    }
    // A value of a shard has 48 bytes, and both shards are kept.
    let bytes = |budget| -> Result<usize> {
        let f = around(Policy::budget(budget));
        Ok(saved_residuals(|args: &(Tensor, Tensor)| f(args), &args)?.intermediate_bytes())
    };
    assert_eq!((bytes(95)?, bytes(96)?), (0, 96));
    Ok(())
}

#[test]
fn the_outer_region_decides() -> Result<()> {
    let (x, w) = sine_layers();
    let inner = |policy: Policy| checkpoint(policy, |x: &Tensor| x.matmul(&w).sin().matmul(&w).sin());
    let kept = |outer: Policy, of_inner: Policy| {
        let f = checkpoint(outer, |x: &Tensor| inner(of_inner.clone())(&inner(of_inner.clone())(x)).sum(..));
        saved_residuals(|x: &Tensor| f(x), &x).map(|r| r.intermediate_bytes())
    };
    assert_eq!(kept(Policy::Nothing, Policy::budget(1 << 20))?, 0);
    assert_eq!(kept(Policy::budget(400), Policy::Nothing)?, 384);
    assert_eq!(kept(Policy::budget(400), Policy::budget(0))?, 384);
    assert_eq!(kept(Policy::Everything, Policy::budget(0))?, kept(Policy::Everything, Policy::Nothing)?);
    Ok(())
}

#[test]
fn decisions_have_reasons() -> Result<()> {
    let (x, w) = (data(DType::F32, &[4, 64], 1), data(DType::F32, &[64, 64], 2));
    let decisions = |budget| -> Result<Vec<String>> {
        let f = checkpoint(Policy::budget(budget), |x: &Tensor| x.matmul(&w).named("first").sin().exp().sum(..));
        let list = policy_decisions(|x: &Tensor| f(x), &x)?;
        let lines = list.iter().map(|d| {
            let (line, at) = (d.to_string(), d.loc.to_string());
            line.replace(&format!(" from {at}"), "")
        });
        Ok(lines.collect())
    };
    assert_eq!(
        decisions(1 << 10)?,
        [
            "recompute f32[4,64] output of dot_general: no effect",
            "save f32[4,64] named 'first': kept, saves 1.23 µs of recomputation for 1.00 KiB",
            "recompute f32[4,64] output of sin: computed again, would save 20.5 ns for 1.00 KiB, and 0 B of the budget are left",
            "recompute f32[4,64] output of cos: computed again, would save 20.5 ns for 1.00 KiB, and 0 B of the budget are left",
            "recompute f32[4,64] output of exp: computed again, would save 41.0 ns for 1.00 KiB, and 0 B of the budget are left",
            "recompute f32[] output of reduce_sum: no effect",
        ]
    );
    assert_eq!(
        decisions(1000)?[..2],
        [
            "recompute f32[4,64] output of dot_general: computed again, would save 1.23 µs for 1.00 KiB, and 1000 B of the \
             budget are left",
            "recompute f32[4,64] named 'first': computed again, costs nothing to compute again",
        ]
    );
    assert!(decisions(0)?[0].ends_with("would save 1.23 µs for 1.00 KiB, and 0 B of the budget are left"));
    assert_eq!(
        decisions(1 << 20)?[2..4],
        [
            "save f32[4,64] output of sin: no effect",
            "save f32[4,64] output of cos: kept, all that the backward pass needs fits the budget",
        ]
    );
    Ok(())
}

#[test]
fn a_budget_is_part_of_the_program() -> Result<()> {
    let program = |budget| {
        let f = checkpoint(Policy::budget(budget), |x: &Tensor| x.sin().cos());
        make_jaxpr(|x: &Tensor| f(x))(&data(DType::F32, &[3], 0)).map(|program| program.jaxpr)
    };
    let (small, large) = (program(1000)?, program(64 << 20)?);
    assert_ne!(small, large);
    assert!(large.to_string().contains("policy=Budget(64MiB)"), "{large}");
    let read: Jaxpr = large.to_string().parse()?;
    assert_eq!(read, *large);
    let policies: HashSet<Policy> = [0, 1, 1000, 1 << 20].map(Policy::budget).into_iter().collect();
    assert_eq!(policies.len(), 4);
    // A region that was read from text keeps what the traced one keeps.
    let x = data(DType::F32, &[3], 0);
    let of_text = |x: &Tensor| Ok::<_, Error>(remat::testing::call(&read, std::slice::from_ref(x))?[0].sum(..));
    assert_eq!(grad(of_text)(&x)?.to_vec::<f32>()?, grad(|x: &Tensor| x.sin().cos().sum(..))(&x)?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn a_budget_is_combined_with_a_strength_only() {
    let x = data(DType::F32, &[3], 0);
    let error = |policy: Policy| checkpoint(policy, |x: &Tensor| x.sin().named("a"))(&x).to_vec::<f32>().unwrap_err();
    let message = error(Policy::budget(1 << 20).or(Policy::names(["a"]))).to_string();
    assert!(
        message.contains("the policy Or(Budget(1MiB), Names(a)) combines Budget(1MiB) with Names(a); "),
        "{message}"
    );
    let message = error(Policy::Dots.and(Policy::budget(8).not())).to_string();
    assert!(message.contains("combines Budget(8) with And(Dots, Not(Budget(8)))"), "{message}");
    // Also where the program was read from text.
    let text = "{ lambda ; a:f32[3]. let b:f32[3] = checkpoint[jaxpr={ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) } \
                policy=Or(Budget(8), Dots) differentiated=False] a in (b,) }";
    let read: Jaxpr = text.parse().unwrap();
    let of_text = |x: &Tensor| Ok::<_, Error>(remat::testing::call(&read, std::slice::from_ref(x))?[0].sum(..));
    let message = grad(of_text)(&x).unwrap_err().to_string();
    assert!(message.contains("combines Budget(8) with Dots"), "{message}");
}

#[test]
fn layers_of_a_model_have_a_budget_each() -> Result<()> {
    let [weights, numbers] = random::key(0).split();
    let blocks = nn::Stack::init(weights, 3, |key| nn::Block::init(key, 32, 4, DType::F32));
    let x = random::normal(numbers, [2, 16, 32], DType::F32);
    type Blocks = nn::Stack<nn::Block>;
    let loss =
        |blocks: &Blocks| -> Result<Tensor> { Ok(blocks.apply(|block, x| block.apply(x), &x)?.square().mean(..)) };
    let kept = |policy: Policy| -> Result<usize> {
        Ok(saved_residuals(loss, &blocks.clone().with_policy(Some(policy)))?.intermediate_bytes())
    };
    let nothing = kept(Policy::Nothing)?;
    for budget in [0, 4 << 10, 16 << 10] {
        let bytes = kept(Policy::budget(budget))? - nothing;
        assert!(bytes <= 3 * budget, "{bytes} of 3 times {budget}");
    }
    // Values are of 4 KiB and more, so that a part of a budget is left.
    let most = 40 << 10;
    let bytes = kept(Policy::budget(most))? - nothing;
    assert!(bytes * 10 > 3 * most * 9, "{bytes} of 3 times {most}");
    Ok(())
}
