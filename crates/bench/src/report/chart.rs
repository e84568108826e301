//! SVG plots: grouped bars over names, lines over numbers.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, DefaultFormatting, KeyPointHint, ValueFormatter};
use plotters::prelude::*;

use super::table::number;

/// How a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A group of bars for each x, one bar a series.
    Bars,
    /// Bars on a logarithmic scale, for values that differ by powers of ten.
    BarsLog,
    /// Bars of the means, with whiskers that reach a standard deviation up and down.
    BarsOfMeans,
    /// A line for each series; x is a number.
    Lines,
    /// The same on a logarithmic scale.
    LinesLogX,
}

/// Points of several series, to be drawn in one plot.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    file: String,
    title: String,
    unit: String,
    shape: Shape,
    /// In order of appearance.
    series: Vec<String>,
    /// In order of appearance.
    places: Vec<String>,
    points: Vec<Point>,
}

/// A value to be drawn.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Index of the series.
    series: usize,
    /// Index of the place.
    place: usize,
    value: f64,
    /// How far whiskers reach from the value: 0 where there are none.
    spread: f64,
}

const SIZE: (u32, u32) = (1000, 560);
/// How far above the highest line its chart ends, so that the legend hides none.
const LEGEND_ROOM: f64 = 1.3;
const COLORS: [RGBColor; 8] = [
    RGBColor(31, 98, 160),
    RGBColor(222, 125, 36),
    RGBColor(62, 146, 74),
    RGBColor(178, 54, 60),
    RGBColor(122, 92, 165),
    RGBColor(130, 130, 130),
    RGBColor(191, 160, 24),
    RGBColor(42, 160, 165),
];

impl Chart {
    /// A chart without points, to be written to `BENCH-file.svg`.
    pub(crate) fn new(file: &str, title: &str, unit: &str, shape: Shape) -> Self {
        Chart {
            file: file.to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            shape,
            series: Vec::new(),
            places: Vec::new(),
            points: Vec::new(),
        }
    }

    /// Adds the point of `series` at `x`, with whiskers where `spread` is above zero.
    pub(crate) fn add(&mut self, series: &str, x: &str, value: f64, spread: f64) {
        let series = position(&mut self.series, series);
        let place = position(&mut self.places, x);
        // `max` also makes zero of the NaN of a single sample.
        self.points.push(Point { series, place, value, spread: spread.max(0.0) });
    }

    /// Whether it is the one for this file.
    pub(crate) fn is_named(&self, file: &str) -> bool {
        self.file == file
    }

    /// Whether there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Name of the file in the output directory.
    pub(crate) fn file_name(&self, bench: &str) -> String {
        format!("{bench}-{}.svg", self.file)
    }

    /// Draws the chart as SVG.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, or an x of a line chart is not a number.
    pub(crate) fn draw(&self, path: &Path) -> Result<()> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        fail(area.fill(&WHITE))?;
        let tops = self.points.iter().map(|point| point.value + point.spread);
        let max = tops.fold(f64::MIN_POSITIVE, f64::max);
        match self.shape {
            Shape::Bars | Shape::BarsOfMeans => self.draw_bars(&area, 0.0..max * 1.1, 0.0)?,
            Shape::BarsLog => {
                let min = self.points.iter().map(|point| point.value).fold(max, f64::min);
                let bottom = 10f64.powf((min.max(max * 1e-9) * 0.7).log10().floor());
                self.draw_bars(&area, (bottom..max * 2.0).log_scale(), bottom)?;
            }
            Shape::Lines => self.draw_lines(&area, |first, last| first..last, max)?,
            Shape::LinesLogX => {
                self.draw_lines(&area, |first, last| (first..last).log_scale(), max)?;
            }
        }
        fail(area.present())
    }

    fn draw_bars<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        y: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
        bottom: f64,
    ) -> Result<()>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = fail(
            ChartBuilder::on(area)
                .caption(&self.title, ("sans-serif", 20))
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(80)
                .build_cartesian_2d(Places(self.places.len()), y),
        )?;
        let label = |place: &f64| self.places.get(*place as usize).cloned().unwrap_or_default();
        fail(
            chart
                .configure_mesh()
                .disable_x_mesh()
                .y_desc(&self.unit)
                .light_line_style(WHITE)
                .x_labels(self.places.len())
                .x_label_formatter(&label)
                .y_label_formatter(&tick)
                .draw(),
        )?;
        let width = 0.8 / self.series.len() as f64;
        for (index, name) in self.series.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let points = || self.points.iter().filter(move |point| point.series == index);
            let left = |point: &Point| point.place as f64 + 0.1 + index as f64 * width;
            let bars = points().map(|point| {
                let (left, right) = (left(point), left(point) + width * 0.95);
                Rectangle::new([(left, bottom), (right, point.value)], color.filled())
            });
            fail(chart.draw_series(bars))?.label(name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled())
            });
            let whiskers = points().filter(|point| point.spread > 0.0).map(|point| {
                let middle = left(point) + width * 0.475;
                PathElement::new(whisker(point, middle, width * 0.15, bottom), BLACK)
            });
            fail(chart.draw_series(whiskers))?;
        }
        fail(
            chart
                .configure_series_labels()
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK)
                .draw(),
        )
    }

    fn draw_lines<X>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        x: impl FnOnce(f64, f64) -> X,
        max: f64,
    ) -> Result<()>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let places =
            self.places.iter().map(|place| place.parse()).collect::<Result<Vec<f64>, _>>()?;
        let first = places.iter().copied().fold(f64::INFINITY, f64::min);
        let last = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut chart = fail(
            ChartBuilder::on(area)
                .caption(&self.title, ("sans-serif", 20))
                .margin(12)
                .margin_right(40)
                .x_label_area_size(40)
                .y_label_area_size(80)
                .build_cartesian_2d(x(first, last), 0.0..max * LEGEND_ROOM),
        )?;
        fail(
            chart
                .configure_mesh()
                .y_desc(&self.unit)
                .light_line_style(WHITE)
                .x_label_formatter(&tick)
                .y_label_formatter(&tick)
                .draw(),
        )?;
        for (index, name) in self.series.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let line = self.points.iter().filter(|point| point.series == index);
            let line = line.map(|point| (places[point.place], point.value));
            fail(chart.draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(3)))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 12, y)], color.stroke_width(2))
                });
        }
        fail(
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK)
                .draw(),
        )
    }
}

/// The line of a point's whiskers: across the low end, up, and across the high end.
fn whisker(point: &Point, middle: f64, half_width: f64, bottom: f64) -> [(f64, f64); 6] {
    let (left, right) = (middle - half_width, middle + half_width);
    let low = (point.value - point.spread).max(bottom);
    let high = point.value + point.spread;
    [(left, low), (right, low), (middle, low), (middle, high), (left, high), (right, high)]
}

/// A number as it stands beside an axis.
fn tick(value: &f64) -> String {
    let text = number(*value);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Index of `name` in `names`, appended when it is new.
fn position(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

/// Drawing errors borrow the backend; only their text can be passed on.
fn fail<T, E: std::error::Error>(result: Result<T, E>) -> Result<T> {
    result.map_err(|error| anyhow!("{error}"))
}

/// An axis of named places: each is one unit wide and labelled in its middle. To the right of the
/// last there is room for the legend.
struct Places(usize);

impl Places {
    /// Share of the axis that the places take; the rest is the legend's.
    const SHARE: f64 = 0.82;
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = value / self.0 as f64 * Self::SHARE;
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        (0..self.0).map(|place| place as f64 + 0.5).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..self.0 as f64 / Self::SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a chart of two bars, the lower of which has whiskers of this length.
    fn lines(spread: f64) -> usize {
        let scratch = tempfile::tempdir().expect("the temporary directory is writable");
        let path = scratch.path().join("chart.svg");
        let mut chart = Chart::new("chart", "Two bars", "s", Shape::BarsOfMeans);
        chart.add("high", "PCM", 10.0, 0.0);
        chart.add("low", "PCM", 5.0, spread);
        chart.draw(&path).expect("the directory is writable");
        std::fs::read_to_string(&path).expect("it was drawn").matches("<polyline").count()
    }

    #[test]
    fn a_mean_has_whiskers_where_its_spread_is_known() {
        assert_eq!(lines(1.0), lines(0.0) + 1);
        assert_eq!(lines(f64::NAN), lines(0.0), "a single sample has none");
    }

    #[test]
    fn whiskers_end_where_the_axis_does() {
        let point = Point { series: 0, place: 0, value: 2.0, spread: 3.0 };
        let line = whisker(&point, 1.0, 0.25, 0.0);
        assert_eq!(line[2..4], [(1.0, 0.0), (1.0, 5.0)]);
        assert_eq!((line[0].0, line[5].0), (0.75, 1.25));
    }
}
