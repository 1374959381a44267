//! Conversions from errors of `std`, so that `?` works on them.

use std::error::Error as StdError;

use crate::protocol::Error;

macro_rules! conversions {
    ($($error:ty)*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error::other(error)
            }
        }
    )*};
}

// A conversion from every error type would conflict with that from `Error` itself, which is an error too.
conversions! {
    Box<dyn StdError + Send + Sync>
    std::io::Error
    std::fmt::Error
    std::array::TryFromSliceError
    std::char::ParseCharError
    std::convert::Infallible
    std::env::VarError
    std::num::ParseFloatError
    std::num::ParseIntError
    std::num::TryFromIntError
    std::str::ParseBoolError
    std::str::Utf8Error
    std::string::FromUtf8Error
    std::sync::mpsc::RecvError
    std::time::SystemTimeError
}
