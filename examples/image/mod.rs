//! Edge detection in a gray picture, strip by strip. The program is in `main.rs`.

use std::{fs::File, io::BufWriter, path::Path};

use cuda_async::prelude::*;
use futures::{TryStreamExt, stream};
use indicatif::ProgressBar;
use ndarray::{Array2, ArrayView2, Axis};

/// The number of rows in a strip. Each strip is one operation.
pub const STRIP: usize = 4;

/// The maximum number of strips in flight.
const IN_FLIGHT: usize = 4;

cuda_async::kernels! {
    /// The kernel of the filter, loaded on a device.
    #[ptx = "image/kernels/edges.ptx"]
    pub struct Filter;

    /// Finds the edges in `rows` rows of `width` pixels.
    ///
    /// # Safety
    /// `picture` must have at least `(rows + 2) * width` pixels, and `out` at least `rows * width`.
    unsafe fn edges(picture: &[u8], out: &mut [u8], width: u32, rows: u32);
}

// ANCHOR: strip
/// Returns an operation that finds the edges in one strip of `width` pixels per row. The first and the last row of
/// `pixels` are the rows next to the strip.
fn strip(filter: Filter, pixels: Vec<u8>, width: usize) -> impl DeviceOp<Output = Vec<u8>> {
    let rows = (pixels.len() / width).saturating_sub(2);
    let config = LaunchConfig::for_plane(width as u32, rows as u32);
    zip!(h2d(pixels), uninitialized(rows * width))
        .then(move |(pixels, out)| {
            // SAFETY: `pixels` has `rows + 2` rows, and `out` has `rows`. The kernel writes all of `out`.
            unsafe { filter.edges(config, pixels, out, width as u32, rows as u32) }
        })
        .then(|(_, out)| to_host(out))
}
// ANCHOR_END: strip

// ANCHOR: edges
/// Finds the edges of `picture` on the default policy. `progress` advances by one for each strip.
///
/// # Errors
/// Returns the first error of a strip.
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
        .map(|first| strip(filter.clone(), with_neighbors(picture, first), picture.ncols()));
    // A strip is copied from the picture when its operation starts, so at most four copies exist.
    let mut results = stream::iter(strips).run_buffered(IN_FLIGHT);
    for mut rows in edges.axis_chunks_iter_mut(Axis(0), STRIP) {
        let strip = results.try_next().await?.unwrap_or_default();
        rows.iter_mut().zip(strip).for_each(|(pixel, edge)| *pixel = edge);
        progress.inc(1);
    }
    Ok(edges)
}
// ANCHOR_END: edges

/// Returns the pixels of the strip that starts at row `first`, with the row above and the row below it. Outside the
/// picture, the row at its edge is repeated.
fn with_neighbors(picture: ArrayView2<'_, u8>, first: usize) -> Vec<u8> {
    let (last, end) = (picture.nrows() - 1, (first + STRIP).min(picture.nrows()));
    let row = |below: usize| picture.row(below.saturating_sub(1).min(last));
    (first..end + 2).flat_map(row).copied().collect()
}

/// Returns a picture to filter: a landscape of waves with discs in front of it.
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

/// Writes `picture` as a gray PNG. Creates the folder if it does not exist.
///
/// # Errors
/// Returns the error of the file system or of the encoder.
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
