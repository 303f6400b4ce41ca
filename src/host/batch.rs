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
    let bytes = upload.small(LONGEST).await?;
    let question: Question = serde_json::from_slice(&bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Refusal::bad_request(format!("this is not the JSON of a batch (at line {line}, column {column})"))
    })?;
    if question.files.len() > MOST {
        return Err(Refusal::bad_request(format!("a batch is at most {MOST} files")));
    }
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
