import duckdb

fdl = duckdb.connect(config={"allow_unsigned_extensions": True})
fdl.execute("INSTALL fdl FROM 'build/repository'")
fdl.execute("LOAD fdl")
fdl.execute("CALL fdl_init('shop')")
