//! Tables of measurements.

use remat_command::table::table;

use crate::case::Record;

/// A column: its name, and its text for a record.
type Column = (&'static str, fn(&Record) -> String);

/// The columns after those of labels.
const COLUMNS: [Column; 11] = [
    ("step s", |r| format!("{:.3}", r.step_s)),
    ("GFLOP/s", |r| format!("{:.1}", r.gflops)),
    ("planned MiB", |r| mebibytes(r.planned_peak)),
    ("temporaries", |r| mebibytes(r.temporaries)),
    ("allocated", |r| r.allocator_peak.map(mebibytes).unwrap_or_default()),
    ("resident", |r| r.resident_peak.map(mebibytes).unwrap_or_default()),
    ("growth", |r| r.resident_growth.map(mebibytes).unwrap_or_default()),
    ("of plan", |r| growth(r).map_or_else(String::new, |times| format!("{times:.3}"))),
    ("trace ms", |r| format!("{:.1}", 1e3 * r.trace_s)),
    ("compile ms", |r| format!("{:.1}", 1e3 * r.compile_s)),
    ("loss", |r| r.loss.map_or("not finite".into(), |loss| format!("{loss:.6}"))),
];

/// A row for each record: the labels that distinguish it, then the measurements.
pub(crate) fn report(records: &[Record]) -> String {
    let labels: Vec<_> = records.iter().map(|r| [r.case.labels(), r.case.sizes()].concat()).collect();
    let shown = |column: usize| column == 0 || labels.iter().any(|row| row[column].1 != labels[0][column].1);
    let shown: Vec<usize> = (0..labels.first().map_or(0, Vec::len)).filter(|&column| shown(column)).collect();
    let names = shown.iter().map(|&column| labels[0][column].0);
    let header: Vec<&str> = names.chain(COLUMNS.map(|(name, _)| name)).collect();
    let rows = records.iter().zip(&labels).map(|(record, labels)| {
        let labels = shown.iter().map(|&column| labels[column].1.clone());
        labels.chain(COLUMNS.iter().map(|(_, cell)| cell(record))).collect()
    });
    table(&header, &rows.collect::<Vec<_>>())
}

/// Whether all losses are the same, in a sentence.
pub(crate) fn agreement(records: &[Record]) -> String {
    let losses = || records.iter().filter_map(|record| record.loss);
    let (least, most) = (losses().fold(f64::INFINITY, f64::min), losses().fold(f64::NEG_INFINITY, f64::max));
    if losses().count() < records.len() {
        "a loss is not finite".into()
    } else if least == most {
        "all losses are equal, in every bit".into()
    } else {
        format!("the losses differ by up to {:.1e}", most - least)
    }
}

/// The growth of resident memory as a multiple of the planned bytes without arguments; `None` if none were planned.
fn growth(record: &Record) -> Option<f64> {
    let planned = record.planned_peak.saturating_sub(record.arguments);
    record.resident_growth.filter(|_| planned > 0).map(|growth| growth as f64 / planned as f64)
}

/// Whether the allocated bytes equal the planned ones, in a sentence.
pub(crate) fn exactness(records: &[Record]) -> String {
    let counted = records.iter().filter_map(|record| Some((record.allocator_peak?, record.planned_peak)));
    match counted.map(|(allocated, planned)| allocated.abs_diff(planned)).max() {
        None => "the memory of the device is not counted here".into(),
        Some(0) => "the allocated peaks are the planned ones, to the byte".into(),
        Some(most) => format!("the allocated peaks differ from the planned ones by up to {most} bytes"),
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
