use std::sync::Arc;

use remat_ir::{
    Atom, Aval, DType, Eqn, Error, ErrorKind, FaultKind, Jaxpr, Jit, Loc, Op, Part, Scan, Unary, Var, VarMap, check,
};

/// A program whose variables are f32 of these sizes, with nothing else in it.
fn vars(sizes: &[usize]) -> Jaxpr {
    let mut avals = VarMap::default();
    for &size in sizes {
        avals.push(Aval::new(DType::F32, [size]));
    }
    Jaxpr { avals, ..Jaxpr::default() }
}

fn eqn(op: impl Into<Op>, ins: &[u32], outs: &[u32]) -> Eqn {
    let ins = ins.iter().map(|&v| Atom::Var(Var(v))).collect();
    Eqn { outs: outs.iter().map(|&v| Var(v)).collect(), op: op.into(), ins, loc: Loc::UNKNOWN }
}

#[track_caller]
fn faults(jaxpr: &Jaxpr, text: &str) {
    assert_eq!(check(jaxpr).unwrap_err().to_string(), text);
}

#[test]
fn every_fault_of_every_body_is_at_its_place() {
    let inner = Jaxpr {
        ins: vec![Var(0)],
        eqns: vec![eqn(Unary::Sin, &[1], &[1])],
        outs: vec![Var(1).into()],
        ..vars(&[3, 3])
    };
    let inner = Arc::new(inner);
    let jit = Jit { name: "f".into(), jaxpr: inner };
    let jaxpr = Jaxpr {
        ins: vec![Var(0), Var(0), Var(7)],
        eqns: vec![
            eqn(Unary::Sin, &[2], &[1]),
            eqn(Unary::Sin, &[0], &[1]),
            eqn(Unary::Sin, &[0, 9], &[3, 2]),
            eqn(Unary::Sin, &[0, 0], &[]),
            eqn(jit.clone(), &[0], &[4]),
            eqn(jit.clone(), &[5], &[8]),
        ],
        outs: vec![Var(6).into(), Var(4).into(), Var(9).into()],
        ..vars(&[3, 4, 3, 3, 3, 3, 3])
    };
    let text = "\
let f = { lambda ; a:f32[3]. let
    b:f32[3] = sin b
    # ^ `b` is used before it is defined
  in (b,) } in
{ lambda ; c:f32[3] c:f32[3] ?7:?. let
    # ^ `c` is defined twice
    # ^ `?7` is out of range: there are 7 variables
    d:f32[4] = sin e
    # ^ `e` is used before it is defined
    # ^ `d` is f32[4] and sin gives f32[3]
    d:f32[4] = sin c
    # ^ `d` is f32[4] and sin gives f32[3]
    # ^ `d` is defined twice
    f:f32[3] e:f32[3] = sin c ?9
    # ^ `?9` is out of range: there are 7 variables
    = sin c c
    # ^ sin: takes 1 operands and got 2
    g:f32[3] = jit[name=f jaxpr=f] c
    ?8:? = jit[name=f jaxpr=f] h
    # ^ `h` is used before it is defined
    # ^ `?8` is out of range: there are 7 variables
  # ^ `i` is used before it is defined
  # ^ `?9` is out of range: there are 7 variables
  in (i, g, ?9) }
13 faults";
    faults(&jaxpr, text);
    let faults = check(&jaxpr).unwrap_err();
    assert!(matches!(faults.faults()[0].kind, FaultKind::DefinedTwice(Var(0))));
    let last = faults.faults().last().unwrap();
    assert_eq!((last.path.as_slice(), last.part), (&[(4, 0)][..], Part::Equation(0)));
    let error = Error::from(faults);
    assert_eq!(error.kind(), ErrorKind::Check);
    assert_eq!(error.message(), format!("the program breaks a rule\n{text}"));
}

#[test]
fn a_body_with_a_broken_interface_is_not_inferred_from() {
    let body = Arc::new(Jaxpr { ins: vec![Var(5)], outs: vec![Var(6).into()], ..vars(&[]) });
    let scan = Scan { jaxpr: body, length: 2, num_consts: 0, num_carry: 1, reverse: false, unroll: 1 };
    let jaxpr = Jaxpr { ins: vec![Var(0)], eqns: vec![eqn(scan, &[0], &[1])], ..vars(&[3, 3]) };
    let text = "\
{ lambda ; a:f32[3]. let
    b:f32[3] = scan[
      jaxpr={ lambda ; ?5:?. let
          # ^ `?5` is out of range: there are 0 variables
        # ^ `?6` is out of range: there are 0 variables
        in (?6,) }
      length=2
      num_carry=1
      num_consts=0
      reverse=False
      unroll=1
    ] a
  in () }
2 faults";
    faults(&jaxpr, text);
}

#[test]
fn huge_counts_are_no_overflow() {
    let body = Arc::new(Jaxpr { ins: vec![Var(0)], outs: vec![Var(0).into()], ..vars(&[3]) });
    let scan =
        Scan { jaxpr: body, length: 2, num_consts: usize::MAX, num_carry: usize::MAX, reverse: false, unroll: 1 };
    let jaxpr = Jaxpr { ins: vec![Var(0)], eqns: vec![eqn(scan, &[0], &[1])], ..vars(&[3, 3]) };
    let faults = check(&jaxpr).unwrap_err();
    assert_eq!(faults.faults().len(), 1);
    assert!(matches!(&faults.faults()[0].kind, FaultKind::Operation(e) if e.kind() == ErrorKind::Argument));
}

#[test]
fn deeply_nested_bodies_are_checked_without_recursion() {
    let mut body = Arc::new(Jaxpr { ins: vec![Var(0)], outs: vec![Var(0).into()], ..vars(&[3]) });
    for _ in 0..1000 {
        let jit = Jit { name: "f".into(), jaxpr: body };
        let eqns = vec![eqn(jit, &[0], &[1])];
        body = Arc::new(Jaxpr { ins: vec![Var(0)], eqns, outs: vec![Var(1).into()], ..vars(&[3, 3]) });
    }
    check(&body).unwrap();
}
