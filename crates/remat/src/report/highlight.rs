//! Colour for the text of programs.

use anstyle::{AnsiColor, Style};

const KEYWORD: Style = AnsiColor::Magenta.on_default();
const TYPE: Style = AnsiColor::Cyan.on_default();
const OPERATION: Style = AnsiColor::Green.on_default().bold();
const REGION: Style = AnsiColor::Yellow.on_default().bold();
const TITLE: Style = Style::new().bold();

/// One line of a program with escape codes: keywords, types, operations (checkpoints stand out), titles.
pub(super) fn highlight(line: &str) -> String {
    if line.starts_with("---") {
        return styled(TITLE, line);
    }
    let mut out = String::with_capacity(2 * line.len());
    let mut rest = line;
    // The operation of an equation comes after its equals sign, which has spaces around it.
    let mut is_operation = false;
    while let Some(first) = rest.chars().next() {
        let end = if first == ':' {
            rest.find([' ', '.']).unwrap_or(rest.len())
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, tail) = rest.split_at(end);
        let style = match token {
            "lambda" | "let" | "in" => Some(KEYWORD),
            "checkpoint" if is_operation => Some(REGION),
            _ if is_operation && is_word(first) => Some(OPERATION),
            _ if first == ':' => Some(TYPE),
            _ => None,
        };
        match style {
            Some(style) => out.push_str(&styled(style, token)),
            None => out.push_str(token),
        }
        is_operation = token == "=" && tail.starts_with(' ') || is_operation && token == " ";
        rest = tail;
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_types_and_keywords_are_coloured() {
        let line = highlight("{ lambda ; a:f32[2]. let b:f32[] = reduce_sum[axes=(0,)] a in (b,) }");
        assert_eq!(
            line.replace('\u{1b}', "^"),
            "{ ^[35mlambda^[0m ; a^[36m:f32[2]^[0m. ^[35mlet^[0m b^[36m:f32[]^[0m = ^[1m^[32mreduce_sum^[0m[axes=(0,)] a \
             ^[35min^[0m (b,) }"
        );
    }

    #[test]
    fn without_styles_the_text_is_the_same() {
        let line = "    c:f32[5] = checkpoint[policy=Names(a)] a b";
        assert_eq!(anstream::adapter::strip_str(&highlight(line)).to_string(), line);
    }
}
