//! Training steps of convolutional networks: sizes shrink from stage to stage, and values are kept across stages.

use super::Net;
use crate::graph::{BufferKind, Graph};
use crate::ids::BufferId;

/// The network of a training step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Stages of residual blocks with bottlenecks, as in ResNet-50 (He et al. 2016).
    Residual,
    /// Stages downwards and upwards, each upward one with what its downward one computed, as in a U-Net (Ronneberger et al. 2015).
    Skips,
}

/// A training step of a convolutional network, with batch norms and activations that are steps of their own.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// The network.
    pub shape: Shape,
    /// The number of sizes. Each stage has half the side of the one before, rounded up, and twice the channels.
    pub stages: usize,
    /// The number of blocks in a stage.
    pub blocks: usize,
    /// The number of images.
    pub batch: usize,
    /// The height and the width of the images.
    pub side: usize,
    /// The channels of the first stage.
    pub channels: usize,
    /// Whether the step updates the weights, so that gradients are temporaries. Otherwise they are its outputs.
    pub update: bool,
}

/// What a derivative reads beside the cotangent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Reads {
    #[default]
    Nothing,
    Inputs,
    Result,
    All,
}

/// A value of the forward pass.
#[derive(Clone, Copy)]
struct Value {
    buffer: BufferId,
    channels: usize,
}

/// An operation of the forward pass.
struct Operation {
    inputs: Vec<BufferId>,
    /// Small values that its derivative reads too, as the statistics of a batch norm.
    statistics: Option<BufferId>,
    result: BufferId,
    reads: Reads,
    is_in_place: bool,
    /// Its weights, if it has any.
    weight: Option<BufferId>,
    scratch: usize,
}

/// The forward pass as it is written, for the backward pass.
#[derive(Default)]
struct Tape {
    net: Net,
    operations: Vec<Operation>,
    update: bool,
}

impl Conv {
    /// The graph of the training step: the loss, and the gradients of all weights or the updated weights.
    pub fn graph(&self) -> Graph {
        let mut tape = Tape { update: self.update, ..Tape::default() };
        let image = Value { buffer: tape.net.buffer(self.bytes(0, 3), BufferKind::Argument), channels: 3 };
        let mut x = tape.normalised(image, self.bytes(0, self.channels), self.channels);
        match self.shape {
            Shape::Residual => {
                for stage in 0..self.stages {
                    x = self.residual_stage(&mut tape, x, stage);
                }
            }
            Shape::Skips => {
                let mut kept = Vec::new();
                for stage in 0..self.stages {
                    x = self.plain_stage(&mut tape, x, stage);
                    if stage + 1 < self.stages {
                        kept.push(x);
                        x = tape.push(&[x], self.bytes(stage + 1, x.channels), Reads::All, false);
                    }
                }
                for (stage, skip) in kept.into_iter().enumerate().rev() {
                    let up = tape.push(&[x], self.bytes(stage, x.channels), Reads::Nothing, false);
                    let channels = up.channels + skip.channels;
                    let both = tape.push(&[up, skip], self.bytes(stage, channels), Reads::Nothing, false);
                    x = self.plain_stage(&mut tape, Value { channels, ..both }, stage);
                }
            }
        }
        tape.backward(x)
    }

    /// The bytes of a value of a stage.
    fn bytes(&self, stage: usize, channels: usize) -> usize {
        let side = self.side.div_ceil(1 << stage);
        4 * self.batch * channels * side * side
    }

    /// Convolutions with batch norms, all of one size.
    fn plain_stage(&self, tape: &mut Tape, mut x: Value, stage: usize) -> Value {
        let channels = self.channels << stage;
        for _ in 0..self.blocks {
            let normal = tape.normalised(x, self.bytes(stage, channels), channels);
            x = tape.activated(normal);
        }
        x
    }

    /// Blocks with three convolutions and a shortcut. The results of the last convolution have four times the channels.
    fn residual_stage(&self, tape: &mut Tape, mut x: Value, stage: usize) -> Value {
        let narrow = self.channels << stage;
        let wide = 4 * narrow;
        for block in 0..self.blocks {
            let mut inner = x;
            for channels in [narrow, narrow] {
                inner = tape.normalised(inner, self.bytes(stage, channels), channels);
                inner = tape.activated(inner);
            }
            inner = tape.normalised(inner, self.bytes(stage, wide), wide);
            let shortcut = if block == 0 { tape.normalised(x, self.bytes(stage, wide), wide) } else { x };
            let sum = tape.push(&[inner, shortcut], self.bytes(stage, wide), Reads::Nothing, true);
            x = tape.activated(sum);
        }
        x
    }
}

impl Tape {
    /// An operation without weights whose result has the channels of its first input.
    fn push(&mut self, inputs: &[Value], bytes: usize, reads: Reads, is_in_place: bool) -> Value {
        let buffers: Vec<BufferId> = inputs.iter().map(|input| input.buffer).collect();
        let result = self.net.step(&buffers, bytes, BufferKind::Temporary, is_in_place);
        self.operations.push(Operation {
            inputs: buffers,
            statistics: None,
            result,
            reads,
            is_in_place,
            weight: None,
            scratch: 0,
        });
        Value { buffer: result, channels: inputs[0].channels }
    }

    /// An elementwise operation whose derivative reads its result.
    fn activated(&mut self, x: Value) -> Value {
        let bytes = self.net.graph.buffers[x.buffer].bytes;
        self.push(&[x], bytes, Reads::Result, true)
    }

    /// A convolution with scratch memory, and its batch norm with statistics of a few bytes.
    fn normalised(&mut self, x: Value, bytes: usize, channels: usize) -> Value {
        let bytes_of_weight = 4 * 9 * x.channels * channels;
        let weight = self.net.buffer(bytes_of_weight, BufferKind::Argument);
        // Packed weights, and a band of the padded image.
        let scratch = bytes_of_weight + bytes / 7;
        let result = self.net.step(&[x.buffer, weight], bytes, BufferKind::Temporary, false);
        self.scratch(scratch);
        let (inputs, reads, weight) = (vec![x.buffer], Reads::Inputs, Some(weight));
        self.operations.push(Operation {
            inputs,
            statistics: None,
            result,
            reads,
            is_in_place: false,
            weight,
            scratch,
        });
        let statistics = self.net.product(&[result], 8 * channels);
        let normal = self.net.step(&[result, statistics], bytes, BufferKind::Temporary, true);
        let (inputs, statistics) = (vec![result], Some(statistics));
        self.operations.push(Operation {
            inputs,
            statistics,
            result: normal,
            reads,
            is_in_place: true,
            weight: None,
            scratch: 0,
        });
        Value { buffer: normal, channels }
    }

    /// Gives the last step scratch memory.
    fn scratch(&mut self, bytes: usize) {
        if let Some(step) = self.net.graph.steps.last_mut() {
            step.scratch = bytes;
        }
    }

    /// The loss of the last value, and the backward pass.
    fn backward(mut self, last: Value) -> Graph {
        let (net, last) = (&mut self.net, last.buffer);
        net.step(&[last], 4, BufferKind::Output, false);
        let mut cotangents = vec![None; net.graph.buffers.len()];
        cotangents[last.index()] = Some(net.map(&[last]));
        for operation in std::mem::take(&mut self.operations).into_iter().rev() {
            self.transpose(&operation, &mut cotangents);
        }
        self.net.graph
    }

    /// Adds the cotangents of the inputs of an operation, and the gradient of its weights.
    fn transpose(&mut self, operation: &Operation, cotangents: &mut [Option<BufferId>]) {
        let Some(cotangent) = cotangents[operation.result.index()] else { return };
        let mut reads = vec![cotangent];
        reads.extend(operation.statistics);
        if matches!(operation.reads, Reads::Inputs | Reads::All) {
            reads.extend(&operation.inputs);
        }
        if matches!(operation.reads, Reads::Result | Reads::All) {
            reads.push(operation.result);
        }
        if let Some(weight) = operation.weight {
            let bytes = self.net.graph.buffers[weight].bytes;
            let kind = if self.update { BufferKind::Temporary } else { BufferKind::Output };
            let gradient = self.net.step(&reads, bytes, kind, false);
            self.scratch(operation.scratch);
            if self.update {
                self.net.step(&[weight, gradient], bytes, BufferKind::Output, true);
            }
        }
        for &input in &operation.inputs {
            if self.net.graph.buffers[input].kind == BufferKind::Argument {
                continue;
            }
            let reads = if operation.weight.is_some() { &reads[..1] } else { &reads[..] };
            let bytes = self.net.graph.buffers[input].bytes;
            let reads: Vec<BufferId> = reads.iter().copied().chain(operation.weight).collect();
            let mut term = self.net.step(&reads, bytes, BufferKind::Temporary, operation.is_in_place);
            self.scratch(operation.scratch);
            if let Some(other) = cotangents[input.index()] {
                term = self.net.map(&[other, term]);
            }
            cotangents[input.index()] = Some(term);
        }
    }
}
