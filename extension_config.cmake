# Read by DuckDB's own build, as in DuckDB's community extensions: which extension to load, and that test/sql are its tests.

duckdb_extension_load(fdl
    SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR}
    DONT_LINK
    LOAD_TESTS
)
