//! The drawing of a demonstration: throughput over time, a line for each policy.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use remanent_tatp::recovery::{Timeline, Window};

use super::summary::Observed;

const SIZE: (u32, u32) = (1000, 560);
const COLORS: [RGBColor; 3] =
    [RGBColor(178, 54, 60), RGBColor(222, 125, 36), RGBColor(31, 98, 160)];
/// Windows whose mean is drawn: single ones hide the lines in noise.
const SMOOTHED: usize = 5;
/// Time before the kill that is drawn.
const BEFORE_MS: f64 = 500.0;
/// How far above the highest line the chart ends, so that the legend hides none.
const LEGEND_ROOM: f64 = 1.3;

/// Draws all timelines as SVG.
///
/// # Errors
///
/// When the file cannot be written.
pub(super) fn draw(path: &Path, title: &str, observed: &[Observed]) -> Result<()> {
    let lines: Vec<_> = observed.iter().map(|of| points(&of.timeline)).collect();
    let all = || lines.iter().flatten();
    let last_ms = all().map(|point| point.0).fold(1.0, f64::max);
    let max_ktps = all().map(|point| point.1).fold(1.0, f64::max);
    let draw = || -> Result<(), DrawingAreaErrorKind<_>> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .margin_right(40)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(-BEFORE_MS..last_ms, 0.0..max_ktps * LEGEND_ROOM)?;
        chart
            .configure_mesh()
            .x_desc("ms after the SIGKILL")
            .y_desc("k transactions/s")
            .light_line_style(WHITE)
            .x_label_formatter(&|ms| format!("{ms:.0}"))
            .y_label_formatter(&|ktps| format!("{ktps:.0}"))
            .draw()?;
        let kill = [(0.0, 0.0), (0.0, max_ktps * LEGEND_ROOM)];
        chart.draw_series(LineSeries::new(kill, BLACK.mix(0.4)))?;
        for ((of, line), color) in observed.iter().zip(&lines).zip(COLORS) {
            let name = format!("{}, {:.0} % of the indexes in the pool", of.name, of.share * 100.0);
            let style = color.stroke_width(2);
            chart
                .draw_series(LineSeries::new(line.iter().copied(), style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        area.present()
    };
    draw().map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

/// Time and throughput. It is zero between the kill and the first answer.
fn points(timeline: &Timeline) -> Vec<(f64, f64)> {
    let before = timeline.before.iter().filter(|window| window.at_ms >= -BEFORE_MS).copied();
    let mut points = smoothed(&before.collect::<Vec<_>>());
    points.extend(points.last().map(|last| (0.0, last.1)));
    points.push((0.0, 0.0));
    points.extend(timeline.after.first().map(|first| (first.at_ms, 0.0)));
    points.extend(smoothed(&timeline.after));
    points
}

fn smoothed(windows: &[Window]) -> Vec<(f64, f64)> {
    let mean = |chunk: &[Window]| {
        let ktps = chunk.iter().map(|window| window.ktps).sum::<f64>() / chunk.len() as f64;
        (chunk[chunk.len() - 1].at_ms, ktps)
    };
    windows.chunks(SMOOTHED).map(mean).collect()
}
