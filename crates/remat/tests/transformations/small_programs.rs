//! The transformations on small programs: what each makes of them, written down in `filetests`.
//!
//! Masks are digits, one for each input or output: `nonzero=101`.

use std::fmt::Write as _;

use remat::ir::Jaxpr;
use remat::testing::call;
use remat::transform::{self, PartialEval, ResidualSource, Saving};
use remat::{Error, ErrorKind, Policy, Result, Tensor, grad, make_jaxpr};
use remat_testkit::{Args, FileTests};

#[test]
fn filetests() {
    let tests = FileTests::new()
        .command("jvp", |jaxpr, args| {
            let none = vec![false; jaxpr.outs.len()];
            let nonzero = mask(args, "nonzero", &floats(&jaxpr.in_avals()))?;
            print(&transform::jvp(jaxpr, &nonzero, &mask(args, "instantiate", &none)?)?.jaxpr)
        })
        .command("linearize", |jaxpr, args| {
            let nonzero = mask(args, "nonzero", &floats(&jaxpr.in_avals()))?;
            let both = transform::jvp(jaxpr, &nonzero, &vec![false; jaxpr.outs.len()])?.jaxpr;
            let unknown_ins: Vec<bool> = (0..both.ins.len()).map(|i| i >= jaxpr.ins.len()).collect();
            let unknown_outs: Vec<bool> = (0..both.outs.len()).map(|i| i >= jaxpr.outs.len()).collect();
            print_parts(&transform::partial_eval(&both, &unknown_ins, &unknown_outs, Saving::Residuals)?)
        })
        .command("partial_eval", |jaxpr, args| {
            let unknown = mask(args, "unknown", &[])?;
            let none = vec![false; jaxpr.outs.len()];
            let policy = policy(args)?;
            let saving = policy.as_ref().map_or(Saving::Residuals, Saving::Policy);
            print_parts(&transform::partial_eval(jaxpr, &unknown, &none, saving)?)
        })
        .command("transpose", |jaxpr, args| {
            let linear = mask(args, "linear", &[])?;
            let cotangents = mask(args, "cotangents", &vec![true; jaxpr.outs.len()])?;
            print(&transform::transpose(jaxpr, &linear, &cotangents, args.has("instantiate"))?.jaxpr)
        })
        .command("vmap", |jaxpr, args| {
            let batched = mask(args, "batched", &vec![true; jaxpr.ins.len()])?;
            let force = mask(args, "force", &vec![false; jaxpr.outs.len()])?;
            print(&transform::vmap(jaxpr, args.get("size")?.unwrap_or(3), &batched, &force)?.jaxpr)
        })
        .command("dce", |jaxpr, args| {
            let used = mask(args, "used", &vec![true; jaxpr.outs.len()])?;
            print(&transform::dce(jaxpr, &used, &vec![false; jaxpr.ins.len()])?.jaxpr)
        })
        // The first result is differentiated, as often as `order` says; its gradient is summed for the next time.
        .command("grad", |jaxpr, args| {
            let order = args.get("order")?.unwrap_or(1);
            let mut program = jaxpr.clone();
            for i in 0..order {
                program = gradient(&program, i > 0)?;
            }
            print(&program)
        });
    if let Err(report) = tests.run(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transformations/filetests")) {
        panic!("{report}");
    }
}

/// The program of the gradient of the first result, of its sum if it is to be reduced.
fn gradient(jaxpr: &Jaxpr, reduce: bool) -> Result<Jaxpr> {
    let zeros = |aval: &remat::ir::Aval| Tensor::zeros(aval.shape.to_vec(), aval.dtype);
    let args: Vec<Tensor> = jaxpr.in_avals().iter().map(zeros).collect();
    let f = |args: &Vec<Tensor>| {
        let out = call(jaxpr, args)?.swap_remove(0);
        Ok::<Tensor, Error>(if reduce { out.sum(..) } else { out })
    };
    Ok((*make_jaxpr(grad(f))(&args)?.jaxpr).clone())
}

/// The program as text, which reads back as the same program.
fn print(jaxpr: &Jaxpr) -> Result<String> {
    remat_ir::check(jaxpr)?;
    let text = jaxpr.to_string();
    assert_eq!(Jaxpr::parse(&text)?.to_string(), text, "what prints also parses");
    Ok(text)
}

fn print_parts(parts: &PartialEval) -> Result<String> {
    let mut text = format!("known: {}\nresiduals:", print(&parts.known)?);
    for residual in &parts.residuals {
        let _ = match residual {
            ResidualSource::Input(i) => write!(text, " input {i}"),
            ResidualSource::Out(i) => write!(text, " output {i}"),
        };
    }
    Ok(format!("{text}\nstaged: {}", print(&parts.staged)?))
}

fn floats(avals: &[remat::ir::Aval]) -> Vec<bool> {
    avals.iter().map(|a| a.dtype.is_float()).collect()
}

/// The argument `name=0101`, or what it is if it is not given.
fn mask(args: Args<'_>, name: &str, default: &[bool]) -> Result<Vec<bool>> {
    let digits: Option<String> = args.get(name)?;
    Ok(digits.map_or(default.to_vec(), |digits| digits.chars().map(|c| c == '1').collect()))
}

/// The argument `policy=Names(a,b)`, in the form that programs print, without blanks.
fn policy(args: Args<'_>) -> Result<Option<Policy>> {
    let Some(text) = args.get::<String>("policy")? else { return Ok(None) };
    let program = format!(
        "{{ lambda ; . let = checkpoint[differentiated=False jaxpr={{ lambda ; . let in () }} policy={text}] in () }}"
    );
    match &Jaxpr::parse(&program)?.eqns[0].op {
        remat::ir::Op::Call(remat::ir::Call::Checkpoint(op)) => Ok(Some((*op.policy).clone())),
        op => Err(Error::new(ErrorKind::Argument, "run", format!("`{}` has no policy", op.name()))),
    }
}
