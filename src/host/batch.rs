//! `POST /?batch`: how each file of a push is to be sent (docs/format.md section 14).

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use crate::store::StoreError;

use super::answer::{Refusal, json};
use super::shared::Shared;
use super::target::{Target, VersionPart};
use super::upload::Upload;
use super::upload_urls::UploadUrl;

/// The most files of one request.
const MOST: usize = 1_000;
/// The longest body of a request, in bytes: that many of the longest keys.
const LONGEST: u64 = 4 << 20;
/// How many files are asked for at the same time.
const CONCURRENT: usize = 16;

#[derive(Debug, Deserialize)]
struct Question {
    files: Vec<Asked>,
}

/// What else a writer says of a file, its type, follows from the key.
#[derive(Debug, Deserialize)]
struct Asked {
    key: String,
    size: u64,
}

#[derive(Debug, Serialize)]
struct Answer {
    files: Vec<Told>,
}

#[derive(Debug, Serialize)]
struct Told {
    key: String,
    #[serde(flatten)]
    how: How,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum How {
    /// It is there with that size.
    There { exists: bool },
    /// It is sent to a URL.
    Past(UploadUrl),
    /// 413: it is sent through the host. Anything else: it cannot be sent at all.
    Status { status: u16 },
}

/// Answers a batch, each file on its own, in the order of the question.
pub(super) async fn answer(shared: &Arc<Shared>, upload: &mut Upload) -> Result<Response, Refusal> {
    let question = question(&upload.small(LONGEST).await?)?;
    shared.data_dir().await?;
    let files = stream::iter(question.files)
        .map(|asked| async move {
            let how = how(shared, &asked).await?;
            Ok::<_, Refusal>(Told { key: asked.key, how })
        })
        .buffered(CONCURRENT)
        .try_collect()
        .await?;
    Ok(json(StatusCode::OK, &Answer { files }))
}

/// Reads the question. What is told of a bad one is where it is bad, and nothing that stands there.
fn question(bytes: &[u8]) -> Result<Question, Refusal> {
    let question: Question = serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Refusal::bad_request(format!("this is not the JSON of a batch (at line {line}, column {column})"))
    })?;
    match question.files.len() > MOST {
        true => Err(Refusal::bad_request(format!("a batch is at most {MOST} files"))),
        false => Ok(question),
    }
}

async fn how(shared: &Shared, asked: &Asked) -> Result<How, Refusal> {
    let status = |status: StatusCode| How::Status { status: status.as_u16() };
    // The host reads the others itself as they come: it knows what their names promise (a hash), or reads them later.
    let (key, past) = match Target::of_key(&asked.key) {
        Ok(Target::Data(path)) => (path.key(shared.data_dir().await?).map(str::to_owned), true),
        Ok(Target::Version(key, VersionPart::Catalog | VersionPart::Text) | Target::Source(key, _)) => (Ok(key), false),
        Ok(_) => (Err(Refusal::forbidden("this is no file of a push")), false),
        Err(refusal) => (Err(refusal), false),
    };
    let key = match key {
        Ok(key) => key,
        Err(refusal) => return Ok(status(refusal.status)),
    };
    match shared.store().head(&key).await {
        Ok(meta) if meta.size == asked.size => return Ok(How::There { exists: true }),
        Ok(_) => return Ok(status(StatusCode::CONFLICT)),
        Err(StoreError::NotFound { .. }) => {}
        Err(error) => return Err(Refusal::unwritten(&error)),
    }
    let past = past && asked.size <= shared.options.max_upload;
    let Some(urls) = shared.options.upload_urls.as_ref().filter(|_| past) else {
        return Ok(status(StatusCode::PAYLOAD_TOO_LARGE));
    };
    let url = urls.upload_url(&key, asked.size).await.map_err(|error| Refusal::unwritten(&error))?;
    Ok(url.map_or_else(|| status(StatusCode::PAYLOAD_TOO_LARGE), How::Past))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn what_is_no_batch_is_refused_in_words_of_our_own(
            text in prop_oneof![
                ".{0,60}",
                "\\{\"files\": ?\\[(\\{\"(key|size)\": ?(\"secret\"|-?[0-9]{1,30}|null|1e400)[,}\\]]{0,3}){0,4}",
            ],
        ) {
            if let Err(refusal) = question(text.as_bytes()) {
                prop_assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
                prop_assert!(refusal.message.len() < 100 && !refusal.message.contains("secret"), "{}", refusal.message);
            }
        }

        #[test]
        fn what_is_one_is_read(keys in prop::collection::vec(".{0,20}", 0..20), size in any::<u64>()) {
            let files: Vec<_> = keys.iter().map(|key| json!({"key": key, "size": size, "content_type": "x"})).collect();
            let read = question(json!({"files": files}).to_string().as_bytes()).unwrap();
            let read: Vec<_> = read.files.into_iter().map(|asked| (asked.key, asked.size)).collect();
            prop_assert_eq!(read, keys.into_iter().map(|key| (key, size)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_batch_has_a_limit_in_files_and_in_depth() {
        let files = |count| json!({"files": vec![json!({"key": "data/a", "size": 1}); count]}).to_string();
        assert!(question(files(MOST).as_bytes()).is_ok() && question(files(MOST + 1).as_bytes()).is_err());
        let deep = format!("{{\"files\": {}", "[".repeat(1 << 20));
        assert!(question(deep.as_bytes()).is_err());
    }
}
