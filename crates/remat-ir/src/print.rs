//! What programs print: texts with placeholders, and where the lines go.

use std::cell::RefCell;
use std::io::Write;

/// The most digits after the point.
const MOST_DIGITS: usize = 64;

/// A text with placeholders.
pub(crate) struct Template {
    /// The text before each placeholder.
    pieces: Vec<(String, Placeholder)>,
    /// The text after the last.
    rest: String,
}

/// How a value is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placeholder {
    /// `{}`: its elements.
    Elements,
    /// `{:?}`: dtype, shape and elements.
    WithAval,
    /// `{:.3}`: its elements, floats with three digits after the point.
    Digits(usize),
}

impl Template {
    /// Reads a text. `{{` and `}}` are braces.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let (mut pieces, mut rest) = (Vec::new(), String::new());
        let mut at = text;
        while let Some(brace) = at.find(['{', '}']) {
            rest += &at[..brace];
            let (is_open, after) = (at[brace..].starts_with('{'), &at[brace + 1..]);
            if let Some(doubled) = after.strip_prefix(if is_open { '{' } else { '}' }) {
                rest.push(if is_open { '{' } else { '}' });
                at = doubled;
                continue;
            }
            let end = after.find('}').filter(|_| is_open);
            let end = end.ok_or_else(|| format!("a brace in {text:?} is alone; write {{{{ or }}}} for a brace"))?;
            let word = &after[..end];
            let placeholder = match word {
                "" => Some(Placeholder::Elements),
                ":?" => Some(Placeholder::WithAval),
                _ => word.strip_prefix(":.").and_then(|digits| digits.parse().ok()).map(Placeholder::Digits),
            };
            let placeholder = placeholder.filter(|p| !matches!(p, Placeholder::Digits(MOST_DIGITS..)));
            let placeholder = placeholder.ok_or_else(|| {
                format!("{{{word}}} in {text:?} is none of {{}}, {{:?}} and {{:.3}} (digits below {MOST_DIGITS})")
            })?;
            pieces.push((std::mem::take(&mut rest), placeholder));
            at = &after[end + 1..];
        }
        rest += at;
        Ok(Template { pieces, rest })
    }

    /// The number of placeholders.
    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// The text with the text of each value.
    pub(crate) fn fill(&self, value: impl Fn(usize, Placeholder) -> String) -> String {
        let mut text = String::new();
        for (number, (before, placeholder)) in self.pieces.iter().enumerate() {
            text += before;
            text += &value(number, *placeholder);
        }
        text + &self.rest
    }
}

thread_local! {
    /// What this thread prints while it is captured; the innermost last.
    static CAPTURED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Prints a line on the standard output, unless it is captured.
pub(crate) fn write_line(line: &str) {
    let is_captured = CAPTURED.with_borrow_mut(|captured| match captured.last_mut() {
        Some(text) => {
            text.push_str(line);
            text.push('\n');
            true
        }
        None => false,
    });
    if !is_captured {
        // Nobody may be reading, which does not stop a program.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

/// The result of `f`, and the lines that programs print meanwhile on this thread, which then do not go to the standard output.
///
/// ```
/// use remat_ir::{Array, DebugPrint, captured, eval_op};
/// let (result, printed) = captured(|| eval_op(&DebugPrint::new("{:?}").into(), &[Array::scalar(0.5f32)]));
/// assert!(result?.is_empty());
/// assert_eq!(printed, "f32[] 0.5\n");
/// # Ok::<(), remat_ir::Error>(())
/// ```
pub fn captured<R>(f: impl FnOnce() -> R) -> (R, String) {
    /// Ends a capture, also if `f` panics.
    struct Capture;

    impl Drop for Capture {
        fn drop(&mut self) {
            CAPTURED.with_borrow_mut(|captured| drop(captured.pop()));
        }
    }

    CAPTURED.with_borrow_mut(|captured| captured.push(String::new()));
    let capture = Capture;
    let result = f();
    let text = CAPTURED.with_borrow_mut(|captured| captured.last_mut().map(std::mem::take).unwrap_or_default());
    drop(capture);
    (result, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, String> {
        Ok(Template::parse(text)?.fill(|number, placeholder| format!("<{number} {placeholder:?}>")))
    }

    #[test]
    fn a_text_has_placeholders_and_braces() {
        assert_eq!(filled("no value").as_deref(), Ok("no value"));
        assert_eq!(filled("{}, {:?}{:.3}.").as_deref(), Ok("<0 Elements>, <1 WithAval><2 Digits(3)>."));
        assert_eq!(filled("{{{}}} }}{{").as_deref(), Ok("{<0 Elements>} }{"));
        assert_eq!(filled("").as_deref(), Ok(""));
    }

    #[test]
    fn what_is_wrong_with_a_text_is_told() {
        assert_eq!(filled("x {").unwrap_err(), "a brace in \"x {\" is alone; write {{ or }} for a brace");
        assert_eq!(filled("x }").unwrap_err(), "a brace in \"x }\" is alone; write {{ or }} for a brace");
        let none_of = "is none of {}, {:?} and {:.3} (digits below 64)";
        assert_eq!(filled("{x}").unwrap_err(), format!("{{x}} in \"{{x}}\" {none_of}"));
        assert_eq!(filled("{:.64}").unwrap_err(), format!("{{:.64}} in \"{{:.64}}\" {none_of}"));
        assert_eq!(filled("{:.-1}").unwrap_err(), format!("{{:.-1}} in \"{{:.-1}}\" {none_of}"));
    }
}
