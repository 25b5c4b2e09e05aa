//! What is imported, beside its values: loops as scans, donation, lines; and what is refused, with its message.

mod support;

use remat_ir::{ErrorKind, Jaxpr, Op};
use remat_stablehlo::{Donation, ImportOptions, Imported, Module, import};
use support::{fixtures, programs};

fn bytes(name: &str) -> Vec<u8> {
    programs(&fixtures()).into_iter().find(|(other, _)| other == name).unwrap().1
}

fn read(name: &str) -> remat_ir::Result<Imported> {
    import(&Module::read(&bytes(name))?, ImportOptions::default())
}

fn count(jaxpr: &Jaxpr, name: &str) -> usize {
    let inner = |op: &Op| op.bodies().into_iter().map(|body| count(body, name)).sum::<usize>();
    jaxpr.eqns.iter().map(|eqn| usize::from(eqn.op.name() == name) + inner(&eqn.op)).sum()
}

#[test]
fn loops_over_slices_are_scans_again() {
    let program = read("scan_gradient").unwrap().jaxpr;
    let counts = ["scan", "while", "dynamic_slice", "dynamic_update_slice"].map(|name| count(&program, name));
    assert_eq!(counts, [2, 0, 0, 0]);
    let text = program.to_string();
    assert!(text.contains("reverse=True") && text.contains("length=6"), "{text}");
}

#[test]
fn loops_with_another_condition_stay_loops() {
    let program = read("loops").unwrap().jaxpr;
    // Two of the loops end at a number that is an argument.
    assert_eq!((count(&program, "while"), count(&program, "scan")), (2, 3));
}

#[test]
fn recomputation_stays_behind_its_barriers() {
    let program = read("checkpointed").unwrap().jaxpr;
    assert!(count(&program, "optimization_barrier") > 0);
}

#[test]
fn donation_is_that_of_the_arguments() {
    assert_eq!(read("donated").unwrap().donations, [Donation::Result(0), Donation::No]);
    let donations = read("classifier_step").unwrap().donations;
    let expected = [1, 2, 3, 4].map(Donation::Result);
    assert_eq!(donations, [[Donation::No; 2].as_slice(), &expected].concat());
}

#[test]
fn equations_have_the_lines_of_the_python_file() {
    let source = std::fs::read_to_string(fixtures().join("write.py")).unwrap();
    let line = source.lines().position(|line| line.contains("return w - 0.1 * g")).unwrap() as u32 + 1;
    for eqn in read("donated").unwrap().jaxpr.eqns {
        let site = eqn.loc.site.unwrap();
        assert_eq!((site.file(), site.line()), ("write.py", line));
        assert_eq!(&*eqn.loc.scope.path(), "jit(donated)");
    }
    let bytes = bytes("donated");
    let program = import(&Module::read(&bytes).unwrap(), ImportOptions { locations: false }).unwrap();
    assert!(program.jaxpr.eqns.iter().all(|eqn| eqn.loc.site.is_none()));
}

#[test]
fn constants_are_inputs_in_front() {
    let program = read("branches").unwrap();
    assert_eq!(program.constants.len(), 1);
    assert_eq!(program.constants[0].as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 5.0][..]));
    assert_eq!(program.jaxpr.in_avals()[0].to_string(), "f32[4]");
}

#[test]
fn what_is_nearly_known_is_not_taken_for_it() {
    let near = [
        ("near_sum", ["reduce_sum", "reduce_max"]),
        ("near_or", ["reduce_or", "reduce_and"]),
        ("near_argmax", ["argmax", "argmin"]),
        ("near_windows", ["cumprod", "reduce_window_sum"]),
    ];
    for (name, others) in near {
        let program = read(name).unwrap().jaxpr;
        assert_eq!(others.map(|other| count(&program, other)), [0, 0], "{program}");
    }
}

/// What the programs of this folder that are refused say.
#[test]
fn what_has_no_counterpart_is_refused_with_its_line() {
    let expected = [
        ("refused_fft", "convert", "not supported: complex numbers"),
        ("refused_scatter", "scatter", "not supported: a function that is not made of elementwise operations"),
        (
            "refused_schur",
            "custom_call",
            "not supported: `lapack_sgees_ffi`, a function of the CPU's LAPACK, which JAX writes for its own CPU backend only",
        ),
    ];
    let source = std::fs::read_to_string(fixtures().join("write.py")).unwrap();
    for (name, operation, message) in expected {
        let error = read(name).unwrap_err();
        assert_eq!((error.kind(), error.operation(), error.message()), (ErrorKind::Unsupported, operation, message));
        let site = error.loc().unwrap().site.unwrap();
        let function = source.lines().position(|line| line.contains(&format!("def {name}("))).unwrap();
        let length = source.lines().skip(function).position(str::is_empty).unwrap();
        assert!((function + 1..=function + length).contains(&(site.line() as usize)), "{error}");
    }
}

/// What StableHLO has and XLA's generators do not give.
#[test]
fn other_states_and_other_bits_are_refused() {
    let expected = [
        ("refused_state", "not supported: random bits of philox from a state u64[4]"),
        ("refused_bits", "not supported: random bits as f32[5], which are not unsigned integers"),
    ];
    for (name, message) in expected {
        let error = read(name).unwrap_err();
        let found = (error.kind(), error.operation(), error.message());
        assert_eq!(found, (ErrorKind::Unsupported, "rng_bit_generator", message));
    }
}

/// A file of a few kilobytes must not stand for a program that no machine can hold, nor for one that exhausts the stack of whoever walks it.
#[test]
fn calls_are_bounded_in_depth_and_in_number() {
    let expected = [
        ("refused_doubling", "not supported: a program of more than 1048576 operations, with those of its calls"),
        ("refused_chain", "not supported: calls and bodies that are nested more than 200 deep"),
    ];
    for (name, message) in expected {
        let error = read(name).unwrap_err();
        assert_eq!((error.kind(), error.operation(), error.message()), (ErrorKind::Unsupported, "call", message));
    }
}

#[test]
fn a_file_that_ends_early_says_where() {
    let bytes = bytes("sorting");
    for length in 0..bytes.len() {
        let error = Module::read(&bytes[..length]).unwrap_err();
        let (_, offset) = error.message().rsplit_once(" at byte ").unwrap_or_else(|| panic!("{error}"));
        assert!(offset.parse::<usize>().unwrap() <= length, "{length}: {error}");
    }
    let error = Module::read(b"{ lambda ; a:f32[]. let in (a,) }").unwrap_err();
    assert_eq!(error.to_string(), "bytecode: the file does not begin as MLIR bytecode does, at byte 0");
}
