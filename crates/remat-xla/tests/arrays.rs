//! Arrays that stay on the device: where they are, when they are freed, and which give their memory up.

mod support;

use std::sync::{Arc, Mutex, PoisonError};

use remat_ir::{Array, DType, Device, ErrorKind, Executable, Jaxpr, Literal, Value};
use remat_xla::{Platform, Plugin, Xla};

/// Buffers of all tests are counted, so that they run one at a time.
static COUNTS: Mutex<()> = Mutex::new(());

fn compiled(xla: &Xla, program: &str) -> Arc<dyn Executable> {
    let program: Jaxpr = program.parse().unwrap();
    xla.compile(&program.into()).unwrap()
}

fn vector(n: usize) -> Array {
    Array::from_vec((0..n).map(|i| i as f32).collect(), [n]).unwrap()
}

#[test]
fn results_are_arguments_of_the_next_run() {
    let Some(xla) = support::xla() else { return };
    let _guard = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = xla.num_arrays();
    let step =
        compiled(&xla, "{ lambda ; a:f32[5] b:bool[]. let c:f32[5] = add a 1.0:f32[]; d:bool[] = not b in (c, d) }");
    let mut values = vec![Value::from(vector(5)), Value::from(Array::scalar(true))];
    for _ in 0..1000 {
        values = step.execute(values).unwrap();
        assert_eq!(xla.num_arrays(), before + 2);
    }
    assert_eq!(values[0].host().unwrap().as_slice::<f32>(), Some(&[1000.0, 1001.0, 1002.0, 1003.0, 1004.0][..]));
    assert_eq!(values[1].host().unwrap().as_slice::<bool>(), Some(&[true][..]));
    drop(values);
    assert_eq!(xla.num_arrays(), before);
}

/// Results, copies on the host and what a failed run was given are all freed.
#[test]
fn a_thousand_steps_leak_nothing() {
    let Some(xla) = support::xla() else { return };
    let _guard = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = xla.num_arrays();
    let step = compiled(
        &xla,
        "{ lambda ; a:f32[512,512] b:f32[512,512] c:i32[3]. let d:f32[512,512] = add a b; e:f32[] = reduce_sum[axes=(0, 1)] d \
         in (d, e) }",
    );
    let ones = Array::full(Literal::from_f64(DType::F32, 1.0), [512, 512]);
    let (kept, three) = (xla.put(&ones).unwrap(), Array::from_vec(vec![1i32, 2, 3], [3]).unwrap());
    let mut state = xla.put(&ones).unwrap();
    let mut resident_before = 0;
    for i in 0..1000 {
        assert!(step.execute(vec![xla.put(&ones).unwrap(), kept.clone()]).is_err());
        assert!(step.execute(vec![xla.put(&ones).unwrap(), kept.clone(), kept.clone()]).is_err());
        let mut results = step.execute(vec![state, kept.clone(), three.clone().into()]).unwrap();
        results[1].host().unwrap();
        state = results.swap_remove(0);
        if i % 10 == 0 {
            state.host().unwrap();
        }
        if i == 200 {
            resident_before = resident();
        }
    }
    // A leak of one array of a step would be 800 MiB.
    let grown = resident().saturating_sub(resident_before);
    assert!(grown < 16 << 20, "{grown} bytes more are resident");
    drop((state, kept));
    assert_eq!(xla.num_arrays(), before);
}

/// The bytes that are resident, where the system tells.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map_or(0, |kib: usize| 1024 * kib)
}

/// A kept argument keeps its value, whatever is done with its other references meanwhile.
#[test]
fn arguments_with_another_reference_are_kept() {
    let Some(xla) = support::xla() else { return };
    let _guard = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let add = compiled(&xla, "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = add a b in (c,) }");
    let x = xla.put(&vector(3)).unwrap();
    // Both operands are one value, one is donated, none is donated.
    let twice = add.execute(vec![x.clone(), x.clone()]).unwrap().remove(0);
    let thrice = add.execute(vec![twice, x.clone()]).unwrap().remove(0);
    let again = add.execute(vec![x.clone(), thrice.clone()]).unwrap().remove(0);
    let last = add.execute(vec![x, Value::from(vector(3))]).unwrap().remove(0);
    let read = |value: &Value| value.host().unwrap().as_slice::<f32>().unwrap().to_vec();
    assert_eq!([read(&thrice), read(&again), read(&last)], [[0.0, 3.0, 6.0], [0.0, 4.0, 8.0], [0.0, 2.0, 4.0]]);
}

#[test]
fn the_copy_on_the_host_is_made_once() {
    let Some(xla) = support::xla() else { return };
    let _guard = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let value = xla.put(&vector(4)).unwrap();
    let first = value.host().unwrap().clone();
    assert!(first.shares_data(value.host().unwrap()));
    assert!(value.clone().into_host().unwrap().shares_data(&first));
    drop(first);
    // Without other references the copy is the caller's alone.
    assert!(value.into_host().unwrap().try_into_data().is_ok());
}

#[test]
fn arrays_without_elements_and_scalars_stay_on_the_device_too() {
    let Some(xla) = support::xla() else { return };
    let _guard = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let program = compiled(&xla, "{ lambda ; a:f32[0,3] b:i8[]. let c:f32[0,3] = exp a; d:i8[] = neg b in (c, d) }");
    let empty = Array::full(Literal::from_f64(DType::F32, 0.0), [0, 3]);
    let args = [xla.put(&empty).unwrap(), xla.put(&Array::scalar(-128i8)).unwrap()];
    let results = program.execute(program.execute(args.to_vec()).unwrap()).unwrap();
    assert_eq!(results[0].host().unwrap().shape(), [0, 3]);
    assert_eq!(results[1].host().unwrap().as_slice::<i8>(), Some(&[-128][..]));
}

#[test]
fn an_argument_on_another_device_is_refused() {
    let Some(xla) = support::xla() else { return };
    let _guard = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let plugin = Plugin::find(Platform::Cpu).unwrap();
    // What the plugin takes for a platform of GPUs is another client.
    let other = Xla::new(&Plugin::open(Platform::Gpu, plugin.path()).unwrap()).unwrap();
    let value = other.put(&vector(2)).unwrap();
    let error = compiled(&xla, "{ lambda ; a:f32[2]. let  in (a,) }").execute(vec![value]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(error.to_string(), "xla: the program is on xla-cpu:0 and an argument on cuda:0");
}

/// The plugin has four devices by default.
#[test]
fn programs_run_on_the_device_that_they_are_compiled_for() {
    let _guard = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    if support::xla().is_none() {
        return;
    }
    let plugin = Plugin::open(Platform::Gpu, Plugin::find(Platform::Cpu).unwrap().path()).unwrap();
    let third = Xla::of_plugin(&plugin, 2).unwrap();
    let program = compiled(&third, "{ lambda ; a:f32[2]. let b:f32[2] = neg a in (b,) }");
    let once = program.execute(vec![vector(2).into()]).unwrap();
    assert_eq!(once[0].device_name(), Some("cuda:2"));
    let twice = program.execute(once).unwrap();
    assert_eq!(twice[0].host().unwrap().as_slice::<f32>(), Some(&[0.0, 1.0][..]));
    let error = Xla::of_plugin(&plugin, 4).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "xla: there is no device cuda:4, only 4 devices");
}

/// A loop of some milliseconds: its run returns before it is done, and values of it may be dropped, passed on and read.
#[test]
fn runs_are_asynchronous() {
    let Some(xla) = support::xla() else { return };
    let _guard = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = xla.num_arrays();
    let program = "{ lambda ; a:f32[256,256]. let
        b:f32[256,256] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] a a
        c:f32[256,256] = mul b 0.00390625:f32[] in (c,) }";
    let square = compiled(&xla, program);
    let ones = Array::full(Literal::from_f64(DType::F32, 1.0), [256, 256]);
    let mut values = vec![xla.put(&ones).unwrap()];
    for _ in 0..50 {
        drop(square.execute(values.clone()).unwrap());
        values = square.execute(values).unwrap();
    }
    values[0].wait().unwrap();
    assert_eq!(values[0].host().unwrap().as_slice::<f32>().unwrap()[..2], [1.0, 1.0]);
    // Pending values go to other threads.
    let value = square.execute(values).unwrap().remove(0);
    let first = std::thread::spawn(move || value.host().unwrap().data().get(0)).join().unwrap();
    assert_eq!(first, Some(Literal::from_f64(DType::F32, 1.0)));
    assert_eq!(xla.num_arrays(), before);
}
