//! Policies with a strength: what a planner may change, and what not.

use std::collections::HashSet;

use remat::ir::{Jaxpr, MemorySpace};
use remat::report::{fwd_bwd, policy_decisions, saved_residuals};
use remat::{DType, Error, ErrorKind, Policy, Result, Tensor, checkpoint, grad, jit, make_jaxpr, plan, scan};

/// Numbers from -0.5 to 0.5.
fn data(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let size: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 31 + 3) % 1009) as f64 / 1009.0 - 0.5;
    Tensor::from_vec((0..size).map(number).collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

fn must(names: &[&str]) -> Policy {
    Policy::must(Policy::names(names.iter().copied()))
}

fn prefer(names: &[&str]) -> Policy {
    Policy::prefer(Policy::names(names.iter().copied()))
}

/// Three products of 192 bytes each, which the backward pass needs.
fn products(x: &Tensor, w: &Tensor) -> Tensor {
    let square = |h: Tensor| &h * &h;
    let first = square(x.matmul(w).named("a"));
    let second = square(first.matmul(w).named("b"));
    square(second.matmul(w).named("c")).sum(..)
}

/// What the block keeps under a policy, by kind.
fn kept(policy: Policy) -> Result<Vec<String>> {
    let (x, w) = (data(DType::F64, &[4, 6], 1), data(DType::F64, &[6, 6], 2));
    let f = checkpoint(policy, |x: &Tensor| products(x, &w));
    let residuals = saved_residuals(|x: &Tensor| f(x), &x)?;
    Ok(residuals.intermediates().map(|r| r.kind.to_string().replace("named ", "").replace('\'', "")).collect())
}

const ONE: usize = 192;

#[test]
fn a_must_is_kept_within_every_budget_and_counts() -> Result<()> {
    assert_ne!(kept(Policy::budget(ONE))?, ["c"], "a budget alone keeps another one");
    assert_eq!(kept(must(&["c"]).or(Policy::budget(ONE)))?, ["c"]);
    assert_eq!(kept(Policy::First(vec![must(&["c"]), Policy::budget(2 * ONE)]))?.len(), 2);
    for budget in 1..6 {
        for policy in [must(&["c"]).or(Policy::budget(budget * ONE)), Policy::budget(budget * ONE).or(must(&["c"]))] {
            let kept = kept(policy.clone())?;
            assert!(kept.contains(&"c".to_string()) && kept.len() <= budget, "{policy}: {kept:?}");
        }
    }
    Ok(())
}

#[test]
fn a_budget_that_contradicts_a_must_is_an_error_with_both() -> Result<()> {
    let message = kept(must(&["a", "c"]).or(Policy::budget(ONE))).unwrap_err().to_string();
    let expected = "checkpoint: what Must(Names(a, c)) saves takes 384 B, which is more than Budget(192) allows\n  at ";
    assert!(message.starts_with(expected) && message.contains("strengths.rs"), "{message}");
    // Also for a policy that is text, and for a callable.
    let text = kept("first(must(dots), prefer(names(a)), budget(0.5KiB))".parse()?).unwrap_err();
    assert_eq!(text.message(), "what Must(Dots) saves takes 576 B, which is more than Budget(512) allows");
    let all = Policy::custom("all", |_| Some(remat::ir::Decision::Save));
    let callable = kept(Policy::must(all).or(Policy::budget(8))).unwrap_err();
    assert!(callable.message().starts_with("what Must(Custom(all)) saves takes"), "{}", callable.message());
    Ok(())
}

#[test]
fn what_must_be_computed_again_is() -> Result<()> {
    let not_c = Policy::must(Policy::custom("not c", |candidate| {
        (candidate.name() == Some("c")).then_some(remat::ir::Decision::Recompute)
    }));
    for budget in 0..8 {
        let kept = kept(not_c.clone().or(Policy::budget(budget * ONE)))?;
        assert!(!kept.contains(&"c".to_string()) && kept.len() <= budget, "{budget}: {kept:?}");
    }
    assert_eq!(kept(not_c.or(Policy::budget(1 << 20)))?, ["a", "b"]);
    Ok(())
}

#[test]
fn what_must_be_offloaded_is_and_does_not_count() -> Result<()> {
    let (x, w) = (data(DType::F64, &[4, 6], 1), data(DType::F64, &[6, 6], 2));
    let away = Policy::must(Policy::save_and_offload_names([] as [&str; 0], ["c"]));
    for budget in [0, ONE, 1 << 20] {
        let f = checkpoint(away.clone().or(Policy::budget(budget)), |x: &Tensor| products(x, &w));
        let residuals = saved_residuals(|x: &Tensor| f(x), &x)?;
        let away: Vec<_> = residuals.intermediates().filter(|r| r.aval.memory == MemorySpace::Host).collect();
        assert_eq!(away.len(), 1, "{budget}: {residuals}");
        assert_eq!(away[0].kind.to_string(), "named 'c'");
        assert!(residuals.intermediate_bytes() - ONE <= budget);
    }
    Ok(())
}

#[test]
fn what_is_preferred_comes_first_and_may_be_dropped() -> Result<()> {
    let within = |n: usize| kept(prefer(&["b", "c"]).or(Policy::budget(n * ONE)));
    assert_eq!(within(0)?, [""; 0]);
    assert!(["b", "c"].contains(&within(1)?[0].as_str()), "{:?}", within(1)?);
    assert_eq!(within(2)?, ["b", "c"]);
    assert_eq!(within(3)?, ["a", "b", "c"]);
    assert_eq!(kept(prefer(&["b"]).or(Policy::budget(1 << 20)))?, kept(Policy::Everything)?);
    // With both, the must comes first.
    assert_eq!(kept(Policy::First(vec![prefer(&["a"]), must(&["c"]), Policy::budget(ONE)]))?, ["c"]);
    assert_eq!(kept(Policy::First(vec![prefer(&["b"]), must(&["c"]), Policy::budget(2 * ONE)]))?, ["b", "c"]);
    Ok(())
}

#[test]
fn without_a_budget_a_strength_decides_as_its_policy() -> Result<()> {
    for policy in [Policy::Nothing, Policy::Dots, Policy::names(["b"]), Policy::anything_but(["a"]), Policy::Everything]
    {
        let expected = kept(policy.clone())?;
        assert_eq!(kept(Policy::prefer(policy.clone()))?, expected, "{policy}");
        if policy != Policy::Everything {
            assert_eq!(kept(Policy::must(policy.clone()))?, expected, "{policy}");
        }
        assert_eq!(kept(Policy::must(policy.clone()).not())?, kept(policy.clone().not())?, "{policy}");
        assert_eq!(
            kept(Policy::must(policy.clone()).or(Policy::names(["c"])))?,
            kept(policy.or(Policy::names(["c"])))?
        );
    }
    Ok(())
}

#[test]
fn no_strength_changes_a_bit() -> Result<()> {
    let xs = (data(DType::F32, &[4, 6], 1), data(DType::F32, &[5, 6, 6], 2));
    let block = |(x, w): &(Tensor, Tensor)| {
        let step = |c: &Tensor, w: &Tensor| (products_of(c, w), c.sin().named("d").exp());
        let (last, all) = scan(step, x, w)?;
        Ok::<_, Error>((last.square().sum(..) + all.sum(..)).tanh())
    };
    let bits = |(x, w): (Tensor, Tensor)| [x, w].map(|t| t.to_vec::<f32>().unwrap());
    let expected = bits(jit(grad(block)).call(xs.clone())?);
    for strong in [must(&["a"]), Policy::must(Policy::Dots), prefer(&["a", "d"]), Policy::must(Policy::Everything)] {
        for policy in
            [strong.clone(), strong.clone().or(Policy::budget(2000)), strong.clone().or(Policy::budget(1 << 20))]
        {
            let f = checkpoint(policy.clone(), block);
            let found = jit(grad(|xs: &(Tensor, Tensor)| f(xs))).call(xs.clone());
            if let Err(error) = &found {
                assert!(error.message().contains("is more than Budget(2000) allows"), "{error}");
                continue;
            }
            assert_eq!(bits(found?), expected, "{policy}");
            assert_eq!(bits(grad(|xs: &(Tensor, Tensor)| f(xs))(&xs)?), expected, "{policy}, op by op");
        }
    }
    Ok(())
}

fn products_of(c: &Tensor, w: &Tensor) -> Tensor {
    c.matmul(w).named("a").sin().matmul(w).named("b").tanh()
}

#[test]
fn values_that_must_be_kept_are_marked_for_engines() -> Result<()> {
    let (x, w) = (data(DType::F32, &[4, 6], 1), data(DType::F32, &[6, 6], 2));
    let forward = |policy: Policy| {
        let f = checkpoint(policy, |x: &Tensor| products(x, &w));
        fwd_bwd(|x: &Tensor| f(x), &x).map(|programs| programs.forward.to_string())
    };
    assert_eq!(forward(must(&["a"]))?.matches("name[keep=planner name=a]").count(), 1);
    assert_eq!(forward(Policy::must(Policy::Dots))?.matches("name[keep=planner name=\"\"]").count(), 3);
    assert!(!forward(prefer(&["a"]))?.contains("keep="));
    assert!(!forward(Policy::names(["a"]))?.contains("keep="));
    let text = forward(must(&["a"]).or(Policy::budget(1 << 20)))?;
    assert_eq!(text.matches("keep=planner").count(), 1, "{text}");
    assert_eq!(text.parse::<Jaxpr>()?.to_string(), text);
    let wrong = text.replace("keep=planner", "keep=me").parse::<Jaxpr>().unwrap_err().to_string();
    assert!(wrong.contains("is neither planner nor everyone"), "{wrong}");
    Ok(())
}

#[test]
fn an_engine_with_a_limit_does_not_compute_them_again() -> Result<()> {
    let w = Tensor::eye(64, DType::F32);
    let layer = |x: Tensor| x.matmul(&w).named("hidden").tanh().matmul(&w).named("out").tanh();
    let names = |policy: Policy| -> Result<(HashSet<String>, usize)> {
        let loss = |x: &Tensor| {
            let f = checkpoint(policy.clone(), |x: &Tensor| (0..6).fold(x.clone(), |x, _| layer(x)).sum(..));
            f(x)
        };
        let free = plan(grad(loss), Tensor::ones([256, 64], DType::F32))?;
        let tight = free.for_bytes(free.peak() * 75 / 100)?;
        let names = tight.recomputed().iter().filter_map(|again| again.value.name.as_ref().map(|n| n.to_string()));
        Ok((names.collect(), tight.recomputed().len()))
    };
    let saved = Policy::names(["hidden", "out"]);
    assert!(names(saved.clone())?.0.contains("hidden"), "without a strength the engine decides");
    let strict = Policy::First(vec![must(&["hidden"]), saved]);
    let (found, _) = names(strict)?;
    assert!(!found.contains("hidden") && found.contains("out"), "{found:?}");
    // Where nothing may be computed again, the error says what it would take to fit.
    let error = names(must(&["hidden", "out"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory);
    let told = [
        "values that must be kept take ",
        "a plan may compute again what a policy saves by `Policy::prefer`, but nothing that a `custom_remat` passes",
        "'hidden' (must be kept)",
    ];
    assert!(told.iter().all(|told| error.message().contains(told)), "{error}");
    Ok(())
}

#[test]
fn the_error_of_a_limit_tells_what_scanned_layers_must_keep() -> Result<()> {
    let layers = Tensor::eye(64, DType::F32).broadcast_to([6, 64, 64]);
    let error = |policy: Policy| -> Result<Error> {
        let layer = |x: &Tensor, w: &Tensor| (x.matmul(w).named("hidden").tanh().matmul(w).named("out").tanh(), ());
        let loss = |x: &Tensor| {
            let f = checkpoint(policy.clone(), |x: &Tensor| Ok::<_, Error>(scan(layer, x, &layers)?.0.sum(..)));
            f(x)
        };
        let free = plan(grad(loss), Tensor::ones([256, 64], DType::F32))?;
        Ok(free.for_bytes(free.peak() / 4).err().unwrap())
    };
    let of_both = error(must(&["hidden", "out"]))?;
    // What both names of six layers take.
    assert!(of_both.message().contains("values that must be kept take 768.00 KiB"), "{of_both}");
    assert!(of_both.message().contains("  2 x 384.00 KiB  f32[6,256,64]  scan (must be kept) "), "{of_both}");
    let of_none = error(prefer(&["hidden", "out"]))?;
    assert!(!of_none.message().contains("must be kept"), "{of_none}");
    Ok(())
}

#[test]
fn decisions_say_why() -> Result<()> {
    let (x, w) = (data(DType::F64, &[4, 6], 1), data(DType::F64, &[6, 6], 2));
    let lines = |policy: Policy| -> Result<Vec<String>> {
        let f = checkpoint(policy, |x: &Tensor| products(x, &w));
        let list = policy_decisions(|x: &Tensor| f(x), &x)?;
        let named = list.iter().filter(|d| d.kind.to_string().contains("named"));
        Ok(named.map(|d| d.to_string().replace(&format!(" from {}", d.loc), "")).collect())
    };
    let found = lines(Policy::First(vec![must(&["c"]), prefer(&["b"]), Policy::budget(2 * ONE)]))?;
    assert!(found[0].starts_with("recompute f64[4,6] named 'a': "), "{found:?}");
    assert!(found[1].starts_with("save f64[4,6] named 'b': kept, saves "), "{found:?}");
    assert_eq!(found[2], "save f64[4,6] named 'c': kept, and no planner changes that");
    assert_eq!(lines(must(&["c"]))?[2], found[2]);
    Ok(())
}

#[test]
fn strengths_print_parse_compare_and_hash() -> Result<()> {
    let policies = [
        must(&["a"]).or(Policy::budget(1 << 20)),
        prefer(&["a"]).or(Policy::budget(1 << 20)),
        Policy::names(["a"]).or(Policy::names(["b"])),
        Policy::First(vec![Policy::must(Policy::Dots.not()), Policy::prefer(Policy::Dots), Policy::budget(3)]),
    ];
    let texts = policies.clone().map(|policy| policy.to_string());
    assert_eq!(texts[3], "First(Must(Not(Dots)), Prefer(Dots), Budget(3))");
    for (policy, text) in policies.iter().zip(&texts) {
        assert_eq!(text.parse::<Policy>()?, *policy);
        let f = checkpoint(policy.clone(), |x: &Tensor| x.named("a").sin().named("b").sin());
        let program = make_jaxpr(|x: &Tensor| f(x))(&data(DType::F32, &[3], 0))?.jaxpr;
        assert_eq!(program.to_string().parse::<Jaxpr>()?, *program);
        assert!(program.to_string().contains(text), "{program}");
    }
    assert_eq!(policies.into_iter().collect::<HashSet<_>>().len(), 4);
    let message = "must()".parse::<Policy>().unwrap_err().to_string();
    assert!(message.contains("a policy"), "{message}");
    Ok(())
}

#[test]
fn other_combinations_with_a_budget_are_errors() {
    let error = |policy: Policy| kept(policy).unwrap_err().message().to_string();
    let (budget, other) = (Policy::budget(8), Policy::must(Policy::Dots));
    let only = "a budget decides about all values together, and only `Or` and `First` combine it with others";
    assert_eq!(
        error(budget.clone().or(Policy::names(["a"]))),
        "the policy Or(Budget(8), Names(a)) combines Budget(8) with Names(a); a budget decides about all values together, \
         so say whether it may change what the other decides: Must(Names(a)) or Prefer(Names(a))"
    );
    assert_eq!(
        error(other.clone().and(budget.clone())),
        format!("the policy And(Must(Dots), Budget(8)) combines Budget(8) with And(Must(Dots), Budget(8)); {only}")
    );
    assert_eq!(
        error(Policy::must(budget.clone())),
        format!("the policy Must(Budget(8)) combines Budget(8) with Must(Budget(8)); {only}")
    );
    assert_eq!(
        error(other.or(budget).or(Policy::budget(9))),
        "the policy Or(Or(Must(Dots), Budget(8)), Budget(9)) combines Budget(8) with Budget(9); a region has one budget"
    );
}
