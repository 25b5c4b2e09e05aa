//! Graphs of training steps for tests and benchmarks: chains, and a GPT whose elementwise operations are not fused.

use crate::graph::{BufferKind, BufferNode, Graph, StepNode};
use crate::ids::BufferId;

/// The values of the forward pass that the backward pass keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Everything.
    All,
    /// The input of each layer. The rest is computed again just before the layer's backward pass.
    Layers,
    /// The results of matrix products. The rest is computed again, for all layers at once, before the backward pass.
    Products,
}

/// A graph that is written operation by operation.
#[derive(Default)]
pub struct Net {
    /// The graph so far.
    pub graph: Graph,
}

impl Net {
    /// Adds a buffer of this many bytes.
    pub fn buffer(&mut self, bytes: usize, kind: BufferKind) -> BufferId {
        self.graph.buffers.push(BufferNode { bytes, kind })
    }

    /// Adds a step with one result, which may take the memory of any operand of its size if `in_place` is set.
    pub fn step(&mut self, reads: &[BufferId], bytes: usize, kind: BufferKind, in_place: bool) -> BufferId {
        let result = self.buffer(bytes, kind);
        let pairs = reads.iter().filter(|_| in_place).map(|&read| (read, result)).collect();
        let writes = [result].into_iter().collect();
        let step = StepNode { reads: reads.into(), writes, in_place: pairs, ..StepNode::default() };
        self.graph.steps.push(step);
        result
    }

    /// An elementwise operation on tensors of one size.
    pub fn map(&mut self, reads: &[BufferId]) -> BufferId {
        let bytes = self.graph.buffers[reads[0]].bytes;
        self.step(reads, bytes, BufferKind::Temporary, true)
    }

    /// A matrix product or another operation that cannot be done in place.
    pub fn product(&mut self, reads: &[BufferId], bytes: usize) -> BufferId {
        self.step(reads, bytes, BufferKind::Temporary, false)
    }
}

/// A chain of `length` operations and its backward pass, which reads the result of each. Of every `segment` operations only the input is
/// kept, and all segments are computed again before the backward pass begins.
pub fn chain(length: usize, segment: Option<usize>, bytes: usize) -> Graph {
    let mut net = Net::default();
    let mut values = vec![net.buffer(bytes, BufferKind::Argument)];
    for i in 0..length {
        values.push(net.product(&[values[i]], bytes));
    }
    let mut cotangent = net.map(&[values[length]]);
    if let Some(segment) = segment {
        for i in (1..=length).filter(|i| i % segment != 0) {
            values[i] = net.product(&[values[i - 1]], bytes);
        }
    }
    for i in (1..length).rev() {
        cotangent = net.map(&[cotangent, values[i]]);
    }
    net.step(&[cotangent, values[0]], bytes, BufferKind::Output, true);
    net.graph
}

/// The values of a layer: those that its backward pass reads.
#[derive(Clone, Copy)]
struct Layer {
    normal: [BufferId; 2],
    spread: [BufferId; 2],
    qkv: BufferId,
    mixed: BufferId,
    statistics: BufferId,
    projected: BufferId,
    hidden: BufferId,
    bent: BufferId,
    active: BufferId,
    expanded: BufferId,
    out: BufferId,
}

/// A training step of a GPT; `update` adds an optimizer with two moments for each weight at the end.
pub struct Gpt {
    /// The number of layers.
    pub layers: usize,
    /// What the backward pass gets from the forward pass.
    pub keep: Keep,
    /// Whether the step ends with the optimizer.
    pub update: bool,
}

const TOKENS: usize = 2048;
const WIDTH: usize = 512;
const STREAM: usize = TOKENS * WIDTH * 4;
const VOCABULARY: usize = 8192;
/// The bytes of the weights of a layer: query, key and value; projection; expansion; contraction.
const WEIGHTS: [usize; 4] = [3 * WIDTH * WIDTH * 4, WIDTH * WIDTH * 4, 4 * WIDTH * WIDTH * 4, 4 * WIDTH * WIDTH * 4];

impl Gpt {
    /// The graph of the training step: the loss, and the gradients or the updated weights.
    pub fn graph(&self) -> Graph {
        let mut net = Net::default();
        let embedding = net.buffer(VOCABULARY * WIDTH * 4, BufferKind::Argument);
        let weights: Vec<[BufferId; 4]> =
            (0..self.layers).map(|_| WEIGHTS.map(|bytes| net.buffer(bytes, BufferKind::Argument))).collect();
        let mut x = net.product(&[embedding], STREAM);
        let start = x;
        let mut inputs = Vec::new();
        let mut layers = Vec::new();
        for w in &weights {
            inputs.push(x);
            layers.push(forward(&mut net, x, w, None));
            x = layers[layers.len() - 1].out;
        }
        let logits = net.product(&[x, embedding], TOKENS * VOCABULARY * 4);
        let sums = net.product(&[logits], TOKENS * 4);
        net.step(&[sums], 4, BufferKind::Output, false);
        let dlogits = net.map(&[logits, sums]);
        let mut dx = net.product(&[dlogits, embedding], STREAM);
        let dhead = net.product(&[dlogits, x], VOCABULARY * WIDTH * 4);
        if self.keep == Keep::Products {
            let mut x = start;
            for (i, w) in weights.iter().enumerate() {
                let saved = layers[i];
                inputs[i] = x;
                layers[i] = forward(&mut net, x, w, Some(saved));
                x = layers[i].out;
            }
        }
        let mut gradients = Vec::new();
        for i in (0..self.layers).rev() {
            if self.keep == Keep::Layers {
                layers[i] = forward(&mut net, inputs[i], &weights[i], None);
            }
            let kind = if self.update { BufferKind::Temporary } else { BufferKind::Output };
            let (dinput, dweights) = backward(&mut net, &layers[i], &weights[i], dx, kind);
            dx = dinput;
            gradients.push(dweights);
        }
        gradients.reverse();
        let kind = if self.update { BufferKind::Temporary } else { BufferKind::Output };
        let dembedding = net.step(&[dhead, dx], VOCABULARY * WIDTH * 4, kind, true);
        if self.update {
            update(&mut net, embedding, dembedding);
            for (w, g) in weights.iter().flatten().zip(gradients.iter().flatten()) {
                update(&mut net, *w, *g);
            }
        }
        net.graph
    }
}

/// Adam: both moments, then the weight.
fn update(net: &mut Net, weight: BufferId, gradient: BufferId) {
    let bytes = net.graph.buffers[weight].bytes;
    let moments = [0, 1].map(|_| {
        let moment = net.buffer(bytes, BufferKind::Argument);
        net.step(&[moment, gradient], bytes, BufferKind::Output, true)
    });
    net.step(&[moments[0], moments[1], weight], bytes, BufferKind::Output, true);
}

fn normalise(net: &mut Net, x: BufferId) -> (BufferId, BufferId) {
    let mean = net.product(&[x], TOKENS * 4);
    let centred = net.map(&[x, mean]);
    let square = net.map(&[centred]);
    let spread = net.product(&[square], TOKENS * 4);
    (net.map(&[centred, spread]), spread)
}

/// The forward pass of a layer. With `saved` its matrix products are saved, and everything else is computed again.
fn forward(net: &mut Net, x: BufferId, w: &[BufferId; 4], saved: Option<Layer>) -> Layer {
    let product = |net: &mut Net, which: fn(&Layer) -> BufferId, reads: &[BufferId], bytes: usize| match &saved {
        Some(saved) => which(saved),
        None => net.product(reads, bytes),
    };
    let (n1, spread1) = normalise(net, x);
    let qkv = product(net, |l| l.qkv, &[n1, w[0]], 3 * STREAM);
    let statistics = product(net, |l| l.statistics, &[qkv], TOKENS * 8 * 4);
    let mixed = product(net, |l| l.mixed, &[qkv, statistics], STREAM);
    let projected = product(net, |l| l.projected, &[mixed, w[1]], STREAM);
    let middle = net.map(&[projected, x]);
    let (n2, spread2) = normalise(net, middle);
    let hidden = product(net, |l| l.hidden, &[n2, w[2]], 4 * STREAM);
    let square = net.map(&[hidden]);
    let cube = net.map(&[square, hidden]);
    let inner = net.map(&[cube, hidden]);
    let bent = net.map(&[inner]);
    let active = net.map(&[bent, hidden]);
    let expanded = product(net, |l| l.expanded, &[active, w[3]], STREAM);
    let out = net.map(&[expanded, middle]);
    let (normal, spread) = ([n1, n2], [spread1, spread2]);
    Layer { normal, spread, qkv, mixed, statistics, projected, hidden, bent, active, expanded, out }
}

/// The cotangent of a layer's input, and its weights' gradients.
fn backward(
    net: &mut Net,
    layer: &Layer,
    w: &[BufferId; 4],
    dout: BufferId,
    kind: BufferKind,
) -> (BufferId, [BufferId; 4]) {
    let dactive = net.product(&[dout, w[3]], 4 * STREAM);
    let dw3 = net.step(&[layer.active, dout], WEIGHTS[3], kind, false);
    let dbent = net.map(&[dactive, layer.hidden]);
    let slope = net.map(&[layer.bent]);
    let dinner = net.map(&[dbent, slope]);
    let square = net.map(&[layer.hidden]);
    let dcube = net.map(&[dinner, square]);
    let direct = net.map(&[dactive, layer.bent]);
    let dhidden = net.map(&[dcube, direct]);
    let dnormal = net.product(&[dhidden, w[2]], STREAM);
    let dw2 = net.step(&[layer.normal[1], dhidden], WEIGHTS[2], kind, false);
    let dmiddle = denormalise(net, layer.normal[1], layer.spread[1], dnormal);
    let dmiddle = net.map(&[dmiddle, dout]);
    let dmixed = net.product(&[dmiddle, w[1]], STREAM);
    let dw1 = net.step(&[layer.mixed, dmiddle], WEIGHTS[1], kind, false);
    let dots = net.product(&[dmixed, layer.mixed], TOKENS * 8 * 4);
    let dqkv = net.product(&[layer.qkv, layer.statistics, dots, dmixed], 3 * STREAM);
    let dnormal = net.product(&[dqkv, w[0]], STREAM);
    let dw0 = net.step(&[layer.normal[0], dqkv], WEIGHTS[0], kind, false);
    let dx = denormalise(net, layer.normal[0], layer.spread[0], dnormal);
    (net.map(&[dx, dmiddle]), [dw0, dw1, dw2, dw3])
}

fn denormalise(net: &mut Net, normal: BufferId, spread: BufferId, d: BufferId) -> BufferId {
    let scaled = net.map(&[d, spread]);
    let product = net.map(&[scaled, normal]);
    let along = net.product(&[product], TOKENS * 4);
    let shift = net.product(&[scaled], TOKENS * 4);
    let back = net.map(&[normal, along]);
    let rest = net.map(&[scaled, back]);
    net.map(&[rest, shift])
}
