//! The engine beside the values that it computes: threads, memory spaces, and errors.

mod support;

use std::sync::Arc;

use remat_ir::{Array, Data, Device, ErrorKind, Jaxpr, eval};
use remat_xla::{Platform, Plugin, Xla};

/// Handles of the plugin are sent to threads and shared by them: here they are, at one time.
#[test]
fn an_executable_runs_on_several_threads() {
    let Some(xla) = support::xla() else { return };
    let program: Jaxpr =
        "{ lambda ; a:f32[1000]. let b:f32[1000] = sin a; c:f32[1000] = mul a 2.0:f32[] in (b, c) }".parse().unwrap();
    let compiled = xla.compile(&program.into()).unwrap();
    let run = |thread: usize| {
        for i in 0..50 {
            let x = vec![(thread * 50 + i) as f32; 1000];
            let results = compiled.run(vec![Array::from_vec(x.clone(), [1000]).unwrap()]).unwrap();
            let doubled: Vec<f32> = x.iter().map(|x| x * 2.0).collect();
            assert_eq!(results[1].as_slice::<f32>(), Some(&doubled[..]));
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || run(thread));
        }
        // Others compile in the meantime.
        scope.spawn(|| {
            for n in 1..5 {
                let program: Jaxpr =
                    format!("{{ lambda ; a:f32[{n}]. let b:f32[{n}] = cos a in (b,) }}").parse().unwrap();
                xla.compile(&program.into()).unwrap();
            }
        });
    });
}

/// Threads that open a plugin at one time find one plugin, by whatever path.
#[test]
fn a_plugin_is_opened_once() {
    if support::xla().is_none() {
        return;
    }
    let path = Plugin::find(Platform::Cpu).unwrap().path().to_path_buf();
    let other = path.parent().unwrap().join(".").join(path.file_name().unwrap());
    std::thread::scope(|scope| {
        for path in [&path, &other, &path, &other] {
            scope.spawn(move || Xla::new(&Plugin::open(Platform::Cpu, path).unwrap()).unwrap());
        }
    });
}

#[test]
fn arguments_and_results_in_the_memory_of_the_host_are_refused_where_there_are_two() {
    let Some(cpu) = support::xla() else { return };
    // The text is that of a GPU; what compiles it is the plugin that there is.
    let plugin = Plugin::find(Platform::Cpu).unwrap();
    let gpu = Xla::new(&Plugin::open(Platform::Gpu, plugin.path()).unwrap()).unwrap();
    let cases = [
        ("{ lambda ; a:f32[2] b:f32<host>[2]. let  in (a,) }", "argument 1 is f32<host>[2]"),
        ("{ lambda ; a:f32[2]. let b:f32<host>[2] = device_put[memory=host] a in (a, b) }", "result 1 is f32<host>[2]"),
    ];
    for (program, what) in cases {
        let program: Arc<Jaxpr> = Arc::new(program.parse().unwrap());
        let error = gpu.compile(&program).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        let expected = format!("xla: {what}; arguments and results in host memory are not supported on cuda:0");
        assert_eq!(error.to_string(), expected);
        cpu.compile(&program).unwrap();
    }
}

/// By way of f32 they would be rounded twice.
#[test]
fn wide_numbers_are_rounded_once_to_narrow_floats() {
    let Some(xla) = support::xla() else { return };
    // Just above, at and below ties of bf16 and f16, and values out of range.
    let tie = |power: u32| (1i128 << power) + (1 << (power - 8));
    let near = |x: i128| [x - 1, x, x + 1, -x - 1, -x, -x + 1];
    let mut integers: Vec<i128> = vec![0, 1, -1, 33685505, 65519, 65520, i64::MAX.into(), i64::MIN.into()];
    integers.extend([i128::from(u64::MAX), i32::MAX.into(), i32::MIN.into(), u32::MAX.into()]);
    integers.extend([24, 25, 30, 31, 40, 52, 53, 54, 60, 62, 63].into_iter().flat_map(|power| near(tie(power))));
    let step = |power: i32| 2f64.powi(power);
    let mut floats =
        vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 65519.99999, 65520.0, 3.4e38];
    for tie in [step(-8), step(-11)] {
        for slight in [step(-40), 0.0, -step(-40)] {
            floats.extend([
                1.0 + tie + slight,
                -1.0 - tie - slight,
                1.0 + 3.0 * tie + slight,
                step(-20) * (1.0 + tie + slight),
            ]);
        }
    }
    let (n, m) = (integers.len(), floats.len());
    let args: Vec<(&str, Array)> = vec![
        ("i32", Array::from_vec(integers.iter().map(|&x| x as i32).collect(), [n]).unwrap()),
        ("u32", Array::from_vec(integers.iter().map(|&x| x as u32).collect(), [n]).unwrap()),
        ("i64", Array::from_vec(integers.iter().map(|&x| x as i64).collect(), [n]).unwrap()),
        ("u64", Array::from_vec(integers.iter().map(|&x| x as u64).collect(), [n]).unwrap()),
        ("f64", Array::from_vec(floats, [m]).unwrap()),
    ];
    for (dtype, x) in args {
        let n = x.shape()[0];
        let program = format!(
            "{{ lambda ; a:{dtype}[{n}]. let b:bf16[{n}] = convert_element_type[new_dtype=bfloat16] a; \
             c:f16[{n}] = convert_element_type[new_dtype=float16] a in (b, c) }}"
        );
        let program: Arc<Jaxpr> = Arc::new(program.parse().unwrap());
        let expected = eval(&program, vec![x.clone()]).unwrap();
        let got = xla.compile(&program).unwrap().run(vec![x.clone()]).unwrap();
        for (got, expected) in got.iter().zip(&expected) {
            for i in 0..n {
                let [got, expected] = [got, expected].map(|array| array.data().get(i).unwrap());
                let are_equal = got == expected || (got.as_f64().is_nan() && expected.as_f64().is_nan());
                assert!(are_equal, "{:?} is {got} and not {expected}", x.data().get(i));
            }
        }
    }
    let program: Jaxpr =
        "{ lambda ; a:i32[1]. let b:bf16[1] = convert_element_type[new_dtype=bfloat16] a in (b,) }".parse().unwrap();
    let results =
        xla.compile(&program.into()).unwrap().run(vec![Array::from_vec(vec![33685505i32], [1]).unwrap()]).unwrap();
    assert!(matches!(results[0].data(), Data::Bf16(x) if x[0].to_f32() == 33816576.0));
}

/// A plugin cannot call back into the program, so a print is refused before anything runs. One of no examples prints nothing.
#[test]
fn a_print_is_an_error_that_says_where_it_runs() {
    let Some(xla) = support::xla() else { return };
    let program =
        |op: &str| format!("{{ lambda ; a:f32[2]. let = debug_print[{op}] a in (a,) }}").parse::<Jaxpr>().unwrap();
    let error = xla.compile(&program("template=\"x {}\"").into()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().starts_with("prints on the native engine only"), "{error}");
    let silent = program("axes=() batch=(0,) template=\"x {}\"");
    let x = Array::from_vec(vec![1.0f32, 2.0], [2]).unwrap();
    let results = xla.compile(&silent.into()).unwrap().run(vec![x]).unwrap();
    assert_eq!(results[0].as_slice::<f32>(), Some(&[1.0, 2.0][..]));
}
