//! The filter computes the same bytes as plain Rust, also at the edges of the picture and in a shorter last strip.

use std::error::Error;

use examples::image::{Filter, STRIP, edges, example, save};
use indicatif::ProgressBar;
use ndarray::Array2;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Applies Sobel's operator in plain Rust.
fn expected(picture: &Array2<u8>) -> Array2<u8> {
    let (height, width) = picture.dim();
    Array2::from_shape_fn(picture.dim(), |(y, x)| {
        let at = |dy: usize, dx: usize| {
            let y = (y + dy).saturating_sub(1).min(height - 1);
            let x = (x + dx).saturating_sub(1).min(width - 1);
            i32::from(picture[(y, x)])
        };
        let gx = at(0, 2) + 2 * at(1, 2) + at(2, 2) - at(0, 0) - 2 * at(1, 0) - at(2, 0);
        let gy = at(2, 0) + 2 * at(2, 1) + at(2, 2) - at(0, 0) - 2 * at(0, 1) - at(0, 2);
        (gx.abs() + gy.abs()).min(255) as u8
    })
}

/// Returns a picture in which adjacent pixels are rarely equal.
fn noise(width: usize, height: usize) -> Array2<u8> {
    Array2::from_shape_fn((height, width), |(y, x)| ((37 * y + 101 * x) ^ (x * y)) as u8 % 60)
}

#[tokio::test]
async fn edges_equal_plain_rust() -> Result {
    let device = cuda_async::default_device()?;
    let filter = Filter::load(&device)?;
    for (width, height) in [(1, 1), (1, 9), (40, 1), (65, STRIP), (33, 10 * STRIP + 3)] {
        let (picture, progress) = (noise(width, height), ProgressBar::hidden());
        let result = edges(&filter, picture.view(), &progress).await?;
        assert_eq!(result, expected(&picture), "{width} x {height}");
        assert_eq!(progress.position(), height.div_ceil(STRIP) as u64);
    }
    Ok(())
}

#[tokio::test]
async fn picture_without_pixels_is_empty() -> Result {
    let filter = Filter::load(&cuda_async::default_device()?)?;
    for shape in [(0, 0), (0, 5), (5, 0)] {
        let picture = Array2::zeros(shape);
        assert_eq!(edges(&filter, picture.view(), &ProgressBar::hidden()).await?, picture);
    }
    Ok(())
}

#[test]
fn picture_is_written_as_png() -> Result {
    let folder = std::env::temp_dir().join(format!("image-{}", std::process::id()));
    let path = folder.join("new folder/picture.png");
    save(&path, &example(20, 10))?;
    assert!(std::fs::read(&path)?.starts_with(b"\x89PNG"));
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
