.echo on

-- 1. Start a repository. It is a folder (build/demo/nyc), and holds every version of a dataset.
LOAD '../release/fdl.duckdb_extension';
SELECT id, head, data_dir, created FROM fdl_init('nyc');

-- 2. Check it out. What you get is a DuckLake catalog, attached as `lake`: change it with any SQL.
SELECT alias, ref, version FROM fdl_checkout('nyc', alias := 'lake');

-- 3. Load the five tables of nycflights13: all 336,776 flights that left New York City in 2013.
CREATE TABLE lake.airlines AS FROM read_csv('../nycflights13/airlines.csv', nullstr = 'NA');
CREATE TABLE lake.airports AS FROM read_csv('../nycflights13/airports.csv', nullstr = 'NA');
CREATE TABLE lake.planes AS FROM read_csv('../nycflights13/planes.csv', nullstr = 'NA');
CREATE TABLE lake.weather AS FROM read_csv('../nycflights13/weather.csv', nullstr = 'NA');
CREATE TABLE lake.flights AS FROM read_csv('../nycflights13/flights.csv.gz', nullstr = 'NA');

-- 4. Commit: what is in the lake now becomes a version, still on your side.
SELECT version, tables, rows, files, bytes FROM fdl_commit('lake', message := 'nycflights13 as published');

-- 5. Push: the version goes into the repository, and the branch main moves to it. From here on others can read it.
SELECT ref, new_version, outcome, files_uploaded, bytes_uploaded FROM fdl_push('lake');

-- 6. A tag is a name that never moves.
CALL fdl_tag('nyc', name := 'v1', ref := 'main');

-- 7. Make a second version: drop the flights that never left, and mend two airports that lie in China by a wrong sign.
DELETE FROM lake.flights WHERE dep_time IS NULL;
UPDATE lake.airports SET lon = -lon WHERE faa IN ('DVT', 'MYF');
SELECT ref, ahead, uncommitted, tables_changed FROM fdl_status('lake');

-- 8. A push with a message commits first. Only what is new goes up; the other tables' files are shared by both versions.
SELECT ref, new_version, outcome, files_uploaded, bytes_uploaded
FROM fdl_push('lake', message := 'Drop cancelled flights, mend two airports');

-- 9. The history.
SELECT version, refs, message, rows FROM fdl_log('nyc');

-- 10. Every version stays readable. Attach both, each under a name of its own.
SELECT alias, ref, version FROM fdl_attach('nyc', ref := 'v1', alias := 'v1');
SELECT alias, ref, version FROM fdl_attach('nyc', ref := 'main', alias := 'latest');

-- 11. What changed? Rows of each table in the two versions, by plain SQL.
SELECT *, rows_latest - rows_v1 AS difference FROM (
    SELECT 'airlines' AS table_name, (SELECT count(*) FROM v1.airlines) AS rows_v1, (SELECT count(*) FROM latest.airlines) AS rows_latest
    UNION ALL SELECT 'airports', (SELECT count(*) FROM v1.airports), (SELECT count(*) FROM latest.airports)
    UNION ALL SELECT 'flights', (SELECT count(*) FROM v1.flights), (SELECT count(*) FROM latest.flights)
    UNION ALL SELECT 'planes', (SELECT count(*) FROM v1.planes), (SELECT count(*) FROM latest.planes)
    UNION ALL SELECT 'weather', (SELECT count(*) FROM v1.weather), (SELECT count(*) FROM latest.weather)
) ORDER BY table_name;

-- 12. And the rows of `airports` that are not the same.
SELECT faa, o.name, o.lon AS lon_v1, n.lon AS lon_latest
FROM v1.airports AS o JOIN latest.airports AS n USING (faa) WHERE o.lon <> n.lon ORDER BY faa;
