use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use remat_ir::{
    Array, Atom, Aval, Builder, Checkpoint, ClosedJaxpr, Cond, CustomJvp, CustomLin, CustomVjp, DType, DevicePut,
    Jaxpr, Jit, Literal, Loc, MemorySpace, Name, Op, OptimizationBarrier, Policy, PrintOptions, Scan, Scope, Unary,
    VjpRule, While,
};

use crate::program;

fn f32s(shape: &[usize]) -> Aval {
    Aval::new(DType::F32, shape.iter().copied())
}

/// One sine of f32 of this shape.
fn sine(shape: &[usize]) -> Arc<Jaxpr> {
    let mut b = Builder::new();
    let x = b.input(f32s(shape));
    let y = b.emit1(Unary::Sin.into(), &[x]).unwrap();
    Arc::new(b.finish(vec![y]))
}

fn jit(name: &str, jaxpr: &Arc<Jaxpr>) -> Op {
    Jit { name: name.into(), jaxpr: jaxpr.clone() }.into()
}

/// Prints, reads back, and prints the same.
#[track_caller]
fn prints(jaxpr: &Jaxpr, text: &str) {
    assert_eq!(jaxpr.to_string(), text);
    assert_eq!(program(text).to_string(), text);
    remat_ir::check(jaxpr).unwrap();
}

#[test]
fn variables_count_in_base_26_without_reserved_words() {
    let mut b = Builder::new();
    let xs = b.inputs((0..9000).map(|_| f32s(&[])));
    let text = b.finish(xs).to_string();
    let outs = text.split_once("in (").unwrap().1.trim_end_matches(") }");
    let names: Vec<&str> = outs.split(',').map(str::trim).collect();
    assert_eq!(names.len(), 9000);
    assert_eq!(names[..3], ["a", "b", "c"]);
    assert_eq!(names[25..28], ["z", "ba", "bb"]);
    assert_eq!(names[220..222], ["im", "io"]);
    assert_eq!(names[674..676], ["zz", "baa"]);
    assert!(!names.iter().any(|n| ["in", "inf", "nan", "let", "lambda"].contains(n)));
    assert_eq!(program(&text).to_string(), text);
}

#[test]
fn unused_outputs_have_no_name() {
    let mut b = Builder::new();
    let x = b.input(f32s(&[]));
    b.emit1(Unary::Sin.into(), &[x]).unwrap();
    let y = b.emit1(Unary::Cos.into(), &[x]).unwrap();
    prints(&b.finish(vec![y]), "{ lambda ; a:f32[]. let _:f32[] = sin a; b:f32[] = cos a in (b,) }");
}

#[test]
fn programs_without_inputs_equations_or_outputs() {
    prints(&Builder::new().finish(vec![]), "{ lambda ; . let  in () }");
    let literals = [
        Literal::from_f64(DType::F32, 2.0),
        Literal::from_f64(DType::F64, f64::NEG_INFINITY),
        Literal::from_bits(DType::F32, 0x7fc0_0001),
        Literal::from_bool(true),
    ];
    prints(
        &Builder::new().finish(literals.map(Atom::Lit).to_vec()),
        "{ lambda ; . let\n  in (2.0:f32[], -inf:f64[], nan(0x7fc00001):f32[], True:bool[]) }",
    );
}

#[test]
fn an_equation_without_outputs_keeps_its_sign() {
    let empty = Arc::new(Builder::new().finish(vec![]));
    let mut b = Builder::new();
    let x = b.input(f32s(&[]));
    let y = b.emit1(Unary::Sin.into(), &[x]).unwrap();
    b.emit(OptimizationBarrier.into(), &[]).unwrap();
    b.emit(jit("f", &empty), &[]).unwrap();
    let text = "\
{ lambda ; a:f32[]. let
    b:f32[] = sin a
    = optimization_barrier
    = jit[name=f jaxpr={ lambda ; . let  in () }]
  in (b,) }";
    prints(&b.finish(vec![y]), text);
}

#[test]
fn every_literal_reads_back_with_its_bits() {
    let odd = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-40, 1e30, 3e-8, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 123456789.0];
    let mut outs = Vec::new();
    for dtype in DType::ALL {
        outs.extend(odd.map(|v| Literal::from_f64(dtype, v)));
        outs.extend([0, 1, u64::MAX, u64::MAX / 2, 0x1234_5678_9abc_def1].map(|bits| match dtype {
            DType::Bool => Literal::from_bool(bits & 1 == 1),
            _ => Literal::from_bits(dtype, bits),
        }));
    }
    let jaxpr = Builder::new().finish(outs.into_iter().map(Atom::Lit).collect());
    assert_eq!(program(&jaxpr.to_string()), jaxpr);
}

#[test]
fn control_flow_breaks_as_in_jax() {
    let body = {
        let mut b = Builder::new();
        let [c, x] = [b.input(f32s(&[])), b.input(f32s(&[]))];
        let c = b.emit1(Unary::Sin.into(), &[c]).unwrap();
        Arc::new(b.finish(vec![c, x]))
    };
    let scan = Scan { jaxpr: body, length: 3, num_consts: 0, num_carry: 1, reverse: false, unroll: 1 };
    let cond = Cond { branches: vec![sine(&[]), sine(&[])] };
    let mut b = Builder::new();
    let [i, xs] = [b.input(Aval::scalar(DType::I32)), b.input(f32s(&[3]))];
    let outs = b.emit(scan.into(), &[Literal::from_f64(DType::F32, 0.0).into(), xs]).unwrap();
    let last = b.emit1(cond.into(), &[i, outs[0]]).unwrap();
    let text = "\
{ lambda ; a:i32[] b:f32[3]. let
    c:f32[] d:f32[3] = scan[
      jaxpr={ lambda ; e:f32[] f:f32[]. let g:f32[] = sin e in (g, f) }
      length=3
      num_carry=1
      num_consts=0
      reverse=False
      unroll=1
    ] 0.0:f32[] b
    h:f32[] = cond[
      branches=(
        { lambda ; i:f32[]. let j:f32[] = sin i in (j,) }
        { lambda ; k:f32[]. let l:f32[] = sin k in (l,) }
      )
    ] a c
  in (h, d) }";
    prints(&b.finish(vec![last, outs[1]]), text);
}

#[test]
fn custom_rules_and_loops() {
    let unary = sine(&[]);
    let two = {
        let mut b = Builder::new();
        let xs = b.inputs([f32s(&[]), f32s(&[])]);
        Arc::new(b.finish(xs))
    };
    let always = {
        let mut b = Builder::new();
        b.input(f32s(&[]));
        Arc::new(b.finish(vec![Literal::from_bool(false).into()]))
    };
    let fwd = {
        let mut b = Builder::new();
        let x = b.input(f32s(&[]));
        Arc::new(b.finish(vec![x, x]))
    };
    let bwd = {
        let mut b = Builder::new();
        b.input(f32s(&[]));
        let ct = b.input(f32s(&[]));
        Arc::new(b.finish(vec![ct]))
    };
    let ops: [Op; 6] = [
        CustomJvp { name: "relu".into(), call: unary.clone(), jvp: Some(two), num_consts: 0 }.into(),
        CustomJvp { name: "relu".into(), call: unary.clone(), jvp: None, num_consts: 0 }.into(),
        CustomVjp { name: "relu".into(), call: unary.clone(), rule: None, forward: None, num_consts: 0 }.into(),
        CustomVjp {
            name: "<lambda>".into(),
            call: unary.clone(),
            rule: Some(VjpRule { fwd, bwd: bwd.clone() }),
            forward: None,
            num_consts: 0,
        }
        .into(),
        While { cond: always, body: unary, cond_consts: 0, body_consts: 0 }.into(),
        DevicePut { memory: MemorySpace::Host }.into(),
    ];
    let mut b = Builder::new();
    let mut x = b.input(f32s(&[]));
    let lin = CustomLin { name: "f".into(), forward: None, bwd, num_residuals: 1 };
    x = b.emit1(lin.into(), &[x, x]).unwrap();
    for op in ops {
        x = b.emit1(op, &[x]).unwrap();
    }
    let text = "\
let jaxpr = { lambda ; a:f32[] b:f32[]. let  in (b,) } in
let jaxpr1 = { lambda ; c:f32[]. let d:f32[] = sin c in (d,) } in
{ lambda ; e:f32[]. let
    f:f32[] = custom_lin[name=f bwd_jaxpr=jaxpr num_res=1] e e
    g:f32[] = custom_jvp[
      name=relu
      call_jaxpr=jaxpr1
      jvp_jaxpr={ lambda ; h:f32[] i:f32[]. let  in (h, i) }
      num_consts=0
    ] f
    j:f32[] = custom_jvp[
      name=relu
      call_jaxpr=jaxpr1
      jvp_jaxpr=None
      num_consts=0
    ] g
    k:f32[] = custom_vjp[
      name=relu
      call_jaxpr=jaxpr1
      fwd_jaxpr=None
      bwd_jaxpr=None
      num_consts=0
    ] j
    l:f32[] = custom_vjp[
      name=\"<lambda>\"
      call_jaxpr=jaxpr1
      fwd_jaxpr={ lambda ; m:f32[]. let  in (m, m) }
      bwd_jaxpr=jaxpr
      num_consts=0
    ] k
    n:f32[] = while[
      cond_jaxpr={ lambda ; o:f32[]. let  in (False:bool[],) }
      cond_nconsts=0
      body_jaxpr=jaxpr1
      body_nconsts=0
    ] l
    p:f32<host>[] = device_put[memory=host] n
  in (p,) }";
    prints(&b.finish(vec![x]), text);
}

#[test]
fn a_shared_body_prints_once_after_those_that_it_uses() {
    let inner = sine(&[2]);
    let outer = {
        let mut b = Builder::new();
        let mut x = b.input(f32s(&[2]));
        for _ in 0..2 {
            x = b.emit1(jit("inner", &inner), &[x]).unwrap();
        }
        Arc::new(b.finish(vec![x]))
    };
    let mut b = Builder::new();
    let mut x = b.input(f32s(&[2]));
    for body in [&outer, &outer, &sine(&[2]), &inner] {
        x = b.emit1(jit("<inner>", body), &[x]).unwrap();
    }
    let text = "\
let inner = { lambda ; a:f32[2]. let b:f32[2] = sin a in (b,) } in
let inner1 = { lambda ; c:f32[2]. let
    d:f32[2] = jit[name=inner jaxpr=inner] c
    e:f32[2] = jit[name=inner jaxpr=inner] d
  in (e,) } in
{ lambda ; f:f32[2]. let
    g:f32[2] = jit[name=\"<inner>\" jaxpr=inner1] f
    h:f32[2] = jit[name=\"<inner>\" jaxpr=inner1] g
    i:f32[2] = jit[
      name=\"<inner>\"
      jaxpr={ lambda ; j:f32[2]. let k:f32[2] = sin j in (k,) }
    ] h
    l:f32[2] = jit[name=\"<inner>\" jaxpr=inner] i
  in (l,) }";
    let jaxpr = b.finish(vec![x]);
    prints(&jaxpr, text);
    let again = program(text);
    assert!(Arc::ptr_eq(again.eqns[0].op.bodies()[0], again.eqns[1].op.bodies()[0]), "what was shared stays shared");
    assert_eq!(again, jaxpr);
}

#[test]
fn constants_stand_before_the_semicolon() {
    let mut b = Builder::new();
    let [c, x] = [b.input(f32s(&[2])), b.input(f32s(&[2]))];
    let jaxpr = Arc::new(b.finish(vec![x, c]));
    let closed = ClosedJaxpr { jaxpr, consts: vec![Array::from_vec(vec![1.0f32, 2.0], [2]).unwrap()] };
    assert_eq!(closed.to_string(), "{ lambda a:f32[2]; b:f32[2]. let  in (b, a) }");
    let (again, num_consts) = Jaxpr::parse_closed(&closed.to_string()).unwrap();
    assert_eq!((again, num_consts), ((*closed.jaxpr).clone(), 1));
}

#[test]
fn names_and_policies_are_quoted_where_they_are_no_words() {
    let names = ["plain", "two words", "float32", "True", "a-b", "3d", "", "quote\"\\\n", "é"];
    let policy = Policy::names(names).or(Policy::SaveAndOffloadNames {
        saved: ["x".into()].into(),
        offloaded: ["y z".into()].into(),
        to: MemorySpace::Host,
    });
    let policies = [
        policy,
        Policy::Nothing,
        Policy::Everything.and(Policy::Dots),
        Policy::First(vec![
            Policy::DotsWithNoBatchDims,
            Policy::any_names_but(["a"]),
            Policy::anything_but(["b", "c"]),
        ]),
        Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host).not(),
        Policy::Names([].into()),
        Policy::budget(0),
        Policy::budget(1_000_001),
        Policy::budget(64 << 20),
        Policy::budget(usize::MAX),
        Policy::custom_named("my policy"),
    ];
    for policy in policies {
        assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
        let mut b = Builder::new();
        let mut x = b.input(f32s(&[]));
        for name in names {
            x = b.emit1(Name::new(name).into(), &[x]).unwrap();
        }
        let op = Checkpoint { jaxpr: sine(&[]), differentiated: false, policy: Arc::new(policy) };
        x = b.emit1(op.into(), &[x]).unwrap();
        let jaxpr = b.finish(vec![x]);
        assert_eq!(program(&jaxpr.to_string()), jaxpr);
    }
    assert_eq!(Policy::names(["b c", "a"]).to_string(), "Names(a, \"b c\")");
}

#[test]
fn a_callable_policy_equals_its_clones_alone() {
    let hash = |policy: &Policy| {
        let mut hasher = DefaultHasher::new();
        policy.hash(&mut hasher);
        hasher.finish()
    };
    let [one, other] = [(); 2].map(|()| Policy::custom("mine", |_| None));
    assert_eq!((&one, hash(&one)), (&one.clone(), hash(&one.clone())));
    assert_eq!(one.clone().or(Policy::Dots), one.clone().or(Policy::Dots));
    assert_ne!(one, other);
    assert_ne!(one.clone().not(), other.not());
    // Read back, it has lost its callable.
    let read: Policy = one.to_string().parse().unwrap();
    assert_eq!(read, Policy::custom_named("mine"));
    assert_ne!(read, one);
    assert_ne!(read, Policy::custom_named("yours"));
}

#[test]
fn locations_are_comments() {
    let mut b = Builder::new();
    let x = b.input(f32s(&[]));
    b.loc = Loc { scope: Scope::new("loss/block"), ..Loc::caller() };
    let line = line!() - 1;
    let y = b.emit1(Unary::Sin.into(), &[x]).unwrap();
    b.loc = Loc::UNKNOWN;
    let z = b.emit1(Unary::Cos.into(), &[y]).unwrap();
    let jaxpr = b.finish(vec![z]);
    let text = jaxpr.display(PrintOptions { locations: true, ..PrintOptions::default() }).to_string();
    let expected = format!(
        "{{ lambda ; a:f32[]. let\n    b:f32[] = sin a # {}:{line}:54 (loss/block)\n    c:f32[] = cos b\n  in (c,) }}",
        file!()
    );
    assert_eq!(text, expected);
    assert_eq!(program(&text), jaxpr);
}

#[test]
fn lists_break_where_the_line_is_full() {
    let mut b = Builder::new();
    let xs = b.inputs((0..9).map(|_| f32s(&[10])));
    let ys = b.emit(OptimizationBarrier.into(), &xs).unwrap();
    let text = b.finish(ys.to_vec()).display(PrintOptions { width: 30, ..PrintOptions::default() }).to_string();
    let expected = "\
{ lambda ; a:f32[10] b:f32[10]
    c:f32[10] d:f32[10] e:f32[10]
    f:f32[10] g:f32[10] h:f32[10]
    i:f32[10]. let
    j:f32[10] k:f32[10] l:f32[10]
      m:f32[10] n:f32[10] o:f32[10]
      p:f32[10] q:f32[10] r:f32[10] = optimization_barrier a
      b c d e f g h i
  in (j, k, l, m, n, o, p, q, r) }";
    assert_eq!(text, expected);
}

#[test]
fn a_long_program_prints_parses_and_checks_in_linear_time() {
    let mut b = Builder::new();
    let mut x = b.input(f32s(&[3]));
    for _ in 0..100_000 {
        x = b.emit1(Unary::Sin.into(), &[x]).unwrap();
    }
    let jaxpr = b.finish(vec![x]);
    let start = Instant::now();
    let text = jaxpr.to_string();
    assert!(start.elapsed() < Duration::from_secs(2), "printing took {:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(program(&text), jaxpr);
    remat_ir::check(&jaxpr).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "parsing and checking took {:?}", start.elapsed());
}
