//! JSON that can stand in a script element of a page, whatever its strings are.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// JSON without the characters that end a script element or begin markup, and without those that editors and terminals show in another order.
struct Inert;

impl Formatter for Inert {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((start, c)) = rest.char_indices().find(|&(_, c)| is_active(c)) {
            let (before, after) = rest.split_at(start);
            // All of these are in the basic plane.
            write!(writer, "{before}\\u{:04x}", c as u32)?;
            rest = &after[c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Whether a character is a mark of HTML, the end of a line in a script, or a mark of direction.
fn is_active(c: char) -> bool {
    matches!(c, '<' | '>' | '&' | '\'' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Writes a value as JSON that can stand in a script element.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(to, Inert)).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_inert_and_come_back() {
        let hostile = [
            "</script><script>alert(1)</script>",
            "<!-- <script>",
            "]]>&amp;&#60;",
            "\"';`${0}\\\\u003c",
            "a\u{202e}b\u{2066}c\u{2028}d\u{2029}e\u{feff}f\u{200f}",
            "tab\tline\nnul\0",
            "ümlaut 漢字 🦀",
        ];
        let mut text = Vec::new();
        write(&mut text, &hostile).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains(is_active), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), hostile);
        assert!(text.contains("ümlaut 漢字 🦀"));
    }
}
