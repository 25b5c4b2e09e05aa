//! Programs on meshes, on virtual devices of XLA for CPUs or on as many GPUs, beside the evaluator.

mod support;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use remat_ir::{Array, Builder, Call, Device, DeviceArray, ErrorKind, Jaxpr, Op, Value, eval};
use remat_testkit::{Sample, all_samples, arrays, not_tested};
use remat_xla::{Platform, XlaDevices};

fn devices(count: usize) -> Option<XlaDevices> {
    let xla = support::xla()?;
    let (platform, there) = (Platform::of_device(xla.name()).unwrap(), xla.num_devices());
    if platform != Platform::Cpu && there < count {
        not_tested("a mesh", &format!("it has {count} devices, and there are {there}"));
        return None;
    }
    Some(XlaDevices::find(platform, count).unwrap())
}

fn program(sample: &Sample) -> Arc<Jaxpr> {
    let mut b = Builder::new();
    let ins = b.inputs(sample.inputs.iter().map(|x| x.aval().clone()));
    let outs = b.emit(sample.op.clone(), &ins).unwrap();
    Arc::new(b.finish(outs.into_vec()))
}

/// Every collective in every dtype, along one of two axes, along both, on axes of size 1, on shards without elements.
#[test]
fn samples_on_meshes_have_the_values_of_the_evaluator() {
    let Some(devices) = devices(8) else { return };
    let mut count = 0;
    let mut faults = Vec::new();
    for sample in all_samples() {
        let is_on_mesh = matches!(sample.op, Op::Call(Call::ShardMap(_))) || sample.op.name() == "sharding_constraint";
        if !is_on_mesh {
            continue;
        }
        count += 1;
        let jaxpr = program(&sample);
        let expected = eval(&jaxpr, sample.inputs.clone()).unwrap();
        let name = format!("{} ({})", sample.subject().name(), sample.label);
        match devices.compile(&jaxpr).and_then(|compiled| compiled.run(sample.inputs.clone())) {
            Err(error) => faults.push(format!("{name}: {error}\n{jaxpr}")),
            Ok(got) => {
                for (got, expected) in got.iter().zip(&expected) {
                    arrays::assert_close(got, expected, 1e-6, 1.0, &format!("{name}\n{jaxpr}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} of {count} samples:\n{}", faults.len(), faults.join("\n"));
    assert!(count > 100, "{count} samples");
}

/// A NaN of one shard is the maximum and the minimum of all.
#[test]
fn nan_wins_between_devices() {
    let Some(devices) = devices(4) else { return };
    for op in ["pmax", "pmin", "psum"] {
        let text = format!(
            "{{ lambda ; a:f32[4]. let b:f32[1] = shard_map[in_specs=((x,),) \
             jaxpr={{ lambda ; c:f32[1]. let d:f32[1] = {op}[axes=(x,)] c in (d,) }} mesh=((x, 4),) out_specs=((),)] a in (b,) }}"
        );
        let jaxpr: Arc<Jaxpr> = Arc::new(text.parse().unwrap());
        for at in 0..4 {
            let mut x = vec![1.0f32, -2.0, 3.0, -4.0];
            x[at] = f32::NAN;
            let got = devices.compile(&jaxpr).unwrap().run(vec![Array::from_vec(x, [4]).unwrap()]).unwrap();
            assert!(got[0].as_slice::<f32>().unwrap()[0].is_nan(), "{op} of a NaN at {at}");
        }
    }
}

/// A result that the next run wants cut in the same way stays where it is, and is donated there; for another way the devices cut it anew.
#[test]
fn arrays_stay_cut_over_the_devices() {
    let Some(devices) = devices(4) else { return };
    let text = |spec: &str| {
        format!(
            "{{ lambda ; a:f32[8,4]. let b:f32[8,4] = sharding_constraint[mesh=((x, 2), (y, 2)) spec={spec}] a; \
             c:f32[8,4] = mul b 2.0:f32[]; d:f32[8,4] = sharding_constraint[mesh=((x, 2), (y, 2)) spec={spec}] c in (d,) }}"
        )
    };
    let compile = |spec| devices.compile(&Arc::new(text(spec).parse::<Jaxpr>().unwrap())).unwrap();
    let (rows, both) = (compile("(x,)"), compile("(y, x)"));
    let x = Array::from_vec((0..32).map(|i| i as f32).collect(), [8, 4]).unwrap();
    let once = rows.execute(vec![x.clone().into()]).unwrap();
    assert_eq!(once[0].device_name(), Some(devices.name()));
    let twice = rows.execute(once).unwrap();
    let other = both.execute(vec![twice[0].clone()]).unwrap();
    let kept: &Arc<DeviceArray> = match &twice[0] {
        Value::Device(array) => array,
        Value::Host(_) => panic!("it stays on the devices"),
    };
    assert_eq!(kept.host().unwrap().as_slice::<f32>().unwrap()[31], 124.0);
    let expected: Vec<f32> = x.as_slice::<f32>().unwrap().iter().map(|x| x * 8.0).collect();
    assert_eq!(other[0].host().unwrap().as_slice::<f32>().unwrap(), expected);
    assert_eq!(rows.memory().arguments, 4 * 4 * 4, "of one device");
}

#[test]
fn programs_that_do_not_fit_the_devices_are_refused() {
    let Some(devices) = devices(4) else { return };
    let map = |size: usize| {
        format!(
            "shard_map[in_specs=((x,),) jaxpr={{ lambda ; c:f32[1]. let in (c,) }} mesh=((x, {size}),) out_specs=((x,),)]"
        )
    };
    let compile = |text: String| devices.compile(&Arc::new(text.parse::<Jaxpr>().unwrap())).map(drop).unwrap_err();
    let error = compile(format!("{{ lambda ; a:f32[8]. let b:f32[8] = {} a in (b,) }}", map(8)));
    assert_eq!(error.message(), format!("the program is for 8 devices and {} has 4", devices.name()));
    let error = compile(format!(
        "{{ lambda ; a:f32[2] b:f32[4]. let c:f32[2] = {} a; d:f32[4] = {} b in (c, d) }}",
        map(2),
        map(4)
    ));
    let message = "one program has meshes of different numbers of devices: Mesh(x=2) and Mesh(x=4)";
    assert_eq!(error.message(), message);
    let unbound: Jaxpr = "{ lambda ; a:f32[2]. let b:f32[2] = psum[axes=(x,)] a in (b,) }".parse().unwrap();
    let error = devices.compile(&Arc::new(unbound)).map(drop).unwrap_err();
    let message =
        "unknown axis `x`; no axis has a name here: `shard_map` and the option `axis_name` of `vmap` give names";
    assert_eq!(error.message(), message);
}

#[test]
fn virtual_devices_are_1024_at_most() {
    if devices(1).is_none_or(|devices| Platform::of_device(devices.name()) != Some(Platform::Cpu)) {
        return;
    }
    for count in [1025, 100_000, 1 << 31, u32::MAX as usize, usize::MAX] {
        let error = XlaDevices::find(Platform::Cpu, count).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        let message = format!("asked for {count} virtual devices; the most is 1024");
        assert_eq!(error.message(), message);
    }
}

/// An array that is moved to the devices is an argument of programs on as many of them, on fewer and on one.
#[test]
fn arrays_are_put_on_all_devices() {
    let Some(devices) = devices(4) else { return };
    let x = Array::from_vec((0..8).map(|i| i as f32).collect(), [8]).unwrap();
    let there = devices.put(&x).unwrap();
    assert_eq!(there.device_name(), Some(devices.name()));
    let map = |size: usize, spec: &str, shard: usize| {
        format!(
            "shard_map[in_specs=({spec},) jaxpr={{ lambda ; c:f32[{shard}]. let d:f32[{shard}] = mul c 2.0:f32[] in (d,) }} mesh=((x, {size}),) out_specs=({spec},)]"
        )
    };
    for call in ["mul".to_string(), map(4, "()", 8), map(2, "()", 8), map(4, "(x,)", 2), map(2, "(x,)", 4)] {
        let operands = if call == "mul" { "a 2.0:f32[]" } else { "a" };
        let text = format!("{{ lambda ; a:f32[8]. let b:f32[8] = {call} {operands} in (b,) }}");
        let compiled = devices.compile(&Arc::new(text.parse::<Jaxpr>().unwrap())).unwrap();
        let expected: Vec<f32> = (0..8).map(|i| 2.0 * i as f32).collect();
        for arg in [there.clone(), there.clone(), devices.put(&x).unwrap()] {
            let results = compiled.execute(vec![arg]).unwrap();
            assert_eq!(results[0].host().unwrap().as_slice::<f32>().unwrap(), expected, "{call}");
        }
    }
    assert_eq!(there.host().unwrap().as_slice::<f32>(), x.as_slice::<f32>());
    for shape in [&[][..], &[0], &[2, 0]] {
        let len = shape.iter().product();
        let x = Array::from_vec(vec![1.5f32; len], shape.iter().copied()).unwrap();
        let put = devices.put(&x).unwrap();
        assert_eq!((put.aval(), put.host().unwrap().as_slice::<f32>()), (x.aval(), x.as_slice::<f32>()));
    }
}

/// Two programs that begin at a time are in the same order on all devices: the collectives of one wait for all of them.
#[test]
fn programs_with_collectives_run_on_several_threads() {
    let Some(devices) = devices(4) else { return };
    let text = "{ lambda ; a:f32[4]. let b:f32[1] = shard_map[in_specs=((x,),) jaxpr={ lambda ; c:f32[1]. let \
                d:f32[1] = psum[axes=(x,)] c; e:f32[1] = psum[axes=(x,)] d in (e,) } mesh=((x, 4),) out_specs=((),)] a in (b,) }";
    let compiled = devices.compile(&Arc::new(text.parse::<Jaxpr>().unwrap())).unwrap();
    let (done, all) = mpsc::channel();
    for scale in [1.0f32, 2.0] {
        let (compiled, done) = (compiled.clone(), done.clone());
        thread::spawn(move || {
            let x = Array::from_vec(vec![scale; 4], [4]).unwrap();
            let runs: Vec<Vec<Value>> = (0..20).map(|_| compiled.execute(vec![x.clone().into()]).unwrap()).collect();
            for results in runs {
                assert_eq!(results[0].host().unwrap().as_slice::<f32>(), Some(&[16.0 * scale][..]));
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        all.recv_timeout(Duration::from_secs(60)).expect("the runs wait for each other");
    }
}

/// Clients with other numbers of devices, whose programs run at the same time: the shards of one never meet those of another.
#[test]
fn programs_of_several_clients_run_at_the_same_time() {
    let (Some(two), Some(four), Some(eight)) = (devices(2), devices(4), devices(8)) else { return };
    let (done, all) = mpsc::channel();
    for (devices, count) in [(two, 2), (four, 4), (eight, 8)] {
        // Pairs of devices meet, so that the first two of each client do, with other shapes in each client.
        let (rows, len) = (count / 2, 64 * count);
        let (whole, shard) = (format!("f32[{rows},2,{len}]"), format!("f32[1,1,{len}]"));
        let text = format!(
            "{{ lambda ; a:{whole}. let b:{whole} = shard_map[in_specs=((x, y),) jaxpr={{ lambda ; c:{shard}. let d:{shard} = psum[axes=(y,)] c; \
             e:{shard} = psum[axes=(y,)] d in (e,) }} mesh=((x, {rows}), (y, 2)) out_specs=((x, y),)] a in (b,) }}"
        );
        let compiled = devices.compile(&Arc::new(text.parse::<Jaxpr>().unwrap())).unwrap();
        let done = done.clone();
        thread::spawn(move || {
            let x = Array::from_vec(vec![count as f32; count * len], [rows, 2, len]).unwrap();
            let expected = vec![4.0 * count as f32; count * len];
            for _ in 0..200 {
                let results = compiled.execute(vec![x.clone().into()]).unwrap();
                assert_eq!(results[0].host().unwrap().as_slice::<f32>(), Some(&expected[..]));
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..3 {
        all.recv_timeout(Duration::from_secs(60)).expect("a program failed, or they wait for each other");
    }
}
