//! What a gradient of nested control flow costs: the work, counted in blocks of memory that are asked for, grows no faster with the
//! depth than the program that comes out.

use remat::{
    Policy, Result, Tensor, checkpoint, cond, custom_jvp, custom_vjp, grad, jit, make_jaxpr, scan, while_loop,
};
use remat_alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

type Nest = fn(usize, &Tensor) -> Result<Tensor>;

fn of_scans(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    let xs = Tensor::new([0.5f32, 1.5]);
    let body = |c: &Tensor, k: &Tensor| Ok::<_, remat::Error>((of_scans(depth - 1, &(c * k).sin())?, ()));
    Ok(scan(body, x, &xs)?.0)
}

fn of_regions(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    checkpoint(Policy::Nothing, |x: &Tensor| Ok::<_, remat::Error>(of_regions(depth - 1, &x.sin())?.cos()))(x)
}

fn of_plain_regions(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    checkpoint(Policy::Everything, |x: &Tensor| Ok::<_, remat::Error>(of_plain_regions(depth - 1, &x.sin())?.cos()))(x)
}

fn of_budgets(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    checkpoint(Policy::budget(16), |x: &Tensor| Ok::<_, remat::Error>(of_budgets(depth - 1, &x.sin())?.cos()))(x)
}

fn of_branches(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    let positive = x.gt(x.zeros_like());
    cond(
        &positive,
        |x: &Tensor| Ok::<_, remat::Error>(of_branches(depth - 1, &x.sin())?.cos()),
        |x: &Tensor| Ok(x.cos()),
        x,
    )
}

fn of_calls(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    jit(|x: &Tensor| Ok::<_, remat::Error>(of_calls(depth - 1, &x.sin())?.cos())).call(x.clone())
}

fn of_jvp_rules(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    let inner = |x: &Tensor| Ok::<_, remat::Error>(of_jvp_rules(depth - 1, &x.sin())?.cos());
    custom_jvp(inner, |x: &Tensor, t: &Tensor| Ok((inner(x)?, t * x.cos())))(x)
}

fn of_vjp_rules(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    let inner = |x: &Tensor| Ok::<_, remat::Error>(of_vjp_rules(depth - 1, &x.sin())?.cos());
    custom_vjp(inner, |x: &Tensor| Ok((inner(x)?, x.clone())), |x: &Tensor, t: &Tensor| t * x.cos())(x)
}

fn of_loops(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    let small = |(i, _): &(Tensor, Tensor)| i.lt(Tensor::from(3i32));
    let body = |(i, x): &(Tensor, Tensor)| Ok::<_, remat::Error>((i + 1, of_loops(depth - 1, &x.sin())?));
    Ok(while_loop(small, body, &(Tensor::from(0i32), x.clone()))?.1)
}

fn of_all(depth: usize, x: &Tensor) -> Result<Tensor> {
    if depth == 0 {
        return Ok(x.sin());
    }
    let inner = |x: &Tensor| Ok::<_, remat::Error>(of_all(depth - 1, &x.sin())?.cos());
    match depth % 4 {
        0 => Ok(scan(
            |c: &Tensor, k: &Tensor| Ok::<_, remat::Error>((inner(&(c * k))?, ())),
            x,
            &Tensor::new([0.5f32, 1.5]),
        )?
        .0),
        1 => checkpoint(Policy::Nothing, inner)(x),
        2 => cond(&x.gt(x.zeros_like()), inner, |x: &Tensor| Ok(x.cos()), x),
        _ => custom_jvp(inner, |x: &Tensor, t: &Tensor| Ok((inner(x)?, t * x.cos())))(x),
    }
}

/// How many times as many blocks of memory the gradient asks for at twice the depth.
fn growth(nest: Nest) -> f64 {
    let blocks = |depth: usize| {
        let before = ALLOCATOR.allocations();
        // The gradient of a `while` is an error, which is found as soon.
        drop(make_jaxpr(grad(|x: &Tensor| nest(depth, x)))(&Tensor::from(0.3f32)));
        (ALLOCATOR.allocations() - before) as f64
    };
    // Whatever is set up once is set up now.
    blocks(1);
    blocks(32) / blocks(16)
}

/// One test, since the allocator counts what all threads ask for.
#[test]
fn the_work_grows_as_the_program_does() {
    let run = || {
        let linear: [(&str, Nest); 7] = [
            ("everything", of_plain_regions),
            ("cond", of_branches),
            ("jit", of_calls),
            ("custom_jvp", of_jvp_rules),
            ("custom_vjp", of_vjp_rules),
            ("while", of_loops),
            ("all", of_all),
        ];
        // Each loop stacks the residuals of those inside, and each region computes all regions inside it again.
        let quadratic: [(&str, Nest); 3] = [("scan", of_scans), ("nothing", of_regions), ("budget", of_budgets)];
        for (name, nest) in linear {
            let growth = growth(nest);
            assert!(growth < 2.5, "{name}: {growth}");
        }
        for (name, nest) in quadratic {
            let growth = growth(nest);
            assert!(growth < 4.2, "{name}: {growth}");
        }
    };
    // Unoptimised code has large frames.
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(run).expect("a thread");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
