//! A store of resources with delayed lists: they show new resources late, and deleted ones for a while longer.

use jiff::Timestamp;

/// A resource with an id.
pub(super) trait Item {
    fn id(&self) -> &str;
}

/// The resources of one kind.
#[derive(Debug)]
pub(super) struct Store<T> {
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    /// Time from which lists show it; `None` for never.
    shown: Option<Timestamp>,
    /// Time until which lists show it, once it is deleted.
    gone: Option<Timestamp>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T: Item> Store<T> {
    pub(super) fn add(&mut self, value: T, shown: Option<Timestamp>) {
        self.entries.push(Entry { value, shown, gone: None });
    }

    /// Deletes a resource; lists show it until `until`. False if it does not exist.
    pub(super) fn remove(&mut self, id: &str, until: Timestamp) -> bool {
        let found = self.entries.iter_mut().find(|entry| entry.gone.is_none() && entry.value.id() == id);
        found.map(|entry| entry.gone = Some(until)).is_some()
    }

    pub(super) fn get(&self, id: &str) -> Option<&T> {
        self.all().find(|value| value.id() == id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        self.all_mut().find(|value| value.id() == id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter(|entry| entry.gone.is_none()).map(|entry| &entry.value)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter(|entry| entry.gone.is_none()).map(|entry| &mut entry.value)
    }

    /// The resources that lists show at a time.
    pub(super) fn listed(&self, now: Timestamp) -> impl Iterator<Item = &T> {
        let is_shown = move |entry: &&Entry<T>| {
            entry.shown.is_some_and(|shown| shown <= now) && entry.gone.is_none_or(|until| now < until)
        };
        self.entries.iter().filter(is_shown).map(|entry| &entry.value)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.all().map(|value| value.id().to_owned()).collect()
    }
}
