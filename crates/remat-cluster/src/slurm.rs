//! Lists of hosts as Slurm writes them: `gpu[001-003,007],login`.

/// The first host of a list, or `None` if it is not one.
pub(crate) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    while let Some(at) = rest.find(['[', ',']) {
        host.push_str(&rest[..at]);
        if rest[at..].starts_with(',') {
            rest = "";
            break;
        }
        // Of `[001-003,007]` the first is `001`, with its zeros.
        let (numbers, after) = rest[at + 1..].split_once(']')?;
        host.push_str(numbers.split(['-', ',']).next()?);
        rest = after;
    }
    host.push_str(rest);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (!host.is_empty() && host.chars().all(is_name)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::first_host;

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for (list, host) in [
            ("alone", "alone"),
            ("a,b", "a"),
            ("gpu[001-003,007],login", "gpu001"),
            ("gpu[7,9]", "gpu7"),
            ("rack[2-3]node[04-05]-ib,x", "rack2node04-ib"),
            ("host.example.org", "host.example.org"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(host), "{list}");
        }
        for list in ["", ",", "gpu[1", "a b", "gpu]"] {
            assert_eq!(first_host(list), None, "{list}");
        }
    }
}
