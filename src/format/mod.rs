//! What the files of a repository are. Pure values: parse, print and check. No I/O, no async, no DuckDB.
