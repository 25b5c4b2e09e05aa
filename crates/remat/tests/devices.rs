//! Tensors on devices of XLA: where operations run, what moves, and errors that name both devices and the user's line.

use std::process::Command;

use remat::ahead::AheadOptions;
use remat::nn::{Block, cross_entropy};
use remat::optim::{AdamW, Moments, Optimizer, Schedule};
use remat::{
    Cpu, DType, Device, JitOptions, Mesh, Policy, Sharding, Shardings, Tensor, checkpoint, eval_shape, grad, jit,
    jit_with, make_jaxpr, random, scan, spec, tree, value_and_grad,
};
use remat_ir::{Pass, Reference};
use remat_opt::pipeline;
use remat_testkit::installed;

/// The device for tests, where its plugin is installed.
fn xla() -> Option<Device> {
    installed("devices of XLA", Device::xla_cpu(0))
}

fn name(tensor: &Tensor) -> String {
    tensor.device().unwrap().name().to_string()
}

/// The line of an error.
fn line(error: &remat::Error) -> Option<u32> {
    error.loc().and_then(|loc| loc.site).map(|site| site.line())
}

#[test]
fn operations_run_where_an_operand_lives() {
    let Some(device) = xla() else { return };
    let x = Tensor::new([1.0f32, 2.0, 3.0]);
    let y = x.to_device(&device);
    assert_eq!((name(&x), name(&y)), ("cpu".into(), "xla-cpu:0".into()));
    let z = &x + &y * 2.0;
    assert_eq!((name(&z), z.to_vec::<f32>().unwrap()), ("xla-cpu:0".into(), vec![3.0, 6.0, 9.0]));
    assert_eq!(z.to_string(), "[3. 6. 9.]");
    assert_eq!(format!("{z:?}"), "f32[3] [3. 6. 9.]");
    assert_eq!(name(&z.to_device(&Device::cpu())), "cpu");
    assert_eq!(name(&z.to_device(&device)), "xla-cpu:0");
    // Reading does not move it.
    assert_eq!(name(&z), "xla-cpu:0");
    assert!(z.allclose(&(&x * 3.0), 0.0, 0.0).unwrap());
}

/// XLA tells how many bytes temporaries take, and not which.
#[test]
fn memory_is_divided_by_purpose() {
    use remat::memory::{Part, divided, gradients};
    let Some(device) = xla() else { return };
    let step = jit(|(w, x): &(Tensor, Tensor)| -> remat::Result<(Tensor, Tensor)> {
        let (loss, gradient) = value_and_grad(|w: &Tensor| x.matmul(w).tanh().sum(..))(w)?;
        Ok((loss, w - gradients(&gradient) * 0.1))
    })
    .on(&device);
    let (w, x) = (Tensor::shape_only([8, 8], DType::F32), Tensor::shape_only([4, 8], DType::F32));
    let memory = divided(&step.lower(&(w, x)).unwrap().compile().unwrap(), &[Part::Parameters, Part::Batch]);
    assert_eq!((memory.bytes(Part::Parameters), memory.bytes(Part::Batch)), (4 * 64, 4 * 32));
    assert!(memory.bytes(Part::Activations) > 0 && memory.bytes(Part::Gradients) == 0);
    assert_eq!(memory.parts().map(|(_, bytes)| bytes).sum::<usize>(), memory.peak);
}

#[test]
fn a_state_is_updated_where_it_lives() {
    let Some(device) = xla() else { return };
    let step = jit(|(sum, x): &(Tensor, Tensor)| -> remat::Result<(Tensor, Tensor)> { Ok((sum + x, x.max(..))) });
    let mut sum = Tensor::zeros([3], DType::F32).to_device(&device);
    for _ in 0..2 {
        let largest = step.update(&mut sum, &Tensor::new([1.0f32, 2.0, 3.0])).unwrap();
        assert_eq!((name(&largest), largest.item::<f32>().unwrap()), ("xla-cpu:0".into(), 3.0));
    }
    assert_eq!((name(&sum), sum.to_vec::<f32>().unwrap()), ("xla-cpu:0".into(), vec![2.0, 4.0, 6.0]));
    // An error before the run leaves it there. A function for another device does not take it.
    step.update(&mut sum, &Tensor::new([1.0f32, 2.0])).unwrap_err();
    let here = jit(|(sum, x): &(Tensor, Tensor)| (sum + x, ())).on(Cpu::default());
    let called = line!() + 1;
    let error = here.update(&mut sum, &Tensor::new([1.0f32, 2.0, 3.0])).unwrap_err();
    assert_eq!(line(&error), Some(called), "{error}");
    assert_eq!((name(&sum), sum.to_vec::<f32>().unwrap()), ("xla-cpu:0".into(), vec![2.0, 4.0, 6.0]));
}

#[test]
fn functions_run_where_an_operand_lives() {
    let Some(device) = xla() else { return };
    let on = tree::map(&Block::init(random::key(0), 16, 2, DType::F32), |leaf| leaf.to_device(&device));
    let off = tree::map(&on, |leaf| leaf.to_device(&Device::cpu()));
    let x = random::normal(random::key(1), [2, 4, 16], DType::F32);
    let loss = |block: &Block| checkpoint(Policy::Nothing, |block: &Block| block.apply(&x))(block).square().mean(..);
    let step = jit(value_and_grad(loss));
    let (there, gradient_there) = step.call(on.clone()).unwrap();
    let (here, gradient_here) = step.call(off).unwrap();
    assert_eq!((name(&there), name(&here)), ("xla-cpu:0".into(), "cpu".into()));
    assert!(there.allclose(&here, 1e-5, 1e-6).unwrap());
    tree::map2(&gradient_there, &gradient_here, |there, here| {
        assert_eq!((name(there), name(here)), ("xla-cpu:0".into(), "cpu".into()));
        assert!(there.allclose(here, 1e-4, 1e-5).unwrap(), "{there}\n{here}");
        there.clone()
    })
    .unwrap();
    // One program, compiled for both.
    assert_eq!(step.cache_size(), 1);
    // Without `jit`, and a captured tensor on the device.
    let bound = x.to_device(&device);
    let (value, _) = value_and_grad(|y: &Tensor| (y * &bound).sum(..))(&x).unwrap();
    assert!(value.allclose(&x.square().sum(..), 1e-5, 0.0).unwrap());
    assert_eq!(name(&value), "xla-cpu:0");
    let sums = jit(|y: &Tensor| (y * &bound).sum(..));
    assert_eq!(name(&sums.call(x.clone()).unwrap()), "xla-cpu:0");
    assert_eq!(name(&sums.lower(&x).unwrap().compile().unwrap().call(vec![x.clone()]).unwrap()[0]), "xla-cpu:0");
    let (_, ys) = scan(|c: &Tensor, x: &Tensor| (c + x, c * x), &bound.index((0, 0)), &bound.index(0)).unwrap();
    assert_eq!((name(&ys), ys.shape().unwrap()), ("xla-cpu:0".into(), &[4, 16][..]));
}

#[test]
fn a_function_may_be_bound_to_a_device() {
    let Some(device) = xla() else { return };
    let options = |device: &Device| JitOptions { device: Some(device.clone()), ..JitOptions::default() };
    let on = jit_with(&options(&device), |x: &Tensor| x * 2.0);
    let off = jit_with(&options(&Cpu::with_threads(1).unwrap().into()), |x: &Tensor| x * 2.0);
    let x = Tensor::new([1.0f32, -0.5]);
    let y = on.call(x.clone()).unwrap();
    assert_eq!((name(&y), y.to_vec::<f32>().unwrap()), ("xla-cpu:0".into(), vec![2.0, -1.0]));
    assert_eq!(name(&off.call(x.clone()).unwrap()), "cpu");
    let at = line!() + 1;
    let error = off.call(y.clone()).unwrap_err();
    let message = "the function is compiled for cpu and an operand is on xla-cpu:0; move it with `to_device`";
    assert_eq!((error.message(), line(&error)), (message, Some(at)));
    let compiled = off.lower(&x).unwrap().compile().unwrap();
    assert_eq!(compiled.device().name(), "cpu");
    assert_eq!(compiled.call(vec![y.clone()]).unwrap_err().message(), message);
    // A constant that the function captured is named as such, with and without a device that was asked for.
    let plus = move |x: &Tensor| x + &y;
    let captures = jit_with(&options(&Cpu::with_threads(1).unwrap().into()), plus.clone());
    let message =
        "the function is compiled for cpu and the captured constant f32[2] is on xla-cpu:0; move it with `to_device`";
    assert_eq!(captures.call(x.clone()).unwrap_err().message(), message);
    let lowered = captures.lower(&x).unwrap();
    for (at, error) in [
        (line!(), lowered.compile().map(drop)),
        (line!(), lowered.steps().map(drop)),
        (line!(), lowered.stablehlo().map(drop)),
        (line!(), captures.passes(&x).map(drop)),
        (line!(), captures.steps(&x).map(drop)),
        (line!(), captures.stablehlo(&x).map(drop)),
    ]
    .map(|(at, result)| (at, result.unwrap_err()))
    {
        assert_eq!((error.message(), line(&error)), (message, Some(at)));
    }
    let elsewhere = x.to_device(&Device::xla_cpus(4).unwrap());
    let message =
        "the captured constant f32[2] is on xla-cpu:0 and an operand on xla-cpu:0-3; move one of them with `to_device`";
    assert_eq!(jit_with(&JitOptions::default(), plus).call(elsewhere).unwrap_err().message(), message);
    assert!(on.steps(&x).unwrap().contains("stablehlo.multiply"));
    assert!(on.stablehlo(&x).unwrap().contains("stablehlo.multiply"));
    assert!(on.passes(&x).is_ok());
}

#[test]
fn the_passes_of_an_engine_follow_those_of_jit() {
    let names = |device: Device| -> Vec<&'static str> {
        let stages = jit(|x: &Tensor| x.sin()).on(device).passes(&Tensor::from(1.0f32)).unwrap().stages;
        stages.iter().map(|stage| stage.pass.name).collect()
    };
    let listed = |engine: &[Pass]| pipeline::JIT.iter().chain(engine).map(|pass| pass.name).collect::<Vec<_>>();
    assert_eq!(names(Cpu::with_threads(1).unwrap().into()), listed(pipeline::CPU));
    assert_eq!(names(Device::new(Reference)), listed(&[]));
    if let Some(device) = xla() {
        assert_eq!(names(device), listed(pipeline::XLA));
    }
}

/// What is donated is memory of the result: as many arrays are there after a step as before it.
#[test]
fn arguments_are_donated_by_ownership() {
    let Some(device) = xla() else { return };
    let step = jit(|x: &Tensor| x + 1.0);
    let x = Tensor::zeros([1000], DType::F32).to_device(&device);
    let kept = x.clone();
    let mut y = step.call(x).unwrap();
    for _ in 0..10 {
        y = step.call(y).unwrap();
    }
    assert_eq!(y.to_vec::<f32>().unwrap()[..2], [11.0, 11.0]);
    // The first call had another reference.
    assert_eq!(kept.to_vec::<f32>().unwrap()[..2], [0.0, 0.0]);
    y.wait().unwrap();
}

/// A limit holds for what each call donates, whichever came first.
#[test]
fn a_memory_limit_holds_for_calls_that_keep_and_calls_that_give_up() {
    let Some(device) = xla() else { return };
    let limited = |memory_limit: Option<usize>| {
        let options = JitOptions { device: Some(device.clone()), memory_limit, ..JitOptions::default() };
        jit_with(&options, |(state, batch): &(Tensor, Tensor)| state * 0.5 + batch.sum(..))
    };
    let args = || (Tensor::ones([1000], DType::F32).to_device(&device), Tensor::ones([3], DType::F32));
    let memory = limited(None).memory(&args()).unwrap();
    assert_eq!(memory.peak, memory.arguments + memory.outputs + memory.temporaries);
    assert_eq!(memory.donated_peak, memory.peak - 4000);
    let refused = |error: remat::Error, limit: usize| {
        assert_eq!(error.kind(), remat::ErrorKind::Memory);
        let numbers = [memory.peak, limit].map(|bytes| format!("({bytes} B)"));
        assert!(numbers.iter().all(|number| error.message().contains(number)), "{error}");
    };
    let first = |result: remat::Result<Tensor>| result.unwrap().to_vec::<f32>().unwrap()[0];
    for limit in [memory.donated_peak, memory.peak - 1] {
        // The executable of the first call is for a state that is moved.
        let step = limited(Some(limit));
        assert_eq!(first(step.call(args())), 3.5);
        let kept = args();
        refused(step.call(kept.clone()).unwrap_err(), limit);
        assert_eq!(first(step.call(kept)), 3.5);
        // And for one that is kept.
        let step = limited(Some(limit));
        let kept = args();
        refused(step.call(kept.clone()).unwrap_err(), limit);
        assert_eq!(first(step.call(kept)), 3.5);
    }
    let step = limited(Some(memory.peak));
    let kept = args();
    assert_eq!((first(step.call(kept.clone())), first(step.call(kept))), (3.5, 3.5));
    let error = limited(Some(memory.donated_peak - 1)).call(args()).unwrap_err();
    assert_eq!(error.kind(), remat::ErrorKind::Memory);
}

/// The engine is told what a call donates, and asked by the same rule: a batch and a number of the host are kept.
#[test]
fn a_first_call_compiles_one_executable() {
    let Some(_) = xla() else { return };
    let (home, plugin) = (tempfile::tempdir().unwrap(), remat_xla::Plugin::find(remat_xla::Platform::Cpu).unwrap());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "first_call", "--nocapture", "--ignored"])
        .env("XDG_CACHE_HOME", home.path())
        .env("REMAT_PJRT_PLUGIN_CPU", plugin.path())
        .env_remove("REMAT_CACHE_SIZE")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(home.path().join("remat/executables")).unwrap().count(), 1);
}

/// The child of the test above.
#[test]
#[ignore = "run by another test"]
fn first_call() {
    let device = xla().unwrap();
    // Each argument has a result that could take its memory.
    type Args = (Tensor, Tensor, Tensor);
    let step = jit(|(state, batch, rate): &Args| (state - batch.sum(..) * rate, batch * 2.0, rate * 0.5));
    let state = Tensor::zeros([3], DType::F32).to_device(&device);
    let (state, batch, rate) = step.call((state, Tensor::ones([2], DType::F32), Tensor::from(0.5f32))).unwrap();
    assert_eq!(state.to_vec::<f32>().unwrap(), [-1.0; 3]);
    assert_eq!((batch.to_vec::<f32>().unwrap(), rate.item::<f32>().unwrap()), (vec![2.0; 2], 0.25));
}

/// A small GPT, trained by AdamW.
#[test]
fn twenty_training_steps_have_the_losses_of_the_native_engine() {
    let Some(device) = xla() else { return };
    const WIDTH: usize = 32;
    let [table, blocks, data] = random::key(0).split();
    let table = random::normal(table, [64, WIDTH], DType::F32) * 0.1;
    let blocks: Vec<Block> =
        blocks.split_vec(2).into_iter().map(|key| Block::init(key, WIDTH, 4, DType::F32)).collect();
    let tokens = random::randint(data, [4, 17], DType::I32, 0..64);
    let adam = AdamW { learning_rate: Schedule::Constant(3e-3), ..AdamW::default() };
    type Model = (Tensor, Vec<Block>);
    let step = jit(|(model, state, tokens): &(Model, Moments<Model>, Tensor)| {
        let loss = |(table, blocks): &Model| {
            let block = |x: Tensor, block: &Block| {
                checkpoint(Policy::Dots, |(block, x): &(Block, Tensor)| block.apply(x))(&(block.clone(), x))
            };
            let x = blocks.iter().fold(table.take(&tokens.index((.., ..-1)), 0), block);
            cross_entropy(&x.matmul(&table.t()), &tokens.index((.., 1..)))
        };
        let (loss, gradient) = value_and_grad(loss)(model)?;
        let (model, state) = adam.update(model, &gradient, state)?;
        Ok::<_, remat::Error>((model, state, loss))
    });
    let losses = |device: &Device| {
        let mut model = tree::map(&(table.clone(), blocks.clone()), |leaf| leaf.to_device(device));
        let mut state = adam.init(&model);
        (0..20)
            .map(|_| {
                let loss;
                (model, state, loss) = step.call((model.clone(), state.clone(), tokens.clone())).unwrap();
                assert_eq!(name(&loss), device.name());
                loss.item::<f32>().unwrap()
            })
            .collect::<Vec<f32>>()
    };
    let (here, there) = (losses(&Device::cpu()), losses(&device));
    for (here, there) in here.iter().zip(&there) {
        assert!((here - there).abs() <= 1e-5 * here.abs(), "{here} and {there}");
    }
    assert!(here[19] < 0.9 * here[0], "{here:?}");
}

/// Also in the report: whose figures they are.
#[test]
fn memory_and_cost_are_told_for_every_engine() {
    let Some(device) = xla() else { return };
    let options = JitOptions { device: Some(device), ..JitOptions::default() };
    let f = |x: &Tensor| x.matmul(x).sin().matmul(x);
    let (there, here) = (jit_with(&options, f), jit(f));
    let x = Tensor::shape_only([64, 64], DType::F32);
    let memory = there.memory(&x).unwrap();
    assert_eq!((memory.arguments, memory.outputs), (4 * 64 * 64, 4 * 64 * 64));
    assert!(memory.temporaries >= 4 * 64 * 64 && memory.peak == memory.arguments + memory.outputs + memory.temporaries);
    let report = there.memory_report(&x).unwrap().to_string();
    assert_eq!(report.lines().nth(1), Some("arguments, outputs and temporaries are XLA's own figures"));
    assert!(report.contains("argument 0"), "{report}");
    assert_eq!(there.cost(&x).unwrap().flops, here.cost(&x).unwrap().flops);
}

#[test]
fn a_traced_tensor_has_no_device() {
    let device = Device::cpu();
    let at = line!() + 1;
    let error = jit(|x: &Tensor| x.to_device(&device)).call(Tensor::from(1.0f32)).unwrap_err();
    assert_eq!((error.operation(), line(&error)), ("to_device", Some(at)));
    assert!(error.message().starts_with("the value of a traced tensor (f32[]) is not known"), "{error}");
}

/// Shardings are for several devices: on one they change nothing, in the program and in its bodies.
#[test]
fn one_device_takes_programs_with_shardings() {
    let mesh = Mesh::new([("x", 4)]).unwrap();
    let double = |x: &Tensor| x.with_sharding_constraint(&Sharding::new(&mesh, spec!["x"])) * 2.0;
    let inner = jit(double);
    let options = |device: Option<Device>| JitOptions {
        device,
        in_shardings: Some(Shardings::new(&mesh, spec!["x"])),
        out_shardings: Some(Shardings::new(&mesh, spec![])),
        ..JitOptions::default()
    };
    let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0]);
    for device in [Some(Device::cpu()), xla()].into_iter().flatten() {
        let there = x.to_device(&device);
        let outer = jit_with(&options(Some(device.clone())), |x: &Tensor| x.sin());
        assert!(outer.call(there.clone()).unwrap().allclose(&x.sin(), 1e-5, 1e-5).unwrap());
        for y in [inner.call(there.clone()).unwrap(), double(&there)] {
            assert_eq!((name(&y), y.to_vec::<f32>().unwrap()), (device.name().into(), vec![2.0, 4.0, 6.0, 8.0]));
        }
        let looped = jit(|x: &Tensor| {
            let (last, _) = scan(|carry: &Tensor, _: &Tensor| (double(carry), carry.sum(..)), x, x)?;
            remat::Result::Ok(last)
        });
        assert_eq!(looped.call(there).unwrap().to_vec::<f32>().unwrap(), [16.0, 32.0, 48.0, 64.0]);
    }
}

/// Of a target of one chip the program is that of one device. No plugin is needed for that: the worker is one that fails.
#[test]
fn programs_with_shardings_are_compiled_ahead_for_one_chip_or_as_many_as_the_mesh_has() {
    let mesh = Mesh::new([("x", 4)]).unwrap();
    let options = JitOptions { in_shardings: Some(Shardings::new(&mesh, spec!["x"])), ..JitOptions::default() };
    let lowered = jit_with(&options, |x: &Tensor| x.sin()).lower(&Tensor::shape_only([8], DType::F32)).unwrap();
    let ahead = AheadOptions {
        worker: Some("/bin/false".into()),
        plugin: Some("/no/such/plugin.so".into()),
        ..AheadOptions::default()
    };
    let compile =
        |target: &str| lowered.compile_for(&target.parse().unwrap(), &ahead).unwrap_err().message().to_string();
    for target in ["tpu-v5e", "tpu-v5e:4"] {
        let message = compile(target);
        assert!(message.starts_with("the compiler ended its process"), "{message}");
    }
    assert_eq!(compile("tpu-v5e:8"), "the program has a mesh of 4 devices, and tpu-v5e:2x4 has 8 chips");
}

#[test]
fn tensors_are_moved_to_several_devices() {
    if xla().is_none() {
        return;
    }
    let devices = Device::xla_cpus(4).unwrap();
    let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0]);
    let there = x.to_device(&devices);
    assert_eq!((name(&there), name(&(&there * 2.0))), ("xla-cpu:0-3".into(), "xla-cpu:0-3".into()));
    assert_eq!(name(&there.to_device(&Device::cpu())), "cpu");
    let mesh = Mesh::new([("x", 4)]).unwrap();
    let options = JitOptions {
        device: Some(devices),
        in_shardings: Some(Shardings::new(&mesh, spec!["x"])),
        ..JitOptions::default()
    };
    // The captured constant is moved once.
    let y = jit_with(&options, |x: &Tensor| x + &x.sum(..) + Tensor::new([1.0f32; 4]));
    for x in [&x, &there, &there] {
        assert_eq!(y.call(x.clone()).unwrap().to_vec::<f32>().unwrap(), [12.0, 13.0, 14.0, 15.0]);
    }
}

#[test]
fn names_of_devices() {
    assert_eq!(Device::named("cpu").unwrap().name(), "cpu");
    for (name, message) in [
        ("gpu:1", "unknown device 'gpu:1'; did you mean `cuda`?"),
        ("xla_cpu", "unknown device 'xla_cpu'; did you mean `xla-cpu`?"),
        ("cuda:x", "unknown device 'cuda:x'; it is one of cpu, xla-cpu, cuda, tpu, such as cuda:0"),
        ("cpu:1", "unknown device 'cpu:1'; it is one of cpu, xla-cpu, cuda, tpu, such as cuda:0"),
        ("", "unknown device ''; it is one of cpu, xla-cpu, cuda, tpu, such as cuda:0"),
    ] {
        assert_eq!(Device::named(name).unwrap_err().message(), message);
    }
    if let Some(device) = xla() {
        assert_eq!(Device::named("xla-cpu").unwrap().name(), device.name());
        let missing = Device::named("xla-cpu:1000").unwrap_err();
        assert!(missing.message().starts_with("there is no device xla-cpu:1000, only"), "{missing}");
    }
}

/// Abstract tensors are traced, lowered and compiled; to compute with them is an error.
#[test]
fn abstract_tensors_have_no_elements() {
    let x = Tensor::shape_only([1i64 << 40, 2], DType::F32);
    assert!(x.is_abstract());
    assert_eq!(
        (x.to_string(), format!("{x:?}")),
        ("Abstract<f32[1099511627776,2]>".into(), "Abstract<f32[1099511627776,2]>".into())
    );
    let message = "the tensor (f32[1099511627776,2]) is abstract: it has no elements, and stands for an argument where a function is only traced";
    for error in [
        x.to_vec::<f32>().unwrap_err(),
        (&x + 1.0).error().unwrap().clone(),
        x.device().unwrap_err(),
        jit(|x: &Tensor| x.sum(..)).call(x.clone()).unwrap_err(),
        jit(|y: &Tensor| y + x.sum(..)).call(Tensor::from(1.0f32)).unwrap_err(),
        grad(|x: &Tensor| x.sum(..))(&x).unwrap_err(),
        make_jaxpr(|y: &Tensor| y + x.sum(..))(&Tensor::from(1.0f32)).unwrap_err(),
    ] {
        assert_eq!(error.message(), message);
        assert!(error.operation() == "make_jaxpr" || error.loc().is_some(), "{error}");
    }
    let gradient = eval_shape(grad(|x: &Tensor| x.square().sum(..)))(&x).unwrap();
    assert!(gradient.is_abstract());
    assert_eq!(gradient.aval().unwrap(), x.aval().unwrap());
    // A captured one is an input of the program.
    let step = jit(|y: &Tensor| (y + &x).sum(0));
    let y = Tensor::shape_only([2], DType::F32);
    assert_eq!(step.jaxpr(&y).unwrap().ins.len(), 2);
    assert_eq!(step.memory(&y).unwrap().outputs, 8);
}

/// A model that is made, traced and compiled without memory for it.
#[test]
fn a_model_may_be_abstract() {
    let init = |key: &Tensor| {
        let keys = random::Key::from_data(key.clone()).split_vec(4);
        keys.into_iter().map(|key| Block::init(key, 1 << 14, 16, DType::Bf16)).collect::<Vec<Block>>()
    };
    let blocks = eval_shape(init)(random::key(0).data()).unwrap();
    assert!(tree::leaves(&blocks).iter().all(|(_, leaf)| leaf.is_abstract()));
    let x = Tensor::shape_only([1, 128, 1 << 14], DType::Bf16);
    let loss = |(blocks, x): &(Vec<Block>, Tensor)| {
        blocks.iter().fold(x.clone(), |x, block| block.apply(&x)).square().mean(..)
    };
    let memory = jit(grad(loss)).memory(&(blocks, x)).unwrap();
    assert!(memory.arguments > 24 << 30, "{memory}");
}

/// In a process of its own: the variable is read once.
#[test]
fn the_environment_names_the_default_device() {
    let child = |device: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--ignored"])
            .env("REMAT_DEVICE", device)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(child("").contains("eager cpu\njit cpu\n"));
    assert!(child("cpu").contains("eager cpu\njit cpu\n"));
    let text = child("xla");
    let message = "REMAT_DEVICE is 'xla': unknown device 'xla'; ";
    assert!(text.contains(&format!("eager {message}")) && text.contains(&format!("jit {message}")), "{text}");
    if xla().is_some() {
        let text = child("xla-cpu");
        assert!(text.contains("eager xla-cpu:0\njit xla-cpu:0\n3\n"), "{text}");
    }
}

/// The child of the test above.
#[test]
#[ignore = "run by another test"]
fn child() {
    let x = Tensor::new([1.0f32, 2.0]);
    let tell = |kind: &str, y: remat::Result<Tensor>| match y.and_then(|y| y.device()) {
        Ok(device) => println!("{kind} {}", device.name()),
        Err(error) => println!("{kind} {}", error.message()),
    };
    println!();
    tell("eager", Ok(&x + 1.0));
    tell("jit", jit(|x: &Tensor| x + 1.0).call(x.clone()));
    println!("{}", x.sum(..).item::<f32>().unwrap());
}
