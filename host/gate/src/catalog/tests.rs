use super::*;
use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt;

const ENGINE: &str = "wasmtime-0-test";

/// A catalog with one plugin, and a state directory beside it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("postern-catalog-{name}-{}", std::process::id()));
        let place = Self(dir);
        std::fs::create_dir_all(place.catalog()).unwrap();
        std::fs::create_dir_all(place.state()).unwrap();
        place.install(&[7; 200_000]);
        place
    }

    fn catalog(&self) -> PathBuf {
        self.0.join("postern.d")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn code(&self) -> PathBuf {
        code_path(&self.catalog(), "demo")
    }

    fn install(&self, code: &[u8]) {
        let manifest = Manifest {
            plugin: "demo".to_owned(),
            digest: sha256(b"component"),
            code: sha256(code),
            size: code.len() as u64,
            engine: ENGINE.to_owned(),
            imports: Names::List(Vec::new()),
            wasi: WasiExtent::Small,
            versions: None,
            version: None,
            policy: None,
            postern: "0".to_owned(),
        };
        for (path, bytes) in [
            (self.code(), code.to_vec()),
            (Manifest::path(&self.catalog(), "demo"), serde_json::to_vec_pretty(&manifest).unwrap()),
        ] {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        }
    }

    fn run(&self) -> Result<RunManifest, PluginError> {
        open(&self.catalog(), "demo", ENGINE)?.verify(Some(&self.state()))
    }

    fn notes(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.state().join(VERIFIED)) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(2100));
}

#[test]
fn notes_only_what_would_show_a_change() {
    let place = Place::new("notes");
    assert_eq!(place.run().unwrap().digest, sha256(b"component"));
    assert!(place.notes().is_empty(), "a change within the clock's step would not show");
    settle();
    place.run().unwrap();
    let [note] = place.notes().try_into().unwrap();
    assert_eq!(std::fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o600);
    // The note is trusted, so the code is not read again.
    let before = std::fs::read_to_string(&note).unwrap();
    place.run().unwrap();
    assert_eq!(std::fs::read_to_string(&note).unwrap(), before);

    // One byte changes, and size and mtime stay the same. Only the change time shows the change.
    let mtime = std::fs::metadata(place.code()).unwrap().modified().unwrap();
    let file = OpenOptions::new().write(true).open(place.code()).unwrap();
    file.write_at(&[8], 100_000).unwrap();
    file.set_modified(mtime).unwrap();
    let message = place.run().unwrap_err().to_string();
    assert!(message.contains("was changed or swapped") && message.contains("postern add"), "{message}");

    // The code is read again if the note is about other bytes, unreadable or missing.
    file.write_at(&[7], 100_000).unwrap();
    std::fs::write(&note, before.replace(&sha256(&[7; 200_000]), "00")).unwrap();
    place.run().unwrap();
    std::fs::write(&note, "{").unwrap();
    place.run().unwrap();
    std::fs::remove_dir_all(place.state()).unwrap();
    place.run().unwrap();
}

/// A run reads all of the manifest except the imports.
#[test]
fn a_run_reads_no_imports() {
    let place = Place::new("imports");
    let whole = Manifest::read(&place.catalog(), "demo").unwrap();
    assert_eq!(RunManifest::of(&place.catalog(), "demo").unwrap().digest, whole.digest);
    let path = Manifest::path(&place.catalog(), "demo");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"imports\": []", "\"imports\": [1, {}]")).unwrap();
    assert!(place.run().is_ok() && Manifest::read(&place.catalog(), "demo").is_err());
    std::fs::write(&path, text.replace("\"imports\": []", "\"imports\": [")).unwrap();
    assert!(place.run().unwrap_err().to_string().contains("demo.json"));
}

/// Earlier versions wrote the imports as one text. A run ignores this text, and a message tells people what to do.
#[test]
fn imports_of_an_earlier_version_are_told() {
    let place = Place::new("earlier");
    let path = Manifest::path(&place.catalog(), "demo");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"imports\": []", "\"imports\": \"postern:cni/link@0.1.0#own\"")).unwrap();
    assert!(place.run().is_ok());
    let message = Manifest::read(&place.catalog(), "demo").unwrap_err().to_string();
    assert!(message.contains("another version of postern wrote the imports"), "{message}");
    assert!(message.contains("demo.json") && message.contains("postern add"), "{message}");
}

#[test]
fn a_note_is_of_one_code() {
    let place = Place::new("one");
    settle();
    place.run().unwrap();
    // The note is not valid for another manifest of the same file.
    let path = Manifest::path(&place.catalog(), "demo");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(&sha256(&[7; 200_000]), &sha256(b"other"))).unwrap();
    assert!(place.run().unwrap_err().to_string().contains("was changed or swapped"));
}

#[test]
fn refuses_what_does_not_hold_together() {
    let place = Place::new("refuses");
    let other = open(&place.catalog(), "demo", "wasmtime-1-test").unwrap_err().to_string();
    assert!(other.contains("for another engine") && other.contains("wasmtime-0-test"), "{other}");
    assert!(open(&place.catalog(), "none", ENGINE).unwrap_err().to_string().contains("there is no plugin \"none\""));
    OpenOptions::new().write(true).open(place.code()).unwrap().set_len(199_999).unwrap();
    let message = place.run().unwrap_err().to_string();
    assert!(message.contains("has 199999 bytes, and had 200000"), "{message}");
    std::fs::remove_file(Manifest::path(&place.catalog(), "demo")).unwrap();
    assert!(place.run().unwrap_err().to_string().contains("demo.json is missing"));
}

#[test]
fn a_pin_says_both_digests_and_the_way_out() {
    let (old, new) = ("a".repeat(64), "b".repeat(64));
    let file = Path::new("/etc/postern/policy/demo.toml");
    check_pin(None, &new, "demo", file).unwrap();
    check_pin(Some(&format!("sha256:{new}")), &new, "demo", file).unwrap();
    let message = check_pin(Some(&format!("sha256:{old}")), &new, "demo", file).unwrap_err().to_string();
    for part in [&old, &new, "demo", "inspect --diff", "/etc/postern/policy/demo.toml"] {
        assert!(message.contains(part), "{message}");
    }
}
