//! The way in from DuckDB: its table of C functions, cut to the part that is stable.
#![expect(unsafe_code, reason = "the C API of DuckDB")]

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::OnceLock;

use libduckdb_sys as ffi;

/// The stable part of the table: functions behind this member move between releases of DuckDB, so that calling one
/// through the table of another release crashes the process.
const STABLE_BYTES: usize = offset_of!(ffi::duckdb_ext_api_v1, duckdb_is_finite_timestamp_s);

/// The version of the C API that fdl is written against; the footer of the packaged extension names it as well.
const C_API_VERSION: &str = "v1.2.0";

/// What DuckDB hands to an extension, with `get_api` replaced by one that shows the stable functions alone.
#[derive(Debug)]
pub struct StableAccess {
    access: ffi::duckdb_extension_access,
}

struct Table(Box<ffi::duckdb_ext_api_v1>);

// SAFETY: the table holds function pointers of the DuckDB library and is never written again.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: OnceLock<Table> = OnceLock::new();
static GET_API: OnceLock<GetApi> = OnceLock::new();

type GetApi = unsafe extern "C" fn(info: ffi::duckdb_extension_info, version: *const c_char) -> *const c_void;

/// Copies the stable functions into a table of the size our bindings know; the rest stays empty.
///
/// # Safety
/// Called by the bindings with the `info` that DuckDB gave to the entry point.
unsafe extern "C" fn get_stable_api(info: ffi::duckdb_extension_info, version: *const c_char) -> *const c_void {
    let Some(get_api) = GET_API.get() else {
        return ptr::null();
    };
    // SAFETY: `get_api` is DuckDB's own, `info` and `version` are passed through as they came.
    let theirs = unsafe { get_api(info, version) };
    if theirs.is_null() {
        return theirs;
    }
    let table = TABLE.get_or_init(|| {
        // SAFETY: the table is plain nullable function pointers, for which all zeros are valid; every DuckDB that
        // answers to v1.2.0 has at least STABLE_BYTES of it, and the two do not overlap.
        let stable = unsafe {
            let mut table: Box<ffi::duckdb_ext_api_v1> = Box::new(std::mem::zeroed());
            ptr::copy_nonoverlapping(theirs.cast::<u8>(), ptr::from_mut(table.as_mut()).cast::<u8>(), STABLE_BYTES);
            table
        };
        Table(stable)
    });
    ptr::from_ref(table.0.as_ref()).cast()
}

/// Prepares the bindings and returns the database being loaded into, or nothing when DuckDB has refused and knows why.
///
/// # Errors
/// A sentence for DuckDB to show.
///
/// # Safety
/// `info` and `access` are the arguments of the entry point, during its call.
pub unsafe fn initialize(
    info: ffi::duckdb_extension_info,
    access: *const ffi::duckdb_extension_access,
) -> Result<Option<ffi::duckdb_database>, &'static str> {
    // SAFETY: DuckDB passes a valid table of accessors.
    let theirs = unsafe { access.as_ref() }.ok_or("DuckDB gave no access to its functions")?;
    let get_api = theirs.get_api.ok_or("DuckDB gave no functions")?;
    let get_database = theirs.get_database.ok_or("DuckDB gave no database")?;
    GET_API.get_or_init(|| get_api);
    let ours = StableAccess {
        access: ffi::duckdb_extension_access {
            set_error: theirs.set_error,
            get_database: theirs.get_database,
            get_api: Some(get_stable_api),
        },
    };
    // SAFETY: `ours` is valid for the call and answers as DuckDB does.
    if !unsafe { ffi::duckdb_rs_extension_api_init(info, ptr::from_ref(&ours.access), C_API_VERSION) }? {
        return Ok(None);
    }
    // SAFETY: `info` is valid during the entry point.
    let database = unsafe { get_database(info) };
    if database.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and valid during the entry point.
    Ok(Some(unsafe { *database }))
}
