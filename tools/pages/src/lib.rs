//! Checks the Markdown files of this repository: their relative links, the code that they quote, and the width of lines.
#![forbid(unsafe_code)]

pub mod links;
pub mod quotes;
pub mod widths;
