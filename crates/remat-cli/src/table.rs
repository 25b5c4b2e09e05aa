//! Tables of text.

/// Rows under a header, each column as wide as its widest cell: the first column starts at the left, the others end at
/// the right.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    let mut lines = vec![line(&mut header.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

/// A number of bytes as people read it: three digits and a binary unit.
pub(crate) fn bytes(count: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut value, mut unit) = (count as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A number with a mark between thousands.
pub(crate) fn thousands(count: usize) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|g| str::from_utf8(g).unwrap_or_default()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["dots".into(), "1 B".into()], vec!["nothing".into(), "1.00 KiB".into()]];
        let expected = "policy      saved\ndots          1 B\nnothing  1.00 KiB";
        assert_eq!(table(&["policy", "saved"], &rows), expected);
        assert_eq!(table(&["policy", "saved"], &[]), "policy  saved");
    }

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        let shown = [0, 1023, 1024, 10 * 1024 + 512, 1 << 20, 300 << 20, 5 << 40].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "10.5 KiB", "1.00 MiB", "300 MiB", "5.00 TiB"]);
    }

    #[test]
    fn thousands_are_marked() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
