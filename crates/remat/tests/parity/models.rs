//! A transformer block under six policies, and what plain differentiation keeps of common operations.

use remat::report::{SavedKind, saved_residuals};
use remat::{DType, Policy, Tensor, Tree, checkpoint, einsum};

use super::support::{Case, Run, assert_close, run};

pub(crate) const CASES: &[&str] = &["transformer_block", "default_ad_residuals_of_common_ops"];

/// The parameters in the order of the recorded gradients.
#[derive(Clone, Tree)]
struct Block {
    k: Tensor,
    o: Tensor,
    q: Tensor,
    v: Tensor,
    w1: Tensor,
    w2: Tensor,
}

const HEADS: usize = 2;

fn norm(x: &Tensor) -> Tensor {
    let mean = x.mean(remat::argument::keep([-1]));
    let centred = x - mean;
    let variance = centred.square().mean(remat::argument::keep([-1]));
    &centred * (variance + 1e-5).rsqrt()
}

fn block((p, x): &(Block, Tensor)) -> Tensor {
    let [batch, length, width] = x.dims().unwrap();
    let heads = |y: Tensor| y.reshape([batch, length, HEADS, width / HEADS]);
    let h = norm(x);
    let (q, k, v) = (heads(h.matmul(&p.q)), heads(h.matmul(&p.k)), heads(h.matmul(&p.v)));
    let scores = einsum("bqhd,bkhd->bhqk", &[&q, &k]) / ((width / HEADS) as f32).sqrt();
    let mask = Tensor::ones([length, length], DType::Bool).tril(0);
    let scores = mask.broadcast_to(scores.shape().unwrap().to_vec()).select(&scores, -1e9);
    let weights = (&scores - scores.max(remat::argument::keep([-1])).stop_gradient()).exp();
    let weights = &weights / weights.sum(remat::argument::keep([-1]));
    let attention = einsum("bhqk,bkhd->bqhd", &[&weights, &v]).reshape([batch, length, width]);
    let x = x + attention.matmul(&p.o).named("attn_out");
    let hidden = norm(&x).matmul(&p.w1).named("ffn_pre").tanh().named("ffn_act");
    &x + hidden.matmul(&p.w2)
}

fn loss(case: Case, policy: Option<Policy>) -> Run {
    let parameter = |name| case.input(name);
    let [k, o, q, v, w1, w2] = ["k", "o", "q", "v", "w1", "w2"].map(parameter);
    let args = (Block { k, o, q, v, w1, w2 }, case.input("x"));
    match policy {
        None => run(|a: &(Block, Tensor)| block(a).powi(2).sum(..), &args),
        Some(policy) => {
            let block = checkpoint(policy, block);
            run(|a: &(Block, Tensor)| block(a).powi(2).sum(..), &args)
        }
    }
}

fn kind_and_name(kind: &SavedKind) -> String {
    match kind {
        SavedKind::Argument(path) => {
            format!("argument {}", if path == "1" { "x" } else { path.trim_start_matches("0.") })
        }
        SavedKind::Named(name) => format!("named {name}"),
        SavedKind::Output(operation) => format!("output {operation}"),
        SavedKind::Constant | SavedKind::Literal => kind.to_string(),
    }
}

/// Aval, kind and name of a residual that was recorded as a list.
fn recorded_kind(residual: &serde_json::Value) -> (String, String) {
    let text = |i: usize| residual[i].as_str().unwrap();
    let name = text(2).trim_start_matches("p['").trim_end_matches("']");
    (text(0).to_string(), format!("{} {name}", text(1)))
}

#[test]
fn transformer_block() {
    let case = Case::of("transformer_block");
    let policies = [
        ("no_checkpoint", None),
        ("nothing", Some(Policy::Nothing)),
        ("dots", Some(Policy::Dots)),
        ("dots_no_batch", Some(Policy::DotsWithNoBatchDims)),
        ("names_attn_out_ffn_pre", Some(Policy::names(["attn_out", "ffn_pre"]))),
        ("everything", Some(Policy::Everything)),
    ];
    let mut first: Option<Run> = None;
    for (key, policy) in policies {
        let recorded = &case.expected()[key];
        let number = |field: &str| recorded[field].as_u64().unwrap();
        let is_exact = !matches!(policy, None | Some(Policy::Everything));
        let run = loss(case, policy);
        assert_close(&run.outs[0], &case.expected()["value"][0]);
        for (grad, expected) in run.grads.iter().zip(case.expected()["grads"].as_array().unwrap()) {
            assert!(grad.allclose(&super::support::tensor(expected), 1e-5, 2e-5).unwrap(), "{key}");
        }
        let (total, bytes) = (run.residuals.total_bytes() as u64, run.residuals.intermediate_bytes() as u64);
        let count = run.residuals.intermediates().count() as u64;
        println!("{key}\n{}", run.residuals);
        assert_eq!(run.forward.get("dot_general"), number("dots_fwd"), "{key}");
        if is_exact {
            assert_eq!(
                (bytes, count, total),
                (number("intermediate_bytes"), number("n_intermediates"), number("total_bytes")),
                "{key}\n{}",
                run.residuals
            );
            let kinds: Vec<(String, String)> =
                run.residuals.iter().map(|r| (r.aval.to_string(), kind_and_name(&r.kind))).collect();
            let theirs: Vec<(String, String)> =
                recorded["residuals"].as_array().unwrap().iter().map(recorded_kind).collect();
            assert_eq!(kinds, theirs, "{key}");
        } else {
            assert!(
                bytes <= number("intermediate_bytes") && total <= number("total_bytes"),
                "{key}\n{}",
                run.residuals
            );
        }
        for (operation, field) in [("dot_general", "dots_bwd"), ("exp", "exp_bwd"), ("tanh", "tanh_bwd")] {
            assert_eq!(run.backward.get(operation), number(field), "{operation} under {key}");
        }
        // Bit for bit, where JAX says the greatest difference is 0.
        if let Some(first) = &first {
            for (grad, expected) in run.grads.iter().zip(&first.grads) {
                assert_eq!(grad.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap(), "{key}");
            }
        } else {
            first = Some(run);
        }
    }
}

#[test]
fn default_ad_residuals_of_common_ops() {
    let case = Case::of("default_ad_residuals_of_common_ops");
    let x = case.input("x");
    let unary: [(&str, fn(&Tensor) -> Tensor); 10] = [
        ("tanh", |x| x.tanh()),
        ("sigmoid", |x| x.sigmoid()),
        ("softmax", |x| x.softmax(-1)),
        ("gelu", |x| x.gelu()),
        ("relu(jnp.maximum)*2", |x| x.maximum(0.0) * 2.0),
        ("x**2", |x| x.powi(2)),
        ("layernorm", |x| x.layer_norm(-1, 1e-5, None, None)),
        ("logsumexp", |x| x.logsumexp(..)),
        ("exp", |x| x.exp()),
        ("sqrt", |x| x.sqrt()),
    ];
    let mut covered: Vec<&str> = unary.iter().map(|(name, _)| *name).collect();
    #[track_caller]
    fn check<A: Tree>(case: Case, key: &str, f: impl Fn(&A) -> Tensor, x: &A) {
        let residuals = saved_residuals(f, x).unwrap();
        let theirs = case.expected()[key]["bytes"].as_u64().unwrap();
        assert!(residuals.total_bytes() as u64 <= theirs, "{key}, {theirs} B in JAX\n{residuals}");
    }
    for (key, f) in unary {
        check(case, key, f, &x);
    }
    check(case, "x/y", |(x, y): &(Tensor, Tensor)| x / y, &(x.clone(), x.clone()));
    let (w, v) = (Tensor::ones([5, 4], DType::F32), Tensor::ones([5], DType::F32));
    check(case, "W.T@x", |(w, x): &(Tensor, Tensor)| w.t().matmul(x), &(w, v));
    let indices = Tensor::new([0i32, 2, 1]);
    let table = Tensor::ones([4, 3], DType::F32);
    check(case, "embedding", |table: &Tensor| table.take(&indices, 0), &table);
    covered.extend(["x/y", "W.T@x", "embedding"]);
    assert_eq!(covered.len(), case.expected().as_object().unwrap().len());
}
