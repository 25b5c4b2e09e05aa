//! Which algorithm computes which problem, on the instruction sets at hand.
//!
//! `data/algorithms.txt` has a row for each problem and a column for each CPU that somebody has run this on. A choice that changes is
//! meant, or a threshold or a condition is wrong: `BLESS=1 cargo test -p remat-kernels --test algorithms` writes the columns of this machine.

mod problems;

use std::collections::BTreeMap;
use std::process::Command;
use std::{env, fs};

use problems::{Layer, Order, Problem, attention, dot};
use remat_ir::DType::{Bf16, F16, F32, F64, I8, I32};
use remat_kernels::{AlgorithmInfo, algorithms, used_isa};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/algorithms.txt");

/// Problems of every algorithm, and problems just beyond what some algorithms are for.
fn problems() -> Vec<Problem> {
    use Order::{Nchw, Nhwc};
    let mut all = Vec::new();
    for (dtype, order) in [(F32, Nchw), (F32, Nhwc), (Bf16, Nchw), (Bf16, Nhwc)] {
        let layer = Layer::new(dtype, order, 8, [64, 64], 32, 3);
        all.extend([layer.forward(), layer.of_image(), layer.of_weights()]);
        let first = Layer { stride: 2, padding: 3, ..Layer::new(dtype, order, 8, [3, 64], 64, 7) };
        all.extend([first.forward(), first.of_image(), first.of_weights()]);
        let last = Layer::new(dtype, order, 8, [64, 3], 64, 3);
        all.extend([last.forward(), last.of_image(), last.of_weights()]);
    }
    for (dtype, order) in [(F32, Nchw), (F32, Nhwc), (Bf16, Nchw), (Bf16, Nhwc)] {
        for (size, stride) in [(32, 1), (14, 2)] {
            let depthwise = Layer { groups: 64, stride, ..Layer::new(dtype, order, 8, [64, 64], size, 3) };
            all.extend([depthwise.forward(), depthwise.of_weights()]);
        }
    }
    let small = |channels| Layer::new(F32, Nchw, 8, channels, 32, 3);
    all.push(small([32, 31]).forward());
    all.push(small([31, 32]).of_weights());
    all.push(Layer { stride: 2, ..small([64, 64]) }.forward());
    all.push(Layer { dilation: 2, padding: 2, ..small([64, 64]) }.forward());
    all.push(Layer { groups: 32, ..small([64, 64]) }.forward());
    all.push(Layer { groups: 2, ..small([64, 64]) }.of_weights());
    all.push(Layer::new(F32, Nchw, 64, [64, 64], 3, 3).forward());
    all.push(Layer::new(F32, Nchw, 8, [64, 64], 32, 1).forward());
    all.push(Layer::new(F64, Nchw, 8, [16, 16], 32, 3).forward());
    all.push(Layer::new(F64, Nchw, 8, [64, 3], 32, 5).forward());
    all.push(Layer::new(F16, Nchw, 8, [64, 64], 32, 3).forward());
    all.push(Layer::new(I8, Nhwc, 8, [64, 64], 32, 3).forward());
    all.push(Layer::new(I32, Nchw, 8, [16, 16], 32, 3).forward());
    all.push(Layer::new(Bf16, Nchw, 1, [16, 4], 8, 3).forward());
    for [from, to] in [[F32; 2], [F64; 2], [I32; 2], [Bf16; 2], [F16; 2], [I8, I32]] {
        all.push(dot([from, to], 1, [300, 300, 300], false));
        all.push(dot([from, to], 64, [32, 32, 32], false));
        all.push(dot([from, to], 1, [2, 1024, 1024], true));
        all.push(dot([from, to], 1, [1, 1024, 1024], false));
    }
    all.push(dot([I8, I32], 1, [8, 1024, 1024], false));
    all.push(dot([I8, I32], 1, [9, 1024, 1024], false));
    all.push(dot([F32; 2], 1, [16, 300, 64], false));
    all.push(dot([F32; 2], 1, [17, 300, 64], false));
    all.push(dot([F32; 2], 1, [16, 300, 63], false));
    all.push(dot([Bf16, F32], 8, [24, 24, 24], false));
    for dtype in [F32, Bf16] {
        all.push(attention(dtype, [2, 128, 128, 4, 64], false));
        all.push(attention(dtype, [2, 128, 128, 4, 64], true));
        all.push(attention(dtype, [2, 8, 1024, 4, 64], false));
        all.push(attention(dtype, [2, 9, 1024, 4, 64], false));
    }
    all
}

/// The instructions that this process uses for products.
fn instructions() -> String {
    let isa = used_isa();
    #[allow(unused_mut, reason = "only x86-64 has names for the instructions that not every CPU of a set has")]
    let mut all =
        vec![if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86-64" }.to_string(), isa.name().to_string()];
    #[cfg(target_arch = "x86_64")]
    {
        use remat_kernels::Isa;
        let detected = [
            ("avxvnni", Isa::Avx2, is_x86_feature_detected!("avxvnni")),
            ("vnni", Isa::Avx512, is_x86_feature_detected!("avx512vnni")),
            ("bf16", Isa::Avx512, is_x86_feature_detected!("avx512bf16")),
        ];
        all.extend(detected.iter().filter(|(_, of, has)| *has && isa >= *of).map(|(name, ..)| (*name).to_string()));
    }
    all.join("-")
}

/// The columns of the file by their names, each with the algorithms by the names of the problems.
fn recorded() -> BTreeMap<String, BTreeMap<String, String>> {
    let text = fs::read_to_string(FILE).unwrap_or_default();
    let mut lines = text.lines().map(|line| line.split('|').map(str::trim));
    let names: Vec<&str> = lines.next().into_iter().flatten().skip(1).collect();
    let mut columns: BTreeMap<String, BTreeMap<String, String>> =
        names.iter().map(|name| (name.to_string(), BTreeMap::new())).collect();
    for mut cells in lines {
        let problem = cells.next().expect("a line has a first cell").to_string();
        for (name, cell) in names.iter().zip(cells) {
            columns.get_mut(*name).expect("a column of the head").insert(problem.clone(), cell.to_string());
        }
    }
    columns
}

fn write(columns: &BTreeMap<String, BTreeMap<String, String>>) {
    let width = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
    let problems: Vec<String> = problems().into_iter().map(|problem| problem.name).collect();
    let first = width(&mut problems.iter().map(String::len));
    let mut text = format!("{:first$}", "problem");
    let widths: Vec<usize> =
        columns.iter().map(|(name, cells)| width(&mut cells.values().map(String::len).chain([name.len()]))).collect();
    columns.keys().zip(&widths).for_each(|(name, width)| text += &format!(" | {name:width$}"));
    for problem in &problems {
        text += &format!("\n{problem:first$}");
        for (cells, width) in columns.values().zip(&widths) {
            text += &format!(" | {:width$}", cells.get(problem).map_or("", |cell| cell));
        }
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    fs::write(FILE, lines.join("\n") + "\n").unwrap();
}

/// Compares or writes the column of this process, and says its name.
fn column() -> String {
    let (name, found, mut columns) = (instructions(), chosen(), recorded());
    if env::var_os("BLESS").is_some() {
        columns.insert(name.clone(), found);
        write(&columns);
    } else if let Some(expected) = columns.get(&name) {
        let differing: Vec<String> = found
            .iter()
            .filter(|(problem, algorithm)| expected.get(*problem) != Some(algorithm))
            .map(|(problem, algorithm)| format!("{problem}: {algorithm}, was {:?}", expected.get(problem)))
            .collect();
        assert!(differing.is_empty(), "{name}:\n{}", differing.join("\n"));
        assert_eq!(expected.len(), found.len(), "{name} has problems that the test does not have");
    } else {
        return format!("{name} is not in the file");
    }
    format!("{name} is right")
}

/// The algorithm of each problem, by the name of the problem.
fn chosen() -> BTreeMap<String, String> {
    let of = |problem: &Problem| problem.kernel().algorithm().expect("it has a name").to_string();
    problems().iter().map(|problem| (problem.name.clone(), of(problem))).collect()
}

/// What an ignored test of this file prints between `<` and `>`, in a process of its own with these variables, which are read once.
fn said(test: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env_remove("REMAT_MATMUL_PRECISION")
        .env_remove("REMAT_ALGORITHM")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{variables:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text.split(['<', '>']).skip(1).step_by(2).map(str::to_string).collect()
}

#[test]
#[ignore = "run by a test below"]
fn one_column() {
    println!("<{}>", column());
}

#[test]
fn each_problem_is_computed_by_its_algorithm() {
    let of = |isa: &&str| said("one_column", &[("REMAT_MAX_CPU_ISA", isa)]);
    let said: Vec<String> = ["baseline", "avx2", "avx512", "amx"].iter().flat_map(of).collect();
    assert_eq!(said.len(), 4);
    // Every CPU of the architecture has the baseline.
    if cfg!(target_arch = "x86_64") {
        assert_eq!(said[0], "x86-64-baseline is right");
    }
    assert_eq!(chosen().len(), problems().len(), "each problem has its own name");
}

#[test]
fn each_algorithm_computes_a_problem() {
    let columns = recorded();
    for AlgorithmInfo { family, name, .. } in algorithms() {
        let mut cells = columns.values().flatten();
        assert!(
            cells.any(|(problem, cell)| problem.starts_with(&format!("{family} ")) && cell == name),
            "{family} {name}"
        );
    }
}

#[test]
#[ignore = "run by the test below"]
fn names() {
    chosen().iter().for_each(|(problem, name)| println!("<{problem}|{name}>"));
}

#[test]
fn a_forced_algorithm_is_used_where_it_applies() {
    let of = |forced: &str| -> BTreeMap<String, String> {
        let rows = said("names", &[("REMAT_ALGORITHM", forced)]);
        rows.iter().filter_map(|row| row.split_once('|')).map(|(a, b)| (a.to_string(), b.to_string())).collect()
    };
    let usual = of("");
    assert_eq!(usual.len(), problems().len());
    // These compute every problem.
    let general = of("conv=im2col,dot=blocked,attention=tiles");
    for (problem, name) in &general {
        let expected = [("conv", "im2col"), ("dot", "blocked"), ("attention", "tiles")];
        assert!(expected.iter().any(|(family, of)| problem.starts_with(family) && name == of), "{problem}: {name}");
    }
    let direct = of("conv=direct");
    let differing: Vec<&String> = direct.keys().filter(|problem| direct[*problem] != usual[*problem]).collect();
    assert!(
        differing.iter().all(|problem| direct[*problem] == "direct" && problem.starts_with("conv ")),
        "{differing:?}"
    );
    let changed = "conv forward f32 Nchw 8x64x32x32 to 64 by 3x3";
    assert_eq!([&usual[changed], &direct[changed]], ["winograd", "direct"]);
    let too_narrow = "conv forward f32 Nchw 8x64x32x32 to 64 by 3x3 stride 2";
    assert_eq!(direct[too_narrow], "im2col");
}
