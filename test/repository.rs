//! What readers and writers meet in repositories that are not as they should be.
#![expect(clippy::unwrap_used, clippy::string_slice, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use fdl::format::{DataDir, Expired, FormatError, Random, Reason, RefName, Revision, SeededRandom, VersionId, layout};
use fdl::repo::{
    CatalogTarget, Expected, InitOptions, LocalVersion, LogOptions, RepoError, Repository, Resolved, State,
    create_branch, create_tag, delete_ref, ignored_conditions, init, list_refs, log, open_version, read_dataset,
    read_files, read_live, read_record, resolve,
};
use fdl::store::fault::{Call, Fault};
use fdl::store::{Body, FaultStore, MemoryStore, Store, Verb};
use futures::executor::block_on;
use futures::{FutureExt, StreamExt, TryStreamExt};
use support::{Bench, Careless, Reads, refs_json, repository, write_data};

fn main_branch() -> RefName {
    RefName::branch("main").unwrap()
}

/// A repository whose `main` has this many versions.
fn with_versions(bench: &Bench, count: usize) -> (Arc<MemoryStore>, Vec<LocalVersion>) {
    let store = repository(bench);
    let chain = bench.chain(None, count);
    write_data(&store, &chain);
    block_on(bench.push(store.clone(), "main", Expected::Absent, &chain)).unwrap();
    (store, chain)
}

fn put(store: &MemoryStore, key: &str, text: impl Into<String>) {
    block_on(store.put(key, Body::Bytes(text.into().into()))).unwrap();
}

fn text(store: &MemoryStore, key: &str) -> String {
    String::from_utf8(block_on(store.get(key)).unwrap().bytes.to_vec()).unwrap()
}

fn resolved(store: &dyn Store, revision: &str) -> Result<Resolved, RepoError> {
    block_on(resolve(store, &revision.parse().unwrap()))
}

/// What is denied where listing is not allowed: listing, and whatever is asked for and is not there.
fn without_listing(store: Arc<MemoryStore>) -> FaultStore {
    let below = store.clone();
    FaultStore::new(store, move |call: Call<'_>| {
        let absent = !call.verb.is_write() && !below.contents().contains_key(call.key);
        if call.verb == Verb::List || absent { Fault::Deny } else { Fault::None }
    })
}

#[test]
fn a_place_without_settings_is_no_repository() {
    let store = Arc::new(MemoryStore::new());
    let error = block_on(Repository::open(store.clone())).unwrap_err();
    assert!(matches!(error, RepoError::NotARepository { .. }));
    let error = block_on(Repository::open_at(store.clone(), &Revision::HEAD)).unwrap_err();
    assert!(matches!(error, RepoError::NotARepository { .. }));
    put(&store, "fdl.json", r#"{"fdl": "1.0"}"#);
    let error = block_on(Repository::open(store.clone())).unwrap_err();
    assert!(matches!(error, RepoError::UnsupportedVersion { .. }));
    put(&store, "fdl.json", "{");
    assert!(matches!(block_on(Repository::open(store)).unwrap_err(), RepoError::Corrupt { .. }));
}

#[test]
fn a_second_init_changes_nothing() {
    let random = SeededRandom::new(1);
    let store = MemoryStore::new();
    let id = random.uuid();
    let mut options = InitOptions::new(RefName::branch("trunk").unwrap());
    options.id = Some(id);
    options.data_dir = DataDir::parse("tables/").unwrap();
    let first = block_on(init(&store, options, &random)).unwrap();
    assert!(first.created);
    assert_eq!(text(&store, "HEAD"), "ref: refs/heads/trunk\n");
    assert_eq!(text(&store, "refs.json"), "{\n  \"head\": \"refs/heads/trunk\",\n  \"refs\": {}\n}\n");
    let before = store.contents();
    let second = block_on(init(&store, InitOptions::new(main_branch()), &random)).unwrap();
    assert_eq!((second.created, second.settings.id, &second.head), (false, Some(id), &first.head));
    assert_eq!(store.contents(), before);
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let store = Careless(Arc::new(MemoryStore::new()));
    let error = block_on(init(&store, InitOptions::new(main_branch()), &SeededRandom::new(1))).unwrap_err();
    assert!(matches!(error, RepoError::NoConditions { .. }), "{error}");
    assert!(store.0.contents().is_empty(), "what was written is gone");
    let good = repository(&Bench::new(1));
    let before = good.contents();
    // A repository that somebody copied there is not touched, let alone taken back.
    for (key, bytes) in &before {
        block_on(store.put(key, Body::Bytes(bytes.clone()))).unwrap();
    }
    let error = block_on(init(&store, InitOptions::new(main_branch()), &SeededRandom::new(2))).unwrap_err();
    assert!(error.to_string().contains("If-None-Match and If-Match"), "{error}");
    assert_eq!(store.0.contents(), before);
    assert_eq!(block_on(ignored_conditions(good.as_ref())).unwrap(), Vec::<&str>::new());
    assert_eq!(good.contents(), before);
}

#[test]
fn revisions() {
    let bench = Bench::new(2);
    let (store, chain) = with_versions(&bench, 3);
    let ids: Vec<VersionId> = chain.iter().map(LocalVersion::id).collect();
    let tag = RefName::tag("v1").unwrap();
    block_on(create_tag(store.as_ref(), &tag, ids[0])).unwrap();
    let last = ids[2].to_string();
    for (revision, id, reference) in [
        ("", ids[2], Some(main_branch())),
        ("HEAD~1", ids[1], Some(main_branch())),
        ("main", ids[2], Some(main_branch())),
        ("main~2", ids[0], Some(main_branch())),
        ("refs/heads/main", ids[2], Some(main_branch())),
        ("v1", ids[0], Some(tag.clone())),
        ("refs/tags/v1", ids[0], Some(tag.clone())),
        (&last, ids[2], None),
        (&format!("{last}~1"), ids[1], None),
        (&last[..30], ids[2], None),
    ] {
        let found = resolved(store.as_ref(), revision).unwrap();
        assert_eq!((found.version, found.reference), (Some(id), reference), "{revision}");
    }
    let error = resolved(store.as_ref(), "main~3").unwrap_err();
    assert!(matches!(error, RepoError::NoSuchAncestor { generations: 2, .. }), "{error}");
    // All three were made within a second or so.
    let RepoError::AmbiguousPrefix { candidates, .. } = resolved(store.as_ref(), &last[..8]).unwrap_err() else {
        panic!("not ambiguous");
    };
    assert_eq!(candidates, ids);
    for absent in ["nothing", "refs/tags/x", "refs/heads/x", "00000000"] {
        assert!(matches!(resolved(store.as_ref(), absent), Err(RepoError::NoSuchRef { .. })), "{absent}");
    }
    block_on(create_branch(store.as_ref(), &RefName::branch("v1").unwrap(), ids[1])).unwrap();
    let error = resolved(store.as_ref(), "v1").unwrap_err().to_string();
    assert!(error.contains("refs/heads/v1") && error.contains("refs/tags/v1"), "{error}");
    let limited = without_listing(store);
    assert_eq!(resolved(&limited, "refs/heads/main").unwrap().version, Some(ids[2]));
    assert_eq!(resolved(&limited, "main").unwrap().version, Some(ids[2]));
    let error = resolved(&limited, &last[..30]).unwrap_err();
    assert!(matches!(error, RepoError::Store(_) | RepoError::PrefixNeedsListing { .. }), "{error}");
}

#[test]
fn an_empty_repository_has_an_unborn_branch() {
    let bench = Bench::new(3);
    let store = repository(&bench);
    for revision in ["", "main", "refs/heads/main"] {
        let found = resolved(store.as_ref(), revision).unwrap();
        assert_eq!((found.reference, found.version), (Some(main_branch()), None));
    }
    assert!(matches!(resolved(store.as_ref(), "main~1"), Err(RepoError::Unborn { .. })));
    let found = resolved(store.as_ref(), "").unwrap();
    assert!(matches!(block_on(open_version(store.as_ref(), &found, None)), Err(RepoError::Unborn { .. })));
}

#[test]
fn marked_versions_stop_a_reader_and_stay_in_the_log() {
    let bench = Bench::new(4);
    let (store, chain) = with_versions(&bench, 3);
    let ids: Vec<VersionId> = chain.iter().map(LocalVersion::id).collect();
    let mark = Expired { reason: Some(Reason::Withdrawn), at: None, message: Some("names".to_owned()) };
    put(&store, &layout::expired(ids[0]), String::from_utf8(mark.print(ids[0]).unwrap()).unwrap());
    put(&store, &layout::expired(ids[1]), "not json");
    block_on(store.delete(&layout::catalog(ids[0]))).unwrap();
    let error = block_on(read_live(store.as_ref(), ids[0])).unwrap_err();
    assert!(matches!(error, RepoError::Withdrawn { .. }) && error.to_string().contains("names"), "{error}");
    let error = block_on(read_live(store.as_ref(), ids[1])).unwrap_err();
    assert!(matches!(error, RepoError::Expired { .. }), "{error}");
    let tagged = block_on(create_tag(store.as_ref(), &RefName::tag("old").unwrap(), ids[1]));
    assert!(matches!(tagged, Err(RepoError::Expired { .. })));
    let refs = block_on(list_refs(store.as_ref())).unwrap().by_version();
    let options = LogOptions { refs, ..LogOptions::default() };
    let entries: Vec<_> = block_on(log(store.clone(), ids[2], options).try_collect()).unwrap();
    let states: Vec<&State> = entries.iter().map(|entry| &entry.state).collect();
    assert!(matches!(states[..], [State::Live, State::Expired(_), State::Withdrawn(_)]));
    assert_eq!((&entries[0].refs[..], &entries[1].refs[..]), (&[main_branch()][..], &[][..]));
}

#[test]
fn where_absent_keys_are_denied_a_catalog_that_can_be_read_means_no_mark() {
    let bench = Bench::new(5);
    let (store, chain) = with_versions(&bench, 1);
    let limited = without_listing(store.clone());
    assert!(block_on(read_live(&limited, chain[0].id())).is_ok());
    let history = log(Arc::new(without_listing(store.clone())), chain[0].id(), LogOptions::default());
    let entries: Vec<_> = block_on(history.try_collect()).unwrap();
    assert_eq!((entries.len(), entries[0].signed), (1, false));
    block_on(store.delete(&layout::catalog(chain[0].id()))).unwrap();
    assert!(matches!(block_on(read_live(&limited, chain[0].id())), Err(RepoError::Store(_))));
}

#[test]
fn damage_is_found_and_named() {
    let bench = Bench::new(6);
    let (store, chain) = with_versions(&bench, 3);
    let ids: Vec<VersionId> = chain.iter().map(LocalVersion::id).collect();
    let told = |start| {
        let entries = log(store.clone(), start, LogOptions::default()).collect::<Vec<_>>();
        block_on(entries)
    };
    // A circle.
    let first = layout::version_json(ids[0]);
    let original = text(&store, &first);
    put(&store, &first, original.replace("\"parents\": []", &format!("\"parents\": [\"{}\"]", ids[2])));
    let entries = told(ids[2]);
    assert_eq!(entries.len(), 4);
    assert!(matches!(entries[3], Err(RepoError::Corrupt { .. })), "{:?}", entries[3]);
    assert!(matches!(resolved(store.as_ref(), "main~9"), Err(RepoError::Corrupt { .. })));
    // A parent that is missing.
    block_on(store.delete(&first)).unwrap();
    let entries = told(ids[2]);
    assert!(matches!(&entries[2], Err(RepoError::Corrupt { object, .. }) if *object == first), "{:?}", entries[2]);
    assert!(matches!(told(ids[0])[..], [Err(RepoError::NoSuchVersion { .. })]));
    // A ref to nothing, and a ref that is none.
    put(&store, "refs/heads/x", ids[0].to_string());
    let found = resolved(store.as_ref(), "x").unwrap();
    assert!(matches!(block_on(open_version(store.as_ref(), &found, None)), Err(RepoError::Corrupt { .. })));
    put(&store, "refs/heads/x", "nonsense");
    assert!(matches!(resolved(store.as_ref(), "x"), Err(RepoError::Corrupt { .. })));
    // A record of another version, and a catalog that is not the one.
    put(&store, &first, text(&store, &layout::version_json(ids[1])));
    assert!(matches!(block_on(read_live(store.as_ref(), ids[0])), Err(RepoError::Corrupt { .. })));
    let target = bench.path().join("catalog");
    let catalog = CatalogTarget { reader: &Reads(&["1.0"]), path: &target, max_size: 1 << 20 };
    let version = Resolved::of_version(ids[2]);
    put(&store, &layout::catalog(ids[2]), "other");
    let error = block_on(open_version(store.as_ref(), &version, Some(catalog))).unwrap_err();
    assert!(matches!(error, RepoError::Corrupt { .. }) && !target.exists(), "{error}");
    block_on(store.delete(&layout::catalog(ids[2]))).unwrap();
    let error = block_on(open_version(store.as_ref(), &version, Some(catalog))).unwrap_err();
    assert!(matches!(error, RepoError::Corrupt { .. }), "{error}");
    // HEAD.
    block_on(store.delete("HEAD")).unwrap();
    assert!(matches!(resolved(store.as_ref(), ""), Err(RepoError::Corrupt { .. })));
}

#[test]
fn an_index_that_does_not_fit_is_not_used() {
    let bench = Bench::new(7);
    let (store, chain) = with_versions(&bench, 1);
    let id = chain[0].id();
    let record = block_on(read_record(store.as_ref(), id)).unwrap();
    let data = DataDir::default();
    assert!(block_on(read_files(store.as_ref(), &data, &record)).unwrap().is_some());
    assert!(block_on(read_dataset(store.as_ref(), &record)).unwrap().is_some());
    let files = text(&store, &layout::files(id));
    put(&store, &layout::files(id), files.replace("\"rows\": 1", "\"rows\": 2"));
    put(&store, &layout::dataset(id), "{}");
    assert!(block_on(read_files(store.as_ref(), &data, &record)).unwrap().is_none());
    assert!(block_on(read_dataset(store.as_ref(), &record)).unwrap().is_none());
    // Vouched for and still leading outside: an error, never followed.
    let evil = files.replace("data/main/t/", "data/../");
    let mut record = record;
    record.files_sha256 = Some(fdl::format::Sha256::of(evil.as_bytes()));
    put(&store, &layout::files(id), evil);
    let error = block_on(read_files(store.as_ref(), &data, &record)).unwrap_err();
    assert!(matches!(error, RepoError::Format(FormatError::BadPath { .. })), "{error}");
    block_on(store.delete(&layout::files(id))).unwrap();
    assert!(block_on(read_files(store.as_ref(), &data, &record)).unwrap().is_none());
}

#[test]
fn refs_json_keeps_what_it_does_not_know_and_is_mended() {
    let bench = Bench::new(16);
    let (store, chain) = with_versions(&bench, 1);
    let id = chain[0].id();
    put(&store, "refs.json", r#"{"head": "refs/heads/main", "refs": {}, "host": {"x": 1}}"#);
    put(&store, "refs/heads/Odd Name", "kept out");
    block_on(create_tag(store.as_ref(), &RefName::tag("v1").unwrap(), id)).unwrap();
    assert!(text(&store, "refs.json").contains("\"host\""));
    assert_eq!(refs_json(&store).len(), 2);
    assert_eq!(block_on(list_refs(store.as_ref())).unwrap().ignored, ["refs/heads/Odd Name"]);
    put(&store, "refs.json", "damaged");
    let change = block_on(delete_ref(store.as_ref(), &RefName::tag("v1").unwrap())).unwrap();
    assert_eq!((change.version, change.notes.len()), (id, 0));
    assert_eq!(refs_json(&store).len(), 1);
    // Where nothing can be listed, refs.json says which refs there are, and the refs what they hold.
    let limited = without_listing(store.clone());
    put(&store, "refs/heads/main", format!("{}\n", bench.version(Some(id), &[]).id()));
    let refs = block_on(list_refs(&limited)).unwrap().refs;
    assert_ne!(refs[&main_branch()], id);
    // One that cannot be written is a note and no error.
    let denied = FaultStore::new(store, |call: Call<'_>| match call.key == "refs.json" && call.verb.is_write() {
        true => Fault::Fail,
        false => Fault::None,
    });
    let change = block_on(create_tag(&denied, &RefName::tag("v2").unwrap(), id)).unwrap();
    assert_eq!(change.notes.len(), 1);
}

#[test]
fn a_ref_made_after_the_listing_is_not_lost_from_refs_json() {
    let bench = Bench::new(17);
    let (store, chain) = with_versions(&bench, 1);
    let id = chain[0].id();
    let (ours, theirs) = (RefName::tag("ours").unwrap(), RefName::tag("theirs").unwrap());
    let (below, other) = (store.clone(), theirs.clone());
    // Between the listing of refs and the reading of refs.json, somebody makes a tag from beginning to end.
    let rule = move |call: Call<'_>| {
        if call.key == "refs.json" && call.verb == Verb::Get {
            drop(create_tag(below.as_ref(), &other, id).now_or_never());
        }
        Fault::None
    };
    block_on(create_tag(&FaultStore::new(store.clone(), rule), &ours, id)).unwrap();
    assert_eq!(refs_json(&store).into_keys().collect::<Vec<_>>(), [main_branch(), ours, theirs]);
}
