//! Each pattern, and programs that are nearly it.

use super::*;

fn jaxpr(text: &str) -> Jaxpr {
    Jaxpr::parse_unchecked(text).unwrap()
}

fn of_two(body: &str) -> Jaxpr {
    jaxpr(&format!("{{ lambda ; a:f32[] b:f32[]. let {body} in (c,) }}"))
}

#[test]
fn a_fold_is_one_operation_of_both_values() {
    assert_eq!(fold(&of_two("c:f32[] = add a b"), DType::F32), Some(Fold::Sum));
    assert_eq!(fold(&of_two("c:f32[] = add b a"), DType::F32), Some(Fold::Sum));
    assert_eq!(fold(&of_two("c:f32[] = max b a"), DType::F32), Some(Fold::Max));
    let called = "c:f32[] = jit[name=f jaxpr={ lambda ; d:f32[] e:f32[]. let f:f32[] = mul d e in (f,) }] a b";
    assert_eq!(fold(&of_two(called), DType::F32), Some(Fold::Prod));
}

#[test]
fn what_is_nearly_a_fold_is_none() {
    let near = [
        "c:f32[] = sub a b",
        "c:f32[] = add a a",
        "d:f32[] = mul b b; c:f32[] = add a d",
        "d:f32[] = add a b; c:f32[] = add d 1.0:f32[]",
        "d:f32[] = neg b; c:f32[] = max a d",
    ];
    for body in near {
        assert_eq!(fold(&of_two(body), DType::F32), None, "{body}");
    }
    assert!(is_difference(&of_two("c:f32[] = sub a b"), DType::F32));
    assert!(!is_difference(&of_two("c:f32[] = sub b a"), DType::F32));
    assert!(is_second(&jaxpr("{ lambda ; a:f32[] b:f32[]. let in (b,) }")));
    assert!(!is_second(&jaxpr("{ lambda ; a:f32[] b:f32[]. let in (a,) }")));
}

#[test]
fn folds_of_several_arrays_do_not_mix() {
    let body = |c: &str, d: &str| {
        let text =
            format!("{{ lambda ; w:f32[] x:i32[] y:f32[] z:i32[]. let c:f32[] = {c}; d:i32[] = {d} in (c, d) }}");
        folds(&jaxpr(&text), &[DType::F32, DType::I32])
    };
    assert_eq!(body("add w y", "max z x"), Some(vec![Fold::Sum, Fold::Max]));
    assert_eq!(body("add w y", "max x x"), None);
}

#[test]
fn only_the_value_that_changes_nothing_is_an_identity() {
    let (zero, one) = (Literal::from_f64(DType::F32, 0.0), Literal::from_f64(DType::F32, 1.0));
    assert!(Fold::Sum.is_identity(zero) && !Fold::Sum.is_identity(one));
    assert!(Fold::Prod.is_identity(one) && !Fold::Prod.is_identity(zero));
    assert!(Fold::Max.is_identity(Literal::from_f64(DType::F32, f64::NEG_INFINITY)));
    assert!(!Fold::Max.is_identity(Literal::from_f64(DType::F32, f64::from(f32::MIN))));
    assert!(Fold::Max.is_identity(Literal::from_i128(DType::I8, -128)));
    assert!(Fold::Min.is_identity(Literal::from_i128(DType::U8, 255)));
    assert!(Fold::And.is_identity(Literal::from_bool(true)) && !Fold::And.is_identity(Literal::from_bool(false)));
}

/// The body of argmax, with some operations replaced.
fn arg_body(better: &str, position: &str, chosen: &str) -> Jaxpr {
    jaxpr(&format!(
        "{{ lambda ; a:f32[] i:i32[] b:f32[] j:i32[]. let
            c:bool[] = {better}
            d:bool[] = ne a a
            e:bool[] = or c d
            f:bool[] = eq a b
            g:bool[] = {position}
            h:bool[] = and f g
            k:bool[] = or e h
            l:f32[] = select_n e b a
            m:i32[] = {chosen}
          in (l, m) }}"
    ))
}

#[test]
fn an_argmax_takes_the_first_of_equal_values_and_a_nan() {
    let find = |body: Jaxpr| arg_reduce(&body, DType::F32, DType::I32);
    assert_eq!(find(arg_body("gt a b", "lt i j", "select_n k j i")), Some(ArgKind::Max));
    assert_eq!(find(arg_body("lt b a", "lt i j", "select_n k j i")), Some(ArgKind::Max));
    assert_eq!(find(arg_body("lt a b", "lt i j", "select_n k j i")), Some(ArgKind::Min));
    // The last of equal values; a comparison that keeps equal values; the other position; positions without the rule for equal values.
    assert_eq!(find(arg_body("gt a b", "gt i j", "select_n k j i")), None);
    assert_eq!(find(arg_body("ge a b", "lt i j", "select_n k j i")), None);
    assert_eq!(find(arg_body("gt a b", "lt i j", "select_n k i j")), None);
    assert_eq!(find(arg_body("gt a b", "lt i j", "select_n e j i")), None);
}

#[test]
fn a_selection_of_windows_keeps_the_first() {
    assert_eq!(
        selection(&jaxpr("{ lambda ; a:f32[] b:f32[]. let c:bool[] = ge a b in (c,) }"), DType::F32),
        Some(ArgKind::Max)
    );
    assert_eq!(
        selection(&jaxpr("{ lambda ; a:f32[] b:f32[]. let c:bool[] = ge b a in (c,) }"), DType::F32),
        Some(ArgKind::Min)
    );
    assert_eq!(selection(&jaxpr("{ lambda ; a:f32[] b:f32[]. let c:bool[] = gt a b in (c,) }"), DType::F32), None);
}

/// A comparison of one pair of floats by their total order, made canonical or not.
fn comparison(is_canonical: bool, op: Compare) -> Jaxpr {
    let written = program(&[DType::F32; 2], |b, ins| {
        let mut key =
            |x: Atom| if is_canonical { key_of(b, x, DType::F32) } else { crate::order::total_order(b, x, DType::F32) };
        let [x, y] = [key(ins[0])?, key(ins[1])?];
        b.emit1(op.into(), &[x, y])
    });
    written.unwrap()
}

#[test]
fn a_sort_compares_as_jax_does() {
    assert_eq!(sort_keys(&comparison(true, Compare::Lt), &[DType::F32]), Some(1));
    assert_eq!(sort_keys(&comparison(true, Compare::Gt), &[DType::F32]), None);
    assert_eq!(sort_keys(&comparison(true, Compare::Le), &[DType::F32]), None);
    assert_eq!(sort_keys(&comparison(false, Compare::Lt), &[DType::F32]), None);
    // The plain comparison of floats leaves NaNs where they are.
    assert_eq!(sort_keys(&jaxpr("{ lambda ; a:f32[] b:f32[]. let c:bool[] = lt a b in (c,) }"), &[DType::F32]), None);
    let of_integers = "{ lambda ; a:i32[] b:i32[] x:f32[] y:f32[]. let c:bool[] = lt a b in (c,) }";
    assert_eq!(sort_keys(&jaxpr(of_integers), &[DType::I32, DType::F32]), Some(1));
    let of_second = "{ lambda ; a:i32[] b:i32[] x:i32[] y:i32[]. let c:bool[] = lt x y in (c,) }";
    assert_eq!(sort_keys(&jaxpr(of_second), &[DType::I32, DType::I32]), None);
    let of_both = "{ lambda ; a:i32[] b:i32[] x:i32[] y:i32[]. let
        c:bool[] = lt x y; d:bool[] = eq a b; e:bool[] = and d c; f:bool[] = lt a b; g:bool[] = or f e in (g,) }";
    assert_eq!(sort_keys(&jaxpr(of_both), &[DType::I32, DType::I32]), Some(2));
}

#[test]
fn a_logarithm_of_sums_is_that_of_jax() {
    let written = |last: Binary| {
        program(&[DType::F32; 2], |b, ins| {
            let (x, y) = (ins[0], ins[1]);
            let most = b.emit1(Binary::Max.into(), &[x, y])?;
            let delta = b.emit1(Binary::Sub.into(), &[x, y])?;
            let is_nan = b.emit1(Compare::Ne.into(), &[delta, delta])?;
            let sum = b.emit1(Binary::Add.into(), &[x, y])?;
            let size = b.emit1(Unary::Abs.into(), &[delta])?;
            let minus = b.emit1(Unary::Neg.into(), &[size])?;
            let exp = b.emit1(Unary::Exp.into(), &[minus])?;
            let log = b.emit1(Unary::Log1p.into(), &[exp])?;
            let result = b.emit1(last.into(), &[most, log])?;
            b.emit1(SelectN.into(), &[is_nan, result, sum])
        })
        .unwrap()
    };
    assert!(is_log_add_exp(&written(Binary::Add), DType::F32));
    assert!(!is_log_add_exp(&written(Binary::Sub), DType::F32));
}

/// A loop of a counter, an array to fill and a carry, over the slices of a constant.
fn looped(cond: &str, body: &str) -> Option<String> {
    let mut b = Builder::new();
    let aval = |shape: &[usize]| remat_ir::Aval::new(DType::F32, shape.iter().copied());
    let [xs, ys, c] = [b.input(aval(&[5, 3])), b.input(aval(&[5, 3])), b.input(aval(&[3]))];
    let looped = Loop {
        cond: jaxpr(&format!("{{ lambda ; i:i32[] y:f32[5,3] c:f32[3]. let {cond} in (h,) }}")),
        cond_consts: Vec::new(),
        body: jaxpr(&format!("{{ lambda ; x:f32[5,3] i:i32[] y:f32[5,3] c:f32[3]. let {body} in (j, w, d) }}")),
        body_consts: vec![xs],
        inits: vec![Literal::from_i128(DType::I32, 0).into(), ys, c],
    };
    let (scan, operands, places) = as_scan(&looped)?;
    let count = |prefix: &str| scan.jaxpr.to_string().matches(prefix).count();
    Some(format!(
        "{} iterations, {} constants, {} carries, {} operands, backward {}, {} slices, {} writes, counter {:?}",
        scan.length,
        scan.num_consts,
        scan.num_carry,
        operands.len(),
        scan.reverse,
        count("dynamic_slice["),
        count("dynamic_update_slice "),
        places[0]
    ))
}

const COND: &str = "h:bool[] = lt i 5:i32[]";

fn body(at: &str, step: &str, write: &str, next: &str) -> String {
    format!(
        "{at}
        s:f32[1,3] = dynamic_slice[slice_sizes=(1, 3)] x k 0:i32[]
        r:f32[3] = reshape[new_sizes=(3,)] s
        d:f32[3] = {next}
        u:f32[1,3] = reshape[new_sizes=(1, 3)] d
        w:f32[5,3] = dynamic_update_slice {write}
        j:i32[] = {step}"
    )
}

#[test]
fn a_loop_over_slices_is_a_scan() {
    let forward = body("k:i32[] = add i 0:i32[]", "add i 1:i32[]", "y u i 0:i32[]", "add c r");
    // Only `i` itself is the counter: `i + 0` is another expression, so that this slice stays one.
    let expected =
        "5 iterations, 1 constants, 2 carries, 3 operands, backward false, 1 slices, 0 writes, counter Result(0)";
    assert_eq!(looped(COND, &forward).unwrap(), expected);
    let wrapped = "a:bool[] = lt i 0:i32[]; b:i32[] = add i 5:i32[]; k:i32[] = select_n a i b";
    let forward = body(wrapped, "add 1:i32[] i", "y u k 0:i32[]", "add c r");
    let expected = "5 iterations, 0 constants, 1 carries, 2 operands, backward false, 0 slices, 0 writes, counter Literal(5:i32[])";
    assert_eq!(looped(COND, &forward).unwrap(), expected);
    let backward =
        body("e:i32[] = sub 5:i32[] i; k:i32[] = sub e 1:i32[]", "add i 1:i32[]", "y u k 0:i32[]", "add c r");
    let expected =
        "5 iterations, 0 constants, 1 carries, 2 operands, backward true, 0 slices, 0 writes, counter Literal(5:i32[])";
    assert_eq!(looped(COND, &backward).unwrap(), expected);
}

#[test]
fn a_scan_may_have_operations_without_operands() {
    let at = "q:f32[3] = iota[dimension=0 dtype=float32 shape=(3,)]; e:i32[] = sub 5:i32[] i; k:i32[] = sub e 1:i32[]";
    let counted = body(at, "add i 1:i32[]", "y u k 0:i32[]", "add q r");
    let expected =
        "5 iterations, 0 constants, 1 carries, 2 operands, backward true, 0 slices, 0 writes, counter Literal(5:i32[])";
    assert_eq!(looped(COND, &counted).unwrap(), expected);
}

#[test]
fn what_is_nearly_a_scan_keeps_its_slices() {
    let k = "k:i32[] = sub 4:i32[] i";
    // Slices in both directions: those of one stay.
    let mixed = body(k, "add i 1:i32[]", "y u i 0:i32[]", "add c r");
    let expected =
        "5 iterations, 1 constants, 2 carries, 3 operands, backward false, 1 slices, 0 writes, counter Result(0)";
    assert_eq!(looped(COND, &mixed).unwrap(), expected);
    // An array that is read as well as written.
    let read = body(k, "add i 1:i32[]", "y u k 0:i32[]", "reduce_sum[axes=(0,)] y");
    let expected =
        "5 iterations, 0 constants, 3 carries, 3 operands, backward true, 0 slices, 1 writes, counter Result(0)";
    assert_eq!(looped(COND, &read).unwrap(), expected);
    // Fewer iterations than slices.
    let short = body(k, "add i 1:i32[]", "y u k 0:i32[]", "add c r");
    let expected =
        "4 iterations, 1 constants, 3 carries, 4 operands, backward false, 1 slices, 1 writes, counter Result(0)";
    assert_eq!(looped("h:bool[] = lt i 4:i32[]", &short).unwrap(), expected);
}

#[test]
fn a_second_counter_that_wraps_numbers_no_slices() {
    let slices = |length: usize| {
        let mut b = Builder::new();
        let aval = |shape: &[usize]| remat_ir::Aval::new(DType::F32, shape.iter().copied());
        let [xs, c] = [b.input(aval(&[length, 3])), b.input(aval(&[3]))];
        let cond = format!("{{ lambda ; i:i32[] k:i8[] c:f32[3]. let h:bool[] = lt i {length}:i32[] in (h,) }}");
        let body = format!(
            "{{ lambda ; x:f32[{length},3] i:i32[] k:i8[] c:f32[3]. let
                s:f32[1,3] = dynamic_slice[slice_sizes=(1, 3)] x k 0:i8[]
                r:f32[3] = reshape[new_sizes=(3,)] s
                d:f32[3] = add c r
                j:i32[] = add i 1:i32[]
                l:i8[] = add k 1:i8[]
              in (j, l, d) }}"
        );
        let zero = |dtype| Literal::from_i128(dtype, 0).into();
        let looped = Loop {
            cond: jaxpr(&cond),
            cond_consts: Vec::new(),
            body: jaxpr(&body),
            body_consts: vec![xs],
            inits: vec![zero(DType::I32), zero(DType::I8), c],
        };
        as_scan(&looped).map(|(scan, ..)| scan.jaxpr.to_string().matches("dynamic_slice[").count())
    };
    assert_eq!(slices(100), Some(0));
    // Behind 127 comes -128, whose slice is not the next one.
    assert_eq!(slices(300), Some(1));
}

#[test]
fn what_counts_otherwise_is_no_scan() {
    let plain = |step: &str| body("k:i32[] = add i 0:i32[]", step, "y u i 0:i32[]", "add c r");
    assert_eq!(looped(COND, &plain("add i 2:i32[]")), None);
    assert_eq!(looped(COND, &plain("sub i 1:i32[]")), None);
    assert_eq!(looped(COND, &plain("add i i")), None);
    assert_eq!(looped("h:bool[] = le i 5:i32[]", &plain("add i 1:i32[]")), None);
    assert_eq!(looped("h:bool[] = ne i 5:i32[]", &plain("add i 1:i32[]")), None);
    let also = "g:bool[] = lt i 5:i32[]; h:bool[] = and g True:bool[]";
    assert_eq!(looped(also, &plain("add i 1:i32[]")), None);
}
