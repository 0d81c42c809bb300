//! The three forms of the outcome: Markdown (also what the terminal shows) and JSON.

pub mod json;
pub mod markdown;
