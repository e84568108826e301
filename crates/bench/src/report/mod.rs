//! The result of a bench: a table on stdout, and `NAME.json` and plots.

mod chart;
mod ground;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

pub(crate) use chart::Shape;
pub(crate) use ground::{Ground, PROMISE_NVRAM, backing_of};
pub(crate) use table::number;

use crate::machine::Machine;
use crate::measure::Samples;
use chart::Chart;
use table::{Table, print_columns};

/// One measured quantity.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) series: String,
    pub(crate) x: String,
    #[serde(flatten)]
    pub(crate) ground: Ground,
    pub(crate) unit: String,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: usize,
    /// For charts of means; the file has medians.
    #[serde(skip)]
    mean: f64,
    #[serde(skip)]
    sigma: f64,
}

/// A ratio or count that the issues refer to, without a verdict.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Claim {
    id: String,
    value: f64,
    unit: String,
    /// What the value is compared with, and the medians of both.
    against: String,
    /// The value of the claim, in the same unit, if we took no longer than the machine needs for
    /// what the operation cannot omit: its fences, or the cache miss, or the bytes.
    floor: Option<f64>,
}

/// Many values of one series, which are plotted and not listed.
#[derive(Clone, Debug, Serialize)]
struct Curve {
    chart: String,
    series: String,
    unit: String,
    points: Vec<(f64, f64)>,
}

/// The results of a bench.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    bench: String,
    machine: Machine,
    rows: Vec<Row>,
    claims: Vec<Claim>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    curves: Vec<Curve>,
    #[serde(skip)]
    tables: Vec<Table>,
    #[serde(skip)]
    charts: Vec<Chart>,
}

impl Report {
    /// An empty report of the bench `name` on the running machine.
    ///
    /// # Errors
    ///
    /// When the machine cannot be inspected.
    pub(crate) fn new(name: &str) -> Result<Self> {
        Ok(Report {
            bench: name.to_owned(),
            machine: Machine::detect()?,
            rows: Vec::new(),
            claims: Vec::new(),
            curves: Vec::new(),
            tables: Vec::new(),
            charts: Vec::new(),
        })
    }

    /// Adds a row; one without samples is left out.
    pub(crate) fn row(
        &mut self,
        series: &str,
        x: &str,
        ground: &Ground,
        unit: &str,
        samples: &Samples,
    ) {
        if samples.runs() == 0 {
            return;
        }
        self.rows.push(Row {
            series: series.to_owned(),
            x: x.to_owned(),
            ground: ground.clone(),
            unit: unit.to_owned(),
            median: samples.median(),
            min: samples.min(),
            max: samples.max(),
            runs: samples.runs(),
            mean: samples.mean(),
            sigma: samples.sigma(),
        });
    }

    /// Adds a claim: the median over the rounds; one without samples is left out.
    pub(crate) fn claim(
        &mut self,
        id: &str,
        value: &Samples,
        unit: &str,
        against: String,
        floor: Option<f64>,
    ) {
        if value.runs() == 0 {
            return;
        }
        let (id, unit) = (id.to_owned(), unit.to_owned());
        self.claims.push(Claim { id, value: value.median(), unit, against, floor });
    }

    /// Adds a table in the form that a paper gave it; the first line is its head.
    pub(crate) fn table(&mut self, title: &str, lines: Vec<Vec<String>>) {
        self.tables.push(Table::new(title, lines));
    }

    /// The median of a row that was added before, or NaN.
    pub(crate) fn median(&self, series: &str, x: &str) -> f64 {
        let row = self.rows.iter().find(|row| row.series == series && row.x == x);
        row.map_or(f64::NAN, |row| row.median)
    }

    /// Plots the rows of `unit` whose `x` begins with `prefix`, which is cut off in the plot.
    pub(crate) fn chart(
        &mut self,
        file: &str,
        title: &str,
        unit: &str,
        prefix: &str,
        shape: Shape,
    ) {
        let mut chart = Chart::new(file, title, unit, shape);
        for row in self.rows.iter().filter(|row| row.unit == unit) {
            if let Some(x) = row.x.strip_prefix(prefix) {
                let (value, spread) = match shape {
                    Shape::BarsOfMeans => (row.mean, row.sigma),
                    _ => (row.median, 0.0),
                };
                chart.add(&row.series, x.trim(), value, spread);
            }
        }
        if !chart.is_empty() {
            self.charts.push(chart);
        }
    }

    /// Plots values of `series` by numbers, in the chart `file`, which other series may be in, too.
    pub(crate) fn curve(
        &mut self,
        file: &str,
        title: &str,
        unit: &str,
        series: &str,
        points: Vec<(f64, f64)>,
    ) {
        let found = self.charts.iter().position(|chart| chart.is_named(file));
        let chart = found.unwrap_or_else(|| {
            self.charts.push(Chart::new(file, title, unit, Shape::Lines));
            self.charts.len() - 1
        });
        for &(x, value) in &points {
            self.charts[chart].add(series, &format!("{x:.1}"), value, 0.0);
        }
        let (chart, series, unit) = (file.to_owned(), series.to_owned(), unit.to_owned());
        self.curves.push(Curve { chart, series, unit, points });
    }

    /// Prints the tables on stdout and writes `NAME.json` and the plots into `out`.
    ///
    /// # Errors
    ///
    /// When `out` cannot be made or written to.
    pub(crate) fn finish(&self, out: &Path) -> Result<()> {
        self.print();
        fs::create_dir_all(out)
            .with_context(|| format!("cannot make the output directory {}", out.display()))?;
        let path = out.join(format!("{}.json", self.bench));
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("\nwritten: {}", path.display());
        for chart in &self.charts {
            let path = out.join(chart.file_name(&self.bench));
            chart.draw(&path).with_context(|| format!("cannot write {}", path.display()))?;
            println!("written: {}", path.display());
        }
        Ok(())
    }

    fn print(&self) {
        println!("{} on {}\n", self.bench, self.machine.summary());
        let head = [
            "series",
            "x",
            "backing",
            "durability",
            "emulation",
            "median",
            "min",
            "max",
            "unit",
            "runs",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for row in &self.rows {
            lines.push(vec![
                row.series.clone(),
                row.x.clone(),
                row.ground.backing.clone(),
                row.ground.durability.clone(),
                row.ground.emulation.clone(),
                number(row.median),
                number(row.min),
                number(row.max),
                row.unit.clone(),
                row.runs.to_string(),
            ]);
        }
        print_columns(&lines);
        for table in &self.tables {
            println!();
            table.print();
        }
        println!();
        for (series, promise) in self.promises() {
            println!("{series}: {promise}");
        }
        println!();
        for claim in &self.claims {
            let floor =
                claim.floor.map_or(String::new(), |floor| format!("; floor {}", number(floor)));
            println!(
                "[{}] {} {} against {}{floor}",
                claim.id,
                number(claim.value),
                claim.unit,
                claim.against
            );
        }
    }

    /// What each series promises, once.
    fn promises(&self) -> Vec<(&str, &str)> {
        let mut promises: Vec<(&str, &str)> = Vec::new();
        for row in &self.rows {
            let promise = (row.series.as_str(), row.ground.promise.as_str());
            if !promises.contains(&promise) {
                promises.push(promise);
            }
        }
        promises
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn report() -> Report {
        let mut report = Report::new("sample").expect("the machine can be inspected");
        let samples = Samples::from_iter([2.0, 1.0, 3.0]);
        report.row("ours", "insert", &Ground::volatile(), "ns", &samples);
        report.row("absent", "insert", &Ground::volatile(), "ns", &Samples::default());
        report.claim("sample.insert", &samples, "x", "theirs".to_owned(), Some(4.0));
        report.claim("sample.absent", &Samples::default(), "x", "nobody".to_owned(), None);
        report.chart("insert", "Inserts", "ns", "", Shape::Bars);
        report.chart("means", "Inserts", "ns", "", Shape::BarsOfMeans);
        report
    }

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().expect("it is an object").keys().map(String::as_str).collect()
    }

    #[test]
    fn the_file_has_the_format_that_was_agreed() {
        let out = tempfile::tempdir().expect("the temporary directory is writable");
        report().finish(out.path()).expect("the directory is writable");
        let text = fs::read_to_string(out.path().join("sample.json")).expect("it was written");
        let json: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(keys(&json), ["bench", "claims", "machine", "rows"]);
        assert_eq!(
            json["rows"].as_array().map(Vec::len),
            Some(1),
            "a row without samples is absent"
        );
        let expected = [
            "backing",
            "durability",
            "emulation",
            "max",
            "median",
            "min",
            "promise",
            "runs",
            "series",
            "unit",
            "x",
        ];
        assert_eq!(keys(&json["rows"][0]), expected);
        assert_eq!(json["rows"][0]["median"], 2.0);
        assert_eq!(json["claims"].as_array().map(Vec::len), Some(1), "so is a claim");
        assert_eq!(keys(&json["claims"][0]), ["against", "floor", "id", "unit", "value"]);
        let plot = fs::read_to_string(out.path().join("sample-insert.svg")).expect("it was drawn");
        assert!(plot.starts_with("<svg") && plot.contains("Inserts"));
        let means = fs::read_to_string(out.path().join("sample-means.svg")).expect("it was drawn");
        assert_ne!(means, plot, "the mean has whiskers");
    }
}
