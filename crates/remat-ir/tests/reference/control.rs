use std::sync::Arc;

use remat_ir::{
    Array, Aval, Checkpoint, Cond, CustomJvp, CustomLin, CustomVjp, DType, DevicePut, ErrorKind, Jaxpr, Jit,
    MemorySpace, Name, Op, OptimizationBarrier, Policy, Scan, StopGradient, VjpRule, While, bf16, eval, eval_op,
};

use super::{numbers, run, vec1};

fn jaxpr(text: &str) -> Arc<Jaxpr> {
    Arc::new(Jaxpr::parse(text).unwrap())
}

#[test]
fn a_program_runs_and_checks_its_arguments() {
    let program =
        jaxpr("{ lambda ; a:f32[2] b:f32[]. let c:f32[2] = mul a b; d:f32[2] = add c a in (d, a, 7.0:f32[], d) }");
    let args = vec![vec1(&[1.0f32, 2.0]), Array::scalar(3.0f32)];
    let outs = eval(&program, args.clone()).unwrap();
    assert_eq!(
        outs.iter().map(numbers).collect::<Vec<_>>(),
        [vec![4.0, 8.0], vec![1.0, 2.0], vec![7.0], vec![4.0, 8.0]]
    );
    // The arguments are not overwritten.
    assert_eq!(numbers(&args[0]), [1.0, 2.0]);
    let error = eval(&program, vec![args[0].clone()]).unwrap_err();
    assert_eq!(error.to_string(), "eval: the program takes 2 arguments and got 1");
    let error = eval(&program, vec![args[0].clone(), vec1(&[3.0f32])]).unwrap_err();
    assert_eq!(error.to_string(), "eval: argument 1 is f32[1] and the program takes f32[]");
}

#[test]
fn an_output_that_is_overwritten_later_keeps_its_value() {
    let program = jaxpr("{ lambda ; a:f32[1]. let b:f32[1] = neg a; c:f32[1] = exp b; d:f32[1] = neg b in (c, d, b) }");
    let outs = eval(&program, vec![vec1(&[-1.0f32])]).unwrap();
    assert_eq!(outs[1..].iter().map(numbers).collect::<Vec<_>>(), [[-1.0], [1.0]]);
    let program = jaxpr("{ lambda ; a:f32[1]. let b:f32[1] = add a a; c:f32[1] = mul b b in (c,) }");
    assert_eq!(numbers(&eval(&program, vec![vec1(&[3.0f32])]).unwrap()[0]), [36.0]);
}

#[test]
fn calls_evaluate_their_bodies() {
    let body = jaxpr("{ lambda ; a:f32[2]. let b:f32[2] = neg a in (b, a) }");
    let x = [vec1(&[1.0f32, 2.0])];
    let want = [vec![-1.0, -2.0], vec![1.0, 2.0]];
    let jvp = jaxpr("{ lambda ; a:f32[2] b:f32[2]. let c:f32[2] = neg a; d:f32[2] = neg b in (c, a, d, b) }");
    let bwd = jaxpr("{ lambda ; a:f32[2] b:f32[2]. let c:f32[2] = sub b a in (c,) }");
    let name: Arc<str> = "f".into();
    let calls: [Op; 4] = [
        Jit { name: name.clone(), jaxpr: body.clone() }.into(),
        Checkpoint { jaxpr: body.clone(), differentiated: true, policy: Arc::new(Policy::Nothing) }.into(),
        CustomJvp { name: name.clone(), call: body.clone(), jvp: Some(jvp), num_consts: 0 }.into(),
        CustomVjp {
            name: name.clone(),
            call: body.clone(),
            rule: Some(VjpRule { fwd: body, bwd: bwd.clone() }),
            forward: None,
            num_consts: 0,
        }
        .into(),
    ];
    for op in calls {
        assert_eq!(eval_op(&op, &x).unwrap().iter().map(numbers).collect::<Vec<_>>(), want, "{}", op.name());
    }
    let bwd = jaxpr("{ lambda ; a:f32[2]. let  in (a,) }");
    let lin = CustomLin { name, forward: None, bwd, num_residuals: 0 };
    let other = CustomLin { forward: Some("g".into()), ..lin.clone() };
    assert_eq!(
        eval_op(&other.into(), &x).unwrap_err().message(),
        "forward-mode differentiation of `f` is not defined: it has a reverse rule only; in forward mode use `g`, which has \
         the same values"
    );
    let error = eval_op(&lin.into(), &x).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Differentiation);
    assert_eq!(
        error.to_string(),
        "custom_vjp: forward-mode differentiation of `f` is not defined: it has a reverse rule only (custom_vjp); give it a \
         custom_jvp instead"
    );
}

#[test]
fn scans() {
    // c' = k c + x; y = c.
    let body = jaxpr("{ lambda ; k:i32[] c:i32[] x:i32[]. let d:i32[] = mul k c; e:i32[] = add d x in (e, c) }");
    let scan = |length, reverse| Scan { jaxpr: body.clone(), length, num_consts: 1, num_carry: 1, reverse, unroll: 1 };
    let run = |length: usize, reverse| {
        let xs = vec1(&(1..=length as i32).collect::<Vec<_>>());
        let outs = eval_op(&scan(length, reverse).into(), &[Array::scalar(10), Array::scalar(0), xs]).unwrap();
        [0, 1].map(|i| outs[i].as_slice::<i32>().unwrap().to_vec())
    };
    assert_eq!(run(3, false), [vec![123], vec![0, 1, 12]]);
    assert_eq!(run(3, true), [vec![321], vec![32, 3, 0]]);
    assert_eq!(run(0, false), [vec![0], vec![]]);
    // Without stacked inputs, and with stacked outputs of another shape.
    let body = jaxpr("{ lambda ; k:bf16[2] c:bf16[]. let d:bf16[] = add c 1.0:bf16[]; e:bf16[2] = mul k d in (d, e) }");
    let op = Scan { jaxpr: body, length: 3, num_consts: 1, num_carry: 1, reverse: false, unroll: 1 };
    let k = super::cast(DType::Bf16, &[1.0, 2.0]);
    let outs = eval_op(&op.into(), &[k, Array::scalar(bf16::ZERO)]).unwrap();
    assert_eq!((outs[1].shape(), numbers(&outs[1])), (&[3, 2][..], vec![1.0, 2.0, 2.0, 4.0, 3.0, 6.0]));
    assert_eq!(numbers(&outs[0]), [3.0]);
}

#[test]
fn scans_stack_every_dtype() {
    for dtype in DType::ALL {
        let aval = Aval::new(dtype, [2]);
        let body = jaxpr(&format!("{{ lambda ; a:{aval}. let  in (a,) }}"));
        let x = super::cast(dtype, &[0.0, 1.0, 1.0, 1.0, 0.0, 0.0]).reshaped([3, 2]).unwrap();
        let op = Scan { jaxpr: body, length: 3, num_consts: 0, num_carry: 0, reverse: true, unroll: 1 };
        let out = run(op, std::slice::from_ref(&x));
        assert_eq!((out.aval(), numbers(&out)), (x.aval(), numbers(&x)));
    }
}

#[test]
fn whiles() {
    // While c < limit: c = c * factor.
    let cond = jaxpr("{ lambda ; limit:i32[] c:i32[]. let p:bool[] = lt c limit in (p,) }");
    let body = jaxpr("{ lambda ; factor:i32[] c:i32[]. let d:i32[] = mul c factor in (d,) }");
    let op = While { cond, body, cond_consts: 1, body_consts: 1 };
    let from = |c: i32| run(op.clone(), &[Array::scalar(100), Array::scalar(3), Array::scalar(c)]);
    assert_eq!(numbers(&from(1)), [243.0]);
    assert_eq!(numbers(&from(100)), [100.0]);
}

#[test]
fn branches_are_clamped() {
    let branches = vec![
        jaxpr("{ lambda ; a:f32[]. let b:f32[] = neg a in (b,) }"),
        jaxpr("{ lambda ; a:f32[]. let  in (a,) }"),
        jaxpr("{ lambda ; a:f32[]. let  in (5.0:f32[],) }"),
    ];
    let op = Cond { branches };
    for (index, want) in [(-7, -2.0), (0, -2.0), (1, 2.0), (2, 5.0), (i32::MAX, 5.0)] {
        assert_eq!(numbers(&run(op.clone(), &[Array::scalar(index), Array::scalar(2.0f32)])), [want]);
    }
}

#[test]
fn markers_are_identities() {
    let x = vec1(&[1.0f32, 2.0]);
    let name = Name::new("x");
    assert!(run(name, std::slice::from_ref(&x)).shares_data(&x));
    assert!(run(StopGradient, std::slice::from_ref(&x)).shares_data(&x));
    let outs = eval_op(&OptimizationBarrier.into(), &[x.clone(), Array::scalar(1)]).unwrap();
    assert!(outs[0].shares_data(&x) && outs[1].to_literal().unwrap().is_one());
    let host = run(DevicePut { memory: MemorySpace::Host }, std::slice::from_ref(&x));
    assert_eq!((host.aval().to_string(), numbers(&host)), ("f32<host>[2]".into(), vec![1.0, 2.0]));
}
