//! The table of what was tried, and its place in the documentation.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Where the table is in the documentation.
const MARKS: [&str; 2] = ["<!-- tools/faults -->\n", "<!-- end -->\n"];

/// One kind of disturbance.
pub(crate) struct Row {
    pub(crate) part: &'static str,
    pub(crate) what: String,
    pub(crate) tried: usize,
    /// How many there are in all, where they are finite.
    pub(crate) of: Option<usize>,
    pub(crate) held: usize,
}

/// Something that did not hold.
pub(crate) struct Finding {
    pub(crate) what: String,
    pub(crate) problem: String,
}

/// The command that tries one case again.
pub(crate) fn reproduction(part: &str, case: &str, seed: u64) -> String {
    format!("tools/faults --only {part} --seed {seed} --case '{case}'")
}

/// The table, in Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = String::from("| | what | tried | held |\n|---|---|---:|---:|\n");
    for Row { part, what, tried, of, held } in rows {
        let of = of.map(|of| format!(" of {}", grouped(of))).unwrap_or_default();
        let held = match (*tried, tried == held) {
            (0, _) => String::new(),
            (_, true) => "all".into(),
            (_, false) => grouped(*held),
        };
        let tried = grouped(*tried);
        table += &format!("| {part} | {what} | {tried}{of} | {held} |\n");
    }
    table
}

/// A number with its thousands apart.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

/// Replaces the table of a document.
pub(crate) fn write(path: &Path, table: &str) -> Result<()> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let parts = text.split_once(MARKS[0]).and_then(|(before, rest)| Some((before, rest.split_once(MARKS[1])?.1)));
    let (before, after) = parts.with_context(|| format!("{shown} has no place for the table"))?;
    fs::write(path, format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]))
        .with_context(|| format!("cannot write {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_what_failed() {
        let row = |tried, of, held| Row { part: "damage", what: "gz".into(), tried, of, held };
        let expected = "| | what | tried | held |\n|---|---|---:|---:|\n\
                        | damage | gz | 1,234,567 of 2,000,000 | all |\n| damage | gz | 0 |  |\n| damage | gz | 12 | 11 |\n";
        assert_eq!(table(&[row(1_234_567, Some(2_000_000), 1_234_567), row(0, None, 0), row(12, None, 11)]), expected);
    }

    #[test]
    fn a_table_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.md");
        let text = |table: &str| format!("before\n<!-- tools/faults -->\n{table}<!-- end -->\nafter\n");
        fs::write(&path, text("old\n")).unwrap();
        write(&path, "new\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text("new\n"));
        fs::write(&path, "nothing").unwrap();
        assert!(write(&path, "new\n").unwrap_err().to_string().ends_with("a.md has no place for the table"));
    }
}
