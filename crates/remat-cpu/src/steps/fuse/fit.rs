//! Decides how an equation fits into the loop that computes one of its operands.

use remat_ir::Var;
use remat_kernels::{Extent, Layout};

use super::units::UnitId;
use super::{Fusion, LONGEST_ROW, MOST_MEMBERS};
use crate::ids::EqnId;
use crate::steps::ir::{Member, Value};

/// How an equation fits into a loop.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Fit {
    pub(super) extent: Extent,
    columns: Option<usize>,
    /// The values of the loop so far become row values of the equation's elements.
    promotes: bool,
}

impl Fusion {
    /// How an elementwise equation of `size` elements fits the shape of a loop, if it does.
    pub(super) fn fits(&self, unit: UnitId, size: usize, operands: &[Value]) -> Option<Fit> {
        let fused_loop = self.fused_loop(unit)?;
        if fused_loop.reduction.is_some() || fused_loop.members.len() >= MOST_MEMBERS {
            return None;
        }
        let inside = || {
            operands.iter().filter_map(|x| match x {
                Value::View { base, layout } if self.unit[*base] == Some(unit) => Some((self.extent[*base], layout)),
                _ => None,
            })
        };
        let mut rows = inside().map(|(extent, layout)| extent == Extent::Row && layout.is_contiguous());
        if fused_loop.columns.is_some() && size == fused_loop.rows && rows.all(|is_row| is_row) {
            return Some(Fit { extent: Extent::Row, columns: fused_loop.columns, promotes: false });
        }
        if size == fused_loop.size() {
            let mut columns = fused_loop.columns;
            let fits = inside().all(|(extent, layout)| match extent {
                Extent::Full => layout.is_contiguous() && layout.size() == size,
                Extent::Row => {
                    let repeats = repeats(layout, fused_loop.rows, size);
                    columns = columns.or(repeats);
                    repeats.is_some() && repeats == columns
                }
            });
            return fits.then_some(Fit { extent: Extent::Full, columns, promotes: false });
        }
        if fused_loop.columns.is_none()
            && fused_loop.rows > 0
            && size > fused_loop.rows
            && size.is_multiple_of(fused_loop.rows)
        {
            let columns = size / fused_loop.rows;
            let fits = inside().all(|(_, layout)| repeats(layout, fused_loop.rows, size) == Some(columns));
            return (fits && columns <= LONGEST_ROW).then_some(Fit {
                extent: Extent::Full,
                columns: Some(columns),
                promotes: true,
            });
        }
        None
    }

    /// Applies a fit to the rows and columns of a loop.
    pub(super) fn adjust(&mut self, unit: UnitId, fit: Fit) {
        let Some(fused_loop) = self.fused_loop_mut(unit) else { return };
        if fit.promotes {
            fused_loop.columns = fit.columns;
            for member in &mut fused_loop.members {
                member.extent = Extent::Row;
            }
            let outs: Vec<Var> = fused_loop.members.iter().map(|m| m.out).collect();
            for out in outs {
                self.extent[out] = Extent::Row;
            }
        } else if fused_loop.columns != fit.columns
            && let Some(columns) = fit.columns
        {
            fused_loop.rows /= columns;
            fused_loop.columns = fit.columns;
        }
    }

    /// Whether a second loop can be merged into the loop that the equation joins.
    pub(super) fn can_merge(&self, target: UnitId, unit: UnitId, chosen: Fit, fit: Fit, sources: &[UnitId]) -> bool {
        let (Some(a), Some(b)) = (self.fused_loop(target), self.fused_loop(unit)) else { return false };
        // A loop without columns has full values only, which fit any columns.
        let columns_agree = a.columns.is_none_or(|x| fit.columns.is_none_or(|y| x == y));
        let are_alike =
            chosen.extent == fit.extent || self.is_scalar(target) && b.rows == 1 || self.is_scalar(unit) && a.rows == 1;
        are_alike
            && columns_agree
            && a.members.len() + b.members.len() < MOST_MEMBERS
            && self.units[unit].last < self.units[target].closed
            && self.units[target].last < self.units[unit].closed
            && self.is_free(target, sources, &[target, unit])
            && self.is_free(unit, sources, &[target, unit])
    }

    /// Whether a loop computes single elements, which are row values of any loop over one row.
    fn is_scalar(&self, unit: UnitId) -> bool {
        self.fused_loop(unit).is_some_and(|fused_loop| fused_loop.rows == 1 && fused_loop.columns.is_none())
    }

    /// How an equation fits into two loops that can be merged. If it is a row value of one of them, the single elements of the other become such
    /// values too.
    pub(super) fn with_one_extent(&mut self, [a, b]: [(UnitId, Fit); 2]) -> [Fit; 2] {
        let of_row = [a, b].into_iter().find(|(_, fit)| fit.extent == Extent::Row);
        let Some((_, row)) = of_row.filter(|_| a.1.extent != b.1.extent) else { return [a.1, b.1] };
        let promoted = Fit { promotes: true, ..row };
        if a.1.extent == Extent::Full {
            self.adjust(a.0, promoted);
            [row; 2]
        } else {
            [a.1, promoted]
        }
    }

    /// Whether only the loop itself and this equation read the values of a loop.
    pub(super) fn ends_in(&self, unit: UnitId, at: EqnId) -> bool {
        let Some(fused_loop) = self.fused_loop(unit) else { return false };
        fused_loop.members.iter().all(|m| !self.escapes(m.out, unit, Some(at)))
    }
}

/// How many times in a row a layout of `size` elements repeats each of the `rows` elements of a row-major buffer.
pub(in crate::steps) fn repeats(layout: &Layout, rows: usize, size: usize) -> Option<usize> {
    let columns = size.checked_div(rows)?;
    let is_scalar = layout.size() == 1 && rows == 1;
    let is_repeated = layout.size() == size
        && match layout.merged().as_slice() {
            [] => rows == 1,
            [(_, 0)] => rows == 1,
            [(n, 1)] => *n == rows,
            [(n, 1), (_, 0)] => *n == rows,
            _ => false,
        };
    (layout.offset == 0 && (is_scalar || is_repeated)).then_some(columns)
}

/// Whether all operands of a member can be read in the dimensions of this shape.
pub(in crate::steps) fn fits_shape(member: &Member, shape: &[usize]) -> bool {
    member.operands.iter().all(|x| match x {
        Value::View { layout, .. } => layout.size() == 1 || layout.reshaped(shape).is_some(),
        Value::Splat { .. } => true,
    })
}
