//! Checks the Markdown files of this repository: their relative links, and the code that they quote.
#![forbid(unsafe_code)]

pub mod links;
pub mod quotes;
