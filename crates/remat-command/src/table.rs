//! Numbers and tables as text.

use comfy_table::{CellAlignment, Table, presets};

/// Rows under a header, each column as wide as its widest cell. The first column is aligned to the left, the others to the right.
///
/// ```
/// let rows = [vec!["dots".into(), "1 B".into()], vec!["nothing".into(), "1.00 KiB".into()]];
/// let expected = "policy      saved\ndots          1 B\nnothing  1.00 KiB";
/// assert_eq!(remat_command::table::table(&["policy", "saved"], &rows), expected);
/// ```
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).add_rows(rows);
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((2 * u16::from(i > 0), 0));
        column.set_cell_alignment(if i == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.trim_fmt()
}

/// A number with thousands separators.
///
/// ```
/// assert_eq!(remat_command::table::thousands(1_234_567), "1,234,567");
/// ```
pub fn thousands(count: usize) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|g| str::from_utf8(g).unwrap_or_default()).collect();
    groups.join(",")
}

/// A number of seconds for people: with at least three digits, and as milliseconds below a second.
///
/// ```
/// use remat_command::table::readable_seconds;
/// assert_eq!([0.0, 0.0123, 1.5].map(readable_seconds), ["0.0 ms", "12.3 ms", "1.50 s"]);
/// ```
pub fn readable_seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", 1e3 * seconds) } else { format!("{seconds:.2} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["dots".into(), "1 B".into()], vec!["  nothing".into(), "1.00 KiB".into()]];
        let expected = "policy        saved\ndots            1 B\n  nothing  1.00 KiB";
        assert_eq!(table(&["policy", "saved"], &rows), expected);
        assert_eq!(table(&["policy", "saved"], &[]), "policy  saved");
    }

    #[test]
    fn thousands_are_marked() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
