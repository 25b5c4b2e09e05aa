//! The graphs that are compared.

use std::fs;
use std::path::{Path, PathBuf};

use remat_plan::examples::{Conv, Gpt, Keep, Shape, chain, priced};
use remat_plan::{BufferKind, BufferNode, Graph, StepId, StepNode, schedule};
use serde_json::Value;

/// A training step.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) graph: Graph,
    pub(crate) order: Vec<StepId>,
    /// The last step of the forward pass, if it is known.
    pub(crate) loss: Option<StepId>,
}

/// Steps of our own.
pub(crate) fn own() -> Vec<Case> {
    let conv = |shape, stages, blocks| {
        Conv { shape, stages, blocks, batch: 8, side: 112, channels: 32, update: false }.graph()
    };
    let case = |name: &str, graph: Graph| {
        let graph = priced(graph);
        let writes = |step: &&StepNode| step.writes.iter().any(|&b| graph.buffers[b].kind == BufferKind::Output);
        let loss = graph.steps.iter().position(|step| writes(&step)).map(StepId::new);
        Case { name: name.into(), order: schedule(&graph), graph, loss }
    };
    vec![
        case("chain of 60", chain(60, None, 1 << 20)),
        case("GPT, 4 layers", Gpt { layers: 4, keep: Keep::All, update: false }.graph()),
        case("GPT, 12 layers", Gpt { layers: 12, keep: Keep::All, update: false }.graph()),
        case("ResNet, 4 stages of 3", conv(Shape::Residual, 4, 3)),
        case("ResNet, 4 stages of 8", conv(Shape::Residual, 4, 8)),
        case("U-Net, 4 stages of 2", conv(Shape::Skips, 4, 2)),
        case("U-Net, 5 stages of 3", conv(Shape::Skips, 5, 3)),
    ]
}

/// The graphs of nodes of the files in these folders whose names end with `.json`.
pub(crate) fn read(folders: &[String]) -> Vec<Case> {
    let list = |folder: &String| fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let files = folders.iter().flat_map(list).map(|entry| entry.unwrap_or_else(|e| panic!("{e}")).path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|name| name == "json")).collect();
    files.sort();
    files
        .iter()
        .map(|file| of_nodes(file).unwrap_or_else(|| panic!("{} is not a graph of nodes", file.display())))
        .collect()
}

fn of_nodes(file: &Path) -> Option<Case> {
    let text = fs::read_to_string(file).ok()?;
    let all: Value = serde_json::from_str(&text).ok()?;
    let numbers = |key: &str| all[key].as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
    let mut graph = Graph::default();
    for (cost, bytes) in numbers("cost")?.into_iter().zip(numbers("mem")?) {
        // Whole alignments, so that nothing is rounded.
        let result = graph.buffers.push(BufferNode { bytes: 64 * bytes as usize, kind: BufferKind::Temporary });
        graph.steps.push(StepNode { writes: [result].into_iter().collect(), cost, ..StepNode::default() });
    }
    for edge in all["edges"].as_array()? {
        let end = |i: usize| edge[i].as_u64().map(|node| node as usize);
        let [from, to] = [end(0)?, end(1)?].map(StepId::new);
        let read = graph.steps[from].writes[0];
        graph.steps[to].reads.push(read);
    }
    let first_backward = || all["backward"].as_array()?.iter().position(|flag| flag == &Value::Bool(true));
    let loss = all["loss_index"].as_u64().map(|node| node as usize).or_else(|| first_backward()?.checked_sub(1));
    let name = file.file_stem()?.to_string_lossy().chars().take(27).collect();
    Some(Case { name, order: graph.steps.indices().collect(), graph, loss: loss.map(StepId::new) })
}
