//! A server that classifies handwritten digits. It collects HTTP requests into batches for the device. The program is
//! in `main.rs`, and the model is that of the example `digits`.
//!
//! | request | response |
//! |---|---|
//! | `GET /` | a page on which a user draws a digit |
//! | `POST /classify` | the digit of each image: `[3,7]` |
//! | `POST /scores` | the probabilities of the digits 0 to 9 of each image: `[[0.01,..],..]` |
//! | `GET /metrics` | OpenMetrics text |
//! | `GET /health` | status 200 while the model is loaded and its device works, else 503 |
//!
//! The body of a `POST` is a JSON array of 1 to [`MAX_IMAGES`] images, each an array of 64 numbers from 0 to 16. A body
//! of another form gets status 400, 413 or 422 with the form to send.
//!
//! # Limits
//! Everything that can grow has a limit. [`Limits::default`] has these values:
//!
//! | limit | value | at the limit |
//! |---|---|---|
//! | connections | 512 | further clients wait to be accepted |
//! | head of a request | 16 KiB, 10 s | status 431; the connection is closed |
//! | body of a request | 64 KiB ([`MAX_BODY_BYTES`]) | status 413 |
//! | images of a request | 64 ([`MAX_IMAGES`]) | status 422 |
//! | requests in the queue | 256 | status 503 |
//! | requests in a batch | 32, collected for 2 ms | further requests go into the next batch |
//! | batches on the device | 4 | requests wait in the queue |
//! | time from the head of a request to the response | 2 s | status 408 if the body is incomplete, else 504 |
//! | time for which a client takes no byte of a response | 10 s | the connection is closed |
//! | age of a connection | 10 min | closed after the current request |
//! | time of a connection for its last response, also at a shutdown | 10 s | the connection is closed |
//!
//! # Memory
//! [`Limits::host_bytes`] and [`Limits::device_bytes`] compute the sums. With the default limits and two threads:
//!
//! | | bytes each | number | sum |
//! |---|---:|---:|---:|
//! | connection: buffers 32 KiB, response 16 KiB, body 128 KiB, task 16 KiB | 196,608 | 512 | 100,663,296 |
//! | request in the queue | 4,352 | 256 | 1,114,112 |
//! | request in a batch, with its answer | 13,568 | 160 | 2,170,880 |
//! | parser of a thread | 2,097,152 | 2 | 4,194,304 |
//! | **host memory** | | | **108,142,592** |
//! | **device memory**: image in a batch | 784 | 8,192 | **6,422,528** |
//!
//! The sums do not include the program itself, the weights (26 KiB), the [limits of the device](cuda_async) and the
//! socket buffers of the kernel.

mod batches;
mod classifier;
mod connections;
mod images;
mod limits;
mod metrics;
mod page;
mod refusal;
mod routes;
mod serve;
mod state;

pub use batches::Batches;
pub use classifier::Classifier;
pub use limits::{Limits, MAX_BODY_BYTES, MAX_IMAGES};
pub use routes::routes;
pub use serve::serve;
