//! The shared memory of a node's container.

/// The most room for the batches that the workers of a PyTorch `DataLoader` pass on through shared memory: 4 workers,
/// each 2 batches ahead (`prefetch_factor`), of 1 GiB.
const MOST_OF_LOADERS: u64 = 4 * 2 * (1 << 30);
/// The part of a host's memory that this room is at most.
const PART_OF_HOST: u64 = 4;
/// What Ray and other programs keep there besides.
const OTHERS: u64 = 128 << 20;

/// The limit of a container's shared memory, in bytes: Ray's objects, a tenth for Ray's own use of them, and `loaders`.
/// It is a limit and reserves nothing: the host's memory is used as it is written to.
pub fn shared_memory(objects: u64, loaders: u64) -> u64 {
    objects + objects / 10 + OTHERS + loaders
}

/// The room for data loaders on a host with this much memory, in bytes: 8 GiB, but at most a quarter of the memory.
pub fn loader_room(host_memory: u64) -> u64 {
    MOST_OF_LOADERS.min(host_memory / PART_OF_HOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_loaders_have_room_beside_objects() {
        assert_eq!(shared_memory(1 << 30, 0), (1 << 30) + (1 << 30) / 10 + (128 << 20));
        assert_eq!(shared_memory(0, loader_room(256 << 30)), (8 << 30) + (128 << 20));
        assert_eq!(loader_room(16 << 30), 4 << 30, "a small host is not filled by batches");
        assert_eq!(loader_room(0), 0, "nothing is known of the host");
    }
}
