//! Operands that are packed once, before all products: where several blocks would pack the same elements, and these are not neighbours.

use std::ops::Range;

use super::blocking::{Operand, STRIP, ToPrefetch, UnitBlocking};
use crate::base::narrow::{PANEL, Side};
use crate::base::pieces::piece;
use crate::threads::Threads;

/// The panels of an operand.
pub(in crate::kernels) enum Panels<'p, O> {
    /// The panels of an operand that each block packs.
    Of(O),
    /// All panels, packed before the products, part after part of the contracted axis.
    Packed(&'p [u32]),
}

impl<O: Operand> Panels<'_, O> {
    /// The panels of some rows or columns and of the groups of a part, packed to `to` unless they were packed before.
    pub(super) fn panels<'a>(
        &'a self,
        blocking: &UnitBlocking,
        side: Side,
        free: &Range<usize>,
        groups: &Range<usize>,
        to: &'a mut [u32],
        space: &mut [u32],
    ) -> &'a [u32] {
        let (group, count) = (blocking.unit.group(side), free.len().div_ceil(PANEL));
        let len = groups.len() * group;
        match self {
            Panels::Of(operand) => {
                let to = &mut to[..count * len];
                operand.pack(free.clone(), blocking.depth_of(groups), side, to, space);
                to
            }
            Panels::Packed(all) => {
                let part = groups.start * group * blocking.panels(side);
                &all[part + free.start / PANEL * len..][..count * len]
            }
        }
    }

    /// The memory from which a block packs.
    pub(super) fn to_prefetch(&self, free: &Range<usize>, depth: &Range<usize>) -> ToPrefetch {
        match self {
            Panels::Of(operand) => operand.to_prefetch(free, depth),
            Panels::Packed(_) => ToPrefetch::NONE,
        }
    }
}

impl UnitBlocking {
    fn free(&self, side: Side) -> usize {
        match side {
            Side::Left => self.rows,
            Side::Right => self.columns,
        }
    }

    /// The number of panels of all rows or columns.
    fn panels(&self, side: Side) -> usize {
        self.free(side).div_ceil(PANEL)
    }

    /// The operand that is packed before all products, and the words of its panels, if any.
    pub(in crate::kernels) fn before(&self) -> Option<(Side, usize)> {
        self.before.map(|side| (side, self.panels(side) * self.groups * self.unit.group(side)))
    }

    /// Packs all panels of an operand, with scratch memory as [`UnitBlocking::scratch`] says.
    pub(in crate::kernels) fn pack(
        &self,
        side: Side,
        operand: &impl Operand,
        to: &mut [u32],
        scratch: &mut [u32],
        threads: &Threads,
    ) {
        let (free, panels, group) = (self.free(side), self.panels(side), self.unit.group(side));
        let pieces = panels.div_ceil(STRIP);
        let parts = to.chunks_mut((panels * self.part * group).max(1)).enumerate();
        let items = parts.flat_map(|(i, part)| {
            let groups = piece(0..self.groups, self.part, i);
            let strips = part.chunks_mut(STRIP * groups.len() * group).enumerate();
            strips.map(move |(j, to)| (piece(0..free, STRIP * PANEL, j), groups.clone(), to))
        });
        let tasks = self.groups.div_ceil(self.part.max(1)) * pieces;
        let scratch = &mut scratch[..threads.count() * self.space];
        threads.for_each_item_with_scratch(tasks, items, scratch, |(free, groups, to), space| {
            operand.pack(free, self.depth_of(&groups), side, to, space);
        });
    }
}
