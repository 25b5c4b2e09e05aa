//! `remat plan` as a user runs it: plans that another simulator replays, and files that are wrong.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use common::{error, folder, remat, stdout};
use serde_json::{Value, json};

fn write(folder: &Path, name: &str, graph: &Value) {
    fs::write(folder.join(name), graph.to_string()).unwrap();
}

/// Nodes of a forward and a backward pass: each backward node reads the result of a forward node.
fn nodes(layers: usize) -> Value {
    let n = 2 * layers;
    let mut edges: Vec<[usize; 2]> = (1..n).map(|node| [node - 1, node]).collect();
    edges.extend((0..layers - 1).map(|node| [node, n - 1 - node]));
    let cost: Vec<usize> = (0..n).map(|node| 10 + node % 3).collect();
    let mem: Vec<usize> = (0..n).map(|node| 5 + node % 2).collect();
    json!({"n": n, "cost": cost, "mem": mem, "edges": edges, "name": "chain", "backward": [1]})
}

/// The same as steps and buffers. The last writes an output.
fn steps(layers: usize) -> Value {
    let nodes = nodes(layers);
    let n = 2 * layers;
    let reads = |node: usize| -> Vec<&Value> {
        let edges = nodes["edges"].as_array().unwrap().iter();
        edges.filter(|edge| edge[1] == node).map(|edge| &edge[0]).collect()
    };
    let step = |node: usize| {
        let cost = &nodes["cost"][node];
        json!({"name": format!("step {node}"), "reads": reads(node), "writes": [node], "cost": cost, "scratch": 100 * (node % 2)})
    };
    let kind = |node: usize| if node + 1 == n { "output" } else { "temporary" };
    let buffer = |node: usize| json!({"bytes": 6000 - node, "kind": kind(node)});
    json!({"steps": (0..n).map(step).collect::<Vec<_>>(), "buffers": (0..n).map(buffer).collect::<Vec<_>>()})
}

fn lines(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
}

/// Follows the runs of a plan for a graph whose node `u` has one result of `sizes[u]`, and checks its times, its peak, and that no live
/// results share memory. `None` is a size that is not in the arena.
fn replay(line: &Value, reads: &[Vec<usize>], cost: &[usize], sizes: &[Option<usize>], scratch: &[usize]) {
    let order = numbers(&line["order"]);
    let mut newest: HashMap<usize, usize> = HashMap::new();
    let mut until: Vec<usize> = (0..order.len()).collect();
    let mut time = 0;
    for (run, &node) in order.iter().enumerate() {
        time += cost[node];
        for read in &reads[node] {
            let writer = newest.get(read).unwrap_or_else(|| panic!("run {run} of {node} reads {read}"));
            until[*writer] = run;
        }
        newest.insert(node, run);
    }
    assert_eq!(newest.len(), reads.len(), "each node runs");
    assert_eq!(line["time"], time);
    assert_eq!(line["repetitions"], order.len() - reads.len());
    let mut peak = 0;
    for run in 0..order.len() {
        let live = (0..=run).filter(|&writer| until[writer] >= run);
        let mut places: Vec<(usize, usize)> = Vec::new();
        for writer in live {
            if let (Some(size), Some(offset)) = (sizes[order[writer]], line["offsets"][writer][0].as_u64()) {
                places.push((offset as usize, size));
            }
        }
        if scratch[order[run]] > 0 {
            places.push((line["scratch"][run].as_u64().unwrap() as usize, scratch[order[run]]));
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{places:?}");
        let end = places.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
        assert!(end as u64 <= line["arena"].as_u64().unwrap());
        peak = peak.max(places.iter().map(|(_, size)| size).sum());
    }
    assert_eq!(line["peak"], peak);
    assert!(peak as u64 <= line["budget"].as_u64().unwrap());
    let [time, once, bound] = ["time", "time_once", "bound"].map(|key| line[key].as_u64().unwrap());
    assert!(once <= bound && bound <= time, "{line}");
    assert!((line["overhead"].as_f64().unwrap() - (time - once) as f64 / once as f64).abs() < 1e-12);
}

fn reads_of(nodes: &Value) -> Vec<Vec<usize>> {
    let mut reads = vec![Vec::new(); nodes["n"].as_u64().unwrap() as usize];
    nodes["edges"].as_array().unwrap().iter().map(numbers).for_each(|edge| reads[edge[1]].push(edge[0]));
    reads
}

#[test]
fn plans_of_nodes_are_replayed() {
    let at = folder("");
    let graph = nodes(12);
    write(at.path(), "graph.json", &graph);
    let output =
        stdout(remat(at.path(), "plan graph.json --budget 50% --budget 90% --budget 40 --effort quick --json"));
    let sizes: Vec<Option<usize>> = numbers(&graph["mem"]).into_iter().map(Some).collect();
    let lines = lines(&output);
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert_eq!((&line["graph"], &line["size_unit"]), (&json!("graph.json"), &json!("1")));
        assert!(line["repetitions"].as_u64().unwrap() > 0 && line.get("names").is_none(), "{line}");
        replay(line, &reads_of(&graph), &numbers(&graph["cost"]), &sizes, &[0; 24]);
    }
    let once = lines[0]["peak_once"].as_u64().unwrap();
    assert_eq!([0, 1, 2].map(|i| lines[i]["budget"].as_u64().unwrap()), [once / 2, once * 9 / 10, 40]);
    assert_eq!(
        output,
        stdout(remat(at.path(), "plan graph.json --budget 50% --budget 90% --budget 40 --effort quick --json"))
    );
}

#[test]
fn plans_of_steps_are_replayed() {
    let at = folder("");
    write(at.path(), "graph.json", &steps(10));
    let output = stdout(remat(at.path(), "plan graph.json --budget 50% --budget 1GiB --effort quick --json"));
    let nodes = nodes(10);
    // Sizes are multiples of 64 bytes; the last result is an output.
    let sizes: Vec<Option<usize>> =
        (0..20usize).map(|node| (node != 19).then_some((6000 - node).next_multiple_of(64))).collect();
    let scratch: Vec<usize> = (0..20).map(|node| 128 * (node % 2)).collect();
    let lines = lines(&output);
    for line in &lines {
        assert_eq!((&line["size_unit"], &line["time_unit"]), (&json!("B"), &json!("ps")));
        replay(line, &reads_of(&nodes), &numbers(&nodes["cost"]), &sizes, &scratch);
        let names: Vec<Value> = numbers(&line["order"]).into_iter().map(|step| json!(format!("step {step}"))).collect();
        assert_eq!(line["names"], Value::from(names));
        let last = numbers(&line["order"]).iter().position(|&step| step == 19).unwrap();
        assert_eq!(line["offsets"][last], json!([{"output": 19}]));
    }
    assert!(lines[0]["repetitions"].as_u64().unwrap() > 0);
    assert_eq!((&lines[1]["repetitions"], &lines[1]["time"]), (&json!(0), &lines[1]["time_once"]));
}

/// The order of the file cannot run, and the plan has its numbers.
#[test]
fn any_order_of_a_file_will_do() {
    let at = folder("");
    write(at.path(), "graph.json", &json!({"n": 3, "cost": [1, 2, 3], "mem": [1, 0, 1], "edges": [[2, 0], [0, 1]]}));
    let line = &lines(&stdout(remat(at.path(), "plan graph.json --budget 100% --json")))[0];
    assert_eq!((&line["order"], &line["time"], &line["peak"]), (&json!([2, 0, 1]), &json!(6), &json!(2)));
    assert_eq!(&lines(&stdout(remat(at.path(), "plan graph.json --reorder --budget 100% --json")))[0], line);
}

#[test]
fn a_table_has_a_row_for_each_graph_and_budget() {
    let at = folder("");
    fs::create_dir(at.path().join("graphs")).unwrap();
    write(at.path(), "graphs/b.json", &nodes(8));
    write(at.path(), "graphs/a.json", &steps(8));
    let output = stdout(remat(at.path(), "plan graphs --effort quick --budget 100% --budget 1%"));
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("graphs/a.json: 16 steps; without recomputation peak "), "{output}");
    assert!(lines[3].starts_with("graph   ") && lines[3].ends_with("  seconds"), "{output}");
    assert!(lines[5].starts_with("graphs/a.json") && lines[5].contains("  none, least known "), "{output}");
    assert!(lines[6].starts_with("graphs/b.json") && lines[6].contains("  100  "), "{output}");
    // The default budgets.
    let output = stdout(remat(at.path(), "plan graphs/b.json --effort quick"));
    assert_eq!(output.lines().count(), 10, "{output}");
    // No row has a plan.
    let output = remat(at.path(), "plan graphs/b.json --effort quick --budget 1 --json");
    assert_eq!(output.status.code(), Some(1));
    let line = &lines_of(&output.stdout)[0];
    assert_eq!((&line["budget"], &line["least_peak"]), (&json!(1), &line["peak_once"]));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "error: no plan was found within the budget\n");
    assert!(line.get("order").is_none());
}

fn lines_of(output: &[u8]) -> Vec<Value> {
    lines(str::from_utf8(output).unwrap())
}

/// A change of the value at a JSON pointer, and the message.
fn expect(graph: &Value, pointer: &str, value: Value, message: &str) {
    let mut graph = graph.clone();
    *graph.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    expect_text(&graph.to_string(), message);
}

fn expect_text(text: &str, message: &str) {
    let at = folder("");
    fs::write(at.path().join("graph.json"), text).unwrap();
    let said = error(remat(at.path(), "plan graph.json"));
    assert!(said.starts_with(&format!("error: graph.json: {message}")), "{said}\nand not {message}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn wrong_steps_are_named() {
    let graph = steps(3);
    expect(&graph, "/steps/3/reads", json!([2, 17]), "steps[3].reads[1]: there is no buffer 17");
    expect(&graph, "/steps/3/reads", json!([2, -1]), "steps[3].reads[1]: there is no buffer -1");
    expect(&graph, "/steps/3/reads", json!([2, 1.5]), "steps[3].reads[1]: there is no buffer 1.5");
    expect(&graph, "/steps/3/reads", json!([2, 2]), "steps[3].reads[1]: buffer 2 is listed twice");
    expect(&graph, "/steps/3/writes", json!([9]), "steps[3].writes[0]: there is no buffer 9");
    expect(&graph, "/steps/3/writes", json!([2]), "steps[3].writes[0]: steps[2] already writes buffer 2");
    expect(&graph, "/steps/3/writes", json!([3, 3]), "steps[3].writes[1]: steps[3] already writes buffer 3");
    expect(&graph, "/steps/3/writes", json!([]), "buffers[3]: no step writes it");
    expect(
        &graph,
        "/buffers/3/kind",
        json!("constant"),
        "steps[3].writes[0]: buffer 3 is an argument or a constant, which no step writes",
    );
    expect(
        &graph,
        "/steps/3/cost",
        json!(-5),
        "steps[3].cost: -5 is not a whole number from 0 to 18446744073709551615",
    );
    expect(&graph, "/steps/3/cost", json!(0.5), "steps[3].cost: 0.5 is not a whole number");
    expect(&graph, "/steps/3/cost", json!(1e300), "steps[3].cost: 1e+300 is not a whole number");
    expect(
        &graph,
        "/steps/3/scratch",
        json!(1u64 << 47),
        "steps[3].scratch: 140737488355328 is not a whole number from 0 to 70368744177664",
    );
    expect(&graph, "/buffers/1/bytes", json!(u64::MAX), "buffers[1].bytes: 18446744073709551615 is not a whole number");
    expect(&graph, "/steps", json!([]), "steps: there are none");
    expect(
        &graph,
        "/steps/1/reads",
        json!([0, 4]),
        "there is a cycle: each of the steps 1, 2, 3, 4, 1 reads a result of the one before",
    );
    expect(&graph, "/steps/1/reads", json!([1]), "there is a cycle: each of the steps 1, 1 reads");
    expect(
        &graph,
        "/steps/3/cost",
        json!(u64::MAX),
        "the sum of all costs is 18446744073709551671; with 6 steps it can be at most 1537228672809129301",
    );
    let mut twice = graph.clone();
    twice["steps"][3]["in_place"] = json!([[2, 3], [2, 3]]);
    expect_text(&twice.to_string(), "steps[3].in_place[1]: the pair is listed twice");
    for (pair, message) in [
        ([0, 3], "steps[3].in_place[0]: the step does not read buffer 0"),
        ([2, 4], "steps[3].in_place[0]: the step does not write buffer 4"),
        ([2, 40], "steps[3].in_place[0]: there is no buffer 40"),
    ] {
        let mut graph = graph.clone();
        graph["steps"][3]["in_place"] = json!([pair]);
        expect_text(&graph.to_string(), message);
    }
}

/// One step that reads 300 buffers and writes 300, of which each may lie in each.
#[test]
fn pairs_in_place_are_limited() {
    let pairs: Vec<[usize; 2]> = (0..300).flat_map(|input| (300..600).map(move |output| [input, output])).collect();
    let numbers = |range: std::ops::Range<usize>| range.collect::<Vec<_>>();
    let buffer = |i: usize| json!({"bytes": 64, "kind": if i < 300 { "argument" } else { "temporary" }});
    let buffers: Vec<Value> = (0..600).map(buffer).collect();
    let step = json!({"cost": 1, "reads": numbers(0..300), "writes": numbers(300..600), "in_place": pairs});
    expect_text(
        &json!({"steps": [step], "buffers": buffers}).to_string(),
        "steps[0].in_place[80000]: the steps up to here have more than 80000 pairs in place",
    );
}

#[test]
fn wrong_nodes_are_named() {
    let graph = nodes(3);
    expect(&graph, "/n", json!(0), "n: there are no nodes");
    expect(&graph, "/n", json!(1_000_000), "n: 1000000 is not a whole number from 0 to 20000");
    expect(&graph, "/n", json!(7), "cost: 6 numbers for 7 nodes");
    expect(&graph, "/mem", json!([1]), "mem: 1 number for 6 nodes");
    expect(&graph, "/cost/4", json!(-1), "cost[4]: -1 is not a whole number");
    expect(&graph, "/mem/4", json!(1u64 << 41), "mem[4]: 2199023255552 is not a whole number from 0 to 1099511627776");
    expect(&graph, "/edges/2", json!([2, 6]), "edges[2][1]: there is no node 6");
    expect(&graph, "/edges/2", json!([-2, 5]), "edges[2][0]: there is no node -2");
    expect(&graph, "/edges/2", json!([0, 1]), "edges[2]: [0, 1] is listed already, as edges[0]");
    expect(
        &graph,
        "/edges/2",
        json!([5, 1]),
        "there is a cycle: each of the nodes 1, 4, 5, 1 reads a result of the one before",
    );
}

#[test]
fn texts_that_are_no_graphs_are_errors() {
    let forms = "`steps` and `buffers` are expected, or `n`, `cost`, `mem` and `edges`, and not some of both";
    expect_text("{}", forms);
    expect_text(r#"{"steps": [], "buffers": [], "edges": []}"#, forms);
    expect_text("[]", "it is a list; an object with");
    expect_text("7", "invalid type: integer `7`, expected an object with `steps`");
    expect_text("", "EOF while parsing a value at line 1 column 0");
    expect_text("{\"n\": 1,\n \"cost\": [NaN]}", "expected value at line 2 column 11");
    expect_text("{\"n\": 1, \"cost\": [1e999]}", "number out of range at line 1 column 23");
    expect_text("{\"n\": 1, \"cost\": [-Infinity]}", "invalid number at line 1 column 20");
    expect_text("{\"n\": 1, \"n\": 2}", "duplicate field `n` at line 1 column 12");
    expect_text(r#"{"steps": [{"cost": 1, "read": [0]}]}"#, "unknown field `read`, expected one of `name`, `reads`");
    expect_text(r#"{"steps": [{"reads": []}]}"#, "missing field `cost` at line 1 column 24");
    expect_text(
        r#"{"buffers": [{"bytes": 1, "kind": "temp"}]}"#,
        "unknown variant `temp`, expected one of `temporary`",
    );
    expect_text(&"{\"x\":".repeat(100_000), "EOF while parsing a value at line 1 column 500000");
    expect_text(
        &format!("{{\"cost\": [{}1]}}", "1,".repeat(1_000_000)),
        "a list with more than 20000 elements at line 1",
    );
    expect_text(
        &format!("{{\"steps\": [{}", "{\"cost\":1},".repeat(1_000_000)),
        "a list with more than 20000 elements at line 1",
    );
    expect_text(&" ".repeat((32 << 20) + 1), "it has more than 32 MiB");
}

#[test]
fn paths_that_are_no_graphs_are_errors() {
    let at = folder("");
    write(at.path(), "graph.json", &nodes(3));
    fs::create_dir(at.path().join("none")).unwrap();
    let said = |args: &str| error(remat(at.path(), args));
    assert_eq!(said("plan none"), "error: none: no file of this folder is called `.json`\n");
    assert!(said("plan graph.json missing.json").starts_with("error: missing.json: No such file"));
    if cfg!(unix) {
        assert_eq!(said("plan /dev/zero"), "error: /dev/zero: it is not a file\n");
    }
    for budget in ["-1", "101%", "nan%", "", "3GB"] {
        let output =
            common::command(at.path(), ["plan", "graph.json", &format!("--budget={budget}")]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{budget}");
    }
}
