//! The entry point that DuckDB calls on `LOAD fdl`.
#![expect(unsafe_code, reason = "the C API of DuckDB")]

use std::error::Error as StdError;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libduckdb_sys as ffi;

use super::Context;
use super::register::register_all;
use crate::engine::{self, Engine};

/// Loads fdl into a database: opens the engine and registers the commands.
///
/// # Safety
/// Called by DuckDB, with its own arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdl_init_c_api(
    info: ffi::duckdb_extension_info,
    access: *const ffi::duckdb_extension_access,
) -> bool {
    // SAFETY: DuckDB's own arguments, during the call.
    let loaded = catch_unwind(AssertUnwindSafe(|| unsafe { load(info, access) }))
        .unwrap_or_else(|_| Err("an internal error while loading fdl [FDL-DUCKDB]".into()));
    match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
            // SAFETY: DuckDB copies the text during the call.
            unsafe {
                if let Some(set_error) = access.as_ref().and_then(|access| access.set_error) {
                    set_error(info, text.as_ptr());
                }
            }
            false
        }
    }
}

/// # Safety
/// As [`fdl_init_c_api`].
unsafe fn load(
    info: ffi::duckdb_extension_info,
    access: *const ffi::duckdb_extension_access,
) -> Result<bool, Box<dyn StdError>> {
    // SAFETY: by the contract of this function.
    let Some(database) = (unsafe { engine::initialize(info, access) })? else {
        return Ok(false);
    };
    // SAFETY: the handle is valid during the entry point.
    let engine = unsafe { Engine::open(database) }?;
    // SAFETY: as above; this connection is for the registration and closed at the end of this function.
    let connection = unsafe { duckdb::Connection::open_from_raw(database) }?;
    let registered = Context::new(engine.clone()).map(|context| register_all(&connection, &context));
    match registered {
        Ok(Ok(())) => Ok(true),
        failed => {
            engine.close();
            failed??;
            Ok(false)
        }
    }
}
