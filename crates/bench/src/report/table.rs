//! Numbers and columns as they are printed.

/// A table in the form that a paper gave it, made from rows and printed after them.
#[derive(Debug)]
pub(super) struct Table {
    title: String,
    /// The head first.
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table whose first line is its head.
    pub(super) fn new(title: &str, lines: Vec<Vec<String>>) -> Self {
        Table { title: title.to_owned(), lines }
    }

    /// Prints it on stdout.
    pub(super) fn print(&self) {
        println!("{}", self.title);
        print_columns(&self.lines);
    }
}

/// Four significant digits, without an exponent.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let decimals = (3 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// Prints lines in aligned columns: words to the left, numbers to the right.
pub(super) fn print_columns(lines: &[Vec<String>]) {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    for line in lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| match cell.parse::<f64>() {
                Ok(_) => format!("{cell:>width$}"),
                Err(_) => format!("{cell:<width$}"),
            })
            .collect();
        println!("{}", cells.join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!(number(1234567.0), "1234567");
        assert_eq!(number(12.3456), "12.35");
        assert_eq!(number(0.012345), "0.01235");
        assert_eq!(number(0.0), "0");
    }
}
