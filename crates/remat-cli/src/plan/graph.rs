//! Builds the graph of a file, and checks all its numbers. Each error names the element.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::fmt::Arguments;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use remat::ir::counted;
use remat_plan::{ALIGNMENT, BufferId, BufferKind, BufferNode, Graph, StepId, StepNode, aligned};
use serde_json::Number;

use super::file::{self, Buffer, Kind, MOST_PAIRS, MOST_READS, MOST_STEPS, Step, Written};

/// The most bytes of a buffer or of scratch memory, which the planner takes for any that are larger.
const MOST_BYTES: u64 = 1 << 46;

/// The graph of a file.
pub(super) struct Source {
    /// The file as the user named it.
    pub(super) name: String,
    pub(super) graph: Graph,
    /// The number in the file of each step: the steps of the graph are in an order that can run.
    pub(super) number: Vec<usize>,
    /// The name in the file of each step of the graph; empty if none has one.
    pub(super) names: Vec<String>,
    /// Whether it is a graph of nodes, whose sizes and costs are in units of the file.
    pub(super) is_of_nodes: bool,
}

impl Source {
    /// The graph of a file with this text.
    ///
    /// # Errors
    /// If it is not one, or a number in it has no meaning. The message begins with the name of the file.
    pub(super) fn read(path: &Path, text: &[u8]) -> Result<Source> {
        let name = path.display().to_string();
        Source::build(name.clone(), text).context(name)
    }

    fn build(name: String, text: &[u8]) -> Result<Source> {
        let Written { steps, buffers, n, cost, mem, edges } = file::read(text)?;
        let is_of_nodes = steps.is_none();
        let (graph, mut names) = match (steps, buffers, n, cost, mem, edges) {
            (Some(steps), Some(buffers), None, None, None, None) => {
                let names = names(&steps.0);
                (of_steps(&steps.0, &buffers.0)?, names)
            }
            (None, None, Some(n), Some(cost), Some(mem), Some(edges)) => {
                (of_nodes(&n, &cost.0, &mem.0, &edges.0)?, Vec::new())
            }
            _ => bail!("`steps` and `buffers` are expected, or `n`, `cost`, `mem` and `edges`, and not some of both"),
        };
        expect_sums(&graph)?;
        let order = runnable(&graph, if is_of_nodes { "nodes" } else { "steps" })?;
        let steps = order.iter().map(|&step| graph.steps[StepId::new(step)].clone()).collect();
        if !names.is_empty() {
            names = order.iter().map(|&step| std::mem::take(&mut names[step])).collect();
        }
        let graph = Graph { steps, buffers: graph.buffers };
        Ok(Source { name, graph, number: order, names, is_of_nodes })
    }

    /// A unit of the sizes of the file in bytes. Nodes have sizes in units of their own, and memory is aligned, so each unit counts as the
    /// bytes of the alignment: sums and peaks are then exact.
    pub(super) fn unit(&self) -> usize {
        if self.is_of_nodes { ALIGNMENT } else { 1 }
    }
}

/// The names of the steps, empty where one has none; no names if none has one.
fn names(steps: &[Step]) -> Vec<String> {
    if steps.iter().all(|step| step.name.is_none()) {
        return Vec::new();
    }
    steps.iter().map(|step| step.name.clone().unwrap_or_default()).collect()
}

/// A number as an integer from 0 to `most`.
fn whole(number: &Number, most: u64, place: Arguments<'_>) -> Result<u64> {
    let whole = number.as_u64().filter(|&whole| whole <= most);
    whole.with_context(|| format!("{place}: {number} is not a whole number from 0 to {most}"))
}

/// The number of one of `count` things.
fn index(number: &Number, count: usize, what: &str, place: Arguments<'_>) -> Result<usize> {
    let index = number.as_u64().filter(|&index| index < count as u64);
    index.map(|index| index as usize).with_context(|| format!("{place}: there is no {what} {number}"))
}

/// The graph of steps and buffers, as they are in the file.
fn of_steps(steps: &[Step], buffers: &[Buffer]) -> Result<Graph> {
    ensure!(!steps.is_empty(), "steps: there are none");
    let mut graph = Graph::default();
    for (i, buffer) in buffers.iter().enumerate() {
        let bytes = whole(&buffer.bytes, MOST_BYTES, format_args!("buffers[{i}].bytes"))? as usize;
        let kind = match buffer.kind {
            Kind::Temporary => BufferKind::Temporary,
            Kind::Argument => BufferKind::Argument,
            Kind::Output => BufferKind::Output,
            Kind::Constant => BufferKind::Constant,
        };
        graph.buffers.push(BufferNode { bytes, kind });
    }
    let mut writer: Vec<Option<usize>> = vec![None; buffers.len()];
    let mut reader: Vec<Option<usize>> = vec![None; buffers.len()];
    let mut reads = 0;
    // One step writes a buffer, so a pair belongs to one step.
    let mut pairs: HashSet<(usize, usize)> = HashSet::new();
    for (i, step) in steps.iter().enumerate() {
        let cost = whole(&step.cost, u64::MAX, format_args!("steps[{i}].cost"))?;
        let scratch = match &step.scratch {
            Some(scratch) => whole(scratch, MOST_BYTES, format_args!("steps[{i}].scratch"))? as usize,
            None => 0,
        };
        let mut node = StepNode { cost, scratch, runs_once: step.runs_once, ..StepNode::default() };
        reads += step.reads.0.len();
        ensure!(reads <= MOST_READS, "steps[{i}].reads: the steps up to here read more than {MOST_READS} buffers");
        for (j, number) in step.reads.0.iter().enumerate() {
            let buffer = index(number, buffers.len(), "buffer", format_args!("steps[{i}].reads[{j}]"))?;
            let before = reader[buffer].replace(i);
            ensure!(before != Some(i), "steps[{i}].reads[{j}]: buffer {buffer} is listed twice");
            node.reads.push(BufferId::new(buffer));
        }
        for (j, number) in step.writes.0.iter().enumerate() {
            let place = format_args!("steps[{i}].writes[{j}]");
            let buffer = index(number, buffers.len(), "buffer", place)?;
            if let BufferKind::Argument | BufferKind::Constant = graph.buffers[BufferId::new(buffer)].kind {
                bail!("{place}: buffer {buffer} is an argument or a constant, which no step writes");
            }
            if let Some(other) = writer[buffer].replace(i) {
                bail!("{place}: steps[{other}] already writes buffer {buffer}");
            }
            node.writes.push(BufferId::new(buffer));
        }
        for (j, (input, output)) in step.in_place.0.iter().enumerate() {
            let place = format_args!("steps[{i}].in_place[{j}]");
            let [input, output] = [input, output].map(|number| index(number, buffers.len(), "buffer", place));
            let (input, output) = (input?, output?);
            ensure!(reader[input] == Some(i), "{place}: the step does not read buffer {input}");
            ensure!(writer[output] == Some(i), "{place}: the step does not write buffer {output}");
            ensure!(pairs.insert((input, output)), "{place}: the pair is listed twice");
            ensure!(
                pairs.len() <= MOST_PAIRS,
                "{place}: the steps up to here have more than {MOST_PAIRS} pairs in place"
            );
            node.in_place.push((BufferId::new(input), BufferId::new(output)));
        }
        graph.steps.push(node);
    }
    for (buffer, node) in graph.buffers.iter_enumerated() {
        let is_written = matches!(node.kind, BufferKind::Temporary | BufferKind::Output);
        let i = buffer.index();
        ensure!(
            !is_written || writer[i].is_some(),
            "buffers[{i}]: no step writes it, and it is not an argument or a constant"
        );
    }
    Ok(graph)
}

/// The graph of nodes, each of which has one result.
fn of_nodes(n: &Number, cost: &[Number], mem: &[Number], edges: &[(Number, Number)]) -> Result<Graph> {
    let count = whole(n, MOST_STEPS as u64, format_args!("n"))? as usize;
    ensure!(count > 0, "n: there are no nodes");
    for (name, list) in [("cost", cost), ("mem", mem)] {
        ensure!(list.len() == count, "{name}: {} for {}", counted(list.len(), "number"), counted(count, "node"));
    }
    let mut graph = Graph::default();
    for (i, (cost, mem)) in cost.iter().zip(mem).enumerate() {
        let cost = whole(cost, u64::MAX, format_args!("cost[{i}]"))?;
        let units = whole(mem, MOST_BYTES / ALIGNMENT as u64, format_args!("mem[{i}]"))? as usize;
        let result = graph.buffers.push(BufferNode { bytes: units * ALIGNMENT, kind: BufferKind::Temporary });
        graph.steps.push(StepNode { cost, writes: [result].into_iter().collect(), ..StepNode::default() });
    }
    let mut pairs = Vec::with_capacity(edges.len());
    for (i, (from, to)) in edges.iter().enumerate() {
        let from = index(from, count, "node", format_args!("edges[{i}][0]"))?;
        let to = index(to, count, "node", format_args!("edges[{i}][1]"))?;
        graph.steps[StepId::new(to)].reads.push(BufferId::new(from));
        pairs.push((from, to, i));
    }
    pairs.sort_unstable();
    if let Some([(from, to, first), (.., i)]) = pairs.array_windows().find(|[a, b]| (a.0, a.1) == (b.0, b.1)) {
        bail!("edges[{i}]: [{from}, {to}] is listed already, as edges[{first}]");
    }
    Ok(graph)
}

/// Checks that no sum of bytes or costs exceeds 64 bits, even if every step runs again for each step.
fn expect_sums(graph: &Graph) -> Result<()> {
    let most = i64::MAX as u128 / graph.steps.len() as u128;
    let cost: u128 = graph.steps.iter().map(|step| u128::from(step.cost)).sum();
    let buffers: u128 = graph.buffers.indices().map(|buffer| graph.bytes(buffer) as u128).sum();
    let scratch: u128 = graph.steps.iter().map(|step| aligned(step.scratch) as u128).sum();
    for (what, sum) in [("costs", cost), ("bytes", buffers + scratch)] {
        let steps = graph.steps.len();
        ensure!(sum <= most, "the sum of all {what} is {sum}; with {steps} steps it can be at most {most}");
    }
    Ok(())
}

/// The steps in an order that can run: the file's own if it can, or else that in which each step that is ready comes before those with
/// larger numbers.
///
/// # Errors
/// If steps wait for each other.
fn runnable(graph: &Graph, what: &str) -> Result<Vec<usize>> {
    let count = graph.steps.len();
    let mut writer: Vec<Option<usize>> = vec![None; graph.buffers.len()];
    for (step, node) in graph.steps.iter_enumerated() {
        node.writes.iter().for_each(|&buffer| writer[buffer.index()] = Some(step.index()));
    }
    let operands = |step: usize| {
        let reads = &graph.steps[StepId::new(step)].reads;
        reads.iter().filter_map(|&buffer| writer[buffer.index()])
    };
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); count];
    let mut waits: Vec<usize> = vec![0; count];
    for (step, waits) in waits.iter_mut().enumerate() {
        for operand in operands(step) {
            readers[operand].push(step as u32);
            *waits += 1;
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..count).filter(|&step| waits[step] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(step)) = ready.pop() {
        order.push(step);
        for &reader in &readers[step] {
            waits[reader as usize] -= 1;
            if waits[reader as usize] == 0 {
                ready.push(Reverse(reader as usize));
            }
        }
    }
    let Some(mut step) = waits.iter().position(|&waits| waits > 0) else { return Ok(order) };
    // Each step that is left waits for another that is left, so the way back ends in a cycle.
    let mut path = Vec::new();
    let mut place: Vec<Option<usize>> = vec![None; count];
    while place[step].is_none() {
        place[step] = Some(path.len());
        path.push(step);
        step = operands(step).find(|&operand| waits[operand] > 0).unwrap_or(step);
    }
    let mut cycle: Vec<String> = path[place[step].unwrap_or(0)..].iter().map(usize::to_string).collect();
    cycle.push(step.to_string());
    cycle.reverse();
    bail!("there is a cycle: each of the {what} {} reads a result of the one before", cycle.join(", "))
}
