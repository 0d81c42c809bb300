//! "Did you mean": the candidate name that is closest to what was written.

/// A candidate further than this share of the longer name is not worth suggesting: 1 edit per 3 characters.
const CHARACTERS_PER_EDIT: usize = 3;

/// Names longer than this are not compared: the cost is quadratic, and no field is that long.
const LONGEST_NAME: usize = 256;

/// Optimal-string-alignment distance: insertions, deletions, substitutions and swaps of neighbours each cost 1.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substitution = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substitution.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

/// The candidate nearest to `name`, ignoring case and treating `-` as `_`; `None` when nothing is near. Ties go to the
/// candidate that comes first.
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return None;
    }
    let wanted = folded(name);
    let mut best: Option<(usize, &'c str)> = None;
    for candidate in candidates {
        let limit = wanted.len().max(candidate.len()).div_ceil(CHARACTERS_PER_EDIT);
        // The difference of lengths is a lower bound of the distance: most candidates stop here.
        if candidate.len() > LONGEST_NAME || wanted.len().abs_diff(candidate.len()) > limit {
            continue;
        }
        let distance = edit_distance(&wanted, &folded(candidate));
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

fn folded(name: &str) -> String {
    name.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in
            [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("ab", "ba", 1), ("naem", "name", 1)]
        {
            assert_eq!(edit_distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_typo_finds_its_field_and_a_stranger_finds_nothing() {
        let fields = ["name", "connect_timeout", "load_assignment", "lb_policy"];
        assert_eq!(nearest("conect_timeout", fields), Some("connect_timeout"));
        assert_eq!(nearest("connect-timeout", fields), Some("connect_timeout"));
        assert_eq!(nearest("LB_Policy", fields), Some("lb_policy"));
        assert_eq!(nearest("nmae", fields), Some("name"));
        assert_eq!(nearest("frobnicate", fields), None);
        assert_eq!(nearest("", fields), None);
    }
}
