//! A plugin whose answer to VERSION is a placeholder that a test replaces. To other verbs it answers with the error `it
//! ran`.
//!
//! | placeholder | answer to VERSION |
//! |---|---|
//! | `print TEXT` | the text |
//! | `many COUNT VERSION` | a list with COUNT times this version |
//! | `fail TEXT` | the text, and exit status 1 |
//! | `spin` | no answer: the plugin loops endlessly |
//! | `call` | whether an operation of the host succeeded |

use std::process::ExitCode;

postern_guest::version!("0.3.7-claims");

/// The placeholder.
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
