//! Links the executable compactly.

#[path = "../link.rs"]
mod link;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../link.rs");
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        link::without_tables();
        link::packed();
    }
}
