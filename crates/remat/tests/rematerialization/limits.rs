//! Programs with a memory limit that they do not fit: they compute values again until they do, with the same results in every bit.

use remat::argument::keep;
use remat::{
    Cpu, DType, ErrorKind, JitOptions, OverLimit, Policy, Result, Tensor, checkpoint, grad, jit_with, scan, tree,
    value_and_grad,
};
use remat_kernels::{Isa, used_isa};
use remat_testkit::sized;

type Layers = Vec<Tensor>;

fn options(threads: usize, memory_limit: usize) -> JitOptions {
    let device = Cpu::with_threads(threads).expect("threads start").into();
    JitOptions { device: Some(device), memory_limit: Some(memory_limit), ..JitOptions::default() }
}

/// Numbers from -0.2 to 0.2 whose sums are rounded.
fn data(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let size: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 31 + 3) % 1009) as f64 / 2522.5 - 0.2;
    Tensor::from_vec((0..size).map(number).collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

fn layers(dtype: DType) -> Layers {
    (0..sized(6, 8)).map(|seed| data(dtype, &[64, 64], seed)).collect()
}

fn bits(results: &Layers) -> Vec<u64> {
    let numbers = |x: &Tensor| x.to_dtype(DType::F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{e}"));
    results.iter().flat_map(numbers).map(f64::to_bits).collect()
}

/// A residual layer: a norm, a product, a nonlinearity.
fn layer(x: &Tensor, w: &Tensor) -> Tensor {
    let centred = x - x.mean(keep(-1));
    let norm = &centred * (centred.square().mean(keep(-1)) + 1e-5).rsqrt();
    x + norm.matmul(w).tanh()
}

fn input(w: &Tensor) -> Tensor {
    data(w.dtype().expect("a tensor"), &[256, 64], 100)
}

fn loss(layers: &Layers) -> Tensor {
    layers.iter().fold(input(&layers[0]), |x, w| layer(&x, w)).square().sum(..)
}

/// Each layer also reads the result of one far before it, as in a U-Net.
fn skipping(layers: &Layers) -> Tensor {
    let mut kept: Vec<Tensor> = Vec::new();
    let (down, up) = layers.split_at(layers.len() / 2);
    let x = down.iter().fold(input(&layers[0]), |x, w| {
        kept.push(x.clone());
        layer(&x, w).cumsum(0) * 0.01
    });
    up.iter().fold(x, |x, w| layer(&(x + kept.pop().expect("as many")), w)).square().sum(..)
}

/// A loop with all layers, and layers on both sides of it.
fn around_a_loop(layers: &Layers) -> Result<Tensor> {
    let stacked = Tensor::stack(layers, 0);
    let x = layer(&layer(&input(&layers[0]), &layers[0]), &layers[1]);
    let (x, ()) = scan(|x: &Tensor, w: &Tensor| (layer(x, w), ()), &x, &stacked)?;
    Ok(layer(&layer(&x, &layers[2]), &layers[3]).square().sum(..))
}

fn step(layers: &Layers, loss: impl Fn(&Layers) -> Result<Tensor> + Copy) -> Result<Layers> {
    let gradients = grad(loss)(layers)?;
    Ok(layers.iter().zip(&gradients).map(|(w, g)| w - g * 0.01).collect())
}

/// Compiles a step for these shares of its temporaries, in percent; checks that what fits needs no more and gives the same bits, on one
/// thread and, for the first share, on more; and that what does not says how little it could need. Returns the least share that fits.
fn sweep(what: &str, percents: &[usize], dtype: DType, f: impl Fn(&Layers) -> Result<Layers> + Copy) -> usize {
    let mut least = 100;
    for &threads in sized(&[1, 3][..], &[1, 2, 3]) {
        let free = jit_with(&options(threads, usize::MAX), f);
        let memory = free.memory(&layers(dtype)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let expected = bits(&free.call(layers(dtype)).unwrap_or_else(|e| panic!("{what}: {e}")));
        for &percent in percents {
            let limit = memory.donated_peak - memory.temporaries + memory.temporaries / 100 * percent;
            // Results do not depend on the number of threads, and a plan only through scratch memory.
            if threads > 1 && percent != percents[0] {
                continue;
            }
            let limited = jit_with(&options(threads, limit), f);
            match limited.lower(&layers(dtype)).and_then(|lowered| lowered.compile()) {
                Ok(program) => {
                    let planned = program.memory();
                    assert!(planned.donated_peak <= limit, "{what}, {percent} %: {planned}");
                    let got = program.call(layers(dtype)).unwrap_or_else(|e| panic!("{what}, {percent} %: {e}"));
                    assert!(bits(&got) == expected, "{what}, {percent} %, {threads} threads: other numbers");
                    least = least.min(percent);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Memory, "{what}: {error}");
                    assert!(error.message().contains(&format!("({limit} B)")), "{what}: {error}");
                }
            }
        }
    }
    least
}

const SHARES: [usize; 2] = [80, 95];

#[test]
fn layers_fit_and_keep_their_bits() {
    let least = sweep("layers", &SHARES, DType::F32, |layers| step(layers, |l| Ok(loss(l))));
    assert!(least <= 80, "{least}");
}

#[test]
fn skipped_layers_fit_and_keep_their_bits() {
    let least = sweep("skips", &SHARES, DType::F32, |layers| step(layers, |l| Ok(skipping(l))));
    assert!(least <= 80, "{least}");
}

#[test]
fn layers_in_half_precision_fit_and_keep_their_bits() {
    // Products need more scratch memory where no matrix unit multiplies bf16.
    let least = if used_isa() == Isa::Amx { 60 } else { 75 };
    assert!(sweep("bf16", &[80, least], DType::Bf16, |layers| step(layers, |l| Ok(loss(l)))) <= least);
}

#[test]
fn what_a_policy_keeps_may_be_computed_again() {
    let f = |layers: &Layers| step(layers, checkpoint_dots);
    assert!(sweep("a policy", &[80, 60], DType::F32, f) <= 80);
}

fn checkpoint_dots(layers: &Layers) -> Result<Tensor> {
    let layer = checkpoint(Policy::Dots, |(x, w): &(Tensor, Tensor)| layer(x, w));
    let x = layers.iter().fold(input(&layers[0]), |x, w| layer(&(x, w.clone())));
    Ok(x.square().sum(..))
}

#[test]
fn loops_run_once_or_whole() {
    sweep("a loop", &[80, 90], DType::F32, |layers| step(layers, around_a_loop));
}

#[test]
fn second_derivatives_fit_and_keep_their_bits() {
    let f = |layers: &Layers| {
        let norm = |layers: &Layers| -> Result<Tensor> {
            let gradients = grad(|l: &Layers| loss(l))(layers)?;
            Ok(gradients.iter().map(|g| g.square().sum(..)).reduce(|a, b| a + b).expect("there are layers"))
        };
        // Their program has three times the equations.
        grad(norm)(&layers[..sized(3, 8)].to_vec())
    };
    assert_eq!(sweep("second derivatives", &[80], DType::F32, f), 80);
}

/// NaN and infinities are computed again as they were.
#[test]
fn numbers_that_are_none_are_the_same() {
    let f = |layers: &Layers| step(layers, |l| Ok(loss(l) / 0.0 * 0.0));
    sweep("NaN", &[80], DType::F32, f);
}

#[test]
fn an_error_has_the_least_that_was_found() {
    let f = |layers: &Layers| value_and_grad(loss)(layers);
    let free = jit_with(&options(1, usize::MAX), f).memory(&layers(DType::F32)).unwrap();
    let least = |limit: usize| {
        let error = jit_with(&options(1, limit), f).memory(&layers(DType::F32)).expect_err("it cannot fit");
        assert_eq!(error.kind(), ErrorKind::Memory);
        let needed = error.message().split(['(', ' ']).collect::<Vec<_>>();
        let at = needed.iter().position(|word| *word == "B)").expect("the bytes that it needs");
        needed[at - 1].parse::<usize>().expect("a number")
    };
    let needed = least(1);
    assert!(needed < free.donated_peak, "{needed} {free}");
    // What the error says is enough is enough.
    assert!(jit_with(&options(1, needed), f).memory(&layers(DType::F32)).unwrap().donated_peak <= needed);
    assert_eq!(least(0), needed);
}

#[test]
fn a_program_may_be_refused_instead() {
    let f = |layers: &Layers| step(layers, |l| Ok(loss(l)));
    let free = jit_with(&options(1, usize::MAX), f).memory(&layers(DType::F32)).unwrap();
    let refusing = JitOptions { over_limit: OverLimit::Refuse, ..options(1, free.donated_peak - 1) };
    let error = jit_with(&refusing, f).call(layers(DType::F32)).unwrap_err();
    let said = format!("({} B) and the limit is", free.donated_peak);
    assert!(error.kind() == ErrorKind::Memory && error.message().contains(&said), "{error}");
}

/// A limit counts what each call donates: where the weights are kept, more has to be computed again.
#[test]
fn calls_that_keep_their_arguments_fit_as_well() {
    let f = |layers: &Layers| step(layers, |l| Ok(loss(l)));
    let free = jit_with(&options(1, usize::MAX), f);
    let expected = bits(&free.call(layers(DType::F32)).unwrap());
    let memory = free.memory(&layers(DType::F32)).unwrap();
    assert!(memory.donated_peak < memory.peak, "{memory}");
    let limited = jit_with(&options(1, memory.donated_peak), f);
    assert_eq!(bits(&limited.call(layers(DType::F32)).unwrap()), expected);
    let kept = layers(DType::F32);
    for _ in 0..2 {
        assert_eq!(bits(&limited.call(tree::map(&kept, Tensor::clone)).unwrap()), expected);
        assert_eq!(bits(&limited.call(layers(DType::F32)).unwrap()), expected);
    }
}

/// The same limit gives the same steps.
#[test]
fn plans_are_the_same_each_time() {
    let f = |layers: &Layers| step(layers, |l| Ok(loss(l)));
    let free = jit_with(&options(1, usize::MAX), f).memory(&layers(DType::F32)).unwrap();
    let limited = || jit_with(&options(1, free.donated_peak - free.temporaries / 3), f).memory(&layers(DType::F32));
    assert_eq!(limited().unwrap(), limited().unwrap());
}

#[test]
fn empty_programs_have_nothing_to_compute_again() {
    let empty = || vec![Tensor::zeros([0, 64], DType::F32), Tensor::from(1.0f32)];
    let f = |layers: &Layers| layers.iter().map(|x| x.exp() * 2.0).collect::<Layers>();
    let needed = jit_with(&options(1, usize::MAX), f).memory(&empty()).unwrap().donated_peak;
    assert!(jit_with(&options(1, needed), f).call(empty()).is_ok());
    let error = jit_with(&options(1, needed - 1), f).call(empty()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory);
}
