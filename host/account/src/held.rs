//! The held objects of this node ([`postern_gate::capability::device::held`]): devices that may not be clean, and VLANs
//! in use.

use postern_gate::capability::device::effect::home::DeviceHome;
use postern_gate::capability::device::held::{self, HeldNote, HeldObject, Notes};
use postern_gate::effect::Device;
use postern_gate::places::Places;
use postern_gate::upkeep::Audit;
use postern_kernel::tcx::Sight;
use postern_kernel::{LinkFiles, Netlink};
use postern_state::node;
use serde_json::json;
use std::fmt::Display;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time that a driver may take to make a link.
const LINK_WITHIN: Duration = Duration::from_secs(10);

/// Returns the held objects of the caller's namespace, each with the time when it became held.
///
/// # Errors
/// A text for people: kernel or state directory can't be asked.
pub fn list(places: &Places) -> Result<Vec<(u64, HeldNote)>, String> {
    let here = Netlink::open().and_then(|host| host.cookie()).map_err(|e| text(&e))?;
    let boot = postern_state::boot_id().map_err(|e| text(&e))?;
    let (objects, _) = node::list(&places.state).map_err(|e| text(&e))?;
    Ok(objects.iter().filter_map(|object| Some((object.created, held::of(object, here, &boot)?))).collect())
}

/// Looks at a held object again. A clean device is no longer held, and is set up if it was up before. With `unbind`, an
/// unclean device is first unbound from its driver. Returns the object if it is still held.
///
/// # Errors
/// A text for people: kernel or state directory can't be asked, or the device's driver can't be reached.
pub fn mend(places: &Places, held: &HeldNote, unbind: bool) -> Result<Option<HeldNote>, String> {
    let host = Netlink::open().map_err(|e| text(&e))?;
    let files = LinkFiles::mount().ok();
    let home = DeviceHome { host: &host, sight: Sight::find(), files: files.as_ref() };
    let mut notes = Notes::new(&places.state, Audit::new(&places.logs, String::new()), "GC");
    let still = held.mend(home, &mut notes).map_err(|e| text(&e))?;
    let (HeldObject::Device(device), true, true) = (&held.object, unbind, still.is_some()) else { return Ok(still) };
    let Some((bus, name)) = &device.device else { return Ok(still) };
    let start = Instant::now();
    let outcome = rebind(&host, device, bus, name);
    notes.log("held.unbind", &json!({"object": held.object.to_string()}), "note", &outcome, start);
    outcome?;
    held.mend(home, &mut notes).map_err(|e| text(&e))
}

/// Unbinds a device from its driver, binds it again, and waits for its link.
#[expect(clippy::disallowed_methods, reason = "only the kernel makes files below /sys")]
fn rebind(host: &Netlink, device: &Device, bus: &str, name: &str) -> Result<(), String> {
    let own = Path::new("/sys/bus").join(bus).join("devices").join(name).join("driver");
    // The path through the device no longer exists after the unbinding.
    let driver = own.canonicalize().map_err(|error| format!("{}: {error}", own.display()))?;
    for step in ["unbind", "bind"] {
        let file = driver.join(step);
        std::fs::write(&file, name).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let until = Instant::now() + LINK_WITHIN;
    while Instant::now() < until {
        if host.links().map_err(|e| text(&e))?.iter().any(|link| device.is_same(link)) {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    Err(format!("{name} is bound to its driver again, but has no link after {} seconds", LINK_WITHIN.as_secs()))
}

fn text(error: &dyn Display) -> String {
    error.to_string()
}
