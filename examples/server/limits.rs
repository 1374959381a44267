//! The limits of a server, and the memory that they bound.

use std::time::Duration;

use examples::digits::{CLASSES, PIXELS};

/// The maximum number of images in a request.
pub const MAX_IMAGES: usize = 64;

/// The maximum size of a request body in bytes. A body with [`MAX_IMAGES`] images and spaces has 17 KiB.
pub const MAX_BODY_BYTES: usize = 64 << 10;

/// The maximum size of the buffers in which hyper reads a connection and writes to it. A request head has to fit.
pub(crate) const BUFFER: usize = 16 << 10;

/// The maximum number of batches on the device.
pub(crate) const IN_FLIGHT: usize = 4;

/// An upper bound of the memory of one response.
const RESPONSE: usize = 16 << 10;

/// An upper bound of the memory for the task, the futures and the headers of a connection.
const TASK: usize = 16 << 10;

/// An upper bound of the memory in which a thread parses a body. `[[],[],...` has a vector of 24 bytes for each 3 bytes
/// of text, and the vector of vectors grows by doubling.
const PARSER: usize = 2 << 20;

/// The floats that an image needs on the device: scaled pixels, two hidden layers, logits and probabilities.
const DEVICE_FLOATS: usize = PIXELS + 64 + 32 + 2 * CLASSES;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of requests that wait for a batch. Further requests get status 503.
    pub queue: usize,
    /// The maximum number of requests in a batch.
    pub batch: usize,
    /// The time for which the first request of a batch waits for others.
    pub wait: Duration,
    /// The maximum time from the head of a request to its response, with the time to read the body. After that, the
    /// status is 408 if the body is incomplete, and 504 otherwise.
    pub deadline: Duration,
    /// The maximum number of connections. Further clients wait until the server accepts them.
    pub connections: usize,
    /// The maximum time until a client has sent the head of its next request. Then the server closes the connection.
    pub head: Duration,
    /// The maximum time for which a client does not take any byte of a response. Then the server closes the connection.
    pub write: Duration,
    /// The age at which the server ends a connection after its current request.
    pub lifetime: Duration,
    /// The time that a connection has for its last response, at the end of its lifetime and at a shutdown.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue: 256,
            batch: 32,
            wait: Duration::from_millis(2),
            deadline: Duration::from_secs(2),
            connections: 512,
            head: Duration::from_secs(10),
            write: Duration::from_secs(10),
            lifetime: Duration::from_secs(600),
            grace: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Returns the maximum host memory of all connections, requests and batches, in bytes. `threads` is the number of
    /// threads of the runtime. The model, the device and the socket buffers of the kernel are not included.
    #[must_use]
    pub const fn host_bytes(&self, threads: usize) -> usize {
        // The body grows by doubling.
        let connection = 2 * BUFFER + RESPONSE + 2 * MAX_BODY_BYTES + TASK;
        let request = MAX_IMAGES * PIXELS + 256;
        // The images of a batch exist twice, in its requests and in the upload. So do the answers.
        let batched = 2 * MAX_IMAGES * (PIXELS + 4 * CLASSES) + 256;
        // One batch is being collected.
        let batches = (IN_FLIGHT + 1) * self.batch;
        self.connections * connection + self.queue * request + batches * batched + threads * PARSER
    }

    /// Returns the maximum device memory of all batches in bytes. The weights are not included.
    #[must_use]
    pub const fn device_bytes(&self) -> usize {
        IN_FLIGHT * self.batch * MAX_IMAGES * (PIXELS + 4 * DEVICE_FLOATS)
    }
}
