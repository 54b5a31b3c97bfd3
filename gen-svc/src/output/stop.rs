//! Finds stop strings in bytes that come in pieces, and holds back no more than what may still become one.
//!
//! The strings form an Aho-Corasick automaton: a trie in which every node knows the longest other node that its own text ends
//! with. The node that is reached tells both which string has just ended and how much of the text's end is the start of a
//! string, so each byte costs constant time on average, however many strings there are and however they overlap.
//!
//! In UTF-8 no character's bytes are part of another's, so what is found in the bytes is in the text.
//!
//! The string that ends first wins, since only then does the decision not depend on text that is yet to come; of several
//! that end at the same byte, the longest.

use std::collections::HashMap;

/// The trie's root: nothing of any string has been seen.
const ROOT: u32 = 0;

/// The search for stop strings in one output.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    strings: Vec<String>,
    /// So many of the first are released when they are found.
    shown: usize,
    nodes: Vec<Node>,
    /// Child of a node by byte.
    children: HashMap<(u32, u8), u32>,
    state: u32,
    /// What may still become a stop string: as long as `state` is deep.
    held: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    parent: u32,
    byte: u8,
    /// Length of the text that leads here, in bytes.
    depth: usize,
    /// The longest other node that this node's text ends with.
    fallback: u32,
    /// The longest string that ends here, as an index.
    found: Option<usize>,
}

impl StopMatcher {
    /// Searches for any of `strings`, of which the first `shown` are released when they are found. Empty ones match nothing.
    pub fn new(strings: &[String], shown: usize) -> Self {
        let mut matcher = Self {
            strings: strings.to_vec(),
            shown,
            nodes: vec![Node::default()],
            children: HashMap::new(),
            state: ROOT,
            held: Vec::new(),
        };
        for index in 0..matcher.strings.len() {
            matcher.insert(index);
        }
        matcher.link();
        matcher
    }

    /// Takes more. Returns what can be released, and the stop string that has ended the output, if one has: then what was released is
    /// all before it, and the search is over.
    pub fn push(&mut self, bytes: &[u8]) -> (Vec<u8>, Option<String>) {
        let before = self.held.len();
        self.held.extend(bytes);
        for (at, &byte) in (before..).zip(bytes) {
            self.state = self.next(self.state, byte);
            if let Some(index) = self.nodes[self.state as usize].found {
                return self.cut(at + 1, index);
            }
        }
        let depth = self.nodes[self.state as usize].depth;
        let kept = self.held.split_off(self.held.len() - depth);
        (std::mem::replace(&mut self.held, kept), None)
    }

    /// Releases what was held back: what comes later is searched anew.
    pub fn finish(&mut self) -> Vec<u8> {
        self.state = ROOT;
        std::mem::take(&mut self.held)
    }

    fn cut(&mut self, end: usize, index: usize) -> (Vec<u8>, Option<String>) {
        let found = self.strings[index].clone();
        let mut released = self.finish();
        released.truncate(if index < self.shown { end } else { end - found.len() });
        (released, Some(found))
    }

    fn next(&self, mut state: u32, byte: u8) -> u32 {
        loop {
            match self.children.get(&(state, byte)) {
                Some(&child) => return child,
                None if state == ROOT => return ROOT,
                None => state = self.nodes[state as usize].fallback,
            }
        }
    }

    fn insert(&mut self, index: usize) {
        let mut parent = ROOT;
        for (byte, depth) in self.strings[index].bytes().zip(1..) {
            let fresh = self.nodes.len() as u32;
            let child = *self.children.entry((parent, byte)).or_insert(fresh);
            if child == fresh {
                self.nodes.push(Node { parent, byte, depth, ..Node::default() });
            }
            parent = child;
        }
        if parent != ROOT {
            self.nodes[parent as usize].found.get_or_insert(index);
        }
    }

    /// Fallbacks lead to shorter texts, so the nodes are visited from the shortest to the longest.
    fn link(&mut self) {
        let mut order: Vec<u32> = (0..self.nodes.len() as u32).collect();
        order.sort_by_key(|&node| self.nodes[node as usize].depth);
        for at in order {
            let Node { parent, byte, depth, found, .. } = self.nodes[at as usize];
            if depth < 2 {
                continue; // the root and its children fall back to the root
            }
            let fallback = self.next(self.nodes[parent as usize].fallback, byte);
            let found = found.or(self.nodes[fallback as usize].found);
            let node = &mut self.nodes[at as usize];
            (node.fallback, node.found) = (fallback, found);
        }
    }
}
