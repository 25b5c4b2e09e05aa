//! Plans of programs: the fastest within a number of bytes, the smallest at a price, and the curve between.

use std::ops::Range;
use std::sync::LazyLock;

use remat::argument::keep;
use remat::ir::{Array, Jaxpr, Role};
use remat::report::{LiveKind, LiveRange, LiveRanges, Place};
use remat::{
    Cpu, DType, Device, ErrorKind, JitOptions, Plan, Result, Tensor, grad, jit, jit_with, make_jaxpr, plan, scan,
    value_and_grad,
};
use remat_testkit::sized;

type Layers = Vec<Tensor>;

/// Numbers from -0.2 to 0.2 whose sums are rounded.
fn data(shape: &[usize], seed: usize) -> Tensor {
    let size: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 31 + 3) % 1009) as f64 / 2522.5 - 0.2;
    Tensor::from_vec((0..size).map(number).collect::<Vec<f64>>(), shape).to_dtype(DType::F32)
}

fn layers() -> Layers {
    (0..8).map(|seed| data(&[64, 64], seed)).collect()
}

fn loss(layers: &Layers) -> Tensor {
    let layer = |x: Tensor, w: &Tensor| {
        let centred = &x - x.mean(keep(-1));
        let norm = &centred * (centred.square().mean(keep(-1)) + 1e-5).rsqrt();
        x + norm.matmul(w).tanh().named("hidden")
    };
    layers.iter().fold(data(&[256, 64], 100), layer).square().sum(..)
}

fn step(layers: &Layers) -> Result<Layers> {
    let gradients = grad(loss)(layers)?;
    Ok(layers.iter().zip(&gradients).map(|(w, g)| w - g * 0.01).collect())
}

fn bits(results: &Layers) -> Vec<u32> {
    let numbers = |x: &Tensor| x.to_vec::<f32>().unwrap_or_else(|e| panic!("{e}"));
    results.iter().flat_map(numbers).map(f32::to_bits).collect()
}

fn planned() -> Plan {
    plan(step, layers()).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a plan in both ways, and checks that it needs the bytes that it says and gives these bits.
fn runs(plan: &Plan, expected: &[u32]) {
    let program = plan.compile().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(program.memory().donated_peak, plan.peak());
    let got = program.call(layers()).unwrap_or_else(|e| panic!("{e}"));
    assert!(bits(&got) == expected, "other numbers at {} bytes", plan.peak());
    let got = jit_with(&plan.options(), step).call(layers()).unwrap_or_else(|e| panic!("{e}"));
    assert!(bits(&got) == expected, "other numbers at {} bytes", plan.peak());
}

#[test]
fn more_bytes_are_never_slower() {
    let free = planned();
    let expected = bits(&jit(step).call(layers()).unwrap_or_else(|e| panic!("{e}")));
    let curve = free.pareto(sized(4, 6)).unwrap_or_else(|e| panic!("{e}"));
    assert!(curve.len() > 2, "{}", curve.len());
    assert!(curve.windows(2).all(|pair| pair[0].peak() < pair[1].peak() && pair[0].overhead() > pair[1].overhead()));
    assert!(curve.iter().all(|plan| plan.repeated() >= plan.bound()));
    let last = curve.last().expect("a curve");
    assert!(last.overhead() <= 0.0 && last.peak() <= free.peak());
    for point in &curve {
        runs(point, &expected);
        let plan = free.for_bytes(point.peak()).unwrap_or_else(|e| panic!("{e}"));
        assert!(plan.peak() <= point.peak() && plan.overhead() <= point.overhead());
    }
}

#[test]
fn live_ranges_add_up_to_the_memory_of_each_plan() {
    let free = planned();
    for plan in free.pareto(4).unwrap_or_else(|e| panic!("{e}")) {
        let program = plan.compile().unwrap_or_else(|e| panic!("{e}"));
        let memory = plan.live_ranges().unwrap_or_else(|e| panic!("{e}"));
        let report = program.memory_report();
        let arena = memory.live_bytes(|range| matches!(range.place, Place::Arena(_)));
        assert_eq!(arena, report.timeline);
        let most = memory.live_bytes(|_| true).into_iter().max().unwrap_or(0);
        // Between values in the arena there may be holes, which no value lies in: here less than half a percent.
        let beside = report.stats.overhead + plan.peak() / 200;
        assert!(most <= plan.peak() && most + beside >= plan.peak(), "{most} {beside} {}", plan.peak());
        // A loop that computes a value again may go on with what reads it, without storing it; and the engine computes values again on its own.
        let is_again = |range: &&LiveRange| {
            range.value.loc.role == Role::Recomputed && range.value.kind == LiveKind::Temporary && range.first.is_some()
        };
        assert!(plan.recomputed().is_empty() || memory.ranges.iter().any(|range| is_again(&range)));
        assert!(memory.ranges.iter().all(|range| range.at.start < range.at.end && range.at.end <= memory.steps.len()));
        overlaps_nowhere(&memory);
    }
}

#[test]
fn live_ranges_are_those_of_the_callers_of_a_plan() {
    let text = "{ lambda ; a:f32[64]. let b:f32[64] = neg a in (b,) }";
    let program: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    for (is_donated, expected) in [(false, 512), (true, 256)] {
        let plan = Plan::of(&program, &[is_donated]).unwrap_or_else(|e| panic!("{e}"));
        let memory = plan.live_ranges().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(memory.live_bytes(|range| range.place == Place::Own), [expected]);
        assert!(plan.peak() >= expected);
    }
}

/// Two values are not at one place of the arena at a time.
fn overlaps_nowhere(memory: &LiveRanges) {
    let in_arena = |range: &LiveRange| match range.place {
        Place::Arena(offset) => Some((offset..offset + range.reserved, range.at.clone())),
        _ => None,
    };
    let placed: Vec<_> = memory.ranges.iter().filter_map(in_arena).collect();
    let meet = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    for (i, (bytes, at)) in placed.iter().enumerate() {
        assert!(!placed[..i].iter().any(|(other, then)| meet(bytes, other) && meet(at, then)), "{bytes:?} at {at:?}");
    }
}

#[test]
fn bytes_and_prices_are_kept() {
    let free = planned();
    let expected = bits(&jit(step).call(layers()).unwrap_or_else(|e| panic!("{e}")));
    for &percent in sized(&[85][..], &[95, 85, 80]) {
        let bytes = free.peak() / 100 * percent;
        let plan = free.for_bytes(bytes).unwrap_or_else(|e| panic!("{percent} %: {e}"));
        assert!(plan.peak() <= bytes && plan.overhead() > 0.0, "{percent} %: {}", plan.peak());
        runs(&plan, &expected);
    }
    let [cheap, dear] = [0.01, 0.1].map(|share| free.for_slowdown(share).unwrap_or_else(|e| panic!("{e}")));
    assert!(cheap.overhead() <= 0.01 && dear.overhead() <= 0.1);
    assert!(dear.peak() < cheap.peak() && cheap.peak() <= free.peak());
    // The search for the least takes longest.
    if sized(false, true) {
        let least = free.minimum().unwrap_or_else(|e| panic!("{e}"));
        assert!(least.peak() <= dear.peak());
        runs(&least, &expected);
    }
    let few = || layers().into_iter().take(2).collect::<Layers>();
    let free = plan(step, few()).unwrap_or_else(|e| panic!("{e}"));
    let least = free.minimum().unwrap_or_else(|e| panic!("{e}"));
    assert!(least.peak() < free.peak() && least.overhead() > 0.0);
    let got = least.compile().and_then(|program| program.call(few())).unwrap_or_else(|e| panic!("{e}"));
    assert!(bits(&got) == bits(&jit(step).call(few()).unwrap_or_else(|e| panic!("{e}"))));
}

#[test]
fn an_explanation_names_what_is_computed_again() {
    let free = planned();
    let text = free.explain().unwrap_or_else(|e| panic!("{e}")).to_string();
    assert!(text.contains("nothing is computed several times\narguments "), "{text}");
    let plan = free.for_bytes(free.peak() / 10 * 8).unwrap_or_else(|e| panic!("{e}"));
    let explanation = plan.explain().unwrap_or_else(|e| panic!("{e}"));
    let text = explanation.to_string();
    assert!(text.contains("computed again, for ") && text.contains("live at the peak:\n  "), "{text}");
    // The name, and the line of the model above.
    assert!(text.contains("tests/rematerialization/plans.rs:"), "{text}");
    assert!(plan.recomputed().iter().any(|value| value.value.operation == Some("dot_general")), "{text}");
    assert_eq!(explanation.memory().stats.donated_peak, plan.peak());
}

#[test]
fn a_plan_is_for_the_callers_who_donate_what_its_argument_does() {
    let kept = layers();
    let free = plan(step, kept.clone()).unwrap_or_else(|e| panic!("{e}"));
    // New layers need memory of their own, in which temporaries may lie first.
    assert!(free.peak() >= planned().peak() + 4 * 64 * 64 * 4, "{} {}", free.peak(), planned().peak());
    let bytes = free.peak() / 10 * 8;
    let limited = free.for_bytes(bytes).unwrap_or_else(|e| panic!("{e}"));
    let step_within = jit_with(&limited.options(), step);
    let expected = bits(&jit(step).call(kept.clone()).unwrap_or_else(|e| panic!("{e}")));
    assert!(bits(&step_within.call(kept.clone()).unwrap_or_else(|e| panic!("{e}"))) == expected);
    let shapes: Layers = (0..8).map(|_| Tensor::shape_only([64, 64], DType::F32)).collect();
    assert_eq!(plan(step, shapes).unwrap_or_else(|e| panic!("{e}")).peak(), planned().peak());
}

#[test]
fn another_program_gets_the_bytes_of_the_plan() {
    let free = planned();
    let limited = free.for_bytes(free.peak() / 10 * 8).unwrap_or_else(|e| panic!("{e}"));
    // The same function of other shapes, which needs less.
    let half: Layers = (0..4).map(|seed| data(&[64, 64], seed)).collect();
    let expected = bits(&jit(step).call(half.clone()).unwrap_or_else(|e| panic!("{e}")));
    assert!(bits(&jit_with(&limited.options(), step).call(half).unwrap_or_else(|e| panic!("{e}"))) == expected);
    // A function that needs more.
    let more = |layers: &Layers| value_and_grad(loss)(&layers.iter().chain(layers).cloned().collect());
    match jit_with(&limited.options(), more).memory(&layers()) {
        Ok(memory) => assert!(memory.donated_peak <= limited.peak(), "{memory}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Memory, "{error}"),
    }
}

#[test]
fn a_jitted_function_has_the_plan_of_its_limit() {
    let peak = planned().peak();
    let options = JitOptions { memory_limit: Some(peak / 10 * 8), ..JitOptions::default() };
    let plan = jit_with(&options, step).plan(layers()).unwrap_or_else(|e| panic!("{e}"));
    assert!(plan.peak() <= peak / 10 * 8 && !plan.recomputed().is_empty());
    assert!(jit(step).plan(layers()).is_ok_and(|plan| plan.recomputed().is_empty()));
}

#[test]
fn programs_of_any_size_have_plans() {
    let tiny = plan(|x: &Tensor| x.clone(), Tensor::from(1.0f32)).unwrap_or_else(|e| panic!("{e}"));
    assert!(tiny.pareto(3).is_ok_and(|curve| curve.len() == 1));
    assert!(tiny.minimum().is_ok_and(|least| least.peak() == tiny.peak()));
    assert!(tiny.for_slowdown(0.0).is_ok_and(|plan| plan.peak() == tiny.peak()));
    let empty =
        plan(|x: &Tensor| x.sin().cumsum(0), Tensor::ones([0, 3], DType::F32)).unwrap_or_else(|e| panic!("{e}"));
    assert!(empty.for_bytes(empty.peak()).is_ok());
    let looped =
        |x: &Tensor| scan(|x: &Tensor, w: &Tensor| (x.matmul(w).tanh(), ()), x, &Tensor::ones([3, 8, 8], DType::F32));
    let looped = plan(move |x: &Tensor| Ok(looped(x)?.0), Tensor::ones([4, 8], DType::F32));
    assert!(looped.is_ok_and(|plan| plan.pareto(4).is_ok()));
}

#[test]
fn what_cannot_be_planned_is_an_error() {
    let free = plan(step, layers().into_iter().take(2).collect()).unwrap_or_else(|e| panic!("{e}"));
    let error = free.for_bytes(1000).err().expect("too little");
    assert_eq!(error.kind(), ErrorKind::Memory);
    let text = error.to_string();
    assert!(text.contains("the limit is 1000 B") && text.contains("live at the peak:"), "{text}");
    // What no plan can lower, and the line of the peak.
    assert!(text.contains("\narguments and results alone take 160.00 KiB (163840 B); the peak is in "), "{text}");
    assert!(text.contains("tests/rematerialization/plans.rs:"), "{text}");
    for share in [-0.1, f64::NAN] {
        let error = free.for_slowdown(share).err().expect("no share").to_string();
        assert!(error.contains("must be a number from 0 on"), "{error}");
    }
    assert!(free.for_slowdown(f64::INFINITY).is_ok());
    let device = Device::new(remat::ir::Reference);
    let options = JitOptions { device: Some(device), ..JitOptions::default() };
    let error = jit_with(&options, step).plan(layers()).err().expect("another device").to_string();
    assert!(error.starts_with("plan: the engine of reference has no plans; the native engine has\n"), "{error}");
    let failing = plan(|x: &Tensor| x.matmul(&Tensor::ones([5], DType::F32)), Tensor::ones([4], DType::F32));
    assert!(failing.is_err());
}

#[test]
fn plans_do_not_depend_on_the_number_of_threads_but_for_scratch_memory() {
    let peaks = [1, 3].map(|threads| {
        let device: Device = Cpu::with_threads(threads).expect("threads start").into();
        let options = JitOptions { device: Some(device), ..JitOptions::default() };
        let free = jit_with(&options, step).plan(layers()).unwrap_or_else(|e| panic!("{e}"));
        let limited = free.for_bytes(free.peak() / 10 * 8).unwrap_or_else(|e| panic!("{e}"));
        runs(&limited, &bits(&jit(step).call(layers()).unwrap_or_else(|e| panic!("{e}"))));
        limited.peak() as f64 / free.peak() as f64
    });
    assert!(peaks.iter().all(|&share| share <= 0.8), "{peaks:?}");
}

/// The plans of a step without a limit and for four fifths of its bytes, made once for the tests that look for nothing else.
fn shared() -> (Plan, Plan) {
    static PLANS: LazyLock<(Plan, Plan)> = LazyLock::new(|| {
        let free = planned();
        let plan = free.for_bytes(free.peak() / 10 * 8).unwrap_or_else(|e| panic!("{e}"));
        (free, plan)
    });
    PLANS.clone()
}

/// The program of a step as text, with the constants that it captures as its first inputs, and which inputs are donated.
fn written() -> (Jaxpr, Vec<Tensor>, Vec<bool>) {
    let program = make_jaxpr(step)(&layers()).unwrap_or_else(|e| panic!("{e}"));
    let tensor = |array: &Array| Tensor::from_vec(array.as_slice::<f64>().expect("f64").to_vec(), &*array.aval().shape);
    let consts: Vec<Tensor> = program.consts.iter().map(tensor).collect();
    let program: Jaxpr = program.jaxpr.to_string().parse().unwrap_or_else(|e| panic!("{e}"));
    let donated = (0..program.ins.len()).map(|input| input >= consts.len()).collect();
    (program, consts, donated)
}

#[test]
fn a_program_that_is_read_has_the_plans_of_the_function() {
    let ((program, consts, donated), (of_step, of_function)) = (written(), shared());
    let free = Plan::of(&program, &donated).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(free.peak(), of_step.peak());
    let plan = free.for_bytes(free.peak() / 10 * 8).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((plan.peak(), plan.overhead()), (of_function.peak(), of_function.overhead()));
    // Text has no lines.
    let [text, _] =
        [plan.explain(), of_function.explain()].map(|text| text.unwrap_or_else(|e| panic!("{e}")).to_string());
    assert!(text.contains("dot_general") && !text.contains("tests/rematerialization/plans.rs"), "{text}");
    let arguments = consts.into_iter().chain(layers()).collect();
    let got = plan.compile().and_then(|program| program.call(arguments)).unwrap_or_else(|e| panic!("{e}"));
    assert!(bits(&got) == bits(&jit(step).call(layers()).unwrap_or_else(|e| panic!("{e}"))));
}

#[test]
fn programs_that_cannot_be_planned_are_errors() {
    let program: Jaxpr = "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = add a b in (c,) }".parse().expect("a program");
    let error = Plan::of(&program, &[true]).err().expect("one is missing").to_string();
    assert!(error.contains("the program has 2 inputs, and `donated` has 1: one for each is expected"), "{error}");
    assert!(error.contains("tests/rematerialization/plans.rs:"), "{error}");
    let wrong = "{ lambda ; a:f32[3]. let b:f32[4] = sin a in (b,) }";
    let wrong = Jaxpr::parse_unchecked(wrong).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(Plan::of(&wrong, &[true]).err().map(|error| error.kind()), Some(ErrorKind::Check));
    let options = JitOptions { memory_limit: Some(1), ..JitOptions::default() };
    let error = Plan::of_with(&options, &program, &[true, true]).err().expect("too little");
    assert_eq!(error.kind(), ErrorKind::Memory);
    let empty: Jaxpr = "{ lambda ; . let  in () }".parse().expect("a program");
    assert!(Plan::of(&empty, &[]).is_ok_and(|plan| plan.minimum().is_ok()));
}

#[test]
fn a_compiled_program_has_the_plan_as_which_it_runs() {
    let (free, limited) = shared();
    // Compiled as a function of which no plan is known, and as planned.
    let plain = jit(step).lower(&layers()).and_then(|lowered| lowered.compile());
    for (program, of) in [(plain, &free), (limited.compile(), &limited)] {
        let program = program.unwrap_or_else(|e| panic!("{e}"));
        let plan = program.plan().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((plan.peak(), plan.overhead()), (of.peak(), of.overhead()));
        assert_eq!(plan.peak(), program.memory().donated_peak);
        assert_eq!(plan.recomputed().len(), of.recomputed().len());
        assert!(plan.for_bytes(free.peak()).is_ok_and(|free| free.overhead() <= 0.0));
    }
    let reference = JitOptions { device: Some(Device::new(remat::ir::Reference)), ..JitOptions::default() };
    let program = jit_with(&reference, step).lower(&layers()).and_then(|lowered| lowered.compile());
    let error = program.and_then(|program| program.plan()).err().expect("another engine").to_string();
    assert!(error.starts_with("plan: the engine of reference has no plans; the native engine has\n"), "{error}");
}

#[test]
fn a_file_has_the_plan_without_a_search() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("step.plan");
    let (free, plan) = shared();
    plan.save(&path).unwrap_or_else(|e| panic!("{e}"));
    let loaded = planned().load(&path).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((loaded.peak(), loaded.overhead()), (plan.peak(), plan.overhead()));
    assert_eq!(loaded.recomputed().len(), plan.recomputed().len());
    runs(&loaded, &bits(&jit(step).call(layers()).unwrap_or_else(|e| panic!("{e}"))));
    // The same program whose lines are others, in this case none; its constants come first.
    let (program, _, donated) = written();
    let read = Plan::of(&program, &donated).and_then(|plan| plan.load(&path)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(read.peak(), plan.peak());
    // A plan that replaces it, and one in which nothing is computed again.
    free.save(&path).unwrap_or_else(|e| panic!("{e}"));
    assert!(free.load(&path).is_ok_and(|plan| plan.recomputed().is_empty() && plan.peak() == free.peak()));
    let left = folder.path().read_dir().expect("a folder").count();
    assert_eq!(left, 1, "files are left");
}

#[test]
fn a_file_of_another_program_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("step.plan");
    let says = |plan: &Plan, kind: ErrorKind, expected: &str| {
        let error = plan.load(&path).err().unwrap_or_else(|| panic!("{expected}"));
        let expected = expected.replace("FILE", &format!("`{}`", path.display()));
        assert!(error.kind() == kind && error.message().starts_with(&expected), "{error}");
        assert!(error.to_string().contains("tests/rematerialization/plans.rs:"), "{error}");
    };
    let (free, _) = shared();
    says(&free, ErrorKind::Io, "cannot read FILE: ");
    free.save(&path).unwrap_or_else(|e| panic!("{e}"));
    let smaller: Layers = (0..4).map(|seed| data(&[64, 64], seed)).collect();
    let smaller = plan(step, smaller).unwrap_or_else(|e| panic!("{e}"));
    says(&smaller, ErrorKind::Argument, "FILE is of another program, or of other sizes of it");
    let other = plan(|layers: &Layers| grad(loss)(layers), layers()).unwrap_or_else(|e| panic!("{e}"));
    says(&other, ErrorKind::Argument, "FILE is of another program, or of other sizes of it");
    let kept = layers();
    let keeping = plan(step, kept.clone()).unwrap_or_else(|e| panic!("{e}"));
    says(&keeping, ErrorKind::Argument, "FILE is for callers who donate other arguments");
    let device: Device = Cpu::with_threads(7).expect("threads start").into();
    let options = JitOptions { device: Some(device), ..JitOptions::default() };
    let threaded = jit_with(&options, step).plan(layers()).unwrap_or_else(|e| panic!("{e}"));
    let threads = Device::cpu().engine().threads().expect("threads start");
    says(&threaded, ErrorKind::Argument, &format!("FILE is for {threads} threads, and the engine has 7"));
    std::fs::write(&path, "remat plan 1\nversion").expect("a file");
    says(&threaded, ErrorKind::Parse, "FILE is cut off after 20 bytes");
    std::fs::write(&path, "{\"steps\": []}").expect("a file");
    says(&threaded, ErrorKind::Parse, "FILE is not a plan");
    let error = threaded.save(folder.path()).expect_err("a folder").to_string();
    assert!(error.contains("is not a file, and is not replaced by one"), "{error}");
    let error = threaded.load(folder.path()).err().expect("a folder").to_string();
    assert!(error.contains("it is not a file"), "{error}");
    let error = threaded.save(folder.path().join("missing/step.plan")).expect_err("no folder").to_string();
    assert!(error.contains("cannot write `"), "{error}");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 1, "files are left");
}
