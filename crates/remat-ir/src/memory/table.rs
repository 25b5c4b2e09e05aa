//! The table of live values.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use super::{LiveValue, readable_bytes};
use crate::{Loc, Role};

/// Equal values: of one size, from one line.
pub(super) struct Row<'a> {
    pub(super) value: &'a LiveValue,
    pub(super) count: usize,
}

impl Row<'_> {
    /// The rows of these values, those with the most bytes first.
    fn of(values: &[LiveValue]) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        let mut numbers: HashMap<_, usize> = HashMap::new();
        for value in values {
            let Loc { site, scope, role, .. } = value.loc;
            let number =
                *numbers.entry((value.bytes, &value.aval, value.what(), site, scope, role)).or_insert(rows.len());
            match rows.get_mut(number) {
                Some(row) => row.count += 1,
                None => rows.push(Row { value, count: 1 }),
            }
        }
        rows.sort_by_key(|row| Reverse(row.bytes()));
        rows
    }

    /// The bytes of all of them.
    fn bytes(&self) -> usize {
        self.value.bytes.saturating_mul(self.count)
    }

    /// The columns before the location.
    fn cells(&self) -> [String; 3] {
        let bytes = readable_bytes(self.value.bytes);
        let bytes = if self.count == 1 { bytes } else { format!("{} x {bytes}", self.count) };
        [bytes, self.value.aval.to_string(), self.value.what()]
    }

    /// Writes it, in columns of these widths.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, widths: [usize; 3]) -> fmt::Result {
        let ([bytes, aval, what], loc) = (self.cells(), self.value.loc);
        write!(f, "{bytes:>0$}  {aval:<1$}  ", widths[0], widths[1])?;
        match loc.site {
            Some(_) => write!(f, "{what:<0$}  {loc}", widths[2])?,
            None => f.write_str(&what)?,
        }
        // What is not said is computed where the user wrote it.
        if loc.role == Role::Written { Ok(()) } else { write!(f, ", {}", loc.role.name()) }
    }
}

/// At most the first `most` rows of these values.
pub(super) struct Table<'a>(pub(super) &'a [LiveValue], pub(super) usize);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Table(live, most) = self;
        let rows = Row::of(live);
        // One more row takes no more room than the line that would mention it.
        let shown = if rows.len() <= most.saturating_add(1) { rows.len() } else { *most };
        let (shown, rest) = rows.split_at(shown);
        let mut widths = [0; 3];
        for row in shown {
            for (width, cell) in widths.iter_mut().zip(row.cells()) {
                *width = (*width).max(cell.chars().count());
            }
        }
        f.write_str("live at the peak:")?;
        for row in shown {
            f.write_str("\n  ")?;
            row.write(f, widths)?;
        }
        if !rest.is_empty() {
            let bytes = rest.iter().map(Row::bytes).fold(0, usize::saturating_add);
            let count: usize = rest.iter().map(|row| row.count).sum();
            write!(f, "\n  and {count} more of {}", readable_bytes(bytes))?;
        }
        Ok(())
    }
}
