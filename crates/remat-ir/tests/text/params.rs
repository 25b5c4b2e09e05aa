//! What the parser says about every parameter of every operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use remat_ir::{DType, Jaxpr, Literal, Op, Param, ParamMap, Policy};
use remat_testkit::all_samples;

use crate::program;

/// Equations with the operations that have jaxprs in their parameters, and with a parameter that no sample has.
const EQUATIONS: &str = "{ lambda ; . let
  a:f32[] = name[keep=planner name=x] 1.0:f32[]
  = jit[name=f jaxpr={ lambda ; . let in () }]
  = checkpoint[differentiated=False jaxpr={ lambda ; . let in () } policy=Dots]
  = scan[jaxpr={ lambda ; . let in () } length=2 num_carry=0 num_consts=0 reverse=False unroll=1]
  = while[
      cond_jaxpr={ lambda ; . let in (True:bool[],) } cond_nconsts=0 body_jaxpr={ lambda ; . let in () } body_nconsts=0
    ]
  = cond[branches=({ lambda ; . let in () })] 0:i32[]
  = custom_jvp[
      name=f call_jaxpr={ lambda ; . let in () } jvp_jaxpr={ lambda ; . let in () } num_consts=0
    ]
  = custom_vjp[
      name=f call_jaxpr={ lambda ; . let in () } fwd_jaxpr={ lambda ; . let in () } bwd_jaxpr={ lambda ; . let in () }
      num_consts=0 forward=g
    ]
  = custom_lin[name=f bwd_jaxpr={ lambda ; . let in () } num_res=0 forward=g]
  = shard_map[
      in_specs=() jaxpr={ lambda ; . let in () } mesh=((data, 2),) out_specs=() within=((data, 2), (model, 2))
    ]
  in () }";

/// Every operation by name, the sample with the most parameters of each.
fn operations() -> BTreeMap<&'static str, Op> {
    let mut all: BTreeMap<&str, Op> = BTreeMap::new();
    let more = program(EQUATIONS).eqns.into_iter().map(|eqn| eqn.op);
    for op in all_samples().into_iter().map(|sample| sample.subject().clone()).chain(more) {
        let known = all.entry(op.name()).or_insert_with(|| op.clone());
        if known.params().len() < op.params().len() {
            *known = op;
        }
    }
    all
}

/// One value of every type, and some that are malformed in part.
fn values() -> Vec<Param> {
    let [zero, word] = [Param::Int(0), Param::word("there")];
    let tuple = |items: &[&Param]| Param::Tuple(items.iter().map(|&item| item.clone()).collect());
    let pair = tuple(&[&zero, &zero]);
    let empty = tuple(&[]);
    vec![
        Param::None,
        Param::Bool(true),
        zero.clone(),
        Param::Int(-1),
        Param::Int(1 << 40),
        word.clone(),
        Param::DType(DType::F32),
        Param::Literal(Literal::from_f64(DType::F32, 1.5)),
        Param::List(vec![zero.clone()]),
        Param::Jaxpr(Arc::new(Jaxpr::default())),
        Param::Policy(Arc::new(Policy::Dots)),
        empty.clone(),
        tuple(&[&zero]),
        tuple(&[&Param::Int(-1)]),
        tuple(&[&Param::None]),
        tuple(&[&word]),
        tuple(&[&word, &zero]),
        tuple(&[&empty]),
        tuple(&[&pair]),
        tuple(&[&pair, &zero]),
        tuple(&[&pair, &pair]),
        tuple(&[&tuple(&[&pair, &pair]), &pair]),
        tuple(&[&pair, &pair, &pair]),
        tuple(&[&pair, &pair, &tuple(&[&zero])]),
        tuple(&[&tuple(&[&zero, &zero, &zero])]),
        tuple(&[&tuple(&[&zero, &zero, &Param::Int(-1)])]),
        tuple(&[&tuple(&[&zero, &Param::Int(-1)])]),
        tuple(&[&tuple(&[&word, &zero])]),
        tuple(&[&tuple(&[&word, &Param::Int(-1)])]),
        tuple(&[&tuple(&[&word, &word])]),
        tuple(&[&tuple(&[&word, &Param::None])]),
        tuple(&[&Param::Jaxpr(Arc::new(Jaxpr::default())), &zero]),
        tuple(&[&Param::word("query"), &Param::word("query")]),
        tuple(&[&Param::word("value"), &Param::word("query")]),
    ]
}

/// What the parser says of the operation with other parameters, or nothing.
fn message(name: &str, params: Vec<(Arc<str>, Param)>) -> Option<String> {
    Op::parse(name, &ParamMap::new(name, params)).err().map(|error| error.to_string())
}

/// For every operation with parameters a line with its name, then for each parameter, in the order in which it prints, the messages if it is missing or has
/// one of the [`values`].
fn listing() -> String {
    let mut text = String::new();
    for (name, op) in operations() {
        let params: Vec<(Arc<str>, Param)> = op.params().into_iter().map(|(name, p)| (name.into(), p)).collect();
        if !params.is_empty() {
            text += &format!("{name}\n");
        }
        for i in 0..params.len() {
            let mut without = params.clone();
            let param = without.remove(i).0;
            let wrong = values().into_iter().map(|value| {
                let mut params = params.clone();
                params[i].1 = value;
                params
            });
            let mut messages = Vec::new();
            for message in [without].into_iter().chain(wrong).filter_map(|params| message(name, params)) {
                let message =
                    message.strip_prefix(&format!("{name}: parameter `{param}` ")).unwrap_or(&message).to_string();
                if !messages.contains(&message) {
                    messages.push(message);
                }
            }
            text += &format!("    {param}: {}\n", messages.join("; "));
        }
    }
    text
}

#[test]
fn every_parameter_has_its_messages() {
    let path = format!("{}/tests/text/params.txt", crate::CRATE);
    let got = listing();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (got, expected) in got.lines().zip(expected.lines()) {
        assert_eq!(got, expected, "BLESS=1 rewrites {path}");
    }
    assert_eq!(got.lines().count(), expected.lines().count(), "BLESS=1 rewrites {path}");
}

#[test]
fn every_operation_is_read_back() {
    for (name, op) in operations() {
        let params: Vec<(Arc<str>, Param)> = op.params().into_iter().map(|(name, p)| (name.into(), p)).collect();
        assert_eq!(Op::parse(name, &ParamMap::new(name, params.clone())).unwrap(), op);
        let other = format!("{name}_");
        assert_eq!(message(&other, params.clone()).unwrap(), format!("{other}: there is no operation of this name"));
        let more = params.into_iter().chain([("more".into(), Param::None)]).collect();
        assert_eq!(message(name, more).unwrap(), format!("{name}: parameter `more` is unknown"));
    }
}
