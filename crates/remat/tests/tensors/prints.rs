//! `debug_print`: what is printed, how often and in which order, and that nothing else changes.

use remat::{
    Error, ErrorKind, JitOptions, LoopScheme, Mesh, Policy, Result, Tensor, captured, checkpoint, cond, custom_vjp,
    debug_print, fori_loop, grad, jit, jit_with, jvp, scan, scan_checkpointed, shard_map, spec, value_and_grad, vjp,
    vmap, while_loop, while_loop_checkpointed,
};

/// What a function prints, and its result.
fn printed(f: impl FnOnce() -> Result<Tensor>) -> (String, Tensor) {
    let (out, text) = captured(f);
    (text, out.unwrap())
}

fn numbers() -> Tensor {
    Tensor::new([1.0f32, 2.0])
}

#[test]
fn outside_of_programs_it_prints_at_once() {
    let (out, text) = captured(|| debug_print("{:?} and {:.1}", &(numbers(), Tensor::from(0.25f32))));
    out.unwrap();
    assert_eq!(text, "f32[2] [1. 2.] and 0.2\n");
}

#[test]
fn a_compiled_program_prints_in_order_at_each_call() {
    let f = jit(|x: &Tensor| {
        let y = x.exp().sum(..);
        // What it prints is read by nothing else, or later, or is a number of the program.
        debug_print("late {:.2}", &y)?;
        debug_print("dead {}", &(x * 2.0))?;
        debug_print("twice", &())?;
        debug_print("twice", &())?;
        debug_print("number {}", &Tensor::from(3))?;
        debug_print("transposed {}", &x.reshape([2, 1]).t())?;
        Ok(y * x)
    });
    let expected = "late 10.11\ndead [2. 4.]\ntwice\ntwice\nnumber 3\ntransposed [[1. 2.]]\n";
    for _ in 0..2 {
        let (text, out) = printed(|| f.call(numbers()));
        assert_eq!(text, expected);
        assert_eq!(out.shape().unwrap(), [2]);
    }
}

#[test]
fn loops_print_in_each_iteration_and_branches_when_they_run() {
    let f = jit(|x: &Tensor| {
        debug_print("before", &())?;
        let double = |i: &Tensor, x: &Tensor| {
            debug_print("{}: {}", &(i.clone(), x.clone()))?;
            Ok(x * 2.0)
        };
        let last = fori_loop(0, 3, double, x)?;
        let add = |carry: &Tensor, row: &Tensor| {
            debug_print("row {}", row)?;
            Ok((carry + row, ()))
        };
        let (sum, ()) = scan(add, &last.sum(..), &last)?;
        let big = cond(
            &sum.gt(10.0),
            |x: &Tensor| {
                debug_print("big {}", x)?;
                Ok(x.clone())
            },
            |x: &Tensor| {
                debug_print("small {}", x)?;
                Ok(-x)
            },
            &sum,
        )?;
        debug_print("after", &())?;
        Ok(big)
    });
    let expected = "before\n0: [1. 2.]\n1: [2. 4.]\n2: [4. 8.]\nrow 8.0\nrow 16.0\nbig 48.0\nafter\n";
    assert_eq!(printed(|| f.call(numbers())).0, expected);
}

#[test]
fn a_loop_whose_results_are_not_read_prints() {
    let f = jit(|x: &Tensor| {
        let double = |x: &Tensor| {
            debug_print("at {}", x)?;
            Ok(x * 2.0)
        };
        while_loop(|x: &Tensor| x.lt(4.0), double, x)?;
        let add = |carry: &Tensor, row: &Tensor| {
            debug_print("row {} after {}", &(row.clone(), carry.clone()))?;
            Ok((carry + row, ()))
        };
        scan(add, x, &Tensor::new([5.0f32, 6.0]))?;
        Ok(x.clone())
    });
    let expected = "at 1.0\nat 2.0\nrow 5.0 after 1.0\nrow 6.0 after 6.0\n";
    let (text, out) = printed(|| f.call(Tensor::from(1.0f32)));
    assert_eq!((text.as_str(), out.item::<f32>().unwrap()), (expected, 1.0));
}

#[test]
fn a_batch_prints_a_line_for_each_example() {
    let f = |x: &Tensor, y: &Tensor| {
        debug_print("{} with {}", &(x.clone(), y.clone()))?;
        Ok(x * y)
    };
    let inner = vmap(move |(x, y): &(Tensor, Tensor)| f(x, y));
    let expected = "1.0 with 3.0\n2.0 with 4.0\n";
    assert_eq!(printed(|| inner(&(numbers(), Tensor::new([3.0f32, 4.0])))).0, expected);

    // A batch of batches, along other axes, one operand in the inner batch only.
    let y = Tensor::new([10.0f32, 20.0, 30.0]);
    let outer = jit(move |x: &Tensor| {
        let y = y.clone();
        let rows = vmap(move |x: &Tensor| {
            let pairs = vmap(move |(x, y): &(Tensor, Tensor)| f(x, y));
            pairs(&(x.clone(), y.clone()))
        });
        rows(&x.t())
    });
    let x = Tensor::new([[1.0f32, 4.0], [2.0, 5.0], [3.0, 6.0]]);
    let expected = "1.0 with 10.0\n2.0 with 20.0\n3.0 with 30.0\n4.0 with 10.0\n5.0 with 20.0\n6.0 with 30.0\n";
    assert_eq!(printed(|| outer.call(x)).0, expected);
    // What the examples share is printed once, and a batch of none prints nothing.
    let shared = vmap(|x: &Tensor| {
        debug_print("shared {}", &Tensor::from(7))?;
        debug_print("own {}", x)?;
        Ok(x.clone())
    });
    assert_eq!(printed(|| shared(&numbers())).0, "shared 7\nown 1.0\nown 2.0\n");
    assert_eq!(printed(|| shared(&Tensor::zeros([0], remat::DType::F32))).0, "shared 7\n");
}

/// A loss of layers that print, under a policy in regions, scanned or unrolled.
fn loss(policy: Option<Policy>, is_scanned: bool) -> impl Fn(&Tensor) -> Result<Tensor> + Clone + 'static {
    move |x: &Tensor| {
        let layer = |x: &Tensor| {
            let hidden = x.sin().named("hidden");
            debug_print("hidden {:.3}", &hidden)?;
            Ok(hidden.exp() * x)
        };
        let layer = checkpoint(policy.clone(), layer);
        let out = if is_scanned {
            let rows = Tensor::zeros([3], remat::DType::F32);
            scan(|x: &Tensor, _: &Tensor| Ok((layer(x)?, ())), x, &rows)?.0
        } else {
            layer(&layer(&layer(x)?)?)?
        };
        let sum = out.sum(..);
        debug_print("loss {:.2}", &sum)?;
        Ok(sum)
    }
}

#[test]
fn a_step_prints_its_forward_pass_once_whatever_is_computed_again() {
    let policies = [None, Some(Policy::Nothing), Some(Policy::names(["hidden"])), Some(Policy::Everything)];
    let plain = jit(value_and_grad(|x: &Tensor| {
        let layer = |x: &Tensor| x.sin().exp() * x;
        layer(&layer(&layer(x))).sum(..)
    }));
    let (_, expected) = plain.call(numbers()).unwrap();
    let forward = captured(|| loss(None, false)(&numbers())).1;
    assert_eq!(forward.lines().count(), 4, "{forward}");
    for policy in policies {
        for is_scanned in [false, true] {
            let step = jit(grad(loss(policy.clone(), is_scanned)));
            let (text, gradient) = printed(|| step.call(numbers()));
            assert_eq!(text, forward, "{policy:?} scanned {is_scanned}");
            assert_eq!(gradient.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
            // The derivative of the derivative prints the same.
            let twice = jit(grad({
                let f = loss(policy.clone(), is_scanned);
                move |x: &Tensor| Ok(grad(f.clone())(x)?.sum(..))
            }));
            assert_eq!(printed(|| twice.call(numbers())).0, forward, "twice, {policy:?} scanned {is_scanned}");
        }
    }
}

/// Each form of a program prints the same lines whatever is done with it: nothing is lost, and nothing is printed twice.
#[test]
fn transformations_neither_lose_nor_double_lines() {
    type Function = Box<dyn Fn(&Tensor) -> Result<Tensor>>;
    fn form(f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Function {
        Box::new(f)
    }
    fn tell(word: &str, x: &Tensor) -> Result<()> {
        debug_print(&format!("{word} {{:.3}}"), x)
    }
    let forms: Vec<(&str, Function)> = vec![
        ("a line", form(|x| tell("x", x).map(|()| x.sin()))),
        ("a jit without results", form(|x| jit(|x: &Tensor| tell("jit", x)).call(x.clone()).map(|()| x.sin()))),
        (
            "a branch without results",
            form(|x| cond(&x.gt(0.0), |x: &Tensor| tell("yes", x), |x: &Tensor| tell("no", x), x).map(|()| x.sin())),
        ),
        (
            "a loop with a branch without results",
            form(|x| {
                let body = |s: &Tensor| {
                    cond(&s.gt(3.0), |s: &Tensor| tell("big", s), |_: &Tensor| Ok(()), s)?;
                    Ok(s * 2.0)
                };
                let end = while_loop(|s: &Tensor| tell("before", s).map(|()| s.lt(10.0)), body, x)?;
                Ok(x * end.stop_gradient())
            }),
        ),
        (
            "a checkpointed while loop",
            form(|x| {
                let body = |s: &Tensor| tell("body", s).map(|()| s * 2.0);
                while_loop_checkpointed(2, |s: &Tensor| s.lt(20.0), body, x)
            }),
        ),
        (
            "a binomial scan",
            form(|x| {
                let xs = Tensor::new([0.5f32, 1.5, 2.5, 3.5, 4.5]);
                let body = |c: &Tensor, x: &Tensor| tell("carry", c).map(|()| ((c * x).sin(), ()));
                Ok(scan_checkpointed(LoopScheme::Binomial { states: 2 }, body, x, &xs)?.0)
            }),
        ),
        (
            "a function with its own derivative",
            form(|x| {
                let f = custom_vjp(
                    |x: &Tensor| tell("f", x).map(|()| x.sin()),
                    |x: &Tensor| tell("f", x).map(|()| (x.sin(), x.clone())),
                    |x: &Tensor, ct: &Tensor| Ok(ct * x.cos()),
                );
                f(x)
            }),
        ),
    ];
    let x = Tensor::from(1.5f32);
    let lines = |f: &dyn Fn() -> Result<()>| {
        let (done, text) = captured(f);
        done.map(|()| text)
    };
    for (name, f) in forms {
        let plain = lines(&|| f(&x).map(drop)).unwrap();
        assert!(!plain.is_empty(), "{name}");
        let under = |what: &str, g: &dyn Fn() -> Result<()>| {
            let text = lines(g).unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
            assert_eq!(text, plain, "{name}, {what}");
        };
        under("jit", &|| jit(|x: &Tensor| f(x)).call(x.clone()).map(drop));
        under("grad", &|| grad(|x: &Tensor| f(x))(&x).map(drop));
        under("jit of grad", &|| jit(grad(|x: &Tensor| f(x))).call(x.clone()).map(drop));
        under("vjp", &|| vjp(|x: &Tensor| f(x), &x)?.1.call(&Tensor::from(1.0f32)).map(drop));
        under("a region", &|| {
            let region = checkpoint(Policy::Nothing, |x: &Tensor| f(x));
            jit(grad(move |x: &Tensor| Ok(region(x)?.sin()))).call(x.clone()).map(drop)
        });
        // A branch whose condition is batched runs both ways.
        if name.contains("branch") {
            continue;
        }
        under("a batch of one", &|| vmap(|x: &Tensor| f(x))(&x.reshape([1])).map(drop));
    }
}

/// A mesh of one device: the print is in the body, also if all of its results depend on what is differentiated.
#[test]
fn the_body_of_a_mesh_prints_once_whatever_is_taken_of_it() {
    let mesh = Mesh::new([("data", 1)]).unwrap();
    let scale = Tensor::from(3.0f32);
    let loss = move |x: &Tensor| -> Result<Tensor> {
        let body = |(x, scale): &(Tensor, Tensor)| -> Result<Tensor> {
            debug_print("scale {}", &scale.sin())?;
            Ok((x * scale).sin().sum(..).psum("data"))
        };
        shard_map(&mesh, (spec!["data"], spec![]), spec![], body)(&(x.clone(), scale.clone()))
    };
    let expected = "scale 0.14112\n";
    assert_eq!(printed(|| loss(&numbers())).0, expected);
    assert_eq!(printed(|| jit(loss.clone()).call(numbers())).0, expected);
    assert_eq!(printed(|| grad(loss.clone())(&numbers())).0, expected);
    assert_eq!(printed(|| jit(grad(loss.clone())).call(numbers())).0, expected);
    for policy in [Policy::Nothing, Policy::Everything] {
        let layer = checkpoint(policy, loss.clone());
        assert_eq!(printed(|| jit(grad(layer)).call(numbers())).0, expected);
    }
}

#[test]
fn a_rule_that_does_not_run_does_not_print() {
    // Nothing reads the result, and forward mode of a function with a reverse rule is an error.
    let g = custom_vjp(
        |x: &Tensor| x.sin(),
        |x: &Tensor| (x.sin(), x.clone()),
        |x: &Tensor, ct: &Tensor| debug_print("rule {}", x).map(|()| ct * x.cos()),
    );
    let x = Tensor::from(1.0f32);
    let (out, text) = captured(|| jvp(|x: &Tensor| x * g(x).stop_gradient(), &x, &x));
    assert!((out.unwrap().1.item::<f32>().unwrap() - 1.0f32.sin()).abs() < 1e-6);
    assert_eq!(text, "");
    let (out, text) = captured(|| grad(|x: &Tensor| g(x))(&x));
    assert_eq!((out.unwrap().item::<f32>().unwrap(), text.as_str()), (1.0f32.cos(), "rule 1.0\n"));
}

#[test]
fn a_plan_within_a_limit_prints_once_and_in_order() {
    let f = |x: &Tensor| {
        let mut x = x.clone();
        for layer in 0..6 {
            x = x.sin().matmul(&x.cos());
            debug_print(&format!("layer {layer} {{:.2}}"), &x.max(..))?;
        }
        Ok(x.sum(..))
    };
    let x = Tensor::full([64, 64], 0.125, remat::DType::F32);
    let free = jit(grad(f));
    let (expected, gradient) = printed(|| free.call(x.clone()));
    assert_eq!(expected.lines().count(), 6);
    let peak = free.memory(&x).unwrap().peak;
    let options = JitOptions { memory_limit: Some(peak * 8 / 10), ..JitOptions::default() };
    let limited = jit_with(&options, grad(f));
    let (text, within) = printed(|| limited.call(x.clone()));
    assert_eq!(text, expected);
    assert_eq!(within.to_vec::<f32>().unwrap(), gradient.to_vec::<f32>().unwrap());
}

fn failure(f: impl FnOnce() -> Result<Tensor>) -> Error {
    f().unwrap_err()
}

#[test]
fn a_wrong_text_is_an_error_at_its_line() {
    let error = failure(|| {
        jit(|x: &Tensor| {
            debug_print("{} {}", x)?;
            Ok(x.clone())
        })
        .call(numbers())
    });
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(error.message(), "the text \"{} {}\" has 2 placeholders and got 1 value");
    assert!(error.to_string().contains("prints.rs"), "{error}");
    let error = debug_print("{x}", &numbers()).unwrap_err();
    assert_eq!(error.message(), "{x} in \"{x}\" is none of {}, {:?} and {:.3} (digits below 64)");
    // A tensor that has failed, and an error that is not looked at.
    let failed = numbers() + Tensor::new([1.0f32, 2.0, 3.0]);
    assert_eq!(debug_print("{}", &failed).unwrap_err().kind(), ErrorKind::Shape);
    let error = failure(|| {
        jit(|x: &Tensor| {
            let _ = debug_print("{", x);
            x.clone()
        })
        .call(numbers())
    });
    assert_eq!(error.message(), "a brace in \"{\" is alone; write {{ or }} for a brace");
}
