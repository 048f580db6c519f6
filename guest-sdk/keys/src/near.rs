//! Finds the known name that is nearest to an unknown name.

/// Returns the name that was probably meant. It is the same name in another case, or the name with the fewest letters
/// to change. At most a third of the letters may change.
pub fn nearest<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let given: Vec<char> = given.to_lowercase().chars().take(LONGEST).collect();
    let most = (given.len() / 3).max(1);
    let ranked = names.into_iter().map(|name| {
        let letters: Vec<char> = name.to_lowercase().chars().take(LONGEST).collect();
        (distance(&given, &letters), name)
    });
    ranked.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// The number of letters of a name that are compared.
const LONGEST: usize = 64;

/// Returns the number of letters that are added, left out, replaced, or exchanged with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, one) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in b.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
            let mut best = (at(&last, j) + usize::from(one != other)).min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let neighbour = |list: &[char], at: usize| at.checked_sub(1).and_then(|at| list.get(at)).copied();
            if j > 0 && neighbour(a, i) == Some(*other) && neighbour(b, j) == Some(*one) {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant() {
        let names = ["isGateway", "isDefaultGateway", "ipMasq", "mtu", "vlan", "vlanTrunk"];
        for (given, meant) in [
            ("isGatway", Some("isGateway")),
            ("ISGATEWAY", Some("isGateway")),
            ("defaultGateway", Some("isDefaultGateway")),
            ("ipmask", Some("ipMasq")),
            ("mut", Some("mtu")),
            ("vlna", Some("vlan")),
            ("uplinkInterface", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, names), meant, "{given}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), names), None);
    }
}
