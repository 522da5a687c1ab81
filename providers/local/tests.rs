//! Tests of folders left by crashes or other programs, and of GPU detection.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::error::LeftBehind;
use crate::spec::check_settings;

/// Records ids.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

#[async_trait]
impl Recorder for Notes {
    async fn exists(&self, _key: &Key, id: &str) -> Result<()> {
        self.0.lock().unwrap().push(id.to_owned());
        Ok(())
    }
}

struct Bench {
    _root: tempfile::TempDir,
    hosts: PathBuf,
    local: Local,
    scope: Scope,
    tag: Tag,
    request: ResourceRequest,
}

fn bench() -> Bench {
    let root = tempfile::tempdir().unwrap();
    let hosts = root.path().join("data/hosts");
    let local = Local::new(hosts.clone(), PathBuf::from("/"));
    let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() };
    let key = Key::host(0);
    let host = HostRequest::new(key.clone(), serde_json::json!({}));
    let request = local.expand(&scope, &host).unwrap().remove(0);
    Bench { _root: root, hosts, local, tag: scope.tag(&key), scope, request }
}

impl Bench {
    async fn acquire(&self) -> Result<Acquired> {
        self.local.acquire(&self.tag, &self.request, &Notes::default()).await
    }

    async fn seen(&self) -> Vec<ObservedResource> {
        self.local.observe(&self.scope).await.unwrap()
    }

    fn folder(&self) -> PathBuf {
        self.hosts.join(self.tag.to_string())
    }

    async fn release_all(&self) {
        for resource in self.seen().await {
            self.local.release(&self.scope, &resource).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_host_is_a_private_folder_with_a_claim() {
    let bench = bench();
    let notes = Notes::default();
    let acquired = bench.local.acquire(&bench.tag, &bench.request, &notes).await.unwrap();
    assert_eq!(*notes.0.lock().unwrap(), std::slice::from_ref(&acquired.id));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&bench.folder()), mode(&bench.folder().join("claim.json"))), (0o700, 0o600));
    let claim: Value =
        serde_json::from_str(&fs_err::read_to_string(bench.folder().join("claim.json")).unwrap()).unwrap();
    assert_eq!((&claim["version"], &claim["tag"]), (&1.into(), &bench.tag.to_string().into()));
    assert_eq!(
        (&claim["owner"], &claim["cluster"], &claim["id"]),
        (&"abcd1234".into(), &"demo".into(), &acquired.id.into())
    );
}

#[tokio::test]
async fn a_folder_without_a_claim_shows_and_is_completed() {
    let bench = bench();
    fs_err::create_dir_all(bench.folder()).unwrap();
    let seen = bench.seen().await;
    assert_eq!((seen.len(), seen[0].is_usable()), (1, false));
    assert_eq!(seen[0].detail, "its folder was created but not claimed");

    let acquired = bench.acquire().await.unwrap();
    assert!(!acquired.was_there);
    let after = bench.seen().await;
    assert_eq!((after.len(), after[0].is_usable(), &after[0].id), (1, true, &acquired.id));

    // The id of the half-created one is gone: releasing it must not affect the new one.
    bench.local.release(&bench.scope, &seen[0]).await.unwrap();
    assert_eq!(bench.seen().await, after);
}

#[tokio::test]
async fn a_folder_without_a_claim_can_be_released() {
    let bench = bench();
    fs_err::create_dir_all(bench.folder()).unwrap();
    bench.release_all().await;
    assert!(!bench.folder().exists());
}

#[tokio::test]
async fn an_interrupted_release_shows_and_is_finished() {
    let bench = bench();
    let first = bench.acquire().await.unwrap();
    fs_err::write(bench.folder().join("data"), "x").unwrap();
    fs_err::rename(bench.folder(), bench.hosts.join(format!(".{}.releasing-{}", bench.tag, first.id))).unwrap();
    let seen = bench.seen().await;
    assert_eq!((seen.len(), seen[0].is_usable(), &seen[0].id), (1, false, &first.id));
    assert!(bench.local.place(&bench.tag, &first.id).await.is_err());

    // Another is created beside it, and releasing the old one keeps the new one.
    let second = bench.acquire().await.unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(bench.seen().await.len(), 2);
    bench.local.release(&bench.scope, &seen[0]).await.unwrap();
    let seen = bench.seen().await;
    assert_eq!((seen.len(), &seen[0].id), (1, &second.id));
}

#[tokio::test]
async fn entries_not_named_by_a_tag_are_left_alone() {
    let bench = bench();
    bench.acquire().await.unwrap();
    for name in ["notes", "gpucl-abcd1234-demo", ".gpucl-abcd1234-demo-host0", ".x.releasing-local-1"] {
        fs_err::create_dir_all(bench.hosts.join(name)).unwrap();
    }
    assert_eq!(bench.seen().await.len(), 1);
    bench.release_all().await;
    assert_eq!(fs::read_dir(&bench.hosts).unwrap().count(), 4);
}

#[tokio::test]
async fn the_last_release_leaves_no_empty_folder() {
    let bench = bench();
    let other = Scope { cluster: "demo-b".parse().unwrap(), ..bench.scope.clone() };
    bench.acquire().await.unwrap();
    bench.local.acquire(&other.tag(&Key::host(0)), &bench.request, &Notes::default()).await.unwrap();
    bench.release_all().await;
    assert_eq!(bench.local.observe(&other).await.unwrap().len(), 1);
    for resource in bench.local.observe(&other).await.unwrap() {
        bench.local.release(&other, &resource).await.unwrap();
    }
    assert!(!bench.hosts.parent().unwrap().exists());
}

#[tokio::test]
async fn a_damaged_claim_shows_is_not_taken_and_can_be_released() {
    let bench = bench();
    let newer = format!("{{\"version\": 9, \"tag\": \"{}\", \"id\": \"local-x\"}}", bench.tag);
    for (claim, why) in [
        ("{", "EOF while parsing"),
        ("{\"version\": 1, \"tag\": \"gpucl-abcd1234-other-host0\", \"id\": \"local-x\"}", "it is the claim of"),
        (&newer, "its version is 9"),
    ] {
        fs_err::create_dir_all(bench.folder()).unwrap();
        fs_err::write(bench.folder().join("claim.json"), claim).unwrap();
        let seen = bench.seen().await;
        assert!(!seen[0].is_usable() && seen[0].detail.contains(why), "{seen:?}");
        let error = bench.acquire().await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(*error.left_behind(), LeftBehind::Remaining(vec![seen[0].id.clone()]));
        assert_eq!(error.hints(), ["gpucl down -c demo"]);
        bench.release_all().await;
        assert!(!bench.folder().exists());
    }
}

#[tokio::test]
async fn a_file_in_the_folders_place_is_reported_and_released() {
    let bench = bench();
    fs_err::create_dir_all(&bench.hosts).unwrap();
    fs_err::write(bench.folder(), "in the way").unwrap();
    let error = bench.acquire().await.unwrap_err();
    assert!(error.to_string().contains(bench.folder().to_str().unwrap()), "{error}");
    assert!(error.hints()[0].contains("ls -ld"), "{:?}", error.hints());
    bench.release_all().await;
    bench.acquire().await.unwrap();
}

#[tokio::test]
async fn an_error_names_a_data_folder_that_is_not_a_folder() {
    let bench = bench();
    fs_err::create_dir_all(bench.hosts.parent().unwrap()).unwrap();
    fs_err::write(&bench.hosts, "in the way").unwrap();
    let hosts = bench.hosts.to_str().unwrap();
    let error = bench.acquire().await.unwrap_err();
    assert!(error.to_string().contains(hosts), "{error}");
    assert_eq!(*error.left_behind(), LeftBehind::Clear);
    assert!(!error.hints().is_empty());
    let error = bench.local.observe(&bench.scope).await.unwrap_err();
    assert!(error.to_string().contains(hosts), "{error}");
}

#[test]
fn a_full_or_closed_disk_gets_a_hint() {
    let folder = Path::new("/data/hosts/x");
    let hint = |kind: std::io::ErrorKind| {
        let error = allotment::failure("allot", folder, &kind.into());
        assert!(error.to_string().contains("/data/hosts/x"), "{error}");
        error.hints().join("\n")
    };
    assert!(hint(std::io::ErrorKind::StorageFull).contains("df -h /data/hosts"));
    assert!(hint(std::io::ErrorKind::QuotaExceeded).contains("df -h /data/hosts"));
    assert!(hint(std::io::ErrorKind::ReadOnlyFilesystem).contains("XDG_DATA_HOME"));
    assert!(hint(std::io::ErrorKind::PermissionDenied).contains("ls -ld /data/hosts"));
}

#[test]
fn settings_and_hosts_take_no_keys() {
    let wrong = serde_json::json!({ "gpus": 2 });
    let errors = check_settings(&FACTORY, &wrong, &[serde_json::json!({}), wrong.clone()]);
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["gpus", "hosts[1].gpus"]);
    assert!(check_settings(&FACTORY, &serde_json::json!({}), &[serde_json::json!({}), Value::Null]).is_empty());
}

fn machine(cards: &[(&str, &str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(root.path().join("proc")).unwrap();
    fs_err::write(root.path().join("proc/meminfo"), "MemTotal:       16384 kB\nMemFree: 1 kB\n").unwrap();
    for (index, (vendor, class, device)) in cards.iter().enumerate() {
        let folder = root.path().join(format!("sys/bus/pci/devices/0000:0{index}:00.0"));
        fs_err::create_dir_all(&folder).unwrap();
        for (name, value) in [("vendor", vendor), ("class", class), ("device", device)] {
            fs_err::write(folder.join(name), format!("{value}\n")).unwrap();
        }
    }
    root
}

#[test]
fn the_cards_on_the_bus_are_counted_by_their_ids() {
    let root = machine(&[
        ("0x10de", "0x030200", "0x2330"),
        ("0x10de", "0x030200", "0x2330"),
        ("0x10de", "0x040300", "0x2330"), // its audio function
        ("0x10de", "0x068000", "0x22a3"), // an NVSwitch
        ("0x1002", "0x120000", "0x74a1"),
        ("0x1002", "0x038000", "0x738c"),
        ("0x1a03", "0x030000", "0x2000"), // the board's own display
    ]);
    let offer = machine::offer(root.path()).unwrap();
    let gpus: Vec<(&str, Option<u32>)> = offer.gpus.iter().map(|gpu| (gpu.model.as_str(), gpu.count)).collect();
    assert_eq!(gpus, [("AMD 1002:738c", Some(1)), ("AMD 1002:74a1", Some(1)), ("NVIDIA 10de:2330", Some(2))]);
    assert_eq!((offer.memory, offer.price_per_hour, offer.free.as_str()), (16 << 20, None, "now"));
}

#[test]
fn a_machine_without_a_bus_has_no_cards_and_one_without_meminfo_is_an_error() {
    let root = machine(&[]);
    assert!(machine::offer(root.path()).unwrap().gpus.is_empty());
    fs_err::write(root.path().join("proc/meminfo"), "MemFree: 1 kB\n").unwrap();
    let error = machine::offer(root.path()).unwrap_err();
    assert!(error.to_string().contains("proc/meminfo has no line"), "{error}");
}
