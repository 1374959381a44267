//! Finds the edges of a picture, in 200 strips of rows with four in flight.
//!
//! ```text
//! cargo run --release --example image
//! ```
//!
//! The program writes `target/image/before.png` and `target/image/after.png`. It shows how to divide a large input into
//! operations that run with a limit. The memory in use depends on the limit, not on the size of the picture.

use std::{error::Error, path::Path};

use examples::image::{Filter, STRIP, edges, example, save};
use indicatif::{ProgressBar, ProgressStyle};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let device = tokio::task::spawn_blocking(cuda_async::default_device).await??;
    let filter = Filter::load(&device)?;

    let picture = example(1200, 800);
    save(Path::new("target/image/before.png"), &picture)?;

    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} strips, {per_sec}")?;
    let progress = ProgressBar::new(picture.nrows().div_ceil(STRIP) as u64).with_style(style);
    let result = edges(&filter, picture.view(), &progress).await?;
    progress.finish();

    save(Path::new("target/image/after.png"), &result)?;
    println!("filtered {} strips on {}", progress.position(), device.info().address);
    println!("pictures target/image/before.png, target/image/after.png");
    Ok(())
}
