//! Tensors and jitted functions on several threads; traces that are left by a panic, and traces inside traces.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, mpsc};
use std::thread;

use remat::stages::Compiled;
use remat::{DType, Error, ErrorKind, Jitted, Result, Tensor, grad, jit, named_scope, scan, vmap};

const THREADS: usize = 8;

#[test]
fn tensors_and_compiled_programs_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Tensor>();
    shared::<Error>();
    shared::<Compiled>();
    shared::<Jitted<Tensor, Tensor, fn(&Tensor) -> Tensor>>();
    shared::<Jitted<Vec<Tensor>, Result<(Tensor, Tensor)>, fn(&Vec<Tensor>) -> Result<(Tensor, Tensor)>>>();
}

#[test]
fn one_jitted_function_on_several_threads_is_traced_once() {
    let (traces, start) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let f = jit(|x: &Tensor| {
        traces.fetch_add(1, Ordering::SeqCst);
        // Long enough that every thread comes before the first has ended.
        thread::sleep(std::time::Duration::from_millis(20));
        (x * x + 1).sum(..)
    });
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (f, start) = (&f, &start);
            scope.spawn(move || {
                start.wait();
                for k in 0..20 {
                    let n = (i * 100 + k) as f32;
                    let y = f.call(Tensor::new([n, 2.0])).unwrap().item::<f32>().unwrap();
                    assert_eq!(y, n * n + 6.0);
                }
            });
        }
    });
    assert_eq!(traces.load(Ordering::SeqCst), 1);
    assert_eq!(f.cache_size(), 1);
}

/// Callers that never come with the same argument twice do not fill the memory.
#[test]
fn a_function_keeps_a_bounded_number_of_programs() {
    let f = jit(|x: &Tensor| x + 1);
    for n in 0..5000 {
        f.lower(&Tensor::shape_only([n], remat::DType::F32)).unwrap();
    }
    assert!((1..=2048).contains(&f.cache_size()), "{}", f.cache_size());
    assert_eq!(f.call(Tensor::new([1.5f32])).unwrap().to_vec::<f32>().unwrap(), [2.5]);
}

#[test]
fn a_trace_that_fails_is_tried_again_by_the_next_thread() {
    let (traces, start) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let f = jit(|x: &Tensor| {
        let first = traces.fetch_add(1, Ordering::SeqCst) == 0;
        thread::sleep(std::time::Duration::from_millis(5));
        assert!(!first, "the first trace panics");
        x * 2
    });
    let results: Vec<bool> = thread::scope(|scope| {
        let call = |_| {
            scope.spawn(|| {
                start.wait();
                catch_unwind(AssertUnwindSafe(|| f.call(Tensor::from(1.0f32)).unwrap().item::<f32>().unwrap() == 2.0))
            })
        };
        let threads: Vec<_> = (0..THREADS).map(call).collect();
        threads.into_iter().map(|t| t.join().unwrap().is_ok()).collect()
    });
    assert_eq!(results.iter().filter(|ok| **ok).count(), THREADS - 1);
    assert_eq!(traces.load(Ordering::SeqCst), 2);
}

#[test]
fn functions_that_call_each_other_on_two_threads_do_not_wait_forever() {
    type Function = Jitted<(usize, Tensor), Result<Tensor>, fn(&(usize, Tensor)) -> Result<Tensor>>;
    static EVEN: OnceLock<Function> = OnceLock::new();
    static ODD: OnceLock<Function> = OnceLock::new();
    fn even((depth, x): &(usize, Tensor)) -> Result<Tensor> {
        thread::sleep(std::time::Duration::from_millis(2));
        if *depth == 0 { Ok(x.clone()) } else { Ok(odd_function().call((depth - 1, x * 2))? + 1) }
    }
    fn odd((depth, x): &(usize, Tensor)) -> Result<Tensor> {
        thread::sleep(std::time::Duration::from_millis(2));
        if *depth == 0 { Ok(x.clone()) } else { Ok(even_function().call((depth - 1, x * 3))? + 1) }
    }
    fn even_function() -> &'static Function {
        EVEN.get_or_init(|| jit(even))
    }
    fn odd_function() -> &'static Function {
        ODD.get_or_init(|| jit(odd))
    }
    let start = Barrier::new(2);
    let run = |f: &Function| {
        start.wait();
        f.call((5, Tensor::from(1.0f32))).unwrap().item::<f32>().unwrap()
    };
    let (a, b) = thread::scope(|scope| {
        let (a, b) = (scope.spawn(|| run(even_function())), scope.spawn(|| run(odd_function())));
        (a.join().unwrap(), b.join().unwrap())
    });
    assert_eq!((a, b), (77.0, 113.0));
}

#[test]
fn traces_on_two_threads_do_not_mix() {
    let barrier = Barrier::new(2);
    let program = |n: i32| {
        remat::make_jaxpr(|x: &Tensor| {
            let mut x = x.clone();
            for _ in 0..50 {
                barrier.wait();
                x = named_scope(&format!("thread{n}"), || x * n);
            }
            x
        })(&Tensor::new(vec![1.0f32; n as usize]))
    };
    let (two, three) = thread::scope(|scope| {
        let (two, three) = (scope.spawn(|| program(2).unwrap()), scope.spawn(|| program(3).unwrap()));
        (two.join().unwrap(), three.join().unwrap())
    });
    for (closed, n) in [(two, 2), (three, 3)] {
        assert_eq!(closed.jaxpr.eqns.len(), 50);
        assert!(closed.consts.is_empty());
        for eqn in &closed.jaxpr.eqns {
            assert_eq!(closed.jaxpr.aval(eqn.outs[0]).shape[..], [n]);
            assert_eq!(&*eqn.loc.scope.path(), format!("thread{n}"));
        }
    }
}

#[test]
fn a_panic_in_a_traced_function_leaves_the_thread_as_it_was() {
    let x = Tensor::new([1.0f32, 2.0]);
    let failing = jit(|x: &Tensor| {
        let y = x.sin();
        let inner = grad(|y: &Tensor| named_scope("deep", || -> Tensor { panic!("{}", y.rank().unwrap()) }));
        inner(&y).unwrap()
    });
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| failing.call(x.clone()))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| vmap(|_: &Tensor| -> Tensor { panic!() })(&x))).is_err());
    }
    // No trace is open, none of their scopes is left, and errors have lines of their own again.
    assert_eq!((&x * 2).to_vec::<f32>().unwrap(), [2.0, 4.0]);
    assert_eq!(jit(|x: &Tensor| x * 2).call(x.clone()).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let (line, failed) = (line!(), &x + Tensor::zeros([3], DType::F32));
    let loc = failed.error().unwrap().loc().unwrap();
    assert_eq!((&*loc.scope.path(), loc.site.unwrap().line(), loc.site.unwrap().file()), ("", line, file!()));
    assert_eq!(failing.cache_size(), 0);
}

#[test]
fn a_jitted_function_inside_itself_through_another() {
    fn power(depth: usize, x: &Tensor) -> Result<Tensor> {
        static POWER: OnceLock<Jitted<(usize, Tensor), Result<Tensor>, fn(&(usize, Tensor)) -> Result<Tensor>>> =
            OnceLock::new();
        let body: fn(&(usize, Tensor)) -> Result<Tensor> = |(depth, x)| {
            if *depth == 0 {
                return Ok(x.ones_like());
            }
            let through_another = jit(|x: &Tensor| power(depth - 1, x));
            Ok(through_another.call(x.clone())? * x)
        };
        POWER.get_or_init(|| jit(body)).call((depth, x.clone()))
    }
    let x = Tensor::from(3.0f64);
    assert_eq!(power(4, &x).unwrap().item::<f64>().unwrap(), 81.0);
    assert_eq!(grad(|x: &Tensor| power(4, x))(&x).unwrap().item::<f64>().unwrap(), 108.0);
}

#[test]
fn a_jitted_function_in_loops_and_batches() {
    let double = jit(|x: &Tensor| x * 2);
    let body = |c: &Tensor, x: &Tensor| -> Result<(Tensor, ())> { Ok((double.call(c.clone())? + x, ())) };
    let xs = Tensor::new([1.0f32, 2.0, 3.0]);
    let (sum, ()) = scan(body, &Tensor::from(0.0f32), &xs).unwrap();
    assert_eq!(sum.item::<f32>().unwrap(), 11.0);
    let y = vmap(|x: &Tensor| double.call(x.clone()))(&xs).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
    assert_eq!(double.cache_size(), 1);
}

#[test]
fn a_traced_tensor_on_another_thread_is_an_error() {
    let made = Mutex::new(String::new());
    let f = jit(|x: &Tensor| -> Result<Tensor> {
        let y = x.sin();
        *made.lock().unwrap() = format!("{}:{}:19", file!(), line!() - 1);
        let (send, receive) = mpsc::channel();
        thread::scope(|scope| scope.spawn(|| send.send((&y + 1, y.to_vec::<f32>().unwrap_err())).unwrap()).join())
            .unwrap();
        let (sum, read) = receive.recv().unwrap();
        for (error, operation) in [(sum.error().unwrap(), "add"), (&read, "to_vec")] {
            assert_eq!(error.kind(), ErrorKind::Escaped);
            let expected = format!(
                "{operation}: a tensor (f32[3]) is used on another thread than the one that traces it; it was made at {}. \
                 Return it from the function, and use what that gives",
                made.lock().unwrap()
            );
            assert_eq!(error.to_string().split('\n').next(), Some(&expected[..]));
            assert_eq!(error.loc().unwrap().site.unwrap().file(), file!());
        }
        Ok(sum)
    });
    let error = f.call(Tensor::zeros([3], DType::F32)).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Escaped, "add"));
}

#[test]
fn a_traced_tensor_in_the_trace_of_another_thread_is_an_error() {
    let f = jit(|x: &Tensor| -> Result<Tensor> {
        let there = thread::scope(|scope| scope.spawn(|| jit(|y: &Tensor| x + y).call(Tensor::from(1.0f32))).join());
        there.unwrap()
    });
    let error = f.call(Tensor::from(1.0f32)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Escaped);
    assert!(error.message().contains("on another thread"), "{error}");
}
