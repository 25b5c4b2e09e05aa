//! A set of programs that is closed under the transformations: scalar functions of floats, with values named `a` and `b` for policies.
//!
//! ```
//! use remat::{DType, grad};
//! use remat_conformance::closed::PROGRAMS;
//!
//! let program = &PROGRAMS[0];
//! let x = program.arguments(DType::F32, 0);
//! assert_eq!(grad(program.f)(&x)?.len(), program.shapes.len());
//! # Ok::<(), remat::Error>(())
//! ```

// The functions take trees, and a slice is not one.
#![allow(clippy::ptr_arg)]

use remat::nn::{self, AttentionConfig, dot_product_attention};
use remat::{
    ConvConfig, DType, Padding, Policy, Result, Tensor, checkpoint, cond, custom_jvp, custom_remat, custom_vjp, einsum,
    fori_loop, jit, map, optimization_barrier, random, scan, switch, while_loop,
};

/// One program.
pub struct Program {
    /// The name, which is unique.
    pub name: &'static str,
    /// The function. All arguments have the same float dtype.
    pub f: fn(&Vec<Tensor>) -> Result<Tensor>,
    /// The shapes of the arguments.
    pub shapes: &'static [&'static [usize]],
    /// Whether it has a gradient; not if it has a loop of unknown length.
    pub has_reverse_mode: bool,
    /// Whether it has tangents; not if it has a rule for reverse mode only.
    pub has_forward_mode: bool,
}

impl Program {
    /// Arguments of this dtype: distinct numbers between -1 and 1.
    pub fn arguments(&self, dtype: DType, seed: usize) -> Vec<Tensor> {
        let mut n = seed * 5 + 1;
        let mut next = || {
            n += 1;
            ((n as f64) * 0.754_877_666).fract() * 1.8 - 0.9
        };
        let array = |shape: &&[usize]| {
            let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|_| next()).collect();
            Tensor::from_vec(values, shape.to_vec()).to_dtype(dtype)
        };
        self.shapes.iter().map(array).collect()
    }
}

const fn program(
    name: &'static str,
    shapes: &'static [&'static [usize]],
    f: fn(&Vec<Tensor>) -> Result<Tensor>,
) -> Program {
    Program { name, f, shapes, has_reverse_mode: true, has_forward_mode: true }
}

/// All programs.
pub const PROGRAMS: &[Program] = &[
    program("elementwise", &[&[3, 4], &[4]], elementwise),
    program("activations", &[&[3, 4]], activations),
    program("label_and_value", &[&[4]], label_and_value),
    program("mlp", &[&[2, 4], &[4, 6], &[6], &[6, 3]], mlp),
    program("layer_norm", &[&[3, 5], &[5], &[5]], layer_norm),
    program("softmax", &[&[3, 5]], softmax),
    program("attention", &[&[2, 3, 4], &[4, 12], &[4, 4]], attention),
    program("fused_attention", &[&[2, 3, 4, 2], &[2, 3, 2, 2], &[2, 3, 2, 3], &[4, 1, 3]], fused_attention),
    program("cross_entropy", &[&[2, 3], &[3, 5]], cross_entropy),
    program("conv_net", &[&[1, 2, 5, 5], &[3, 2, 3, 3], &[3]], conv_net),
    program("embedding", &[&[5, 4], &[4, 5]], embedding),
    program("indexing", &[&[4, 5]], indexing),
    program("shapes", &[&[2, 3], &[3]], shapes),
    program("reductions", &[&[3, 4]], reductions),
    program("cumulative", &[&[2, 4]], cumulative),
    program("sorting", &[&[3, 5]], sorting),
    program("rnn", &[&[3, 3], &[2, 3], &[4, 2], &[3]], rnn),
    program("scan_of_cond", &[&[3], &[4, 3]], scan_of_cond),
    program("scan_of_scan", &[&[2], &[3, 2]], scan_of_scan),
    program("scan_of_checkpoint", &[&[3, 3], &[3]], scan_of_checkpoint),
    program("fori", &[&[3]], fori),
    program("mapped", &[&[4, 3]], mapped),
    program("branches", &[&[3]], branches),
    program("jit_in_jit", &[&[3], &[3]], jit_in_jit),
    program("nested_checkpoints", &[&[3, 3], &[3]], nested_checkpoints),
    program("own_jvp", &[&[4]], own_jvp),
    Program { has_forward_mode: false, ..program("own_vjp", &[&[4]], own_vjp) },
    Program { has_forward_mode: false, ..program("own_remat", &[&[4]], own_remat) },
    Program { has_reverse_mode: false, ..program("while", &[&[3]], counted_while) },
    program("dropout", &[&[3, 4]], dropout),
    program("captured_integers", &[&[3, 4]], captured_integers),
    program("half_precision", &[&[3, 4], &[4, 2]], half_precision),
    program("barrier", &[&[3], &[3]], barrier),
    program("unused_argument", &[&[3], &[2, 2]], unused_argument),
    program("stopped", &[&[3]], stopped),
];

fn elementwise(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = (p[0].sin() * &p[1]).exp().named("a");
    let b = (&a / (p[0].square() + 1.5)).atan2(&p[1] + 2.0).named("b");
    Ok((b + a.log1p() - (&p[0] * &p[0] + 0.1).rsqrt()).sum(..))
}

fn activations(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = (p[0].gelu() + p[0].silu()).named("a");
    let b = (a.relu() + a.softplus() + p[0].gelu_exact()).named("b");
    Ok((b.tanh() * b.sigmoid() + p[0].clamp(-0.3, 0.4)).sum(..))
}

fn label_and_value(p: &Vec<Tensor>) -> Result<Tensor> {
    let value = p[0].sin();
    let a = value.named("a");
    let b = (&value * &a).named("b");
    Ok((b * &value + a.cos() + p[0].named("b")).sum(..))
}

fn mlp(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = (p[0].matmul(&p[1]) + &p[2]).tanh().named("a");
    let b = a.matmul(&p[3]).named("b");
    Ok(b.square().mean(..))
}

fn layer_norm(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = p[0].layer_norm(-1, 1e-5, Some(&p[1]), Some(&p[2])).named("a");
    let b = a.rms_norm(-1, 1e-5, None).named("b");
    Ok((b * &p[0]).sum(..))
}

fn softmax(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = p[0].softmax(-1).named("a");
    let b = p[0].log_softmax(0).named("b");
    Ok((a * b).sum(..) + p[0].logsumexp(1).sum(..))
}

fn attention(p: &Vec<Tensor>) -> Result<Tensor> {
    let qkv = p[0].matmul(&p[1]).named("a").reshape([2, 3, 3, 2, 2]);
    let part = |i: i64| qkv.index((.., .., i)).transpose([0, 2, 1, 3]);
    let (q, k, v) = (part(0), part(1), part(2));
    let scores = einsum("bhqd,bhkd->bhqk", &[&q, &k]) * 0.7;
    let mask = Tensor::ones([3, 3], DType::F32).tril(0).gt(Tensor::zeros([3, 3], DType::F32));
    let scores = mask.select(&scores, scores.full_like(-1e4));
    let out = einsum("bhqk,bhkd->bqhd", &[&scores.softmax(-1), &v]).reshape([2, 3, 4]);
    let b = out.matmul(&p[2]).named("b");
    Ok((&p[0] + b).square().sum(..))
}

fn fused_attention(p: &Vec<Tensor>) -> Result<Tensor> {
    let key = p[1].sin().named("a");
    let bias = Some(p[3].clone());
    let config = AttentionConfig { causal: true, bias, ..AttentionConfig::default() };
    let b = dot_product_attention(&p[0].cos(), &key, &p[2], &config).named("b");
    Ok(b.square().sum(..))
}

fn cross_entropy(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = p[0].tanh().named("a");
    let b = (a.matmul(&p[1]) * 3).named("b");
    Ok(nn::cross_entropy(&b, &Tensor::new([4i32, -3])))
}

fn conv_net(p: &Vec<Tensor>) -> Result<Tensor> {
    let same = ConvConfig { padding: Padding::Same, ..ConvConfig::default() };
    let strided = ConvConfig { strides: vec![2, 2], ..ConvConfig::default() };
    let a = (p[0].conv(&p[1], &same) + p[2].reshape([3, 1, 1])).relu().named("a");
    let b = p[0].conv(&p[1], &strided).named("b");
    Ok((a.mean([2, 3]) * b.sum([2, 3])).sum(..))
}

fn embedding(p: &Vec<Tensor>) -> Result<Tensor> {
    let tokens = Tensor::new([[0i32, 3, 1], [4, 4, 2]]);
    let targets = Tensor::new([[3i32, 1, 0], [4, 2, 2]]);
    let a = p[0].take(&tokens, 0).named("a");
    let logits = a.matmul(&p[1]).named("b");
    let picked = logits.log_softmax(-1).take_along_axis(&targets.expand_dims([-1]), -1);
    Ok(-picked.mean(..))
}

fn indexing(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = p[0].index((1..3, ..)).named("a");
    let row = p[0].dynamic_index(Tensor::from(2i32), 0);
    let b = a.dynamic_update_slice(&row.index(1..3).reshape([1, 2]), [0, 2]).named("b");
    Ok((b * row.expand_dims([0])).sin().sum(..))
}

fn shapes(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = Tensor::concatenate(&[p[0].clone(), p[0].flip(0)], 0).named("a");
    let b = (a.transpose([1, 0]).reshape([2, 6]).pad([(1, -1), (0, 2)], 0.5)).named("b");
    Ok((b.roll(1, 1).cos() * b.sum(..)).sum(..) + (p[1].broadcast_to([4, 3]) * a).sum(..))
}

fn reductions(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = p[0].max(1).named("a");
    let b = (p[0].prod(0) + p[0].min(0)).named("b");
    Ok(a.sum(..) * b.norm(..) + p[0].variance(0).sum(..) + p[0].std(..))
}

fn cumulative(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = p[0].cumsum(1).named("a");
    let b = (p[0].cumprod(0) + p[0].cumlogsumexp(1)).named("b");
    Ok((a * b + p[0].cummax(1)).sin().sum(..))
}

fn sorting(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = p[0].sort(-1).named("a");
    let b = p[0].top_k(2).0.named("b");
    Ok((a.square() * Tensor::arange(1i32..6).to_dtype(p[0].dtype()?)).sum(..) * b.sin().sum(..))
}

fn rnn(p: &Vec<Tensor>) -> Result<Tensor> {
    let step = |h: &Tensor, x: &Tensor| {
        let a = (h.matmul(&p[0]) + x.matmul(&p[1])).named("a");
        let next = a.tanh().named("b");
        (next.clone(), next.square())
    };
    let (last, all) = scan(step, &p[3], &p[2])?;
    Ok(last.sum(..) + all.sum(..))
}

fn scan_of_cond(p: &Vec<Tensor>) -> Result<Tensor> {
    let step = |h: &Tensor, x: &Tensor| {
        let positive = x.sum(..).gt(x.sum(..).zeros_like());
        let next = cond(
            &positive,
            |(h, x): &(Tensor, Tensor)| (h.sin() * x).named("a"),
            |(h, x): &(Tensor, Tensor)| (h + x.exp()).named("b"),
            &(h.clone(), x.clone()),
        )?;
        Ok::<_, remat::Error>((next.clone(), next))
    };
    let (last, all) = scan(step, &p[0], &p[1])?;
    Ok((last * all.sum(0)).sum(..))
}

fn scan_of_scan(p: &Vec<Tensor>) -> Result<Tensor> {
    let outer = |h: &Tensor, x: &Tensor| {
        let inner = |g: &Tensor, y: &Tensor| ((g * y).sin().named("a"), (g + y).named("b"));
        let (g, ys) = scan(inner, h, &Tensor::stack(&[x.clone(), x.cos()], 0))?;
        Ok::<_, remat::Error>((g + h, ys.sum(0)))
    };
    let (last, all) = scan(outer, &p[0], &p[1])?;
    Ok(last.square().sum(..) + all.sin().sum(..))
}

fn scan_of_checkpoint(p: &Vec<Tensor>) -> Result<Tensor> {
    let block = checkpoint(Policy::Dots, |h: &Tensor| {
        let a = h.matmul(&p[0]).sin().named("a");
        (a.matmul(&p[0]) + h).named("b").tanh()
    });
    let (last, ()) = scan(|h: &Tensor, _: &Tensor| (block(h), ()), &p[1], &Tensor::zeros([3], DType::F32))?;
    Ok(last.sum(..))
}

fn fori(p: &Vec<Tensor>) -> Result<Tensor> {
    let dtype = p[0].dtype()?;
    let body = |i: &Tensor, (x, n): &(Tensor, Tensor)| {
        let a = (x * i.to_dtype(dtype)).sin().named("a");
        ((a + x * 0.5).named("b"), n + 1)
    };
    let (x, n) = fori_loop(1, 4, body, &(p[0].clone(), Tensor::from(0i32)))?;
    Ok(x.sum(..) * n.to_dtype(dtype))
}

fn mapped(p: &Vec<Tensor>) -> Result<Tensor> {
    let rows = map(|row: &Tensor| row.softmax(-1).named("a").log().named("b"), &p[0])?;
    Ok((rows * &p[0]).sum(..))
}

fn branches(p: &Vec<Tensor>) -> Result<Tensor> {
    let index = (p[0].sum(..) * 3.0).to_dtype(DType::I32);
    let f = |x: &Tensor| x.sin().named("a");
    let g = |x: &Tensor| (x * 2.0).exp().named("b");
    let h = |x: &Tensor| x.clone();
    let y = switch(&index, &[&f, &g, &h], &p[0])?;
    Ok((y * &p[0]).sum(..))
}

fn jit_in_jit(p: &Vec<Tensor>) -> Result<Tensor> {
    let inner = jit(|x: &Tensor| (x.sin() * &p[1]).named("a"));
    let outer = jit(|x: &Tensor| Ok::<_, remat::Error>((inner.call(x.exp())? + x).named("b")));
    Ok((outer.call(p[0].clone())? * outer.call(p[1].clone())?).sum(..))
}

fn nested_checkpoints(p: &Vec<Tensor>) -> Result<Tensor> {
    let inner = checkpoint(Policy::names(["a"]), |x: &Tensor| p[0].matmul(x).sin().named("a").cos());
    let middle = checkpoint(Policy::Nothing, |x: &Tensor| inner(&inner(x).exp()).named("b"));
    let outer = checkpoint(Policy::Everything, |x: &Tensor| middle(&middle(x)) + x);
    Ok((outer(&p[1]) * &p[1]).sum(..))
}

fn own_jvp(p: &Vec<Tensor>) -> Result<Tensor> {
    let softplus = custom_jvp(
        |x: &Tensor| (x.exp() + 1.0).log(),
        |x: &Tensor, t: &Tensor| ((x.exp() + 1.0).log(), t * x.sigmoid().named("a")),
    );
    let b = (softplus(&p[0]) * &p[0]).named("b");
    Ok((softplus(&b.named("a")) + b).sum(..))
}

fn own_vjp(p: &Vec<Tensor>) -> Result<Tensor> {
    let f = custom_vjp(
        |x: &Tensor| x.sin().named("a"),
        |x: &Tensor| (x.sin().named("a"), x.cos().named("b")),
        |cos: &Tensor, ct: &Tensor| ct * cos,
    );
    let b = (f(&p[0]) * &p[0]).named("b");
    Ok((f(&b) + b).sum(..))
}

fn own_remat(p: &Vec<Tensor>) -> Result<Tensor> {
    let f = custom_remat(
        |x: &Tensor, _: Option<&Policy>| (x.sin().named("a") * x, ()),
        |x: &Tensor, (): &()| (x.sin().named("a"), x.cos().named("b") * x),
        |(): &(), (sin, cos): &(Tensor, Tensor), ct: &Tensor| ct * (sin + cos),
    );
    let g = custom_remat(
        |x: &Tensor, _: Option<&Policy>| (x.exp(), x.exp()),
        |_: &Tensor, _: &Tensor| (),
        |exp: &Tensor, (): &(), ct: &Tensor| ct * exp,
    );
    let b = g(&(f(&p[0]) * &p[0]).named("b"));
    Ok((f(&b) + b).sum(..))
}

fn counted_while(p: &Vec<Tensor>) -> Result<Tensor> {
    let (x, _) = while_loop(
        |(_, n): &(Tensor, Tensor)| n.lt(Tensor::from(4i32)),
        |(x, n): &(Tensor, Tensor)| ((x.sin().named("a") + x * &p[0]).named("b"), n + 1),
        &(p[0].clone(), Tensor::from(0i32)),
    )?;
    Ok(x.sum(..))
}

fn dropout(p: &Vec<Tensor>) -> Result<Tensor> {
    let [key, noise] = random::key(7).split();
    let keep = random::uniform(key, [3, 4], DType::F32, 0.0..1.0).lt(Tensor::full([3, 4], 0.6, DType::F32));
    let a = keep.select(&p[0] / 0.6, 0.0).named("a");
    let b = (&a + random::normal(noise, [3, 4], DType::F32).to_dtype(p[0].dtype()?)).named("b");
    Ok((b.sin() * a).sum(..))
}

fn captured_integers(p: &Vec<Tensor>) -> Result<Tensor> {
    let dtype = p[0].dtype()?;
    let (rows, weights) = (Tensor::new([2i32, 0, 1]), Tensor::new([3u8, 1, 2, 5]));
    let a = (p[0].take(&rows, 0) * weights.to_dtype(dtype)).named("a");
    let best = a.argmax(1).to_dtype(dtype).named("b");
    Ok((a.sin() * best.expand_dims([1])).sum(..) + a.sum(..))
}

fn half_precision(p: &Vec<Tensor>) -> Result<Tensor> {
    let dtype = p[0].dtype()?;
    let a = p[0].to_dtype(DType::Bf16).matmul(&p[1].to_dtype(DType::Bf16)).named("a");
    let b = a.to_dtype(DType::F32).tanh().named("b");
    Ok(b.to_dtype(dtype).sum(..))
}

fn barrier(p: &Vec<Tensor>) -> Result<Tensor> {
    let both = optimization_barrier(&[&p[0].sin().named("a"), &p[1]]);
    Ok((&both[0] * &both[1]).named("b").exp().sum(..))
}

fn unused_argument(p: &Vec<Tensor>) -> Result<Tensor> {
    let _unused = p[1].exp();
    Ok(p[0].sin().named("a").sin().named("b").exp().sum(..))
}

fn stopped(p: &Vec<Tensor>) -> Result<Tensor> {
    let a = p[0].exp().named("a");
    Ok((a.stop_gradient() * p[0].sin().named("b") + a).sum(..))
}
