//! The picture of the results: a grid of held-out digits. Under each digit are the prediction and a bar that shows the
//! confidence.

use std::path::Path;

use super::{
    Digits, Error, PIXELS, Readings, SIDE,
    canvas::{Canvas, Color, GLYPH, Rect, between, text_width},
    is_held_out,
};

const COLUMNS: u32 = 12;
const ROWS: u32 = 7;

/// The scale of the digits: pixels of the picture for each pixel of a digit, in each direction.
const ZOOM: u32 = 8;
const TILE: u32 = ZOOM * SIDE as u32;
const GAP: u32 = 16;
const CELL_WIDTH: u32 = TILE + GAP;
const CELL_HEIGHT: u32 = TILE + 36 + GAP;
const MARGIN: u32 = 32;
const HEADER: u32 = 88;

const BACKGROUND: Color = [0x14, 0x17, 0x1f];
const TILE_PAPER: Color = [0x1f, 0x24, 0x30];
const INK: Color = [0xf4, 0xf1, 0xe8];
const TEXT: Color = [0xe6, 0xe9, 0xf0];
const FAINT: Color = [0x7d, 0x86, 0x99];
const RIGHT: Color = [0x5c, 0xc8, 0xa1];
const WRONG: Color = [0xff, 0x5d, 0x5d];

/// Draws a sample of the held-out digits with their predictions as a PNG at `path`. All wrong predictions are part of
/// the sample, in red.
///
/// # Errors
/// [`Error::Picture`] if the file cannot be written.
pub fn draw(path: &Path, digits: &Digits, readings: &Readings, device: &str) -> Result<(), Error> {
    let width = 2 * MARGIN + COLUMNS * CELL_WIDTH - GAP;
    let height = MARGIN + HEADER + ROWS * CELL_HEIGHT - GAP + MARGIN;
    let mut canvas = Canvas::new(width, height, BACKGROUND);
    header(&mut canvas, digits, readings, device);
    for (cell, row) in (0..).zip(sample(digits, readings)) {
        let x = MARGIN + cell % COLUMNS * CELL_WIDTH;
        let y = MARGIN + HEADER + cell / COLUMNS * CELL_HEIGHT;
        digit(&mut canvas, (x, y), digits, readings, row);
    }
    canvas.save(path).map_err(|source| Error::Picture { path: path.to_owned(), source })
}

/// Selects every held-out row with a wrong prediction, and other rows at even distances, in the order of the data set.
fn sample(digits: &Digits, readings: &Readings) -> Vec<usize> {
    let cells = (COLUMNS * ROWS) as usize;
    let read = digits.len().min(readings.labels.len()).min(readings.confidence.len());
    let held_out = (0..read).filter(|&row| is_held_out(row));
    let (right, mut rows): (Vec<_>, Vec<_>) =
        held_out.partition(|&row| readings.is_right(digits, row));
    rows.truncate(cells);
    let others = (cells - rows.len()).min(right.len());
    rows.extend((0..others).map(|i| right[i * right.len() / others]));
    rows.sort_unstable();
    rows
}

fn header(canvas: &mut Canvas, digits: &Digits, readings: &Readings, device: &str) {
    let score = readings.held_out_score(digits);
    let title = format!("{} of {} read right", score.right, score.of);
    canvas.text((MARGIN, MARGIN), &title, 4, TEXT);
    let note = format!("digits the network had never seen, read on {device}");
    canvas.text((MARGIN, MARGIN + 44), &note, 2, FAINT);
}

fn digit(
    canvas: &mut Canvas,
    (x, y): (u32, u32),
    digits: &Digits,
    readings: &Readings,
    row: usize,
) {
    let (read, shown) = (readings.labels[row], digits.labels()[row]);
    let color = if readings.is_right(digits, row) { RIGHT } else { WRONG };
    if color == WRONG {
        frame(canvas, (x, y), color);
    }
    let image = digits.image(row);
    for (pixel, ink) in (0..PIXELS as u32).zip(image) {
        let (x, y) = (x + pixel % SIDE as u32 * ZOOM, y + pixel / SIDE as u32 * ZOOM);
        let color = between(TILE_PAPER, INK, f32::from(*ink) / 16.0);
        canvas.fill(Rect { x, y, width: ZOOM, height: ZOOM }, color);
    }

    let label = read.to_string();
    let below = y + TILE + 6;
    canvas.fill(Rect { x, y: below, width: TILE, height: 3 }, TILE_PAPER);
    let sure = (readings.confidence[row].clamp(0.0, 1.0) * TILE as f32).round() as u32;
    canvas.fill(Rect { x, y: below, width: sure, height: 3 }, color);
    let truth = if color == WRONG { format!("is {shown}") } else { String::new() };
    let gap = if truth.is_empty() { 0 } else { GLYPH };
    let wide = text_width(&label, 2) + gap + text_width(&truth, 1);
    let (x, y) = (x + TILE.saturating_sub(wide) / 2, below + 10);
    canvas.text((x, y), &label, 2, color);
    canvas.text((x + text_width(&label, 2) + gap, y + GLYPH - 1), &truth, 1, TEXT);
}

/// Draws a frame around a tile.
fn frame(canvas: &mut Canvas, (x, y): (u32, u32), color: Color) {
    const WIDE: u32 = 3;
    let side = TILE + 2 * WIDE;
    canvas.fill(Rect { x: x - WIDE, y: y - WIDE, width: side, height: side }, color);
}
