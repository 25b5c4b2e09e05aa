//! Checks memory: a run allocates exactly the bytes that were promised before it.

use remat_alloc::{Block, Event};
use remat_ir::{Array, MemoryStats};

/// The peak of the bytes that the calling thread allocated in a run.
struct Watched {
    most: usize,
    /// What is left of them.
    live: usize,
    blocks: Vec<Block>,
}

impl Watched {
    /// The list of the arguments exists from the beginning, and the run frees it.
    fn new(events: &[Event], list: usize) -> Watched {
        let mut watched = Watched { most: list, live: list, blocks: Vec::new() };
        for event in events {
            match event {
                Event::Allocated(block) => {
                    watched.live += block.bytes;
                    watched.blocks.push(*block);
                }
                Event::Freed(block) => watched.live -= block.bytes,
            }
            watched.most = watched.most.max(watched.live);
        }
        watched
    }
}

/// Compares the blocks that the calling thread allocated in a run with the promise, to the byte. Every output has one block of its bytes,
/// unless an argument or another output shares its elements. The temporaries are in one block, which the first run allocates and the
/// executable keeps: in a later run, `kept` are its bytes. The peak is the sum of the arguments and all of these, with the lists that the
/// promise counts too. Returns the bytes of the block of temporaries.
pub(crate) fn account(
    events: &[Event],
    stats: MemoryStats,
    args: &[Array],
    outs: &[Array],
    kept: Option<usize>,
) -> Result<usize, String> {
    let list: usize = args.iter().map(|arg| size_of::<Array>() + dimensions(arg)).sum();
    let mut watched = Watched::new(events, list);
    let arguments: usize = args.iter().map(|x| x.aval().bytes()).sum();
    let most = arguments + kept.unwrap_or(0) + watched.most;
    let sum = stats.arguments + stats.outputs + stats.temporaries + stats.overhead;
    if stats.arguments != arguments || stats.peak != sum || stats.peak != most {
        return Err(format!("arguments are {arguments} bytes, {most} were live, and {stats:?} was promised"));
    }
    let mut outputs = 0;
    for (i, out) in outs.iter().enumerate() {
        let is_shared = outs[..i].iter().chain(args).any(|other| other.shares_data(out));
        if is_shared {
            continue;
        }
        let header = Block { bytes: Array::HEADER, align: 8 };
        let elements = Block { bytes: out.aval().bytes(), align: out.dtype().size() };
        for block in [header, elements].into_iter().filter(|block| block.bytes > 0) {
            match watched.blocks.iter().position(|b| *b == block) {
                Some(found) => drop(watched.blocks.swap_remove(found)),
                None => return Err(format!("no block is output {i}, {}: {block:?}", out.aval())),
            }
        }
        outputs += elements.bytes;
    }
    if outputs != stats.outputs {
        return Err(format!("outputs of {outputs} bytes, and {} were promised", stats.outputs));
    }
    // What remains is the block of temporaries, the list of the outputs, and their dimensions, if there are many.
    let left = outs.iter().map(dimensions).filter(|&bytes| bytes > 0).count();
    let spare = watched.blocks.len() - left - usize::from(!outs.is_empty());
    let temporaries = watched.blocks.iter().find(|block| block.align == 16).map_or(0, |block| block.bytes);
    if spare != usize::from(temporaries > 0) || temporaries > 0 && (kept.is_some() || temporaries < stats.temporaries) {
        return Err(format!("beside outputs there are blocks {:?}, and {stats:?} was promised", watched.blocks));
    }
    Ok(temporaries)
}

/// The bytes of the block with the dimensions of an array, if they are too many to be stored inline.
fn dimensions(array: &Array) -> usize {
    let shape = array.aval().shape.clone();
    if shape.spilled() { shape.capacity() * size_of::<usize>() } else { 0 }
}
