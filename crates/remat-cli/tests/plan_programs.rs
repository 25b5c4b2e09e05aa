//! `remat plan` of programs in files and of training steps, and the files of plans that it and `remat train` share.

mod common;

use std::fs;
use std::path::Path;

use common::{command, error, folder, remat, stdout};
use remat::{DType, Tensor, grad, make_jaxpr};
use serde_json::{Value, json};

/// A gradient whose backward pass reads what each layer computes, as text, with a constant.
fn program() -> String {
    let w = Tensor::eye(16, DType::F32);
    let loss = |x: &Tensor| (0..6).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..);
    // The result can take the memory of the argument.
    let step = |x: &Tensor| -> remat::Result<Tensor> { Ok(x - grad(loss)(x)? * 0.01) };
    make_jaxpr(step)(&Tensor::ones([32, 16], DType::F32)).unwrap().to_string()
}

fn with_program() -> tempfile::TempDir {
    let at = folder("");
    fs::write(at.path().join("program.txt"), program()).unwrap();
    at
}

fn line(output: &str) -> Value {
    serde_json::from_str(output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// What a command that went well wrote to standard error.
fn said(folder: &Path, args: &str) -> String {
    let output = remat(folder, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn programs_are_planned() {
    let at = with_program();
    let curve = stdout(remat(at.path(), "plan program.txt"));
    let rows: Vec<&str> = curve.lines().collect();
    assert!(
        rows[0].starts_with("program.txt: a call needs ") && rows[0].ends_with(" without recomputation"),
        "{curve}"
    );
    assert!(rows[2].starts_with("peak ") && rows.len() > 4, "{curve}");
    assert!(rows.last().unwrap().contains("  0.00 "), "the last computes nothing again: {curve}");
    let text = stdout(remat(at.path(), "plan program.txt --budget 80%"));
    assert!(text.starts_with("program.txt, within ") && text.contains("\ncomputed again, for "), "{text}");
    assert!(text.contains(" % more time by the cost model") && text.contains("live at the peak:\n"), "{text}");
    let planned = line(&stdout(remat(at.path(), "plan program.txt --budget 80% --json")));
    let number = |key: &str| planned[key].as_f64().unwrap();
    assert_eq!(planned["program"], json!("program.txt"));
    assert!(number("peak") <= number("budget") && number("budget") <= 0.8 * number("peak_once"), "{planned}");
    assert!(number("repeated") >= number("bound") && number("overhead") > 0.0, "{planned}");
    assert!(planned["recomputed"][0]["times"].as_u64().unwrap() > 0, "{planned}");
    // A result may take the memory of an argument that is given away.
    let donated = line(&stdout(remat(at.path(), "plan program.txt --donate all --budget 100% --json")));
    assert!(donated["peak_once"].as_u64() < planned["peak_once"].as_u64(), "{donated}");
    // Nothing fits one budget.
    let output = remat(at.path(), "plan program.txt --budget 1000 --budget 100% --json");
    let output = stdout(output);
    let lines: Vec<Value> = output.lines().map(line).collect();
    let problem = lines[0]["error"].as_str().unwrap();
    assert!(problem.starts_with("the program needs ") && problem.ends_with(" and the limit is 1000 B"), "{problem}");
    assert_eq!(lines[1]["overhead"], json!(0.0));
    let output = remat(at.path(), "plan program.txt --budget 1000");
    assert!(String::from_utf8_lossy(&output.stdout).contains("arguments and results alone take "));
    assert_eq!(error(output), "error: no plan was found within the budget\n");
}

#[test]
fn plans_are_written_as_a_page() {
    let at = with_program();
    let page = || fs::read_to_string(at.path().join("plans.html")).unwrap();
    let data = |page: &str| -> Value {
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    };
    let output = said(at.path(), "plan program.txt --budget 80% --budget 100% --html plans.html");
    assert!(output.ends_with("wrote the memory of 2 plans to plans.html\n"), "{output}");
    let two = data(&page());
    assert_eq!((&two["title"], two["plans"].as_array().unwrap().len()), (&json!("program.txt"), 2));
    assert!(two["plans"][0]["peak"].as_u64() < two["plans"][1]["peak"].as_u64());
    let output = said(at.path(), "plan program.txt --html plans.html");
    let plans = data(&page())["plans"].as_array().unwrap().len();
    assert!(plans > 2 && output.ends_with(&format!("wrote the memory of {plans} plans to plans.html\n")), "{output}");
    // Nothing to write is not an empty page.
    assert!(!remat(at.path(), "plan program.txt --budget 1000 --html none.html").status.success());
    assert!(!at.path().join("none.html").exists());
    fs::write(at.path().join("graph.json"), r#"{"n": 1, "cost": [1], "mem": [1], "edges": []}"#).unwrap();
    for wrong in ["graph.json", "program.txt program.txt"] {
        let problem = error(remat(at.path(), &format!("plan {wrong} --html plans.html")));
        assert_eq!(problem, "error: --html goes with one program and at most 32 budgets\n", "{wrong}");
    }
}

#[test]
fn what_cannot_be_planned_is_told() {
    let at = with_program();
    fs::write(at.path().join("notes.md"), "a { lambda").unwrap();
    fs::write(at.path().join("wrong.txt"), "{ lambda ; a:f32[3]. let\n  b:f32[4] = sin a in (b,) }").unwrap();
    fs::write(at.path().join("graph.json"), r#"{"n": 1, "cost": [1], "mem": [1], "edges": []}"#).unwrap();
    let cases = [
        ("program.txt --budget 0", "--budget: a program needs more than 0 bytes"),
        ("missing.txt", "missing.txt: No such file"),
        ("notes.md", "notes.md: it is neither a graph, an object of JSON, nor a program, which begins with `{ lambda`"),
        ("wrong.txt", "wrong.txt: sin: line 2, column 3: `b` is written as f32[4] and the result is f32[3]"),
        ("program.txt --donate 2", "program.txt: --donate: the program has 2 inputs, numbered from 0"),
        ("program.txt --effort best", "--effort and --reorder go with graphs"),
        ("program.txt --model gpt2", "the flags of a model do not go with files"),
        ("graph.json --donate all", "--donate goes with programs in files"),
        ("graph.json --budget 50% --plan x", "--plan goes with one program and one --budget"),
        ("program.txt --plan x", "--plan goes with one program and one --budget"),
        ("--heads 5", "heads"),
    ];
    for (args, expected) in cases {
        let said = error(remat(at.path(), &format!("plan {args}")));
        assert!(said.starts_with("error: ") && said.contains(expected), "{args}: {said}");
    }
    for args in ["--budget=NaN", "--budget=16777216TiB", "--budget=-1", "--donate=x", "--locked"] {
        let output = command(at.path(), ["plan", "program.txt", args]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Graphs and programs together.
    let both = stdout(remat(at.path(), "plan graph.json program.txt --budget 100% --json"));
    assert_eq!(both.lines().count(), 2, "{both}");
}

#[test]
fn a_file_locks_the_plan_of_a_program() {
    let at = with_program();
    let plan = "plan program.txt --budget 95% --plan program.plan --json";
    let file = at.path().join("program.plan");
    let missing = error(remat(at.path(), &format!("{plan} --locked")));
    assert!(missing.contains("cannot read `program.plan`") && missing.contains("--locked makes no other"), "{missing}");
    let made = stdout(remat(at.path(), plan));
    let written = fs::read(&file).unwrap();
    // Another process finds the same plan, and one with the file gets it.
    assert_eq!(stdout(remat(at.path(), &plan.replace("program.plan", "again.plan"))), made);
    assert_eq!(fs::read(at.path().join("again.plan")).unwrap(), written);
    let locked = line(&stdout(remat(at.path(), &format!("{plan} --locked"))));
    let made = line(&made);
    assert_eq!((&locked["peak"], &locked["overhead"]), (&made["peak"], &made["overhead"]));
    assert_eq!(said(at.path(), plan), "");
    // What the file is not: the reason is told, and the plan is made again, or the command fails.
    let told = |args: &str, threads: &str, reason: &str| {
        let run = |flag: &str| {
            command(at.path(), format!("{args} {flag}").split_whitespace())
                .env("REMAT_THREADS", threads)
                .output()
                .unwrap()
        };
        fs::copy(&file, at.path().join("kept.plan")).unwrap();
        assert_eq!(error(run("--locked")), format!("error: {reason}, and --locked makes no other\n"));
        assert_eq!(fs::read(&file).unwrap(), fs::read(at.path().join("kept.plan")).unwrap());
        let again = String::from_utf8(run("").stderr).unwrap();
        assert_eq!(again, format!("note: {reason}; it is planned again\n"));
        assert!(run("--locked").status.success());
        fs::copy(at.path().join("kept.plan"), &file).unwrap();
    };
    let threads = written.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"threads ")).unwrap();
    let threads = str::from_utf8(threads).unwrap();
    told(plan, "7", &format!("`program.plan` is for {threads} threads, and the engine has 7"));
    told(&format!("{plan} --donate all"), threads, "`program.plan` is for callers who donate other arguments");
    let peak = made["peak"].as_u64().unwrap() as usize;
    let needs =
        format!("`program.plan` is a plan that needs {}, which is too much now", remat::report::readable_bytes(peak));
    told(&plan.replace("95%", "80%"), threads, &needs);
    fs::write(at.path().join("program.txt"), program().replace("tanh", "sinh")).unwrap();
    told(plan, threads, "`program.plan` is of another program, or of other sizes of it");
    fs::write(&file, &written[..40]).unwrap();
    told(plan, threads, "`program.plan` is cut off after 40 bytes");
    fs::write(&file, String::from_utf8(written.clone()).unwrap().replace("steps form 0", "steps form 1")).unwrap();
    told(plan, threads, "`program.plan` is damaged: its text is not what was written");
}

/// A step of this model, planned by one command, is trained by another.
#[cfg(target_os = "linux")]
#[test]
fn training_runs_as_a_file_says() {
    let at = folder(&"to be or not to be, ".repeat(300));
    let model = "--layers 2 --width 16 --heads 2 --context 32 --batch 16 --policy none --steps 1";
    let train = format!("train {model} --text text.txt --sample 0 --eval-every 0");
    let planned = stdout(remat(at.path(), &format!("plan {model} --budget 80% --plan step.plan")));
    assert!(planned.starts_with("a step of ") && planned.contains(", policy none, within "), "{planned}");
    assert!(planned.contains("\ncomputed again, for "), "{planned}");
    let losses = |output: &str| -> Vec<String> {
        output.lines().filter(|line| line.contains("loss after")).map(String::from).collect()
    };
    let free = stdout(remat(at.path(), &format!("{train} --save free")));
    // The file decides, also where the run would fit without it.
    let locked = stdout(remat(at.path(), &format!("{train} --save locked --plan step.plan --locked")));
    let says = "a step runs as the plan of the file says: it takes ";
    assert!(locked.contains(says) && !locked.contains("for 0.0 % more time"), "{locked}");
    assert_eq!(losses(&locked), losses(&free));
    // Another batch.
    let other = train.replace("--batch 16", "--batch 8");
    let refused = error(remat(at.path(), &format!("{other} --save other --plan step.plan --locked")));
    assert!(refused.contains("`step.plan` is of another program, or of other sizes of it"), "{refused}");
    let before = fs::read(at.path().join("step.plan")).unwrap();
    let told = stdout(remat(at.path(), &format!("{other} --save other --plan step.plan")));
    assert!(
        told.contains("note: `step.plan` is of another program, or of other sizes of it; it is planned again\n"),
        "{told}"
    );
    assert_ne!(fs::read(at.path().join("step.plan")).unwrap(), before);
    // It fits, so that nothing is computed again, and the file says so.
    let again = stdout(remat(at.path(), &format!("{other} --save again --plan step.plan --locked")));
    assert!(again.contains(says) && again.contains("for 0.0 % more time"), "{again}");
}

/// A gradient that JAX exported, of a scan.
fn with_export() -> tempfile::TempDir {
    let at = folder("");
    let export = concat!(env!("CARGO_MANIFEST_DIR"), "/../remat-stablehlo/tests/fixtures/scan_gradient.mlirbc");
    fs::copy(export, at.path().join("step.mlirbc")).unwrap();
    at
}

#[test]
fn programs_of_jax_are_shown_and_planned() {
    let at = with_export();
    let shown = stdout(remat(at.path(), "show step.mlirbc"));
    assert!(shown.starts_with("{ lambda ; a:f32[6,4] b:f32[4,4]. let\n"), "{shown}");
    assert!(shown.contains("= scan[") && shown.contains("# write.py:"), "{shown}");
    assert!(stdout(remat(at.path(), "show step.mlirbc --steps")).starts_with("== steps\n"));
    let planned = line(&stdout(remat(at.path(), "plan step.mlirbc --budget 100% --json")));
    assert_eq!(planned["program"], json!("step.mlirbc"));
    assert!(planned["peak"].as_u64().unwrap() > 0, "{planned}");
}

#[test]
fn programs_of_jax_that_are_damaged_are_errors() {
    let at = with_export();
    let whole = fs::read(at.path().join("step.mlirbc")).unwrap();
    fs::write(at.path().join("step.mlirbc"), &whole[..whole.len() / 2]).unwrap();
    for command in ["show", "plan"] {
        let said = error(remat(at.path(), &format!("{command} step.mlirbc")));
        assert!(said.contains("step.mlirbc: bytecode: ") && said.contains(" at byte "), "{said}");
    }
}

#[test]
fn the_page_of_a_training_step_has_policies() {
    let at = folder("");
    let model = "--layers 2 --width 32 --heads 2 --context 16 --batch 4 --policy names(attn,mlp)";
    let output = remat(at.path(), &format!("plan {model} --budget 100% --html step.html"));
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.status.success() && said.ends_with("wrote the memory of 1 plan to step.html\n"), "{said}");
    let page = fs::read_to_string(at.path().join("step.html")).unwrap();
    for policy in ["none", "Everything", "Dots", "DotsWithNoBatchDims", "Names(attn)", "Nothing", "Names(attn, mlp)"] {
        assert!(page.contains(&format!("{{\"name\":\"{policy}\",\"peak\":")), "{policy}");
    }
}
