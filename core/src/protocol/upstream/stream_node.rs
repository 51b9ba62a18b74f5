//! The node that a server is shown on one stream. A change takes effect on the next opening.

use bytes::Bytes;

#[derive(Debug)]
pub(super) struct StreamNode {
    shown: Bytes,
    /// The node of the next opening, if it differs.
    next: Option<Bytes>,
}

impl StreamNode {
    pub(super) fn new(node: Bytes) -> Self {
        Self { shown: node, next: None }
    }

    /// Returns the node of the present opening, or of the last one.
    pub(super) fn shown(&self) -> &Bytes {
        &self.shown
    }

    /// Returns the nodes that are kept.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.shown).chain(&self.next)
    }

    /// Records that the stream is opened again.
    pub(super) fn opened(&mut self) {
        if let Some(next) = self.next.take() {
            self.shown = next;
        }
    }

    /// Sets the node of the next opening.
    pub(super) fn show(&mut self, node: &Bytes) {
        self.next = (!is_same(&self.shown, node)).then(|| node.clone());
    }

    /// Whether the next opening shows another node.
    pub(super) fn changes(&self) -> bool {
        self.next.is_some()
    }

    /// Whether the present opening shows this node.
    pub(super) fn is_shown(&self, node: &Bytes) -> bool {
        is_same(&self.shown, node)
    }

    /// Whether the next opening shows this node.
    pub(super) fn is_set(&self, node: &Bytes) -> bool {
        is_same(self.next.as_ref().unwrap_or(&self.shown), node)
    }
}

/// Whether two nodes are equal. Mostly they are the same bytes in memory.
fn is_same(one: &Bytes, other: &Bytes) -> bool {
    one.as_ptr() == other.as_ptr() && one.len() == other.len() || one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_node_is_shown_from_the_next_opening_on() {
        let [a, b] = [b"a", b"b"].map(|node| Bytes::from_static(node));
        let mut node = StreamNode::new(a.clone());
        node.opened();
        node.show(&b);
        assert!(node.is_shown(&a) && node.is_set(&b) && node.changes());
        node.show(&a);
        assert!(!node.changes(), "it is back");
        node.show(&b);
        node.opened();
        assert!(*node.shown() == b && node.is_set(&b) && !node.changes());
    }

    #[test]
    fn a_node_that_begins_like_another_in_the_same_memory_is_another() {
        let node = Bytes::from_static(b"ab");
        let stream = StreamNode::new(node.clone());
        assert!(stream.is_shown(&node) && !stream.is_shown(&node.slice(..1)));
    }
}
