//! The plot, in SVG.

use super::week::{POINT, Point, Week};

const WIDTH: f64 = 900.0;
const PANEL: f64 = 130.0;
/// Room for the labels of a panel: left of it, and above it.
const LEFT: f64 = 60.0;
const ABOVE: f64 = 34.0;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A line of a panel: its color, and its values.
type Line = (&'static str, fn(&Point) -> f64);

const PANELS: [(&str, &[Line]); 4] = [
    ("arrivals, tasks per minute", &[("#1f77b4", |point| point.arrivals)]),
    ("replicas", &[("#2ca02c", |point| point.replicas)]),
    ("longest queue, tasks", &[("#d62728", |point| point.queued)]),
    (
        "latency, seconds: median (dark), 95 % (light)",
        &[("#c5b0d5", |point| point.slowest), ("#5b3a8c", |point| point.median)],
    ),
];

pub(super) fn svg(week: &Week) -> String {
    let height = (PANEL + ABOVE) * PANELS.len() as f64 + ABOVE;
    let width = LEFT + WIDTH + 20.0;
    let mut parts = vec![format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
    )];
    parts.push(format!(r#"<rect width="{width}" height="{height}" fill="white"/>"#));
    for (number, (title, lines)) in PANELS.iter().enumerate() {
        let top = ABOVE + (PANEL + ABOVE) * number as f64;
        parts.push(panel(week, top, title, lines));
    }
    parts.push("</svg>\n".to_owned());
    parts.join("\n")
}

fn panel(week: &Week, top: f64, title: &str, lines: &[Line]) -> String {
    let values = |of: fn(&Point) -> f64| week.points.iter().map(of);
    let most = lines.iter().flat_map(|&(_, of)| values(of)).fold(1.0, f64::max);
    let bottom = top + PANEL;
    let mut parts = vec![
        format!(r#"<text x="{LEFT}" y="{}" font-weight="bold">{title}</text>"#, top - 8.0),
        format!(r#"<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{PANEL}" fill="none" stroke="black"/>"#),
        format!(r#"<text x="{}" y="{}" text-anchor="end">{most:.0}</text>"#, LEFT - 6.0, top + 10.0),
        format!(r#"<text x="{}" y="{bottom}" text-anchor="end">0</text>"#, LEFT - 6.0),
    ];
    for (number, day) in DAYS.iter().enumerate() {
        let x = LEFT + WIDTH * number as f64 / DAYS.len() as f64;
        parts.push(format!(r##"<path d="M{x:.1} {top}V{bottom}" stroke="#ccc"/>"##));
        parts.push(format!(r#"<text x="{:.1}" y="{}">{day}</text>"#, x + 4.0, bottom + 13.0));
    }
    let step = WIDTH * POINT as f64 / (7.0 * 86_400.0);
    for &(color, of) in lines {
        let at = |(number, value): (usize, f64)| {
            format!("{:.1},{:.1}", LEFT + step * number as f64, bottom - PANEL * value / most)
        };
        let path: Vec<_> = values(of).enumerate().map(at).collect();
        parts.push(format!(r#"<polyline points="{}" fill="none" stroke="{color}"/>"#, path.join(" ")));
    }
    parts.join("\n")
}
