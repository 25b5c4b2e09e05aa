//! Memory: what a run asks for is what was promised before it.

use remat::{Array, MemoryStats};
use remat_alloc::{Block, Event};

/// The alignment of arenas, and of nothing else.
const ARENA: usize = 64;

/// Compares the blocks that the calling thread asked for in a run with the promise, to the byte. Every output has one block
/// of its bytes, unless an argument or another output has its elements. The temporaries are one arena, asked for by the
/// first run and kept by the executable. Neither is given back before the run is over, so that arguments, outputs and arena
/// together are the peak that the allocator sees. Gives the remaining blocks.
pub(crate) fn account(
    events: &[Event],
    stats: MemoryStats,
    args: &[Array],
    outs: &[Array],
    is_first: bool,
) -> Result<Vec<Block>, String> {
    let allocated = events.iter().filter_map(|event| match event {
        Event::Allocated(block) => Some(*block),
        Event::Freed(_) => None,
    });
    let (arenas, mut rest): (Vec<Block>, Vec<Block>) = allocated.partition(|block| block.align == ARENA);
    let arenas: Vec<usize> = arenas.iter().map(|block| block.bytes).collect();
    let expected: Vec<usize> = (is_first && stats.temporaries > 0).then_some(stats.temporaries).into_iter().collect();
    if arenas != expected {
        return Err(format!("arenas of {arenas:?} bytes, and {expected:?} were promised"));
    }
    if events.iter().any(|event| matches!(event, Event::Freed(block) if block.align == ARENA)) {
        return Err("the arena is given back".to_string());
    }
    let mut outputs = 0;
    for (i, out) in outs.iter().enumerate().filter(|(_, out)| out.aval().bytes() > 0) {
        let is_shared = outs[..i].iter().chain(args).any(|other| other.shares_data(out));
        if is_shared {
            continue;
        }
        let block = Block { bytes: out.aval().bytes(), align: out.dtype().size() };
        match rest.iter().position(|b| *b == block) {
            Some(found) => drop(rest.swap_remove(found)),
            None => return Err(format!("no block is output {i}, {}", out.aval())),
        }
        outputs += block.bytes;
    }
    if outputs != stats.outputs {
        return Err(format!("outputs of {outputs} bytes, and {} were promised", stats.outputs));
    }
    let arguments: usize = args.iter().map(|x| x.aval().bytes()).sum();
    if stats.arguments != arguments || stats.peak != stats.arguments + stats.outputs + stats.temporaries {
        return Err(format!("arguments are {arguments} bytes, and {stats:?} was promised"));
    }
    Ok(rest)
}

/// Fails unless these blocks are the lists of a call, in which an argument or an output has a place: however large the
/// arrays and however many the equations are, they have no more bytes. No promise counts them.
pub(crate) fn expect_lists(blocks: &[Block], args: &[Array], outs: &[Array]) -> Result<(), String> {
    let most = 256 * (1 + args.len() + outs.len());
    let bytes: usize = blocks.iter().map(|block| block.bytes).sum();
    if bytes > most || blocks.len() > 8 + 4 * outs.len() || blocks.iter().any(|block| block.align != 8) {
        return Err(format!("beside arena and outputs there are blocks {blocks:?}"));
    }
    Ok(())
}
