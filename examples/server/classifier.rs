//! The model on a device, and the streams of its batches.

use cuda_async::{Device, Error, Result, policy::LeastLoaded, prelude::*};
use examples::digits::{Model, Weights};

use crate::limits::IN_FLIGHT;

/// The model on a device. Several servers of a process can use several devices.
pub struct Classifier {
    pub(crate) device: Device,
    pub(crate) model: Model,
    pub(crate) streams: LeastLoaded,
}

impl Classifier {
    /// Returns the address of the device.
    pub fn address(&self) -> &str {
        &self.device.info().address
    }

    /// Opens the device at `address` as [`cuda_async::open`] does, or the default device, and loads the model.
    ///
    /// # Errors
    /// The error of the device.
    pub async fn open(address: Option<String>) -> Result<Self> {
        // Opening a device blocks.
        let open = move || match address {
            Some(address) => cuda_async::open_blocking(&address),
            None => cuda_async::default_device(),
        };
        Self::load(tokio::task::spawn_blocking(open).await.map_err(Error::other)??).await
    }

    /// Loads the model on a device.
    ///
    /// # Errors
    /// The error of the device.
    pub async fn load(device: Device) -> Result<Self> {
        let start = move || {
            let weights = Weights::load().map_err(Error::other)?;
            let streams = LeastLoaded::with_streams(&device, IN_FLIGHT)?;
            let upload = Model::upload(&device, &weights)?.schedule(&streams);
            Ok::<_, Error>((device, streams, upload))
        };
        let (device, streams, upload) =
            tokio::task::spawn_blocking(start).await.map_err(Error::other)??;
        Ok(Self { device, model: upload.await?, streams })
    }
}
