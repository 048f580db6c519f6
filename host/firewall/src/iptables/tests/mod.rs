//! Rules that are written and read without the program, beside the programs.

mod oracle;
mod without_the_program;
