//! Budgets of memory as a user writes them.

use std::fmt;

use remat::ir::parse_bytes;

/// A budget.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Budget {
    /// Bytes, or units of the file.
    Size(usize),
    /// Percent of the peak without recomputation.
    Percent(f64),
}

impl Budget {
    /// A budget in percent.
    pub(super) fn percent(percent: u8) -> Budget {
        Budget::Percent(f64::from(percent))
    }

    /// The budget for a graph with this peak, in the same unit.
    pub(super) fn of(self, peak: usize) -> usize {
        match self {
            Budget::Size(size) => size,
            Budget::Percent(percent) => (peak as f64 * percent / 100.0) as usize,
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Budget::Size(size) => write!(f, "{size}"),
            Budget::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Reads a budget.
///
/// # Errors
/// What is wrong with the text, for the user.
pub(super) fn parse(text: &str) -> Result<Budget, String> {
    let budget = match text.trim().strip_suffix('%') {
        // `f64` would also read `inf`, `1e3` and `-1`.
        Some(percent) if percent.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
            percent.parse().ok().filter(|percent| *percent <= 100.0).map(Budget::Percent)
        }
        Some(_) => None,
        // What is written as more than an address can be is read as the most.
        None => parse_bytes(text).filter(|&size| size < usize::MAX).map(Budget::Size),
    };
    budget.ok_or_else(|| "must be a number of bytes such as 500000 or 1.5GiB, or percent from 0% to 100%".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_sizes_or_shares() {
        assert_eq!(parse("500"), Ok(Budget::Size(500)));
        assert_eq!(parse("1.5KiB"), Ok(Budget::Size(1536)));
        assert_eq!(parse("50%"), Ok(Budget::percent(50)));
        assert_eq!(parse("12.5%").map(|budget| budget.of(1001)), Ok(125));
        for text in [
            "",
            "%",
            "-1%",
            "1e1%",
            "inf%",
            "101%",
            "50 %%",
            "1.2.3%",
            "-5",
            "0.5",
            "3 GB",
            "NaN",
            "16777216TiB",
            "99999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
