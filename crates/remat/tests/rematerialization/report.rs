//! Reports of residuals, policies and programs, to the letter.

use remat::ir::{Decision, MemorySpace};
use remat::report::{SavedKind, Through, fwd_bwd, policy_decisions, saved_residuals};
use remat::{
    DType, Policy, ScanOptions, Tensor, Tree, checkpoint, cond, jit, jit_with, linearize, named_scope, scan, scan_with,
    vjp, while_loop,
};

fn ones(shape: &[usize]) -> Tensor {
    Tensor::full(shape.to_vec(), 0.5f32, DType::F32)
}

/// A report with `LOC` for the places in this file.
fn without_places(report: impl ToString) -> String {
    let report = report.to_string();
    let mut parts = report.split(concat!(file!(), ":"));
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        text.push_str("LOC");
        let (line, rest) = part.split_once(':').unwrap_or_default();
        assert!(line.parse::<u32>().is_ok());
        text.push_str(rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    text
}

#[derive(Clone, Tree)]
struct Args {
    params: Vec<Tensor>,
    x: Tensor,
}

#[test]
fn residuals_print_as_in_jax_with_their_bytes() {
    let line = std::cell::Cell::new(0);
    let f = |a: &Args| {
        named_scope("g", || {
            line.set(line!() + 1);
            a.params[0].matmul(&a.x).sin()
        })
    };
    let args = Args { params: vec![ones(&[5, 4])], x: ones(&[4]) };
    let report = saved_residuals(f, &args).unwrap().to_string();
    let place = format!("{}:{}:38 (g)", file!(), line.get());
    assert_eq!(
        report,
        format!(
            "f32[5,4] from the argument params.0; 80 B\n\
             f32[4] from the argument x; 16 B\n\
             f32[5] output of cos from {place}; 20 B\n\
             total 116 B in 3 residuals; 20 B in 1 intermediate"
        )
    );
}

#[test]
fn a_tensor_argument_has_no_path_and_a_captured_one_is_a_constant() {
    let c = ones(&[600]);
    let report = saved_residuals(|x: &Tensor| (x * x * &c).sum(..), &ones(&[600])).unwrap();
    assert_eq!(
        without_places(&report),
        "f32[600] from a constant; 2.34 KiB\nf32[600] from the argument; 2.34 KiB\n\
         total 4.69 KiB in 2 residuals; 0 B in 0 intermediates"
    );
    let nothing = saved_residuals(|x: &Tensor| x.sum(..), &ones(&[2])).unwrap();
    assert!(nothing.is_empty());
    assert_eq!(nothing.to_string(), "total 0 B in 0 residuals; 0 B in 0 intermediates");
}

#[test]
fn names_and_operations_are_found_inside_jit() {
    let options = remat::JitOptions { name: Some("step".into()), ..Default::default() };
    let step = jit_with(&options, |x: &Tensor| x.sin().named("y").exp());
    let report = saved_residuals(|x: &Tensor| step.call(x.clone()), &ones(&[3])).unwrap();
    assert_eq!(
        without_places(&report),
        "f32[3] output of exp from LOC in jit step; 12 B\nf32[3] output of cos from LOC in jit step; 12 B\n\
         total 24 B in 2 residuals; 24 B in 2 intermediates"
    );
}

#[test]
fn names_and_offloads_are_found_inside_scan() {
    let policy = Policy::save_and_offload_names(["y"], ["z"]);
    let body = checkpoint(policy, |x: &Tensor| x.sin().named("y").sin().named("z").sin());
    let options = ScanOptions { length: Some(3), ..Default::default() };
    let f = |x: &Tensor| scan_with(&options, |c: &Tensor, _: &()| (body(c), ()), x, &()).map(|r| r.0);
    let residuals = saved_residuals(f, &ones(&[16])).unwrap();
    assert_eq!(
        without_places(&residuals),
        "f32[3,16] output of sin from LOC in scan of 3 (stacked carry); 192 B\n\
         f32[3,16] named 'y' from LOC in scan of 3 (stacked); 192 B\n\
         f32<host>[3,16] named 'z' from LOC in scan of 3 (stacked); 192 B\n\
         total 576 B in 3 residuals; 576 B in 3 intermediates"
    );
    let z = residuals.iter().last().unwrap();
    assert_eq!((&z.kind, z.aval.memory), (&SavedKind::Named("z".into()), MemorySpace::Host));
    assert_eq!(z.through, [Through::Scan { length: 3, stacked: true, carry: false }]);
}

#[test]
fn nested_regions_keep_the_origin_of_what_the_outer_policy_saves() {
    let inner = checkpoint(Policy::Nothing, |x: &Tensor| x.sin().named("n").sin());
    let outer = checkpoint(Policy::names(["n"]), |x: &Tensor| inner(x).cos());
    let report = saved_residuals(|x: &Tensor| outer(x), &ones(&[3])).unwrap();
    assert_eq!(
        without_places(&report),
        "f32[3] from the argument; 12 B\nf32[3] named 'n' from LOC in checkpoint; 12 B\n\
         total 24 B in 2 residuals; 12 B in 1 intermediate"
    );
}

#[test]
fn branches_share_places_for_what_either_needs() {
    let f = checkpoint(Policy::Everything, |x: &Tensor| {
        cond(&x.sum(..).gt(0.0), |x: &Tensor| x.sin().sin(), |x: &Tensor| x.cos(), x)
    });
    let report = saved_residuals(|x: &Tensor| f(x), &ones(&[3])).unwrap();
    // One place of the two that the second branch needs serves the first one too.
    assert_eq!(
        without_places(&report),
        "i32[] output of convert_element_type from LOC; 4 B\n\
         f32[3] output of sin from LOC in branch 0 of cond; 12 B\n\
         f32[3] output of cos from LOC in branch 1 of cond; 12 B\n\
         total 28 B in 3 residuals; 28 B in 3 intermediates"
    );
}

#[test]
fn stacked_inputs_and_unchanged_carries_are_arguments() {
    let f = |(w, xs): &(Tensor, Tensor)| {
        scan(|w: &Tensor, x: &Tensor| (w.clone(), (w * x).sum(..)), w, xs).map(|(_, ys)| ys.sum(..))
    };
    let residuals = saved_residuals(f, &(ones(&[2]), ones(&[3, 2]))).unwrap();
    let kinds: Vec<String> = residuals.iter().map(|r| r.kind.to_string()).collect();
    // The loop hands the carry through, so it is an output of the forward program, and comes after the inputs.
    assert_eq!(kinds, ["from the argument 1", "from the argument 0"]);
}

#[test]
fn decisions_of_policies_are_listed_with_their_effect() {
    let f = checkpoint(Policy::names(["a", "b"]), |x: &Tensor| {
        let x = (0..3).fold(x.clone(), |x, _| x.matmul(&x).sin().named("a"));
        x.sum(..).named("b")
    });
    let decisions = policy_decisions(|x: &Tensor| f(x), &ones(&[2, 2])).unwrap();
    assert_eq!(
        without_places(&decisions),
        "checkpoint at LOC with policy Names(a, b)\n\
         \x20 recompute f32[2,2] output of dot_general from LOC: 3 of 3 computed again\n\
         \x20 recompute f32[2,2] output of sin from LOC: no effect\n\
         \x20 recompute f32[2,2] output of cos from LOC: 3 of 3 computed again\n\
         \x20 save f32[2,2] named 'a' from LOC: 2 of 3 kept\n\
         \x20 recompute f32[] output of reduce_sum from LOC: no effect\n\
         \x20 save f32[] named 'b' from LOC: no effect\n"
    );
    let idle: Vec<_> = decisions.without_effect().filter(|d| d.decision == Decision::Save).map(|d| &d.kind).collect();
    assert_eq!(idle, [&SavedKind::Named("b".into())]);
}

#[test]
fn decisions_reach_into_loops_and_skip_what_is_not_differentiated() {
    let f = checkpoint(Policy::Dots, |(w, xs): &(Tensor, Tensor)| {
        scan(|c: &Tensor, x: &Tensor| ((w.matmul(c) + x).tanh(), ()), &xs.index(0), xs).map(|r| r.0.sum(..))
    });
    let args = (ones(&[2, 2]), ones(&[3, 2]));
    let decisions = policy_decisions(|a: &(Tensor, Tensor)| f(a), &args).unwrap();
    let dot = decisions.iter().find(|d| d.kind == SavedKind::Output("dot_general")).unwrap();
    assert_eq!((dot.decision, dot.asked, dot.used), (Decision::Save, 1, 1));
    let constant = policy_decisions(|x: &Tensor| f(&args).map(|y| y * x), &Tensor::from(1.0f32)).unwrap();
    assert_eq!(constant.iter().len(), 0);
}

/// The lines of the decisions, without locations.
fn decided<A: Tree>(f: impl Fn(&A) -> Tensor, x: &A) -> Vec<String> {
    let decisions = policy_decisions(f, x).unwrap();
    without_places(&decisions).lines().skip(1).map(|line| line.trim().replace(" from LOC", "")).collect()
}

#[test]
fn decisions_have_their_reasons() {
    // The policy keeps every value but those that are called `b`: neither the name nor what is named.
    let f = checkpoint(Policy::anything_but(["b"]), |x: &Tensor| (x.sin().named("b") * x).sum(..));
    let lines = decided(&f, &ones(&[2]));
    assert!(
        lines.contains(&"recompute f32[2] output of sin: computed again, not to be kept as 'b'".into()),
        "{lines:?}"
    );
    // A name of an input of the region is that input.
    let f = checkpoint(Policy::names(["x"]), |x: &Tensor| x.named("x").sin().sin().sum(..));
    let lines = decided(&f, &ones(&[2]));
    assert_eq!(lines[0], "save f32[2] named 'x': no effect, an input of the region is available anyway");
    // What the derivative of a tanh needs is cheap to compute from the tanh, which is needed anyway.
    let f = checkpoint(Policy::Everything, |x: &Tensor| {
        let y = x.tanh();
        (&y * &y).sum(..)
    });
    let lines = decided(&f, &ones(&[2]));
    assert_eq!(lines[0], "save f32[2] output of tanh: kept");
    assert_eq!(lines[2], "save f32[2] output of sub: no effect, cheap to compute from other residuals");
}

#[test]
fn decisions_count_equal_values_on_one_line_apart() {
    // The second of two values that one line computes by one operation is not needed.
    let f = checkpoint(Policy::names(["a"]), |x: &Tensor| {
        let [y, z] = [0, 1].map(|_| x.sin().named("a"));
        (y.sin() + z).sum(..)
    });
    let lines = decided(&f, &ones(&[2]));
    assert!(lines.contains(&"save f32[2] named 'a': 1 of 2 kept".into()), "{lines:?}");
}

#[test]
fn regions_of_one_line_are_one() {
    let f = |x: &Tensor| {
        let block = |x: &Tensor| checkpoint(Policy::names(["h"]), |x: &Tensor| x.sin().named("h").cos().sin())(x);
        let other = checkpoint(Policy::Everything, |x: &Tensor| x.exp());
        block(&other(&block(&block(x)))).sum(..)
    };
    let decisions = policy_decisions(f, &ones(&[2])).unwrap();
    let regions: Vec<_> = decisions.iter().map(|d| d.policy.to_string()).collect();
    let mut runs = regions.clone();
    runs.dedup();
    assert_eq!(runs, ["Names(h)", "Everything"]);
    let named: Vec<_> = decisions.iter().filter(|d| d.kind == SavedKind::Named("h".into())).collect();
    assert_eq!(named.len(), 1);
    assert_eq!((named[0].asked, named[0].used), (3, 3));
}

#[test]
fn decisions_reach_into_all_branches_and_take_loops_of_unknown_length_whole() {
    let f = checkpoint(Policy::Dots, |x: &Tensor| {
        let first = |x: &Tensor| x.matmul(x).sin();
        let second = |x: &Tensor| x.matmul(x).cos();
        cond(&x.sum(..).gt(0.0), first, second, x).unwrap().sum(..)
    });
    let lines = decided(&f, &ones(&[2, 2]));
    let kept = lines.iter().filter(|line| *line == "save f32[2,2] output of dot_general: kept").count();
    assert_eq!(kept, 2, "one in each branch, though both share a place: {lines:?}");
    let f = checkpoint(Policy::Nothing, |x: &Tensor| {
        let scale = while_loop(|c: &Tensor| c.lt(10.0), |c: &Tensor| c * 2.0, &x.stop_gradient().sum(..)).unwrap();
        (x.sin() * scale).sum(..)
    });
    let lines = decided(&f, &ones(&[2]));
    assert!(lines.contains(&"recompute f32[] output of while: computed again".into()), "{lines:?}");
}

#[test]
fn residuals_have_one_order_everywhere() {
    // The loop hands its second argument through: a residual from an argument that is an output of the forward program.
    let f = |(a, b): &(Tensor, Tensor)| {
        let s = a.sin().sum(..);
        let options = ScanOptions { length: Some(2), ..Default::default() };
        let (c, ()) = scan_with(&options, |c: &Tensor, _: &()| (c.clone(), ()), b, &())?;
        Ok::<_, remat::Error>(s + (&c * &c).sum(..))
    };
    let x = (ones(&[2]), ones(&[3]));
    let report = saved_residuals(f, &x).unwrap();
    let (_, pullback) = vjp(f, &x).unwrap();
    let (_, derivative) = linearize(f, &x).unwrap();
    let backward = fwd_bwd(f, &x).unwrap().backward.in_avals();
    let avals: Vec<_> = report.iter().map(|r| r.aval.clone()).collect();
    assert_eq!(avals.len(), 2);
    assert_eq!(avals, backward[..2]);
    for map in [pullback.residuals(), derivative.residuals()] {
        assert_eq!(avals, map.iter().map(|t| t.aval().unwrap().clone()).collect::<Vec<_>>());
    }
    assert_eq!(report.to_string(), pullback.saved_residuals().to_string());
    assert_eq!(report.to_string(), derivative.saved_residuals().to_string());
}

#[test]
fn both_programs_run() {
    let w = Tensor::from(vec![2.0f64, 3.0]);
    let f = checkpoint(Policy::names(["y"]), |(x, n): &(Tensor, Tensor)| ((x * &w).sin().named("y").exp(), n + 1));
    let x = (Tensor::from(vec![0.5f64, -1.0]), Tensor::new([1, 2]));
    let programs = fwd_bwd(|x: &(Tensor, Tensor)| f(x), &x).unwrap();
    let (outs, residuals) = programs.run_forward(&[x.0.clone(), x.1.clone()]).unwrap();
    assert_eq!((outs.len(), residuals.len()), (2, programs.num_residuals));
    let ct = Tensor::from(vec![1.0f64, 2.0]);
    let gradients = programs.run_backward(&residuals, std::slice::from_ref(&ct)).unwrap();
    let ((y, _), pullback) = vjp(|x: &(Tensor, Tensor)| f(x), &x).unwrap();
    let (expected, _) = pullback.call(&(ct.clone(), x.1.clone())).unwrap();
    assert_eq!(outs[0].to_vec::<f64>().unwrap(), y.to_vec::<f64>().unwrap());
    assert_eq!(gradients.len(), 1, "integers have no cotangent");
    assert_eq!(gradients[0].to_vec::<f64>().unwrap(), expected.to_vec::<f64>().unwrap());
    let few = programs.run_forward(std::slice::from_ref(&x.0)).unwrap_err();
    assert_eq!(few.message(), "takes 2 leaves and got 1");
    let other = programs.run_backward(&residuals, &[ones(&[2])]).unwrap_err();
    assert_eq!(other.message(), "cotangent 0 is f32[2] and must be f64[2]");
}

#[test]
fn programs_print_one_above_the_other() {
    let programs = fwd_bwd(|x: &Tensor| x.sin().sin(), &ones(&[2])).unwrap();
    assert_eq!(
        programs.to_string(),
        "--- forward computation:
{ lambda ; a:f32[2]. let
    b:f32[2] = sin a
    c:f32[2] = cos a
    d:f32[2] = sin b
    e:f32[2] = cos b
  in (d, c, e) }
--- backward computation:
{ lambda ; a:f32[2] b:f32[2] c:f32[2]. let
    d:f32[2] = mul c b
    e:f32[2] = mul d a
  in (e,) }"
    );
    assert_eq!(programs.side_by_side(80), format!("{programs}\n"));
}

#[test]
fn programs_print_side_by_side_where_there_is_room() {
    let c = ones(&[2]);
    let programs = fwd_bwd(|x: &Tensor| x.sin() * &c, &ones(&[2])).unwrap();
    assert_eq!((programs.consts.len(), programs.num_residuals), (1, 2));
    let expected = [
        ("--- forward computation:", "--- backward computation:"),
        ("{ lambda a:f32[2]; b:f32[2]. let", "{ lambda ; a:f32[2] b:f32[2] c:f32[2]. let"),
        ("    c:f32[2] = sin b", "    d:f32[2] = mul c a"),
        ("    d:f32[2] = cos b", "    e:f32[2] = mul d b"),
        ("    e:f32[2] = mul c a", "  in (e,) }"),
        ("  in (e, a, d) }", ""),
    ];
    let expected: String =
        expected.iter().map(|(l, r)| format!("{l:48} │ {r}").trim_end().to_string() + "\n").collect();
    assert_eq!(programs.side_by_side(100), expected);
}

#[test]
fn an_error_in_the_function_is_the_error_of_the_report() {
    let mismatch = |x: &Tensor| x + &ones(&[3]);
    assert!(saved_residuals(mismatch, &ones(&[2])).is_err());
    assert!(fwd_bwd(mismatch, &ones(&[2])).is_err());
    assert!(policy_decisions(mismatch, &ones(&[2])).is_err());
    let called = jit(|x: &Tensor| x + &ones(&[3]));
    assert!(saved_residuals(|x: &Tensor| called.call(x.clone()), &ones(&[2])).is_err());
}

#[test]
fn long_lines_are_broken_so_that_the_programs_stand_side_by_side() {
    let f = checkpoint(Policy::Nothing, |xs: &Vec<Tensor>| {
        xs.iter().fold(Tensor::zeros([3], DType::F32), |sum, x| sum + x.sin().sin()).sum(..)
    });
    let xs = vec![Tensor::zeros([3], DType::F32); 12];
    let text = fwd_bwd(|xs: &Vec<Tensor>| f(xs), &xs).unwrap().side_by_side(100);
    assert!(text.lines().all(|line| line.chars().count() <= 100 && line.contains('│')), "{text}");
}
