#!/usr/bin/env bash
# The main job on real data, in a fresh folder build/demo. `make demo` builds and fetches what this needs, then calls it.
# All that happens to the dataset is SQL: see demo.sql.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
duckdb=$(cd "$root/scripts" && "${PYTHON:-python3}" -c 'import layout; print(layout.shell())')
rm -rf "$root/build/demo"
mkdir -p "$root/build/demo/home"
cd "$root/build/demo"

# Nothing of this machine's settings, and nothing left on it.
unset XDG_CACHE_HOME FDL_CACHE_DIR
export HOME="$PWD/home" FDL_AUTHOR="Demo <demo@example.org>"
extensions="SET extension_directory = '../extensions';"
SECONDS=0

echo "FDL keeps versions of a DuckLake dataset, as git does of source code. This is a DuckDB shell; every step is a statement."
"$duckdb" -unsigned -bail -cmd ".maxwidth 120" -cmd "$extensions" -f "$root/scripts/demo.sql"

echo
echo "-- 13. To read a version takes no FDL at all. fdl_url says how plain DuckDB attaches the tag v1:"
attach=$("$duckdb" -unsigned -bail -noheader -list -cmd "$extensions" -cmd "LOAD '../release/fdl.duckdb_extension';" \
    -c "SELECT attach_sql FROM fdl_url('nyc', ref := 'v1');")
echo "$attach"
echo
echo "-- 14. Another process, without FDL, runs just that."
"$duckdb" -bail -echo -cmd "$extensions" -cmd "$attach;" \
    -c "SELECT origin, count(*) AS flights, count(dep_time) AS departed FROM nyc.flights GROUP BY origin ORDER BY origin;"

echo
echo "The demo took $SECONDS seconds. The repository is build/demo/nyc; the working copy is build/demo/lake.sqlite."
echo "To go on from here:"
echo "  cd build/demo && ../../${duckdb#"$root"/} -unsigned -cmd \"$extensions LOAD '../release/fdl.duckdb_extension';\""
