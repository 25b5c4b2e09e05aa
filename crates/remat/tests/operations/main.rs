//! Operations: their samples through every transformation, and their derivatives where these are hard.

mod derivatives;
mod kinks;
mod rules_page;
mod samples;
mod structured;
