//! The edges of a grey picture, found strip by strip. The program is in `main.rs` beside this file.

use std::{fs::File, io::BufWriter, path::Path};

use cuda_async::prelude::*;
use futures::{TryStreamExt, stream};
use indicatif::ProgressBar;
use ndarray::{Array2, ArrayView2, Axis};

/// Rows of a strip. Each strip is one operation.
pub const STRIP: usize = 4;

/// Strips that are in flight at the same time, at most.
const IN_FLIGHT: usize = 4;

cuda_async::kernels! {
    /// The filter on a device.
    #[ptx = "image/kernels/edges.ptx"]
    pub struct Filter;

    /// Finds the edges in `rows` rows of `width` pixels.
    ///
    /// # Safety
    /// `picture` has at least `(rows + 2) * width` pixels, `out` at least `rows * width`.
    unsafe fn edges(picture: &[u8], out: &mut [u8], width: u32, rows: u32);
}

// ANCHOR: strip
/// Finds the edges in one strip of `width` pixels a row. The first and the last row of `pixels` are its neighbours.
fn strip(filter: Filter, pixels: Vec<u8>, width: usize) -> impl DeviceOp<Output = Vec<u8>> {
    let rows = (pixels.len() / width).saturating_sub(2);
    let config = LaunchConfig::for_plane(width as u32, rows as u32);
    zip!(h2d(pixels), uninitialised(rows * width))
        .then(move |(pixels, out)| {
            // SAFETY: `pixels` has `rows + 2` rows, and `out` has `rows`. The kernel writes all of `out`.
            unsafe { filter.edges(config, pixels, out, width as u32, rows as u32) }
        })
        .then(|(_, out)| to_host(out))
}
// ANCHOR_END: strip

// ANCHOR: edges
/// Finds the edges of `picture`, on the default policy. `progress` advances by one for each strip.
///
/// # Errors
/// The first error of a strip.
pub async fn edges(
    filter: &Filter,
    picture: ArrayView2<'_, u8>,
    progress: &ProgressBar,
) -> cuda_async::Result<Array2<u8>> {
    let mut edges = Array2::zeros(picture.dim());
    if edges.is_empty() {
        return Ok(edges);
    }
    let strips = (0..picture.nrows())
        .step_by(STRIP)
        .map(|first| strip(filter.clone(), with_neighbours(picture, first), picture.ncols()));
    // A strip is copied out of the picture when it is its turn, so four copies exist at most.
    let mut results = stream::iter(strips).run_buffered(IN_FLIGHT);
    for mut rows in edges.axis_chunks_iter_mut(Axis(0), STRIP) {
        let strip = results.try_next().await?.unwrap_or_default();
        rows.iter_mut().zip(strip).for_each(|(pixel, edge)| *pixel = edge);
        progress.inc(1);
    }
    Ok(edges)
}
// ANCHOR_END: edges

/// The pixels of the strip that begins at row `first`, with the row above and the row below it. Above and below the
/// picture its edge is repeated.
fn with_neighbours(picture: ArrayView2<'_, u8>, first: usize) -> Vec<u8> {
    let (last, end) = (picture.nrows() - 1, (first + STRIP).min(picture.nrows()));
    let row = |below: usize| picture.row(below.saturating_sub(1).min(last));
    (first..end + 2).flat_map(row).copied().collect()
}

/// A picture to filter: a landscape of waves, and discs in front of it.
pub fn example(width: usize, height: usize) -> Array2<u8> {
    let mut picture = Array2::from_shape_fn((height, width), |(y, x)| {
        let wave = (x as f32 / 90.0).sin() * 60.0 + y as f32 * 2.0;
        (wave.rem_euclid(256.0) / 2.0) as u8
    });
    for disc in 0..12usize {
        let (x, y) = (disc * 211 % width, disc * 137 % height);
        let radius = 20 + disc * 31 % 90;
        let shade = 130 + 10 * disc as u8;
        for ((row, column), pixel) in picture.indexed_iter_mut() {
            if row.abs_diff(y).pow(2) + column.abs_diff(x).pow(2) < radius.pow(2) {
                *pixel = shade;
            }
        }
    }
    picture
}

/// Writes `picture` as a grey PNG. Makes the folder if there is none.
///
/// # Errors
/// The error of the file system or of the encoder.
pub fn save(path: &Path, picture: &Array2<u8>) -> Result<(), png::EncodingError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = BufWriter::new(File::create(path)?);
    let (height, width) = picture.dim();
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header()?;
    let pixels: Vec<u8> = picture.iter().copied().collect();
    writer.write_image_data(&pixels)?;
    writer.finish()
}
