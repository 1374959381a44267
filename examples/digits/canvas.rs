//! An image with rectangles and text, which is saved as a PNG.

use std::{fs::File, io::BufWriter, path::Path};

use font8x8::{BASIC_FONTS, UnicodeFonts};

/// A color: red, green, blue.
pub(super) type Color = [u8; 3];

/// The width and height of a character at scale 1, in pixels.
pub(super) const GLYPH: u32 = 8;

/// An image. Drawing is clipped at its edges.
pub(super) struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

/// A rectangle: position and size in pixels.
#[derive(Clone, Copy)]
pub(super) struct Rect {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Canvas {
    pub(super) fn new(width: u32, height: u32, paper: Color) -> Self {
        Self { width, height, pixels: paper.repeat((width * height) as usize) }
    }

    pub(super) fn fill(&mut self, rect: Rect, color: Color) {
        for y in rect.y..(rect.y + rect.height).min(self.height) {
            for x in rect.x..(rect.x + rect.width).min(self.width) {
                let at = 3 * (y * self.width + x) as usize;
                self.pixels[at..at + 3].copy_from_slice(&color);
            }
        }
    }

    /// Draws a line of text with its upper left corner at (x, y). Each dot of a letter is a square of `scale` by
    /// `scale` pixels.
    pub(super) fn text(&mut self, (x, y): (u32, u32), text: &str, scale: u32, color: Color) {
        for (place, character) in (0..).zip(text.chars()) {
            let glyph = BASIC_FONTS.get(character).unwrap_or_default();
            for (row, bits) in (0..).zip(glyph) {
                for column in (0..GLYPH).filter(|column| bits >> column & 1 == 1) {
                    let (x, y) = (x + (place * GLYPH + column) * scale, y + row * scale);
                    self.fill(Rect { x, y, width: scale, height: scale }, color);
                }
            }
        }
    }

    pub(super) fn save(&self, path: &Path) -> Result<(), png::EncodingError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut encoder =
            png::Encoder::new(BufWriter::new(File::create(path)?), self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()
    }
}

/// Returns the width of a line of text in pixels.
pub(super) fn text_width(text: &str, scale: u32) -> u32 {
    text.chars().count() as u32 * GLYPH * scale
}

/// Interpolates between two colors. `part` is 0 for `from` and 1 for `to`.
pub(super) fn between(from: Color, to: Color, part: f32) -> Color {
    let mix = |a: u8, b: u8| f32::from(a) + (f32::from(b) - f32::from(a)) * part.clamp(0.0, 1.0);
    std::array::from_fn(|i| mix(from[i], to[i]).round() as u8)
}
