//! Sizes on the command line: `1KiB`, `2MB`, `1.5GiB`, `100`.

pub fn parse_size(text: &str) -> Result<usize, String> {
    let invalid = || format!("invalid size {text:?}: expected a number, or one with B, kB, KiB, MB, MiB, GB or GiB");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).ok_or_else(invalid)? {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return Err(invalid()),
    };
    let (whole, tenths) = match digits.trim().split_once('.') {
        Some((whole, tenth)) if tenth.len() == 1 && unit > 1 => (whole, tenth.parse().map_err(|_| invalid())?),
        Some(_) => return Err(invalid()),
        None => (digits.trim(), 0),
    };
    let whole: usize = whole.parse().map_err(|_| invalid())?;
    let size = whole.checked_mul(unit).and_then(|size| size.checked_add(unit / 10 * tenths + unit % 10 * tenths / 10));
    size.filter(|size| *size > 0).ok_or_else(invalid)
}

/// Formats a size as on the command line.
pub fn show_size(size: usize) -> String {
    let units = [(1 << 20, "MiB"), (1 << 10, "KiB"), (1_000_000, "MB"), (1000, "kB")];
    let unit = units.into_iter().find(|(unit, _)| size >= *unit && size.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{size} B"), |(unit, name)| format!("{} {name}", size / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1KiB"), Ok(1024));
        assert_eq!(parse_size("2MB"), Ok(2_000_000));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!((parse_size("1.5GiB"), parse_size("0.5kB")), (Ok(3 << 29), Ok(500)));
        let bad =
            ["", "KiB", "-1", "1 parsec", "0", "99999999999999999999MiB", "1.5", "1.25MiB", "1.MiB", ".5MiB", "0.0kB"];
        assert!(bad.iter().all(|bad| parse_size(bad).is_err()));
        assert_eq!(
            (show_size(1024), show_size(2_000_000), show_size(100)),
            ("1 KiB".into(), "2 MB".into(), "100 B".into())
        );
    }
}
