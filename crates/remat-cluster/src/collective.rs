//! Collective operations of all nodes on arrays.

use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use remat_ir::{Array, Data, Error, ErrorKind, Result, counted};

use crate::error;
use crate::failure::interval;
use crate::frame;
use crate::links::Links;
use crate::node::{Member, Node};
use crate::wire::{self, Sums};

/// How corresponding elements of all nodes are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Their sum. Integers wrap around.
    Sum,
    /// Their mean; only for floats.
    Mean,
}

/// Bytes of arrays that are summed at a time: enough to make the time of a message negligible, and few enough to stay in caches.
const BUCKET: usize = 1 << 22;

/// The most characters of an error that are sent to other nodes.
const REASON: usize = 1 << 12;

impl Node {
    /// The sums, or means, over all nodes of the corresponding arrays, with the same bits on all of them. The arrays are named by the
    /// leaves of a tree, for errors.
    ///
    /// Floats are summed in f64, in the order of the ranks, and the result is rounded to the dtype at the end. So a result depends only on
    /// the elements and the number of nodes. All nodes must call the same functions in the same order; calls from several threads run one
    /// after the other.
    ///
    /// Each node sends and receives about twice the bytes of the arrays, as in a ring, but in two rounds of messages: it sums a part of the
    /// elements, the same part of each array, and sends the results to all others.
    ///
    /// # Errors
    /// If an array is of bools, or of integers for a mean; if a node calls another function, or has other leaves, dtypes or shapes: then
    /// all nodes get an error, and may continue. If a node ends or leaves during the operation: then the cluster has failed.
    pub fn all_reduce(&self, reduction: Reduction, leaves: Vec<(String, Array)>) -> Result<Vec<Array>> {
        let operation = match reduction {
            Reduction::Sum => "all_reduce_sum",
            Reduction::Mean => "all_reduce_mean",
        };
        for (name, array) in &leaves {
            let dtype = array.dtype();
            let wrong = match reduction {
                Reduction::Mean if !dtype.is_float() => "is not a float",
                Reduction::Sum if dtype == remat_ir::DType::Bool => "is not a number",
                Reduction::Sum | Reduction::Mean => continue,
            };
            let message = format!("{dtype}{} {wrong}", place(name));
            return Err(self.refuse(operation, Error::new(ErrorKind::DType, operation, message)));
        }
        let nodes = self.nodes();
        let divisor = if reduction == Reduction::Mean { nodes } else { 1 };
        let divisor = u32::try_from(divisor).map_err(|_| error("there are too many nodes"))?;
        self.exchange(operation, leaves, |links, data| {
            let buckets = buckets(data);
            let round = Round { rank: self.rank(), nodes, divisor };
            // The next bucket is sent while this one is summed. Nodes read in the order in which others write.
            round.send_parts(links, data, buckets.first())?;
            for (i, bucket) in buckets.iter().enumerate() {
                round.send_parts(links, data, buckets.get(i + 1))?;
                round.sum_own(links, data, bucket)?;
                if let Some(before) = i.checked_sub(1) {
                    round.receive_sums(links, data, &buckets[before])?;
                }
            }
            buckets.last().map_or(Ok(()), |last| round.receive_sums(links, data, last))
        })
    }

    /// Returns the arrays of the node of rank 0 on all nodes. Names, errors and order are as for [`Node::all_reduce`]; every dtype may be
    /// sent.
    ///
    /// # Errors
    /// As [`Node::all_reduce`].
    pub fn broadcast(&self, leaves: Vec<(String, Array)>) -> Result<Vec<Array>> {
        self.exchange("broadcast", leaves, |links, data| {
            for bucket in buckets(data) {
                for piece in bucket {
                    if self.rank() == 0 {
                        let mut bytes = Vec::new();
                        wire::encode(&data[piece.leaf], piece.range, &mut bytes);
                        let bytes = Arc::new(bytes);
                        for other in links.others() {
                            links.to(other)?.send(bytes.clone())?;
                        }
                    } else {
                        receive_piece(links, 0, &mut data[piece.leaf], piece.range)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Takes part in an operation that this node cannot call, with the reason. The other nodes, which wait for it, get an error too, and
    /// all may continue. Returns the error for this node.
    pub fn refuse(&self, operation: &str, reason: Error) -> Error {
        let exchanged = self.member().map_or(Ok(()), |member| {
            self.check()?;
            let mut links = member.links.lock().unwrap_or_else(PoisonError::into_inner);
            agree(self, member, &mut links, operation, Err(reason.clone()))
        });
        exchanged.err().unwrap_or(reason)
    }

    /// Runs the exchange of elements, after all nodes have agreed on the operation and the leaves.
    fn exchange(
        &self,
        operation: &str,
        leaves: Vec<(String, Array)>,
        run: impl FnOnce(&mut Links, &mut [Data]) -> Result<(), Lost>,
    ) -> Result<Vec<Array>> {
        let Some(member) = self.member() else {
            return Ok(leaves.into_iter().map(|(_, array)| array).collect());
        };
        self.check()?;
        let mut links = member.links.lock().unwrap_or_else(PoisonError::into_inner);
        let description: Vec<String> = leaves.iter().map(|(name, array)| format!("{name}\t{}", array.aval())).collect();
        agree(self, member, &mut links, operation, Ok(description.join("\n")))?;
        let avals: Vec<_> = leaves.iter().map(|(_, array)| array.aval().clone()).collect();
        let mut data: Vec<Data> = leaves.into_iter().map(|(_, array)| array.into_data()).collect();
        run(&mut links, &mut data).map_err(|lost| self.lost(member, operation, lost))?;
        avals.into_iter().zip(data).map(|(aval, data)| Array::new(aval, data)).collect()
    }

    /// The error of a lost connection. The cluster has failed then, since later data on it would be out of step.
    fn lost(&self, member: &Member, operation: &str, lost: Lost) -> Error {
        let Lost::Connection(cause) = lost else { return error(format!("{operation}: a link is missing")) };
        let failure = self.failure();
        let within = 2 * interval(member.store.failure_timeout) + Duration::from_millis(100);
        let reason = failure.reason(within, || {
            let cause = match cause.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    "another node has left the cluster, or is about to".to_string()
                }
                _ => cause.to_string(),
            };
            error(format!("{operation} has ended on node {} of {}: {cause}", self.rank(), self.nodes()))
        });
        failure.set(reason.clone());
        reason
    }
}

/// Why an exchange ended.
enum Lost {
    Connection(io::Error),
    Link,
}

impl From<io::Error> for Lost {
    fn from(cause: io::Error) -> Lost {
        Lost::Connection(cause)
    }
}

impl From<Error> for Lost {
    fn from(_: Error) -> Lost {
        Lost::Link
    }
}

/// Elements of one array.
struct Piece {
    leaf: usize,
    range: Range<usize>,
}

/// The elements of arrays in parts of at most [`BUCKET`] bytes.
fn buckets(data: &[Data]) -> Vec<Vec<Piece>> {
    let (mut buckets, mut bucket, mut left) = (Vec::new(), Vec::new(), BUCKET);
    for (leaf, data) in data.iter().enumerate() {
        let (size, mut start) = (data.dtype().size(), 0);
        while start < data.len() {
            if left < size {
                buckets.push(std::mem::take(&mut bucket));
                left = BUCKET;
            }
            let end = data.len().min(start + left / size);
            bucket.push(Piece { leaf, range: start..end });
            left -= (end - start) * size;
            start = end;
        }
    }
    if !bucket.is_empty() {
        buckets.push(bucket);
    }
    buckets
}

/// The rank of this node, the number of nodes, and the divisor of the sums.
struct Round {
    rank: usize,
    nodes: usize,
    divisor: u32,
}

impl Round {
    /// The elements of a piece that the node of this rank sums.
    fn part(&self, piece: &Piece, rank: usize) -> Range<usize> {
        // In u128, since the product of two sizes may overflow.
        let at = |rank: usize| piece.range.len() as u128 * rank as u128 / self.nodes as u128;
        piece.range.start + at(rank) as usize..piece.range.start + at(rank + 1) as usize
    }

    /// Sends each node the elements that it sums.
    fn send_parts(&self, links: &mut Links, data: &[Data], bucket: Option<&Vec<Piece>>) -> Result<(), Lost> {
        let Some(bucket) = bucket else { return Ok(()) };
        for other in links.others() {
            let mut bytes = Vec::new();
            for piece in bucket {
                wire::encode(&data[piece.leaf], self.part(piece, other), &mut bytes);
            }
            links.to(other)?.send(Arc::new(bytes))?;
        }
        Ok(())
    }

    /// Sums this node's elements of a bucket in the order of the ranks, and sends the sums to all others.
    fn sum_own(&self, links: &mut Links, data: &mut [Data], bucket: &[Piece]) -> Result<(), Lost> {
        let mut sums: Vec<Sums> = bucket.iter().map(|piece| Sums::new(data[piece.leaf].dtype())).collect();
        let mut bytes = Vec::new();
        for rank in 0..self.nodes {
            for (piece, sums) in bucket.iter().zip(&mut sums) {
                let (data, part) = (&data[piece.leaf], self.part(piece, self.rank));
                bytes.clear();
                if rank == self.rank {
                    wire::encode(data, part, &mut bytes);
                } else {
                    bytes.resize(part.len() * data.dtype().size(), 0);
                    links.to(rank)?.receive(&mut bytes)?;
                }
                sums.add(data.dtype(), &bytes);
            }
        }
        let mut bytes = Vec::new();
        for (piece, sums) in bucket.iter().zip(&mut sums) {
            let part = self.part(piece, self.rank);
            sums.store(self.divisor, &mut data[piece.leaf], part.clone());
            wire::encode(&data[piece.leaf], part, &mut bytes);
        }
        let bytes = Arc::new(bytes);
        for other in links.others() {
            links.to(other)?.send(bytes.clone())?;
        }
        Ok(())
    }

    /// Receives the sums of the other nodes.
    fn receive_sums(&self, links: &mut Links, data: &mut [Data], bucket: &[Piece]) -> Result<(), Lost> {
        for other in links.others() {
            for piece in bucket {
                receive_piece(links, other, &mut data[piece.leaf], self.part(piece, other))?;
            }
        }
        Ok(())
    }
}

/// Receives a range of elements from a node.
fn receive_piece(links: &mut Links, from: usize, data: &mut Data, range: Range<usize>) -> Result<(), Lost> {
    let mut bytes = vec![0; range.len() * data.dtype().size()];
    links.to(from)?.receive(&mut bytes)?;
    wire::decode(&bytes, data, range);
    Ok(())
}

/// Fails unless all nodes call this operation with these leaves. Then all of them fail, and nothing else has been sent. A node with an
/// error instead of leaves sends the error.
fn agree(node: &Node, member: &Member, links: &mut Links, operation: &str, leaves: Result<String>) -> Result<()> {
    let agreed = agreement(node, member, links, operation, leaves);
    if agreed.is_err() {
        // The process may end with the error, and the others are to get the reason.
        links.flush();
    }
    agreed
}

/// As [`agree`]; the reason may still be on its way to the other nodes.
fn agreement(node: &Node, member: &Member, links: &mut Links, operation: &str, leaves: Result<String>) -> Result<()> {
    let encoded = leaves.and_then(|text| {
        let message = frame::encoded(&[operation.as_bytes(), text.as_bytes()]);
        message.map(|message| (message, text)).map_err(|cause| error(cause.to_string()))
    });
    let (message, text) = match encoded {
        Ok((message, text)) => (message, Ok(text)),
        Err(reason) => {
            let shown: String = reason.to_string().chars().take(REASON).collect();
            let message = frame::encoded(&[operation.as_bytes(), b"", shown.as_bytes()]);
            (message.map_err(|cause| error(cause.to_string()))?, Err(reason))
        }
    };
    let message = Arc::new(message);
    let mut exchange = || -> Result<Vec<(usize, Vec<Vec<u8>>)>, Lost> {
        for other in links.others() {
            links.to(other)?.send(message.clone())?;
        }
        links.others().into_iter().map(|other| Ok((other, links.to(other)?.receive_message()?))).collect()
    };
    let messages = exchange().map_err(|lost| node.lost(member, operation, lost))?;
    let text = text?;
    for (other, message) in messages {
        let mut fields = message.iter().map(|field| String::from_utf8_lossy(field));
        let (theirs, described) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        if let Some(reason) = fields.next() {
            let message = format!("node {other} has failed to call {theirs}: {reason}");
            return Err(Error::new(ErrorKind::Cluster, operation, message));
        }
        if let Some(message) = difference(node.rank(), (operation, &text), other, (&theirs, &described)) {
            return Err(Error::new(ErrorKind::Structure, operation, message));
        }
    }
    Ok(())
}

/// What differs between the operations and leaves of two nodes.
fn difference(here: usize, (mine, text): (&str, &str), there: usize, (theirs, other): (&str, &str)) -> Option<String> {
    if mine != theirs {
        return Some(format!(
            "node {there} is in {theirs}, and this node, {here}, in {mine}: all have to call the same functions in the same order"
        ));
    }
    if text == other {
        return None;
    }
    let [mine, theirs] = [text, other].map(|text| text.lines().map(leaf).collect::<Vec<_>>());
    if mine.len() != theirs.len() {
        let [here_has, there_has] = [&mine, &theirs].map(|leaves| counted(leaves.len(), "leaf"));
        let longer = if mine.len() > theirs.len() { &mine } else { &theirs };
        let at = (0..longer.len()).find(|&i| mine.get(i) != theirs.get(i)).unwrap_or_default();
        let first = longer.get(at).map_or("", |leaf| leaf.0);
        return Some(format!(
            "the tree has {here_has} on this node, {here}, and {there_has} on node {there}; the first that differs is `{first}`"
        ));
    }
    let ((name, aval), (other_name, other_aval)) =
        mine.into_iter().zip(theirs).find(|(mine, theirs)| mine != theirs)?;
    Some(if name == other_name {
        format!("the tensor{} is {aval} on this node, {here}, and {other_aval} on node {there}", place(name))
    } else {
        format!("the leaf `{name}` on this node, {here}, is `{other_name}` on node {there}")
    })
}

/// The name and the aval of a leaf.
fn leaf(line: &str) -> (&str, &str) {
    line.rsplit_once('\t').unwrap_or((line, ""))
}

/// The position of a leaf, for an error message; empty for a tree with one leaf.
fn place(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" at `{name}`") }
}

#[cfg(test)]
mod tests;
