//! Text of unknown origin, such as the names in a downloaded file, for a terminal and for a shell.

use std::borrow::Cow;
use std::path::Path;

/// The most characters of a message.
const MOST: usize = 2000;

/// Text that a terminal shows and does not obey: control characters, except line ends and tabs, become replacement characters, and so do
/// those that change the direction of writing.
///
/// ```
/// assert_eq!(remat_command::text::printable("a\u{1b}]0;title\u{7}\tb\n"), "a\u{fffd}]0;title\u{fffd}\tb\n");
/// ```
pub fn printable(text: &str) -> String {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t' || turns(c);
    text.chars().map(|c| if obeyed(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A message for a terminal, [printable], and without its middle if it is longer than any message should be.
///
/// ```
/// use remat_command::text::message;
///
/// assert_eq!(message("no\u{7} such file"), "no\u{fffd} such file");
/// let long = message(&format!("no file `{}` there", "a".repeat(1 << 20)));
/// assert!(long.len() < 2100 && long.starts_with("no file `a") && long.ends_with("a` there"));
/// ```
pub fn message(text: &str) -> String {
    let count = text.chars().count();
    if count <= MOST {
        return printable(text);
    }
    let first: String = text.chars().take(MOST / 2).collect();
    let last: String = text.chars().skip(count - MOST / 2).collect();
    printable(&format!("{first} [{} characters more] {last}", count - 2 * (MOST / 2)))
}

/// A path as a word of a shell, quoted where it has to be.
///
/// ```
/// use remat_command::text::shell_word;
///
/// assert_eq!(shell_word("runs/1".as_ref()), "runs/1");
/// assert_eq!(shell_word("my run".as_ref()), "'my run'");
/// ```
pub fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    // No path has a zero byte, which alone cannot be quoted.
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), Cow::into_owned)
}
