//! Line plots as SVG.

use std::fmt::Write;

/// A plot of some lines over the same axes.
pub struct Plot<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub name: String,
    /// The points from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Plot<'_> {
    /// Returns the SVG. It is empty if there is nothing to draw.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points).filter(|(x, y)| x.is_finite() && y.is_finite());
        let right = points().map(|point| point.0).fold(0.0, f64::max);
        let top = points().map(|point| point.1).fold(0.0, f64::max);
        if right <= 0.0 || top <= 0.0 {
            return String::new();
        }
        let (right, top) = (round_up(right), round_up(top));
        let place = |(x, y): (f64, f64)| {
            (LEFT + x / right * (WIDTH - LEFT - EDGE), HEIGHT - BELOW - y / top * (HEIGHT - BELOW - ABOVE))
        };
        let mut out =
            format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n", escape(self.title));
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"16\" class=\"title\">{}</text>", escape(self.title));
        for step in 0..=STEPS {
            let part = f64::from(step) / f64::from(STEPS);
            let (x, y) = place((part * right, part * top));
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"grid\"/>",
                WIDTH - EDGE
            );
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{:.1}\" class=\"y\">{}</text>",
                LEFT - 4.0,
                y + 4.0,
                number(part * top)
            );
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{}\" class=\"x\">{}</text>",
                HEIGHT - BELOW + 16.0,
                number(part * right)
            );
        }
        let middle = (LEFT + WIDTH - EDGE) / 2.0;
        let _ = writeln!(out, "<text x=\"{middle}\" y=\"{}\" class=\"x\">{}</text>", HEIGHT - 4.0, escape(self.x));
        let _ = writeln!(out, "<text x=\"{}\" y=\"16\" class=\"y\">{}</text>", WIDTH - EDGE, escape(self.y));
        for (index, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let points = line.points.iter().map(|point| place(*point)).map(|(x, y)| format!("{x:.1},{y:.1}"));
            let points = points.collect::<Vec<_>>().join(" ");
            let _ = writeln!(out, "<polyline points=\"{points}\" stroke=\"{colour}\"/>");
            let y = ABOVE + 14.0 * index as f64;
            let _ =
                writeln!(out, "<text x=\"{}\" y=\"{y}\" fill=\"{colour}\">{}</text>", LEFT + 8.0, escape(&line.name));
        }
        out + "</svg>\n"
    }
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|round| *round >= value).unwrap_or(value)
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 56.0;
const EDGE: f64 = 16.0;
const ABOVE: f64 = 36.0;
const BELOW: f64 = 40.0;
const STEPS: u32 = 4;
/// The colours also differ in brightness, for readers who cannot distinguish them.
const COLOURS: [&str; 6] = ["#1b5e9e", "#e08214", "#4d9221", "#b2182b", "#762a83", "#666666"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_lines_and_nothing_of_names_that_looks_like_markup() {
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.into(), points: points.to_vec() };
        let lines = vec![line("a<b", &[(0.0, 1.0), (3.0, 7.0)]), line("c", &[(1.0, 2.0)])];
        let svg = Plot { title: "t", x: "s", y: "ms", lines }.svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        assert!(svg.contains(">5</text>") && svg.contains(">10</text>"), "the axes end at round numbers: {svg}");
        let nothing = Plot { title: "t", x: "s", y: "ms", lines: vec![line("n", &[(f64::NAN, 1.0)])] };
        assert_eq!(nothing.svg(), "");
    }
}
