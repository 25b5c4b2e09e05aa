//! The peak that a program tells before it runs is the one that the allocator sees, in bytes, whatever the program, the
//! policy, the dtype and the number of threads. All is one test, since whatever another thread asks for is counted too.

use remat::ir::Array;
use remat::nn::{Block, cross_entropy};
use remat::optim::{AdamW, Optimizer, Sgd, clip_by_global_norm};
use remat::stages::{Compiled, Lowered};
use remat::tree::leaves;
use remat::{
    Cpu, DType, JitOptions, Policy, Result, Tensor, Tree, checkpoint, fori_loop, grad, jit, jit_with, random, scan,
    tree, value_and_grad, while_loop,
};
use remat_alloc::Counting;
use remat_testkit::sized;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Of the layers of a training step.
const SIZE: usize = 256;
const FEATURES: usize = 32;
const LAYERS: usize = 3;
const TOKENS: usize = 50;

/// What `f` gives, and by how much more than before was allocated at its peak.
fn measured<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, usize)> {
    let before = ALLOCATOR.live();
    ALLOCATOR.reset_peak();
    let result = f()?;
    Ok((result, ALLOCATOR.peak() - before))
}

fn options(threads: usize) -> Result<JitOptions> {
    Ok(JitOptions { device: Some(Cpu::with_threads(threads)?.into()), ..JitOptions::default() })
}

/// A compiled program, and by how much more than before is allocated at the peak of its first run.
fn first_run(lowered: &Lowered, operands: &[Tensor]) -> Result<(Compiled, usize)> {
    let compiled = lowered.compile()?;
    let (_, most) = measured(|| compiled.call(operands.to_vec()))?;
    Ok((compiled, most))
}

/// Compares plan and measurement of a function on one and on more threads.
fn check<A: Tree, R: remat::tree::Output>(name: &str, args: &A, f: impl Fn(&A) -> R) -> Result<()> {
    for threads in 1..=sized(2, 3) {
        let step = jit_with(&options(threads)?, &f);
        let traced = step.trace(args)?;
        let operands: Vec<Tensor> = leaves(args).into_iter().map(|(_, leaf)| leaf).collect();
        let (compiled, most) = first_run(&traced.lower()?, &operands)?;
        let planned = compiled.memory();
        assert_eq!(planned.arguments + most, planned.peak, "{name}, threads {threads}: {planned}");
        assert_eq!(
            planned.peak,
            planned.arguments + planned.outputs + planned.temporaries + planned.overhead,
            "{name}, threads {threads}: {planned}"
        );
        // The temporaries stay: the second run has them already.
        let before = ALLOCATOR.live();
        let (second, again) = measured(|| compiled.call(operands.clone()))?;
        drop(second);
        assert_eq!(ALLOCATOR.live(), before, "{name}, threads {threads}: something stays of a run");
        assert!(again <= most - planned.temporaries, "{name}, threads {threads}: {again}, {planned}");
        // A call of the function itself makes the tree of the results, when the list of the arguments is gone: a few bytes for each field.
        drop(step.call(tree::map(args, Tensor::clone))?);
        let (_, called) = measured(|| step.call(tree::map(args, Tensor::clone)))?;
        assert!((again..again + 4096).contains(&called), "{name}, threads {threads}: {called} and not {again}");
    }
    Ok(())
}

/// A model of text in the ways that a user may write it.
fn models(dtype: DType) -> Result<()> {
    let keys = random::key(0).split::<{ LAYERS + 1 }>();
    let tokens = Tensor::arange(0..64).reshape([4, 16]) % TOKENS as i64;
    let [table, keys @ ..] = keys;
    let table = random::normal(table, [TOKENS, FEATURES], dtype);
    let blocks = Vec::from(keys.map(|key| Block::init(key, FEATURES, 4, dtype)));
    let stacked = tree::map(&blocks[0], |leaf| {
        let dims = leaf.shape().unwrap_or_default();
        Tensor::zeros([&[LAYERS][..], dims].concat(), dtype) + leaf
    });
    let policies = [Policy::Everything, Policy::Dots, Policy::DotsWithNoBatchDims, Policy::Nothing];
    let policies = policies.into_iter().map(Some).chain([None]);
    for policy in policies {
        let under = |block: &Block, x: &Tensor| match &policy {
            None => block.apply(x),
            Some(policy) => {
                checkpoint(policy.clone(), |(block, x): &(Block, Tensor)| block.apply(x))(&(block.clone(), x.clone()))
            }
        };
        let loss = |x: &Tensor, table: &Tensor, tokens: &Tensor| {
            cross_entropy(&x.matmul(&table.t()).index((.., ..-1)), &tokens.index((.., 1..)))
        };
        let args = ((table.clone(), blocks.clone()), tokens.clone());
        check(&format!("unrolled, {policy:?}, {dtype}"), &args, |((table, blocks), tokens)| {
            value_and_grad(|(table, blocks): &(Tensor, Vec<Block>)| {
                let x = blocks.iter().fold(table.take(tokens, 0), |x, block| under(block, &x));
                loss(&x, table, tokens)
            })(&(table.clone(), blocks.clone()))
        })?;
        let args = ((table.clone(), stacked.clone()), tokens.clone());
        check(&format!("scanned, {policy:?}, {dtype}"), &args, |((table, blocks), tokens)| {
            value_and_grad(|(table, blocks): &(Tensor, Block)| {
                let x = table.take(tokens, 0);
                let (x, ()) = scan(|x: &Tensor, block: &Block| (under(block, x), ()), &x, blocks)?;
                Ok::<_, remat::Error>(loss(&x, table, tokens))
            })(&(table.clone(), blocks.clone()))
        })?;
    }
    Ok(())
}

/// Compares plan and measurement of a function of a list.
fn check_list<R: remat::tree::Output>(name: &str, args: &Vec<Tensor>, f: impl Fn(&Vec<Tensor>) -> R) -> Result<()> {
    let (compiled, most) = first_run(&jit_with(&options(1)?, f).lower(args)?, args)?;
    let planned = compiled.memory();
    assert_eq!(planned.arguments + most, planned.peak, "{name} of {}: {planned}", args.len());
    Ok(())
}

/// Many arguments and one result, of which the lists are most of the memory.
fn lists() -> Result<()> {
    let x = random::normal(random::key(1), [3, 5], DType::F32);
    let captured: Vec<Tensor> = (0..9).map(|i| &x * f64::from(i)).collect();
    let deep = x.reshape([1, 1, 1, 1, 1, 3, 5]);
    for count in [0, 1, 13, 30, 100] {
        for x in [&x, &deep] {
            let args = vec![x.clone(); count];
            let first = |args: &Vec<Tensor>| args.first().cloned().unwrap_or_else(|| Tensor::ones([4], DType::F32));
            check_list("a sine of the first", &args, |args| first(args).sin())?;
            check_list("the first itself", &args, first)?;
            check_list("the first and the last, reshaped", &args, |args| {
                (first(args), args.last().map_or_else(|| first(args), |x| x.reshape([15])))
            })?;
            check_list("nothing", &args, |_| ())?;
            check_list("captured constants", &args, |args| {
                captured.iter().fold(first(args).sum(..), |sum, x| sum + x.sum(..))
            })?;
            check_list("the gradient of an operand that is not used", &args, |args| {
                grad(|args: &Vec<Tensor>| first(args).sum(..))(args)
            })?;
        }
    }
    Ok(())
}

fn others() -> Result<()> {
    let x = random::normal(random::key(1), [64, 48], DType::F32);
    check("no result", &x, |_| ())?;
    check("nothing computed", &x, |x| (x.clone(), x.reshape([48, 64])))?;
    check("no argument", &(), |()| Tensor::ones([1000], DType::F64))?;
    check("an output twice", &x, |x| {
        let y = x.sin();
        (y.clone(), y.reshape([64 * 48]), x.clone(), y)
    })?;
    check("many dimensions", &x.reshape([2, 2, 2, 2, 2, 2, 48]), |x| (x.exp(), x.t(), x.sum(0)))?;
    check("many operands", &vec![x.clone(); 20], |xs: &Vec<Tensor>| {
        Tensor::concatenate(&xs.iter().map(|x| x.sin()).collect::<Vec<_>>(), 0)
    })?;
    check("sorted", &x, |x| (x.sort(0), x.argsort(1)))?;
    check("a loop", &x, |x| fori_loop(0, 5, |_, x: &Tensor| x.matmul(&x.t()).tanh().matmul(x), x))?;
    check("a loop of unknown length", &x, |x| {
        while_loop(|x: &Tensor| x.square().sum(..).lt(1e6), |x: &Tensor| x.cumsum(0) * 1.5, x)
    })?;
    Ok(())
}

/// Arguments that the caller donates are outputs afterwards, and nothing is asked for in their place.
fn donated() -> Result<()> {
    let x = || random::normal(random::key(1), [64, 48], DType::F32);
    let update = |(x, y): &(Tensor, Tensor)| (x - y * 0.1, y.sum(..));
    let compiled = jit(update).lower(&(x(), x()))?.compile()?;
    let planned = compiled.memory();
    drop(compiled.call(vec![x(), x()])?);
    let kept = vec![x(), x()];
    let (_, with_kept) = measured(|| compiled.call(kept.clone()))?;
    let (x, y) = (x(), x());
    let bytes = 4 * 64 * 48;
    assert_eq!(planned.outputs, bytes + 4);
    let leaves = vec![x, y];
    let (outs, with_given) = measured(|| compiled.call(leaves))?;
    // The list of leaves was there before, and the elements and header of one output come from its argument.
    let (list, header) = (2 * size_of::<Tensor>(), remat::ir::Array::HEADER);
    assert_eq!(with_given + list + bytes + header, with_kept, "{planned}");
    assert_eq!(outs.len(), 2);
    Ok(())
}

/// Steps to which model and optimizer are moved: the planned peak is what is allocated, and gradients are consumed as they are made,
/// unless all of them are needed before the first update.
fn training_steps() -> Result<()> {
    const LAYERS: usize = 8;
    let weights =
        || (0..LAYERS as u64).map(|i| random::normal(random::key(i), [SIZE, SIZE], DType::F32) * 0.05).collect();
    let bytes = 4 * SIZE * SIZE;
    for is_clipped in [false, true] {
        let sgd = Sgd { learning_rate: 0.1.into(), momentum: 0.0, ..Sgd::default() };
        let mut held = vec![training_step("sgd", &sgd, weights, is_clipped, 16)?];
        held.push(training_step("adamw", &AdamW::default(), weights, is_clipped, 16)?);
        for held in held {
            if is_clipped {
                assert!(held >= LAYERS * bytes, "a norm of all gradients, and {held} bytes");
            } else {
                assert!(held < 4 * bytes, "{held} bytes, where one gradient has {bytes}");
            }
        }
    }
    // With many rows, activations are most of the memory.
    training_step("adamw", &AdamW::default(), weights, false, 1024)?;
    Ok(())
}

/// The bytes that a step needs beside model, optimizer and batch, where all are donated. `rows` is the size of the batch.
fn training_step<O: Optimizer>(
    name: &str,
    optimizer: &O,
    weights: impl Fn() -> Vec<Tensor>,
    is_clipped: bool,
    rows: usize,
) -> Result<usize> {
    let step = |(model, state, x): &(Vec<Tensor>, O::State<Vec<Tensor>>, Tensor)| {
        let loss = |model: &Vec<Tensor>| model.iter().fold(x.clone(), |x, w| layer(&x, w)).square().sum(..);
        let (loss, gradient) = value_and_grad(loss)(model)?;
        let gradient = if is_clipped { clip_by_global_norm(&gradient, 1.0).0 } else { gradient };
        let (model, state) = optimizer.update(model, &gradient, state)?;
        Ok::<_, remat::Error>((model, state, loss))
    };
    let model = weights();
    let first = (model.clone(), optimizer.init(&model), random::normal(random::key(2), [rows, SIZE], DType::F32));
    let args = || tree::map(&first, Tensor::clone);
    let copy = |leaf: &Tensor| {
        let array = leaf.array()?.clone();
        Ok(Tensor::from_value(Array::new(array.aval().clone(), array.into_data())?.into()))
    };
    let own = |args| {
        // A leaf that nothing else has: initial states may share their zeros.
        leaves(&args).iter().map(|(_, leaf)| copy(leaf)).collect::<Result<Vec<Tensor>>>()
    };
    let compiled = jit(step).lower(&args())?.compile()?;
    let planned = compiled.memory();
    let leaves = own(args())?;
    let list = leaves.capacity() * size_of::<Tensor>();
    let (given, with_given) = measured(|| compiled.call(leaves))?;
    assert_eq!(planned.arguments + with_given + list, planned.donated_peak, "{name}, clipped {is_clipped}: {planned}");
    // A run that keeps its arguments has the memory of its own plan, also after one that had another.
    let kept = own(args())?;
    let retained = |given: Option<Vec<Tensor>>| {
        let compiled = jit(step).lower(&args())?.compile()?;
        let before =
            ALLOCATOR.live() - given.iter().flatten().map(|leaf| leaf.aval().map_or(0, |a| a.bytes())).sum::<usize>();
        if let Some(given) = given {
            drop(compiled.call(given)?);
        }
        drop(compiled.call(kept.clone())?);
        Ok::<_, remat::Error>(ALLOCATOR.live() - before)
    };
    let (alone, after) = (retained(None)?, retained(Some(own(args())?))?);
    assert!(after <= alone, "{name}, clipped {is_clipped}: {after} bytes stay and not {alone}");
    // Within a limit that is the planned peak it runs where they are donated, and not where they are kept.
    let limited = jit_with(&JitOptions { memory_limit: Some(planned.donated_peak), ..JitOptions::default() }, step);
    let limited = limited.lower(&args())?.compile()?;
    drop(limited.call(own(args())?)?);
    let error = limited.call(kept.clone()).err().map(|error| error.to_string()).unwrap_or_default();
    let expected = format!("({} B) and the limit is", planned.peak);
    assert!(error.contains(&expected), "{name}, clipped {is_clipped}: {error}");
    // Where activations are most of the memory, it runs with half of it: it computes values again, needs exactly what the plan says, and gives
    // the same bits.
    if rows > SIZE {
        let half = planned.donated_peak - planned.temporaries + planned.temporaries / 2;
        let options = JitOptions { memory_limit: Some(half), ..JitOptions::default() };
        let compiled = jit_with(&options, step).lower(&args())?.compile()?;
        let planned = compiled.memory();
        let leaves = own(args())?;
        let list = leaves.capacity() * size_of::<Tensor>();
        let (again, with_given) = measured(|| compiled.call(leaves))?;
        assert!(planned.donated_peak <= half, "{name}, limit {half}: {planned}");
        assert_eq!(planned.arguments + with_given + list, planned.donated_peak, "{name}, limit {half}: {planned}");
        for (again, given) in again.iter().zip(&given) {
            assert!(again.eq(given).all(..).item::<bool>()?, "{name}, limit {half}");
        }
    }
    // The same numbers as where the arguments are kept.
    for (given, kept) in given.iter().zip(compiled.call(kept.clone())?) {
        assert!(given.eq(&kept).all(..).item::<bool>()?, "{name}, clipped {is_clipped}");
    }
    Ok(planned.donated_peak - planned.arguments - planned.overhead)
}

/// An operation outside of programs takes what the program of one equation takes, when both have run already.
fn single_operations() -> Result<()> {
    let [x, y] = [1, 2].map(|seed| random::normal(random::key(seed), [64, 64], DType::F32));
    let operations: [(&str, fn(&Tensor, &Tensor) -> Tensor); 4] = [
        ("a sum", |x, y| x + y),
        ("a product", |x, y| x.matmul(y)),
        ("a comparison", |x, y| x.lt(y)),
        ("a power", |x, y| x.pow(y)),
    ];
    for (name, f) in operations {
        let program = jit(|(x, y): &(Tensor, Tensor)| f(x, y));
        let lowered = program.lower(&(x.clone(), y.clone()))?;
        let [equation] = &lowered.jaxpr().eqns[..] else { panic!("{name} is not one equation") };
        let apply = || remat_cpu::apply(&equation.op, vec![x.array()?.clone(), y.array()?.clone()]);
        let compiled = lowered.compile()?;
        drop((apply()?, compiled.call(vec![x.clone(), y.clone()])?));
        let (_, in_a_program) = measured(|| compiled.call(vec![x.clone(), y.clone()]))?;
        let (_, alone) = measured(apply)?;
        assert_eq!(alone, in_a_program, "{name}");
    }
    Ok(())
}

/// A layer whose gradient needs its result: `x` is `[16, 64]`.
fn layer(x: &Tensor, weight: &Tensor) -> Tensor {
    x.matmul(weight).tanh()
}

/// A chain of layers, in which the first half of each half is a region.
fn recursive(length: usize, x: &Tensor, weight: &Tensor) -> Tensor {
    if length == 1 {
        return layer(x, weight);
    }
    let first = move |(x, weight): &(Tensor, Tensor)| recursive(length / 2, x, weight);
    let args = (x.clone(), weight.clone());
    let first = if length > 2 { checkpoint(Policy::Nothing, first)(&args) } else { first(&args) };
    recursive(length - length / 2, &first, weight)
}

/// Temporaries of recursive checkpoints grow with the logarithm of the length, those of a plain chain with the length.
fn chains() -> Result<()> {
    // Values and gradients stay far from subnormal numbers, with which arithmetic takes a hundred times as long.
    let (x, weight) = (Tensor::ones([256, 64], DType::F32), Tensor::eye(64, DType::F32));
    let bytes = 4 * 256 * 64;
    for length in [10, 100, 1000] {
        let chain = |weight: &Tensor, x: &Tensor| (0..length).fold(x.clone(), |x, _| layer(&x, weight)).sum(..);
        let plain = jit(grad(|x: &Tensor| chain(&weight, x)));
        let step = jit(grad(|x: &Tensor| recursive(length, x, &weight).sum(..)));
        let (compiled, most) = first_run(&step.lower(&x)?, std::slice::from_ref(&x))?;
        let planned = compiled.memory();
        assert_eq!(planned.arguments + most, planned.peak, "{length}: {planned}");
        let (states, all_states) = (planned.temporaries / bytes, plain.memory(&x)?.temporaries / bytes);
        assert!(all_states >= length, "{length}: {all_states}");
        assert!(states <= length.ilog2() as usize + 3, "{length}: {states}");
    }
    Ok(())
}

fn main() -> Result<()> {
    the_planned_peak_is_the_one_of_the_allocator()?;
    println!("the planned peak is the one of the allocator");
    Ok(())
}

fn the_planned_peak_is_the_one_of_the_allocator() -> Result<()> {
    for &dtype in sized(&[DType::F32][..], &[DType::F32, DType::Bf16]) {
        models(dtype)?;
    }
    others()?;
    lists()?;
    donated()?;
    training_steps()?;
    single_operations()?;
    chains()
}
