//! A list of actions as stages: which actions run at the same time, and which wait. Coordinator and agent both use
//! this.

use std::ops::Range;

/// Actions that run at once: in lanes, each in order. The next stage begins when all its lanes have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Indices of the list, in order: one lane a branch, or a single one. No lane is empty.
    pub lanes: Vec<Vec<usize>>,
}

impl Stage {
    /// Every index of it, in the list's order.
    pub fn span(&self) -> Range<usize> {
        let all = || self.lanes.iter().flatten().copied();
        all().min().unwrap_or(0)..all().max().map_or(0, |last| last + 1)
    }
}

/// Cuts a list, given by each action's branch, into stages: a maximal run of actions that name a branch is one, a maximal
/// run of those that name none is one of a single lane.
pub fn stages<'a>(branches: impl IntoIterator<Item = Option<&'a str>>) -> Vec<Stage> {
    let mut out: Vec<Stage> = Vec::new();
    // The present stage's branches, one a lane; absent: the actions name none.
    let mut names: Option<Vec<&str>> = None;
    for (index, branch) in branches.into_iter().enumerate() {
        match (branch, &mut names, out.last_mut()) {
            (Some(name), Some(names), Some(stage)) => match names.iter().position(|known| *known == name) {
                Some(lane) => stage.lanes[lane].push(index),
                None => {
                    names.push(name);
                    stage.lanes.push(vec![index]);
                }
            },
            (None, None, Some(stage)) => stage.lanes[0].push(index),
            (branch, ..) => {
                names = branch.map(|name| vec![name]);
                out.push(Stage { lanes: vec![vec![index]] });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(branches: &[&str]) -> Vec<Vec<Vec<usize>>> {
        let named = branches.iter().map(|b| Some(*b).filter(|b| !b.is_empty()));
        stages(named).into_iter().map(|s| s.lanes).collect()
    }

    #[test]
    fn a_list_without_branches_is_one_lane() {
        assert_eq!(lanes(&["", "", ""]), [vec![vec![0, 1, 2]]]);
        assert!(lanes(&[]).is_empty());
    }

    #[test]
    fn consecutive_branches_run_at_once_and_each_in_order() {
        let want = [vec![vec![0]], vec![vec![1, 3], vec![2]], vec![vec![4]], vec![vec![5]]];
        assert_eq!(lanes(&["", "a", "b", "a", "", "a"]), want);
        assert_eq!(stages([Some("a"), Some("b")])[0].span(), 0..2);
    }
}
