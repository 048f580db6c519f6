use super::*;
use postern_types::{LeaseRange, canonicalize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// A directory of one test, removed after the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("postern-state-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn store(&self, boot_id: &str) -> LeaseStore {
        LeaseStore {
            data_dir: self.path("data"),
            network: "net".to_owned(),
            index_root: self.path("index/leases"),
            boot_id: boot_id.to_owned(),
        }
    }

    fn leases(&self) -> Leases {
        Leases::open(&self.store("boot")).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path("data/net").join(name)
    }

    /// Adds a lease as the native plugin does: create, then write.
    fn native_add(&self, ip: &str, text: &str) {
        let _lock = LeaseDir::open(&self.path("data"), "net", true).unwrap().unwrap().lock(soon()).unwrap();
        let mut file = std::fs::File::create_new(self.file(ip)).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn sets(subnets: &[&str]) -> Vec<RangeSet> {
    let input =
        |subnet: &&str| vec![LeaseRange { subnet: subnet.parse().unwrap(), start: None, end: None, gateway: None }];
    canonicalize(subnets.iter().map(input).collect()).unwrap()
}

fn owner(id: &str) -> LeaseOwner {
    LeaseOwner::new(id, "eth0")
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn reserve(
    leases: &Leases,
    id: &str,
    subnets: &[&str],
    requested: &[&str],
) -> std::result::Result<Vec<String>, String> {
    let requested: Vec<IpAddr> = requested.iter().map(|text| ip(text)).collect();
    leases
        .reserve_others(&owner(id), &sets(subnets), &requested, &[], soon())
        .map(|leases| leases.iter().map(|lease| lease.address.to_string()).collect())
        .map_err(|error| error.to_string())
}

/// True if the next call will use the index.
fn believed(leases: &Leases) -> bool {
    let (mtime, ctime) = leases.directory.times().unwrap();
    LeaseIndex::load(&leases.index, &DirectoryTimes { mtime, ctime, boot: leases.boot }).is_some()
}

const SMALL: &str = "10.0.0.0/29";

/// The call is refused before it waits for the lock. Otherwise each address would be looked for in each set while other
/// processes wait.
#[test]
fn too_many_requested_addresses_are_refused_before_the_lock() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    let _lock = LeaseDir::open(&scratch.path("data"), "net", true).unwrap().unwrap().lock(soon()).unwrap();
    let requested: Vec<IpAddr> = (0..19).map(|low| IpAddr::from([10, 1, 0, low])).collect();
    let error = leases.reserve_others(&owner("a"), &sets(&[SMALL]), &requested, &[], Instant::now()).unwrap_err();
    assert!(error.to_string().starts_with("19 addresses are requested of 1 range sets"), "{error}");
    let error = leases.reserve_others(&owner("a"), &sets(&[SMALL]), &requested[1..], &[], Instant::now()).unwrap_err();
    assert!(matches!(error, StateError::Locked { .. }), "{error}");
}

#[test]
fn files_are_as_the_native_plugin_writes_them() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    assert_eq!(reserve(&leases, "box", &[SMALL, "fd00::/64"], &[]).unwrap(), ["10.0.0.2/29", "fd00::2/64"]);
    assert_eq!(std::fs::read(scratch.file("10.0.0.2")).unwrap(), b"box\r\neth0");
    assert_eq!(std::fs::read(scratch.file("fd00::2")).unwrap(), b"box\r\neth0");
    assert_eq!(std::fs::metadata(scratch.file("10.0.0.2")).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(std::fs::metadata(scratch.file("lock")).unwrap().mode() & 0o7777 & !0o750, 0);
    assert_eq!(std::fs::read(scratch.file("last_reserved_ip.0")).unwrap(), b"10.0.0.2");
    assert_eq!(std::fs::read(scratch.file("last_reserved_ip.1")).unwrap(), b"fd00::2");
    let mut names: Vec<_> = std::fs::read_dir(scratch.path("data/net"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["10.0.0.2", "fd00::2", "last_reserved_ip.0", "last_reserved_ip.1", "lock"]);
    assert!(believed(&leases));
}

#[test]
fn round_robin_duplicates_and_exhaustion() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    assert_eq!(reserve(&leases, "a", &[SMALL], &[]).unwrap(), ["10.0.0.2/29"]);
    assert_eq!(
        reserve(&leases, "a", &[SMALL], &[]).unwrap_err(),
        "failed to allocate for range 0: 10.0.0.2 has been allocated to a, duplicate allocation is not allowed"
    );
    assert_eq!(leases.release(&owner("a"), soon()).unwrap(), [ip("10.0.0.2")]);
    assert_eq!(leases.release(&owner("a"), soon()).unwrap(), [] as [IpAddr; 0]);
    assert_eq!(reserve(&leases, "a", &[SMALL], &[]).unwrap(), ["10.0.0.3/29"]);
    for id in ["b", "c", "d", "e"] {
        reserve(&leases, id, &[SMALL], &[]).unwrap();
    }
    assert_eq!(leases.exhausted(&sets(&["10.9.0.0/24", SMALL]), soon()).unwrap(), Some(1));
    assert_eq!(
        reserve(&leases, "f", &[SMALL], &[]).unwrap_err(),
        "failed to allocate for range 0: no IP addresses available in range set: 10.0.0.1-10.0.0.6"
    );
    // A crash of the native plugin left an empty file: the address is free.
    std::fs::write(scratch.file("10.0.0.4"), "").unwrap();
    assert_eq!(leases.exhausted(&sets(&[SMALL]), soon()).unwrap(), None);
    assert_eq!(reserve(&leases, "f", &[SMALL], &[]).unwrap(), ["10.0.0.4/29"]);
    assert_eq!(leases.held(&owner("f"), soon()).unwrap(), [ip("10.0.0.4")]);
}

#[test]
fn requested_addresses() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    assert_eq!(reserve(&leases, "a", &[SMALL], &["10.0.0.5"]).unwrap(), ["10.0.0.5/29"]);
    assert_eq!(reserve(&leases, "b", &[SMALL], &[]).unwrap(), ["10.0.0.6/29"]);
    assert_eq!(
        reserve(&leases, "c", &[SMALL], &["10.0.0.5"]).unwrap_err(),
        "failed to allocate for range 0: requested IP address 10.0.0.5 is not available in range set 10.0.0.1-10.0.0.6"
    );
    assert_eq!(
        reserve(&leases, "c", &[SMALL], &["10.0.0.1"]).unwrap_err(),
        "failed to allocate for range 0: requested ip 10.0.0.1 is subnet's gateway"
    );
    assert_eq!(
        reserve(&leases, "c", &[SMALL], &["10.0.0.2", "10.0.0.2", "10.0.0.3", "10.7.0.1"]).unwrap_err(),
        "failed to allocate all requested IPs: 10.0.0.3 10.7.0.1"
    );
    assert_eq!(leases.held(&owner("c"), soon()).unwrap(), [] as [IpAddr; 0]);
    std::fs::write(scratch.file("10.0.0.2"), "").unwrap();
    assert_eq!(reserve(&leases, "c", &[SMALL], &["::ffff:10.0.0.2"]).unwrap(), ["10.0.0.2/29"]);
}

#[test]
fn a_failure_gives_back_only_what_it_took() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    assert_eq!(reserve(&leases, "a", &["10.1.0.0/24"], &["10.1.0.9"]).unwrap(), ["10.1.0.9/24"]);
    assert!(reserve(&leases, "a", &["10.2.0.0/24", "10.1.0.0/24"], &["10.1.0.9"]).is_err());
    assert_eq!(leases.held(&owner("a"), soon()).unwrap(), [ip("10.1.0.9")]);
    assert!(!scratch.file("10.2.0.2").exists());
    assert!(!scratch.file("last_reserved_ip.1").exists(), "a failed call moved the round robin");
    assert!(believed(&leases));
}

#[test]
fn foreign_changes_are_seen_at_once() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    for round in 0..100u8 {
        // The native plugin's change follows at once: within one tick of the kernel's clock.
        let other = format!("10.0.1.{}", round + 1);
        reserve(&leases, &format!("ours{round}"), &["10.0.0.0/24"], &[]).unwrap();
        assert!(believed(&leases));
        scratch.native_add(&other, &format!("theirs{round}\r\neth0"));
        assert!(!believed(&leases), "round {round}");
        assert_eq!(leases.held(&owner(&format!("theirs{round}")), soon()).unwrap(), [ip(&other)]);
        assert!(believed(&leases));
    }
    std::fs::remove_file(scratch.file("10.0.1.1")).unwrap();
    assert_eq!(leases.held(&owner("theirs0"), soon()).unwrap(), [] as [IpAddr; 0]);
    // The file is rewritten in place. The directory's times do not change, but the file contradicts the index.
    std::fs::write(scratch.file("10.0.1.2"), "new\r\neth0").unwrap();
    assert_eq!(leases.held(&owner("theirs1"), soon()).unwrap(), [] as [IpAddr; 0]);
    assert_eq!(leases.held(&owner("new"), soon()).unwrap(), [ip("10.0.1.2")]);
}

#[test]
fn old_files_with_only_the_container() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    scratch.native_add("10.0.0.3", "old\n");
    assert_eq!(leases.held(&owner("old"), soon()).unwrap(), [ip("10.0.0.3")]);
    assert!(reserve(&leases, "old", &[SMALL], &[]).unwrap_err().contains("10.0.0.3 has been allocated to old"));
    assert_eq!(leases.retain(&[("old", "eth0")], |_, _| false, soon()).unwrap(), []);
    assert_eq!(leases.release(&owner("old"), soon()).unwrap(), [ip("10.0.0.3")]);
    // The native plugin doesn't accept a line feed alone as separator either.
    scratch.native_add("10.0.0.4", "box\neth0");
    assert_eq!(leases.release(&owner("box"), soon()).unwrap(), [] as [IpAddr; 0]);
}

#[test]
fn retain_removes_all_others_whoever_wrote_them() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    for id in ["a", "b"] {
        reserve(&leases, id, &[SMALL], &[]).unwrap();
    }
    scratch.native_add("10.9.9.9", "native\r\nnet1");
    scratch.native_add("10.9.9.10", "old");
    std::fs::write(scratch.file("notes.txt"), "keep").unwrap();
    let removed = leases.retain(&[("b", "eth0")], |_, _| false, soon()).unwrap();
    assert_eq!(
        removed,
        [
            (ip("10.0.0.2"), owner("a")),
            (ip("10.9.9.9"), LeaseOwner::new("native", "net1")),
            (ip("10.9.9.10"), LeaseOwner::new("old", ""))
        ]
    );
    assert!(scratch.file("notes.txt").exists() && scratch.file("lock").exists());
    assert!(scratch.file("last_reserved_ip.0").exists());
    assert!(believed(&leases));
    assert_eq!(leases.held(&owner("b"), soon()).unwrap(), [ip("10.0.0.3")]);
    assert_eq!(leases.retain(&[], |_, _| true, soon()).unwrap(), []);
    assert_eq!(leases.retain(&[], |_, _| false, soon()).unwrap().len(), 1);
}

#[test]
fn retain_opens_no_lease_of_the_valid_where_the_index_is_believed() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    for id in ["a", "b", "c"] {
        reserve(&leases, id, &[SMALL], &[]).unwrap();
    }
    assert!(believed(&leases));
    // The file is rewritten in place, with another owner.
    std::fs::write(scratch.file("10.0.0.2"), "other\r\neth0").unwrap();
    assert_eq!(leases.retain(&[("a", "eth0"), ("b", "eth0"), ("c", "eth0")], |_, _| false, soon()).unwrap(), []);
    assert_eq!(
        leases.retain(&[("a", "eth0"), ("b", "eth0")], |_, _| false, soon()).unwrap(),
        [(ip("10.0.0.4"), owner("c"))]
    );
    assert!(believed(&leases));
    // A lease without a valid owner contradicts the index, so all files are read.
    assert_eq!(leases.retain(&[("b", "eth0")], |_, _| false, soon()).unwrap(), [(ip("10.0.0.2"), owner("other"))]);
    assert_eq!(leases.held(&owner("b"), soon()).unwrap(), [ip("10.0.0.3")]);
    assert!(believed(&leases));
}

#[test]
fn leases_of_an_earlier_boot_are_free() {
    let scratch = Scratch::new();
    let before = scratch.leases();
    for id in ["a", "b", "c"] {
        reserve(&before, id, &[SMALL], &[]).unwrap();
    }
    scratch.native_add("10.0.0.5", "native\r\neth0");
    // The native plugin released .2 and gave it out again to the same container. The new file is not the noted lease.
    let _ = before.held(&owner("a"), soon()).unwrap();
    std::fs::remove_file(scratch.file("10.0.0.2")).unwrap();
    scratch.native_add("10.0.0.2", "a\r\neth0");
    let after = Leases::open(&scratch.store("next boot")).unwrap();
    // If .3 and .4 counted as taken, only .6 would be free.
    assert_eq!(after.exhausted(&sets(&[SMALL]), soon()).unwrap(), None);
    assert_eq!(reserve(&after, "x", &[SMALL], &[]).unwrap(), ["10.0.0.6/29"]);
    assert_eq!(reserve(&after, "b", &[SMALL], &[]).unwrap(), ["10.0.0.3/29"]);
    assert_eq!(reserve(&after, "y", &[SMALL], &[]).unwrap(), ["10.0.0.4/29"]);
    assert!(reserve(&after, "z", &[SMALL], &[]).is_err());
    assert_eq!(after.held(&owner("native"), soon()).unwrap(), [ip("10.0.0.5")]);
    assert_eq!(after.held(&owner("a"), soon()).unwrap(), [ip("10.0.0.2")]);
}

#[test]
fn works_without_an_index() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("index"), "in the way").unwrap();
    let leases = scratch.leases();
    reserve(&leases, "a", &[SMALL], &[]).unwrap();
    assert!(reserve(&leases, "a", &[SMALL], &[]).is_err());
    assert_eq!(leases.release(&owner("a"), soon()).unwrap(), [ip("10.0.0.2")]);
}

#[test]
fn the_lock_obeys_the_deadline() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    let other = scratch.leases();
    let held = other.directory.lock(soon()).unwrap();
    let begun = Instant::now();
    let error =
        leases.reserve_others(&owner("a"), &sets(&[SMALL]), &[], &[], begun + Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, StateError::Locked { .. }), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(50) && begun.elapsed() < Duration::from_secs(5));
    drop(held);
    assert!(reserve(&leases, "a", &[SMALL], &[]).is_ok());
}

#[test]
fn a_missing_directory_is_no_lease() {
    let scratch = Scratch::new();
    assert!(Leases::open_existing(&scratch.store("boot")).unwrap().is_none());
    assert!(!scratch.path("data").exists());
}

#[test]
fn parallel_reserves_are_distinct() {
    let scratch = Scratch::new();
    let all = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..100 {
            let (scratch, all) = (&scratch, &all);
            scope.spawn(move || {
                let leases = scratch.leases();
                let mine = reserve(&leases, &format!("box{number}"), &["10.0.0.0/24", "fd00::/64"], &[]).unwrap();
                if number % 2 == 0 {
                    assert_eq!(leases.held(&owner(&format!("box{number}")), soon()).unwrap().len(), 2);
                }
                all.lock().unwrap().extend(mine);
            });
        }
    });
    let all: HashSet<String> = all.into_inner().unwrap().into_iter().collect();
    assert_eq!(all.len(), 200);
}

#[test]
fn what_was_seen_goes_if_it_is_still_the_same() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    assert_eq!(leases.all().unwrap(), []);
    reserve(&leases, "ours", &[SMALL], &[]).unwrap();
    scratch.native_add("10.0.0.10", "theirs\r\neth0");
    scratch.native_add("10.0.0.3", "old");
    scratch.native_add("10.0.0.4", "");
    let index = leases.index.root.join(format!("{}.leases", leases.index.stem));
    let before = std::fs::read(&index).unwrap();
    let seen = leases.all().unwrap();
    let told: Vec<_> = seen.iter().map(|held| (held.address.to_string(), held.owner.clone())).collect();
    let wanted =
        [("10.0.0.2", owner("ours")), ("10.0.0.3", LeaseOwner::new("old", "")), ("10.0.0.10", owner("theirs"))];
    assert_eq!(told, wanted.map(|(ip, owner)| (ip.to_owned(), Some(owner))));
    assert!(scratch.file("10.0.0.4").exists() && before == std::fs::read(&index).unwrap(), "a look changes nothing");
    let age = std::time::SystemTime::now().duration_since(seen[2].taken().unwrap()).unwrap();
    assert!(age < Duration::from_secs(60), "{age:?}");

    // The same owner, but another file: the address was released and taken again.
    std::fs::remove_file(scratch.file("10.0.0.10")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    scratch.native_add("10.0.0.10", "theirs\r\neth0");
    assert!(!leases.remove(&seen[2], soon()).unwrap() && scratch.file("10.0.0.10").exists());
    let [ours, old, theirs] = <[HeldAddress; 3]>::try_from(leases.all().unwrap()).unwrap();
    for held in [ours, old, theirs] {
        assert!(leases.remove(&held, soon()).unwrap() && !held.path.exists());
        assert!(!leases.remove(&held, soon()).unwrap(), "gone");
    }
    assert!(believed(&leases), "the index has followed");
    assert_eq!(leases.held(&owner("ours"), soon()).unwrap(), Vec::<IpAddr>::new());
}

#[test]
fn only_what_was_seen_makes_a_place_untrusted() {
    use crate::lease_dir::{open_place, place};
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let link = |target: &Path| std::os::unix::fs::symlink(target, &data).unwrap();
    link(Path::new("data"));
    assert!(matches!(place(&data, "net"), Err(StateError::Untrusted { .. })), "a loop");
    std::fs::remove_file(&data).unwrap();
    std::fs::write(&data, "").unwrap();
    assert!(matches!(place(&data, "net"), Err(StateError::Untrusted { .. })), "a file");
    std::fs::remove_file(&data).unwrap();
    // The disk may be mounted later.
    link(&scratch.path("disk/leases"));
    assert!(matches!(place(&data, "net"), Err(StateError::Io { .. })), "a link that leads nowhere");
    std::fs::create_dir_all(scratch.path("disk/leases/net")).unwrap();
    let real = place(&data, "net").unwrap();
    assert_eq!(real, scratch.path("disk/leases/net").canonicalize().unwrap());
    assert!(open_place(&data, &real).is_some());
    std::fs::rename(&real, scratch.path("other")).unwrap();
    assert!(open_place(&data, &real).is_none());
    // Another user can put a link in the directory's place between two calls.
    std::os::unix::fs::symlink(scratch.path("other"), &real).unwrap();
    assert!(open_place(&data, &real).is_none());
}

#[test]
fn networks_are_directories() {
    let scratch = Scratch::new();
    assert_eq!(networks(&scratch.path("data")).unwrap(), None);
    drop(scratch.leases());
    std::fs::create_dir(scratch.path("data/another")).unwrap();
    std::fs::create_dir(scratch.path("data/.hidden")).unwrap();
    std::fs::write(scratch.path("data/file"), "").unwrap();
    std::os::unix::fs::symlink("/", scratch.path("data/link")).unwrap();
    assert_eq!(networks(&scratch.path("data")).unwrap().unwrap(), ["another", "net"]);
    let mode =
        |mode| std::fs::set_permissions(scratch.path("data"), std::os::unix::fs::PermissionsExt::from_mode(mode));
    // Reservations accept a directory with this mode.
    mode(0o1777).unwrap();
    assert_eq!(networks(&scratch.path("data")).unwrap().unwrap(), ["another", "net"]);
    mode(0o777).unwrap();
    assert!(matches!(networks(&scratch.path("data")), Err(StateError::Untrusted { .. })));
}

#[test]
fn all_leases_are_listed_without_changing_any() {
    let scratch = Scratch::new();
    let leases = scratch.leases();
    reserve(&leases, "ours", &[SMALL], &[]).unwrap();
    scratch.native_add("10.0.0.5", "native\r\neth0");
    std::fs::write(scratch.file("10.0.0.6"), "").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", scratch.file("10.0.0.7")).unwrap();
    nix::unistd::mkfifo(&scratch.file("10.0.0.8"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let all = leases.all().unwrap();
    let told: Vec<_> = all.iter().map(|held| (held.address.to_string(), held.owner.clone())).collect();
    let known = |address: &str, id: &str| (address.to_owned(), Some(owner(id)));
    let nobody = |address: &str| (address.to_owned(), None);
    assert_eq!(told[1..], [known("10.0.0.5", "native"), nobody("10.0.0.7"), nobody("10.0.0.8")]);
    assert_eq!(told[0].1, Some(owner("ours")));
    assert_eq!(all[1].path, scratch.file("10.0.0.5"));
    assert!(scratch.file("10.0.0.6").exists(), "only the holder of the lock removes a torn file");
    assert!(all[2].taken().is_none() && !leases.remove(&all[2], soon()).unwrap() && all[3].path.exists());
}
