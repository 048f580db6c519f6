//! A plugin that says to VERSION what a test has written over its placeholder, and to every other verb that it ran.
//!
//! | placeholder | answer to VERSION |
//! |---|---|
//! | `print TEXT` | the text |
//! | `many COUNT VERSION` | that version, so many times |
//! | `fail TEXT` | the text, and exit status 1 |
//! | `spin` | none, for ever |
//! | `call` | it asks the host for something first |

use std::process::ExitCode;

postern_guest::version!("0.3.7-claims");

/// What a test writes over.
static CLAIM: &str = concat!(
    "print what this plugin claims                                                                                       ",
    "                                                                                                                    ",
    "                                                                                                                   ",
);

fn main() -> ExitCode {
    if !std::env::var("CNI_COMMAND").is_ok_and(|verb| verb == "VERSION") {
        println!(r#"{{"code":100,"msg":"it ran"}}"#);
        return ExitCode::FAILURE;
    }
    let claim = std::hint::black_box(CLAIM).trim_end();
    let (how, text) = claim.split_once(' ').unwrap_or((claim, ""));
    match how {
        "many" => {
            let (count, version) = text.split_once(' ').unwrap_or_default();
            let all = vec![format!("\"{version}\""); count.parse().unwrap_or_default()].join(",");
            println!(r#"{{"cniVersion":"1.1.0","supportedVersions":[{all}]}}"#);
        }
        "spin" => loop {
            std::hint::spin_loop();
        },
        "call" => println!("{}", postern_guest::link::own().is_ok()),
        _ => println!("{text}"),
    }
    if how == "fail" { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
