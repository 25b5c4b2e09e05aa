//! Reading the recorded cases, running ours, comparing.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use remat::ir::{Call, Jaxpr, Op};
use remat::report::{Residuals, SavedKind, SavedResidual, fwd_bwd, saved_residuals};
use remat::tree::{Output, leaves};
use remat::{Tensor, Tree, tree, vjp};
use serde_json::Value;

static FILE: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../data/parity/cases.json")).expect("the file is JSON"));

fn cases() -> &'static [Value] {
    FILE["cases"].as_array().expect("a list of cases")
}

pub(crate) fn case_names() -> Vec<String> {
    cases().iter().map(|c| c["name"].as_str().unwrap().to_string()).collect()
}

/// One recorded case.
#[derive(Clone, Copy)]
pub(crate) struct Case(&'static Value);

impl Case {
    pub(crate) fn of(name: &str) -> Case {
        Case(cases().iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no case {name}")))
    }

    pub(crate) fn input(self, name: &str) -> Tensor {
        tensor(&self.0["inputs"][name])
    }

    pub(crate) fn expected(self) -> &'static Value {
        &self.0["expected"]
    }
}

/// A recorded array.
pub(crate) fn tensor(value: &Value) -> Tensor {
    assert_eq!(value["dtype"], "float32");
    let shape: Vec<usize> = value["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect();
    let mut elements = Vec::new();
    flatten(&value["data"], &mut elements);
    Tensor::from_vec(elements, shape)
}

fn flatten(value: &Value, elements: &mut Vec<f32>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| flatten(item, elements)),
        number => elements.push(number.as_f64().unwrap() as f32),
    }
}

/// Equal to JAX's value within the difference that the order of additions makes.
#[track_caller]
pub(crate) fn assert_close(ours: &Tensor, recorded: &Value) {
    let expected = tensor(recorded);
    assert_eq!(ours.shape().unwrap(), expected.shape().unwrap());
    assert!(ours.allclose(&expected, 1e-5, 2e-6).unwrap(), "ours:\n{ours}\nJAX's:\n{expected}");
}

#[track_caller]
pub(crate) fn assert_all_close(ours: &[Tensor], recorded: &Value) {
    let recorded = recorded.as_array().unwrap();
    assert_eq!(ours.len(), recorded.len());
    for (ours, recorded) in ours.iter().zip(recorded) {
        assert_close(ours, recorded);
    }
}

/// How many equations of each operation there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// Counts recursively, each body once; of functions with derivatives of their own only the function.
    pub(crate) fn of(jaxpr: &Jaxpr) -> Counts {
        let mut counts = Counts::default();
        counts.add(jaxpr);
        counts
    }

    fn add(&mut self, jaxpr: &Jaxpr) {
        for eqn in &jaxpr.eqns {
            *self.0.entry(eqn.op.name()).or_default() += 1;
            match &eqn.op {
                Op::Call(Call::CustomJvp(op)) => self.add(&op.call),
                Op::Call(Call::CustomVjp(op)) => self.add(&op.call),
                op => op.bodies().into_iter().for_each(|body| self.add(body)),
            }
        }
    }

    pub(crate) fn get(&self, operation: &str) -> u64 {
        self.0.get(operation).copied().unwrap_or(0)
    }

    /// Whether the numbers of these operations are those that were recorded.
    #[track_caller]
    pub(crate) fn assert_equal(&self, recorded: &Value, operations: &[&str]) {
        for operation in operations {
            let theirs = recorded[jax_name(operation)].as_u64().unwrap_or(0);
            assert_eq!(self.get(operation), theirs, "{operation} in {self:?}, in JAX {recorded}");
        }
    }
}

fn jax_name(operation: &str) -> &str {
    if operation == "checkpoint" { "remat2" } else { operation }
}

/// What a function gives, keeps and computes under `vjp`.
pub(crate) struct Run {
    pub(crate) residuals: Residuals,
    pub(crate) forward: Counts,
    pub(crate) backward: Counts,
    pub(crate) backward_jaxpr: Jaxpr,
    pub(crate) outs: Vec<Tensor>,
    pub(crate) grads: Vec<Tensor>,
}

/// Runs `vjp` with a cotangent of ones.
pub(crate) fn run<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Run {
    let residuals = saved_residuals(&f, x).unwrap();
    let programs = fwd_bwd(&f, x).unwrap();
    assert_eq!(programs.num_residuals, residuals.iter().filter(|r| r.kind != SavedKind::Literal).count());
    let (out, pullback) = vjp(&f, x).unwrap();
    assert_eq!(pullback.residuals().len(), residuals.len());
    let grads = pullback.call(&tree::map(&out, |t| t.ones_like())).unwrap();
    let list = |tree: Vec<(remat::tree::Path, Tensor)>| tree.into_iter().map(|(_, t)| t).collect();
    Run {
        residuals,
        forward: Counts::of(&programs.forward),
        backward: Counts::of(&programs.backward),
        backward_jaxpr: programs.backward,
        outs: list(leaves(&out)),
        grads: list(leaves(&grads)),
    }
}

/// The operations that cases count.
pub(crate) const COUNTED: &[&str] = &["sin", "cos", "dot_general", "checkpoint"];

impl Run {
    /// Values, gradients, the residual list and the counts of what is expensive, as recorded.
    #[track_caller]
    pub(crate) fn assert_as_in_jax(&self, recorded: &Value) {
        self.assert_values(recorded);
        assert_residuals(&self.residuals, &recorded["residuals"]);
        self.forward.assert_equal(&recorded["fwd_counts"], COUNTED);
        self.backward.assert_equal(&recorded["bwd_counts"], COUNTED);
        assert_eq!(Some(self.top_level_checkpoints()), recorded["num_toplevel_remat_eqns_in_bwd"].as_u64());
    }

    #[track_caller]
    pub(crate) fn assert_values(&self, recorded: &Value) {
        assert_all_close(&self.outs, &recorded["primal_out"]);
        assert_all_close(&self.grads, &recorded["grads_with_ones_cotangent"]);
    }

    pub(crate) fn top_level_checkpoints(&self) -> u64 {
        self.backward_jaxpr.eqns.iter().filter(|e| matches!(e.op, Op::Call(Call::Checkpoint(_)))).count() as u64
    }
}

/// The same residuals in the same order. What a value inside a loop, branch, call or nested checkpoint is, JAX does not
/// know: there the aval has to agree.
#[track_caller]
pub(crate) fn assert_residuals(ours: &Residuals, recorded: &Value) {
    // JAX keeps scalar constants of the program, too; ours are in the program itself.
    let recorded: Vec<&Value> = recorded.as_array().unwrap().iter().filter(|r| r["kind"] != "literal").collect();
    assert_eq!(ours.len(), recorded.len(), "ours:\n{ours}\nJAX's: {recorded:#?}");
    for (residual, recorded) in ours.iter().zip(recorded) {
        let same = residual.aval.to_string() == recorded["aval"].as_str().unwrap() && is_kind(residual, recorded);
        assert!(same, "{residual}, in JAX {recorded}");
    }
}

/// Not more residuals, and not more bytes, than were recorded.
#[track_caller]
pub(crate) fn assert_not_longer(ours: &Residuals, recorded: &Value) {
    let recorded = recorded.as_array().unwrap();
    let bytes: usize = recorded.iter().map(|r| 4 * elements(r)).sum();
    assert!(ours.len() <= recorded.len() && ours.total_bytes() <= bytes, "ours:\n{ours}\nJAX's: {recorded:#?}");
}

fn elements(recorded: &Value) -> usize {
    recorded["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).product()
}

fn is_kind(residual: &SavedResidual, recorded: &Value) -> bool {
    let theirs = |key: &str| recorded[key].as_str().unwrap_or_default();
    match (&residual.kind, theirs("kind")) {
        (SavedKind::Constant, "constant") => true,
        // JAX prints `params[0]` and `k['b']` for our `params.0` and `k.b`, and gives the parameter's name to a tensor.
        (SavedKind::Argument(path), "argument") => {
            let theirs = theirs("arg").replace("['", ".").replace("']", "").replace('[', ".").replace(']', "");
            path.is_empty() || *path == theirs.to_lowercase()
        }
        (SavedKind::Named(name), "named") => **name == *theirs("name"),
        (SavedKind::Output(operation), "output") if *operation == theirs("prim") => true,
        (SavedKind::Named(_) | SavedKind::Output(_), "jit_output") => !residual.through.is_empty(),
        (SavedKind::Named(_) | SavedKind::Output(_), "output") => match theirs("prim") {
            "scan" | "cond" | "closed_call" | "remat2" => !residual.through.is_empty(),
            "device_put" => residual.aval.memory == remat::ir::MemorySpace::Host,
            _ => false,
        },
        _ => false,
    }
}
