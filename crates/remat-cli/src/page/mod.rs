//! Self-contained HTML pages with charts as SVG.

pub(crate) mod chart;

use anyhow::{Context, Result};
use minijinja::{Environment, Value, context};

/// The templates, by name. All but the first extend it.
const TEMPLATES: [(&str, &str); 4] = [
    ("base.html", include_str!("templates/base.html")),
    ("fit.html", include_str!("templates/fit.html")),
    ("policies.html", include_str!("templates/policies.html")),
    ("run.html", include_str!("templates/run.html")),
];

/// A row of a table, which is bold if it is chosen.
pub(crate) fn row(cells: Vec<String>, chosen: bool) -> Value {
    context! { cells, chosen }
}

/// The address of a file in the folder of a page, whatever its name is.
pub(crate) fn address(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    format!("./{}", name.bytes().map(byte).collect::<String>())
}

/// Renders a template with these values; their text is escaped.
///
/// # Errors
/// If the template does not fit the values.
pub(crate) fn render(template: &str, values: Value) -> Result<String> {
    let made = || -> std::result::Result<String, minijinja::Error> {
        let mut environment = Environment::new();
        // A missing value is a defect of the page, not an empty text.
        environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
        for (name, source) in TEMPLATES {
            environment.add_template(name, source)?;
        }
        environment.get_template(template)?.render(values)
    };
    made().with_context(|| format!("cannot make a page of {template}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_file_is_an_address() {
        assert_eq!(address("a-1.memory.html"), "./a-1.memory.html");
        assert_eq!(address("javascript:x?#%\"é"), "./javascript%3Ax%3F%23%25%22%C3%A9");
    }

    #[test]
    fn text_is_escaped_and_missing_values_are_errors() {
        let rows = [row(vec!["1&2".into()], true)];
        let target = context! { title => "a<b", chart => "<svg/>", rows => rows.to_vec() };
        let html = render("fit.html", context! { title => "t", model => "m", targets => [target] }).unwrap();
        assert!(
            html.contains("<h2>a&lt;b</h2>\n<svg/>") && html.contains("<tr class=\"chosen\"><td>1&amp;2</tr>"),
            "{html}"
        );
        assert!(render("fit.html", context! { title => "t" }).is_err());
    }
}
