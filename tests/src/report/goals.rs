//! What a run may cost, as a part of the native plugins' cost.

use super::{Line, OURS, Quantity, Summary};
use Quantity::{Cpu, Memory, Size, Wall};

/// A goal for one line of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// The words of the table.
    pub label: &'static str,
    /// The row.
    pub row: &'static str,
    /// What of it.
    pub quantity: Quantity,
    /// At most this part of native.
    pub goal: f64,
}

const fn goal(label: &'static str, row: &'static str, quantity: Quantity, goal: f64) -> Goal {
    Goal { label, row, quantity, goal }
}

/// All of them, in the order of the table.
pub const GOALS: [Goal; 29] = [
    goal("VERSION", "bridge VERSION", Wall, 0.18),
    goal("static, ADD", "static, ADD", Wall, 0.45),
    goal("static, DEL", "static, DEL", Wall, 0.45),
    goal("loopback, ADD", "loopback, ADD", Wall, 0.45),
    goal("loopback, DEL", "loopback, DEL", Wall, 0.45),
    goal("host-local, ADD", "host-local, ADD", Wall, 0.48),
    goal("host-local, DEL", "host-local, DEL", Wall, 0.48),
    goal("bridge with host-local, ADD", "bridge + host-local, ADD", Wall, 0.35),
    goal("the same, processor time", "bridge + host-local, ADD", Cpu, 0.4),
    goal("bridge with host-local, DEL", "bridge + host-local, DEL", Wall, 0.75),
    goal("ptp with host-local, ADD", "ptp + host-local, ADD", Wall, 0.3),
    goal("bridge with masquerading, nftables, ADD", "bridge + masq nft, ADD", Wall, 0.1),
    goal("bridge with masquerading, nftables, DEL", "bridge + masq nft, DEL", Wall, 0.25),
    goal("bridge with masquerading, default, ADD", "bridge + masq default, ADD", Wall, 0.2),
    goal("bridge with masquerading, default, DEL", "bridge + masq default, DEL", Wall, 0.3),
    goal("50 bridges with host-local at once, ADD", "50 at once: bridge + host-local, ADD", Wall, 0.3),
    goal("the same, processor time", "50 at once: bridge + host-local, ADD", Cpu, 0.3),
    goal("bridge with host-local, ADD, memory", "bridge + host-local, ADD", Memory, 1.0),
    goal("static, ADD, memory", "static, ADD", Memory, 1.0),
    goal("Kubernetes' list, a process for each plugin, ADD", "chain of 3, a process each, ADD", Wall, 0.3),
    goal("Kubernetes' list, a process for each plugin, DEL", "chain of 3, a process each, DEL", Wall, 0.3),
    goal("portmap, default, ADD", "portmap default, ADD", Wall, 0.12),
    goal("portmap, default, DEL", "portmap default, DEL", Wall, 0.3),
    goal("firewall, default, ADD", "firewall default, ADD", Wall, 0.12),
    goal("bandwidth, ADD", "bandwidth, ADD", Wall, 0.4),
    goal("tuning, ADD", "tuning, ADD", Wall, 0.4),
    goal("macvlan with host-local, ADD", "macvlan + host-local, ADD", Wall, 0.4),
    goal("macvlan without addresses, ADD", "macvlan L2, ADD", Wall, 0.4),
    goal("all plugins and commands, as installed", "installed", Size, 0.25),
];

impl Goal {
    /// Finds its line in a summary.
    #[must_use]
    pub fn line<'s>(&self, summary: &'s Summary) -> Option<&'s Line> {
        summary.line(self.row, self.quantity)
    }

    /// Returns the part of native that was reached.
    #[must_use]
    pub fn reached(&self, summary: &Summary) -> Option<f64> {
        self.line(summary)?.ratio(OURS)
    }
}
