use remat_ir::{ErrorKind, Jaxpr, MemorySpace, Policy};

use crate::program;

#[track_caller]
fn fails(text: &str, message: &str) {
    assert_eq!(Jaxpr::parse(text).unwrap_err().to_string(), message);
}

#[test]
fn white_space_and_comments_mean_nothing() {
    let text = "{lambda;a:f32[2,3]b:f32[].let # the start\n c:f32[2,3]=sin a d:f32[]=cos\nb;in(c,d)}#end";
    let expected = "\
{ lambda ; a:f32[2,3] b:f32[]. let
    c:f32[2,3] = sin a
    d:f32[] = cos b
  in (c, d) }";
    assert_eq!(program(text).to_string(), expected);
    assert_eq!(text.parse::<Jaxpr>().unwrap().to_string(), expected);
}

#[test]
fn a_variable_may_be_called_in() {
    let text = "{ lambda ; in:f32[]. let let:f32[] = sin in; lambda:f32[] = sin let in (in, lambda) }";
    assert_eq!(program(text).to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = sin b in (a, c) }");
}

#[test]
fn errors_of_form_have_line_and_column_and_what_was_expected() {
    fails("", "parse: line 1, column 1: expected `{`, found the end");
    fails("{ lambda ; a:f32[]. let\n  in (a,)", "parse: line 2, column 10: expected `}`, found the end");
    fails("{ lambda ; a:f33[]. let in (a,) }", "parse: line 1, column 14: expected a dtype, found `f33`");
    fails("{ lambda ; a:f32[-1]. let in (a,) }", "parse: line 1, column 18: expected a size, found `-1`");
    let input = |aval: &str| format!("{{ lambda ; a:{aval}. let b:f32[] = sin 1.0:f32[] in (b,) }}");
    let large = "f32[2,9223372036854775808]";
    fails(&input(large), &format!("parse: line 1, column 14: {large} has more than 2^63 elements"));
    let zero = "f32[2,9223372036854775808,0]";
    fails(&input(zero), &format!("parse: line 1, column 14: {zero} has more than 2^63 elements"));
    let bytes = "f64[1152921504606846976]";
    fails(&input(bytes), &format!("parse: line 1, column 14: {bytes} takes more than 2^63 bytes"));
    assert!(Jaxpr::parse_unchecked(&input(large)).is_err());
    program(&input("f64[1152921504606846975]"));
    fails("{ lambda ; a:f32<disk>[]. let in (a,) }", "parse: line 1, column 18: expected a memory space, found `disk`");
    fails("{ lambda ; a. let in (a,) }", "parse: line 1, column 12: expected an input or `.`, found `a`");
    fails("{ lambda a:f32[]. let in (a,) }", "parse: line 1, column 17: expected an input or `;`, found `.`");
    fails("{ lambda ; . let b in () }", "parse: line 1, column 18: expected an equation or `in (`, found `b`");
    fails("{ lambda ; . let b:f32[] in () }", "parse: line 1, column 26: expected an output or `=`, found `in`");
    fails("{ lambda ; . let in (+) }", "parse: line 1, column 22: unexpected character `+`");
    fails("{ lambda ; . let in () } x", "parse: line 1, column 26: expected the end, found `x`");
    fails("{ lambda ; a:f32[] a:f32[]. let in () }", "parse: line 1, column 20: `a` is defined twice");
    fails("{ lambda ; . let in (a,) }", "parse: line 1, column 22: `a` is not defined");
    fails("{ lambda ; . let in (_,) }", "parse: line 1, column 22: `_` is not defined");
    fails("{ lambda ; . let in (300:u8[],) }", "parse: line 1, column 22: `300` is not a value of u8");
    fails("{ lambda ; . let in (1.5:i32[],) }", "parse: line 1, column 22: `1.5` is not a value of i32");
    fails("{ lambda ; . let in (2:bool[],) }", "parse: line 1, column 22: `2` is not a value of bool");
    fails("{ lambda ; . let in (nan(0x1):f32[],) }", "parse: line 1, column 22: `nan` is not a value of f32");
    fails("{ lambda ; . let in (1, 2) }", "parse: line 1, column 22: expected an output or `)`, found `1`");
}

#[test]
fn errors_of_equations_name_the_operation() {
    let with = |eqn: &str| format!("{{ lambda ; a:f32[3]. let\n    {eqn}\n  in () }}");
    fails(&with("b:f32[3] = sine a"), "sine: line 2, column 16: there is no operation of this name");
    fails(&with("b:f32[3] = name a"), "name: line 2, column 16: parameter `name` is missing");
    fails(&with("b:f32[3] = name[name=3] a"), "name: line 2, column 16: parameter `name` is not a word");
    fails(
        &with("b:f32[3] = name[keep=you name=x] a"),
        "name: line 2, column 16: parameter `keep` is neither planner nor everyone",
    );
    fails(&with("b:f32[3] = name[name=x size=3] a"), "name: line 2, column 16: parameter `size` is unknown");
    fails(&with("b:f32[3] = name[name=x name=y] a"), "parse: line 2, column 28: parameter `name` is given twice");
    fails(&with("b:f32[3] = name[name=\"x] a"), "parse: line 2, column 26: the string has no end");
    fails(&with("b:f32[3] = name[name=\"\\q\"] a"), "parse: line 2, column 26: `\\q` is not an escape");
    fails(&with("b:f32[3] = name[name=] a"), "parse: line 2, column 26: expected a value, found `]`");
    fails(&with("b:f32[3] = sin a a"), "sin: line 2, column 16: takes 1 operands and got 2");
    fails(&with("b:f32[4] = sin a"), "sin: line 2, column 5: `b` is written as f32[4] and the result is f32[3]");
    fails(&with("b:f32[3] c:f32[3] = sin a"), "sin: line 2, column 25: gives 1 result and the equation has 2 outputs");
    fails(&with("b:f32[3] = sin b"), "parse: line 2, column 20: `b` is not defined");
    fails(&with("b:f32[3] = jit[name=f jaxpr=g] a"), "parse: line 2, column 33: no program is bound to `g`");
    fails(&with("b:f32[3] = jit[name=f jaxpr=3] a"), "parse: line 2, column 33: expected a program, found `3`");
    let constant = "b:f32[3] = jit[name=f jaxpr={ lambda c:f32[]; . let in () }] a";
    fails(&with(constant), "parse: line 2, column 33: a program inside another has no constants");
    let error = Jaxpr::parse(&with("b:f32[3] = sin a a")).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Argument, "sin"));
}

#[test]
fn programs_bound_ahead() {
    let one = "let f = { lambda ; a:f32[]. let in (a,) } in ";
    fails(&format!("{one}{one}{{ lambda ; . let in () }}"), "parse: line 1, column 50: `f` is bound twice");
    let text = format!("{one}{{ lambda ; f:f32[]. let g:f32[] = jit[name=f jaxpr=f] f in (g,) }}");
    let expected = "\
{ lambda ; a:f32[]. let
    b:f32[] = jit[name=f jaxpr={ lambda ; c:f32[]. let  in (c,) }] a
  in (b,) }";
    assert_eq!(program(&text).to_string(), expected);
}

#[test]
fn bad_policies() {
    let error = |text: &str| text.parse::<Policy>().unwrap_err().to_string();
    assert_eq!(error("7"), "parse: line 1, column 1: expected a policy, found `7`");
    assert_eq!(error("dost"), "parse: line 1, column 1: unknown policy `dost`; did you mean `Dots`?");
    assert_eq!(error("Or(name(a))"), "parse: line 1, column 4: unknown policy `name`; did you mean `Names`?");
    assert_eq!(
        error("dots_savable"),
        "parse: line 1, column 1: unknown policy `dots_savable`; did you mean `dots_saveable`?"
    );
    assert_eq!(
        error("magic_word"),
        "parse: line 1, column 1: unknown policy `magic_word`; the policies are Nothing, Everything, Dots, \
         DotsWithNoBatchDims, Names, AnyNamesBut, AnythingBut, OffloadDotsWithNoBatchDims, OffloadNames, SaveAndOffloadNames, \
         Budget, Or, And, First, Not, Must, Prefer, Custom"
    );
    assert_eq!(error("names"), "parse: line 1, column 6: expected `(`, found the end");
    let none = "`none` is not a policy: without a policy there is no checkpoint; `Nothing` saves nothing";
    for text in ["none", "None"] {
        assert_eq!(error(text), format!("parse: line 1, column 1: {none}"));
    }
    assert_eq!(error("Names(a b)"), "parse: line 1, column 9: expected `,` or `)`, found `b`");
    assert_eq!(error("Or(Dots, 3)"), "parse: line 1, column 10: expected a policy, found `3`");
    assert_eq!(error("must"), "parse: line 1, column 5: expected `(`, found the end");
    assert_eq!(error("prefer(Dots, Dots)"), "parse: line 1, column 12: expected `)`, found `,`");
    assert_eq!(error("Not(Dots, Dots)"), "parse: line 1, column 9: expected `)`, found `,`");
    let size = "expected a number of bytes such as 500000, 64MiB or 1.5GiB";
    for (text, column, found) in [
        ("budget(-1)", 8, "`-1`"),
        ("budget(x)", 8, "`x`"),
        ("budget()", 8, "`)`"),
        ("budget(1.5)", 8, "`1.5`"),
        ("Budget(1e3KiB)", 8, "`1e3KiB`"),
        ("Or(Dots, budget(64 MB))", 17, "`64`"),
    ] {
        assert_eq!(error(text), format!("parse: line 1, column {column}: {size}, found {found}"));
    }
    assert_eq!(error("budget(1, 2)"), "parse: line 1, column 9: expected `)`, found `,`");
    assert_eq!(error("budget"), "parse: line 1, column 7: expected `(`, found the end");
    assert_eq!(error("Dots Dots"), "parse: line 1, column 6: expected the end, found `Dots`");
}

#[test]
fn policies_are_read_as_the_library_the_shell_and_jax_write_them() {
    let names = || Policy::names(["attn", "mlp"]);
    let offload = Policy::save_and_offload_names(["a"], ["b"]);
    let dots_to_host = Policy::OffloadDotsWithNoBatchDims(MemorySpace::Host);
    let cases = [
        ("nothing", Policy::Nothing),
        ("nothing_saveable", Policy::Nothing),
        ("EVERYTHING", Policy::Everything),
        ("everything_saveable", Policy::Everything),
        ("dots_saveable", Policy::Dots),
        ("checkpoint_dots", Policy::Dots),
        ("dots_with_no_batch_dims", Policy::DotsWithNoBatchDims),
        ("dots_with_no_batch_dims_saveable", Policy::DotsWithNoBatchDims),
        ("checkpoint_dots_with_no_batch_dims", Policy::DotsWithNoBatchDims),
        ("names(attn,mlp)", names()),
        ("save_only_these_names(\"attn\", \"mlp\")", names()),
        ("any_names_but(qkv)", Policy::any_names_but(["qkv"])),
        ("save_any_names_but_these(qkv)", Policy::any_names_but(["qkv"])),
        ("anything_but(qkv)", Policy::anything_but(["qkv"])),
        ("save_anything_except_these_names(qkv)", Policy::anything_but(["qkv"])),
        ("offload_dots_with_no_batch_dims(host)", dots_to_host.clone()),
        ("offload_dot_with_no_batch_dims(\"device\", \"pinned_host\")", dots_to_host),
        ("save_and_offload_names((a), (b), host)", offload.clone()),
        ("save_and_offload_only_these_names((a), (b), device, pinned_host)", offload),
        ("budget(64MiB)", Policy::budget(64 << 20)),
        ("Budget(1.5 GiB)", Policy::budget(3 << 29)),
        ("BUDGET(0)", Policy::budget(0)),
        ("budget(1000000)", Policy::budget(1_000_000)),
        ("save_from_both_policies(dots, names(attn, mlp))", Policy::Dots.or(names())),
        ("not(and(dots, first(nothing)))", Policy::Dots.and(Policy::First(vec![Policy::Nothing])).not()),
    ];
    for (text, policy) in cases {
        assert_eq!(text.parse::<Policy>().unwrap(), policy, "{text}");
        assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy, "{text}");
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let nest = |depth: usize| {
        let open = "{ lambda ; a:f32[]. let b:f32[] = jit[name=f jaxpr=".repeat(depth);
        let close = "] a in (b,) }".repeat(depth);
        format!("{open}{{ lambda ; a:f32[]. let in (a,) }}{close}")
    };
    let deepest = program(&nest(200));
    assert_eq!(program(&deepest.to_string()), deepest);
    remat_ir::check(&deepest).unwrap();
    let message = Jaxpr::parse(&nest(100_000)).unwrap_err().to_string();
    assert_eq!(message, "parse: line 1, column 10252: nested deeper than 200");
    for (open, message) in [("(", 1), ("[", 1)] {
        let text = format!("{{ lambda ; . let = name[name={}", open.repeat(100_000));
        let error = Jaxpr::parse(&text).unwrap_err().to_string();
        assert!(error.ends_with("nested deeper than 200"), "{message}: {error}");
    }
    let error = "Not(".repeat(100_000).parse::<Policy>().unwrap_err().to_string();
    assert!(error.ends_with("nested deeper than 200"), "{error}");
}

#[test]
fn no_part_of_a_program_panics() {
    let text = "let f = { lambda ; a:f32[2]. let b:f32[2] = sin a in (b,) } in\n{ lambda c:f32[]; a:f32<host>[2]. let _:f32[] \
                d:f32[2] = jit[name=\"f\\n\" jaxpr=f] a -1.5e-3:f32[] nan(0x7fc00001):f32[] # é\n in (c,) }";
    for end in (0..text.len()).filter(|&i| text.is_char_boundary(i)) {
        for cut in [&text[..end], &text[end..]] {
            assert!(Jaxpr::parse(cut).is_err());
        }
        let without: String = text.char_indices().filter(|&(i, _)| i != end).map(|(_, c)| c).collect();
        assert!(Jaxpr::parse(&without).is_err());
        // Whether this one succeeds depends on the character that is missing.
        if let Ok(jaxpr) = Jaxpr::parse_unchecked(&without) {
            assert!(!format!("{:?}", remat_ir::check(&jaxpr)).is_empty());
        }
    }
}

/// A message quotes the text, but no page of it.
#[test]
fn errors_about_long_words_are_short() {
    let long = "9".repeat(20_000);
    let message = |error: remat_ir::Error| {
        assert!(error.message().chars().count() < 1100, "{error}");
        error.message().to_string()
    };
    let policy = message(format!("dots{long}").parse::<Policy>().unwrap_err());
    assert!(policy.starts_with("line 1, column 1: unknown policy `dots999") && policy.contains("9 … "), "{policy}");
    let programs = [
        format!("{{ lambda ; a:f32[2]. let b:f32[2] = sin[{long}] a in (b,) }}"),
        format!("{{ lambda ; a:f32[2]. let b:f32[2] = é{long} a in (b,) }}"),
    ];
    for program in programs {
        assert!(message(Jaxpr::parse(&program).unwrap_err()).starts_with("line 1, column "));
    }
}
