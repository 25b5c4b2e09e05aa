//! Reports of memory: their data, hostile names, and what a browser makes of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use remat::nn::{Gpt2, Gpt2Config, cross_entropy};
use remat::{DType, Plan, Policy, Tensor, checkpoint, grad, named_scope, plan, random};
use remat_io::{save_report, save_report_with};
use remat_testkit::not_tested;
use serde_json::{Value, json};

/// Names that are wrong wherever they are taken for something else than text.
const HOSTILE: [&str; 6] = [
    "</script><script>window.hostile = 1</script>",
    "<img src=x onerror='window.hostile = 1'>",
    "\"'`;window.hostile = 1;//{{data}}",
    "a\u{202e}txt.exe\u{2066}b\u{200f}",
    "&lt;!--<script>\u{2028}window.hostile = 1",
    "]]>\\u003cscript>${window.hostile = 1}\0",
];

/// Eight layers with hostile names and scopes, every other one a region with a policy. The backward pass reads what they compute.
fn program(policy: Option<Policy>) -> Plan {
    let long = "long ".repeat(10_000);
    let name = |i: usize| format!("hidden {}", HOSTILE.get(i).copied().unwrap_or(&long));
    let layer = |x: Tensor, i: usize, w: &Tensor| {
        named_scope(&format!("layer {i} {}", HOSTILE[i % HOSTILE.len()]), || x.matmul(w).tanh().named(&name(i)))
    };
    let loss = move |weights: &BTreeMap<String, Tensor>| {
        let x = Tensor::ones([256, 32], DType::F32);
        let region =
            |x: Tensor, i: usize, w: &Tensor| checkpoint(policy.clone(), |x: &Tensor| layer(x.clone(), i, w))(&x);
        let apply = |x, (i, w): (usize, &Tensor)| if i % 2 == 1 { region(x, i, w) } else { layer(x, i, w) };
        weights.values().enumerate().fold(x, apply).square().sum(..)
    };
    let key = |i: usize| format!("{i} {}", HOSTILE[i % HOSTILE.len()]);
    let weights = (0..8).map(|i| (key(i), Tensor::eye(32, DType::F32) * 0.5)).collect::<BTreeMap<_, _>>();
    plan(grad(loss), weights).unwrap()
}

fn plans() -> Vec<Plan> {
    program(Some(Policy::Nothing)).pareto(6).unwrap()
}

/// The same layers under policies, one of which has a hostile name.
fn policies() -> Vec<(String, Plan)> {
    let of = |name: &str, policy| (name.to_string(), program(policy));
    vec![of("none", None), of(HOSTILE[0], Some(Policy::Dots)), of("Nothing", Some(Policy::Nothing))]
}

fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(data).unwrap()
}

fn report(folder: &Path) -> String {
    let path = folder.join("report.html");
    save_report_with(&path, &format!("plans of {}", HOSTILE[0]), &plans(), &policies()).unwrap();
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_report_has_all_values_of_all_plans() {
    let folder = tempfile::tempdir().unwrap();
    let (plans, page) = (plans(), report(folder.path()));
    let data = data(&page);
    assert!(plans.len() > 1 && data["plans"].as_array().unwrap().len() == plans.len());
    for (plan, shown) in plans.iter().zip(data["plans"].as_array().unwrap()) {
        let memory = plan.live_ranges().unwrap();
        assert_eq!(shown["peak"], json!(plan.peak()));
        assert_eq!(shown["steps"]["time"].as_array().unwrap().len(), memory.steps.len());
        let column = |name: &str| shown["ranges"][name].as_array().unwrap();
        let names = column("name").iter().map(|i| data["strings"][i.as_u64().unwrap() as usize].as_str().unwrap());
        let expected = memory.ranges.iter().map(|range| range.value.name.as_deref().unwrap_or_default());
        assert!(names.eq(expected));
        let bytes: u64 = column("bytes").iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(bytes, memory.ranges.iter().map(|range| range.value.bytes as u64).sum::<u64>());
    }
    // No name ends an element, and none is markup.
    assert_eq!((page.matches("</script").count(), page.matches("<script").count()), (2, 2));
    assert!(!page.contains("<img") && !page.contains("<!--"));
    assert!(!page.contains(
        |c: char| matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\0')
    ));
}

#[test]
fn policies_are_points_beside_the_curve() {
    let folder = tempfile::tempdir().unwrap();
    let (plans, policies, data) = (plans(), policies(), data(&report(folder.path())));
    let shown = data["policies"].as_array().unwrap();
    assert_eq!(shown.len(), policies.len());
    for ((name, plan), shown) in policies.iter().zip(shown) {
        assert_eq!((&shown["name"], &shown["peak"]), (&json!(name), &json!(plan.peak())));
    }
    // The last is the program of the plans, and takes what that takes without a limit. Without regions nothing is computed again.
    let overhead = |i: usize| shown[i]["overhead"].as_f64().unwrap();
    assert!(overhead(2).abs() < 1e-3 && overhead(0) < overhead(2), "{shown:?}");
    assert!(policies[2].1.peak() >= plans[0].peak());
}

#[test]
fn what_is_computed_again_refers_to_what_was_computed_first() {
    let folder = tempfile::tempdir().unwrap();
    let (plans, data) = (plans(), data(&report(folder.path())));
    let mut counts = Vec::new();
    for (plan, shown) in plans.iter().zip(data["plans"].as_array().unwrap()) {
        let (ranges, memory) = (&shown["ranges"], plan.live_ranges().unwrap());
        let repeats = ranges["repeats"].as_array().unwrap();
        let pairs = repeats.iter().enumerate().filter_map(|(i, first)| Some((i, first.as_u64()? as usize)));
        let pairs: Vec<(usize, usize)> = pairs.collect();
        for &(again, first) in &pairs {
            for column in ["aval", "operation", "line", "scope"] {
                assert_eq!(ranges[column][again], ranges[column][first], "{column} of {again} and {first}");
            }
            assert!(ranges["born"][first].as_u64() < ranges["born"][again].as_u64());
            assert_eq!((&ranges["role"][again], &ranges["repeats"][first]), (&json!(1), &Value::Null));
        }
        let is_run_again = |&(again, _): &&(usize, usize)| memory.ranges[*again].first.is_some();
        counts.push((pairs.len(), pairs.iter().filter(is_run_again).count()));
    }
    // The last plan repeats nothing: these are the copies of the regions. The first repeats more.
    let [(fewest, of_plan), (all, repeated)] = [counts[counts.len() - 1], counts[0]];
    assert!(fewest > 0 && of_plan == 0 && repeated > 0 && all > repeated, "{counts:?}");
}

#[test]
fn a_report_has_one_plan_at_least_and_is_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let error = save_report(&path, "none", &[]).unwrap_err();
    assert_eq!(error.message(), "a report has 1 to 32 plans, not 0");
    let one = plan(|x: &Tensor| x.exp(), Tensor::ones([4], DType::F32)).unwrap();
    assert!(save_report(&path, "many", &vec![one.clone(); 33]).is_err() && !path.exists());
    let error = save_report(folder.path().join("missing/report.html"), "one", &[one]).unwrap_err();
    assert!(error.message().contains("missing"), "{error}");
}

/// What a reader does in a page.
const READER: &str = include_str!("data/report.js");

/// What the script of a reader finds in a page in this browser.
fn read(browser: &str, folder: &Path, page: &str, script: &str, is_dark: bool) -> Value {
    let hooks = "<script>window.problems = []; const note = (text) => window.problems.push(String(text));
        addEventListener('error', (event) => note(event.message)); console.error = note; console.warn = note;
        addEventListener('securitypolicyviolation', (event) => note(event.violatedDirective));</script>";
    let reader = format!("<script>\n{script}</script>\n</body>");
    let copy = page.replacen("<meta charset", &format!("{hooks}\n<meta charset"), 1);
    let (before, after) = copy.rsplit_once("</body>").unwrap();
    let path = folder.join("read.html");
    fs::write(&path, format!("{before}{reader}{after}")).unwrap();
    let scheme = if is_dark { 0 } else { 1 };
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--timeout=60000",
            "--window-size=1400,1200",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = dom.split_once("<pre id=\"result\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (result, _) = result.unwrap_or_else(|| panic!("the script of the reader failed: {said}"));
    // The text is escaped as text of HTML is.
    let result = result.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&result).unwrap()
}

/// The page with at least this many values in each of 32 plans: copies of its own, one after the other.
fn enlarged(page: &str, values: usize) -> String {
    let (before, rest) = page.split_once("id=\"data\">").unwrap();
    let (_, after) = rest.split_once("</script>").unwrap();
    let mut all = data(page);
    let plans = all["plans"].as_array_mut().unwrap();
    for plan in plans.iter_mut() {
        let steps = plan["steps"]["time"].as_array().unwrap().len();
        let copies = values.div_ceil(plan["ranges"]["bytes"].as_array().unwrap().len());
        let repeat = |columns: &mut Value, is_moved: bool| {
            for (name, column) in columns.as_object_mut().unwrap() {
                let list = column.as_array().unwrap().clone();
                let count = list.len();
                let moved = |copy: usize| {
                    let by = match name.as_str() {
                        "born" | "end" if is_moved => copy * steps,
                        "repeats" => copy * count,
                        _ => 0,
                    };
                    list.iter().map(move |n| n.as_u64().map_or(n.clone(), |n| json!(n + by as u64))).collect::<Vec<_>>()
                };
                *column = (0..copies).flat_map(moved).collect();
            }
        };
        repeat(&mut plan["steps"], false);
        repeat(&mut plan["ranges"], true);
        // Memory of the caller would pile up.
        let bytes = plan["ranges"]["offset"].as_array().unwrap().iter().map(|offset| offset.as_i64() == Some(-1));
        let own: Vec<bool> = bytes.collect();
        let reserved = plan["ranges"]["reserved"].as_array_mut().unwrap();
        let first = own.len() / copies;
        (first..own.len()).filter(|&i| own[i]).for_each(|i| reserved[i] = json!(0));
    }
    let few = plans.clone();
    *plans = (0..32).map(|i| few[i * few.len() / 32].clone()).collect();
    for (i, plan) in plans.iter_mut().enumerate() {
        plan["peak"] = json!(plan["peak"].as_u64().unwrap() + 4096 * i as u64);
        plan["overhead"] = json!(0.3 - 0.01 * i as f64);
    }
    format!("{before}id=\"data\">{}</script>{after}", all.to_string().replace('<', "\\u003c"))
}

/// The browser of `REMAT_TEST_CHROMIUM`.
fn browser() -> Option<String> {
    let browser = std::env::var("REMAT_TEST_CHROMIUM").ok().filter(|browser| !browser.is_empty());
    if browser.is_none() {
        not_tested("a report in a browser", &"REMAT_TEST_CHROMIUM does not name one");
    }
    browser
}

#[test]
fn a_browser_shows_it() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path());
    let [light, dark] = [false, true].map(|is_dark| read(&browser, folder.path(), &page, READER, is_dark));
    assert_eq!((&light["wrong"], &dark["wrong"]), (&json!([]), &json!([])));
    assert_eq!((&light["back"], &dark["back"]), (&json!("rgb(255, 255, 255)"), &json!("rgb(20, 23, 26)")));
    let large = read(&browser, folder.path(), &enlarged(&page, 10_000), READER, false);
    assert_eq!((&large["wrong"], &large["plans"]), (&json!([]), &json!(32)));
    // The fastest of thirty frames, in milliseconds: some twelve. What grows with the square of the values takes minutes.
    assert!(large["frame"].as_f64().unwrap() < 1000.0, "{large}");
}

/// The gradient of a GPT of 24 layers.
fn gradient_of_gpt(are_stacked: bool) -> Plan {
    let config =
        Gpt2Config { vocab_size: 32, n_positions: 8, n_embd: 16, n_head: 2, n_layer: 24, ..Gpt2Config::default() };
    let mut model = Gpt2::init(random::key(0), &config, DType::F32);
    if are_stacked {
        model.blocks = model.blocks.stacked().unwrap();
    }
    model.blocks = model.blocks.with_policy(Policy::Dots);
    let tokens = Tensor::zeros([2, 8], DType::I32);
    plan(grad(move |model: &Gpt2| cross_entropy(&model.apply(&tokens), &tokens).mean(..)), model).unwrap()
}

#[test]
fn memory_is_added_up_by_layer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let page = |are_stacked| {
        save_report(&path, "a GPT", &[gradient_of_gpt(are_stacked)]).unwrap();
        fs::read_to_string(&path).unwrap()
    };
    let [unrolled, stacked] = [false, true].map(page);
    let scopes = |page: &str| -> Vec<String> {
        let strings = data(page)["strings"].as_array().unwrap().clone();
        strings
            .iter()
            .filter_map(|text| Some(text.as_str()?.to_string()))
            .filter(|text| text.starts_with("gpt2/"))
            .collect()
    };
    let of_unrolled = scopes(&unrolled);
    for layer in 0..24 {
        for part in ["", "/attention", "/mlp"] {
            assert!(of_unrolled.contains(&format!("gpt2/block[{layer}]{part}")), "{of_unrolled:?}");
        }
    }
    // The body of a loop is one layer: the values inside, and the stacks of what it keeps.
    let of_stacked = scopes(&stacked);
    let has = |part: &str| of_stacked.contains(&format!("gpt2/block/{part}"));
    assert!(has("attention") && has("mlp") && !of_stacked.iter().any(|scope| scope.contains('[')), "{of_stacked:?}");
    assert!(unrolled.len() < 300_000, "{}", unrolled.len());
    let Some(browser) = browser() else { return };
    let script = "const at = (id) => document.getElementById(id);
        const rows = () => [...at('scopes').tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
        const sort = (name) => [...at('scopes').tHead.querySelectorAll('button')].find((button) => button.textContent.startsWith(name)).click();
        sort('scope');
        const apart = rows();
        at('together').click();
        const result = document.createElement('pre');
        result.id = 'result';
        result.textContent = JSON.stringify({ wrong: window.problems, apart, together: rows(), time: !at('time').hidden });
        document.body.append(result);";
    let found = read(&browser, folder.path(), &unrolled, script, false);
    // One plan has no curve.
    assert_eq!((&found["wrong"], &found["time"]), (&json!([]), &json!(false)));
    let layers = |table: &Value| -> Vec<Vec<String>> {
        let rows: Vec<Vec<String>> = serde_json::from_value(table.clone()).unwrap();
        rows.into_iter().filter(|row| row[0].starts_with("gpt2/block")).collect()
    };
    let (apart, together) = (layers(&found["apart"]), layers(&found["together"]));
    let names: Vec<&str> = apart.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, (0..24).map(|layer| format!("gpt2/block[{layer}]")).collect::<Vec<_>>());
    assert!(apart.iter().all(|row| row[2] != "0 B" && row[3] != "0 B"), "{apart:?}");
    let count = |rows: &[Vec<String>]| rows.iter().map(|row| row[4].parse::<usize>().unwrap()).sum::<usize>();
    assert_eq!((together.len(), together[0][0].as_str()), (1, "gpt2/block[*]"));
    assert_eq!(count(&together), count(&apart));
}
