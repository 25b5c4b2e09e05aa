//! The best choice at a price per byte, as a minimum cut.
//!
//! ```text
//! source → value            a value that the backward pass needs       never cut
//! value → its equation      the value is kept                          its bytes × price of a byte
//! equation → operand        an equation that runs needs its operands   never cut
//! equation → sink           the equation runs again                    its cost × price of a picosecond
//! ```
//!
//! A node on the side of the source is needed, or runs again. The cut is found by push-relabel with the highest label first, exact distances
//! from time to time, and gaps (Goldberg and Tarjan 1988; Cherkassky and Goldberg, "On implementing push-relabel method for the maximum flow
//! problem", 1997). Augmenting paths would be shorter to write, but on a chain of thousands of equations they need thousands of searches.

use std::collections::VecDeque;

use oxc_index::IndexVec;

use super::Region;
use crate::ids::EquationId;

const SOURCE: usize = 0;
const SINK: usize = 1;

/// The factors of bytes and of cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices {
    byte: u128,
    picosecond: u128,
}

impl Prices {
    /// Prices in this ratio, small enough that sums over all of a region are exact.
    pub(super) fn of_ratio(byte: u64, picosecond: u64) -> Prices {
        let shift = 32u32.saturating_sub(byte.max(picosecond).leading_zeros());
        let rounded = |price: u64| u128::from((price >> shift).max(1));
        Prices { byte: rounded(byte), picosecond: rounded(picosecond) }
    }
}

/// The network of a region. The two directions of an edge have numbers that differ in the last bit.
pub(super) struct Network<'r> {
    region: &'r Region,
    heads: Vec<u32>,
    /// The edges that leave each node: from `first[node]` to `first[node + 1]` in `edges`.
    first: Vec<usize>,
    edges: Vec<u32>,
}

impl<'r> Network<'r> {
    pub(super) fn new(region: &'r Region) -> Network<'r> {
        let num_nodes = 2 + region.values.len() + region.equations.len();
        let mut network = Network { region, heads: Vec::new(), first: vec![0; num_nodes + 1], edges: Vec::new() };
        let mut tails = Vec::new();
        network.visit(Prices { byte: 0, picosecond: 0 }, |from, to, _| tails.extend([(from, to), (to, from)]));
        for &(tail, _) in &tails {
            network.first[tail + 1] += 1;
        }
        for node in 0..num_nodes {
            network.first[node + 1] += network.first[node];
        }
        let mut next = network.first.clone();
        network.edges = vec![0; tails.len()];
        for (edge, &(tail, head)) in tails.iter().enumerate() {
            network.edges[next[tail]] = edge as u32;
            next[tail] += 1;
            network.heads.push(head as u32);
        }
        network
    }

    /// Calls `visit` with the ends and the capacity of each edge; `None` is without limit.
    fn visit(&self, prices: Prices, mut visit: impl FnMut(usize, usize, Option<u128>)) {
        let region = self.region;
        // Sums over all of a region have room: a number that alone would fill it counts as what fits.
        let most = u64::MAX / (region.values.len() + region.equations.len()).max(1) as u64;
        let first_equation = 2 + region.values.len();
        for &value in &region.needed {
            visit(SOURCE, 2 + value.index(), None);
        }
        for (id, value) in region.values.iter_enumerated() {
            let bytes = value.bytes.filter(|_| region.can_be_kept(value.equation));
            let price = bytes.map(|bytes| u128::from(bytes.min(most)) * prices.byte);
            visit(2 + id.index(), first_equation + value.equation.index(), price);
        }
        for (id, equation) in region.equations.iter_enumerated() {
            visit(first_equation + id.index(), SINK, Some(u128::from(equation.cost.min(most)) * prices.picosecond));
            for operand in &equation.operands {
                visit(first_equation + id.index(), 2 + operand.index(), None);
            }
        }
    }

    /// The equations that are kept, if anything needs them, in a choice with the least price.
    pub(super) fn cheapest(&self, prices: Prices) -> IndexVec<EquationId, bool> {
        let mut total = 1u128;
        self.visit(prices, |_, _, capacity| total += capacity.unwrap_or(0));
        let mut residual = Vec::with_capacity(self.heads.len());
        self.visit(prices, |_, _, capacity| residual.extend([capacity.unwrap_or(total), 0]));
        let distances = Flow::new(self, residual).run();
        let first_equation = 2 + self.region.values.len();
        // Nodes from which the sink can be reached are on its side.
        self.region.equations.indices().map(|e| distances[first_equation + e.index()] < self.num_nodes()).collect()
    }

    fn num_nodes(&self) -> usize {
        self.first.len() - 1
    }

    fn edges_of(&self, node: usize) -> &[u32] {
        &self.edges[self.first[node]..self.first[node + 1]]
    }
}

/// A preflow on its way to a maximal one.
struct Flow<'n> {
    network: &'n Network<'n>,
    residual: Vec<u128>,
    excess: Vec<u128>,
    /// A lower bound of the distance to the sink; the number of nodes if the sink cannot be reached.
    label: Vec<usize>,
    /// The position of the next edge to try at each node.
    current: Vec<usize>,
    /// The nodes with excess by label.
    active: Vec<Vec<u32>>,
    /// The number of nodes with each label.
    with_label: Vec<usize>,
    highest: usize,
}

impl<'n> Flow<'n> {
    fn new(network: &'n Network<'n>, residual: Vec<u128>) -> Flow<'n> {
        let num_nodes = network.num_nodes();
        let mut flow = Flow {
            network,
            residual,
            excess: vec![0; num_nodes],
            label: vec![0; num_nodes],
            current: vec![0; num_nodes],
            active: vec![Vec::new(); num_nodes],
            with_label: vec![0; num_nodes + 1],
            highest: 0,
        };
        for &edge in network.edges_of(SOURCE) {
            let edge = edge as usize;
            let amount = std::mem::take(&mut flow.residual[edge]);
            flow.residual[edge ^ 1] += amount;
            flow.excess[network.heads[edge] as usize] += amount;
        }
        flow
    }

    /// Pushes all excess as far as it goes. Returns the distance of each node to the sink.
    fn run(mut self) -> Vec<usize> {
        let num_nodes = self.network.num_nodes();
        let between = 6 * num_nodes + self.network.edges.len();
        self.measure();
        let mut work = 0;
        loop {
            while self.highest > 0 && self.active[self.highest].is_empty() {
                self.highest -= 1;
            }
            let Some(node) = self.active[self.highest].pop() else { break };
            let node = node as usize;
            // An entry is outdated if its node was lifted by a gap.
            if self.label[node] == self.highest && self.excess[node] > 0 {
                work += self.discharge(node);
            }
            if work > between {
                work = 0;
                self.measure();
            }
        }
        self.measure();
        self.label
    }

    /// Sets all labels to the exact distances.
    fn measure(&mut self) {
        let num_nodes = self.network.num_nodes();
        self.label.fill(num_nodes);
        self.label[SINK] = 0;
        let mut queue = VecDeque::from([SINK]);
        while let Some(node) = queue.pop_front() {
            for &edge in self.network.edges_of(node) {
                let from = self.network.heads[edge as usize] as usize;
                if from != SOURCE && self.label[from] == num_nodes && self.residual[edge as usize ^ 1] > 0 {
                    self.label[from] = self.label[node] + 1;
                    queue.push_back(from);
                }
            }
        }
        self.with_label.fill(0);
        self.active.iter_mut().for_each(Vec::clear);
        self.highest = 0;
        for node in 0..num_nodes {
            self.with_label[self.label[node]] += 1;
            self.current[node] = self.network.first[node];
            self.activate(node);
        }
    }

    /// Puts a node with excess on the list of its label, if its excess can still reach the sink.
    fn activate(&mut self, node: usize) {
        let label = self.label[node];
        if node != SOURCE && node != SINK && self.excess[node] > 0 && label < self.network.num_nodes() {
            self.active[label].push(node as u32);
            self.highest = self.highest.max(label);
        }
    }

    /// Pushes the excess of a node to nodes nearer to the sink, and lifts the node where none is left. Returns the number of edges visited.
    fn discharge(&mut self, node: usize) -> usize {
        let end = self.network.first[node + 1];
        let mut work = 0;
        while self.excess[node] > 0 {
            if self.current[node] == end {
                work += end - self.network.first[node];
                if !self.lift(node) {
                    break;
                }
            }
            let edge = self.network.edges[self.current[node]] as usize;
            let to = self.network.heads[edge] as usize;
            work += 1;
            if self.residual[edge] == 0 || self.label[node] != self.label[to] + 1 {
                self.current[node] += 1;
                continue;
            }
            let amount = self.excess[node].min(self.residual[edge]);
            self.residual[edge] -= amount;
            self.residual[edge ^ 1] += amount;
            self.excess[node] -= amount;
            let was_idle = self.excess[to] == 0;
            self.excess[to] += amount;
            if was_idle {
                self.activate(to);
            }
        }
        work
    }

    /// Lifts a node above its nearest neighbour. Returns whether its excess can still reach the sink.
    fn lift(&mut self, node: usize) -> bool {
        let num_nodes = self.network.num_nodes();
        let open = self.network.edges_of(node).iter().map(|&e| e as usize).filter(|&e| self.residual[e] > 0);
        let nearest = open.map(|e| self.label[self.network.heads[e] as usize]).min().unwrap_or(num_nodes);
        let (old, new) = (self.label[node], (nearest + 1).min(num_nodes));
        self.with_label[old] -= 1;
        self.with_label[new] += 1;
        self.label[node] = new;
        self.current[node] = self.network.first[node];
        if self.with_label[old] == 0 {
            // No node has this label any more, so that those above it cannot reach the sink.
            for other in 0..num_nodes {
                let label = self.label[other];
                if label > old && label < num_nodes {
                    self.with_label[label] -= 1;
                    self.with_label[num_nodes] += 1;
                    self.label[other] = num_nodes;
                }
            }
        }
        self.label[node] < num_nodes
    }
}
