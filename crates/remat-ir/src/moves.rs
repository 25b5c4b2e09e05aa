//! What an engine decides about the steps of a program, one decision at a time.

use std::fmt;

use crate::{LiveValue, readable_bytes};

/// A change of the steps of a program that an engine made, or did not make.
#[derive(Clone, Debug)]
pub struct Move {
    /// The name of this kind of move.
    pub kind: &'static str,
    /// The value that it is about: the one that is kept, computed again or stored no longer, or the last result of loops that become one.
    pub value: LiveValue,
    /// The time of a run that it saves by the cost model, in picoseconds.
    pub time: i64,
    /// The bytes that are live longer because of it; negative for bytes that are no longer live.
    pub bytes: i64,
    /// Whether it was made.
    pub is_made: bool,
    /// Why.
    pub reason: &'static str,
}

/// The moves of a program, in the order in which the engine tried them.
///
/// Its text has one line for each: kind, picoseconds saved, bytes, the value with its operation and the user's line, and the reason.
#[derive(Clone, Debug, Default)]
pub struct Moves(pub Vec<Move>);

impl fmt::Display for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Move { kind, value, time, bytes, is_made, reason } in &self.0 {
            let made = if *is_made { "made" } else { "refused" };
            let sign = if *bytes < 0 { '-' } else { '+' };
            let bytes = format!("{sign}{}", readable_bytes(bytes.unsigned_abs() as usize));
            let micros = *time as f64 / 1e6;
            writeln!(f, "{kind:<9} {micros:>10.1} us {bytes:>12}  {made}: {reason}\n{:10}{value}", "")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aval, DType, LiveKind, Loc};

    #[test]
    fn moves_print_a_line_for_what_was_decided_and_one_for_the_value() {
        let aval = Aval::new(DType::F32, [64, 32]);
        let value = LiveValue {
            bytes: aval.bytes(),
            aval,
            kind: LiveKind::Temporary,
            name: Some("hidden".into()),
            operation: Some("exp"),
            loc: Loc::default(),
            must_be_kept: false,
        };
        let of =
            |time, bytes, is_made| Move { kind: "keep", value: value.clone(), time, bytes, is_made, reason: "it fits" };
        let text = Moves(vec![of(2_500_000, 8192, true), of(-100_000, -2048, false)]).to_string();
        let expected = "\
keep             2.5 us    +8.00 KiB  made: it fits
          8.00 KiB  f32[64,32]  exp 'hidden'
keep            -0.1 us    -2.00 KiB  refused: it fits
          8.00 KiB  f32[64,32]  exp 'hidden'
";
        assert_eq!(text, expected);
        assert_eq!(Moves::default().to_string(), "");
    }
}
