//! The CUDA driver: its functions ([`api`]), its library and device queries ([`library`]), its status codes
//! ([`status`]), and closures that it calls ([`host_function`]).
//!
//! The lowest folder of the backend: it uses `protocol` alone. Every other folder calls the driver through the table in
//! [`api`], and turns a [`status::Failed`] into an [`Error`](cuda_core::Error) with `context::Primary::error`.

pub(crate) mod api;
pub(crate) mod host_function;
pub(crate) mod library;
pub(crate) mod status;
