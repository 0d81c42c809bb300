//! The forms of the outcome: Markdown (also what the terminal shows), the table of scenario R1 in it, and JSON.

pub mod json;
pub mod markdown;
pub mod r1;
